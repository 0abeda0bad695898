//! The register that cuts headers off, as user space knows it: where places are offered, and when nothing lands.

use cutthrough_engine::register::{AHEAD, CLOSED, Expected, LAST, LEAST, Place, Register, Whose};

const SLICE: u32 = 1000;
const AT: u64 = 1 << 20;
const OF: (u32, u32) = (1, 2);

/// Frames of one message that has begun, from `begin` to `end`.
fn rest(message: u32, begin: u32, end: u32) -> impl Iterator<Item = Expected> {
    let of = move |offset: u32| Expected {
        whose: Whose::Known(message),
        offset,
        bytes: SLICE.min(end - offset),
        at: AT + u64::from(offset),
    };
    (begin..end).step_by(SLICE as usize).map(of)
}

/// Frames of a message that begins, of so many bytes.
fn fresh(least: u32, bytes: u32, at: u64) -> impl Iterator<Item = Expected> {
    let of = move |offset: u32| Expected {
        whose: if offset == 0 { Whose::Opens(least) } else { Whose::Opened },
        offset,
        bytes: SLICE.min(bytes - offset),
        at: at + u64::from(offset),
    };
    (0..bytes).step_by(SLICE as usize).map(of)
}

/// Aims, and gives what the kernel is offered.
fn aim(register: &mut Register, frames: impl IntoIterator<Item = Expected>) -> Vec<Place> {
    let mut offered = Vec::new();
    let offer = |place| {
        offered.push(place);
        Ok::<(), ()>(())
    };
    register.aim(OF, frames, offer).unwrap();
    offered
}

fn extend(register: &mut Register, frames: impl IntoIterator<Item = Expected>) -> Option<(u32, u32)> {
    register.extend(frames, |_| Ok::<(), ()>(())).unwrap()
}

fn land(register: &mut Register, message: u32, at: u64, bytes: u32) {
    assert_eq!(register.lands([Some((at, bytes))]), Some((at, bytes.into())));
    register.tells(message, bytes.into());
}

#[test]
fn each_frame_has_a_place_where_its_payload_belongs() {
    let mut register = Register::new(4000);
    // What is too short to be cut free is left out, wherever it stands.
    let frames = || rest(3, 0, 2 * SLICE + LEAST - 1).chain(fresh(4, SLICE, 2 * AT));
    let offered = aim(&mut register, frames());
    assert_eq!(offered, [AT, AT + u64::from(SLICE), 2 * AT].map(Place::Behind));
    let listed: Vec<_> = register.listed(1).map(|(number, frame)| (number, frame.whose)).collect();
    assert_eq!(listed, [(1, Whose::Known(3)), (2, Whose::Opens(4))]);
    // Where the kernel's places are short, a frame has several.
    let offered = aim(&mut Register::new(400), rest(3, 50, 50 + SLICE));
    assert_eq!(offered, [AT + 50, AT + 450, AT + 850].map(Place::Behind));
    let mut none = Register::new(400);
    assert_eq!(none.aim(OF, rest(3, 50, 50 + LEAST - 1), |_| Err("nothing to offer")), Ok(0));
    assert!(!none.is_aimed());
}

#[test]
fn what_is_left_over_is_written_over_by_the_next_aim() {
    let mut register = Register::new(4000);
    aim(&mut register, rest(3, 0, 3 * SLICE));
    land(&mut register, 3, AT, SLICE);
    register.closed(1);
    assert!(register.is_quiet(1) && !register.is_aimed());
    let offered = aim(&mut register, fresh(4, 3 * SLICE, 2 * AT));
    let slice = u64::from(SLICE);
    let expected = [Place::Instead(2, AT * 2), Place::Instead(1, AT * 2 + slice), Place::Behind(AT * 2 + 2 * slice)];
    assert_eq!(offered, expected);
}

/// What was let through is waited for, however the register was found when it was closed.
#[test]
fn it_is_quiet_when_all_that_was_let_through_is_taken_in() {
    for (due, bytes) in [(1, SLICE), (1 | CLOSED, 500)] {
        let mut register = Register::new(4000);
        aim(&mut register, rest(3, 0, 9 * SLICE));
        assert!(register.is_open() && !register.is_quiet(0), "it is open");
        register.closed(due);
        assert!(!register.is_open() && !register.is_quiet(1) && !register.is_quiet(0));
        land(&mut register, 3, AT, bytes);
        assert!(!register.is_quiet(0), "the program has counted it, or soon will");
        assert!(register.is_quiet(1));
    }
    let mut register = Register::new(4000);
    aim(&mut register, rest(3, 0, 9 * SLICE));
    register.closed(0);
    assert!(register.is_quiet(0));
}

