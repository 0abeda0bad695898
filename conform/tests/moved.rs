//! An address changes while there is a channel: behind a NAT, or because an interface gets another one. The channel
//! ends as of a peer that is silent, and everything that is under way on it; a new one can be opened at once, which
//! nothing of the old one comes by.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutthrough::{
    Adapter, Channel, CloseReason, Config, Counter, Endpoint, Event, Keys, ReadError, RoomError, SendError, SharedKey,
    WaitError, probe,
};
use cutthrough_cli::veth::{Pair, Space};
use cutthrough_conform::bytes::pattern;
use cutthrough_conform::join::{PATIENCE, Side};
use cutthrough_conform::suite;

/// For how long nothing is heard before a peer is dead, where that is to take a while.
const SILENCE: Duration = Duration::from_secs(3);

/// Within this time everything has ended by default: several times as much as the silence, for a machine that is busy
/// with other things.
const HEARD: Duration = Duration::from_secs(5);

/// Settings of plain text, or of a shared key. What makes no progress does not end by the deadline.
fn config(sealed: bool, silence: Duration) -> Config {
    let keys = sealed.then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([42; 32]))));
    Config { insecure: !sealed, keys, silence, deadline: PATIENCE, ..suite::config() }
}

fn open(config: Config) -> Endpoint {
    Endpoint::open(config).expect("an endpoint")
}

