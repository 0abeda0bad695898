//! What does not happen: system calls, locks and allocations on the path of a 64-byte message, or of a request and its
//! reply, work in an idle endpoint.
//!
//! Counts, never timings. Most tests look at this whole process, so they run one at a time.

mod allocations;
mod crowd;
#[cfg(target_arch = "x86_64")]
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod steps;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::am::{self, Args, Node, Settings};
use cutthrough::{Channel, Config, Counter, Endpoint, Event, Path as Way, WaitError};
use cutthrough_conform::join::connect;
use cutthrough_sim::fault::crowd::Crowd;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Only one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Round trips that are counted.
const ROUND_TRIPS: u64 = 10_000;
/// Looks for one message at most, on average, where the peer waits for this core to send it.
const LOOKS: u64 = 100;

/// Two joined endpoints with default settings.
fn pair() -> [(Endpoint, Channel); 2] {
    let address = format!("shm:cutthrough-quiet-{}", std::process::id());
    let mut a = Endpoint::open(Config::default()).expect("an endpoint");
    let mut b = Endpoint::open(Config::default()).expect("an endpoint");
    b.listen(&address).expect("a free name");
    let (at_a, at_b) = connect(&mut a, &mut b, &address);
    [(a, at_a), (b, at_b)]
}

/// Two endpoints joined over UDP on loopback, each with an attendant.
fn pair_over_udp() -> [(Endpoint, Channel); 2] {
    let config = || Config { insecure: true, ..Config::default() };
    let mut a = Endpoint::open(config()).expect("an endpoint");
    let mut b = Endpoint::open(config()).expect("an endpoint");
    b.listen("udp:127.0.0.1:0").expect("a free port");
    let address = format!("udp:{}", b.net_address().expect("its address"));
    let (at_a, at_b) = connect(&mut a, &mut b, &address);
    [(a, at_a), (b, at_b)]
}

/// A 64-byte message from one endpoint to the other, both polled by this thread.
fn pass(from: &mut (Endpoint, Channel), to: &mut (Endpoint, Channel), number: u64) {
    let mut control = [0; 64];
    control[..8].copy_from_slice(&number.to_le_bytes());
    from.0.send(from.1, &control).expect("room");
    loop {
        if let Some(Event::Message(message)) = to.0.poll() {
            assert_eq!(message.control(), control);
            return;
        }
    }
}

/// Two joined nodes with default settings, and the channel of the second one; the first one has a handler that answers
/// with what it gets.
fn nodes() -> (Node, Node, Channel) {
    let address = format!("shm:cutthrough-quiet-am-{}", std::process::id());
    let mut far = Node::new(Endpoint::open(Config::default()).expect("an endpoint"), Settings::default());
    far.short(1, Args::Words(4), |request| {
        let words = [request.word(0), request.word(1), request.word(2), request.word(3)];
        request.reply(&words);
    });
    far.listen(&address).expect("a free name");
    let mut node = Node::new(Endpoint::open(Config::default()).expect("an endpoint"), Settings::default());
    let channel = thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect(&address, Duration::from_secs(20)).expect("a channel"));
        assert!(matches!(far.wait(Some(Duration::from_secs(20))), Ok(am::Event::Opened(_))));
        connecting.join().expect("the other thread")
    });
    (far, node, channel)
}

/// A short request and its reply, both nodes polled by this thread.
fn ask(far: &mut Node, node: &mut Node, channel: Channel, number: u32) {
    node.request(channel, 1, &[number, 2, 3, 4]).expect("room");
    loop {
        assert!(far.poll().is_none());
        if let Some(event) = node.poll() {
            assert!(matches!(event, am::Event::Replied(reply) if reply.word(0) == number));
            return;
        }
    }
}

/// Times at which these endpoints did something beside the path: looked after peers, or let others run.
fn asides(pair: &[(Endpoint, Channel); 2]) -> u64 {
    pair.iter().map(|side| asides_of(&side.0)).sum()
}

fn asides_of(endpoint: &Endpoint) -> u64 {
    endpoint.counter(Counter::Housekeeping) + endpoint.counter(Counter::Yields)
}

#[test]
fn a_control_message_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [mut a, mut b] = pair();
    let counted = allocations::count(|| {
        for number in 0..ROUND_TRIPS {
            pass(&mut a, &mut b, number);
            pass(&mut b, &mut a, number);
        }
    });
    assert_eq!(counted, 0, "allocations in {ROUND_TRIPS} round trips");
    assert_eq!(allocations::count(|| drop(std::hint::black_box(Box::new(ROUND_TRIPS)))), 1, "the counter counts");
}

