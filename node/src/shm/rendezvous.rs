//! How two processes find each other: a Unix socket in a folder that only this user can enter.
//!
//! The name belongs to whoever holds the lock on its lock file: the socket's whole name and `.lock`. The kernel drops
//! the lock when its holder dies, however it dies, so a name is never blocked by the dead, and whoever comes along next
//! removes what they left. Nothing else is ever removed: only a socket on which nobody listens, and a lock file that is
//! an empty regular file of this user.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cutthrough_segment::map::cure;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, shutdown,
    socket_with,
};
use rustix::process::geteuid;

use super::strangers::Stranger;
use crate::process::Process;
use crate::sys::credentials;

/// Most letters of a name.
pub const NAME_MAX: usize = 64;

/// Most bytes of the path of a socket.
pub const PATH_MAX: usize = 107;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It does not begin with the name of an adapter that exists.
    #[error("address {0:?} names no adapter; use shm:NAME on this machine, or udp:HOST:PORT")]
    Adapter(String),
    /// The name is empty, too long, or has other characters.
    #[error(
        "name {0:?} is not usable; use 1 to 64 letters, digits, '.', '_' or '-', not beginning with '.', or an \
         absolute path"
    )]
    Name(String),
    /// The path is longer than a socket's may be.
    #[error("path {0:?} is too long for a socket ({max} bytes); {cure}", max = PATH_MAX, cure = shorter(.0))]
    TooLong(PathBuf),
    /// The folder for names cannot be used.
    #[error("folder {path:?}: {error}; set CUTTHROUGH_DIR to a folder of your own with mode 700")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Somebody else listens under this name.
    #[error("{name} is in use by a running process; choose another name, or end what listens there", name = shown(.0))]
    InUse(PathBuf),
    /// Something else lies there, which is not Cutthrough's to remove.
    #[error("{name} is there already and is not a name of ours; choose another name or move it away", name = shown(.0))]
    Foreign(PathBuf),
    /// Nobody listens under this name.
    #[error("nobody listens at {name}; start the listening side first", name = shown(.0))]
    Nobody(PathBuf),
    /// Somebody listens, but does not answer those who came before.
    #[error("{name} has more callers than it has let in; the listening side has to poll or wait", name = shown(.0))]
    Busy(PathBuf),
    /// It belongs to another user.
    #[error("{name} belongs to another user; ask that user, or use a name of your own", name = shown(.0))]
    Denied(PathBuf),
    /// Somebody else than root or this user listens there.
    #[error("{name} belongs to user {user}, who is neither root nor you; use a name of your own", name = shown(path))]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Who listens.
        user: u32,
    },
    /// Anything else that the system says.
    #[error("{name}: {error}{cure}", name = shown(path), cure = cure_of(error))]
    System {
        /// The socket or lock.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Where something lies, as the address that leads there: the name that was given, and what it stands for.
fn shown(path: &Path) -> String {
    let is_name = path.parent().is_some_and(|parent| parent == folder());
    match (path.file_stem().and_then(OsStr::to_str), path.extension().and_then(OsStr::to_str)) {
        (Some(name), Some("sock")) if is_name => format!("shm:{name} ({})", path.display()),
        (_, Some("lock")) => path.display().to_string(),
        _ => format!("shm:{}", path.display()),
    }
}

/// What to do where a path is too long. A name is never too long by itself: the folder is, which the user has set.
fn shorter(path: &Path) -> &'static str {
    if path.parent() == Some(&folder()) {
        "set CUTTHROUGH_DIR to a folder with a shorter path"
    } else {
        "use a shorter one"
    }
}

/// What to do where a limit is the cause of this error: [`cure`].
pub(crate) fn cure_of(error: &std::io::Error) -> &'static str {
    error.raw_os_error().map_or("", |raw| cure(Errno::from_raw_os_error(raw)))
}

