//! What the fuzz targets have found, and runs that show that they reach what they are meant to reach.

use cutthrough_engine::check::Breach;
use cutthrough_engine::net::Tally;
use cutthrough_engine::net::channel::Ending;
use cutthrough_fuzz::am;
use cutthrough_fuzz::hostile::{self, Length, Message, Name, Place, Ring, Value};
use cutthrough_fuzz::memory;
use cutthrough_fuzz::net::{self, Allows, Frame, From, Heard, Message as Of, Number, Shape};
use cutthrough_fuzz::pair;
use cutthrough_fuzz::part;
use cutthrough_fuzz::trains;
use cutthrough_fuzz::watch::{self, Counters};
use cutthrough_node::shm::link::CloseReason;
use cutthrough_wire::frame::Kind;
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

/// One thread plays both sides, and sent itself more than the shortest lap of the staging ring, for which it waited.
#[test]
fn a_list_of_runs_leaves_room_for_itself() {
    use cutthrough_fuzz::offset::Offset;
    use memory::{Run, Step};
    let run = Run { at: Offset::Any(u64::MAX), len: u16::MAX, byte: 255 };
    memory::run(&[Step::Scatter(vec![run; 6], 0, false, false)]);
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

/// A hostile peer's counters, descriptors and returns, one after the other, against a victim that uses everything: what
/// each is found out by.
#[test]
fn every_way_in_is_walked() {
    use hostile::Step;
    let store = |line: Line, value| Step::Store(Place::Counter(line as u8 * 2), value);
    let message = |kind, runs, len, detail| {
        let name = Value::Victim(Place::Slot(0, 3));
        Step::Message(Message { control_len: 8, kind, runs, len: Length::Pages(len), detail, name })
    };
    let breach = CloseReason::Breach;
    // It looks how far the peer is when its own ring is full.
    let fill = (0..17).map(|_| Step::SendControl(8));
    let ways: [(Vec<Step>, CloseReason); 9] = [
        ([store(Line::Consumed, Value::Any(u64::MAX))].into_iter().chain(fill).collect(), breach(Breach::Index)),
        (
            vec![
                Step::Page(100),
                Step::SendPages(1, Name::None),
                Step::Append(Ring::Returns, Value::Any(7)),
                Step::Poll,
            ],
            breach(Breach::Lend),
        ),
        (
            vec![Step::Append(Ring::Free, Value::Run(200, 200, 0)), Step::SendCopy(5000, Name::None)],
            breach(Breach::Page),
        ),
        (vec![message(1, 1, 100, Value::Run(7, 2, 0)), Step::Poll, Step::Poll], breach(Breach::Page)),
        (
            vec![Step::Post(100, 2), message(2, 1, 9000, Value::Victim(Place::Free(0))), Step::Poll],
            breach(Breach::Length),
        ),
        // No lie, but the rest never comes.
        (vec![Step::Stage(200, 100, 0, false, Value::Small(0)), Step::Poll, Step::Read(0)], CloseReason::Stalled),
        (
            vec![
                Step::Stage(200, 0, 0, false, Value::Small(0)),
                store(Line::Staged, Value::Any(128 << 10)),
                Step::Poll,
                Step::Read(0),
                Step::Message(Message {
                    control_len: 8,
                    kind: 4,
                    runs: 16,
                    len: Length::Any(250 << 10),
                    detail: Value::Small(0),
                    name: Value::Small(0),
                }),
                Step::Poll,
                Step::Read(0),
                Step::Stage(200, 200, 1, false, Value::Small(0)),
                Step::Poll,
            ],
            breach(Breach::Progress),
        ),
        (vec![Step::SendCopy(9000, Name::Given(0, false, 255, 255))], breach(Breach::Page)),
        // Too long for its token, which only the sender has to know.
        (vec![Step::SendCopy(190_000, Name::Given(1, true, 9, 255))], CloseReason::Died),
    ];
    for (number, (way, reason)) in ways.iter().enumerate() {
        assert_eq!(hostile::run(way), *reason, "way {number}");
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
        waits: false,
        quiet: 0,
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

fn hello() -> Shape {
    Shape::Greeting(None, 1136, Vec::new(), 0)
}

/// Each kind of frame, in and out of order, before and behind the seal, landed and aside: what is made of it.
#[test]
fn every_frame_is_walked() {
    use net::Step;
    let sent = |shape| Step::Frame(frame(shape));
    let data = |offset| Step::Frame(Frame { message: Of::Near(-1), ..frame(Shape::Data(offset, 500)) });
    let landed = |shape, loose| Step::Frame(Frame { landed: Some(loose), ..frame(shape) });
    let records = |count| Shape::Records(Allows::Enough, vec![0, 9, 96], count);
    // Frames and messages of the friend, which come each time.
    let Tally { frames_received: frames, messages_received: messages, misses, mended_bytes: mended, .. } =
        net::run(&[]).tally;
    let walk = |way: &[Step]| {
        let walked = net::run(way);
        let Tally { frames_received, messages_received, stale, forged, .. } = walked.tally;
        (walked, [frames_received - frames, messages_received - messages, stale, forged])
    };

    let (walked, counts) = walk(&[sent(records(None)), sent(Shape::Zeroes(1200)), Step::Hurry]);
    assert_eq!((counts, walked.endings), ([2, 3, 0, 0], vec![]));
    let way = [sent(opening(3000, 1000, 500)), data(500), Step::Pass(100, 0), data(2500), data(1000), data(2000)];
    let (walked, counts) = walk(&way);
    assert_eq!((counts, walked.tally.misses - misses, walked.tally.mended_bytes - mended), ([5, 0, 0, 0], 5, 2500));
    let way = [Step::Post(4000), landed(opening(2000, 2000, 900), false), landed(Shape::Data(900, 600), false)];
    let (walked, counts) = walk(&way);
    assert_eq!((counts, walked.tally.hits, walked.tally.placed_bytes), ([2, 0, 0, 0], 2, 1500));
    let way = [Step::Post(4000), landed(opening(2000, 2000, 900), true), landed(Shape::Data(u32::MAX, 600), true)];
    let (walked, counts) = walk(&way);
    assert_eq!((counts, walked.tally.hits, walked.tally.placed_bytes), ([1, 0, 0, 1], 1, 900));

    // The rest of what was sent goes when it is granted.
    let some = walk(&[Step::Send(Some(9000), true)]).0.tally.frames_sent;
    let note = sent(Shape::Note(Allows::Enough, vec![(-1, 1)], vec![(0, 9000)], true));
    let (walked, counts) = walk(&[Step::Send(Some(9000), true), note]);
    assert!(counts == [1, 0, 0, 0] && walked.tally.frames_sent > some, "{some} frames, then {walked:?}");
    let friend = Frame { from: From::Friend, ..frame(Shape::Zeroes(9)) };
    let (walked, counts) = walk(&[Step::Friend(Some(30_000), false), Step::Frame(friend)]);
    assert_eq!((&counts[1..], walked.endings), (&[1, 0, 1][..], vec![]));
    let cookie = Frame { from: From::Called, ..frame(Shape::Cookie(8)) };
    let (walked, _) = walk(&[Step::Call, Step::Frame(cookie), Step::Pass(9000, 4)]);
    assert!(walked.cookies.starts_with(&[0, 8]), "{:?}", walked.cookies);
    let close = Frame { kind: Some(13), ..frame(Shape::Zeroes(0)) };
    let (walked, _) = walk(&[Step::Close, Step::Join, Step::Frame(close), Step::Hurry]);
    assert_eq!(walked.endings, [Ending::Peer]);

    // Whoever was called answers as it should, with a proof of what it says or with a wrong one, and then does not.
    let welcome = |broken| Frame { from: From::Called, kind: Some(Kind::Welcome as u8), broken, ..frame(hello()) };
    let called = |shape| Step::Frame(Frame { from: From::Called, ..frame(shape) });
    let way = [Step::Call, called(Shape::Cookie(8)), Step::Frame(welcome(false)), called(records(Some(9)))];
    let (walked, _) = walk(&way);
    assert_eq!((walked.connected, walked.endings), (1, vec![Ending::Breach(Breach::Descriptor)]));
    let (walked, _) = walk(&[Step::Call, called(Shape::Cookie(8)), Step::Frame(welcome(true))]);
    assert_eq!((walked.connected, walked.endings), (0, vec![]));
    let close = || Step::Frame(Frame { kind: Some(Kind::Close as u8), ..frame(Shape::Zeroes(0)) });
    let (walked, _) = walk(&[close(), close(), close()]);
    assert_eq!((walked.again, walked.endings), (2, vec![Ending::Peer]));
    let (walked, counts) = walk(&[Step::Send(None, false), Step::Close, sent(records(None))]);
    assert_eq!((counts, walked.endings), ([1, 0, 0, 0], vec![]), "a channel that closes is heard");

    // And what breaks a rule.
    for (shape, breach) in [
        (records(Some(9)), Breach::Descriptor),
        (opening(3000, 1000, 1500), Breach::Length),
        (Shape::Any(vec![7; 5]), Breach::Descriptor),
    ] {
        let (walked, _) = walk(&[sent(shape)]);
        assert_eq!(walked.endings, [Ending::Breach(breach)]);
    }
    let (walked, counts) = walk(&[Step::Frame(Frame { broken: true, ..frame(records(None)) })]);
    assert_eq!((counts, walked.endings), ([0, 0, 0, 1], vec![]));
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
        // Each byte of a frame: of its header, its seal and its body.
        let bytes = (0..48 + 16 + 40).map(|at| (u64::from(at), Forgery::Bits(at, 1)));
        let frames = frames.into_iter().chain(bytes).collect();
        let (first, second) = (forgeries(), forgeries());
        handshake::run(&Attack { own, aes: [true, own], prologue: vec![1], first, second, frames });
    }
}

/// Whole frames, padded ones, and such as one byte was changed of, with a check sum that fits again.
#[test]
fn every_field_of_an_envelope_is_looked_at() {
    use cutthrough_fuzz::envelope::{self, Frame};
    for at in 0..60 {
        for (by, keep) in [(0, None), (1, None), (0x20, None), (0, Some(at))] {
            envelope::run(&Frame {
                ends: [([10, 0, 0, 1], 7, [2; 6]), ([10, 0, 0, 2], 9, [4; 6])],
                body: vec![1; 9],
                padding: 9,
                changes: vec![(at, by)],
                mended: at % 2 == 0 || by > 1,
                keep,
                noise: vec![8; usize::from(at)],
            });
        }
    }
}

/// Fragments in their order, out of it, on another queue, cut in the middle of their headers, and any announcements.
#[test]
fn every_verdict_of_the_programs_is_reached() {
    use cutthrough_fuzz::program::{self, Frame, Page, Traffic};
    let page = |message| Page { of: [1, 2, message], first: message, bytes: 199 };
    for flags in 0..16_u8 {
        let [cut, backwards, strict, noise] = [0, 1, 2, 3].map(|bit| flags >> bit & 1 == 1);
        let mut frames = vec![(Frame::Due, true, 2000); 3];
        frames.extend([(Frame::Due, false, 2000), (Frame::Due, true, 110), (Frame::Due, true, 60)]);
        frames.extend((0..120).map(|at| (Frame::Changed(vec![(at, 1)]), true, 2000)));
        frames.extend((0..8).map(|part| (Frame::Other(part / 4, part % 4, 0), true, 2000)));
        frames.extend([(Frame::Ours(vec![7; 1500]), true, 2000), (Frame::Noise(vec![0; 50]), true, 2000)]);
        frames.extend(vec![(Frame::Due, true, 150); 12]);
        let noise = noise.then(|| (0..600_u32).map(|word| word.wrapping_mul(0x9e37_79b9)).collect());
        program::run(&Traffic { slice: 63, cut, backwards, strict, pages: vec![page(0), page(1)], frames, noise });
    }
}

/// The register of an endpoint: frames that it awaits, short ones, ones of another processor, every byte of a header
/// changed, more than there are slots for, and any words in its memory.
#[test]
fn every_verdict_of_the_placing_program_is_reached() {
    use cutthrough_fuzz::placing::{self, Arrivals, Step};
    for noise in [false, true] {
        let mut steps = vec![Step::Next(255, 0); 3];
        steps.extend([Step::On(true), Step::Next(255, 0), Step::On(false), Step::Next(99, 0), Step::Next(255, 0)]);
        for fresh in [true, false] {
            steps.extend((0..180).flat_map(|at| [Step::Aim(fresh), Step::Changed(vec![(at, 1)]), Step::Read(9)]));
        }
        steps.extend([Step::Next(255, 255), Step::Elsewhere, Step::Ours(vec![7; 99]), Step::Noise(vec![0; 50])]);
        steps.extend([Step::Sleep(true), Step::Other(true, 2, 0, 99), Step::Sleep(false), Step::Close]);
        steps.extend(vec![Step::Other(false, 3, 9, 99); 70]);
        let steps = steps.into_iter().flat_map(|step| [(step.clone(), 2000), (step, 150)]).collect();
        let noise = noise.then(|| (0..64_u32).map(|word| word.wrapping_mul(0x9e37_79b9)).collect());
        placing::run(&Arrivals { slice: 99, begin: 7000, reach: 9999, steps, noise });
    }
}

/// Indexes that cannot be, entries outside of the memory, and true ones.
#[test]
fn every_lie_in_a_ring_is_found() {
    use cutthrough_fuzz::ring::{self, Step, Value, Which};
    let rings = [Which::Fill, Which::Completed, Which::Received, Which::Send];
    let looks = || {
        let all = [Step::Arrived, Step::Peek(0), Step::Peek(7), Step::Take(3), Step::Release, Step::Look, Step::Post];
        let more = [Step::Offer(4096, 9), Step::Put(0, 9, true), Step::Kick, Step::TakeBack, Step::Completed];
        all.into_iter().chain(more)
    };
    for ring in rings {
        for value in [0, 1, 7, 8, 9, u32::MAX].map(Value::Any).into_iter().chain([1, 8, -1].map(Value::More)) {
            let near = (0..8).map(|slot| Step::Near(slot, 65_536 - 50, u16::from(slot) * 10));
            let lies = [Step::Index(ring, value), Step::Entry(ring, 0, u64::MAX, u32::MAX, 1), Step::Flags(ring, 1)];
            let steps = near.chain(lies).chain(looks()).chain([Step::OurIndex(ring, value)]).chain(looks());
            ring::run(&steps.collect::<Vec<_>>());
        }
    }
}

/// Long runs, short frames, frames of others, registers that are closed in the middle, and places that are left over.
#[test]
fn every_payload_that_is_let_through_lands_where_it_belongs() {
    use cutthrough_fuzz::register::{self, Play, Step};
    for (slice, piece) in [(0, 0), (1249, 0), (1249, 1400), (3, 1400)] {
        let mut steps = Vec::new();
        for round in 0..12_u16 {
            let fresh = round % 2 == 0;
            let bytes = if round == 5 { 9 } else { 9000 + round % 3 * 20_000 };
            steps.push(Step::Aim(fresh, round * 77, bytes, round * 999));
            for frame in 0..round * 9 {
                steps.extend([Step::Next(255, false), Step::Next(255, true), Step::Other(fresh, 1, 0, 99)]);
                let rest = [Step::GoOn(frame * 500), Step::Land, Step::Look];
                steps.extend(&rest[..if frame % 5 == 4 { 0 } else { 3 }]);
            }
            steps.push(if round % 3 == 0 { Step::Close } else { Step::Next(round.to_le_bytes()[0] * 9, false) });
        }
        for lie in [None, Some(Step::Lie(1, 2))] {
            register::run(&Play { slice, piece, steps: steps.iter().copied().chain(lie).collect() });
        }
    }
}

/// Pages in order and out of it, strangers between, places that are left over, and pages that nobody wants any more.
#[test]
fn every_landing_is_mended() {
    use cutthrough_fuzz::place::{self, Play, Step};
    for (before, page, slice) in [(0, 500, 140), (106, 500, 140), (0, 100, 500), (106, 299, 4)] {
        for skip in 0..5 {
            let mut steps = vec![Step::Expect(0, 0), Step::Expect(1, 1), Step::Offer(true)];
            for part in [3, 2, 1, 0, 2, 3] {
                steps.extend([Step::Fragment(part % (skip + 1), 0, part), Step::Stray(0, 90), Step::Look]);
                steps.extend([Step::Fragment(0, 5, part), Step::Odd(0, 5, part, skip, 1), Step::Offer(part > 1)]);
            }
            steps.extend([Step::Lie(7, 0), Step::GiveUp(skip % 2, skip % 2), Step::Release(0), Step::Expect(2, 2)]);
            steps.extend([Step::Offer(false), Step::Stray(2, 9), Step::Fragment(0, 10, skip), Step::Look]);
            place::run(&Play { page, slice, before, steps });
        }
    }
}

/// A message of the kind that is the so-manyeth, about one of the victim's calls.
fn forged(kind: u8, call: (u8, i8), origin: Option<(u8, u8, i8)>) -> am::Forged {
    am::Forged { kind, window: false, code: 0, handler: 2, call, args: 4, token: None, budget: None, origin }
}

/// Who had taken a request over said that yet another endpoint replies to it: the window of who had asked first was
/// less by one for ever.
#[test]
fn a_request_that_was_handed_over_is_not_handed_on() {
    use am::Step::{HonestAsks, Message, Pass, VictimTakes};
    let hands_on = [forged(5, (0, 0), Some((1, 0, 0))), forged(3, (0, 0), None)];
    let lies = hands_on.map(|forged| Message(false, forged, false));
    am::run(&[HonestAsks(true), VictimTakes, Pass(0, 0)].into_iter().chain(lies).collect::<Vec<_>>());
}

/// Every kind of active message, true and not, while the victim asks, serves, hands over, cancels and waits.
#[test]
fn every_active_message_is_taken_or_refused() {
    use am::Step;
    let origins = (0..4).map(|who| Some((who, 0, 0))).chain([None]);
    for (kind, origin) in (0..8).flat_map(|kind| origins.clone().map(move |origin| (kind, origin))) {
        for (call, off) in (0..4).flat_map(|call| [0, -1, 1].map(|off| (call, off))) {
            let mut steps: Vec<Step> = (0..6).map(|at| Step::Ask(at, at > 2, 50)).collect();
            let hostile = [false, true].map(|second| Step::Message(second, forged(0, (call, off), origin), second));
            steps.extend(hostile.into_iter().chain([Step::HonestAsks(true), Step::HonestAsks(false)]));
            steps.extend([Step::VictimTakes, Step::VictimTakes, Step::Room(true, call), Step::Pass(call, 2)]);
            steps.extend([Step::Answer(200, true), Step::Answer(1, false), Step::Pass(0, 0), Step::Flush]);
            for again in 0..4 {
                let window = am::Forged { window: again == 2, code: again, ..forged(kind, (call, off), origin) };
                let lie = am::Forged { token: Some(7), budget: Some((9, again.into())), ..window.clone() };
                steps.extend([Step::Message(again == 1, window, true), Step::Message(false, lie, false)]);
                steps.extend([Step::Cancel(again), Step::HonestTakes, Step::VictimTakes, Step::Tick(20, again == 3)]);
                steps.push(Step::Changed(true, forged(kind, (again, 0), origin), again * 9, call));
            }
            steps.extend([Step::Swallow(true), Step::Bytes(false, vec![kind; 96]), Step::Again(call == 1, off == 0)]);
            am::run(&steps);
        }
    }
}

/// Every operation, within the region and at its end, from private memory and from pages.
#[test]
fn operations_on_memory_are_as_the_model_says() {
    use cutthrough_fuzz::offset::Offset::{Any, End, Inside};
    use memory::Step::{Again, Atomic, Call, Gather, Get, Put, Scatter};
    let run = |at, len, byte| memory::Run { at, len, byte };
    let long = (7, "x".repeat(3000), Some(vec![9; 4000]), (true, -1));
    for page in [false, true] {
        memory::run(&[
            Put(Inside(3), vec![7; 600], page),
            Put(End(-5), vec![8; 6], page),
            Atomic(0, Inside(8), 5, 0),
            Atomic(2, Inside(8), 1, 0x0707_0707_0707_070c),
            Atomic(0, Inside(9), 5, 0),
            Scatter(vec![run(Inside(256), 256, 1), run(Inside(500), 30, 2), run(End(-1), 1, 3)], 0, true, page),
            Scatter(vec![run(Inside(0), 256, 4), run(End(0), 1, 3)], 0, true, page),
            Scatter(vec![run(Inside(0), 256, 4)], 1, false, page),
            Again,
            Get(Inside(0), 868),
            Get(Any(u64::MAX), 2),
            Gather(vec![run(Inside(0), 868, 0), run(Inside(0), 868, 0)], 0),
            Gather(vec![run(Inside(0), 868, 0)], -1),
            Call(long.clone(), None, page),
            Call(long.clone(), Some((8, 200)), page),
            Call((7, String::new(), None, (true, -1)), None, page),
        ]);
    }
}

/// Steps out of bytes as the fuzzer would make them, without one that looks for the way.
#[test]
fn operations_on_memory_of_any_kind_are_answered() {
    use arbitrary::{Arbitrary, Unstructured};
    let mut state = 1_u64;
    for _ in 0..200 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        })
        .take(2048)
        .collect();
        let steps = Vec::<memory::Step>::arbitrary(&mut Unstructured::new(&bytes)).expect("steps");
        memory::run(&steps);
    }
}

