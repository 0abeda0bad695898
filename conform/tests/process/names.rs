//! Names and folders: who may have them, and who may not.

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;

use cutthrough::{AddressError, Endpoint, ListenError};
use rustix::fs::inotify;

use crate::child::{Folder, Other, config};

/// What another process says that tries to listen under a name in a folder.
fn try_in(folder: &Folder, part: &str, user: Option<u32>) -> String {
    try_at(folder.path(), part, user)
}

/// As [`try_in`], for a folder that is reached by this path.
fn try_at(folder: &Path, part: &str, user: Option<u32>) -> String {
    let mut command = Other::command(part, "shm:name");
    command.env("CUTTHROUGH_DIR", folder);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Other::start(command).says()
}

/// Another user.
const USER: u32 = 65534;

/// Whether another user can be played here: its processes are started by root, from a file that it may run.
fn another_user() -> bool {
    if !rustix::process::geteuid().is_root() {
        cutthrough_conform::skipped("only root can start a process of another user");
        return false;
    }
    let mut command = Other::command("none", "");
    let ran = command.args(["--list"]).uid(USER).gid(USER).output();
    ran.inspect_err(|error| {
        cutthrough_conform::skipped(format_args!("another user cannot run this program: {error}"));
    })
    .is_ok()
}

#[test]
fn a_name_in_use_is_refused() {
    let folder = Folder::new();
    let _other = Other::ready("listen", &folder.address());
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let error = endpoint.listen(&folder.address()).expect_err("it is in use");
    assert!(matches!(error, ListenError::Address(AddressError::InUse(_))), "{error}");
    assert!(error.to_string().contains("in use"));
}

#[test]
fn a_folder_of_ones_own_works_and_is_left_empty() {
    let folder = Folder::new();
    assert_eq!(try_in(&folder, "try-listen", None), "listening");
    assert!(folder.files().is_empty(), "{:?}", folder.files());
    assert!(try_in(&folder, "try-connect", None).contains("nobody listens"));
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let folder = Folder::new();
    for mode in [0o755, 0o710, 0o701, 0o777] {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).expect("its mode");
        let said = try_in(&folder, "try-listen", None);
        assert!(said.contains("others may enter") && said.contains("CUTTHROUGH_DIR"), "{mode:o}: {said}");
    }
}

#[test]
fn another_users_folder_and_socket_are_refused() {
    if !another_user() {
        return;
    }
    let folder = Folder::new();
    let said = try_in(&folder, "try-listen", Some(USER));
    assert!(said.contains("another user"), "{said}");
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("a free name");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let mut command = Other::command("try-connect", &folder.address());
    command.uid(USER).gid(USER);
    let said = Other::start(command).says();
    assert!(said.contains("another user"), "{said}");
}

/// Where everybody may make files, another user may have been first.
#[test]
fn another_user_who_listens_is_not_believed() {
    if !another_user() {
        return;
    }
    let start = |part, folder: &Folder, user| {
        let mut command = Other::command(part, &folder.address());
        command.uid(user).gid(user);
        Other::start(command)
    };
    for (listens, comes, believed) in [(USER, 0, false), (USER, USER - 1, false), (USER, USER, true), (0, USER, true)] {
        let folder = Folder::new();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).expect("its mode");
        let mut other = start("listen", &folder, listens);
        assert_eq!(other.says(), "ready");
        std::fs::set_permissions(folder.path().join("name.sock"), PermissionsExt::from_mode(0o666)).expect("its mode");
        let said = start("try-connect", &folder, comes).says();
        let refused = said.contains(&format!("belongs to user {USER}, who is neither root nor you; "));
        assert!(if believed { said == "connected" } else { refused }, "{comes} calls {listens}: {said}");
    }
}

