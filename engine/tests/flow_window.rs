//! The window at work: senders that share one slow link, in a model of it. All parts of `flow` take part.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cutthrough_engine::flow::rtt::Rtt;
use cutthrough_engine::flow::seen::{Ack, Seen};
use cutthrough_engine::flow::sent::{Acked, Sent};
use cutthrough_engine::flow::window::Window;
use cutthrough_engine::time::Instant;

/// Bytes of every frame.
const FRAME: u32 = 1500;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// A link with a queue in front.
#[derive(Clone, Copy)]
struct Link {
    /// Bits a second.
    rate: u64,
    /// Round trip without a queue, ns.
    base: u64,
    /// Longest queue, in ns; what comes then is dropped.
    queue: u64,
    /// Frames in 10,000 that are lost at random.
    loss: u64,
    /// Frames in 10,000 that take longer than others, by how many ns.
    late: (u64, u64),
    /// By how many ns the way's delay varies: all that arrives within a while is as late, and nothing is overtaken.
    varies: u64,
    /// Every so often a sender stops for up to so many ns. While it does it neither sends nor reads.
    stop: u64,
}

/// A link of `rate` bits a second and `base` ns there and back, that loses nothing and never stops.
fn link(rate: u64, base: u64) -> Link {
    Link { rate, base, queue: 20 * MILLISECOND, loss: 0, late: (0, 0), varies: 0, stop: 0 }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A frame arrives: its number, and what its sender waits for.
    Arrive(u64, u64),
    /// An acknowledgement arrives: what the header says, and ranges.
    Answer(u64, u64, Vec<(u64, u64)>),
    /// A timer has run out.
    Wake,
}

struct Sender {
    window: Window,
    rtt: Rtt,
    sent: Sent<()>,
    /// The other side's.
    seen: Seen,
    next: u64,
    starts: u64,
    /// When pacing lets the next frame out.
    paced: u64,
    wakes: u64,
    backoff: u32,
    stopped: u64,
    next_stop: u64,
    delivered: u64,
}

struct Model {
    link: Link,
    senders: Vec<Sender>,
    events: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    made: u64,
    free: u64,
    /// How late the way is, until when, and when the last frame arrives there.
    late: (u64, u64),
    arrives: u64,
    random: u64,
    /// After this, deliveries and queues are counted.
    warm: u64,
    queues: Vec<u64>,
    dropped: usize,
}

/// What a run has shown.
struct Outcome {
    /// Share of the link that each sender had.
    shares: Vec<f64>,
    /// Queue in ns: median and 99th percentile of what frames found.
    queue: (u64, u64),
    spurious: u64,
    /// Frames that reached the queue, and that it had no room for.
    queued: usize,
    dropped: usize,
}

impl Outcome {
    fn total(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// The fairness index of Jain, Chiu and Hawe (1984): 1 if all shares are equal.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.shares.iter().map(|share| share * share).sum();
        self.total().powi(2) / (self.shares.len() as f64 * squares)
    }
}

/// Runs senders that begin at the times `starts`, until `end`, and counts from `warm` on. Times in ns.
fn run(link: Link, starts: &[u64], warm: u64, end: u64) -> Outcome {
    let senders = starts.iter().map(|&starts| Sender {
        window: Window::new(FRAME),
        rtt: Rtt::default(),
        sent: Sent::default(),
        seen: Seen::default(),
        next: 0,
        starts,
        paced: starts,
        wakes: u64::MAX,
        backoff: 0,
        stopped: 0,
        next_stop: starts + 3 * MILLISECOND,
        delivered: 0,
    });
    let mut model = Model {
        link,
        senders: senders.collect(),
        events: BinaryHeap::new(),
        made: 0,
        free: 0,
        late: (0, 0),
        arrives: 0,
        random: 0x9e37_79b9_7f4a_7c15,
        warm,
        queues: Vec::new(),
        dropped: 0,
    };
    for (who, &start) in starts.iter().enumerate() {
        model.at(start, who, Event::Wake);
    }
    while let Some(Reverse((now, _, who, event))) = model.events.pop() {
        if now >= end {
            break;
        }
        model.happen(now, who, event);
    }
    model.queues.sort_unstable();
    let at = |share: usize| model.queues.get(model.queues.len() * share / 100).copied().unwrap_or(0);
    let capacity = link.rate as f64 / 8e9 * (end - warm) as f64;
    Outcome {
        shares: model.senders.iter().map(|sender| sender.delivered as f64 / capacity).collect(),
        queue: (at(50), at(99)),
        queued: model.queues.len() + model.dropped,
        dropped: model.dropped,
        spurious: model.senders.iter().map(|sender| sender.sent.spurious()).sum(),
    }
}

