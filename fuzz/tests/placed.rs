//! Payloads that a ring places: runs that show what the target reaches, and what it has found.

use cutthrough_fuzz::placed::{self, Do, Play, Step};
use cutthrough_node::fuzz::Deed;

fn play(steps: Vec<Step>) -> Play {
    let (mtu, stops, elsewhere) = (0, 0, 0);
    Play { seed: 1, mtu, sealed: false, stops, elsewhere, refuses: false, socket: 50, posted: 15, steps }
}

/// Eight pages alike, and what becomes of the next ones.
fn stream() -> [Step; 10] {
    let mut steps = [Step::Drop(0); 10];
    steps[0] = Step::Stream(false, 0, 7);
    steps[1] = Step::Pass(8);
    steps
}

/// What is expected comes, and lands where it belongs.
#[test]
fn most_of_a_stream_lands_where_it_belongs() {
    let ran = placed::run(&play((0..10).flat_map(|_| stream()).collect()));
    assert!(ran.messages == 84 && ran.frames.through > 350 && ran.placed >= ran.frames.through, "{ran:?}");
    assert_eq!(ran.rings_lost, 0);
}

/// A ring whose kernel tells of frames in another order than places were offered in, twice, elsewhere or longer than
/// they are is given up. What was sent comes by the socket then.
#[test]
fn a_ring_that_lies_is_given_up() {
    for lie in [Deed::Later, Deed::Twice, Deed::Lie(64, 0), Deed::Drop] {
        let mut steps = vec![Step::Stream(false, 0, 7)];
        let told = [Step::Kernel(4, Do(Deed::Look(false))), Step::Kernel(0, Do(lie))];
        steps.extend(told.into_iter().chain([Step::Pass(20); 2]));
        steps.extend(stream());
        let ran = placed::run(&play(steps));
        assert!(ran.messages == 20 && ran.rings_lost == 1, "{lie:?}: {ran:?}");
    }
}
