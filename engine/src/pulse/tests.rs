//! The rule as tables, and what must hold for every number.

extern crate std;
use core::num::NonZeroU64;
use std::format;
use std::string::ToString;

use proptest::prelude::*;

use super::{Policy, PolicyError, View, least, must_drain, next_pulse, offered_room};

const WHOLE: Policy = Policy::StoreAndForward;
const MEASURED: Policy = Policy::Adaptive { minpulse: None };

fn fixed(bytes: u64) -> Policy {
    Policy::Fixed(NonZeroU64::new(bytes).unwrap())
}

fn chosen(minpulse: u64) -> Policy {
    Policy::Adaptive { minpulse: NonZeroU64::new(minpulse) }
}

/// A view of a stage; the source is done once it holds all that remains.
fn view(buffered: u64, remaining: u64, room: u64) -> View {
    View { buffered, remaining, room, source_done: buffered == remaining }
}

#[test]
fn each_policy_moves_what_its_name_says() {
    const ROOMY: u64 = u64::MAX;
    let table = [
        // policy, what the stage finds, what it moves if the measured minpulse is 256
        (WHOLE, view(8191, 8192, ROOMY), None),
        (WHOLE, view(8192, 8192, ROOMY), Some(8192)),
        (WHOLE, view(8192, 8192, 4096), Some(4096)),
        (fixed(1408), view(1407, 8192, ROOMY), None),
        (fixed(1408), view(1408, 8192, ROOMY), Some(1408)),
        (fixed(1408), view(8192, 8192, ROOMY), Some(1408)),
        (fixed(1408), view(1152, 1152, ROOMY), Some(1152)),
        (fixed(1408), view(8192, 8192, 1000), Some(1000)),
        (MEASURED, view(255, 8192, ROOMY), None),
        (MEASURED, view(256, 8192, ROOMY), Some(256)),
        (MEASURED, view(5000, 8192, ROOMY), Some(5000)),
        (MEASURED, view(8192, 8192, ROOMY), Some(8192)),
        (MEASURED, view(5000, 8192, 300), Some(300)),
        (MEASURED, view(3, 3, ROOMY), Some(3)),
        (chosen(512), view(511, 8192, ROOMY), None),
        (chosen(512), view(512, 8192, ROOMY), Some(512)),
        (chosen(512), view(511, 511, ROOMY), Some(511)),
    ];
    for (policy, view, expected) in table {
        assert_eq!(next_pulse(policy, view, 256), expected, "{policy} {view:?}");
    }
}

#[test]
fn nothing_moves_without_bytes_or_without_room() {
    for policy in [WHOLE, fixed(1), MEASURED] {
        assert_eq!(next_pulse(policy, view(0, 0, 100), 0), None);
        assert_eq!(next_pulse(policy, view(0, 100, 100), 0), None);
        assert_eq!(next_pulse(policy, view(100, 100, 0), 0), None);
    }
}

#[test]
fn a_full_source_is_drained_whatever_the_policy_waits_for() {
    let full = View { buffered: 4096, remaining: 8192, room: 8192, source_done: true };
    assert_eq!(next_pulse(WHOLE, full, 0), Some(4096));
    assert_eq!(next_pulse(fixed(5000), full, 0), Some(4096));
    assert_eq!(next_pulse(chosen(5000), full, 0), Some(4096));
}

#[test]
fn a_message_that_does_not_fit_drains_in_halves() {
    assert!(!must_drain(4095, 8192, 8193));
    assert!(must_drain(4096, 8192, 8193));
    assert!(!must_drain(8191, 8192, 8192), "it fits, so it may be waited for");
}

#[test]
fn crumbs_of_room_are_left_until_they_are_worth_a_pulse() {
    assert_eq!(offered_room(255, 7937, 256), 0);
    assert_eq!(offered_room(256, 7936, 256), 256);
    assert_eq!(offered_room(4095, 4097, u64::MAX), 0);
    assert_eq!(offered_room(4096, 4096, u64::MAX), 4096);
    assert_eq!(offered_room(10, 0, 256), 10, "an empty sink has no more room to come");
}

