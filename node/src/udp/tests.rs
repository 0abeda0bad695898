//! Two endpoints on loopback, from inside.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::net::memory::{Memory as _, Placing, Want};
use cutthrough_engine::receipt::{Adapter, Placement, Receipt};
use cutthrough_segment::page::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Udp;
use super::address::Ways;
use super::glances::Look;
use super::lanes::PLACING;
use super::told::{Happened, Told};
use crate::clock;
use crate::config::Config;
use crate::incoming::Payload;
use crate::shm::grant::Landing;
use crate::shm::meanwhile::Alone;
use crate::shm::send::{Cargo, Load, Sheaf};
use crate::stat::Stat;
use crate::sys::xdp::wire::{FAR, NEAR, PORT, Wire};

mod ended;
mod misfits;
mod overrun;
mod read;
mod rings;
mod spliced;
mod stuck;

/// Nobody who holds a lock for so long means well.
const PATIENCE: Duration = Duration::from_secs(20);

/// An endpoint, bound to a free port of this host.
fn at(host: impl Into<std::net::IpAddr>, config: Config) -> Udp {
    by(Ways::Udp, SocketAddr::new(host.into(), 0), config)
}

/// An endpoint with these ways.
fn by(ways: Ways, address: SocketAddr, config: Config) -> Udp {
    static LIFE: AtomicU8 = AtomicU8::new(1);
    let life = LIFE.fetch_add(1, Ordering::Relaxed).into();
    let config = Config { insecure: config.keys.is_none(), ..config };
    Udp::open((ways, address), &config, life, &Arc::new(Waker::new().unwrap())).unwrap()
}

/// Two endpoints, and the number that the first one gives to the channel between them.
fn pair() -> (Udp, Udp, usize) {
    let [near, far] = [(); 2].map(|()| at(Ipv4Addr::LOCALHOST, Config::default()));
    far.listen().unwrap();
    let channel = near.call(far.local(), None, PATIENCE).unwrap();
    (near, far, channel)
}

/// Sends a message on the only channel of an endpoint.
fn send(by: &Udp, channel: usize, control: &[u8], cargo: Cargo<'_>) -> Receipt {
    let stat = Stat::create(1, 1).unwrap();
    by.send(channel, control, cargo, (&mut Alone, &stat)).unwrap()
}

/// Two endpoints with these ways at the ends of a wire, and the number that the first one gives to the channel between
/// them.
fn across(wire: &Wire, ways: Ways) -> (Udp, Udp, usize) {
    across_with(wire, ways, &Config::default())
}

/// The same with these settings.
fn across_with(wire: &Wire, ways: Ways, config: &Config) -> (Udp, Udp, usize) {
    let near = wire.near(|| by(ways, SocketAddr::from((NEAR, 0)), config.clone()));
    let far = wire.far(|| by(ways, SocketAddr::from((FAR, PORT)), config.clone()));
    far.listen().unwrap();
    let channel = wire.near(|| near.call(far.local(), None, PATIENCE).unwrap());
    (near, far, channel)
}

/// Looks for messages: the number of one whose payload has a reader.
fn arriving(at: &Udp) -> Option<u64> {
    let mut number = None;
    at.turn(64, |_, what| {
        if let Told::Message(_, message) = what
            && let ReadyPayload::Arriving(of, _) = message.payload
        {
            number = Some(of);
        }
    });
    number
}

/// Sends a private payload on the only channel between two endpoints, and reads it there.
fn carry(near: &Udp, far: &Udp, channel: usize, payload: &[u8]) {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| send(near, channel, b"long", Cargo { load: Load::Copy(payload), token: None, cookie: None }));
        let mut number = None;
        while number.is_none() {
            number = arriving(far);
            assert!(begun.elapsed() < PATIENCE, "no message");
        }
        let (mut into, mut valid) = (vec![0; payload.len()], 0);
        while valid < into.len() {
            near.turn(64, |_, _| ());
            (valid, _) = far.read_some(0, number.unwrap(), &mut into, valid).unwrap();
            assert!(begun.elapsed() < PATIENCE, "{valid} bytes");
        }
        assert!(into == payload, "{valid} bytes");
    });
}

/// Runs `ip` with these words, in the namespace of this thread.
fn ip(words: &str) {
    let ran = std::process::Command::new("ip").args(words.split(' ')).status();
    assert!(ran.unwrap().success(), "ip {words}");
}

