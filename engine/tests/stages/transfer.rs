//! Transfers between two engines: bounded buffers, hostile numbers, and what is recorded.

use std::num::NonZeroU64;

use crate::model::{Mover, PLATFORM, World};
use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Role, Stage};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;
use cutthrough_engine::transfer::{Step, Trace, Transfer};
use cutthrough_engine::tune::Tuner;
use proptest::prelude::*;

const TICK_NS: u64 = 100;

/// Checks that the pulses of each stage follow each other without gap or overlap, in bytes and in time.
#[derive(Default)]
struct Gapless {
    moved: [u64; 4],
    end: [Instant; 4],
    pulses: [u32; 4],
}

impl Trace for Gapless {
    fn pulse(&mut self, stage: Stage, offset: u64, len: u64, start: Instant, end: Instant) {
        let stage = stage.index();
        assert_eq!(offset, self.moved[stage]);
        assert!(self.end[stage] <= start && start <= end);
        self.moved[stage] += len;
        self.end[stage] = end;
        self.pulses[stage] += 1;
    }
}

/// A sender that drives the first two stages, a receiver that drives the other two, each with a rule of its own.
fn between_two_engines(movers: [Mover; 4], len: u64, policies: [Policy; 2], trace: &mut impl Trace) -> [Transfer; 2] {
    let mut world = World::new(movers, 1);
    let mut sides = policies.map(|policy| Transfer::new(len, policy));
    let mut tuners: [[Tuner; 4]; 2] = Default::default();
    let mut now = Instant::default();
    loop {
        let sender = sides[0].poll(now, &mut world.port(0, 0..2), &mut tuners[0], trace);
        let receiver = sides[1].poll(now, &mut world.port(0, 2..4), &mut tuners[1], trace);
        match [sender, receiver] {
            [Step::Done, Step::Done] => return sides,
            [Step::Moving, _] | [_, Step::Moving] => now = now.after(TICK_NS),
            stuck => panic!("{stuck:?}: {sides:?} in {world:?}"),
        }
    }
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let size = (1..20_000u64).prop_map(NonZeroU64::new);
    prop_oneof![
        Just(Policy::StoreAndForward),
        Just(Policy::default()),
        size.clone().prop_map(|size| Policy::Fixed(size.unwrap())),
        size.prop_map(|minpulse| Policy::Adaptive { minpulse }),
    ]
}

fn any_mover() -> impl Strategy<Value = Mover> {
    let capability =
        (any::<bool>(), proptest::option::of(1..5000u64), 0..8u8).prop_map(|(progress, pulse_max, one_in)| {
            let role = if one_in == 0 { Role::Absent } else { Role::Driven };
            Capability { role, progress, pulse_max }
        });
    let capacity = prop_oneof![1..100u64, 1000..10_000u64, Just(u64::MAX)];
    (0..3_000_000u64, 10..20_000u64, capacity, capability).prop_map(|(setup_ps, byte_ps, capacity, capability)| Mover {
        setup_ps,
        byte_ps,
        capacity,
        visible: capability.progress,
        capability,
    })
}

proptest! {
    /// Whatever the rules of the two sides, the rates, and the buffers: everything arrives, and nothing gets stuck.
    #[test]
    fn every_message_arrives(
        movers in proptest::array::uniform4(any_mover()),
        policies in proptest::array::uniform2(any_policy()),
        len in prop_oneof![0..2000u64, 0..30_000u64],
    ) {
        let mut trace = Gapless::default();
        let sides = between_two_engines(movers, len, policies, &mut trace);
        for stage in Stage::ALL {
            let driver = &sides[stage.index() / 2];
            let times = driver.times()[stage.index()];
            if movers[stage.index()].capability.role == Role::Driven {
                prop_assert_eq!(times.bytes, len);
                prop_assert_eq!(times.pulses, trace.pulses[stage.index()]);
                prop_assert_eq!(times.first_start.is_some(), len > 0);
                prop_assert!(times.first_start <= times.last_end);
            } else {
                prop_assert_eq!(times.pulses, 0);
            }
        }
    }
}

/// A message longer than the buffers goes through them in large pieces, not in the crumbs by which room appears.
#[test]
fn long_messages_do_not_crumble() {
    let movers = PLATFORM.map(|mover| Mover { capacity: 16 << 10, ..mover });
    for policy in [Policy::StoreAndForward, Policy::Fixed(NonZeroU64::new(8 << 10).unwrap())] {
        let [sender, receiver] = between_two_engines(movers, 256 << 10, [policy; 2], &mut ());
        assert!(sender.pulses() + receiver.pulses() <= 4 * 32, "{policy}: {sender:?} {receiver:?}");
    }
}

/// A message that just fits into the buffers is stored before it is forwarded, if that is the rule.
#[test]
fn a_message_as_long_as_its_buffer_is_stored_whole() {
    let len = 16 << 10;
    let movers = PLATFORM.map(|mover| Mover { capacity: len, ..mover });
    let sides = between_two_engines(movers, len, [Policy::StoreAndForward; 2], &mut ());
    assert_eq!(sides.map(|side| side.pulses()), [2, 2]);
}

