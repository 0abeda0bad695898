use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;

/// Somebody who reads all payloads, some time; or has pages for them.
enum User {
    Reads,
    HasPages,
}

impl Memory for User {
    type Load = Vec<u8>;
    type Place = Vec<u8>;

    fn place<'a>(
        &mut self,
        _channel: usize,
        want: &Want,
        _behind: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Placing<Vec<u8>> {
        match self {
            Self::Reads => Placing::Reader,
            Self::HasPages => Placing::Here(alloc::vec![0; want.bytes as usize]),
        }
    }

    fn guess(&mut self, _channel: usize) -> Option<&mut Vec<u8>> {
        None
    }
}

/// What makes way is bounded: payloads beyond that wait for their reader, and do not keep shorter ones waiting.
#[test]
fn no_more_makes_way_than_there_may_be() {
    const LENS: [u32; 5] = [1 << 30, 700 << 20, 400 << 20, 300 << 20, 24 << 20];
    let now = Instant::from_nanos(1);
    let mut inbox: Inbox<Vec<u8>> = Inbox::new(8, 100_000, 0);
    for (number, payload) in (0..).zip(LENS) {
        let limits = Limits { messages: 8, unasked: 0 };
        let (token, control) = (None, [0; CONTROL_MAX]);
        let opening = Opening { payload, unasked: 1000, token, pages: false, limits, control_len: 0, control };
        inbox.open(number, Box::new(opening), 0, &mut User::Reads, now).unwrap();
    }
    let mut room = 2 << 30;
    inbox.relieve(now, 1_000_000_000, &mut room);
    assert_eq!((inbox.relieved(), room), (0, 2 << 30), "a moment is nothing");
    inbox.relieve(now, 0, &mut room);
    assert_eq!((inbox.relieved(), room), (2 << 30, 0));
    let most: Vec<u32> = inbox.wanting().map(|wanting| wanting.most).collect();
    assert_eq!((most[0], most[1], most[3], most[4]), (LENS[0], LENS[1], LENS[3], LENS[4]));
    assert!(most[2] <= 1000 + 100_000, "it may come as far as any other, beside what comes unasked");
    // Whoever reads one makes room for it.
    inbox.advance();
    inbox.forget(0);
    inbox.relieve(now, 0, &mut (1 << 30));
    assert_eq!(inbox.relieved(), u64::from(LENS[1..].iter().sum::<u32>()));
    assert!(!inbox.has_unread());
}

/// Opens a payload of which so many bytes come unasked, for which there is a page.
fn opened(inbox: &mut Inbox<Vec<u8>>, number: u64, payload: u32, unasked: u32) {
    let limits = Limits { messages: 8, unasked: 0 };
    let opening =
        Opening { payload, unasked, token: None, pages: true, limits, control_len: 0, control: [0; CONTROL_MAX] };
    inbox.open(number, Box::new(opening), 0, &mut User::HasPages, Instant::default()).unwrap();
}

fn came(inbox: &mut Inbox<Vec<u8>>, number: u64, offset: u32, bytes: usize) {
    let bytes = alloc::vec![7; bytes];
    assert_eq!(inbox.data(number, offset, &Bytes::Here(&bytes), None, Instant::default()), Ok(true));
}

/// The receipt counts every copy: of what lay aside before its place was known, or was copied before it was brought in.
#[test]
fn every_copy_of_a_byte_is_counted() {
    let mut inbox: Inbox<Vec<u8>> = Inbox::new(8, 100_000, 0);
    let told = |inbox: &Inbox<Vec<u8>>, number| {
        let story = inbox.known_now(number).unwrap().story();
        (story.times, story.copied)
    };
    // Opened first; then a part before its opening; then such parts as have been copied.
    for (number, early, before, times) in [(0, false, 0, 1), (1, true, 0, 2), (2, false, 1, 2), (3, true, 1, 3)] {
        inbox.before = before;
        if early {
            came(&mut inbox, number, 1000, 1000);
        }
        opened(&mut inbox, number, 2000, 2000);
        assert_eq!(told(&inbox, number), if early { (times, 1000) } else { (0, 0) });
        inbox.before = if early { 0 } else { before };
        came(&mut inbox, number, 0, 1000);
        assert_eq!(told(&inbox, number), (times, if early { 2000 } else { 1000 }), "{number}");
    }
}

/// What is asked for beyond the bytes that come unasked ends where a frame does, as long as others come behind it.
#[test]
fn what_is_asked_for_is_whole_frames() {
    let mut inbox = Inbox::new(8, 100_000, 0);
    opened(&mut inbox, 0, 50_000, 3_000);
    assert_eq!(inbox.may_be_granted(0, 20_000), Some(20_000), "nobody knows how long frames are");
    came(&mut inbox, 0, 0, 856);
    came(&mut inbox, 0, 856, 1_000);
    assert_eq!(inbox.may_be_granted(0, 20_500), Some(20_000));
    assert_eq!(inbox.may_be_granted(0, 3_500), Some(3_500), "less than a frame");
    assert_eq!(inbox.may_be_granted(0, 50_000), Some(50_000), "all of it");
    assert_eq!(inbox.may_be_granted(0, 3_000), None);
    inbox.granted(0, 20_000);
    assert_eq!(inbox.may_be_granted(0, 41_999), Some(41_000));
}