/// Every letter was kept for ever that another rank sent for an operation of its own making.
#[test]
fn letters_for_operations_that_are_far_off_are_refused() {
    use part::Step::{Letter, Operation};
    // In quarters of an operation.
    let letters: Vec<part::Step> = (-128..=127).map(|number| Letter(false, number, 8, vec![1; 3], false)).collect();
    for letters in letters.chunks(60) {
        part::run(&[letters, &[Operation, Operation]].concat());
    }
}

/// A rank that had asked for bytes waited until its deadline for an answer that had none.
#[test]
fn an_answer_without_the_bytes_is_no_answer() {
    for len in [8, 1000] {
        part::run(&[part::Step::Read(0, len, part::Answer::Nothing)]);
    }
}

/// Of each step one that is done, and some that are not.
#[test]
fn a_rank_of_split_c_is_reached() {
    use cutthrough_fuzz::offset::Offset::{Any, End, Inside};
    use part::Answer::{Fails, Long, Other, Right, Ticket};
    use part::Step::{Get, Gets, Letter, Operation, Put, Puts, Read};
    for page in [false, true] {
        let steps = [
            Put(false, Inside(5), vec![3; 40], true, page),
            Put(false, Inside(5), vec![4; 2900], false, page),
            Put(true, Inside(5), vec![5; 40], true, page),
            Put(false, End(-39), vec![6; 40], true, page),
            Get(false, Inside(0), 60, 1),
            Get(false, Inside(0), 2000, 2),
            Get(false, End(-1), 2, 3),
            Get(true, Inside(0), 2, 4),
            Puts(false, 4, vec![(Inside(0), 1), (Inside(100), 2), (Inside(2), 3)], 0, true, page),
            Puts(false, 8, vec![(Inside(0), 9), (Any(u64::MAX - 3), 2)], 0, true, page),
            Puts(false, 8, vec![(Inside(0), 9), (Inside(8), 2)], 1, true, page),
            Gets(false, 4, vec![Inside(0), Inside(100)], 1, 0, page),
            Gets(false, 300, [Inside(0), Inside(1)].repeat(8), 63, 0, page),
            Gets(false, 4, vec![Inside(0), End(-3)], 9, 0, page),
            Letter(false, 4, 100, vec![7; 60], page),
            Letter(false, 4, 100, vec![7; 41], page),
            Letter(false, 4, 100, vec![7; 40], page),
            Letter(true, 0, 100, vec![7; 40], page),
            Operation,
            Read(0, 50, Right),
            Read(9, 2000, Right),
        ];
        part::run(&steps);
        for answer in [Long(1), Long(-1), Ticket(77), Other, Fails(12, [1; 21], 21)] {
            part::run(&[Read(0, 50, answer)]);
            part::run(&[Read(0, 500, answer), Put(false, Inside(0), vec![1; 4], false, page)]);
        }
    }
}