/// A receiver whose sender says what it likes: one stage observed, one driven.
struct Alleged {
    says: u64,
    drained: u64,
    report_every: u64,
}

impl Adapter for Alleged {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter => Capability::OBSERVED,
            Stage::AdapterToHost => Capability::DRIVEN,
            Stage::AdapterToLink | Stage::LinkToAdapter => Capability::ABSENT,
        }
    }

    fn idle(&mut self, _now: Instant, _stage: Stage) -> bool {
        true
    }

    fn moved(&mut self, _now: Instant, stage: Stage) -> u64 {
        if stage == Stage::HostToAdapter { self.says } else { self.drained }
    }

    fn room(&mut self, _now: Instant, _stage: Stage) -> u64 {
        u64::MAX
    }

    fn start(&mut self, _now: Instant, _stage: Stage, pulse: Pulse) {
        self.drained += pulse.len;
        self.report_every = pulse.report_every;
    }
}

/// What a receiver of `len` bytes makes of a sender that alleges `says`, one poll after the other.
fn hear(len: u64, says: &[u64]) -> Vec<Step> {
    let mut adapter = Alleged { says: 0, drained: 0, report_every: 0 };
    let mut transfer = Transfer::new(len, Policy::Adaptive { minpulse: NonZeroU64::new(256) });
    let mut tuners = Default::default();
    let mut poll = |&says| {
        adapter.says = says;
        transfer.poll(Instant::default(), &mut adapter, &mut tuners, &mut ())
    };
    says.iter().map(&mut poll).collect()
}

#[test]
fn honest_progress_is_followed() {
    let steps = hear(1000, &[0, 255, 256, 256, 1000, 1000]);
    assert_eq!(steps, [Step::Waiting, Step::Waiting, Step::Moving, Step::Waiting, Step::Moving, Step::Done]);
}

#[test]
fn impossible_progress_is_a_named_result() {
    let lie = Step::Misreported { stage: Stage::HostToAdapter };
    assert_eq!(hear(1000, &[1001]), [lie]);
    assert_eq!(hear(0, &[1]), [lie]);
    assert_eq!(hear(u64::MAX - 1, &[u64::MAX]), [lie]);
    assert_eq!(hear(1000, &[600, 599]), [Step::Moving, lie]);
    assert_eq!(hear(1000, &[1000, 1000, 0]), [Step::Moving, Step::Done, lie]);
}

proptest! {
    #[test]
    fn no_allegation_breaks_the_engine(len: u64, says in proptest::collection::vec(any::<u64>(), 1..8)) {
        let steps = hear(len, &says);
        let mut most = 0;
        for (step, said) in steps.into_iter().zip(says) {
            let honest = (most..=len).contains(&said);
            prop_assert_eq!(!honest, matches!(step, Step::Misreported { .. }));
            if !honest {
                break;
            }
            most = said;
        }
    }
}

#[test]
fn a_sink_cannot_be_ahead_of_its_source() {
    let mut adapter = Alleged { says: 10, drained: 0, report_every: 0 };
    let mut transfer = Transfer::new(1000, Policy::default());
    adapter.drained = 1;
    let step = transfer.poll(Instant::default(), &mut adapter, &mut Default::default(), &mut ());
    assert_eq!(step, Step::Misreported { stage: Stage::AdapterToHost });
}

#[test]
fn progress_is_reported_as_often_as_downstream_asks() {
    let report_every = |policy, downstream| {
        let mut adapter = Alleged { says: 4096, drained: 0, report_every: 0 };
        let mut transfer = Transfer::new(4096, policy);
        transfer.set_downstream_minpulse(downstream);
        transfer.poll(Instant::default(), &mut adapter, &mut Default::default(), &mut ());
        adapter.report_every
    };
    let adaptive = Policy::Adaptive { minpulse: NonZeroU64::new(512) };
    assert_eq!(report_every(Policy::StoreAndForward, Some(300)), 4096);
    assert_eq!(report_every(Policy::Fixed(NonZeroU64::new(1408).unwrap()), Some(300)), 1408);
    assert_eq!(report_every(adaptive, None), 512);
    assert_eq!(report_every(adaptive, Some(300)), 300);
    assert_eq!(report_every(adaptive, Some(0)), 1);
    assert_eq!(report_every(adaptive, Some(1 << 40)), 4096);
}

#[test]
fn nothing_is_learnt_from_a_transfer_that_is_not_timed() {
    let learns = |timed| {
        let mut adapter = Alleged { says: 4096, drained: 0, report_every: 0 };
        let mut transfer = Transfer::new(4096, Policy::default());
        transfer.set_timed(timed);
        let mut tuners: [Tuner; Stage::COUNT] = Default::default();
        let before = tuners[3].bytes_per_us();
        for now in [0, 100] {
            transfer.poll(Instant::from_nanos(now), &mut adapter, &mut tuners, &mut ());
        }
        assert_eq!((transfer.pulses(), transfer.is_timed()), (1, timed));
        tuners[3].bytes_per_us() != before
    };
    assert!(learns(true) && !learns(false));
}