impl Model {
    fn at(&mut self, when: u64, who: usize, event: Event) {
        self.made += 1;
        self.events.push(Reverse((when, self.made, who, event)));
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn happen(&mut self, now: u64, who: usize, event: Event) {
        if let Event::Arrive(number, oldest) = event {
            let sender = &mut self.senders[who];
            sender.seen.forget_below(oldest);
            if sender.seen.insert(number) && now >= self.warm {
                sender.delivered += u64::from(FRAME);
            }
            let Ack { below, bits } = sender.seen.ack();
            let ranges = sender.seen.ranges(16).collect();
            return self.at(now + self.link.base / 2, who, Event::Answer(below, bits, ranges));
        }
        if self.link.stop > 0 && now >= self.senders[who].next_stop {
            let (long, until) = (self.draw(self.link.stop), self.draw(2 * self.link.stop));
            self.senders[who].stopped = now + long;
            self.senders[who].next_stop = now + long + until;
        }
        if now < self.senders[who].stopped {
            return self.at(self.senders[who].stopped, who, event);
        }
        let time = Instant::from_nanos(now);
        let sender = &mut self.senders[who];
        match event {
            Event::Answer(below, bits, ranges) => sender.answered(time, below, bits, &ranges),
            _ if now >= sender.wakes => sender.wakes = u64::MAX,
            _ => {}
        }
        sender.time_out(time);
        self.send(now, who);
        let sender = &mut self.senders[who];
        let timer = sender.sent.timer(&sender.rtt, sender.backoff).map_or(u64::MAX, Instant::as_nanos);
        let paced =
            if sender.window.room(sender.sent.in_flight()) < u64::from(FRAME) { u64::MAX } else { sender.paced };
        let wake = timer.min(paced).max(now + 1);
        if wake < sender.wakes {
            sender.wakes = wake;
            self.at(wake, who, Event::Wake);
        }
    }

    fn send(&mut self, now: u64, who: usize) {
        loop {
            let sender = &mut self.senders[who];
            let room = sender.window.room(sender.sent.in_flight());
            if now < sender.starts.max(sender.paced) || room < u64::from(FRAME) {
                return;
            }
            let pace = sender.window.pace(sender.rtt.smoothed());
            sender.paced = sender.paced.max(now.saturating_sub(10 * MICROSECOND)) + pace * u64::from(FRAME) / 1024;
            let number = sender.next;
            sender.next += 1;
            sender.sent.push(number, Instant::from_nanos(now), FRAME, ());
            let oldest = sender.sent.oldest().unwrap_or(number);
            let queue = self.free.saturating_sub(now);
            if queue > self.link.queue {
                self.dropped += usize::from(now >= self.warm);
                continue;
            }
            if now >= self.warm {
                self.queues.push(queue);
            }
            self.free = self.free.max(now) + u64::from(FRAME) * 8_000_000_000 / self.link.rate;
            if self.draw(10_000) >= self.link.loss {
                let (often, late) = self.link.late;
                let late = if often > 0 && self.draw(10_000) < often { late } else { 0 };
                let mut arrives = self.free + self.link.base / 2 + late;
                if self.link.varies > 0 {
                    if now >= self.late.1 {
                        self.late = (self.draw(self.link.varies), now + self.draw(self.link.base));
                    }
                    arrives = self.arrives.max(arrives + self.late.0);
                    self.arrives = arrives;
                }
                self.at(arrives, who, Event::Arrive(number, oldest));
            }
        }
    }
}

impl Sender {
    fn answered(&mut self, now: Instant, below: u64, bits: u64, ranges: &[(u64, u64)]) {
        let low = u32::try_from(below).expect("a short run");
        let ack = Ack::from_wire(low, bits, self.next).expect("an honest receiver");
        let end = self.next;
        self.took(now, |sent| sent.acked(ack, end, drop));
        for &(first, end) in ranges {
            self.took(now, |sent| sent.acked_range(first, end, drop));
        }
    }

