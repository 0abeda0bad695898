//! Two network namespaces joined by a veth pair: a wire of a chosen MTU between two ends on one machine.
//!
//! The namespaces have no name. Only file descriptors of this process hold them, and threads and processes that have
//! gone in: however the last of these ends, the kernel takes namespaces, devices and addresses away. Links are made by
//! the program `ip`. It needs the rights of root, or those that `unshare -Ur` gives over namespaces of one's own.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::cpu;
use crate::failure::Failure;

/// The shortest and the longest MTU: what IPv6 asks for (RFC 8200), and the longest IP datagram.
pub const MTUS: std::ops::RangeInclusive<u32> = 1280..=65_535;

/// Where `ip` is where the search path does not lead to it, as for users that are not root.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

/// How long a device may take to notice that its peer is up.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// What this machine, or this user, lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The MTU is not one of [`MTUS`].
    #[error("an MTU of {0} is out of 1280..65535; give --veth 1500 or --veth 9000")]
    Mtu(u32),
    /// There is no program `ip`.
    #[error("the program 'ip' is missing; install the package iproute2")]
    Program,
    /// This process may not make network namespaces.
    #[error("this process may not make network namespaces (CAP_SYS_ADMIN); run it as root, or by 'unshare -Ur'")]
    Admin,
    /// This process may not make links in its own network namespace.
    #[error("this process may not make links (CAP_NET_ADMIN); run it as root, or by 'unshare -Ur'")]
    NetAdmin,
    /// The kernel has no network namespaces.
    #[error("the kernel has no network namespaces (CONFIG_NET_NS); use another kernel")]
    Namespaces,
    /// The kernel has no veth devices.
    #[error("the kernel has no veth devices (CONFIG_VETH); load them by 'modprobe veth', or use another kernel")]
    Veth,
    /// Something else was refused; this is what was said.
    #[error("the namespaces cannot be made: {0}; see 'ip link help', and /proc/sys/user/max_net_namespaces")]
    Other(String),
}

impl From<Missing> for Failure {
    fn from(missing: Missing) -> Self {
        Self::from_error(&missing, "run it as root")
    }
}

/// A network namespace. It exists as long as this value, or a thread, process or file descriptor inside of it.
#[derive(Debug)]
pub struct Space(File);

impl Space {
    /// The one that the calling thread is in.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub fn here() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// The one that somebody names by a file of `/proc`, such as [`Space::path`].
    ///
    /// # Errors
    /// If there is no such file; it is gone when its process is.
    pub fn at(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// A path by which other processes of this user find it, as long as this value lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Takes the calling thread there, and whatever it starts from then on. What was opened before stays where it was.
    ///
    /// # Errors
    /// If it is no network namespace, or this process may not go there.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs this there, in a thread of its own, so that the caller stays where it is. What it opens there stays there,
    /// whoever uses it.
    ///
    /// # Errors
    /// As [`Space::enter`]; then it does not run.
    ///
    /// # Panics
    /// If it panics.
    pub fn within<R: Send>(&self, run: impl FnOnce() -> R + Send) -> io::Result<R> {
        apart(|| self.enter().map(|()| run()))?
    }

    /// A fresh one, into which the calling thread goes.
    fn fresh() -> Result<Self, Missing> {
        #[expect(deprecated, reason = "its danger is another flag's, which shares no files any more")]
        let unshared = rustix::thread::unshare(UnshareFlags::NEWNET);
        match unshared {
            Ok(()) => Self::here().map_err(|error| Missing::Other(format!("/proc: {error}"))),
            Err(Errno::PERM) => Err(Missing::Admin),
            Err(Errno::INVAL | Errno::NOSYS) => Err(Missing::Namespaces),
            Err(error) => Err(Missing::Other(error.to_string())),
        }
    }
}

/// Two namespaces with one end of a wire in each.
#[derive(Debug)]
pub struct Pair {
    /// Where the near end is: [`Pair::NEAR`].
    pub near: Space,
    /// Where the far end is: [`Pair::FAR`].
    pub far: Space,
    /// The MTU of both ends, in bytes of an IP datagram with its headers.
    pub mtu: u32,
}

impl Pair {
    /// The address of the near end.
    pub const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 73, 0, 1));
    /// The address of the far end.
    pub const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 73, 0, 2));

    /// Makes both, and the wire. No thread of the caller's is moved: go in by [`Space::enter`], or have something done
    /// there by [`Space::within`]. How trains are cut and joined (GSO, TSO, GRO) is left as the kernel has it.
    ///
    /// # Errors
    /// [`Missing`], whose text says what to do.
    pub fn make(mtu: u32) -> Result<Self, Missing> {
        if !MTUS.contains(&mtu) {
            return Err(Missing::Mtu(mtu));
        }
        let ip = Ip::find(std::env::var_os("PATH").iter().flat_map(std::env::split_paths))?;
        let made = apart(|| {
            let far = Space::fresh()?;
            let near = Space::fresh()?;
            let wire = |name: &str| format!("name {name} mtu {mtu}");
            let there = far.path();
            ip.run(&[
                format!("link add {} type veth peer {} netns {}", wire("near"), wire("far"), there.display()),
                format!("addr add {}/30 dev near", Self::NEAR),
                "link set lo up".into(),
                "link set near up".into(),
            ])?;
            far.enter().map_err(|error| Missing::Other(error.to_string()))?;
            ip.run(&[format!("addr add {}/30 dev far", Self::FAR), "link set lo up".into(), "link set far up".into()])?;
            near.enter().map_err(|error| Missing::Other(error.to_string()))?;
            ip.until_up("near")?;
            Ok(Self { near, far, mtu })
        });
        made.map_err(|error| Missing::Other(format!("no thread to make it: {error}")))?
    }
}

