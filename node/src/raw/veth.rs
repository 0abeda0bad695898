//! For tests: two network namespaces without names, joined by a veth pair, gone with the test's process.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;

use cutthrough_engine::time::Instant;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::Hop;
use super::route::{Interface, RouteError, Routes};
use crate::sys::datagram::Datagrams;
use crate::sys::xdp::wire::until_up;

/// The address of the near end, whose interface has the same name, and that of the far end.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 1);
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 2);

/// A network namespace.
#[derive(Debug)]
pub(super) struct Space(File);

impl Space {
    fn here() -> Result<Self, String> {
        File::open("/proc/thread-self/ns/net").map(Self).map_err(|error| format!("/proc: {error}"))
    }

    fn fresh() -> Result<Self, String> {
        #[expect(deprecated, reason = "its danger is another flag's, which shares no files any more")]
        let unshared = rustix::thread::unshare(UnshareFlags::NEWNET);
        unshared.map_err(|error| format!("this process may not make network namespaces ({error})"))?;
        Self::here()
    }

    /// Runs this there, in a thread of its own.
    pub(super) fn within<R: Send>(&self, run: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let there = || {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).expect("the namespace");
                run()
            };
            scope.spawn(there).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs commands of `ip` there.
    pub(super) fn ip(&self, commands: &str) {
        self.within(|| ip(commands)).expect("ip does it");
    }
}

/// Both ends.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) near: Space,
    pub(super) far: Space,
}

/// A wire, or none, and the reason was printed.
pub(super) fn wire(mtu: u32) -> Option<Wire> {
    let made = thread::scope(|scope| scope.spawn(|| make(mtu)).join().expect("no panic"));
    made.inspect_err(|reason| crate::skipped(format_args!("no veth pair: {reason}"))).ok()
}

fn make(mtu: u32) -> Result<Wire, String> {
    let (far, near) = (Space::fresh()?, Space::fresh()?);
    let there = format!("/proc/{}/fd/{}", std::process::id(), far.0.as_raw_fd());
    ip(&format!("link add near mtu {mtu} type veth peer far mtu {mtu} netns {there}"))?;
    ip(&format!("addr add {NEAR}/30 dev near\nlink set lo up\nlink set near up"))?;
    far.within(|| ip(&format!("addr add {FAR}/30 dev far\nlink set lo up\nlink set far up")))?;
    near.within(|| until_up("near"));
    Ok(Wire { near, far })
}

fn ip(commands: &str) -> Result<(), String> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ip.spawn().map_err(|error| format!("the program 'ip' (iproute2): {error}"))?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    writeln!(stdin, "{commands}").map_err(|error| format!("ip: {error}"))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// A bound socket, and where.
pub(super) fn socket(at: Ipv4Addr) -> (Datagrams, SocketAddrV4) {
    let socket = Datagrams::bind(SocketAddrV4::new(at, 0).into()).expect("an address of this end");
    let std::net::SocketAddr::V4(local) = socket.local().expect("it is bound") else { panic!("not IPv4") };
    (socket, local)
}

/// The socket once more, for a ring.
pub(super) fn again(socket: &Datagrams) -> OwnedFd {
    socket.as_fd().try_clone_to_owned().expect("a further file")
}

/// The way to `to`, in the namespace of the calling thread; sends a datagram by the socket if it has to.
pub(super) fn hop(socket: &Datagrams, local: SocketAddrV4, to: SocketAddrV4) -> (Interface, Hop) {
    let mut routes = Routes::open().expect("netlink");
    let begun = std::time::Instant::now();
    loop {
        match routes.hop(local, to) {
            Ok(found) => {
                assert!(found.1.resolved() > Instant::default());
                return found;
            }
            Err(RouteError::Unresolved(_)) if begun.elapsed().as_secs() < 10 => {
                // To the discard service (RFC 863), where nobody listens.
                let discard = SocketAddrV4::new(*to.ip(), 9);
                let _ = socket.send(Some(discard.into()), &[std::io::IoSlice::new(b"?")], None);
                thread::sleep(std::time::Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
