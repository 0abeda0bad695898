//! What the fuzz targets have found, and runs that show that they reach what they are meant to reach.

use cutthrough_fuzz::hostile::{self, Length, Message, Name, Place, Ring, Value};
use cutthrough_fuzz::net::{self, Allows, Frame, From, Heard, Message as Of, Number, Shape};
use cutthrough_fuzz::pair;
use cutthrough_fuzz::watch::{self, Counters};
use cutthrough_wire::layout::Line;

/// The first payload lay in the pages when the second with the same token was put over it, before the receiver looked.
#[test]
fn a_token_that_is_used_twice_keeps_its_first_payload() {
    use pair::Step::{Copy, Grant, Poll};
    pair::run(&[Grant(false, false, 9508), Copy(true, 9508, Some(0)), Copy(true, 9508, Some(0)), Poll(8)]);
}

/// The same with pages that both sides copy together.
#[test]
fn a_token_that_is_used_twice_keeps_its_first_pages() {
    use pair::Step::{Copy, Grant, Page, Pages, Poll};
    let first_a_page = [Page(true, 9000), Pages(true, 1, Some(0)), Copy(true, 9508, Some(0)), Poll(8)];
    let then_a_page = [Copy(true, 9508, Some(0)), Page(true, 9000), Pages(true, 1, Some(0)), Poll(8)];
    for steps in [first_a_page, then_a_page] {
        pair::run(&[Grant(false, false, 9508)].into_iter().chain(steps).collect::<Vec<_>>());
    }
}

/// The receiver began at an aligned place that the sender's counter had not reached, and took that for a breach.
#[test]
fn an_empty_payload_behind_an_odd_one_is_no_breach() {
    use pair::Step::{Copy, Drop, Poll};
    pair::run(&[
        Copy(false, 100, None),
        Copy(false, 0, None),
        Poll(4),
        Drop(true, 0),
        Drop(true, 0),
        Poll(15),
        Poll(15),
    ]);
}

/// A list of no pages went out as a reference to no runs.
#[test]
fn an_empty_list_of_pages_is_no_breach() {
    use pair::Step::{Grant, Pages, Poll};
    pair::run(&[Pages(true, 0, None), Poll(8)]);
    pair::run(&[Grant(false, false, 100), Pages(true, 0, Some(0)), Poll(8)]);
}

/// A name goes to a terminal; a file is as long as its owner likes.
#[test]
fn the_counters_of_a_hostile_process_do_no_harm() {
    let mut bytes = vec![0; 4096];
    bytes[32] = 8;
    bytes[64..68].copy_from_slice(b"\x1b[2J");
    for length in [None, Some((1 << 30) - 1)] {
        watch::stat(&Counters { bytes: bytes.clone(), magic: true, length, sealed: true });
    }
}

/// A hostile peer's counters, descriptors and returns, one after the other, against a victim that uses everything.
#[test]
fn every_way_in_is_walked() {
    use hostile::Step;
    let store = |line: Line, value| Step::Store(Place::Counter(line as u8 * 2), value);
    let message = |kind, runs, len, detail| {
        let name = Value::Victim(Place::Slot(0, 3));
        Step::Message(Message { control_len: 8, kind, runs, len: Length::Pages(len), detail, name })
    };
    let ways: [&[Step]; 7] = [
        &[store(Line::Consumed, Value::Any(u64::MAX)), Step::SendControl(8)],
        &[Step::Page(100), Step::SendPages(1, Name::None), Step::Append(Ring::Returns, Value::Any(7)), Step::Poll],
        &[Step::Append(Ring::Free, Value::Run(200, 200, 0)), Step::SendCopy(5000, Name::None)],
        &[message(1, 1, 100, Value::Run(7, 2, 0)), Step::Poll, Step::Poll],
        &[Step::Post(100, 2), message(2, 1, 9000, Value::Victim(Place::Free(0))), Step::Poll],
        &[Step::Stage(200, 100, false, Value::Small(0)), Step::Poll, Step::Read(0)],
        &[Step::SendCopy(9000, Name::Given(0, false, 255, 255)), Step::SendCopy(190_000, Name::Given(1, true, 9, 255))],
    ];
    for way in ways {
        hostile::run(way);
    }
}