/// What a payload needs was there before: its pages, and the memory that it goes about with.
#[test]
fn a_payload_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for way in [Way::CutThrough, Way::Reference, Way::Put] {
        let [mut a, mut b] = pair();
        if way == Way::Put {
            for (endpoint, channel) in [&mut a, &mut b] {
                assert_eq!(endpoint.post(*channel, 4096, 32), Ok(32));
            }
        }
        let payload = [7; 512];
        let pass = |from: &mut (Endpoint, Channel), to: &mut (Endpoint, Channel)| {
            let (endpoint, channel) = from;
            let sent = if way == Way::Reference {
                let page = endpoint.page(*channel, payload.len()).expect("a page");
                endpoint.outgoing(*channel).expect("room").attach(page).send()
            } else {
                endpoint.outgoing(*channel).expect("room").attach_copy(&payload).send()
            };
            assert_eq!(sent.expect("sent").path, way);
            loop {
                if let Some(Event::Message(mut message)) = to.0.poll() {
                    if way == Way::CutThrough {
                        let mut into = [0; 512];
                        to.0.read(&mut message, &mut into).expect("bytes");
                        assert_eq!(into, payload);
                    }
                    return to.0.release(message);
                }
            }
        };
        let mut round_trips = |rounds| {
            for _ in 0..rounds {
                pass(&mut a, &mut b);
                pass(&mut b, &mut a);
            }
        };
        // The tables of what is lent grow until all pages of the pool are.
        round_trips(ROUND_TRIPS);
        let counted = allocations::count(|| round_trips(ROUND_TRIPS));
        assert_eq!(counted, 0, "allocations in {ROUND_TRIPS} round trips, {way}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_control_message_makes_no_system_call() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pair = pair();
    let before = asides(&pair);
    let mut number = 0;
    let counted = dispatch::count(ROUND_TRIPS, || {
        let [a, b] = &mut pair;
        pass(a, b, number);
        pass(b, a, number);
        number += 1;
    });
    let Some(counted) = counted else {
        return cutthrough_conform::skipped("this kernel cannot dispatch system calls to users");
    };
    let asides = asides(&pair) - before;
    assert!(counted <= asides, "{counted} round trips with system calls, and only {asides} reasons for one");
    assert!(asides < ROUND_TRIPS / 10, "{asides} times beside the path");
    let ours = dispatch::count(3, || {
        let _ = rustix::process::getppid();
    });
    assert_eq!(ours, Some(3), "the counter counts");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_control_message_takes_no_lock() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(traced) = steps::trace() else { return cutthrough_conform::skipped("no process can be traced here") };
    for (name, rounds) in [("sent", &traced.send), ("received", &traced.receive)] {
        assert!(!rounds.is_empty());
        for steps in rounds {
            assert_eq!(steps.locked, 0, "{name} with locked instructions: {steps:?}");
        }
        let fewest = rounds.iter().map(|steps| steps.instructions).min().unwrap_or(0);
        assert!(fewest > 10, "{fewest} instructions cannot be all");
        eprintln!("a message of 64 bytes is {name} with {fewest} instructions, none of them locked");
    }
    assert!(traced.lock.iter().all(|steps| steps.locked >= 2), "the counter counts: {:?}", traced.lock);
}

/// The kernel is asked for nothing between the sleep and the message that has ended it. On a busy machine some messages
/// are there before who waits for them sleeps, or something else wakes it first.
#[test]
#[cfg(target_arch = "x86_64")]
fn who_is_woken_makes_no_system_call_before_it_has_its_message() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(traced) = steps::trace() else { return cutthrough_conform::skipped("no process can be traced here") };
    let sleeps = |call: &steps::Call| {
        let waits = libc::c_long::try_from(call.number) == Ok(libc::SYS_epoll_pwait);
        waits && call.fourth & u64::from(u32::MAX) == u64::from(u32::MAX)
    };
    let woken = traced.sleep.iter().filter(|calls| calls.last().is_some_and(sleeps)).count();
    assert!(woken > 0, "something came after every sleep: {:?}", traced.sleep);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_request_and_its_reply_make_no_system_call() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut far, mut node, channel) = nodes();
    (0..100).for_each(|number| ask(&mut far, &mut node, channel, number));
    let asides = |far: &Node, node: &Node| asides_of(far.endpoint()) + asides_of(node.endpoint());
    let (before, mut number) = (asides(&far, &node), 0);
    let counted = dispatch::count(ROUND_TRIPS, || {
        ask(&mut far, &mut node, channel, number);
        number += 1;
    });
    let Some(counted) = counted else {
        return cutthrough_conform::skipped("this kernel cannot dispatch system calls to users");
    };
    let asides = asides(&far, &node) - before;
    assert!(counted <= asides, "{counted} requests with system calls, and only {asides} reasons for one");
    assert!(asides < ROUND_TRIPS / 10, "{asides} times beside the path");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_request_and_its_reply_take_no_lock() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(traced) = steps::trace() else { return cutthrough_conform::skipped("no process can be traced here") };
    for (name, rounds) in [("made", &traced.ask), ("served", &traced.serve), ("answered", &traced.take)] {
        assert!(!rounds.is_empty());
        for steps in rounds {
            assert_eq!(steps.locked, 0, "{name} with locked instructions: {steps:?}");
        }
        let fewest = rounds.iter().map(|steps| steps.instructions).min().unwrap_or(0);
        assert!(fewest > 10, "{fewest} instructions cannot be all");
        eprintln!("a request of four words is {name} with {fewest} instructions, none of them locked");
    }
}

