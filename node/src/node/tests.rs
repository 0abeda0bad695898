//! Two nodes on loopback, from inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough_engine::count::Counter;
use cutthrough_seal::{Keys, PrivateKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::fcntl_dupfd_cloexec;

use super::calls::Stage;
use super::{ConnectError, Node, WaitError};
use crate::config::Config;
use crate::incoming::{Channel, Event};
use crate::shm::link::CloseReason;
use crate::shm::meanwhile::Alone;
use crate::shm::rendezvous::{self, Listener};
use crate::shm::send::{Cargo, Load};
use crate::udp::calls::UdpCallError;

/// Nobody who waits for so long means well.
const PATIENCE: Duration = Duration::from_secs(20);

fn open() -> Node {
    let config = Config { insecure: true, silence: Duration::from_secs(3600), ..Config::default() };
    let mut node = Node::open(config).unwrap();
    node.listen("udp:127.0.0.1:0").unwrap();
    node
}

/// Two nodes with a channel, as each of them knows it, over UDP.
fn pair() -> ((Node, Channel), (Node, Channel)) {
    let (mut a, mut b) = (open(), open());
    let address = format!("udp:{}", b.net_address().unwrap());
    let at_a = a.connect(&address, PATIENCE).unwrap();
    let Ok(Event::Opened(at_b)) = b.wait(Some(PATIENCE)) else { panic!("no caller") };
    ((a, at_a), (b, at_b))
}

fn say(node: &Node, channel: Channel) {
    let (net, index) = node.wire(channel).unwrap();
    let cargo = Cargo { load: Load::None, token: None, cookie: None };
    net.send(index, b"a word", cargo, (&mut Alone, &node.stat)).unwrap();
    net.flush();
}

/// Polls until this node may sleep, and has seen afterwards that there is nothing.
fn rest(node: &mut Node) {
    let begun = Instant::now();
    while !node.arm() {
        assert!(node.poll().is_none() && begun.elapsed() < PATIENCE);
    }
    assert!((0..200).all(|_| node.poll().is_none()));
}

/// Housekeeping hears of the network what nothing says again: who has heard it and not looked does not sleep.
#[test]
fn who_has_heard_of_the_network_looks_before_it_sleeps() {
    let ((mut a, _), (b, at_b)) = pair();
    for round in 0..100 {
        rest(&mut a);
        say(&b, at_b);
        a.keep_house();
        assert!(!a.arm(), "round {round}");
        let told = a.wait(Some(PATIENCE));
        assert!(matches!(told, Ok(Event::Message(_))), "{told:?}");
    }
}

/// Whether the kernel has told whoever sleeps on this node of anything since it was heard last.
fn is_told(node: &Node) -> bool {
    poll(&mut [PollFd::new(&node, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

/// To tell costs the sender of a datagram a quarter of a microsecond.
#[test]
fn nobody_is_told_of_what_the_application_finds_by_itself() {
    let ((mut a, _), (b, at_b)) = pair();
    for round in 0..3 {
        rest(&mut a);
        for number in 0..64 {
            say(&b, at_b);
            let told = is_told(&a);
            assert!(if number == 0 { told } else { !told || number < 32 }, "round {round}, message {number}: {told}");
            let told = a.wait(Some(PATIENCE));
            assert!(matches!(told, Ok(Event::Message(_))), "{told:?}");
            // What was told before that is heard.
            a.hear(0).unwrap();
        }
        rest(&mut a);
        say(&b, at_b);
        assert!(is_told(&a), "round {round}, asleep");
        assert!(matches!(a.wait(Some(PATIENCE)), Ok(Event::Message(_))));
    }
}

/// What channels have of the network side is not exchanged under them.
#[test]
fn who_has_channels_over_a_network_listens_nowhere_else() {
    let ((mut a, at_a), (mut b, at_b)) = pair();
    let here = a.net_address().unwrap();
    // Any port is the one it has.
    a.listen("udp:127.0.0.1:0").unwrap();
    assert_eq!(a.net_address(), Some(here));
    let refused = a.listen("udp:127.0.0.2:0").unwrap_err().to_string();
    assert!(refused.contains(&here.to_string()) && refused.contains("open another one"), "{refused}");
    a.keep_house();
    say(&a, at_a);
    assert!(matches!(b.wait(Some(PATIENCE)), Ok(Event::Message(_))));
    say(&b, at_b);
    assert!(matches!(a.wait(Some(PATIENCE)), Ok(Event::Message(_))));
    // Who has none any more may go elsewhere.
    a.close(at_a);
    let begun = Instant::now();
    while let Err(error) = a.listen("udp:127.0.0.2:0") {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        while a.poll().is_some() {}
    }
    let there = a.net_address();
    assert_ne!(there, Some(here));
    a.keep_house();
    // Where it cannot be had, it stays where it is.
    let taken = b.net_address().unwrap();
    a.listen(&format!("udp:{taken}")).expect_err("somebody else's");
    assert_eq!(a.net_address(), there);
    b.connect(&format!("udp:{}", there.unwrap()), PATIENCE).unwrap();
}

/// A completion that is told late is not told of who has got the number of its channel.
#[test]
fn what_is_completed_on_a_closed_channel_is_told_of_nobody_else() {
    let ((mut a, at_a), (mut b, _)) = pair();
    let others = [open(), open()];
    let (net, index) = a.wire(at_a).unwrap();
    let cargo = Cargo { load: Load::Copy(b"some bytes"), token: None, cookie: Some(7) };
    net.send(index, b"with a cookie", cargo, (&mut Alone, &a.stat)).unwrap();
    a.close(at_a);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = b.poll();
            }
        });
        let call = |to: &Node, a: &mut Node| {
            let address = format!("udp:{}", to.net_address().unwrap());
            a.connect(&address, PATIENCE).unwrap()
        };
        // The number is free once the other side has heard of the close.
        let reused = (0..20).any(|round| {
            let channel = call(&others[round % 2], &mut a);
            a.wire(channel).unwrap().1 == index
        });
        over.store(true, Ordering::Relaxed);
        assert!(reused, "nobody has got its number");
    });
    for _ in 0..1000 {
        let event = a.poll();
        assert!(!matches!(event, Some(Event::Completed(_))), "{event:?}");
    }
}

