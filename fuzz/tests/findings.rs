//! What the fuzz targets have found, and runs that show that they reach what they are meant to reach.

use cutthrough_fuzz::hostile::{self, Length, Message, Name, Place, Ring, Value};
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