/// Has its part in the tests above, in a process of its own.
#[test]
#[cfg(target_arch = "x86_64")]
fn stepped() {
    steps::play();
}

/// Those who wait, all at the same time: each looks at threads of its own alone.
#[test]
fn who_waits_does_hardly_anything() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let waits = [
            an_idle_endpoint_uses_no_processor,
            an_endpoint_at_which_nobody_looks_hardly_wakes,
            who_looks_after_a_sleeper_sleeps,
        ];
        waits.into_iter().for_each(|waits| drop(scope.spawn(waits)));
    });
}

fn an_idle_endpoint_uses_no_processor() {
    const WAITED: Duration = Duration::from_secs(5);
    let [mut a, _b] = pair();
    let (before, woken) = (clock_gettime(ClockId::ThreadCPUTime), woken("/proc/thread-self/status"));
    assert!(matches!(a.0.wait(Some(WAITED)), Err(WaitError::TimedOut)));
    let (after, woken) = (clock_gettime(ClockId::ThreadCPUTime), self::woken("/proc/thread-self/status") - woken);
    // It looks for a moment, sleeps, and is woken by the end of its time.
    assert!(woken <= 3, "woken {woken} times");
    assert!(a.0.counter(Counter::Sleeps) <= 3, "{} sleeps", a.0.counter(Counter::Sleeps));
    // Who never sleeps is not woken either: that would be all of the time. A busy host adds to the moment.
    let used = Duration::try_from(after).expect("a time") - Duration::try_from(before).expect("a time");
    assert!(used < WAITED / 100, "{used:?} of processor time in {WAITED:?} of waiting");
}

/// What looks after a network endpoint while nobody else does.
fn an_endpoint_at_which_nobody_looks_hardly_wakes() {
    let ([(mut a, at_a), (mut b, _)], attendants) = attended();
    thread::sleep(Duration::from_millis(200));
    let before = wakes(&attendants);
    thread::sleep(Duration::from_secs(3));
    let woken = wakes(&attendants) - before;
    assert!(before > 0, "nobody looks after them");
    assert!(woken < 2 * 3 * 60, "two attendants woke {woken} times in 3 s");
    eprintln!("two attendants woke {woken} times in 3 s");
    // They have kept the channel.
    a.send(at_a, b"still here").expect("room");
    let message = loop {
        if let Some(Event::Message(message)) = b.poll() {
            break message;
        }
    };
    assert_eq!(message.control(), b"still here");
}