/// While messages of a stream wait for a busy sink, nobody but the application may leave them waiting.
#[test]
fn who_may_not_look_again_before_long_leaves_nothing_waiting() {
    let (near, _far, channel) = pair();
    let mut core = near.shared.lock();
    core.sink.busy_until(clock::now().after(60_000_000_000));
    core.net.send(channel, b"held back", None).unwrap();
    core.turn(None);
    assert_eq!(core.net.unsent(channel), 1, "an application that looks again leaves it for a while");
    core.sink.busy_until(clock::now().after(60_000_000_000));
    core.last_turn();
    assert_eq!(core.net.unsent(channel), 0);
}

/// Pages go from where they lie; of several runs, what lies in one frame with the next run is copied.
#[test]
fn a_list_of_pages_says_that_it_was_copied() {
    let (near, _far, channel) = pair();
    let page = || near.page(channel, 4096).unwrap();
    let copies = |sheaf| {
        let cargo = Cargo { load: Load::Pages(sheaf), token: None, cookie: None };
        send(&near, channel, b"pages", cargo).copies
    };
    assert_eq!(copies(Sheaf::One(near.page(channel, 50_000).unwrap())), 0);
    assert_eq!(copies(Sheaf::Many(vec![page()])), 0);
    assert_eq!(copies(Sheaf::Many(vec![page(), page()])), 1);
}

/// Who turns to other work says so.
#[test]
fn what_waits_for_a_busy_sink_can_be_flushed() {
    let (near, _far, channel) = pair();
    {
        let mut core = near.shared.lock();
        core.sink.busy_until(clock::now().after(60_000_000_000));
        core.net.send(channel, b"held back", None).unwrap();
        core.turn(None);
        assert_eq!(core.net.unsent(channel), 1);
    }
    near.flush();
    assert_eq!(near.shared.lock().net.unsent(channel), 0);
}

/// Who stands still between a look and the clock gives nothing up that has been acknowledged meanwhile.
#[test]
fn who_stood_still_after_a_look_looks_again_before_it_gives_anything_up() {
    let (near, far, channel) = pair();
    let mut core = near.shared.lock();
    core.net.send(channel, b"a word", None).unwrap();
    core.transmit(clock::now(), true);
    let told = (0..1000).find(|_| {
        let mut messages = 0;
        far.turn(64, |_, told| messages += u32::from(matches!(told, Told::Message(..))));
        std::thread::sleep(Duration::from_millis(1));
        messages > 0
    });
    assert!(told.is_some());
    far.shared.lock().net.hurry();
    far.flush();
    // On a busy machine it may take a while until what was sent is there, and a round trip is believed to be long.
    std::thread::sleep(Duration::from_millis(50));
    let doubted = (0..10_000).find(|_| {
        std::thread::sleep(Duration::from_millis(1));
        core.net.doubts(clock::now())
    });
    assert!(doubted.is_some());
    assert!(core.follow(Look { any: false, all: true }, false, None));
    assert_eq!((core.net.tally().timeouts, core.net.tally().frames_lost), (0, 0));
}

