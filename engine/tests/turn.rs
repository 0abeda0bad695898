//! Fairness among channels: what a poll costs, and that nobody starves.

use cutthrough_engine::turn::{BUDGET, PATIENCE, SPARED, TALK, Turn};
use proptest::prelude::*;

/// Channels `0..count`, of which only number 0 has had work lately.
fn one_hot(count: usize) -> Turn {
    let mut turn = Turn::new();
    (0..count).for_each(|channel| turn.add(channel));
    while turn.looks_per_turn() > 2 {
        let at_zero = turn.current() == Some(0);
        if at_zero {
            turn.found();
        }
        turn.empty();
    }
    // Nobody is in conversation.
    (0..=TALK).for_each(|_| turn.empty());
    turn
}

#[test]
fn nobody_is_there_at_first() {
    let mut turn = Turn::new();
    turn.empty();
    turn.found();
    turn.remove(3);
    turn.warm(3);
    assert_eq!((turn.current(), turn.looks_per_turn(), turn.channels().count()), (None, 0, 0));
    turn.add(3);
    turn.add(3);
    assert_eq!((turn.current(), turn.looks_per_turn()), (Some(3), 1));
    turn.remove(3);
    assert_eq!((turn.current(), turn.looks_per_turn()), (None, 0));
}

#[test]
fn a_lone_channel_is_always_current() {
    let mut turn = Turn::new();
    turn.add(7);
    for round in 0..3 * PATIENCE {
        assert_eq!(turn.current(), Some(7));
        if round % 5 == 0 { turn.found() } else { turn.empty() }
    }
}

#[test]
fn a_thousand_idle_channels_cost_one_look_a_turn() {
    let mut turn = one_hot(1001);
    assert_eq!(turn.looks_per_turn(), 2);
    let mut looks = vec![0; 1001];
    for _ in 0..2000 {
        let channel = turn.current().unwrap();
        looks[channel] += 1;
        turn.empty();
    }
    assert_eq!(looks[0], 1000);
    assert!(looks[1..].iter().all(|&looks| looks == 1), "every idle one once in a thousand turns");
}

/// What comes next in a conversation does not wait for looks at others, and these do not wait for its end.
#[test]
fn a_thousand_idle_channels_cost_a_conversation_little() {
    for (looks_for_work, most) in [(1, 2 * SPARED), (10, SPARED), (100, SPARED)] {
        let mut turn = one_hot(1001);
        let mut looks = vec![0; 1001];
        let mut hot = 0;
        while looks[1..].contains(&0) {
            let channel = turn.current().unwrap();
            looks[channel] += 1;
            if channel == 0 {
                hot += 1;
                if hot % looks_for_work == 0 {
                    turn.found();
                }
            }
            turn.empty();
        }
        let cold: u32 = looks[1..].iter().sum();
        assert!((1000..=1001).contains(&cold), "{cold} looks at a thousand");
        let spared = u64::from(looks[0]) / u64::from(cold);
        assert!(spared >= u64::from(SPARED / 2) - 1 && spared <= u64::from(most), "{spared}");
    }
    // A flood is no conversation: its budget is as long.
    let mut turn = one_hot(1001);
    let mut units = 0;
    for _ in 0..1000 {
        while turn.current() == Some(0) {
            turn.found();
            units += 1;
        }
        turn.empty();
    }
    assert!(units <= 1001 * BUDGET, "{units} units of work for a look at each");
}

#[test]
fn a_cold_channel_with_work_is_hot_at_once() {
    let mut turn = one_hot(10);
    while turn.current() != Some(4) {
        turn.empty();
    }
    turn.found();
    assert_eq!(turn.current(), Some(4), "it may go on");
    turn.empty();
    assert_eq!(turn.looks_per_turn(), 3);
    let next: Vec<_> = (0..3).map(|_| (turn.current().unwrap(), turn.empty()).0).collect();
    assert!(next.contains(&0) && next.contains(&4), "{next:?}");
    turn.warm(9);
    assert_eq!(turn.looks_per_turn(), 4);
}

