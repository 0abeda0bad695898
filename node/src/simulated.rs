//! A network that is not there: endpoints of one process as on machines of their own, and between them wires that lose,
//! repeat, delay, reorder, change and cut datagrams as they are told, by chance from a seed.
//!
//! Nothing of an endpoint is another but the socket: what crosses these wires are the datagrams that would cross a
//! network, sealed if there are keys. So a program that talks to peers can be tested against what networks do, without
//! a network and without rights. An endpoint may have a ring of AF_XDP beside its socket, where time is simulated, too:
//! its frames cross the wires as they are, and what the kernel does for a ring is done by a `kernel` of its own.
//!
//! There are two kinds of time. As a rule time passes by itself, and each side has its thread, as in earnest. On a
//! thread that has begun a simulated [`Time`] it passes only when that says so: everything runs on that one thread, a
//! second takes as long as what happens in it, and the same seed gives the same run, datagram by datagram.

pub(crate) mod kernel;
mod paths;
mod port;
mod random;
pub(crate) mod time;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::kernel::{Frames, Interrupts};
use self::paths::Paths;
pub(crate) use self::port::Port;
pub use self::time::Time;
use crate::clock;
use crate::raw::Mac;
use crate::sys::xdp::simulated::{Ends, Loaded};

/// What a wire does to the datagrams that one host sends to another. Chances are of each datagram, from 0 to 1. More
/// may be added: write what shall be another than the default, and `..Wire::default()`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    /// Bytes of the longest IP datagram that it carries, with its headers.
    pub mtu: u32,
    /// How long a datagram takes.
    pub latency: Duration,
    /// How much longer it may take, by chance: the same for all that leave in one call, which stay together.
    pub jitter: Duration,
    /// Bytes a second that leave the sending host, to all others together; `None` for as many as there are.
    pub bandwidth: Option<u64>,
    /// The chance that it does not arrive.
    pub loss: f64,
    /// The chance that it arrives twice.
    pub duplicates: f64,
    /// The chance that it takes up to four times as long as others, which overtake it.
    pub reorders: f64,
    /// The chance that a bit of it changes. A check sum of UDP would find that, as a rule; here the endpoint has to.
    pub corrupts: f64,
    /// The chance that its end is missing.
    pub truncates: f64,
}

impl Default for Wire {
    /// An Ethernet of today where nothing goes wrong.
    fn default() -> Self {
        Self {
            mtu: 1500,
            latency: Duration::from_micros(10),
            jitter: Duration::ZERO,
            bandwidth: None,
            loss: 0.0,
            duplicates: 0.0,
            reorders: 0.0,
            corrupts: 0.0,
            truncates: 0.0,
        }
    }
}

/// What has become of datagrams, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// That endpoints have sent.
    pub sent: u64,
    /// That have come to where an endpoint was.
    pub arrived: u64,
    /// That wires have lost.
    pub lost: u64,
    /// That wires have repeated.
    pub repeated: u64,
    /// That wires have held up, so that others overtake them.
    pub held_up: u64,
    /// That wires have changed or shortened.
    pub damaged: u64,
    /// That went to or came from hosts that were cut off from each other.
    pub cut_off: u64,
    /// That came to where no endpoint was.
    pub nobody: u64,
    /// For which the socket had no room.
    pub overrun: u64,
    /// A digest of all that has arrived, and when: equal for equal runs.
    pub digest: u64,
}

/// A network that is not there. Clones are the same one; it lasts as long as an endpoint uses it.
#[derive(Debug, Clone)]
pub struct Network {
    carrier: Arc<Carrier>,
}

/// A host of such a network, for [`Config::host`](crate::config::Config::host).
#[derive(Debug, Clone)]
pub struct Host {
    carrier: Arc<Carrier>,
    address: IpAddr,
}