/// A translator of addresses on loopback: what comes to its front goes on from a port of its own, and what comes there
/// goes back to who came last. It may get another port at any time.
struct Nat {
    front: SocketAddr,
    moves: Arc<AtomicU32>,
    moved: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Nat {
    fn before(server: SocketAddr) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_nonblocking(true).expect("non-blocking");
            socket
        };
        let (front, mut back) = (socket(), socket());
        let address = front.local_addr().expect("its address");
        let (moves, moved, stop): (Arc<AtomicU32>, Arc<AtomicU32>, Arc<AtomicBool>) = Default::default();
        let [asked, done] = [Arc::clone(&moves), Arc::clone(&moved)];
        let over = Arc::clone(&stop);
        let run = move || {
            let (mut client, mut bytes) = (None, vec![0; 1 << 16]);
            while !over.load(Ordering::Relaxed) {
                if asked.load(Ordering::Acquire) > done.load(Ordering::Relaxed) {
                    back = socket();
                    done.fetch_add(1, Ordering::Release);
                }
                let mut idle = true;
                while let Ok((len, from)) = front.recv_from(&mut bytes) {
                    (client, idle) = (Some(from), false);
                    let _ = back.send_to(&bytes[..len], server);
                }
                while let Ok((len, _)) = back.recv_from(&mut bytes) {
                    idle = false;
                    let _ = client.map(|client| front.send_to(&bytes[..len], client));
                }
                if idle {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        };
        Self { front: address, moves, moved, stop, thread: Some(thread::spawn(run)) }
    }

    /// From now on what it passes on comes from another port, and what goes to the port of before gets nowhere.
    fn moves(&self) {
        let moves = self.moves.fetch_add(1, Ordering::Release) + 1;
        while self.moved.load(Ordering::Acquire) < moves {
            thread::yield_now();
        }
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // If it has panicked, so does the test, by what it misses.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends payloads there, and back.
fn to_and_fro(a: &mut Side, b: &mut Side, rounds: u64) {
    let one = |from: &mut Side, to: &mut Side, seed: u64| {
        from.send_copy(&seed.to_le_bytes(), &pattern(seed, 10_000), None);
        let mut message = to.message();
        assert_eq!((message.channel(), message.control()), (to.channel, &seed.to_le_bytes()[..]));
        to.read_checked(&mut message, seed);
    };
    for seed in 0..rounds {
        one(a, b, 2 * seed);
        one(b, a, 2 * seed + 1);
    }
}

/// A channel from `a` to `b`, which listens at this address; both are driven in this thread, wherever they are.
fn opened(a: &mut Endpoint, b: &mut Endpoint, address: &str) -> (Channel, Channel) {
    let connecting = a.begin_connect(address, PATIENCE).expect("begun");
    let (mut here, mut there, begun) = (None, None, Instant::now());
    loop {
        match a.poll() {
            Some(Event::Connected(of, outcome)) if of == connecting => here = Some(outcome.expect("a channel")),
            event => assert!(event.is_none(), "{event:?}"),
        }
        match b.poll() {
            Some(Event::Opened(channel)) => there = Some(channel),
            event => assert!(event.is_none(), "{event:?}"),
        }
        if let (Some(here), Some(there)) = (here, there) {
            return (here, there);
        }
        assert!(begun.elapsed() < PATIENCE, "no channel");
    }
}

/// Waits until both have heard that their channels of before have died, with nothing else to be heard of.
fn both_end(sides: [(&mut Endpoint, Channel); 2]) {
    let begun = Instant::now();
    let mut left: Vec<_> = sides.into_iter().collect();
    while !left.is_empty() {
        // Asleep for most of the time: others need the cores.
        left.retain_mut(|(endpoint, channel)| match endpoint.wait(Some(Duration::from_millis(5))) {
            Ok(Event::Closed(closed, reason)) => {
                assert_eq!((closed, reason), (*channel, CloseReason::Died));
                false
            }
            event => {
                assert_eq!(event.map(drop), Err(WaitError::TimedOut));
                true
            }
        });
        assert!(begun.elapsed() < PATIENCE, "the channel does not end");
    }
}

/// Of two joined sides one has got another address, and is reached by this one: whoever calls has a channel at once,
/// while the one of before is there still, and nothing of that comes by it. The one of before ends.
fn a_new_one_takes_its_place(sides: &mut [Side; 2], address: &str, moves: impl FnOnce()) {
    let [a, b] = sides;
    // Long enough that a socket is joined to the other side.
    to_and_fro(a, b, 100);
    moves();
    // What is sent by the old one finds nobody.
    a.say(b"old");
    b.say(b"old");
    let (at_a, at_b) = opened(&mut a.endpoint, &mut b.endpoint, address);
    let [before_a, before_b] = [std::mem::replace(&mut a.channel, at_a), std::mem::replace(&mut b.channel, at_b)];
    to_and_fro(a, b, 100);
    for (side, channel) in [(&*a, before_a), (&*b, before_b)] {
        assert!(side.endpoint.channels().any(|open| open == channel), "it was not opened at once");
    }
    both_end([(&mut a.endpoint, before_a), (&mut b.endpoint, before_b)]);
    to_and_fro(a, b, 10);
}

/// Two endpoints with a channel through a translator.
fn translated(sealed: bool, silence: Duration) -> ([Side; 2], Nat, String) {
    let [mut a, mut b] = [(); 2].map(|()| open(config(sealed, silence)));
    b.listen("udp:127.0.0.1:0").expect("a port");
    let nat = Nat::before(b.net_address().expect("it is bound"));
    let way = format!("udp:{}", nat.front);
    let (at_a, at_b) = opened(&mut a, &mut b, &way);
    ([(a, at_a), (b, at_b)].map(|(endpoint, channel)| Side { endpoint, channel }), nat, way)
}

#[test]
fn a_channel_does_not_move_behind_a_nat() {
    let moves = |sealed| {
        let (mut sides, nat, way) = translated(sealed, SILENCE);
        let refused = |sides: &[Side; 2]| sides[1].endpoint.counter(Counter::FramesStale);
        let before = refused(&sides);
        a_new_one_takes_its_place(&mut sides, &way, || nat.moves());
        let begun = Instant::now();
        // It was sent again from the other port until it ended. Counters tell a little later.
        while refused(&sides) == before {
            let _ = sides[1].endpoint.wait(Some(Duration::from_millis(10)));
            assert!(begun.elapsed() < PATIENCE, "what came from another port was not refused");
        }
    };
    thread::scope(|scope| [false, true].map(|sealed| scope.spawn(move || moves(sealed))).map(drop));
}

/// Whatever is under way ends in time, at both sides; then they have the next channel at once.
#[test]
fn what_is_under_way_ends_when_an_address_changes() {
    let silence = Config::default().silence;
    let (mut sides, nat, way) = translated(false, silence);
    // A payload that comes is waited for at one side, and sent at the other.
    let [a, b] = &mut sides;
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let payload = vec![1; 64 << 20];
            let sent = b.endpoint.outgoing(b.channel).expect("room").attach_copy(&payload).send();
            (sent.map(|_| ()), Instant::now())
        });
        let mut message = a.message();
        nat.moves();
        let moved = Instant::now();
        let read = a.endpoint.read(&mut message, &mut vec![0; 64 << 20]).map(|_| ());
        assert_eq!(read, Err(ReadError::Closed(CloseReason::Died)));
        assert!(moved.elapsed() < HEARD, "{:?}", moved.elapsed());
        let (sent, ended) = sending.join().expect("who sends");
        assert_eq!(sent, Err(SendError::Closed(CloseReason::Died)));
        assert!(ended.saturating_duration_since(moved) < HEARD, "{:?}", ended - moved);
    });
    both_end([(&mut a.endpoint, a.channel), (&mut b.endpoint, b.channel)]);
    (a.channel, b.channel) = opened(&mut a.endpoint, &mut b.endpoint, &way);
    to_and_fro(a, b, 10);
    // Room for messages is waited for at one side, and any event at the other.
    nat.moves();
    let moved = Instant::now();
    let room = loop {
        match a.endpoint.send(a.channel, b"old") {
            Ok(()) => {}
            Err(SendError::Full) => break a.endpoint.wait_for_room(a.channel, Some(PATIENCE)),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(room, Err(RoomError::Closed(CloseReason::Died)));
    assert!(moved.elapsed() < HEARD, "{:?}", moved.elapsed());
    both_end([(&mut a.endpoint, a.channel), (&mut b.endpoint, b.channel)]);
    (a.channel, b.channel) = opened(&mut a.endpoint, &mut b.endpoint, &way);
    to_and_fro(a, b, 10);
}

/// Runs commands of `ip` in a namespace.
fn ip(space: &Space, commands: &[&str]) {
    for words in commands {
        let ran = space.within(|| Command::new("ip").args(words.split_whitespace()).status()).expect("the namespace");
        assert!(ran.expect("ip runs").success(), "ip {words}");
    }
}

/// The address that takes the place of another one, at either end.
const NEXT: &str = "10.73.4.1";

/// A wire for one test, where this adapter can be used; says so if there is none.
fn wire(adapter: Adapter) -> Option<Pair> {
    let missing = probe(adapter).into_iter().find_map(|(_, tried)| tried.err());
    let made = missing.map_or_else(|| Pair::make(1500).map_err(|missing| missing.to_string()), Err);
    made.map_err(cutthrough_conform::skipped).ok()
}

/// Which side's interface gets another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    Caller,
    Listener,
}

