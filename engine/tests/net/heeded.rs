//! Who waits for a message is told of it before what it acknowledges is seen to. Whenever that is done, it comes to the
//! same.

use proptest::prelude::*;

use super::duo::{Duo, Told};
use super::wire::Doorman;

/// What one of the two does; `true` is the second one.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send(bool, Option<usize>, bool),
    Look(bool),
    GoOut(bool),
    /// Takes in so many frames.
    Bring(bool, usize),
    /// The next frame that comes is lost, or comes behind all others.
    Lose(bool, bool),
    Take(bool, usize),
    /// Reads what waits longest, or throws it away.
    Read(bool, bool),
    Pass(u64),
}

fn steps(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![3 => Just(None), 2 => (1..1500_usize).prop_map(Some), 1 => (1..200_000_usize).prop_map(Some)];
    let lost = (any::<bool>(), any::<bool>());
    let lost = lost.prop_map(move |(end, late)| if faults { Step::Lose(end, late) } else { Step::Look(end) });
    let step = prop_oneof![
        4 => (any::<bool>(), len, any::<bool>()).prop_map(|(end, len, pages)| Step::Send(end, len, pages)),
        2 => any::<bool>().prop_map(Step::Look),
        3 => any::<bool>().prop_map(Step::GoOut),
        6 => (any::<bool>(), 1..30_usize).prop_map(|(end, frames)| Step::Bring(end, frames)),
        1 => lost,
        4 => (any::<bool>(), 1..5_usize).prop_map(|(end, most)| Step::Take(end, most)),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(end, throw)| Step::Read(end, throw)),
        2 => (0..20_000_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

/// What the two are told, and what they count, if what frames acknowledge is seen to `at_once`, or when it comes to it.
fn outcome(steps: &[Step], at_once: bool) -> Duo {
    let mut duo = Duo::new(|life| Box::new(Doorman::new(life)));
    for step in steps {
        duo.pass(1_000);
        match *step {
            Step::Send(end, len, pages) => {
                duo.send(end.into(), len, pages);
            }
            Step::Look(end) => duo.look(end.into()),
            Step::GoOut(end) => duo.go_out(end.into()),
            Step::Bring(end, frames) => {
                for _ in 0..frames {
                    let came = duo.bring(end.into(), None);
                    if came && at_once {
                        let now = duo.now();
                        duo.ends[usize::from(end)].net.relieve(now, u64::MAX >> 8);
                    }
                }
            }
            Step::Lose(end, late) => {
                let coming = &mut duo.ends[usize::from(end)].coming;
                let frame = coming.pop_front().filter(|_| late);
                coming.extend(frame);
            }
            Step::Take(end, most) => duo.take(end.into(), most),
            Step::Read(end, throw) => duo.read(end.into(), throw),
            Step::Pass(nanos) => duo.pass(nanos),
        }
    }
    duo.come_to_rest();
    duo
}

/// Messages that one was told of, and what it may use again.
fn told(duo: &Duo, end: usize) -> [Vec<u64>; 2] {
    let told = &duo.ends[end].told;
    let messages = told.iter().filter_map(|told| if let Told::Message(number) = told { Some(*number) } else { None });
    let mut completed: Vec<u64> =
        told.iter().filter_map(|told| if let Told::Completed(cookie) = told { Some(*cookie) } else { None }).collect();
    completed.sort_unstable();
    [messages.collect(), completed]
}

fn agree(steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut at_once, mut later) = (outcome(steps, true), outcome(steps, false));
    for duo in [&mut at_once, &mut later] {
        for end in 0..2 {
            let sent = duo.ends[1 - end].sent;
            prop_assert_eq!(&told(duo, end)[0], &(0..sent).collect::<Vec<_>>());
            let channel = duo.ends[end].channel;
            prop_assert_eq!((duo.ends[end].net.leak(), duo.ends[end].net.in_flight(channel)), (None, 0));
        }
    }
    // Messages that are refused as too many are not always the same: what is acknowledged makes room.
    if [0, 1].iter().all(|end| at_once.ends[*end].sent == later.ends[*end].sent) {
        for end in 0..2 {
            prop_assert_eq!(told(&at_once, end), told(&later, end));
            let channels = (at_once.ends[end].channel, later.ends[end].channel);
            let counts = |duo: &mut Duo, of| duo.ends[end].net.counts(of).map(|counts| counts[..4].to_vec());
            prop_assert_eq!(counts(&mut at_once, channels.0), counts(&mut later, channels.1));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_acknowledged_is_seen_to_at_any_time(steps in steps(false)) {
        agree(&steps)?;
    }

    #[test]
    fn so_it_is_where_frames_are_lost(steps in steps(true)) {
        agree(&steps)?;
    }
}