/// The folder where names live: `CUTTHROUGH_DIR`, or `cutthrough` in `XDG_RUNTIME_DIR` if that is a folder of this user
/// alone, or `/tmp/cutthrough-UID`.
#[must_use]
pub fn folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("CUTTHROUGH_DIR")
        .or_else(|| variable("XDG_RUNTIME_DIR").filter(|path| is_own(path)).map(|runtime| runtime.join("cutthrough")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/cutthrough-{}", geteuid().as_raw())))
}

/// Whether this is a folder of this user's that nobody else may write to. Root has often inherited that of the user who
/// has become root, and a folder of root's in there would be in that user's way.
fn is_own(path: &Path) -> bool {
    path.is_absolute()
        && std::fs::metadata(path).is_ok_and(|metadata| {
            metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
        })
}

/// Where the socket of an address lies.
///
/// # Errors
/// [`AddressError`], if the address is malformed or the folder cannot be used. A path of one's own is taken as it is.
pub fn socket_path(address: &str) -> Result<PathBuf, AddressError> {
    let name = address.strip_prefix("shm:").ok_or_else(|| AddressError::Adapter(address.to_owned()))?;
    if crate::clock::is_simulated() {
        let error = std::io::Error::new(std::io::ErrorKind::Unsupported, "shared memory knows no simulated time");
        return Err(AddressError::System { path: name.into(), error });
    }
    let path = if name.starts_with('/') {
        PathBuf::from(name)
    } else {
        let usable = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || name.starts_with('.') || !name.chars().all(usable) {
            return Err(AddressError::Name(name.to_owned()));
        }
        own_folder()?.join(format!("{name}.sock"))
    };
    if path.as_os_str().len() > PATH_MAX { Err(AddressError::TooLong(path)) } else { Ok(path) }
}

/// The folder, made if need be, and checked to be ours alone.
fn own_folder() -> Result<PathBuf, AddressError> {
    // Without a slash at its end, behind which a link would be followed.
    let path: PathBuf = folder().components().collect();
    let refuse = |error| AddressError::Folder { path: path.clone(), error };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(refuse)?;
    let metadata = std::fs::symlink_metadata(&path).map_err(refuse)?;
    if metadata.is_symlink() {
        return Err(refuse(std::io::Error::other("it is a symbolic link")));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(refuse(std::io::Error::other("it belongs to another user")));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(refuse(std::io::Error::other("others may enter it")));
    }
    Ok(path)
}

/// A name that is ours as long as this lives.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    lock: Lock,
}

