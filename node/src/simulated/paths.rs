//! What is under way on simulated wires, and where it goes: plain functions of the time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use super::kernel::{Frames, Interrupts, Kernel, lock};
use super::random::{Random, mix};
use super::{Counts, Wire};
use crate::raw::envelope;

/// Bytes of headers in front of what a datagram carries.
const HEADERS: (usize, usize) = (28, 48);
/// Bytes that a socket keeps for its receiver.
pub(super) const SOCKET_BYTES: usize = 4 << 20;
/// What the kernel needs around each datagram there, in bytes.
const AROUND: usize = 256;

/// A datagram.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
    /// Whether a ring has sent it: then its bytes are the whole frame.
    pub(super) framed: bool,
}

/// What has come to a socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) queue: VecDeque<Datagram>,
    taken: usize,
    /// What it had no room for.
    pub(super) overrun: u32,
    /// Rung when something comes; and whether it was.
    bell: OwnedFd,
    rung: bool,
}

impl Socket {
    /// The next datagram.
    pub(super) fn take(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.taken -= datagram.bytes.len() + AROUND;
        Some(datagram)
    }

    /// Who looks has found all that there was.
    pub(super) fn hush(&mut self) {
        if std::mem::take(&mut self.rung) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }
}

/// All wires.
#[derive(Debug)]
pub(super) struct Paths {
    random: Random,
    every: Wire,
    wires: HashMap<(IpAddr, IpAddr), Wire>,
    cut: HashSet<(IpAddr, IpAddr)>,
    unplugged: HashSet<IpAddr>,
    /// When the next datagram can leave a host.
    free_at: HashMap<IpAddr, u64>,
    /// What is under way: when it arrives, and a number that tells datagrams of one moment apart.
    flying: BTreeMap<(u64, u64), Datagram>,
    number: u64,
    sockets: Vec<Option<Socket>>,
    /// The place of each socket there.
    places: HashMap<SocketAddr, usize>,
    counts: Counts,
    over: bool,
    /// What kernels do for the rings of hosts, and to them; and what has become of frames at rings that are gone.
    kernels: BTreeMap<IpAddr, Arc<Mutex<Kernel>>>,
    interrupts: Interrupts,
    frames: Frames,
}

impl Paths {
    pub(super) fn new(seed: u64, every: Wire) -> Self {
        Self {
            random: Random::new(seed),
            every,
            wires: HashMap::new(),
            cut: HashSet::new(),
            unplugged: HashSet::new(),
            free_at: HashMap::new(),
            flying: BTreeMap::new(),
            number: 0,
            sockets: Vec::new(),
            places: HashMap::new(),
            counts: Counts::default(),
            over: false,
            kernels: BTreeMap::new(),
            interrupts: Interrupts::default(),
            frames: Frames::default(),
        }
    }

    pub(super) fn set_wires(&mut self, wire: Wire) {
        self.every = wire;
        self.wires.clear();
    }

    pub(super) fn set_wire(&mut self, path: (IpAddr, IpAddr), wire: Wire) {
        self.wires.insert(path, wire);
    }

    pub(super) fn wire(&self, path: (IpAddr, IpAddr)) -> Wire {
        if self.wires.is_empty() {
            return self.every;
        }
        self.wires.get(&path).copied().unwrap_or(self.every)
    }

    pub(super) fn cut(&mut self, path: (IpAddr, IpAddr)) {
        self.cut.insert(path);
    }

    pub(super) fn unplug(&mut self, host: IpAddr) {
        self.unplugged.insert(host);
        let before = self.flying.len();
        self.flying.retain(|_, datagram| datagram.from.ip() != host && datagram.to.ip() != host);
        self.counts.cut_off += (before - self.flying.len()) as u64;
    }