/// Runs this in a thread of its own.
fn apart<R: Send>(run: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let ran = cpu::spawn(scope, run)?.join();
        Ok(ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The program `ip`.
#[derive(Debug, PartialEq, Eq)]
struct Ip(PathBuf);

impl Ip {
    /// Looks for it in these folders, and where it usually is.
    fn find(folders: impl Iterator<Item = PathBuf>) -> Result<Self, Missing> {
        Self::first(folders.chain(FOLDERS.map(PathBuf::from)))
    }

    fn first(mut folders: impl Iterator<Item = PathBuf>) -> Result<Self, Missing> {
        folders
            .find_map(|folder| Some(folder.join("ip")).filter(|path| path.is_file()))
            .map(Self)
            .ok_or(Missing::Program)
    }

    /// Waits until this device sends what it is given. One that was switched on before its peer drops all, and says
    /// nothing, until the kernel's link watch has noticed the peer: later on a busy machine.
    fn until_up(&self, device: &str) -> Result<(), Missing> {
        let begun = Instant::now();
        while !self.run(&[format!("link show {device}")])?.contains("state UP") {
            if begun.elapsed() > UP_WITHIN {
                return Err(Missing::Other(format!("{device} is not up after {} s", UP_WITHIN.as_secs())));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Runs these commands in the namespace of the calling thread, until one fails, and returns what they say.
    fn run(&self, commands: &[String]) -> Result<String, Missing> {
        let refuse = |error: io::Error| Missing::Other(format!("{}: {error}", self.0.display()));
        let mut child = Command::new(&self.0)
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(refuse)?;
        if let Some(mut stdin) = child.stdin.take() {
            // If it does not read, it has ended, and has said why.
            let _ = stdin.write_all((commands.join("\n") + "\n").as_bytes());
        }
        let output = child.wait_with_output().map_err(refuse)?;
        let said = |by: &[u8]| String::from_utf8_lossy(by).into_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(understood(&said(&output.stderr))) }
    }
}

/// What `ip` means by what it says.
fn understood(said: &str) -> Missing {
    if said.contains("Operation not permitted") {
        return Missing::NetAdmin;
    }
    if said.contains("Unknown device type") || said.contains("Operation not supported") {
        return Missing::Veth;
    }
    let first = said.lines().next().unwrap_or("it says nothing");
    Missing::Other(format!("ip: {}", first.trim_start_matches("Error: ").trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ip_says_is_understood() {
        assert_eq!(understood("RTNETLINK answers: Operation not permitted\nCommand failed -:1"), Missing::NetAdmin);
        assert_eq!(understood("Error: Unknown device type.\nCommand failed -:1\n"), Missing::Veth);
        assert_eq!(understood("RTNETLINK answers: Operation not supported"), Missing::Veth);
        assert_eq!(understood("Error: No such thing.\nmore"), Missing::Other("ip: No such thing".into()));
    }

    #[test]
    fn a_machine_without_ip_is_told_which_package_has_it() {
        let nowhere = ["/nonexistent", "/proc/self/fdinfo"].map(PathBuf::from);
        let missing = Ip::first(nowhere.into_iter()).expect_err("there is no ip");
        let Failure::CannotRun { what, remedy } = missing.into() else { panic!("not a failure of that kind") };
        assert_eq!((what.as_str(), remedy.as_str()), ("the program 'ip' is missing", "install the package iproute2"));
    }

    #[test]
    fn an_mtu_out_of_range_is_refused_before_anything_is_made() {
        for mtu in [0, 1279, 65_536] {
            assert_eq!(Pair::make(mtu).err(), Some(Missing::Mtu(mtu)));
        }
    }
}