#[test]
fn it_goes_on_where_it_has_come_to_and_nowhere_else() {
    let mut register = Register::new(4000);
    let all: Vec<_> = fresh(7, 3 * SLICE, AT).chain(fresh(8, SLICE, 2 * AT)).collect();
    aim(&mut register, all.iter().copied());
    assert!(register.awaits(OF, &all[0]) && register.watches(1) && !register.watches(2));
    assert!(register.awaits(OF, &Expected { whose: Whose::Opens(9), ..all[0] }), "whichever it is");
    assert!(!register.awaits(OF, &all[1]) && !register.awaits((1, 3), &all[0]));
    land(&mut register, 8, AT, SLICE);
    let next = Expected { whose: Whose::Known(8), ..all[1] };
    assert!(register.awaits(OF, &next));
    for other in [
        all[0],
        Expected { whose: Whose::Known(9), ..next },
        Expected { offset: next.offset + 1, ..next },
        Expected { at: next.at + 1, ..next },
        Expected { bytes: next.bytes - 1, ..next },
    ] {
        assert!(!register.awaits(OF, &other), "{other:?}");
    }
    land(&mut register, 8, next.at, SLICE);
    // The last frame is shorter than expected: what lies behind it belongs elsewhere.
    land(&mut register, 8, all[2].at, 99);
    assert!(!register.awaits(OF, &all[3]) && !register.is_through(OF));
    assert_eq!(extend(&mut register, [all[3]]), None);
}

#[test]
fn it_knows_where_frames_may_land() {
    let mut register = Register::new(4000);
    assert!(!register.reaches(0, u64::MAX));
    aim(&mut register, rest(3, 0, 2 * SLICE));
    let slice = u64::from(SLICE);
    for (at, bytes, may) in [(AT - 9, 9, false), (AT - 9, 10, true), (AT + 2 * slice - 1, 1, true), (AT, 0, false)] {
        assert_eq!(register.reaches(at, bytes), may, "{at} {bytes}");
    }
    assert!(!register.reaches(AT + 2 * slice, u64::MAX));
    land(&mut register, 3, AT, SLICE);
    assert!(!register.reaches(AT, slice) && register.reaches(AT, slice + 1));
    register.closed(1);
    assert!(register.is_quiet(1) && !register.reaches(0, u64::MAX));
}

#[test]
fn more_places_are_offered_when_few_are_left() {
    let mut register = Register::new(4000);
    let frames = u32::try_from(AHEAD).unwrap();
    let end = 2 * frames * SLICE;
    assert_eq!(aim(&mut register, rest(3, 0, end)).len(), AHEAD);
    for frame in 0..frames / 2 {
        assert!(!register.is_low(), "after {frame}");
        land(&mut register, 3, AT + u64::from(frame * SLICE), SLICE);
    }
    assert!(register.is_low());
    let next = frames / 2 * SLICE;
    // Not if something else is expected by now.
    assert_eq!(extend(&mut register, rest(3, next + 1, end)), None);
    assert_eq!(extend(&mut register, rest(3, next, next + 5 * SLICE)), None, "all of that is listed");
    assert_eq!(extend(&mut register, rest(3, next, end)), Some((frames, frames + frames / 2)));
    assert_eq!(register.listed(frames).count(), AHEAD / 2);
    register.closed(frames / 2);
    assert!(!register.is_low());
    assert_eq!(extend(&mut register, rest(3, next, end)), None, "it is closed");
}

/// When all that was listed has come, whatever comes next may be listed behind it, without another aim.
#[test]
fn it_goes_on_with_anything_when_it_is_through() {
    let mut register = Register::new(4000);
    aim(&mut register, rest(3, 0, SLICE));
    assert!(!register.is_through(OF));
    land(&mut register, 3, AT, SLICE);
    assert!(register.is_through(OF) && LAST > 1);
    assert_eq!(extend(&mut register, fresh(4, SLICE, 3 * AT)), Some((1, 2)));
    assert!(!register.is_through(OF) && register.awaits(OF, &fresh(9, SLICE, 3 * AT).next().unwrap()));
}

#[test]
fn a_frame_elsewhere_is_not_believed() {
    let aimed = || {
        let mut register = Register::new(400);
        aim(&mut register, rest(3, 0, SLICE));
        register
    };
    assert_eq!(aimed().lands([Some((AT, 400)), Some((AT + 400, 400)), Some((AT + 800, 9))]), Some((AT, 809)));
    assert_eq!(aimed().lands([Some((AT + 1, 400))]), None);
    assert_eq!(aimed().lands([Some((AT, 300)), Some((AT + 400, 400))]), None, "a gap");
    assert_eq!(aimed().lands([Some((AT, 400)), None]), None);
    assert_eq!(Register::new(400).lands([Some((AT, 400))]), None, "nothing was offered");
}