/// The attendant waits for the lock while the application looks and goes to sleep: what it takes in then, the
/// application is woken for.
#[test]
fn who_went_to_sleep_while_its_attendant_waited_is_woken() {
    let (near, far, channel) = pair();
    far.turn(64, |_, _| ());
    let waker = Arc::clone(&near.shared.waker);
    assert!(near.turn(64, |_, _| ()).is_none() && waker.sleep());
    let core = near.shared.lock();
    // Long enough that the attendant has seen that nobody looks.
    std::thread::sleep(Duration::from_millis(50));
    let back = far.shared.lock().net.send(channel, b"a word", None);
    back.unwrap();
    far.flush();
    near.here();
    near.shared.asleep.store(true, Ordering::Relaxed);
    drop(core);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        let core = near.shared.lock();
        let mut woken = [PollFd::new(waker.event(), PollFlags::IN)];
        poll(&mut woken, Some(&Timespec::default())).unwrap();
        let woken = woken[0].revents().contains(PollFlags::IN);
        assert!(woken || !core.has_news(), "nobody is woken for what was taken in");
        drop(core);
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Only channels are looked at of which something was dropped, however many there are.
#[test]
fn what_is_dropped_is_taken_back_without_a_look_at_idle_channels() {
    for channels in [10, 1000] {
        let near = at(Ipv4Addr::LOCALHOST, Config::default());
        let mut core = near.shared.lock();
        (0..channels).for_each(|channel| core.furnish(channel));
        let now = clock::now();
        assert_eq!(core.tidy(now), 0, "nothing was dropped");
        let store = core.net.memory.get(7).unwrap();
        let whole = store.page(usize::try_from(Config::default().pool_bytes).unwrap());
        assert!(whole.is_some() && store.page(1).is_none());
        drop(whole);
        assert_eq!(core.tidy(now), 1, "one of {channels}");
        assert_eq!(core.tidy(now), 0);
        // Dropped again, it is listed again; also if it has been taken back meanwhile.
        let store = core.net.memory.get(7).unwrap();
        drop(store.page(1));
        assert!(store.page(1).is_some());
        assert_eq!((core.tidy(now), core.tidy(now)), (1, 0));
    }
}

/// The peer has a page, and the kernel still has a part of it: its completion is not told, and nobody gets it to write.
/// Both are due when the kernel has let go of it, and who sleeps until then looks soon.
#[test]
fn a_page_that_the_kernel_still_has_is_nobodys() {
    const POOL: usize = 1 << 20;
    let Some(wire) = Wire::make(1500) else { return };
    let config = || Config { pool_bytes: POOL as u64, silence: 2 * PATIENCE, ..Config::default() };
    let near = wire.near(|| by(Ways::Xdp, SocketAddr::from((NEAR, 0)), config()));
    let far = wire.far(|| by(Ways::Xdp, SocketAddr::from((FAR, PORT)), config()));
    far.listen().unwrap();
    let channel = wire.near(|| near.call(far.local(), None, PATIENCE).unwrap());
    let mut told = Vec::new();
    let look = |told: &mut Vec<u64>| {
        let other = near.turn(64, |_, what| match what {
            Told::Completed(_, cookie) => told.push(cookie),
            Told::Message(..) => panic!("a message"),
        });
        assert!(other.is_none(), "{other:?}");
    };

    let page = near.page(channel, 8192).unwrap();
    let at = page.place().offset();
    let flights = near.shared.lock().net.memory.get(channel).unwrap().flights().cloned().unwrap();
    // As if the kernel had been given a part twice, because it was sent again.
    flights.begin(at + 4096);
    let cargo = Cargo { load: Load::Pages(Sheaf::One(page)), token: None, cookie: Some(9) };
    assert_eq!(send(&near, channel, b"a page", cargo).copies, 0);
    let begun = Instant::now();
    // Nobody takes it there; it is asked for when somebody looks.
    while !near.shared.lock().net.has_in_use() {
        look(&mut told);
        far.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "it does not arrive");
    }
    for _ in 0..100 {
        look(&mut told);
    }
    assert!(told.is_empty() && near.shared.lock().net.has_in_use());
    assert!(near.page(channel, POOL).is_err() && near.page(channel, POOL - 8192).is_ok());
    let next = near.before_sleep(false);
    assert!(next.is_none_or(|next| next <= clock::now().after(1_000_000)), "{next:?}");

    flights.end(at + 4096);
    let begun = Instant::now();
    while told.is_empty() {
        look(&mut told);
        assert!(begun.elapsed() < PATIENCE, "it is not told");
    }
    assert_eq!(told, [9]);
    let begun = Instant::now();
    while near.page(channel, POOL).is_err() {
        assert!(begun.elapsed() < PATIENCE, "a page is missing");
    }
}

/// Who is not beyond the interface of a ring is asked for ever less often, and its socket is left alone; when anything
/// changes, it is asked for again before that.
#[test]
fn who_is_out_of_a_rings_way_is_rarely_asked_for() {
    let Some(wire) = Wire::make(1500) else { return };
    wire.near(|| ip("link set lo up"));
    let near = wire.near(|| by(Ways::All, SocketAddr::from((NEAR, 0)), Config::default()));
    let beside = wire.near(|| by(Ways::Udp, SocketAddr::from((NEAR, 0)), Config::default()));
    beside.listen().unwrap();
    let channel = near.call(beside.local(), None, PATIENCE).unwrap();
    let look = |until: &mut dyn FnMut() -> bool| {
        let begun = Instant::now();
        while !until() {
            near.turn(64, |_, _| ());
            beside.turn(64, |_, _| ());
            near.shared.lock().tidy(clock::now());
            assert!(begun.elapsed() < PATIENCE);
        }
    };
    let asked = || near.shared.lock().lanes.as_ref().unwrap().asked();
    let wait = |time: Duration| {
        let begun = Instant::now();
        look(&mut || begun.elapsed() > time);
    };
    wait(Duration::from_millis(1000));
    assert!(asked() < 12, "asked {} times in a second", asked());
    assert_eq!(near.shared.lock().lanes.as_ref().unwrap().ways_of(channel), 1);
    // A way that has come up for another peer is a change.
    let before = asked();
    wire.near(|| ip("address add 10.74.1.1/30 dev near"));
    wait(Duration::from_millis(300));
    assert!(asked() > before, "nobody has heard of it");
}