impl Listener {
    /// Takes the name and listens.
    ///
    /// # Errors
    /// [`AddressError`]; [`AddressError::InUse`] if a living process has the name, [`AddressError::Foreign`] if what
    /// lies there is no name.
    pub fn open(address: &str) -> Result<Self, AddressError> {
        let path = socket_path(address)?;
        if let Some(folder) = path.parent().filter(|_| !address.starts_with("shm:/")) {
            sweep(folder);
        }
        vacant(&path)?;
        let lock = Lock::take(&path)?;
        match vacant(&path)? {
            Vacancy::Free => {}
            Vacancy::Socket if abandoned(&path) => {
                let _ = std::fs::remove_file(&path);
            }
            Vacancy::Socket => return Err(AddressError::InUse(path)),
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
            .map_err(|errno| system(&path, errno))?;
        // It is made for this user alone. Later its mode could be changed by its path only, and where the folder is
        // somebody else's, that may lead to another file by then.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|errno| system(&path, errno))?;
        let name = SocketAddrUnix::new(&path).map_err(|errno| system(&path, errno))?;
        bind(&socket, &name).map_err(|errno| explain(errno.into(), &path))?;
        let listener = Self { socket, path, lock };
        listen(&listener.socket, 128).map_err(|errno| system(&listener.path, errno))?;
        Ok(listener)
    }

    /// The listening socket, non-blocking.
    #[must_use]
    pub const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether it is this process's, and the name of the socket at `path`.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == path && self.lock.holds() && is_socket(path)
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.lock.is_ours() {
            return;
        }
        // Who stands outside goes one by one: with the socket all of them would be closed, and what they have sent.
        let _ = shutdown(&self.socket, Shutdown::Both);
        while let Ok(socket) = accept_with(&self.socket, FLAGS) {
            drop(Stranger::new(socket));
        }
        if self.lock.holds() && is_socket(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What lies where a socket shall be.
enum Vacancy {
    /// Nothing.
    Free,
    /// A socket.
    Socket,
}

/// Whether a socket can lie at `path`: nothing is there, or a socket, which may be abandoned.
fn vacant(path: &Path) -> Result<Vacancy, AddressError> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(Vacancy::Socket),
        Ok(_) => Err(AddressError::Foreign(path.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vacancy::Free),
        Err(error) => Err(explain(error, path)),
    }
}

fn is_socket(path: &Path) -> bool {
    matches!(vacant(path), Ok(Vacancy::Socket))
}

/// Whether nobody listens at a socket any more, of whatever kind it is.
fn abandoned(path: &Path) -> bool {
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None) else { return false };
    let Ok(name) = SocketAddrUnix::new(path) else { return false };
    connect(&socket, &name) == Err(Errno::CONNREFUSED)
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A connection to whoever listens at `path`.
///
/// # Errors
/// [`AddressError`]; [`AddressError::Nobody`] if nobody does, [`AddressError::Busy`] if too many wait there already,
/// [`AddressError::Stranger`] if it is somebody else than root or this user.
pub fn reach(path: &Path) -> Result<OwnedFd, AddressError> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).map_err(|errno| system(path, errno))?;
    let name = SocketAddrUnix::new(path).map_err(|errno| system(path, errno))?;
    match connect(&socket, &name) {
        Ok(()) => of_ours(socket, path),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(AddressError::Nobody(path.to_owned())),
        Err(Errno::AGAIN) => Err(AddressError::Busy(path.to_owned())),
        Err(errno) => Err(explain(errno.into(), path)),
    }
}

/// The socket, if root listens at its other end, or this user. Where others may make files, they may have been first,
/// or have put another socket there.
fn of_ours(socket: OwnedFd, path: &Path) -> Result<OwnedFd, AddressError> {
    let user = credentials::of_peer(&socket).map(|(_, user)| user);
    if user.is_ok_and(|user| user == 0 || user == geteuid().as_raw()) {
        return Ok(socket);
    }
    // They may have sent files by now.
    drop(Stranger::new(socket));
    user.map_or_else(
        |errno| Err(system(path, errno)),
        |user| Err(AddressError::Stranger { path: path.to_owned(), user }),
    )
}

/// What a lock file's name has behind its socket's.
const LOCK_END: &str = ".lock";
/// Who may read and write a lock file.
const LOCK_MODE: u32 = 0o600;
/// Tries to take the lock so many times, [`LOCK_NAP`] apart: whoever sweeps holds it for an instant.
const LOCK_TRIES: u32 = 20;
/// Time between two tries.
const LOCK_NAP: Duration = Duration::from_millis(2);

/// The lock on a name. The file goes when this does.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
    /// Who has it: a child which that forks has the same file, and the name is not the child's.
    process: Process,
}

