//! The register that cuts headers off, as user space knows it: where places are offered, and when nothing lands.

use cutthrough_engine::register::{AHEAD, BUSY, CLOSED, FRESH, LEAST, Place, Register, Says, Target};

const SLICE: u32 = 1000;
const OPENING: u32 = 144;
const AT: u64 = 1 << 20;

fn target(message: Option<u32>, begin: u32, end: u32) -> Target {
    Target { tag: 1, generation: 2, message, awaited: 7, begin, end, at: AT, slice: SLICE }
}

/// Aims, and gives what the kernel is offered.
fn aim(register: &mut Register, target: Target) -> Vec<Place> {
    let mut offered = Vec::new();
    let offer = |place| {
        offered.push(place);
        Ok::<(), ()>(())
    };
    register.aim(target, offer).unwrap().unwrap();
    offered
}

fn land(register: &mut Register, message: u32, offset: u32, bytes: u32, opens: bool) {
    let at = AT + u64::from(offset);
    assert_eq!(register.lands([Some((at, bytes))]), Some((at, bytes.into())));
    register.tells(Says { message, offset, opens }, bytes.into());
}

#[test]
fn each_frame_has_a_place_where_its_payload_belongs() {
    let mut register = Register::new(4000);
    // The first frame of a message is shorter by its opening; what is too short to be cut free is left out.
    let end = 2 * SLICE - OPENING + LEAST - 1;
    let offered = aim(&mut register, target(None, 0, end));
    assert_eq!(offered, [AT, AT + u64::from(SLICE - OPENING)].map(Place::Behind));
    assert_eq!(register.reach(), Some(2 * SLICE - OPENING));
    // Where the kernel's places are short, a frame has several.
    let offered = aim(&mut Register::new(400), target(Some(3), 50, 50 + SLICE));
    assert_eq!(offered, [AT, AT + 400, AT + 800].map(Place::Behind));
    let none = Register::new(400).aim(target(Some(3), 50, 50 + LEAST - 1), |_| Err("nothing to offer"));
    assert_eq!(none, Ok(None));
}

#[test]
fn what_is_left_over_is_written_over_by_the_next_aim() {
    let mut register = Register::new(4000);
    aim(&mut register, target(Some(3), 0, 3 * SLICE));
    land(&mut register, 3, 0, SLICE, false);
    register.closed(SLICE);
    assert!(register.is_quiet(1) && !register.is_aimed());
    let offered = aim(&mut register, Target { at: AT * 2, ..target(Some(4), 0, 3 * SLICE) });
    let slice = u64::from(SLICE);
    let expected = [Place::Instead(2, AT * 2), Place::Instead(1, AT * 2 + slice), Place::Behind(AT * 2 + 2 * slice)];
    assert_eq!(offered, expected);
}

/// What was let through is waited for, however the register was found when it was closed.
#[test]
fn it_is_quiet_when_all_that_was_let_through_is_taken_in() {
    for (awaited, bytes) in [(SLICE, SLICE), (500 | CLOSED, 500)] {
        let mut register = Register::new(4000);
        aim(&mut register, target(Some(3), 0, 9 * SLICE));
        assert!(register.is_open() && !register.is_quiet(0), "it is open");
        register.closed(awaited);
        assert!(!register.is_open() && !register.is_quiet(1) && !register.is_quiet(0));
        land(&mut register, 3, 0, bytes, false);
        assert!(register.is_quiet(1));
    }
    for (awaited, through) in [(FRESH, 0), (BUSY, 1)] {
        let mut register = Register::new(4000);
        aim(&mut register, target(None, 0, 9 * SLICE));
        register.closed(awaited);
        assert_eq!(register.is_quiet(0), through == 0);
        if through > 0 {
            land(&mut register, 8, 0, SLICE - OPENING, true);
            assert!(!register.is_quiet(0), "the program has counted it, or soon will");
            assert!(register.is_quiet(through));
        }
    }
}

#[test]
fn it_goes_on_where_it_has_come_to_and_nowhere_else() {
    let mut register = Register::new(4000);
    let first = target(None, 0, 9 * SLICE);
    aim(&mut register, first);
    assert!(register.is_at(&first) && register.watches(1) && !register.watches(2));
    assert!(!register.is_at(&Target { generation: 3, ..first }));
    land(&mut register, 8, 0, SLICE - OPENING, true);
    let begin = SLICE - OPENING;
    let next = Target { message: Some(8), begin, at: AT + u64::from(begin), ..first };
    assert!(register.is_at(&next) && register.is_at(&Target { end: 5 * SLICE, ..next }));
    for other in [
        first,
        Target { message: Some(9), ..next },
        Target { begin: begin + 1, at: next.at + 1, ..next },
        Target { at: next.at + 1, ..next },
        Target { end: 9 * SLICE + 1, ..next },
    ] {
        assert!(!register.is_at(&other), "{other:?}");
    }
    // The last frame of a message closes it.
    land(&mut register, 8, begin, 99, false);
    assert!(!register.is_at(&Target { begin: begin + 99, at: next.at + 99, ..next }));
}

#[test]
fn more_places_are_offered_when_few_are_left() {
    let mut register = Register::new(4000);
    let frames = u32::try_from(AHEAD).unwrap();
    assert_eq!(aim(&mut register, target(Some(3), 0, 2 * frames * SLICE)).len(), AHEAD);
    let extend = |register: &mut Register| register.extend(|_| Ok::<(), ()>(())).unwrap();
    for frame in 0..frames / 2 {
        assert_eq!(extend(&mut register), None, "after {frame}");
        land(&mut register, 3, frame * SLICE, SLICE, false);
    }
    assert_eq!(extend(&mut register), Some((frames + frames / 2) * SLICE));
    register.closed(frames / 2 * SLICE);
    assert_eq!(extend(&mut register), None, "it is closed");
}

#[test]
fn a_frame_elsewhere_is_not_believed() {
    let aimed = || {
        let mut register = Register::new(400);
        aim(&mut register, target(Some(3), 0, SLICE));
        register
    };
    assert_eq!(aimed().lands([Some((AT, 400)), Some((AT + 400, 400)), Some((AT + 800, 9))]), Some((AT, 809)));
    assert_eq!(aimed().lands([Some((AT + 1, 400))]), None);
    assert_eq!(aimed().lands([Some((AT, 300)), Some((AT + 400, 400))]), None, "a gap");
    assert_eq!(aimed().lands([Some((AT, 400)), None]), None);
    assert_eq!(Register::new(400).lands([Some((AT, 400))]), None, "nothing was offered");
}