/// Channels that come and go leave nothing behind in an endpoint that only polls.
#[test]
fn channels_that_have_gone_are_not_remembered() {
    let small =
        || Config { slots: 16, staging_bytes: 64 << 10, pool_bytes: 4096, landing_bytes: 4096, ..Config::default() };
    let address = format!("shm:/tmp/cutthrough-node-tests-{}.sock", std::process::id());
    let (mut a, mut b) = (Node::open(small()).unwrap(), Node::open(small()).unwrap());
    b.listen(&address).unwrap();
    for _ in 0..40 {
        let connecting = a.begin_connect(&address, PATIENCE).unwrap();
        let (mut called, begun) = (None, Instant::now());
        loop {
            match a.poll() {
                Some(Event::Connected(of, channel)) if of == connecting => a.close(channel.unwrap()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match b.poll() {
                Some(Event::Opened(channel)) => called = Some(channel),
                Some(Event::Closed(of, reason)) => {
                    assert_eq!((Some(of), reason), (called, CloseReason::Peer));
                    break;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }
    assert_eq!((a.awake.len(), b.awake.len()), (0, 0));
}

/// Nothing wakes this node, or it would go back to sleep again and again.
fn sleeps_soundly(node: &mut Node, what: &str) {
    let before = node.stat.value(Counter::Sleeps);
    let told = node.wait(Some(Duration::from_millis(200)));
    assert!(matches!(told, Err(WaitError::TimedOut)), "{what}: {told:?}");
    let sleeps = node.stat.value(Counter::Sleeps) - before;
    assert!(sleeps < 50, "{what}: {sleeps} sleeps");
}

/// The kernel watches a file until nobody has it any more, and a child that was forked has all of them, too.
#[test]
fn what_is_over_wakes_nobody_though_a_child_has_its_files() {
    let address = |what| format!("shm:/tmp/cutthrough-node-tests-{what}-{}.sock", std::process::id());
    let mut a = Node::open(Config::default()).unwrap();
    let mute = Listener::open(&address("mute")).unwrap();
    a.begin_connect(&address("mute"), Duration::from_millis(50)).unwrap();
    let Stage::Said { socket, .. } = &a.calls[0].stage else { panic!("it has not called") };
    let of_child = [fcntl_dupfd_cloexec(socket, 0).unwrap(), fcntl_dupfd_cloexec(&a.calls[0].timer, 0).unwrap()];
    assert!(matches!(a.wait(Some(PATIENCE)), Ok(Event::Connected(_, Err(_)))));
    sleeps_soundly(&mut a, "a call that was not answered");
    drop((of_child, mute));

    let mut b = Node::open(Config::default()).unwrap();
    b.listen(&address("left")).unwrap();
    let path = rendezvous::socket_path(&address("left")).unwrap();
    for round in 0..2 {
        let caller = rendezvous::reach(&path).unwrap();
        while b.callers.is_empty() {
            b.keep_house();
        }
        let of_child = fcntl_dupfd_cloexec(&b.callers[0].socket, 0).unwrap();
        if round == 0 {
            b.callers[0].since = cutthrough_engine::time::Instant::default();
            b.keep_house();
            sleeps_soundly(&mut b, "a caller who has said nothing for long");
        } else {
            let listener = fcntl_dupfd_cloexec(b.listener.as_ref().unwrap().socket(), 0).unwrap();
            b.stop_listening();
            sleeps_soundly(&mut b, "a caller, and a name, of who listens no more");
            drop(listener);
        }
        drop((caller, of_child));
    }
}

/// Who sleeps elsewhere than in a call of ours kept a caller who said nothing for as long as it slept, and had no place
/// for others.
#[test]
fn who_says_nothing_is_forgotten_also_by_who_sleeps_elsewhere() {
    let address = format!("shm:/tmp/cutthrough-node-tests-silent-{}.sock", std::process::id());
    let mut node = Node::open(Config::default()).unwrap();
    node.listen(&address).unwrap();
    let callers = [(); 2].map(|()| rendezvous::reach(&rendezvous::socket_path(&address).unwrap()).unwrap());
    while node.callers.len() < 2 {
        assert!(node.poll().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    loop {
        assert!(node.poll().is_none());
        if node.callers.is_empty() {
            break;
        }
        if node.arm() {
            let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
            let woken = poll(&mut [PollFd::new(&node, PollFlags::IN)], Some(&limit));
            assert_eq!(woken, Ok(1), "nothing ends its sleep");
        }
    }
    drop(callers);
}

/// The name of one peer is looked after once, however many channels to it have ended.
#[test]
fn a_name_is_looked_after_once() {
    let small =
        || Config { slots: 16, staging_bytes: 64 << 10, pool_bytes: 4096, landing_bytes: 4096, ..Config::default() };
    let address = format!("shm:/tmp/cutthrough-node-tests-once-{}.sock", std::process::id());
    let (mut a, mut b) = (Node::open(small()).unwrap(), Node::open(small()).unwrap());
    b.listen(&address).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = b.wait(Some(Duration::from_millis(10)));
            }
        });
        let channels: Vec<Channel> = (0..30).map(|_| a.connect(&address, PATIENCE).unwrap()).collect();
        channels.into_iter().for_each(|channel| a.close(channel));
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(a.orphans.len(), 1);
}

/// Whoever lets go of many peers that live looks at the name of each, and not each time at all of them.
#[test]
fn the_names_of_many_peers_are_looked_at_one_by_one() {
    const PEERS: usize = 60;
    let small =
        || Config { slots: 16, staging_bytes: 64 << 10, pool_bytes: 4096, landing_bytes: 4096, ..Config::default() };
    let folder = std::env::temp_dir().join(format!("cutthrough-node-tests-many-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let address = |peer: usize| format!("shm:{}/{peer}.sock", folder.display());
    let mut a = Node::open(small()).unwrap();
    let mut peers: Vec<Node> = (0..PEERS).map(|_| Node::open(small()).unwrap()).collect();
    (0..).zip(&mut peers).for_each(|(peer, node)| node.listen(&address(peer)).unwrap());
    let over = AtomicBool::new(false);
    let opened = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peers.iter_mut().for_each(|node| drop(node.poll()));
            }
        });
        let channels: Vec<Channel> = (0..PEERS).map(|peer| a.connect(&address(peer), PATIENCE).unwrap()).collect();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, &folder, inotify::WatchFlags::OPEN).unwrap();
        channels.into_iter().for_each(|channel| a.close(channel));
        over.store(true, Ordering::Relaxed);
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut space);
        std::iter::from_fn(|| events.next().ok().map(drop)).count()
    });
    assert_eq!(a.orphans.len(), PEERS);
    drop(peers);
    std::fs::remove_dir(&folder).unwrap();
    // Somebody else may look at the temporary folder, too.
    assert!((PEERS..5 * PEERS).contains(&opened), "{opened} looks at the locks of {PEERS} names");
}