/// By its path, its mode would be that of whatever the owner of the folder has put there meanwhile.
#[test]
fn a_socket_is_made_for_its_user_alone_and_its_mode_is_not_changed_by_its_path() {
    let folder = Folder::new();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).expect("a watch");
    inotify::add_watch(&watch, folder.path(), inotify::WatchFlags::ATTRIB).expect("the folder can be watched");
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("a free name");
    let socket = std::fs::metadata(folder.path().join("name.sock")).expect("the socket");
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let mut room = [std::mem::MaybeUninit::uninit(); 1024];
    let changed = inotify::Reader::new(&watch, &mut room).next().map(|event| format!("{event:?}"));
    assert_eq!(changed, Err(rustix::io::Errno::AGAIN));
}

/// What a process says of trying to listen at a path of its own in this folder.
fn try_path(folder: &Folder, name: &str) -> Result<(), String> {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let address = format!("shm:{}", folder.path().join(name).display());
    endpoint.listen(&address).map_err(|error| error.to_string())
}

/// The names in a folder, in order.
fn names(folder: &Folder) -> Vec<String> {
    let mut names: Vec<_> = folder.files().iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A socket that nobody listens on any more.
fn dead_socket(path: &Path) {
    drop(UnixListener::bind(path).expect("a socket"));
}

#[test]
fn what_is_no_socket_is_never_removed() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("text"), "precious").expect("a file");
    std::fs::write(at("empty"), "").expect("a file");
    std::fs::create_dir(at("folder")).expect("a folder");
    symlink(at("text"), at("link")).expect("a link");
    symlink(at("nowhere"), at("dangling")).expect("a link");
    let before = names(&folder);
    for name in ["text", "empty", "folder", "link", "dangling"] {
        let said = try_path(&folder, name).expect_err(name);
        assert!(said.contains(name) && said.contains("not a name of ours"), "{name}: {said}");
        assert_eq!(names(&folder), before, "{name}");
    }
    assert_eq!(std::fs::read(at("text")).expect("the file"), b"precious");
}

#[test]
fn a_lock_file_that_is_not_ours_is_never_taken() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("Cargo.lock"), "precious").expect("a file");
    std::fs::write(at("empty"), "").expect("a file");
    std::fs::create_dir(at("folder.lock")).expect("a folder");
    symlink(at("empty"), at("link.lock")).expect("a link");
    symlink(at("nowhere"), at("dangling.lock")).expect("a link");
    dead_socket(&at("socket.lock"));
    let before = names(&folder);
    for name in ["Cargo", "folder", "link", "dangling", "socket"] {
        let said = try_path(&folder, name).expect_err(name);
        assert!(said.contains(&format!("{name}.lock")) && said.contains("not a name of ours"), "{name}: {said}");
        assert_eq!(names(&folder), before, "{name}");
    }
    assert_eq!(std::fs::read(at("Cargo.lock")).expect("the file"), b"precious");
}

#[test]
fn a_socket_that_somebody_else_listens_on_is_in_use() {
    let folder = Folder::new();
    let _somebody = UnixListener::bind(folder.path().join("socket")).expect("a socket");
    assert!(try_path(&folder, "socket").expect_err("in use").contains("in use"));
    assert_eq!(names(&folder), ["socket"]);
}

#[test]
fn names_that_differ_in_their_ends_are_different_names() {
    let folder = Folder::new();
    let address = |name: &str| format!("shm:{}", folder.path().join(name).display());
    let mut listening: Vec<Endpoint> = Vec::new();
    for name in ["a.one", "a.two", "a", "x.lock"] {
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        endpoint.listen(&address(name)).expect(name);
        listening.push(endpoint);
    }
    for name in ["a.one", "a.two", "a", "x.lock"] {
        let said = Other::start(Other::command("try-listen", &address(name))).says();
        assert!(said.contains("in use"), "{name}: {said}");
    }
    drop(listening);
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
}

#[test]
fn what_others_keep_in_the_folder_stays_there() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    for name in ["Cargo.lock", "Cargo.sock", "yarn.lock", "full.sock.lock"] {
        std::fs::write(at(name), "precious").expect("a file");
    }
    for name in ["empty.lock", "alone.sock.lock", "text.sock.lock", "live.sock.lock", "bare.lock"] {
        std::fs::write(at(name), "").expect("a file");
    }
    std::fs::write(at("text.sock"), "precious").expect("a file");
    symlink(at("empty.lock"), at("link.sock.lock")).expect("a link");
    for name in ["full.sock", "link.sock", "bare.sock", "unlocked.sock"] {
        dead_socket(&at(name));
    }
    let _somebody = UnixListener::bind(at("live.sock")).expect("a socket");
    let before = names(&folder);
    assert_eq!(try_in(&folder, "try-listen", None), "listening");
    assert_eq!(names(&folder), before);
}