/// The message that has gone on last goes on, and then the others; none further than it may.
#[test]
fn what_came_last_is_expected_to_go_on() {
    let mut inbox = Inbox::new(8, 100_000, 0);
    let coming = |inbox: &Inbox<Vec<u8>>| inbox.coming().collect::<Vec<_>>();
    opened(&mut inbox, 0, 5_000, 3_000);
    opened(&mut inbox, 1, 5_000, 5_000);
    came(&mut inbox, 0, 0, 1_000);
    assert_eq!(coming(&inbox), [(0, (1_000, 3_000), false), (1, (0, 5_000), true)]);
    came(&mut inbox, 1, 0, 1_000);
    assert_eq!(coming(&inbox), [(1, (1_000, 5_000), true), (0, (1_000, 3_000), false)]);
    came(&mut inbox, 0, 1_000, 2_000);
    assert_eq!(coming(&inbox), [(1, (1_000, 5_000), true)], "it has to be asked for more");
    inbox.granted(0, 5_000);
    assert_eq!(coming(&inbox), [(0, (3_000, 5_000), true), (1, (1_000, 5_000), true)]);
}

/// What is there was shown, perhaps, and is not written over by a part that says other bytes: only what was missing is
/// taken of that.
#[test]
fn what_is_there_stays_as_it_is() {
    let limits = Limits { messages: 8, unasked: 0 };
    let parts: [(u32, &[u8]); 4] = [(2, b"cd"), (6, b"gh"), (0, b"????????????"), (3, b"!!!!!!!!!")];
    for (pages, lend) in [(true, false), (false, false), (false, true)] {
        let (mut inbox, now) = (Inbox::new(8, 1000, 0), Instant::default());
        let mut user = if pages { User::HasPages } else { User::Reads };
        let opening =
            Opening { payload: 13, unasked: 13, token: None, pages, limits, control_len: 0, control: [0; CONTROL_MAX] };
        inbox.open(0, Box::new(opening), 0, &mut user, now).unwrap();
        inbox.advance();
        let mut into = [0; 13];
        let mut read = |inbox: &mut Inbox<Vec<u8>>, valid| {
            inbox.read(now, &mut Reading { message: 0, into: &mut into }, valid, lend).map(|read| read.0)
        };
        assert_eq!(read(&mut inbox, 0), (!pages).then_some(0));
        for (offset, bytes) in parts {
            let mut reading = Reading { message: 0, into: &mut into };
            assert_eq!(inbox.data(0, offset, &Bytes::Here(bytes), Some(&mut reading), now), Ok(true));
        }
        let there = match inbox.landing(0) {
            Some(place) => place[..12].to_vec(),
            None => {
                assert_eq!(inbox.read(now, &mut Reading { message: 0, into: &mut into }, 0, lend), Some((12, false)));
                into[..12].to_vec()
            }
        };
        assert_eq!(there, b"??cd??gh????", "pages {pages}, lend {lend}");
    }
}

/// Has a long payload come aside, all of it unasked, and read: where it lay.
fn lay_aside(inbox: &mut Inbox<Vec<u8>>, number: u64, bytes: u32) -> *const u8 {
    let limits = Limits { messages: 8, unasked: 0 };
    let (token, control) = (None, [0; CONTROL_MAX]);
    let opening = Opening { payload: bytes, unasked: bytes, token, pages: false, limits, control_len: 0, control };
    inbox.open(number, Box::new(opening), 0, &mut User::Reads, Instant::default()).unwrap();
    came(inbox, number, 0, bytes as usize);
    let arrival = inbox.known_now(number).unwrap();
    let Target::Aside(aside) = &arrival.target else { panic!("{arrival:?}") };
    let at = aside.get(0, 1).as_ptr();
    let (now, mut into) = (Instant::default(), alloc::vec![0; bytes as usize]);
    let read = inbox.read(now, &mut Reading { message: number, into: &mut into }, 0, true);
    assert_eq!((read, &*into), (Some((bytes as usize, true)), &*alloc::vec![7; bytes as usize]));
    inbox.forget(number);
    inbox.limits(true);
    at
}

/// Memory in which a long payload lay is used again by the next one, and given back when none has come for a second.
#[test]
fn memory_of_what_lay_aside_is_used_again() {
    const BYTES: u32 = 300_000;
    let mut inbox: Inbox<Vec<u8>> = Inbox::new(8, 1 << 20, 0);
    let first = lay_aside(&mut inbox, 0, BYTES);
    assert_eq!(inbox.spare.bytes(), BYTES as usize);
    lay_aside(&mut inbox, 1, 1000);
    assert_eq!(inbox.spare.bytes(), BYTES as usize, "a short one leaves it alone");
    assert_eq!(lay_aside(&mut inbox, 2, BYTES), first);
    for (at_ns, bytes) in [(1, BYTES as usize), (900_000_000, BYTES as usize), (1_000_000_001, 0)] {
        inbox.rest(Instant::from_nanos(at_ns));
        assert_eq!(inbox.spare.bytes(), bytes, "after {at_ns} ns");
    }
}

/// No more of it is kept than may come aside.
#[test]
fn no_more_memory_is_kept_than_may_come_aside() {
    let mut inbox: Inbox<Vec<u8>> = Inbox::new(8, 1 << 20, 0);
    let allowances = [(1 << 20, 300_000), (150_000, 300_000), (149_999, 0)];
    for (number, (allowance, kept)) in (0..).zip(allowances) {
        inbox.allow(allowance);
        lay_aside(&mut inbox, number, 300_000);
        assert_eq!(inbox.spare.bytes(), kept, "{allowance} bytes may come unasked");
    }
}