impl Moves {
    /// Gives it [`NEXT`] instead. Both ends find each other by their new addresses.
    fn on(self, wire: &Pair) {
        let (here, name, before, there, other) = match self {
            Self::Caller => (&wire.near, "near", Pair::NEAR, &wire.far, "far"),
            Self::Listener => (&wire.far, "far", Pair::FAR, &wire.near, "near"),
        };
        let anew = [format!("addr del {before}/30 dev {name}"), format!("addr add {NEXT}/30 dev {name}")];
        ip(here, &[&anew[0], &anew[1], &format!("route add 10.73.0.0/30 dev {name}")]);
        ip(there, &[&format!("route add 10.73.4.0/30 dev {other}")]);
    }

    /// Where who listens is reached afterwards.
    fn address(self, scheme: &str) -> String {
        let host = if self == Self::Listener { NEXT.to_owned() } else { Pair::FAR.to_string() };
        format!("{scheme}:{host}:7000")
    }
}

/// Two endpoints with a channel across a wire; the second one, which is far, listens at this address.
fn joined(wire: &Pair, config: &Config, at: &str, address: &str) -> [Side; 2] {
    let [mut a, mut b] = [(); 2].map(|()| open(config.clone()));
    wire.far.within(|| b.listen(at)).expect("the namespace").expect("a free port");
    let (at_a, at_b) = wire.near.within(|| opened(&mut a, &mut b, address)).expect("the namespace");
    [(a, at_a), (b, at_b)].map(|(endpoint, channel)| Side { endpoint, channel })
}