#[test]
fn a_hot_channel_without_work_turns_cold() {
    let mut turn = one_hot(2);
    assert_eq!(turn.looks_per_turn(), 2);
    for _ in 0..PATIENCE + 4 {
        turn.empty();
    }
    assert_eq!(turn.looks_per_turn(), 1, "both are cold");
    assert_eq!(turn.channels().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_flood_ends_with_the_budget() {
    let mut turn = Turn::new();
    turn.add(0);
    turn.add(1);
    turn.empty();
    for expected in [0, 1, 0, 1] {
        for _ in 0..BUDGET {
            assert_eq!(turn.current(), Some(expected));
            turn.found();
        }
    }
}

#[test]
fn cold_channels_have_the_same_budget() {
    let mut turn = one_hot(3);
    while turn.current() != Some(2) {
        turn.empty();
    }
    for _ in 0..BUDGET {
        assert_eq!(turn.current(), Some(2));
        turn.found();
    }
    assert_ne!(turn.current(), Some(2));
}

/// What happens to a [`Turn`] from outside.
#[derive(Debug, Clone)]
enum Event {
    /// The current channel is polled for as long as it is current, and has this many units of work.
    Poll(u32),
    Add(usize),
    Remove(usize),
    Warm(usize),
    /// Time passes in which nobody has work.
    Lull,
}

const CHANNELS: usize = 12;

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => prop_oneof![Just(0), 0..2 * BUDGET].prop_map(Event::Poll),
        3 => (0..CHANNELS).prop_map(Event::Add),
        1 => (0..CHANNELS).prop_map(Event::Remove),
        2 => (0..CHANNELS).prop_map(Event::Warm),
        1 => Just(Event::Lull),
    ]
}

/// The oracle: how many looks ago each channel was looked at.
#[derive(Default)]
struct Waiting([Option<usize>; CHANNELS]);

impl Waiting {
    /// Counts a look at `channel`. Nobody can wait longer than a rotation of cold channels, each after a turn or what
    /// is spared.
    fn look(&mut self, channel: usize) {
        assert!(self.0[channel].is_some(), "{channel} is not in");
        for looks in self.0.iter_mut().flatten() {
            *looks += 1;
            assert!(*looks <= CHANNELS * (CHANNELS + SPARED as usize + 1), "somebody starves");
        }
        self.0[channel] = Some(0);
    }
}

/// Polls the current channel, which has `work` units, until another one is due.
fn poll(turn: &mut Turn, waiting: &mut Waiting, work: u32) {
    let Some(channel) = turn.current() else { return };
    waiting.look(channel);
    for _ in 0..work.min(BUDGET) {
        assert_eq!(turn.current(), Some(channel));
        turn.found();
    }
    if work < BUDGET {
        assert_eq!(turn.current(), Some(channel));
        turn.empty();
    }
}

proptest! {
    #[test]
    fn nobody_starves(events in proptest::collection::vec(any_event(), 1..800)) {
        let mut turn = Turn::new();
        let mut waiting = Waiting::default();
        for event in events {
            match event {
                Event::Poll(work) => poll(&mut turn, &mut waiting, work),
                Event::Add(channel) => {
                    turn.add(channel);
                    waiting.0[channel].get_or_insert(0);
                }
                Event::Remove(channel) => {
                    turn.remove(channel);
                    waiting.0[channel] = None;
                }
                Event::Warm(channel) => turn.warm(channel),
                Event::Lull => (0..PATIENCE + 30).for_each(|_| poll(&mut turn, &mut waiting, 0)),
            }
            let expected = (0..CHANNELS).filter(|&channel| waiting.0[channel].is_some());
            prop_assert!(turn.channels().eq(expected));
            prop_assert_eq!(turn.current().is_some(), turn.channels().next().is_some());
            prop_assert!((0..CHANNELS).all(|channel| turn.contains(channel) == waiting.0[channel].is_some()));
        }
    }
}