/// What is under way, and who waits for it.
#[derive(Debug)]
struct Shared {
    paths: Mutex<Paths>,
    /// Something arrives earlier than whatever did before, or it is over.
    sooner: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries datagrams to sleeping endpoints when it is time, where time passes by itself. Who looks carries what has
/// arrived himself.
#[derive(Debug)]
struct Carrier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    fn run(shared: &Shared) {
        let mut paths = shared.lock();
        while !paths.is_over() {
            let now = clock::now().as_nanos();
            paths.carry(now);
            paths = match paths.next() {
                Some(at) => {
                    let left = Duration::from_nanos(at.saturating_sub(now).max(1));
                    shared.sooner.wait_timeout(paths, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => shared.sooner.wait(paths).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.shared.lock().end();
        self.shared.sooner.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Network {
    /// A network whose wires are all like this one. What goes wrong there depends on `seed`; and where time passes by
    /// itself, on how its threads run.
    ///
    /// # Panics
    /// If this thread has simulated time and already a network in it, or if the system gives no thread.
    #[must_use]
    pub fn new(seed: u64, wire: Wire) -> Self {
        let shared = Arc::new(Shared { paths: Mutex::new(Paths::new(seed, wire)), sooner: Condvar::new() });
        let thread = (!time::governs(&shared)).then(|| {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name("cutthrough-wires".into());
            named.spawn(move || Carrier::run(&shared)).expect("a thread")
        });
        Self { carrier: Arc::new(Carrier { shared, thread }) }
    }

    /// The host with this address: any, of whichever family. Nobody has to say beforehand that there is such a host.
    #[must_use]
    pub fn host(&self, address: impl Into<IpAddr>) -> Host {
        Host { carrier: Arc::clone(&self.carrier), address: address.into() }
    }

    /// Every wire is like this one from now on. What is under way arrives as it would have.
    pub fn set_wires(&self, wire: Wire) {
        self.carrier.shared.lock().set_wires(wire);
    }

    /// The wire from one host to another, and not back, is like this one from now on.
    pub fn set_wire(&self, from: impl Into<IpAddr>, to: impl Into<IpAddr>, wire: Wire) {
        self.carrier.shared.lock().set_wire((from.into(), to.into()), wire);
    }

    /// Cuts the wire from one host to another, and not back: what is sent there is gone. What is under way arrives.
    pub fn cut(&self, from: impl Into<IpAddr>, to: impl Into<IpAddr>) {
        self.carrier.shared.lock().cut((from.into(), to.into()));
    }

    /// Cuts a host off from all others, both ways, with all that is under way: nobody learns of what happens to it.
    pub fn unplug(&self, host: impl Into<IpAddr>) {
        self.carrier.shared.lock().unplug(host.into());
    }

    /// Mends every wire that was cut, and plugs every host in.
    pub fn mend(&self) {
        self.carrier.shared.lock().mend();
    }

    /// What kernels do to rings from now on.
    pub fn interrupt(&self, interrupts: Interrupts) {
        self.carrier.shared.lock().interrupt(interrupts);
    }

    /// Has the kernel of a host's ring do this out of turn, after so many of its steps and what it was told before. A
    /// ring that is opened later has a kernel that was told nothing.
    #[cfg(feature = "fuzz")]
    #[doc(hidden)]
    pub fn tell(&self, host: impl Into<IpAddr>, after: u8, deed: kernel::Deed) {
        self.carrier.shared.lock().tell(host.into(), after, deed);
    }

    /// What has become of frames at rings so far.
    #[must_use]
    pub fn frames(&self) -> Frames {
        self.carrier.shared.lock().frames()
    }

    /// What has become of datagrams so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.carrier.shared.lock().counts()
    }
}

impl Host {
    /// Its address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// A socket at a port of this host, 0 is any free one; and what is readable while something has come there.
    pub(crate) fn bind(&self, address: SocketAddr) -> std::io::Result<(Port, OwnedFd)> {
        Port::bind(&self.carrier, self.address, address)
    }

    /// Bytes of the longest IP datagram that its wires carry.
    pub(crate) fn mtu(&self) -> u32 {
        self.carrier.shared.lock().wire((self.address, self.address)).mtu
    }

    /// What is the kernel's of a ring at the interface of this host.
    pub(crate) fn kernel(&self, ends: Ends, loaded: Loaded) -> kernel::Handle {
        kernel::Handle::new(&self.carrier, self.address, ends, loaded)
    }

    /// The hardware address of the interface of a host.
    pub(crate) fn mac(address: Ipv4Addr) -> Mac {
        let [a, b, c, d] = address.octets();
        [2, 0, a, b, c, d]
    }
}
