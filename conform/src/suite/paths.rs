//! Payloads of every size by every path: each byte, and what the receipts say.

use std::num::NonZeroU64;

use cutthrough::{Config, Counter, Landing, PAYLOAD_MAX, PageSize, Path, Payload, Policy, Receipt, SendError, Token};

use super::config;
use crate::bytes::{SIZES, check, pattern};
use crate::join::{keep_house, landed};
use crate::random::Random;
use crate::{Capability, Join, Pair};

/// Checks path, copies and length of a receipt.
fn expect(receipt: &Receipt, path: Path, copies: u32, len: usize) {
    if receipt.path == Path::Wire {
        // Received in place, or copied there, and then out of there, if it is read. A sender copies what may go
        // again, a short payload that waits once more into the frame that it shares, and all into a ring's memory.
        assert!(receipt.copies <= 3 && receipt.placed <= receipt.bytes, "{receipt:?}");
        assert_eq!((receipt.path, receipt.bytes), (path, len as u64));
        return;
    }
    assert_eq!((receipt.path, receipt.copies, receipt.bytes), (path, copies, len as u64));
    assert!(receipt.finished >= receipt.started && receipt.delivered());
}

/// The same of a payload that has come and was not read: over a network it was copied exactly if some of it was not
/// received where it belongs.
fn expect_came(receipt: &Receipt, path: Path, copies: u32, len: usize) {
    expect(receipt, path, copies, len);
    if receipt.path == Path::Wire {
        // Once, or more often where parts came that nobody knew a place for, or that landed in another one.
        assert_eq!(receipt.copies == 0, receipt.placed == receipt.bytes, "{receipt:?}");
    }
}

/// A payload in one page run: no copy, whatever the size.
pub fn by_reference(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for len in SIZES {
        refer(&mut pair, &[len]);
    }
}

/// Sends a list of pages and checks the payload as it lies there.
fn refer(pair: &mut Pair, lens: &[usize]) {
    let len: usize = lens.iter().sum();
    expect(&pair.a.send_pages(b"pages", len as u64, lens, None), Path::Reference, 0, len);
    let mut message = pair.b.message();
    assert_eq!(message.control(), b"pages");
    expect_came(&message.receipt(), Path::Reference, 0, len);
    check(len as u64, &landed(&message).to_vec());
    assert_eq!(landed(&message).pieces().map(|piece| piece.1).sum::<usize>(), len);
    expect(&pair.b.read_checked(&mut message, len as u64), Path::Reference, 1, len);
}

/// Payloads in lists of pages, each of which is filled to its end.
pub fn by_reference_in_lists(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for lens in [&[4096, 4096][..], &[8192, 4096, 100], &[4096; 31], &[1 << 20, 64 << 10, 4096, 1]] {
        refer(&mut pair, lens);
    }
}

/// Lists of many runs, more of them altogether than the ring of runs holds at a time.
pub fn lists_of_many_runs(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for _ in 0..4 {
        refer(&mut pair, &[4096; 3000]);
    }
}

/// A list that can never be sent is refused by another name than one that has to wait, and its pages go back.
pub fn a_list_longer_than_its_ring_is_refused(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for runs in [4095, 4096, 5000] {
        let page = |_| pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
        let pages = (0..runs).map(page).collect();
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        assert_eq!(outgoing.attach_list(pages).send().map(|_| ()), Err(SendError::ListTooLong), "{runs} runs");
    }
    refer(&mut pair, &[4096; 4094]);
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(4094 * 4096)).expect("a token");
    let sent = pair.a.send_pages(b"", 1, &[4096; 4094], Some(token));
    expect(&sent, Path::Get, 1, 4094 * 4096);
    check(1, &landed(&pair.b.message()).to_vec());
}