/// What the way to one peer, or one batch, lacks is no fault of the ring: the others go on by it.
#[test]
fn a_peer_without_a_way_costs_the_others_no_ring() {
    let Some(wire) = Wire::make(1500) else { return };
    let near = wire.near(|| by(Ways::Packet, SocketAddr::from((NEAR, 0)), Config::default()));
    let far = wire.far(|| by(Ways::Packet, SocketAddr::from((FAR, PORT)), Config::default()));
    far.listen().unwrap();
    let channel = wire.near(|| near.call(far.local(), None, PATIENCE).unwrap());
    let mut core = near.shared.lock();
    let ways = core.lanes.as_ref().unwrap().ways_of(channel);
    assert_ne!(ways, 1);
    // The kernel has lost the way after the batch was made.
    core.lanes.as_mut().unwrap().lose_way(channel);
    core.net.send(channel, b"a word", None).unwrap();
    core.transmit(clock::now(), true);
    assert_eq!(core.lanes.as_ref().unwrap().turnover().0, 0);
    assert_eq!(core.lanes.as_ref().unwrap().ways_of(channel), ways, "it was asked for again at once");
    drop(core);
    let (begun, mut came) = (Instant::now(), false);
    while !came {
        near.turn(64, |_, _| ());
        far.turn(64, |_, what| came |= matches!(what, Told::Message(..)));
        assert!(begun.elapsed() < PATIENCE, "it does not arrive");
    }
}

/// A listener at all addresses has doubted its way to a peer by the socket that was joined to it. What comes from there
/// comes by that socket all the same: a peer that calls again from the same port is answered from where it has called,
/// which is not from where the kernel would answer.
#[test]
fn who_comes_back_to_a_socket_that_was_joined_to_it_is_let_in() {
    let (near, far) = (at(Ipv4Addr::UNSPECIFIED, Config::default()), at(Ipv4Addr::LOCALHOST, Config::default()));
    near.listen().unwrap();
    let to = SocketAddr::from(([127, 0, 0, 2], near.local().port()));
    far.call(to, None, PATIENCE).unwrap();
    let Some(Happened::Opened(channel)) = near.turn(64, |_, _| ()).map(|told| *told) else {
        panic!("nobody has called")
    };
    let begun = Instant::now();
    while !near.shared.lock().joined.as_ref().unwrap().is_joined() {
        let sent = near.shared.lock().net.send(channel, b"a word", None);
        sent.unwrap();
        near.flush();
        near.turn(64, |_, _| ());
        far.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "nobody is joined");
    }
    near.shared.lock().joined.as_mut().unwrap().let_go();
    far.call(to, None, PATIENCE / 10).expect("it is let in");
    assert_eq!(near.shared.lock().net.channels(), 2);
}

/// Who sleeps outside of our calls has its times looked after by the attendant, though they are due before that would
/// have looked again.
#[test]
fn the_times_of_who_sleeps_outside_are_kept() {
    let (mut late, begun) = (Vec::new(), Instant::now());
    while late.len() < 6 && begun.elapsed() < PATIENCE {
        let (near, far, channel) = pair();
        // Nobody acknowledges what is sent: it is sent again, each time after twice as long.
        let deaf = far.shared.lock();
        let sent = near.shared.lock().net.send(channel, b"a word", None);
        sent.unwrap();
        loop {
            assert!(near.turn(64, |_, _| ()).is_none());
            let asleep = clock::now();
            let Some(next) = near.before_sleep(true) else { continue };
            let ahead = next.saturating_since(asleep);
            if ahead > 4_000_000 {
                break;
            }
            while near.shared.lock().net.timer() == Some(next) {
                std::thread::sleep(Duration::from_micros(100));
            }
            late.push((clock::now().saturating_since(next), ahead));
        }
        drop(deaf);
    }
    // A busy machine is late itself now and then.
    late.sort_unstable();
    assert!(late.get(1).is_none_or(|(late, _)| *late < 800_000), "{late:?}");
}

