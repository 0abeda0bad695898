//! For tests: two network namespaces joined by a veth pair, which go with the test.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::bpf::Rings;
use super::program::{LINK_BYTES, Ours};

pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 2);
pub(crate) const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const PORT: u16 = 7000;

/// Two namespaces joined by a wire, with two queues at each end, or as many as were asked for.
pub(crate) struct Wire {
    near: File,
    far: File,
    mtu: u32,
}

fn apart<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn fresh() -> Option<File> {
    #[expect(deprecated, reason = "its danger is another flag's, which shares no files any more")]
    rustix::thread::unshare(UnshareFlags::NEWNET).ok()?;
    File::open("/proc/thread-self/ns/net").ok()
}

fn ip(commands: &[String]) -> Option<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().ok()?;
    child.stdin.take()?.write_all((commands.join("\n") + "\n").as_bytes()).ok()?;
    child.wait().ok()?.success().then_some(())
}

/// Waits until a device of the calling thread's namespace sends what it is given. One that was switched on before its
/// peer drops all, and says nothing, until the kernel's link watch has noticed the peer: later on a busy machine.
pub(crate) fn until_up(device: &str) {
    let begun = Instant::now();
    let says = || Command::new("ip").args(["link", "show", device]).output().expect("ip").stdout;
    while !String::from_utf8_lossy(&says()).contains("state UP") {
        assert!(begun.elapsed() < Duration::from_secs(10), "{device} is not up after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Wire {
    /// Makes it; none, with the reason said, if this process may not, or may not open rings either.
    ///
    /// Its ends have no addresses of IPv6: what a kernel says of those by itself, from any processor, makes that one
    /// take in the frames of others for a while.
    pub(crate) fn make(mtu: u32) -> Option<Self> {
        Self::with_queues(mtu, 2)
    }

    /// As [`Wire::make`], with so many queues: what a kernel sends comes on any of them.
    pub(crate) fn with_queues(mtu: u32, queues: u32) -> Option<Self> {
        let wire = apart(|| {
            let far = fresh()?;
            let near = fresh()?;
            let there = format!("/proc/{}/fd/{}", std::process::id(), far.as_raw_fd());
            let queues = format!("numrxqueues {queues} numtxqueues {queues}");
            ip(&[
                format!(
                    "link add near mtu {mtu} address {} {queues} type veth peer far mtu {mtu} address {} {queues} \
                     netns {there}",
                    "02:00:00:00:00:01", "02:00:00:00:00:02"
                ),
                format!("addr add {NEAR}/30 dev near"),
                "link set near addrgenmode none".into(),
                "link set near up".into(),
                format!("neigh add {FAR} lladdr 02:00:00:00:00:02 dev near"),
            ])?;
            enter(&far);
            ip(&[
                format!("addr add {FAR}/30 dev far"),
                "link set far addrgenmode none".into(),
                "link set far up".into(),
                format!("neigh add {NEAR} lladdr 02:00:00:00:00:01 dev far"),
            ])?;
            enter(&near);
            until_up("near");
            Some(Self { near, far, mtu })
        });
        if wire.is_none() {
            crate::skipped("no veth pair can be made (root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, and 'ip' are needed)");
        }
        let rings = Rings::new(1);
        if let (Some(_), Err(error)) = (&wire, &rings) {
            crate::skipped(error);
        }
        wire.filter(|_| rings.is_ok())
    }

    pub(crate) fn near<R: Send>(&self, run: impl FnOnce() -> R + Send) -> R {
        Self::within(&self.near, run)
    }

    pub(crate) fn far<R: Send>(&self, run: impl FnOnce() -> R + Send) -> R {
        Self::within(&self.far, run)
    }

    fn within<R: Send>(space: &File, run: impl FnOnce() -> R + Send) -> R {
        apart(|| {
            enter(space);
            run()
        })
    }

    /// What is for the near end.
    pub(crate) fn ours(&self) -> Ours {
        Ours { local: SocketAddrV4::new(NEAR, PORT), frame_max: self.mtu + LINK_BYTES, of_rings: true }
    }
}

/// Keeps this thread on its processor: the frames that it sends are taken in there, one after the other. Those that it
/// sends from another one overtake them.
pub(crate) fn stay() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

fn enter(space: &File) {
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}