/// Whoever asks for room before a list of pages is sent loses no list: it is sent once there is room.
pub fn a_list_waits_for_room(join: &dyn Join) {
    const LENS: [usize; 300] = [4096; 300];
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    let mut sent = 0;
    while pair.a.endpoint.has_room_for_list(pair.a.channel, LENS.len()) {
        pair.a.send_pages(b"", sent, &LENS, None);
        sent += 1;
    }
    let page = |_| pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
    let pages = LENS.into_iter().map(page).collect();
    let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
    assert_eq!(outgoing.attach_list(pages).send().map(|_| ()), Err(SendError::TooManyRuns), "after {sent} lists");
    pair.both(
        |a| {
            while !a.endpoint.has_room_for_list(a.channel, LENS.len()) {
                assert!(a.endpoint.poll().is_none());
            }
            a.send_pages(b"", sent, &LENS, None);
        },
        |b| (0..=sent).for_each(|number| check(number, &landed(&b.message()).to_vec())),
    );
}

/// The longest payload there may be goes by reference: nothing of it is touched but what is used. One byte more does
/// not go.
pub fn the_longest_payload(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let longest = usize::try_from(PAYLOAD_MAX).expect("it can be mapped");
    let mut pair = join.pair(Config { pool_bytes: PAYLOAD_MAX + 4096, ..config() }, config());
    let pages = [longest, 1].map(|len| pair.a.endpoint.page(pair.a.channel, len).expect("pages"));
    let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
    assert_eq!(outgoing.attach_list(pages.into()).send().map(|_| ()), Err(SendError::TooLong));
    let mut pages = pair.a.endpoint.page(pair.a.channel, longest).expect("they have gone back");
    let ends = pattern(1, 200);
    pages[..100].copy_from_slice(&ends[..100]);
    pages[longest - 100..].copy_from_slice(&ends[100..]);
    let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
    expect(&outgoing.attach(pages).send().expect("sent"), Path::Reference, 0, longest);
    let message = pair.b.message();
    expect(&message.receipt(), Path::Reference, 0, longest);
    let (mut first, mut last) = ([0; 100], [0; 100]);
    landed(&message).read_at(0, &mut first);
    landed(&message).read_at(longest - 100, &mut last);
    check(1, &[first, last].concat());
}

/// A payload that posted pages would hold only in more runs than a list may have comes another way.
pub fn too_many_small_pages_are_passed_over(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 4096), Ok(4096));
    cut(&mut pair, 4095 * 4096);
    put(&mut pair, 4094 * 4096);
}

/// Private memory into posted pages: one copy.
pub fn put_from_the_free_queue(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for len in SIZES {
        assert_eq!(pair.b.endpoint.post(pair.b.channel, len, 1), Ok(1));
        put(&mut pair, len);
    }
}

/// Sends private memory that is put into pages which `b` has posted, and checks it.
fn put(pair: &mut Pair, len: usize) {
    let path = pair.path(Path::Put);
    let (sent, ()) = pair.both(
        |a| a.send_copy(b"put", &pattern(len as u64, len), None),
        |b| {
            let message = b.message();
            assert_eq!(message.control(), b"put");
            expect_came(&message.receipt(), path, 1, len);
            check(len as u64, &landed(&message).to_vec());
        },
    );
    expect(&sent, path, 1, len);
}

/// A payload that needs several posted runs is spread over them.
pub fn put_into_several_runs(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 600), Ok(600));
    for len in [4097, 8192, 64 << 10, (64 << 10) + 1, 1 << 20] {
        put(&mut pair, len);
    }
}

/// `b` grants a place, `a` sends to it: the message as `b` sees it.
fn to_token(
    pair: &mut Pair,
    len: usize,
    landing: Landing,
    send: impl FnOnce(&mut crate::Side, Token) -> Receipt + Send,
    path: Path,
    copies: u32,
) -> Payload {
    let path = pair.path(path);
    let token = pair.b.endpoint.grant(pair.b.channel, landing).expect("a token");
    let (sent, payload) = pair.both(
        |a| send(a, Token::from_bytes(token.to_bytes())),
        |b| {
            let mut message = b.message();
            assert_eq!(message.control(), b"to a token");
            expect_came(&message.receipt(), path, copies, len);
            message.take_payload()
        },
    );
    expect(&sent, path, copies, len);
    payload
}