#[test]
fn policies_are_written_as_they_are_read() {
    let table = [
        ("store-and-forward", WHOLE, "store-and-forward"),
        ("fixed:1408", fixed(1408), "fixed:1408"),
        ("fixed:4KiB", fixed(4096), "fixed:4096"),
        ("fixed:1MiB", fixed(1 << 20), "fixed:1048576"),
        ("adaptive", MEASURED, "adaptive"),
        ("adaptive:512", chosen(512), "adaptive:512"),
        ("adaptive:1KiB", chosen(1024), "adaptive:1024"),
    ];
    for (text, policy, written) in table {
        assert_eq!(text.parse(), Ok(policy));
        assert_eq!(policy.to_string(), written);
    }
}

#[test]
fn other_texts_are_refused_with_a_reason() {
    for text in ["", "eager", "Adaptive", "adaptive ", "store-and-forward:1", "fixed1", ":", ":5"] {
        assert_eq!(text.parse::<Policy>(), Err(PolicyError::Unknown), "{text}");
    }
    let sizes =
        ["", "0", "-1", "+1", "1.5", " 1", "1 KiB", "KiB", "1kib", "1KB", "0MiB", "0x10", "99999999999999999999"];
    for size in sizes.into_iter().chain(["18446744073709551615KiB"]) {
        for text in [format!("fixed:{size}"), format!("adaptive:{size}")] {
            assert_eq!(text.parse::<Policy>(), Err(PolicyError::Size), "{text}");
        }
    }
    assert_eq!("fixed".parse::<Policy>(), Err(PolicyError::Size));
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(WHOLE), Just(MEASURED), (1..u64::MAX).prop_map(fixed), (1..u64::MAX).prop_map(chosen)]
}

/// Numbers around each other as well as far apart.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..16u64, 0..70_000u64, any::<u64>()]
}

proptest! {
    #[test]
    fn a_pulse_is_never_empty_and_never_too_long(
        policy in any_policy(),
        (buffered, remaining, room, minpulse) in (any_number(), any_number(), any_number(), any_number()),
        source_done: bool,
    ) {
        let view = View { buffered, remaining, room, source_done };
        let pulse = next_pulse(policy, view, minpulse);
        prop_assert!(pulse.is_none_or(|len| 0 < len && len <= buffered.min(room)));
        if source_done && buffered > 0 && room > 0 {
            prop_assert!(pulse.is_some(), "no message stops half-way");
        }
    }

    /// The two stages that share a buffer cannot both wait for the other, whatever each thinks worth a pulse.
    #[test]
    fn one_of_two_stages_can_always_move(
        (policies, minpulses) in (proptest::array::uniform2(any_policy()), proptest::array::uniform2(any_number())),
        (backlog, room, unfilled) in (0..70_000u64, 0..70_000u64, 0..140_000u64),
    ) {
        prop_assume!(backlog > 0 || (room > 0 && unfilled > 0));
        let filler = View {
            buffered: unfilled,
            remaining: unfilled,
            room: offered_room(room, backlog, least(policies[0], minpulses[0], unfilled).min(unfilled)),
            source_done: true,
        };
        let remaining = backlog + unfilled;
        let source_done = unfilled == 0 || must_drain(backlog, backlog + room, remaining);
        let drainer = View { buffered: backlog, remaining, room: u64::MAX, source_done };
        let pulses = [next_pulse(policies[0], filler, minpulses[0]), next_pulse(policies[1], drainer, minpulses[1])];
        prop_assert_ne!(pulses, [None; 2]);
    }

    #[test]
    fn every_policy_survives_being_written_and_read(policy in any_policy()) {
        prop_assert_eq!(policy.to_string().parse(), Ok(policy));
    }
}