/// An interface gets another address. Sockets that are bound to none stay, and are reached by it.
fn moves_with_its_socket(wire: &Pair, sealed: bool, moves: Moves) {
    let address = format!("udp:{}:7000", Pair::FAR);
    let mut sides = joined(wire, &config(sealed, SILENCE), "udp:0.0.0.0:7000", &address);
    a_new_one_takes_its_place(&mut sides, &moves.address("udp"), || moves.on(wire));
}

/// Both at once, each across a wire of its own, where this adapter can be used.
fn each<T: Send>(adapter: Adapter, both: [T; 2], run: impl Fn(&Pair, T) + Sync) {
    let [Some(first), Some(second)] = [(); 2].map(|()| wire(adapter)) else { return };
    thread::scope(|scope| {
        for (wire, which) in [first, second].into_iter().zip(both) {
            let run = &run;
            scope.spawn(move || run(&wire, which));
        }
    });
}

#[test]
fn who_calls_gets_another_address() {
    each(Adapter::Udp, [false, true], |wire, sealed| moves_with_its_socket(wire, sealed, Moves::Caller));
}

#[test]
fn who_listens_gets_another_address() {
    each(Adapter::Udp, [false, true], |wire, sealed| moves_with_its_socket(wire, sealed, Moves::Listener));
}

/// Rings belong to one address, and so does who listens at one: there another endpoint has the next one. Frames find
/// their way by a ring until that is asked for again.
fn moves_to_another_endpoint(wire: &Pair, scheme: &str, moves: Moves) {
    let address = format!("{scheme}:{}:7000", Pair::FAR);
    let config = config(false, SILENCE);
    let [mut a, mut b] = joined(wire, &config, &address, &address);
    to_and_fro(&mut a, &mut b, 100);
    let [mut moved, mut stays] = if moves == Moves::Caller { [a, b] } else { [b, a] };
    moves.on(wire);
    let mut next = open(config);
    let address = moves.address(scheme);
    let (at_next, at_stays) = if moves == Moves::Caller {
        wire.near.within(|| opened(&mut next, &mut stays.endpoint, &address)).expect("the namespace")
    } else {
        wire.far.within(|| next.listen(&address)).expect("the namespace").expect("a free address");
        let opened = wire.near.within(|| opened(&mut stays.endpoint, &mut next, &address));
        let (at_stays, at_next) = opened.expect("the namespace");
        (at_next, at_stays)
    };
    let before = std::mem::replace(&mut stays.channel, at_stays);
    let mut next = Side { endpoint: next, channel: at_next };
    to_and_fro(&mut next, &mut stays, 100);
    assert!(stays.endpoint.channels().any(|open| open == before), "{scheme}: it was not opened at once");
    both_end([(&mut moved.endpoint, moved.channel), (&mut stays.endpoint, before)]);
    to_and_fro(&mut next, &mut stays, 10);
}

/// These two take by far the longest. So they have names by which they are begun early, and others go on beside them.
#[test]
fn by_rings_who_calls_gets_another_address() {
    each(Adapter::Packet, ["net", "packet"], |wire, scheme| moves_to_another_endpoint(wire, scheme, Moves::Caller));
}

#[test]
fn by_rings_who_listens_gets_another_address() {
    each(Adapter::Packet, ["net", "packet"], |wire, scheme| moves_to_another_endpoint(wire, scheme, Moves::Listener));
}