/// Who is killed while it takes a name, gives it up, or removes what another one has left.
#[test]
fn a_lock_without_its_socket_is_swept_unless_somebody_has_it() {
    let folder = Folder::new();
    let lock = |name: &str| {
        let mut options = std::fs::OpenOptions::new();
        options.create_new(true).write(true).mode(0o600).open(folder.path().join(name)).expect("a file")
    };
    drop(lock("dead.sock.lock"));
    let held = lock("held.sock.lock");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("the lock");
    assert_eq!(try_in(&folder, "try-listen", None), "listening");
    assert_eq!(names(&folder), ["held.sock.lock"]);
    // To close it is not enough: a process that another test begins has a copy until it runs its own program.
    rustix::fs::flock(&held, rustix::fs::FlockOperation::Unlock).expect("it was locked");
    assert_eq!(try_in(&folder, "try-listen", None), "listening");
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
}

#[test]
fn what_a_killed_process_leaves_in_the_folder_is_swept() {
    let folder = Folder::new();
    for name in ["shm:first", "shm:second"] {
        let mut command = Other::command("listen", name);
        command.env("CUTTHROUGH_DIR", folder.path());
        let mut other = Other::start(command);
        assert_eq!(other.says(), "ready");
        assert_eq!(names(&folder).len(), 2, "{:?}", names(&folder));
    }
    assert_eq!(try_in(&folder, "try-listen", None), "listening");
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
}

#[test]
fn a_folder_that_is_a_link_is_refused() {
    let folder = Folder::new();
    let there = folder.path().join("there");
    std::fs::create_dir(&there).expect("a folder");
    std::fs::set_permissions(&there, PermissionsExt::from_mode(0o700)).expect("its mode");
    assert_eq!(try_at(&there, "try-listen", None), "listening");
    let link = folder.path().join("link");
    symlink(&there, &link).expect("a link");
    for path in [link.clone(), link.join(""), link.join(".")] {
        let said = try_at(&path, "try-listen", None);
        assert!(said.contains("symbolic link") && said.contains("CUTTHROUGH_DIR"), "{path:?}: {said}");
    }
}

/// Where a process looks for a name whose `XDG_RUNTIME_DIR` is this, and nothing else says where.
fn looks_in(runtime: &Path) -> String {
    let mut command = Other::command("try-connect", "shm:name");
    command.env_remove("CUTTHROUGH_DIR").env("XDG_RUNTIME_DIR", runtime);
    Other::start(command).says()
}

#[test]
fn the_runtime_folder_is_used_if_it_is_ones_own() {
    let folder = Folder::new();
    let said = looks_in(folder.path());
    let inside = folder.path().join("cutthrough/name.sock");
    assert!(said.contains(&format!("shm:name ({})", inside.display())), "{said}");
    std::fs::remove_dir(folder.path().join("cutthrough")).expect("it was made");

    let otherwise = format!("/tmp/cutthrough-{}/name.sock", rustix::process::geteuid().as_raw());
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("its mode");
    for runtime in [folder.path(), &folder.path().join("missing"), Path::new("relative")] {
        let said = looks_in(runtime);
        assert!(said.contains(&otherwise), "{runtime:?}: {said}");
    }
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
}

#[test]
fn nothing_is_made_in_the_runtime_folder_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return cutthrough_conform::skipped("only root can give a folder to another user");
    }
    let folder = Folder::new();
    if let Err(error) = std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)) {
        return cutthrough_conform::skipped(format_args!("no folder can be given to another user: {error}"));
    }
    let said = looks_in(folder.path());
    assert!(said.contains("/tmp/cutthrough-0/name.sock"), "{said}");
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
}