/// Steps out of bytes as the fuzzer would make them.
#[test]
fn requests_to_a_rank_of_any_kind_are_answered() {
    use arbitrary::{Arbitrary, Unstructured};
    let mut state = 7_u64;
    for _ in 0..100 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        })
        .take(2048)
        .collect();
        let steps = Vec::<part::Step>::arbitrary(&mut Unstructured::new(&bytes)).expect("steps");
        part::run(&steps);
    }
}

/// Steps of trains by chance, most of them such that frames come, so that a plain run of tests says whether they hold.
#[test]
fn trains_of_any_kind_leave_an_honest_channel_as_it_was() {
    use trains::{Edit, Field, Peer, Step};
    let mut random = 1_u64;
    let mut below = move |end: u16| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        u16::try_from((random >> 33) % u64::from(end)).unwrap()
    };
    let byte = |number: u16| u8::try_from(number).unwrap();
    for _ in 0..100 {
        let mut steps = Vec::new();
        for _ in 0..120 {
            let peer = if below(3) == 0 { Peer::Foe } else { Peer::Friend };
            let which = byte(below(200));
            steps.push(match below(16) {
                0 | 1 => Step::Send(peer, byte(1 + below(3)), (below(8) > 0).then(|| 1 + below(60_000)), below(3) > 0),
                2..=4 => Step::Say(peer),
                5 => Step::Post(1 + below(60_000)),
                6 => Step::Pass(below(2000), byte(below(4))),
                7 => Step::Edit(which, Edit::Drop),
                8 => Step::Edit(which, Edit::Swap),
                9 => Step::Edit(which, if below(2) == 0 { Edit::Again(which) } else { Edit::Cut(below(1400)) }),
                10 => Step::Edit(which, Edit::Field(Field::Offset, below(3000).into())),
                11 => Step::Receive(Some((byte(below(64)), below(3000)))),
                12 => Step::Read(peer),
                _ => Step::Receive(None),
            });
        }
        trains::run(&steps);
    }
}