/// Who sleeps outside of our calls until there is room is woken for it by the attendant, if that has taken in what the
/// socket said of it. Messages that wait wake nobody who has set enough aside.
#[test]
fn room_that_the_attendant_finds_wakes_who_sleeps_for_it() {
    let (near, far, channel) = pair();
    let begun = Instant::now();
    send(&far, 0, b"waits", Cargo { load: Load::None, token: None, cookie: None });
    while near.check_room(channel).is_ok() {
        send(&near, channel, b"takes room", Cargo { load: Load::None, token: None, cookie: None });
    }
    while !near.shared.lock().has_news() {
        near.shared.lock().last_turn();
        assert!(begun.elapsed() < PATIENCE, "no message");
    }
    assert!(near.before_room(channel, true, false).is_none(), "whoever sets aside what comes has something to do");
    while near.before_room(channel, true, true).is_none() {
        assert!(near.check_room(channel).is_err() && begun.elapsed() < PATIENCE, "there is room, or always something");
    }
    assert!(near.shared.waker.sleep());
    take_until_there_is_room((&near, channel), &far);
    assert_rung(&near);
    assert!(near.before_room(channel, true, true).is_none());
}

/// So is who sleeps until whatever happens, and has asked to be told of room.
#[test]
fn room_that_was_asked_for_wakes_who_sleeps() {
    let (near, far, channel) = pair();
    let begun = Instant::now();
    while near.check_room(channel).is_ok() {
        send(&near, channel, b"takes room", Cargo { load: Load::None, token: None, cookie: None });
    }
    near.ask_for_room(channel);
    while near.before_sleep(true).is_none() {
        assert_eq!(near.found_room(channel), Some(false), "there is room, or always something");
        assert!(begun.elapsed() < PATIENCE, "it never sleeps");
        near.turn(64, |_, _| ());
    }
    assert!(near.shared.waker.sleep());
    take_until_there_is_room((&near, channel), &far);
    assert_rung(&near);
    assert!(near.before_sleep(true).is_none(), "it is to look, not to sleep");
    assert_eq!(near.found_room(channel), Some(true));
    assert!(!near.shared.lock().has_asked_room(), "whoever was told asks no more");
}

/// Has messages taken until there is room for more. Who has sent them, and sleeps, learns that from its socket.
fn take_until_there_is_room((near, channel): (&Udp, usize), far: &Udp) {
    let begun = Instant::now();
    while near.shared.lock().is_full(channel) {
        far.turn(64, |_, _| ());
        near.shared.lock().last_turn();
        assert!(begun.elapsed() < PATIENCE, "no room");
    }
}

/// Whoever sleeps on this one's waker is woken.
fn assert_rung(near: &Udp) {
    let mut woken = [PollFd::new(near.shared.waker.event(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut woken, Some(&timeout)), Ok(1), "it sleeps, and there is room");
}

/// A ring fails into whose memory the kernel may write, and nobody can say when it does no more, because the call that
/// waits for that is refused: the channel ends to which that memory belongs, and nobody gets it. All else goes on, and
/// payloads are copied from then on.
#[test]
fn a_ring_that_cannot_be_given_up_costs_one_channel() {
    const BYTES: usize = 8192;
    let Some(wire) = Wire::make(1500) else { return };
    let config = |placement| Config { placement, landing_bytes: 1 << 20, silence: PATIENCE * 10, ..Config::default() };
    let near = wire.near(|| by(Ways::Xdp, SocketAddr::from((NEAR, PORT)), config(Placement::HeaderCut)));
    let far = wire.far(|| by(Ways::Xdp, SocketAddr::from((FAR, PORT)), config(Placement::Copy)));
    near.listen().unwrap();
    let called = [(); 2].map(|()| wire.far(|| far.call(near.local(), None, PATIENCE).unwrap()));
    let mut opened = Vec::new();
    let begun = Instant::now();
    while opened.len() < 2 {
        if let Some(Happened::Opened(channel)) = near.turn(64, |_, _| ()).map(|told| *told) {
            opened.push(channel);
        }
        assert!(begun.elapsed() < PATIENCE, "nobody has called");
    }
    let say = |at: usize| {
        let cargo = Cargo { load: Load::Copy(&[7; BYTES]), token: None, cookie: None };
        send(&far, called[at], b"a payload", cargo);
        let (begun, mut came) = (Instant::now(), false);
        while !came {
            let other = near.turn(64, |stores, what| {
                let Told::Message(channel, message) = what else { return };
                let payload = std::mem::replace(&mut message.payload, ReadyPayload::None);
                let arrived = stores.hand_over(channel, payload, false).unwrap();
                let Payload::Landed(landed) = arrived.payload else { panic!("{:?}", arrived.payload) };
                assert_eq!((channel, landed.to_vec()), (opened[at], vec![7; BYTES]));
                came = true;
            });
            assert!(other.is_none() && begun.elapsed() < PATIENCE, "{other:?}");
            far.turn(64, |_, _| ());
        }
    };
    assert!([0, 1].iter().all(|at| near.post(opened[*at], BYTES, 4) == Ok(4)));
    say(1);
    say(0);
    let begun = Instant::now();
    let held = loop {
        near.turn(64, |_, _| ());
        let mut core = near.shared.lock();
        let held = opened.iter().position(|channel| core.net.memory.get(*channel).unwrap().held);
        if let Some(held) = held {
            core.lanes.as_mut().unwrap().placing().unwrap().refuse_to_wait();
            core.give_up(PLACING, &std::io::Error::other("a test"));
            assert!(!core.lanes.as_ref().unwrap().places && core.lanes.as_ref().unwrap().turnover().0 == 1);
            break held;
        }
        assert!(begun.elapsed() < PATIENCE, "no payload is expected");
    };
    let mut over = None;
    while over.is_none() {
        over = near.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "it does not end");
    }
    assert!(matches!(over.as_deref(), Some(Happened::Closed(channel, ..)) if *channel == opened[held]), "{over:?}");
    for _ in 0..10 {
        say(1 - held);
    }
    let said = near.offers().into_iter().find(|offer| offer.adapter == Adapter::Xdp).and_then(|offer| offer.copies);
    assert!(said.as_ref().is_some_and(|said| said.contains("membarrier")), "{said:?}");
    let begun = Instant::now();
    while near.shared.lock().lanes.as_ref().unwrap().turnover().1 == 0 {
        assert!(begun.elapsed() < PATIENCE, "it is not opened again");
        std::thread::sleep(Duration::from_millis(10));
    }
    say(1 - held);
    // The other channel is over for one of them alone, which would wait for it when it goes.
    [&near, &far].into_iter().for_each(|end| end.shared.lock().config.silence = Duration::ZERO);
}