/// Private memory into the pages that a token names: one copy.
pub fn put_by_token(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for len in SIZES {
        let send = |a: &mut crate::Side, token| a.send_copy(b"to a token", &pattern(len as u64, len), Some(token));
        match to_token(&mut pair, len, Landing::Pages(len), send, Path::Put, 1) {
            Payload::Landed(landed) => check(len as u64, &landed.to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

/// Pages copied into the pages that a token names, by the sender alone or by both sides at the same time, as was found
/// to be faster: one copy.
pub fn copied_by_token_into_pages(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for len in SIZES.into_iter().filter(|len| *len > 0).flat_map(|len| [len; 20]) {
        let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(len)).expect("a token");
        let ((), payload) = pair.both(
            |a| {
                let sent = a.send_pages(b"to a token", len as u64, &[len], Some(token));
                assert!(matches!(sent.path, Path::Put | Path::Shared), "{sent:?}");
                assert_eq!((sent.copies, sent.bytes), (1, len as u64));
            },
            |b| {
                let mut message = b.message();
                let receipt = message.receipt();
                // Which of the two has copied all of it, if one has.
                assert!(matches!(receipt.path, Path::Put | Path::Shared | Path::Get), "{receipt:?}");
                assert_eq!((receipt.copies, receipt.bytes), (1, len as u64));
                message.take_payload()
            },
        );
        match payload {
            Payload::Landed(landed) => check(len as u64, &landed.to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

/// Where the receiver looks only when the sender has copied everything, it has copied nothing, and says so.
pub fn copied_by_token_into_pages_by_the_sender(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for len in SIZES.into_iter().filter(|len| *len > 0).flat_map(|len| [len; 20]) {
        let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(len)).expect("a token");
        let counters = |side: &crate::Side| [Counter::Copies, Counter::CopiedBytes].map(|of| side.endpoint.counter(of));
        let before = [counters(&pair.a), counters(&pair.b)];
        expect(&pair.a.send_pages(b"to a token", len as u64, &[len], Some(token)), Path::Put, 1, len);
        let message = pair.b.message();
        expect_came(&message.receipt(), Path::Put, 1, len);
        assert_eq!(message.receipt().movers, 1);
        check(len as u64, &landed(&message).to_vec());
        let [[copies, bytes], at_b] = before;
        assert_eq!([counters(&pair.a), counters(&pair.b)], [[copies + 1, bytes + len as u64], at_b]);
    }
}

/// Pages fetched into the private memory that a token names: one copy.
pub fn fetched_by_token_into_memory(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for len in SIZES {
        let send = |a: &mut crate::Side, token| a.send_pages(b"to a token", len as u64, &[len], Some(token));
        match to_token(&mut pair, len, Landing::Buffer(vec![0xee; len + 7]), send, Path::Get, 1) {
            Payload::Buffer(bytes) => {
                assert_eq!(bytes.len(), len);
                check(len as u64, &bytes);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Private memory to private memory: two copies.
pub fn cut_through(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for len in SIZES {
        cut(&mut pair, len);
    }
}

/// Sends private memory through the staging ring, and checks it.
fn cut(pair: &mut Pair, len: usize) {
    let path = pair.path(Path::CutThrough);
    let (sent, ()) = pair.both(
        |a| a.send_copy(b"cut through", &pattern(len as u64, len), None),
        |b| {
            let mut message = b.message();
            assert_eq!(message.control(), b"cut through");
            assert_eq!(message.payload_len(), len);
            let receipt = b.read_checked(&mut message, len as u64);
            // One more if this side was kept from reading for so long that the payload was set aside.
            expect(&receipt, path, receipt.copies.clamp(2, 3), len);
            assert!(receipt.pulses > 0 || len == 0);
        },
    );
    expect(&sent, path, 2, len);
}

/// Private memory into the private memory that a token names: two copies.
pub fn cut_through_by_token(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for len in SIZES {
        let send = |a: &mut crate::Side, token| a.send_copy(b"to a token", &pattern(len as u64, len), Some(token));
        match to_token(&mut pair, len, Landing::Buffer(vec![0xee; len + 7]), send, Path::CutThrough, 2) {
            Payload::Buffer(bytes) => {
                assert_eq!(bytes.len(), len);
                check(len as u64, &bytes);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Every page size on either side, also different ones.
pub fn every_page_size(join: &dyn Join) {
    use PageSize::{K4, K8, K64, M2};
    for (left, right) in [(K4, K4), (K8, K8), (K64, K64), (M2, M2), (K4, M2), (M2, K8)] {
        let sized = |page_size| Config { page_size, ..config() };
        let mut pair = join.pair(sized(left), sized(right));
        cut(&mut pair, (2 << 20) + 1);
        for len in [1, 4097, (64 << 10) + 1, (2 << 20) + 1] {
            if !join.skips(Capability::SharedPages) {
                refer(&mut pair, &[len]);
            }
            assert_eq!(pair.b.endpoint.post(pair.b.channel, len, 1), Ok(1));
            put(&mut pair, len);
        }
    }
}

/// Every way to cut payloads into pulses delivers, also where the two sides differ.
pub fn every_policy(join: &dyn Join) {
    let least = |bytes| NonZeroU64::new(bytes);
    let policies = [
        Policy::StoreAndForward,
        Policy::Fixed(NonZeroU64::MIN.saturating_add(511)),
        Policy::Fixed(NonZeroU64::MIN.saturating_add((1 << 20) - 1)),
        Policy::Adaptive { minpulse: None },
        Policy::Adaptive { minpulse: least(1) },
        Policy::Adaptive { minpulse: least(1 << 30) },
    ];
    for (number, policy) in policies.into_iter().enumerate() {
        let other = policies[(number + 1) % policies.len()];
        for against in [policy, other] {
            let mut pair = join.pair(Config { policy, ..config() }, Config { policy: against, ..config() });
            for len in [0, 1, 4097, (64 << 10) + 1, 1 << 20] {
                cut(&mut pair, len);
            }
        }
    }
}

/// Payloads of many lengths, sent one behind the other, land in posted places or wait for their readers: each whole, in
/// its order.
pub fn streams_of_many_lengths(join: &dyn Join) {
    const LENS: [usize; 9] = [4096, 8192, 8192, 100, 5000, 20_000, 24 << 10, 1, 12_000];
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 24 << 10, 8), Ok(8));
    let lens = || (0..300_u64).map(|number| (number, LENS[(number * number % 31) as usize % LENS.len()]));
    pair.both(
        |a| {
            for (number, len) in lens() {
                a.send_copy(&number.to_le_bytes(), &pattern(number, len), None);
            }
        },
        |b| {
            for (number, len) in lens() {
                let mut message = b.message();
                assert_eq!((message.control(), message.payload_len()), (&number.to_le_bytes()[..], len));
                b.read_checked(&mut message, number);
            }
        },
    );
}

/// Whether more than half of the bytes of 128 payloads of `len` bytes, which were sent one behind the other before
/// anybody looked, were received where they belong, in pages that are posted, and some payloads without any copy, by
/// their receipts: in one of five streams, because on a busy machine no train may be like the last.
///
/// # Panics
/// If one of them does not land in its place, or its receipt contradicts itself.
pub fn a_stream_is_placed(join: &dyn Join, len: usize) -> bool {
    is_placed(join, len, true)
}

/// The same of payloads that lie in pages of the sender's, for which none is posted: they land in pages of the
/// receiver's.
///
/// # Panics
/// As of [`a_stream_is_placed`].
pub fn a_stream_of_pages_is_placed(join: &dyn Join, len: usize) -> bool {
    is_placed(join, len, false)
}

fn is_placed(join: &dyn Join, len: usize, posted: bool) -> bool {
    (0..5).any(|_| {
        let (placed, whole) = placed_of_a_stream(join, len, posted);
        placed > 64 * len as u64 && (whole > 0 || !posted)
    })
}

/// Bytes that were received where they belong, and payloads that nobody has copied.
fn placed_of_a_stream(join: &dyn Join, len: usize, posted: bool) -> (u64, u32) {
    const MESSAGES: u32 = 128;
    let wide = || Config { landing_bytes: 64 << 20, ..Config::default() };
    let mut pair = join.pair(wide(), wide());
    if posted {
        assert_eq!(pair.b.endpoint.post(pair.b.channel, len, MESSAGES), Ok(MESSAGES));
    }
    for number in 0..u64::from(MESSAGES) {
        if posted {
            pair.a.send_copy(b"", &pattern(number, len), None);
        } else {
            pair.a.send_pages(b"", number, &[len], None);
        }
    }
    let (mut placed, mut whole) = (0, 0);
    for number in 0..u64::from(MESSAGES) {
        while pair.a.endpoint.poll().is_some() {}
        let message = pair.b.message();
        check(number, &landed(&message).to_vec());
        let receipt = message.receipt();
        expect_came(&receipt, Path::Wire, 0, len);
        placed += receipt.placed;
        whole += u32::from(receipt.copies == 0);
    }
    (placed, whole)
}

/// Sends payloads of all lengths, from pages and from private memory, sixteen before anybody looks, to who has pages
/// posted or not: many land where they do not belong. How many frames were taken for forged, and for how many there was
/// no place.
///
/// # Panics
/// If one of them does not arrive as it was sent.
pub fn forged_and_unplaced(join: &dyn Join, posted: bool) -> [u64; 2] {
    const AT_ONCE: u64 = 16;
    const LONGEST: [u64; 4] = [100, 4000, 8000, 20_000];
    let mut pair = join.pair(Config::default(), Config::default());
    if posted {
        assert_eq!(pair.b.endpoint.post(pair.b.channel, 8192, 64), Ok(64));
    }
    for (round, (longest, mix)) in (0..).zip((0..60).map(|round| (LONGEST[round / 3 % 4], round % 3))) {
        let mut random = Random(round);
        // Of one length, of two, of all.
        let mut len = || match mix {
            0 => longest,
            1 => 1 + longest / (1 + u64::from(random.below(5) == 0)),
            _ => 1 + random.below(longest),
        };
        let numbers = AT_ONCE * round..AT_ONCE * (round + 1);
        let payloads: Vec<_> = numbers.map(|number| (number, usize::try_from(len()).expect("short"))).collect();
        for &(number, len) in &payloads {
            if number % 7 < 5 {
                pair.a.send_pages(b"", number, &[len], None);
            } else {
                pair.a.send_copy(b"", &pattern(number, len), None);
            }
        }
        for &(number, len) in &payloads {
            while pair.a.endpoint.poll().is_some() {}
            let mut message = pair.b.message();
            assert_eq!(message.payload_len(), len);
            pair.b.read_checked(&mut message, number);
        }
    }
    keep_house(&mut pair.b.endpoint, |event| panic!("{event:?}"));
    [Counter::FramesForged, Counter::FramesUnplaced].map(|counter| pair.b.endpoint.counter(counter))
}

/// What has landed where it does not belong is taken in all the same, and not for what others have sent.
///
/// # Panics
/// If that is not so.
pub fn what_lands_elsewhere_is_not_forged(join: &dyn Join) {
    for posted in [true, false] {
        let [forged, _] = forged_and_unplaced(join, posted);
        assert!(forged == 0 || join.damages(), "{forged} frames, posted: {posted}");
    }
}