/// Whose socket was removed by somebody else, as those do who clear temporary folders, can listen there again.
#[test]
fn a_name_that_was_removed_is_taken_again_by_whoever_has_it() {
    let path = std::env::temp_dir().join(format!("cutthrough-node-tests-again-{}.sock", std::process::id()));
    let address = format!("shm:{}", path.display());
    let (mut a, mut b) = (open(), open());
    b.listen(&address).unwrap();
    std::fs::remove_file(&path).unwrap();
    b.listen(&address).unwrap();
    let connecting = a.begin_connect(&address, PATIENCE).unwrap();
    let begun = Instant::now();
    loop {
        let _ = b.poll();
        if let Some(Event::Connected(of, channel)) = a.poll() {
            assert!(of == connecting && channel.is_ok());
            break;
        }
        assert!(begun.elapsed() < PATIENCE);
    }
    drop(b);
    assert!(!path.exists(), "it stays behind");
}

/// A row of the counters tells of its own channel, and of none before it.
#[test]
fn a_row_forgets_the_channel_before() {
    use crate::stat::Cell;
    let address = format!("shm:/tmp/cutthrough-node-tests-row-{}.sock", std::process::id());
    let (mut a, mut b) = (open(), open());
    b.listen(&address).unwrap();
    let net = format!("udp:{}", b.net_address().unwrap());
    let connecting = a.begin_connect(&address, PATIENCE).unwrap();
    let begun = Instant::now();
    let channel = loop {
        let _ = b.poll();
        if let Some(Event::Connected(of, channel)) = a.poll() {
            assert_eq!(of, connecting);
            break channel.unwrap();
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    let (link, stat) = a.link(channel).unwrap();
    let page = link.page(4096, stat).unwrap();
    a.keep_house();
    let shown = |a: &Node| {
        let watches = crate::stat::find().unwrap().into_iter();
        let mut all =
            watches.filter_map(|(_, path)| crate::stat::Watch::open(&path).ok()).map(|watch| watch.snapshot());
        let mine = all.find(|all| all.generation == a.generation).expect("its own counters");
        mine.rows.iter().find(|row| row.channel == channel.index as usize).unwrap().cells[Cell::Lent as usize]
    };
    assert_eq!(shown(&a), 1);
    a.close(channel);
    drop(page);
    let over = AtomicBool::new(false);
    let again = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = b.poll();
            }
        });
        let again = a.connect(&net, PATIENCE).unwrap();
        over.store(true, Ordering::Relaxed);
        again
    });
    assert_eq!(again.index, channel.index);
    a.keep_house();
    assert_eq!(shown(&a), 0, "pages of the channel before");
}