    pub(super) fn mend(&mut self) {
        self.cut.clear();
        self.unplugged.clear();
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) const fn end(&mut self) {
        self.over = true;
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// A socket at this address; at port 0, at one that is free: where it is, and its place here. `None` if there is
    /// one already.
    pub(super) fn bind(&mut self, mut address: SocketAddr, bell: OwnedFd) -> Option<(SocketAddr, usize)> {
        if address.port() == 0 {
            let ip = address.ip();
            address = (49_152..=65_535).map(|port| (ip, port).into()).find(|at| !self.places.contains_key(at))?;
        }
        if self.places.contains_key(&address) {
            return None;
        }
        let place = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        self.sockets.resize_with(self.sockets.len().max(place + 1), || None);
        self.sockets[place] = Some(Socket { queue: VecDeque::new(), taken: 0, overrun: 0, bell, rung: false });
        self.places.insert(address, place);
        Some((address, place))
    }

    pub(super) fn close(&mut self, address: SocketAddr) {
        if let Some(place) = self.places.remove(&address) {
            self.sockets[place] = None;
        }
    }

    /// The socket at a place.
    pub(super) fn socket(&mut self, place: usize) -> Option<&mut Socket> {
        self.sockets.get_mut(place)?.as_mut()
    }

    /// Most bytes of a datagram from one host to another.
    pub(super) fn longest(&self, from: IpAddr, to: IpAddr) -> usize {
        let headers = if to.is_ipv4() { HEADERS.0 } else { HEADERS.1 };
        (self.wire((from, to)).mtu as usize).saturating_sub(headers)
    }

    /// Lets datagrams leave that one call sends.
    pub(super) fn send<'a>(
        &mut self,
        now: u64,
        path: (SocketAddr, SocketAddr),
        datagrams: impl Iterator<Item = &'a [u8]>,
    ) {
        self.leave(now, path, datagrams, false);
    }