/// Beside an application that waits for long its attendant sleeps too, and is there again when that returns.
fn who_looks_after_a_sleeper_sleeps() {
    let ([(mut a, _), (mut b, _)], attendants) = attended();
    let asleep = Duration::from_secs(4);
    thread::scope(|scope| {
        for endpoint in [&mut a, &mut b] {
            scope.spawn(move || assert!(matches!(endpoint.wait(Some(asleep)), Err(WaitError::TimedOut))));
        }
        thread::sleep(asleep / 2);
        let before = wakes(&attendants);
        thread::sleep(asleep / 4);
        assert!(before > 0, "nobody looks after them");
        let woken = wakes(&attendants) - before;
        // Twenty times each, while it is looked whether they are still there.
        assert!(woken < 5, "woken {woken} times to look after who waits");
    });
    // Longer than a silent peer lives: somebody answers for it.
    thread::sleep(2 * Config::default().silence);
    assert!(b.poll().is_none() && a.poll().is_none());
    assert_eq!((a.channels().count(), b.channels().count()), (1, 1), "one was taken for dead");
}

/// Who polls all the time has its core for itself: a look at it every 5 ms would take the core for as long as a message
/// takes. It is looked after again once it polls no more.
#[test]
fn who_polls_is_not_looked_after() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ([(mut a, at_a), (mut b, _)], attendants) = attended();
    let polls = Duration::from_millis(200);
    let woken = |_| {
        let (begun, before) = (Instant::now(), wakes(&attendants));
        let had = clock_gettime(ClockId::ThreadCPUTime);
        while begun.elapsed() < polls {
            assert!(a.poll().is_none() && b.poll().is_none());
        }
        let (woken, had) = (wakes(&attendants) - before, clock_gettime(ClockId::ThreadCPUTime) - had);
        // Where others have this core for a while, nobody polls meanwhile.
        let polled_all_the_time = Duration::try_from(had).is_ok_and(|had| had > polls * 97 / 100);
        polled_all_the_time.then_some(woken)
    };
    // Every 50 ms each, where they woke every 5.
    let mut least = None;
    for woken in (0..20).filter_map(woken) {
        least = Some(least.map_or(woken, |least: u64| least.min(woken)));
        if woken < 16 {
            break;
        }
    }
    match least {
        Some(woken) => assert!(woken < 16, "two attendants woke {woken} times in 0.2 s, beside who polls"),
        None => eprintln!("others had this core all the time: how often attendants woke says nothing"),
    }
    // What is sent then is acknowledged, and a peer that was not heard of for so long would be given up.
    a.send(at_a, b"gone to work").expect("room");
    a.flush();
    thread::sleep(2 * Config::default().silence);
    assert!(matches!(b.poll(), Some(Event::Message(_))));
    assert_eq!((a.channels().count(), b.channels().count()), (1, 1), "one was taken for dead");
}

/// Two endpoints joined over UDP, and the threads that look after them.
fn attended() -> ([(Endpoint, Channel); 2], Vec<PathBuf>) {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _one = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = attendants();
    let (pair, begun) = (pair_over_udp(), Instant::now());
    loop {
        // A thread has its name once it runs.
        let new: Vec<_> = attendants().into_iter().filter(|thread| !before.contains(thread)).collect();
        if new.len() == pair.len() {
            return (pair, new);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{} attendants of two", new.len());
        thread::sleep(Duration::from_millis(5));
    }
}

/// All threads of this process that look after network endpoints.
fn attendants() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("our threads").flatten().map(|task| task.path());
    let named =
        |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == "cutthrough-net");
    tasks.filter(named).collect()
}

/// How often these threads have waited for something.
fn wakes(threads: &[PathBuf]) -> u64 {
    threads.iter().map(|path| woken(path.join("status"))).sum()
}

/// How often a thread has waited for something, by its status in `/proc`.
fn woken(status: impl AsRef<Path>) -> u64 {
    let status = std::fs::read_to_string(status).expect("a thread's status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("a count")
}

#[test]
fn an_idle_endpoint_has_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let heap = allocations::held();
    let [mut a, b] = pair();
    assert!(matches!(a.0.wait(Some(Duration::from_millis(100))), Err(WaitError::TimedOut)));
    let heap = allocations::held() - heap;
    let shared = resident("cutthrough.");
    // Two endpoints with a channel each lie in this process.
    let each = (heap + shared) / 2;
    assert!(shared > 0, "nothing of ours is mapped");
    assert!(each <= 1 << 20, "{each} bytes: {heap} of heap and {shared} of shared memory for two");
    eprintln!("an idle endpoint with one channel: {each} bytes");
    drop((a, b));
}

/// Has its part in the test below, in a process of its own.
#[test]
fn crowd() {
    crowd::play();
}