    fn took(&mut self, now: Instant, take: impl FnOnce(&mut Sent<()>) -> Acked) {
        let acked = take(&mut self.sent);
        self.window.found(acked.late_bytes);
        self.sent.bear(now, &acked, &self.rtt);
        let Some((_, sent)) = acked.newest else { return };
        let round = now.saturating_since(sent);
        self.backoff = 0;
        self.rtt.sample(now, round, 0, 0);
        self.window.acked(now, acked.bytes, (round, round), self.rtt.least(), self.sent.in_flight() + acked.bytes);
    }

    fn time_out(&mut self, now: Instant) {
        let lost = self.sent.lost(now, &self.rtt, |(), _| ());
        if lost > 0 {
            self.window.lost(now, lost);
        }
        if self.sent.probe((now, now), &self.rtt, self.backoff, |(), _| ()) {
            self.backoff += 1;
            if self.backoff > 2 {
                self.window.silent();
            }
        }
    }
}

/// Links from a slow one to a fast one: bits a second, round trip in ns, and how long to run in ns.
const LINKS: [(u64, u64, u64); 5] = [
    (10_000_000_000, 10 * MICROSECOND, 300 * MILLISECOND),
    (10_000_000_000, 50 * MICROSECOND, 300 * MILLISECOND),
    (1_000_000_000, 200 * MICROSECOND, 2_000 * MILLISECOND),
    (100_000_000, 1_000 * MICROSECOND, 4_000 * MILLISECOND),
    (1_000_000_000, 5_000 * MICROSECOND, 4_000 * MILLISECOND),
];

/// Runs `check` with each of the links, and says which it was.
fn each_link(mut check: impl FnMut(Link, u64, &str)) {
    for (rate, base, end) in LINKS {
        check(link(rate, base), end, &format!("{} Mb/s, {} us", rate / 1_000_000, base / MICROSECOND));
    }
}

/// The longest queue that is meant to stand, in ns: the target, and four frames of each sender.
fn standing(link: Link, senders: u64) -> u64 {
    (250 * MICROSECOND).max(link.base / 4) + senders * 4 * u64::from(FRAME) * 8_000_000_000 / link.rate
}

#[test]
fn one_sender_fills_a_link_and_its_queue_stays_short() {
    each_link(|link, end, name| {
        let outcome = run(link, &[0], end / 4, end);
        assert!(outcome.total() >= 0.9, "{name}: {:.3} of the link", outcome.total());
        let (median, most) = outcome.queue;
        let target = standing(link, 1);
        assert!(median <= target && most <= target * 3 / 2, "{name}: queue of {median} to {most} ns, target {target}");
    });
}

#[test]
fn two_senders_share_a_link() {
    each_link(|link, end, name| {
        for late in [0, end / 3] {
            let outcome = run(link, &[0, late], end * 2 / 3, end * 2);
            let (median, most) = outcome.queue;
            let target = standing(link, 2);
            assert!(outcome.total() >= 0.9, "{name}, second at {late}: {:.3} of the link", outcome.total());
            assert!(outcome.fairness() >= 0.8, "{name}, second at {late}: shares {:.3?}", outcome.shares);
            assert!(median <= target && most <= target * 2, "{name}, second at {late}: queue of {median} to {most} ns");
        }
    });
}

#[test]
fn one_frame_in_a_hundred_lost_costs_little() {
    each_link(|link, end, name| {
        let outcome = run(Link { loss: 100, ..link }, &[0], end / 4, end);
        assert!(outcome.total() >= 0.85, "{name}: {:.3} of the link", outcome.total());
        assert!(outcome.spurious <= 4, "{name}: {} frames given up for nothing", outcome.spurious);
    });
}

#[test]
fn frames_that_are_overtaken_cost_little() {
    each_link(|link, end, name| {
        for late in [link.base / 2, link.base] {
            let outcome = run(Link { late: (500, late), ..link }, &[0], end / 4, end);
            assert!(outcome.total() >= 0.85, "{name}, {late} ns late: {:.3} of the link", outcome.total());
        }
    });
}

/// A way whose delay varies by more than it lasts, as radio does, or a cloud, is no way with a queue.
#[test]
fn a_delay_that_varies_is_no_queue() {
    each_link(|link, end, name| {
        for varies in [link.base / 2, link.base, 4 * link.base] {
            let (link, end) = (Link { varies, ..link }, 4 * end);
            let outcome = run(link, &[0], end / 2, end);
            assert!(outcome.total() >= 0.6, "{name}, varies by {varies} ns: {:.3} of the link", outcome.total());
            let (median, _) = outcome.queue;
            let target = standing(link, 1) + 2 * varies;
            assert!(median <= target, "{name}, varies by {varies} ns: queue of {median} ns, target {target}");
        }
    });
}

#[test]
fn a_machine_that_stops_is_not_congestion() {
    // It stops for 2 ms of 6 ms on average, and so can fill two thirds of the link. A window that took a stop for a
    // queue would be halved by each.
    each_link(|link, end, name| {
        let outcome = run(Link { stop: 4 * MILLISECOND, ..link }, &[0], end / 4, end);
        assert!(outcome.total() >= 0.6, "{name}: {:.3} of the link", outcome.total());
    });
}

#[test]
fn a_queue_that_overflows_early_is_heeded() {
    for (rate, base) in [(10_000, 50), (1_000, 200), (100, 1_000)] {
        let ten_frames = 10 * u64::from(FRAME) * 8_000 / rate;
        let queue = ten_frames.max(100 * MICROSECOND);
        let short = Link { queue, ..link(rate * 1_000_000, base * MICROSECOND) };
        let outcome = run(short, &[0, 0], 300 * MILLISECOND, 2_000 * MILLISECOND);
        assert!(outcome.total() >= 0.8, "{rate} Mb/s: {:.3} of the link", outcome.total());
        let lost = outcome.dropped as f64 / outcome.queued as f64;
        assert!(lost < 0.08, "{rate} Mb/s: {lost:.3} of the frames dropped");
    }
}

/// A window that a sender has filled from the beginning for `rounds` rounds of `delay` ns, of which `least` is the way.
fn filled(rounds: u64, delay: u64, least: u64) -> (Window, u64) {
    let mut window = Window::new(FRAME);
    let mut now = 0;
    for _ in 0..rounds {
        now = round(&mut window, now, delay, least);
    }
    (window, now)
}

/// One window's worth of frames goes out at `now` and is acknowledged, spread over `delay` ns. Returns when.
fn round(window: &mut Window, now: u64, delay: u64, least: u64) -> u64 {
    let frames = window.bytes() / u64::from(FRAME);
    for frame in 1..=frames {
        let at = Instant::from_nanos(now + delay + delay * frame / frames);
        window.acked(at, FRAME.into(), (delay, delay), least, window.bytes());
    }
    now + 2 * delay
}

#[test]
fn the_window_doubles_and_has_bounds() {
    let (window, _) = filled(0, 0, 0);
    assert_eq!(window.bytes(), 64 << 10);
    assert_eq!(Window::new(8_000).bytes(), 80_000);
    let (window, _) = filled(3, 50_000, 50_000);
    assert!((400 << 10..=512 << 10).contains(&window.bytes()), "{} bytes", window.bytes());
    let (window, _) = filled(20, 50_000, 50_000);
    assert_eq!(window.bytes(), 16 << 20);
    let (mut window, mut now) = filled(3, 50_000, 50_000);
    for _ in 0..200 {
        now = round(&mut window, now, 100_000_000, 50_000);
    }
    assert!((4..=8).contains(&(window.bytes() / u64::from(FRAME))), "{} bytes", window.bytes());
}

#[test]
fn what_does_not_fill_the_window_does_not_grow_it() {
    let mut window = Window::new(FRAME);
    for turn in 0..10_000 {
        window.acked(Instant::from_nanos(turn * 50_000), 64, (50_000, 50_000), 50_000, 0);
    }
    assert_eq!(window.bytes(), 64 << 10);
    assert_eq!(window.room(60 << 10), 4 << 10);
    assert_eq!(window.room(u64::MAX), 0);
}

#[test]
fn one_frame_that_was_not_late_clears_the_round() {
    let (mut window, mut now) = filled(3, 50_000, 50_000);
    let before = window.bytes();
    for _ in 0..20 {
        window.acked(Instant::from_nanos(now), FRAME.into(), (60_000, 60_000), 50_000, before);
        for _ in 0..before / u64::from(FRAME) {
            window.acked(Instant::from_nanos(now + 5_000_000), FRAME.into(), (5_000_000, 5_000_000), 50_000, before);
        }
        now += 10_000_000;
    }
    assert!(window.bytes() >= before);
}

#[test]
fn what_comes_late_all_at_once_is_no_queue() {
    let (mut window, mut now) = filled(3, 50_000, 50_000);
    for _ in 0..20 {
        let before = window.bytes();
        now += 5_000_000;
        for _ in 0..=2 * before / u64::from(FRAME) {
            window.acked(Instant::from_nanos(now), FRAME.into(), (5_000_000, 5_000_000), 50_000, before);
        }
        now = round(&mut window, now, 50_000, 50_000);
        assert!(window.bytes() >= before, "{} bytes, and {before} before", window.bytes());
    }
}

#[test]
fn a_frame_lost_now_and_then_does_not_shrink_the_window_but_many_do() {
    // One frame each 5 us, and of every `of` one is lost.
    let after = |of: u64| {
        let mut window = Window::new(FRAME);
        for turn in 0..2_000 {
            let now = Instant::from_nanos(turn * 5_000);
            if turn % of == of / 2 {
                window.lost(now, FRAME.into());
            } else {
                window.acked(now, FRAME.into(), (50_000, 50_000), 50_000, 0);
            }
        }
        window.bytes()
    };
    let begin = Window::new(FRAME).bytes();
    assert_eq!(after(100), begin);
    assert_eq!(after(60), begin);
    assert!(after(10) <= begin / 8, "{} bytes", after(10));
}

#[test]
fn silence_takes_the_window_back_to_the_beginning_and_on() {
    let (mut window, now) = filled(6, 50_000, 50_000);
    window.silent();
    assert_eq!(window.bytes(), 64 << 10);
    window.silent();
    assert_eq!(window.bytes(), 32 << 10);
    (0..20).for_each(|_| window.silent());
    assert_eq!(window.bytes(), 4 * u64::from(FRAME));
    let least = window.bytes();
    round(&mut window, now, 50_000, 50_000);
    assert!(window.bytes() >= 2 * least, "it doubles again");
}

/// Frames that are overtaken seem to be lost for a while.
/// What was in flight then is lost, and the way that is there again has not lost it.
#[test]
fn what_the_silence_has_lost_does_not_end_the_doubling() {
    let least = 100 * MICROSECOND;
    let (mut window, mut now) = filled(8, least, least);
    let before = window.bytes();
    window.silent();
    let begin = window.bytes();
    assert!(before > 8 * begin, "{before} bytes");
    window.lost(Instant::from_nanos(now), before / 2);
    for _ in 0..3 {
        now = round(&mut window, now, least, least);
    }
    assert!(window.bytes() >= 6 * begin, "{} bytes", window.bytes());
    // What is lost afterwards counts.
    window.lost(Instant::from_nanos(now), before / 2);
    round(&mut window, now, least, least);
    assert!(window.bytes() < 6 * begin, "{} bytes", window.bytes());
}

#[test]
fn on_a_long_way_it_begins_with_ten_frames() {
    let begin = |round| {
        let mut window = Window::new(FRAME);
        window.expects(round);
        let begin = window.bytes();
        (0..4).for_each(|_| window.silent());
        assert_eq!(window.bytes(), (begin >> 4).max(4 * u64::from(FRAME)));
        begin
    };
    assert_eq!((begin(MILLISECOND), begin(MILLISECOND + 1)), (64 << 10, 15_000));
}

#[test]
fn losses_that_were_none_do_not_shrink_the_window() {
    for frames in [50, 700] {
        let mut window = Window::new(FRAME);
        let full = frames * u64::from(FRAME);
        let mut now = 0;
        while window.bytes() < full {
            now = round(&mut window, now, 50_000, 50_000);
        }
        let (before, mut late) = (window.bytes(), 0);
        for _ in 0..50 {
            window.found(late);
            late = window.bytes() / 20;
            window.lost(Instant::from_nanos(now), late);
            now = round(&mut window, now, 50_000, 50_000);
            assert!(window.bytes() >= before / 2, "{} of {before} bytes", window.bytes());
        }
        window.found(late);
        assert!(window.bytes() >= before, "{} of {before} bytes", window.bytes());
        // What does not come is lost.
        let before = window.bytes();
        for _ in 0..20 {
            window.lost(Instant::from_nanos(now), window.bytes() / 20);
            now = round(&mut window, now, 50_000, 50_000);
        }
        assert!(window.bytes() < before / 2, "{} of {before} bytes", window.bytes());
    }
}

#[test]
fn frames_are_spread_over_most_of_a_round_trip() {
    let (window, now) = filled(6, 50_000, 50_000);
    assert_eq!(window.pace(20_000), 0, "too short to spread");
    assert_eq!(Window::new(FRAME).pace(500_000), 0, "goes out at once");
    let spread = |window: &Window, round: u64| window.pace(round) * (window.bytes() >> 10);
    let half = spread(&window, 10_000_000);
    assert!((4_000_000..=5_000_000).contains(&half), "{half} ns");
    let mut window = window;
    let now = (0..3).fold(now, |now, _| round(&mut window, now, 5_000_000, 50_000));
    (0..3).fold(now, |now, _| round(&mut window, now, 50_000, 50_000));
    let most = spread(&window, 10_000_000);
    assert!((7_000_000..=8_000_000).contains(&most), "{most} ns");
}

#[test]
fn no_number_breaks_it() {
    let all = [0, 1, 1 << 20, u64::MAX / 2, u64::MAX];
    for frame in [0, 1, 1500, u32::MAX] {
        let mut window = Window::new(frame);
        for (&a, &b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            window.acked(Instant::from_nanos(a), b, (a, a), b, a);
            window.lost(Instant::from_nanos(b), a);
            window.fit(a, b);
            window.acked(Instant::from_nanos(b), a, (b, b), a, b);
            assert!(window.bytes() >= 4 * u64::from(frame.max(1)));
            let _ = (window.room(a), window.pace(b));
        }
        window.silent();
    }
}