/// Calls that fail in one look give their numbers to those that wait for them to be over: each hears of its own.
#[test]
fn calls_that_fail_together_are_taken_for_no_others() {
    let [ours, theirs] = [1, 2].map(|number| PrivateKey::from_bytes([number; 32]));
    let stranger = PrivateKey::from_bytes([3; 32]).public();
    let [our_key, their_key] = [ours.public(), theirs.public()];
    let [mut near, mut far] = [(ours, vec![their_key, stranger]), (theirs, vec![our_key])].map(|(own, peers)| {
        let keys = Some(Arc::new(Keys::Static { own, peers }));
        Node::open(Config { keys, silence: Duration::from_secs(3600), ..Config::default() }).unwrap()
    });
    far.listen("udp:127.0.0.1:0").unwrap();
    let address = far.net_address().unwrap();
    // Nobody answers to the first ones who has that key, and as many others have to wait for their end.
    let mut call =
        |key| (0..16).map(|_| near.begin_connect(&format!("udp:{address}#{key}"), PATIENCE).unwrap()).collect();
    let [failing, good]: [Vec<_>; 2] = [stranger, their_key].map(&mut call);
    let listens_for = |far: &mut Node, time| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            assert!(far.poll().is_none_or(|event| matches!(event, Event::Opened(_))));
        }
    };
    // All of them are answered before anybody looks.
    listens_for(&mut far, Duration::from_millis(100));
    let (begun, mut opened, mut failed) = (Instant::now(), Vec::new(), Vec::new());
    while opened.len() + failed.len() < 32 {
        for connecting in failing.iter().chain(&good) {
            match near.look_for(*connecting) {
                Some(Ok(_)) => opened.push(*connecting),
                Some(Err(ConnectError::Net(UdpCallError::Key))) => failed.push(*connecting),
                Some(Err(other)) => panic!("{other}"),
                None => {}
            }
        }
        listens_for(&mut far, Duration::from_millis(1));
        assert!(begun.elapsed() < PATIENCE, "{} opened, {} failed", opened.len(), failed.len());
    }
    assert!(opened.iter().all(|call| good.contains(call)), "one is told of another one's channel");
    assert_eq!((opened.len(), failed.len()), (16, 16));
}