/// What was needed while they spoke is given back when they are quiet.
fn an_idle_channel_has_little_memory(key: Option<&str>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut endpoint = Endpoint::open(crowd::config(key)).expect("an endpoint");
    endpoint.listen("udp:127.0.0.1:0").expect("a free port");
    let address = format!("udp:{}", endpoint.net_address().expect("its address"));
    let heap = allocations::held();
    let mut crowd = crowd::Crowd::call(&mut endpoint, &address, key);
    assert!(crowd.is_ready(), "the crowd has ended");
    assert_eq!(endpoint.channels().count(), crowd::PEERS);
    let (begun, peers) = (Instant::now(), i64::try_from(crowd::PEERS).expect("a few"));
    let mut each = i64::MAX;
    while each > 4096 && begun.elapsed() < crowd::SILENCE {
        assert!(matches!(endpoint.wait(Some(crowd::SILENCE / 12)), Err(WaitError::TimedOut)));
        each = (allocations::held() - heap) / peers;
    }
    eprintln!("an idle channel over a network: {each} bytes");
    assert!(each <= 4096, "{each} bytes for each of {peers} idle channels");
    assert_eq!(endpoint.channels().count(), crowd::PEERS, "nobody was taken for dead");
}

#[test]
fn an_idle_channel_over_a_network_has_little_memory() {
    an_idle_channel_has_little_memory(None);
}

#[test]
fn an_idle_sealed_channel_has_little_memory() {
    let key = format!("psk:{}", "5a".repeat(32));
    an_idle_channel_has_little_memory(Some(&key));
}

/// The same for a thousand peers, in the simulator: what goes with the endpoint is what it has kept.
#[test]
fn an_idle_channel_has_little_memory_in_the_simulator() {
    const PEERS: usize = 1000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut crowd = Crowd::new(PEERS);
    crowd.calm_down();
    assert_eq!(crowd.channels(), PEERS, "nobody was taken for dead");
    let endpoint = crowd.endpoint();
    let held = allocations::held();
    drop(endpoint);
    let each = (held - allocations::held()) / i64::try_from(PEERS).expect("a few");
    eprintln!("an idle channel in the simulator: {each} bytes");
    assert!((1000..=4096).contains(&each), "{each} bytes for each of {PEERS} idle channels");
}

/// Bytes in memory of the mappings whose name contains this.
fn resident(name: &str) -> i64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("our mappings");
    let (mut ours, mut kilobytes) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some(first) if !first.ends_with(':') => ours = line.contains(name),
            Some("Rss:") if ours => kilobytes += words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0),
            _ => {}
        }
    }
    kilobytes * 1024
}

#[test]
fn two_spinning_sides_on_one_core_make_progress() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut core = CpuSet::new();
    core.set(0);
    // By a thread of its own: this one may be that of the next test too.
    if thread::scope(|scope| scope.spawn(|| sched_setaffinity(None, &core)).join().expect("no panic")).is_err() {
        return cutthrough_conform::skipped("a thread cannot be bound to core 0");
    }
    let [mut a, mut b] = pair();
    let looks = AtomicU64::new(0);
    let spin = |side: &mut (Endpoint, Channel), first: bool| {
        sched_setaffinity(None, &core).expect("it worked before");
        for number in 0..ROUND_TRIPS {
            if first {
                side.0.send(side.1, &number.to_le_bytes()).expect("room");
            }
            loop {
                looks.fetch_add(1, Ordering::Relaxed);
                if let Some(Event::Message(message)) = side.0.poll() {
                    assert_eq!(message.control(), number.to_le_bytes());
                    break;
                }
            }
            if !first {
                side.0.send(side.1, &number.to_le_bytes()).expect("room");
            }
        }
    };
    let done = thread::scope(|scope| {
        let spin = &spin;
        let sides = [scope.spawn(move || spin(&mut a, true)), scope.spawn(move || spin(&mut b, false))];
        let begun = std::time::Instant::now();
        while !sides.iter().all(thread::ScopedJoinHandle::is_finished) {
            if begun.elapsed() > Duration::from_secs(100) {
                eprintln!("two spinning sides starve each other");
                std::process::abort();
            }
            thread::sleep(Duration::from_millis(5));
        }
        sides.into_iter().all(|side| side.join().is_ok())
    });
    assert!(done);
    let looks = looks.into_inner();
    assert!(looks < 2 * ROUND_TRIPS * LOOKS, "{looks} looks for {ROUND_TRIPS} round trips");
}