impl Lock {
    /// Takes the lock on the name of the socket at `path`, and makes sure that the file which it is on is still the one
    /// under this name: its last holder may have removed it meanwhile.
    fn take(path: &Path) -> Result<Self, AddressError> {
        let lock_path = lock_path(path);
        let mut tries = 0;
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false);
            let file = match open_lock(&mut options, &lock_path) {
                Ok(file) => file,
                Err(_) if is_other(&lock_path) => return Err(AddressError::Foreign(lock_path)),
                Err(error) => return Err(explain(error, path)),
            };
            if !file.metadata().is_ok_and(|metadata| is_lock(&metadata)) {
                return Err(AddressError::Foreign(lock_path));
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if still_named(&file, &lock_path) => {
                    return Ok(Self { file, path: lock_path, process: Process::this() });
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if tries < LOCK_TRIES => {
                    tries += 1;
                    std::thread::sleep(LOCK_NAP);
                }
                Err(errno) => return Err(explain(errno.into(), path)),
            }
        }
    }

    /// Whether the name is this process's.
    fn is_ours(&self) -> bool {
        self.process.is_this()
    }

    /// Whether it is, and the file is still under its name.
    fn holds(&self) -> bool {
        self.is_ours() && still_named(&self.file, &self.path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.holds() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The lock file of the socket at `path`.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(LOCK_END);
    PathBuf::from(name)
}

/// Opens a lock file; neither follows a link nor waits for whoever reads from a pipe.
fn open_lock(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.write(true).mode(LOCK_MODE).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Whether something lies at `path` that is no regular file.
fn is_other(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// Whether this may be a lock file of ours: an empty regular file of this user.
fn is_lock(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.len() == 0 && metadata.uid() == geteuid().as_raw()
}

/// Whether `path` still names this open file.
fn still_named(file: &File, path: &Path) -> bool {
    match (std::fs::symlink_metadata(path), file.metadata()) {
        (Ok(named), Ok(open)) => named.ino() == open.ino() && named.dev() == open.dev(),
        _ => false,
    }
}

/// Removes what dead processes left in the folder: sockets `NAME.sock` on which nobody listens, whose lock
/// `NAME.sock.lock` nobody holds, and that lock; and such a lock without a socket, for who takes a name or gives it up
/// may die between the two. Whatever else lies there stays.
pub fn sweep(folder: &Path) {
    let named = |path: &Path| path.extension() == Some(OsStr::new("sock"));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if named(&path) && is_socket(&path) {
            let _ = sweep_name(&path);
        } else if path.extension() == Some(OsStr::new("lock")) {
            let socket = path.with_extension("");
            if named(&socket) && matches!(vacant(&socket), Ok(Vacancy::Free)) && is_as_made(&path) {
                let _ = sweep_name(&socket);
            }
        }
    }
}

/// [`sweep`] of [`folder`], if that is there and this user's alone: what whoever takes a name does, for those who take
/// none.
pub fn sweep_own() {
    if folder().exists()
        && let Ok(folder) = own_folder()
    {
        sweep(&folder);
    }
}

/// Whether a lock file is as we make them, and not only such as we can use.
fn is_as_made(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| is_lock(&metadata) && metadata.mode() & 0o7777 == LOCK_MODE)
}

/// Removes what a dead process left under one name, if it is dead. False if it may not be dead yet: a dying process
/// hangs up its sockets before it gives up its locks.
pub fn sweep_name(path: &Path) -> bool {
    let lock_path = lock_path(path);
    let Ok(file) = open_lock(&mut OpenOptions::new(), &lock_path) else { return true };
    if !file.metadata().is_ok_and(|metadata| is_lock(&metadata)) {
        return true;
    }
    // Only who holds the lock on the file that bears the name now may remove anything: a restarted process may have
    // taken the name since the file was opened.
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() || !still_named(&file, &lock_path) {
        return false;
    }
    match vacant(path) {
        Ok(Vacancy::Socket) if abandoned(path) => {
            let _ = std::fs::remove_file(path);
        }
        Ok(Vacancy::Free) => {}
        // Somebody else's, and then so may be the lock.
        Ok(Vacancy::Socket) | Err(_) => return true,
    }
    let _ = std::fs::remove_file(&lock_path);
    true
}

fn system(path: &Path, errno: Errno) -> AddressError {
    AddressError::System { path: path.to_owned(), error: errno.into() }
}

fn explain(error: std::io::Error, path: &Path) -> AddressError {
    let path = path.to_owned();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::WOULDBLOCK | Errno::ADDRINUSE) => AddressError::InUse(path),
        Some(Errno::ACCESS | Errno::PERM) => AddressError::Denied(path),
        _ => AddressError::System { path, error },
    }
}