/// A frame of the hostile side's channel that keeps the rules, but for its body.
fn frame(body: Shape) -> Frame {
    Frame {
        from: From::Hostile,
        kind: None,
        tag: None,
        number: Number::Next,
        heard: Heard::All,
        awaited: None,
        held: 0,
        message: Of::Near(0),
        second: None,
        body,
        broken: false,
        landed: None,
        padding: 0,
    }
}

fn opening(payload: u32, unasked: u32, len: u16) -> Shape {
    let (payload, unasked) = ((payload, 31), Some(unasked));
    Shape::Open { payload, unasked, token: None, pages: true, allows: Allows::Enough, control: 9, len }
}

/// A hello that was shorter than any frame of a channel needs was answered with more, and made a channel on which no
/// frame had room for a grant: notes without any went out for ever.
#[test]
fn a_short_hello_is_not_answered() {
    use net::Step;
    for len in [0, 1, 1079] {
        net::run(&[Step::Frame(frame(Shape::Greeting(None, 1136, Vec::new(), len)))]);
    }
}

/// Each kind of frame, in and out of order, before and behind the seal, landed and aside.
#[test]
fn every_frame_is_walked() {
    use net::Step;
    let sent = |shape| Step::Frame(frame(shape));
    let data = |offset| Step::Frame(Frame { message: Of::Near(-1), ..frame(Shape::Data(offset, 500)) });
    let landed = |shape, loose| Step::Frame(Frame { landed: Some(loose), ..frame(shape) });
    let ways: [Vec<Step>; 8] = [
        vec![sent(Shape::Records(Allows::Enough, vec![0, 9, 96], None)), sent(Shape::Zeroes(1200)), Step::Hurry],
        vec![sent(opening(3000, 1000, 500)), data(500), Step::Pass(100, 0), data(2500), data(1000), data(2000)],
        vec![Step::Post(4000), landed(opening(2000, 2000, 900), false), landed(Shape::Data(900, 600), false)],
        vec![Step::Post(4000), landed(opening(2000, 2000, 900), true), landed(Shape::Data(u32::MAX, 600), true)],
        vec![Step::Send(Some(9000), true), sent(Shape::Note(Allows::Enough, vec![(-1, 1)], vec![(0, 9000)], true))],
        vec![Step::Friend(Some(30_000), false), Step::Frame(Frame { from: From::Friend, ..frame(Shape::Zeroes(9)) })],
        vec![Step::Call, Step::Frame(Frame { from: From::Called, ..frame(Shape::Cookie(8)) }), Step::Pass(9000, 4)],
        vec![Step::Close, Step::Join, Step::Frame(Frame { kind: Some(13), ..frame(Shape::Zeroes(0)) }), Step::Hurry],
    ];
    for way in ways {
        net::run(&way);
    }
}

/// Forged messages of a handshake, and frames of any number.
#[test]
fn forged_handshakes_change_nothing() {
    use cutthrough_fuzz::handshake::{self, Attack, Forgery};
    let forgeries = || {
        let long = (0..96).map(|at| Forgery::Bits(at, 0x80));
        long.chain([Forgery::Any(Vec::new()), Forgery::Cut(48), Forgery::Long(3, vec![9; 60])]).collect::<Vec<_>>()
    };
    for own in [false, true] {
        let frames = [0, 1, 1 << 22, 1 << 23, 1 << 63, u64::MAX].map(|number| (number, Forgery::Bits(2, 1)));
        let (first, second) = (forgeries(), forgeries());
        handshake::run(&Attack { own, aes: [true, own], prologue: vec![1], first, second, frames: frames.into() });
    }
}