/// A look that ends at an empty socket has taken in all that had come, also where something had: what comes later has
/// lain nowhere for longer than since then.
#[test]
fn a_look_that_leaves_nothing_has_taken_in_all_that_had_come() {
    let (near, far, channel) = pair();
    let mut core = near.shared.lock();
    while core.turn(None) {}
    core.net.send(channel, b"to be acknowledged", None).unwrap();
    core.transmit(clock::now(), true);
    let begun = Instant::now();
    let look = loop {
        far.shared.lock().last_turn();
        let look = core.take_in_frames(None);
        if look.any {
            break look;
        }
        assert!(begun.elapsed() < PATIENCE, "no acknowledgement");
    };
    assert!(look.all, "an acknowledgement tells the application of nothing");
}

/// What a message behind the one that asks has got comes back only after that: to wait for it is to wait for ever.
#[test]
fn nobody_waits_for_pages_of_who_is_behind_it() {
    let config = Config { landing_bytes: 8 * 4096, ..Config::default() };
    let [near, far] = [config.clone(), config].map(|config| at(Ipv4Addr::LOCALHOST, config));
    far.listen().unwrap();
    let channel = near.call(far.local(), None, PATIENCE).unwrap();
    let token = near.grant(channel, Landing::Pages(5 * 4096)).unwrap();
    let stores = &mut near.shared.lock().net.memory;
    let named = Want { bytes: 5 * 4096, token: Some(token), pages: true };
    let Placing::Here(five) = stores.place(channel, &named, std::iter::empty()) else { panic!("a good token") };
    let four = Want { bytes: 4 * 4096, token: None, pages: true };
    assert!(matches!(stores.place(channel, &four, std::iter::empty()), Placing::Later), "it is before this one");
    assert!(matches!(stores.place(channel, &four, std::iter::once(&five)), Placing::Reader), "it is behind it");
    let three = Want { bytes: 3 * 4096, ..four };
    assert!(matches!(stores.place(channel, &three, std::iter::once(&five)), Placing::Here(_)));
}

/// A device that computes no check sums, or a way through IPsec, takes single frames only.
#[test]
fn what_fills_several_frames_arrives_where_the_system_takes_no_trains() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, far, channel) = across(&wire, Ways::Udp);
    near.shared.lock().socket.refuse_trains();
    let payload: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    carry(&near, &far, channel, &payload);
    let troubles = near.tally().1;
    assert!(troubles.divided_trains > 0, "as trains: {troubles:?}");
}
