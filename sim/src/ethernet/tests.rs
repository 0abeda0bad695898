//! The machine as a whole: nothing is lost, nothing is made up, nothing does two things at once.

use proptest::prelude::*;

use super::built_in;
use super::frame::PAGE;
use super::parts::Parts;
use super::receiver::Control;
use super::run::{Measured, Streams, fetches, shared_memory, streams};
use super::stack::Method;
use crate::platform::Platform;
use crate::time::{Rate, Span};

fn pentium() -> Parts {
    built_in("gige-pentium2")
}

fn alpha() -> Parts {
    let (name, text) = super::PLATFORMS[1];
    Parts::of_fetches(&Platform::parse(text, name).unwrap()).unwrap()
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(Method::ALL.to_vec())
}

/// What every run keeps to.
fn keeps_the_rules(run: &Measured, bytes: u64) {
    assert_eq!(run.bytes, bytes, "every byte is read once");
    assert!(run.first <= run.last && run.placed <= run.page_frames);
    for stage in &run.stages {
        let on = stage.last_us - stage.first_us;
        assert!(stage.busy_us <= on * 1.000_001 + 0.001, "{} did two things at once: {stage:?}", stage.stage);
        assert!(stage.first_us >= 0.0 && stage.pulses > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_whoever_sends_to_whom(
        sender in method(),
        receiver in method(),
        admission: bool,
        register: bool,
        payload in prop_oneof![1u64..6000, 1u64..100_000],
        count in 1u64..12,
        senders in 1u32..6,
        pause_us in prop_oneof![Just(0u64), 0u64..3000],
        ring in 3usize..64,
        fifo in 1514u64..20_000,
        port in 1514u64..20_000,
        window in 16_384u64..65_536,
        varies: bool,
        seed: u64,
    ) {
        let parts = Parts { ring, fifo, port, window, ..pentium() };
        let control = Control { admission, register };
        let pause = Span::from_ns(1000 * pause_us);
        let what = Streams { sender, receiver, control, payload, count, senders, pause, varies, seed };
        let run = streams(&parts, &what);
        keeps_the_rules(&run, payload * count * u64::from(senders));
        let again = streams(&parts, &what);
        prop_assert_eq!((run.last, run.placed, run.events), (again.last, again.placed, again.events));
    }

    #[test]
    fn pages_of_any_size_are_fetched(payload in 1u64..60_000, count in 1u64..9, donors in 1u32..5) {
        let run = fetches(&alpha(), Method::Standard, payload, count, donors);
        keeps_the_rules(&run, payload * count * u64::from(donors));
    }
}

#[test]
fn a_lone_frame_costs_what_the_parts_say() {
    let parts = pentium();
    let run = streams(&parts, &Streams { payload: 1000, count: 1, ..Streams::new(Method::Standard, Method::Standard) });
    let (frame, wire) = (1054, 1078);
    let bus = parts.setup + parts.bus.span(frame);
    let send = parts.call + parts.copy(1000, false) + parts.stack + parts.driver;
    let across = bus + parts.link.span(wire) + parts.switch + parts.link.span(wire) + bus;
    // The acknowledgement of the last segment goes out before the process is woken.
    let acknowledge = parts.stack + parts.driver;
    let receive = parts.interrupt + parts.driver + parts.stack + acknowledge;
    let read = parts.wake + parts.call + parts.copy(1000, false);
    assert_eq!(run.first, send + across + receive + read);
}

#[test]
fn a_switch_that_does_not_wait_saves_a_frame_s_time() {
    let parts = pentium();
    let once = |parts: &Parts| {
        streams(parts, &Streams { payload: 1000, count: 1, ..Streams::new(Method::Standard, Method::Standard) }).first
    };
    let through = Parts { header: Some(64), ..pentium() };
    assert_eq!(once(&parts) - once(&through), parts.link.span(1078) - parts.link.span(64));
}

#[test]
fn without_copies_the_adapter_is_the_limit() {
    let parts = pentium();
    let run = streams(&parts, &Streams::new(Method::Fbufs, Method::Fbufs));
    let page = parts.setup * 6 + parts.bus.span(1514) * 2 + parts.bus.span(1190);
    let bound = PAGE as f64 / page.as_s() / 1e6;
    assert!(run.mb_per_s() <= bound && run.mb_per_s() > 0.99 * bound, "{} of {bound} MB/s", run.mb_per_s());
}

#[test]
fn faster_parts_never_make_a_stream_slower() {
    let speed = |change: fn(&mut Parts)| {
        let mut parts = pentium();
        change(&mut parts);
        Method::ALL.map(|method| streams(&parts, &Streams { count: 50, ..Streams::new(method, method) }).mb_per_s())
    };
    let faster: [fn(&mut Parts); 5] = [
        |parts| parts.interrupt = Span::ZERO,
        |parts| parts.remap = Span::ZERO,
        |parts| parts.setup = Span::ZERO,
        |parts| parts.link = Rate::from_bytes_per_s(1 << 50).unwrap(),
        |parts| {
            (parts.interrupt, parts.stack, parts.driver, parts.copying) = (Span::ZERO, Span::ZERO, Span::ZERO, None);
        },
    ];
    let as_it_is = speed(|_| ());
    for (number, change) in faster.into_iter().enumerate() {
        for (fast, slow) in speed(change).into_iter().zip(as_it_is) {
            assert!(fast >= slow * 0.99, "change {number}: {fast} after {slow}");
        }
    }
}

#[test]
fn the_parts_of_the_host_s_overhead_stand_in_the_paper_s_order() {
    let run = streams(&pentium(), &Streams::new(Method::Standard, Method::Standard));
    let parts: Vec<Span> = (0..4).map(|part| run.spent.part(part)).collect();
    assert!(parts.windows(2).all(|pair| pair[0] > pair[1]), "{parts:?}");
}

#[test]
fn estimates_of_rings_and_fifos_do_not_matter_to_streams() {
    let speed = |parts: &Parts| Method::ALL.map(|method| streams(parts, &Streams::new(method, method)).mb_per_s());
    let as_it_is = speed(&pentium());
    for (ring, fifo, port) in [(12, 4096, 8192), (96, 65_536, 1 << 20)] {
        for (other, as_it_is) in speed(&Parts { ring, fifo, port, ..pentium() }).into_iter().zip(as_it_is) {
            assert!((other / as_it_is - 1.0).abs() < 0.02, "{other} instead of {as_it_is} MB/s");
        }
    }
}

#[test]
fn one_sender_at_a_time_is_guessed_right() {
    let parts = pentium();
    for senders in [1, 2, 5] {
        for register in [false, true] {
            let control = Control { admission: true, register };
            let what = Streams { control, senders, count: 30, ..Streams::new(Method::Fbufs, Method::Fbufs) };
            let run = streams(&parts, &what);
            assert!(run.success_pct() > 99.5, "{senders} senders, register {register}: {}", run.success_pct());
            assert!(!register || run.placed == run.page_frames, "no other frame can spoil a guess");
        }
        let what = Streams { senders, count: 30, ..Streams::new(Method::Fbufs, Method::Fbufs) };
        let free = streams(&parts, &what).success_pct();
        assert!(if senders == 1 { free > 99.9 } else { free < 50.0 }, "{senders} senders: {free}");
    }
}

#[test]
fn work_between_pages_makes_guesses_come_true() {
    let success = |us: u64| shared_memory(&pentium(), Method::Fbufs, Span::from_ns(1000 * us), 100, 7).success_pct();
    assert!(success(100) < success(1000) && success(1000) < success(30_000));
    assert!(success(30_000) > 99.5);
}

#[test]
fn a_thousand_hosts_send_to_one() {
    let what = |senders| Streams { payload: 8192, count: 4, senders, ..Streams::new(Method::Fbufs, Method::Fbufs) };
    let few = streams(&pentium(), &what(32));
    let many = streams(&pentium(), &what(1024));
    assert_eq!(many.bytes, 1024 * 4 * 8192);
    let per_byte = |run: &Measured| run.events as f64 / run.bytes as f64;
    assert!(per_byte(&many) < 1.5 * per_byte(&few), "events do not grow faster than what is sent");
}