    /// Lets frames leave that a ring sends by one call.
    pub(super) fn send_frames<'a>(
        &mut self,
        now: u64,
        path: (SocketAddr, SocketAddr),
        frames: impl Iterator<Item = &'a [u8]>,
    ) {
        self.leave(now, path, frames, true);
    }

    fn leave<'a>(
        &mut self,
        now: u64,
        (from, to): (SocketAddr, SocketAddr),
        datagrams: impl Iterator<Item = &'a [u8]>,
        framed: bool,
    ) {
        let path = (from.ip(), to.ip());
        let wire = self.wire(path);
        let jitter = self.random.below(nanos(wire.jitter).saturating_add(1));
        let is_cut = self.cut.contains(&path) || [path.0, path.1].iter().any(|host| self.unplugged.contains(host));
        for bytes in datagrams {
            self.counts.sent += 1;
            if is_cut {
                self.counts.cut_off += 1;
                continue;
            }
            if self.random.chance(wire.loss) {
                self.counts.lost += 1;
                continue;
            }
            let leaves = self.free_at.entry(path.0).or_default();
            *leaves = now.max(*leaves) + wire.bandwidth.map_or(0, |most| took(bytes.len(), most));
            let around = if framed { 0 } else { nanos(self.interrupts.socket) };
            let arrives = *leaves + nanos(wire.latency) + jitter + around;
            let twice = self.random.chance(wire.duplicates);
            self.counts.repeated += u64::from(twice);
            for _ in 0..=u8::from(twice) {
                let mut arrives = arrives;
                if self.random.chance(wire.reorders) {
                    self.counts.held_up += 1;
                    arrives += self.random.below(4 * nanos(wire.latency) + 1000);
                }
                let mut bytes = bytes.to_vec();
                self.damage(&wire, &mut bytes);
                self.number += 1;
                self.flying.insert((arrives, self.number), Datagram { from, to, bytes, framed });
            }
        }
    }

    fn damage(&mut self, wire: &Wire, bytes: &mut Vec<u8>) {
        let random = &mut self.random;
        if random.chance(wire.corrupts) && !bytes.is_empty() {
            self.counts.damaged += 1;
            let at = index(random, bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        if random.chance(wire.truncates) {
            self.counts.damaged += 1;
            bytes.truncate(index(random, bytes.len()));
        }
    }

    /// When the next datagram arrives.
    pub(super) fn next(&self) -> Option<u64> {
        self.flying.first_key_value().map(|(key, _)| key.0)
    }

    /// Brings what has arrived by now to its sockets, and rings there.
    pub(super) fn carry(&mut self, now: u64) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), datagram) = entry.remove_entry();
            if datagram.framed {
                match self.kernels.get(&datagram.to.ip()) {
                    Some(kernel) => {
                        self.counts.arrived += 1;
                        self.counts.digest = digest(self.counts.digest, at, &datagram);
                        lock(kernel).comes(datagram.bytes);
                    }
                    None => self.bring_framed(at, datagram.bytes),
                }
                continue;
            }
            self.bring(at, datagram);
        }
        let kernels: Vec<_> = self.kernels.values().cloned().collect();
        for kernel in kernels {
            let passed = lock(&kernel).passed();
            passed.into_iter().for_each(|frame| self.bring_framed(now, frame));
        }
    }

    /// Brings what the kernel's stack takes out of a frame to its socket.
    fn bring_framed(&mut self, at: u64, mut frame: Vec<u8>) {
        let Some((from, to, body)) = envelope::parse(&mut frame) else { return };
        self.bring(at, Datagram { from: from.into(), to: to.into(), bytes: body.to_vec(), framed: false });
    }

    fn bring(&mut self, at: u64, datagram: Datagram) {
        let place = self.places.get(&datagram.to).copied();
        let Some(socket) = place.and_then(|place| self.sockets[place].as_mut()) else {
            self.counts.nobody += 1;
            return;
        };
        if socket.taken + datagram.bytes.len() + AROUND > SOCKET_BYTES {
            self.counts.overrun += 1;
            socket.overrun = socket.overrun.wrapping_add(1);
            return;
        }
        self.counts.arrived += 1;
        self.counts.digest = digest(self.counts.digest, at, &datagram);
        socket.taken += datagram.bytes.len() + AROUND;
        socket.queue.push_back(datagram);
        if !std::mem::replace(&mut socket.rung, true) {
            let _ = rustix::io::write(&socket.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// What concerns rings.
impl Paths {
    /// A number that looks random.
    pub(super) const fn draw(&mut self) -> u64 {
        self.random.next()
    }

    /// A ring is at the interface of this host from now on.
    pub(super) fn plug(&mut self, host: IpAddr, kernel: Arc<Mutex<Kernel>>) {
        self.kernels.insert(host, kernel);
    }

    /// That one is gone.
    pub(super) fn pull(&mut self, host: IpAddr, kernel: &Arc<Mutex<Kernel>>) {
        self.frames.add(lock(kernel).frames());
        if self.kernels.get(&host).is_some_and(|there| Arc::ptr_eq(there, kernel)) {
            self.kernels.remove(&host);
        }
    }

    pub(super) const fn interrupts(&self) -> Interrupts {
        self.interrupts
    }

    pub(super) fn interrupt(&mut self, interrupts: Interrupts) {
        self.interrupts = interrupts;
        self.kernels.values().for_each(|kernel| lock(kernel).interrupt(interrupts));
    }

    /// Tells the kernel of this host's ring what to do next, after so many steps.
    #[cfg(feature = "fuzz")]
    pub(super) fn tell(&self, host: IpAddr, after: u8, deed: super::kernel::Deed) {
        self.kernels.get(&host).into_iter().for_each(|kernel| lock(kernel).tell(after, deed));
    }

    pub(super) fn frames(&self) -> Frames {
        let mut all = self.frames;
        self.kernels.values().for_each(|kernel| all.add(lock(kernel).frames()));
        all
    }
}

fn digest(before: u64, at: u64, datagram: &Datagram) -> u64 {
    let (words, rest) = datagram.bytes.as_chunks::<8>();
    let word = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let ends = u64::from(datagram.from.port()) << 16 | u64::from(datagram.to.port());
    let mut hash = [at, ends, datagram.bytes.len() as u64].into_iter().fold(before, word);
    for bytes in words {
        hash = word(hash, u64::from_le_bytes(*bytes));
    }
    mix(rest.iter().fold(hash, |hash, byte| word(hash, u64::from(*byte))))
}

/// An index into something of this length.
#[expect(clippy::cast_possible_truncation, reason = "below a length")]
const fn index(random: &mut Random, len: usize) -> usize {
    random.below(len as u64) as usize
}

/// How long so many bytes take to leave, in nanoseconds.
fn took(bytes: usize, bytes_a_second: u64) -> u64 {
    (bytes as u64).saturating_mul(1_000_000_000) / bytes_a_second.max(1)
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX >> 8)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const A: &str = "10.0.0.1:1";
    const B: &str = "10.0.0.2:2";

    fn at(address: &str) -> SocketAddr {
        address.parse().expect("an address")
    }

    fn bell() -> OwnedFd {
        eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd")
    }

    fn paths(wire: Wire) -> Paths {
        let mut paths = Paths::new(7, wire);
        for address in [A, B] {
            assert_eq!(paths.bind(at(address), bell()).map(|(bound, _)| bound), Some(at(address)));
        }
        paths
    }

    fn send(paths: &mut Paths, now: u64, count: u8) {
        let datagrams: Vec<[u8; 4]> = (0..count).map(|number| [number; 4]).collect();
        paths.send(now, (at(A), at(B)), datagrams.iter().map(|bytes| &bytes[..]));
    }

    /// What B has got by then.
    fn come(paths: &mut Paths, now: u64) -> Vec<u8> {
        paths.carry(now);
        let socket = paths.socket(1).expect("a socket");
        std::iter::from_fn(|| socket.take()).map(|datagram| *datagram.bytes.first().unwrap_or(&u8::MAX)).collect()
    }

    #[test]
    fn a_good_wire_brings_everything_in_order_and_in_time() {
        let mut paths = paths(Wire { bandwidth: Some(4_000_000), ..Wire::default() });
        send(&mut paths, 5, 3);
        // A microsecond each to leave, and ten to arrive.
        assert_eq!(come(&mut paths, 11_004), [0_u8; 0]);
        assert_eq!(come(&mut paths, 12_005), [0, 1]);
        assert_eq!((come(&mut paths, 13_005), paths.next()), (vec![2], None));
        assert_eq!(paths.counts(), Counts { sent: 3, arrived: 3, digest: paths.counts().digest, ..Counts::default() });
    }

    #[test]
    fn what_is_cut_or_unplugged_or_nobodys_does_not_arrive() {
        let mut paths = paths(Wire::default());
        paths.cut((at(A).ip(), at(B).ip()));
        send(&mut paths, 0, 1);
        paths.mend();
        send(&mut paths, 0, 2);
        paths.unplug(at(A).ip());
        send(&mut paths, 0, 1);
        paths.mend();
        paths.close(at(B));
        send(&mut paths, 0, 1);
        paths.carry(1_000_000);
        let counts = paths.counts();
        assert_eq!((counts.cut_off, counts.nobody, counts.arrived), (4, 1, 0));
    }

    #[test]
    fn a_socket_has_room_for_so_much() {
        let mut paths = paths(Wire::default());
        let long = vec![0; 65_000];
        paths.send(0, (at(A), at(B)), std::iter::repeat_n(&long[..], 100));
        paths.carry(1_000_000);
        let room = (SOCKET_BYTES / (long.len() + AROUND)) as u64;
        assert_eq!((paths.counts().arrived, paths.counts().overrun), (room, 100 - room));
        let place = paths.places[&at(B)];
        assert_eq!(paths.socket(place).map(|socket| u64::from(socket.overrun)), Some(100 - room));
        assert_eq!(come(&mut paths, 0).len() as u64, room);
        paths.send(0, (at(A), at(B)), std::iter::once(&long[..]));
        assert_eq!(come(&mut paths, 1_000_000).len(), 1);
    }

    #[test]
    fn each_fault_happens_about_as_often_as_it_shall_and_alike_for_a_seed() {
        let wire = Wire { loss: 0.1, duplicates: 0.1, reorders: 0.1, corrupts: 0.1, truncates: 0.1, ..Wire::default() };
        let run = || {
            let mut paths = paths(Wire { jitter: Duration::from_micros(3), ..wire });
            (0..100).for_each(|now| send(&mut paths, now * 100, 100));
            paths.carry(1_000_000);
            paths.counts()
        };
        let counts = run();
        assert_eq!(counts, run());
        for (count, of) in [(counts.lost, 1000), (counts.repeated, 900), (counts.held_up, 990), (counts.damaged, 1980)]
        {
            assert!(count.abs_diff(of) < of / 5, "{count} of about {of}");
        }
        assert_eq!(counts.arrived + counts.lost, counts.sent + counts.repeated);
    }
}
