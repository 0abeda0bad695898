//! Tokens: one use, revocable, checked before a byte moves. Whatever becomes of the payload, its control message comes.

use cutthrough::{Counter, Landing, NoMemory, Path, Payload, Refused, RevokeError, Token};

use super::config;
use crate::bytes::{check, pattern};
use crate::join::landed;
use crate::{Capability, Join, Pair};

/// Sends a payload to a token that is not good, in every way there is, and checks that its control message says so.
fn refused(join: &dyn Join, pair: &mut Pair, len: usize, token: Token, why: Refused) {
    let mut ways: Vec<fn(&mut crate::Side, usize, Token) -> Path> =
        vec![|a, len, token| a.send_copy(b"dropped", &pattern(1, len), Some(token)).path];
    if !join.skips(Capability::SharedPages) {
        ways.push(|a, len, token| a.send_pages(b"dropped", 1, &[len], Some(token)).path);
    }
    for way in ways {
        let before = pair.b.endpoint.counter(Counter::PayloadDropped);
        pair.both(
            |a| way(a, len, token),
            |b| {
                let message = b.message();
                assert_eq!(message.control(), b"dropped");
                assert!(
                    matches!(message.payload(), Payload::Dropped(reason) if *reason == why),
                    "{:?}",
                    message.payload()
                );
                assert_eq!((message.receipt().path, message.payload_len()), (Path::Dropped, 0));
            },
        );
        assert_eq!(pair.b.endpoint.counter(Counter::PayloadDropped), before + 1);
    }
}

/// The second payload that carries a token is dropped, whatever the token named.
pub fn a_token_is_good_once(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for landing in [Landing::Pages(4096), Landing::Buffer(vec![0; 4096])] {
        let token = pair.b.endpoint.grant(pair.b.channel, landing).expect("a token");
        pair.a.send_copy(b"first", &pattern(3, 4096), Some(token));
        let first = pair.b.message();
        refused(join, &mut pair, 4096, token, Refused::Used);
        match first.payload() {
            Payload::Landed(landed) => check(3, &landed.to_vec()),
            Payload::Buffer(bytes) => check(3, bytes),
            other => panic!("{other:?}"),
        }
    }
    assert!(pair.b.endpoint.counter(Counter::TokenReused) >= 2);
}

/// A payload that carries a revoked token is dropped.
pub fn a_revoked_token_drops_the_payload(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for landing in [Landing::Pages(100), Landing::Buffer(vec![7; 100])] {
        let token = pair.b.endpoint.grant(pair.b.channel, landing.clone()).expect("a token");
        assert_eq!(pair.b.endpoint.revoke(pair.b.channel, token), Ok(landing));
        refused(join, &mut pair, 100, token, Refused::Revoked);
        assert_eq!(pair.b.endpoint.revoke(pair.b.channel, token), Err(RevokeError::Refused(Refused::Revoked)));
    }
    assert!(pair.b.endpoint.counter(Counter::TokenRevoked) >= 2);
}

/// A payload whose token has the wrong key is dropped; the right one is good all the same, and its place untouched.
pub fn a_wrong_key_drops_the_payload(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Buffer(vec![0xaa; 200])).expect("a token");
    for key in [0, 1, token.key ^ 1, u64::MAX] {
        refused(join, &mut pair, 200, Token { key, ..token }, Refused::Wrong);
    }
    let untouched = pair.b.endpoint.revoke(pair.b.channel, token);
    assert_eq!(untouched, Ok(Landing::Buffer(vec![0xaa; 200])));
}

/// A token with an index beyond the table, or of a place that was never granted, is wrong, and no byte moves: not even
/// into the place whose key it carries.
pub fn a_foreign_index_drops_the_payload(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let token = grant_marked_page(&mut pair);
    for index in [token.index + 1, token.index + 256, 255, 256, u16::MAX] {
        refused(join, &mut pair, 4096, Token { index, ..token }, Refused::Wrong);
    }
    page_is_marked(&mut pair, token);
}

/// A payload longer than what its token names is dropped, and the place is good for another.
pub fn a_payload_too_long_for_its_token_is_dropped(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let token = grant_marked_page(&mut pair);
    refused(join, &mut pair, 4097, token, Refused::TooLong);
    page_is_marked(&mut pair, token);
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Buffer(vec![0x55; 99])).expect("a token");
    refused(join, &mut pair, 100, token, Refused::TooLong);
    assert_eq!(pair.b.endpoint.revoke(pair.b.channel, token), Ok(Landing::Buffer(vec![0x55; 99])));
    let reasons = [Counter::PayloadDropped, Counter::TokenShort].map(|counter| pair.b.endpoint.counter(counter));
    assert!(reasons[0] > 0 && reasons[1] == reasons[0], "dropped, and for this reason: {reasons:?}");
}

/// Grants one page whose bytes were left by an earlier payload.
fn grant_marked_page(pair: &mut Pair) -> Token {
    for _ in 0..2 {
        let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(4096)).expect("a token");
        pair.a.send_copy(b"mark", &pattern(77, 4096), Some(token));
        check(77, &landed(&pair.b.message()).to_vec());
        assert!(pair.b.endpoint.poll().is_none());
    }
    pair.b.endpoint.grant(pair.b.channel, Landing::Pages(4096)).expect("a token")
}

/// Checks that the granted page holds what it held: an empty payload is put there, and the page looked at as it lies.
fn page_is_marked(pair: &mut Pair, token: Token) {
    pair.a.send_copy(b"look", &pattern(77, 1), Some(token));
    let message = pair.b.message();
    let (address, _) = landed(&message).pieces().next().expect("a byte");
    if pair.wire {
        // Which pages a token names is not seen from outside: others may take their place.
        return;
    }
    let mut seen = [0; 4096];
    let own = std::fs::File::open("/proc/self/mem").expect("our own memory");
    std::os::unix::fs::FileExt::read_exact_at(&own, &mut seen, address.addr() as u64).expect("the page");
    check(77, &seen);
}

/// What a token named can be granted again once it is revoked: nothing leaks.
pub fn revoking_gives_the_memory_back(join: &dyn Join) {
    let small = cutthrough::Config { landing_bytes: 8 * 4096, ..config() };
    let mut pair = join.pair(config(), small);
    for _ in 0..1000 {
        let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(8 * 4096)).expect("all pages");
        assert_eq!(pair.b.endpoint.grant(pair.b.channel, Landing::Pages(1)), Err(NoMemory::NoPages));
        assert_eq!(pair.b.endpoint.revoke(pair.b.channel, token), Ok(Landing::Pages(8 * 4096)));
    }
}

/// Private memory that the peer had been granted comes back when it is gone, once, and only to who asks for it.
pub fn what_was_granted_comes_back_when_the_peer_is_gone(join: &dyn Join) {
    let Pair { a, b: mut side, .. } = join.pair(config(), config());
    let buffer = |byte| Landing::Buffer(vec![byte; 99]);
    let [used, first, second] = [1, 2, 3].map(|byte| side.endpoint.grant(side.channel, buffer(byte)).expect("a token"));
    let pages = side.endpoint.grant(side.channel, Landing::Pages(10)).expect("a token");
    let mut a = a;
    a.send_copy(b"to a token", &pattern(5, 99), Some(used));
    drop(side.message());
    drop(a);
    side.closed();
    let mut revoke = |token| side.endpoint.revoke(side.channel, token);
    assert_eq!((revoke(second), revoke(first)), (Ok(buffer(3)), Ok(buffer(2))));
    for token in [first, used, pages, Token { key: second.key ^ 1, ..second }] {
        assert!(matches!(revoke(token), Err(RevokeError::Closed(_))), "{token:?}");
    }
}

/// A channel grants 256 tokens at a time, and again as many once they are used.
pub fn the_table_of_tokens_is_bounded(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for round in 0..3u64 {
        let grant = |b: &mut crate::Side| b.endpoint.grant(b.channel, Landing::Buffer(vec![0; 8]));
        let tokens: Vec<Token> = (0..256).map(|_| grant(&mut pair.b).expect("a token")).collect();
        assert_eq!(grant(&mut pair.b), Err(NoMemory::NoTokens));
        let refused = pair.b.endpoint.grant_or_return(pair.b.channel, Landing::Buffer(vec![9; 8]));
        assert_eq!(refused, Err((NoMemory::NoTokens, Landing::Buffer(vec![9; 8]))));
        for token in tokens {
            pair.a.send_copy(b"", &round.to_le_bytes(), Some(token));
            match pair.b.message().payload() {
                Payload::Buffer(bytes) => assert_eq!(*bytes, round.to_le_bytes()),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Granted pages are whole pages, by every path: what fits into them is taken.
pub fn pages_round_up(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(5000)).expect("a token");
    assert_eq!(pair.a.send_copy(b"", &pattern(1, 8192), Some(token)).path, pair.path(Path::Put));
    check(1, &landed(&pair.b.message()).to_vec());
    if join.skips(Capability::SharedPages) {
        return;
    }
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(5000)).expect("a token");
    pair.a.send_pages(b"", 2, &[8192], Some(token));
    check(2, &landed(&pair.b.message()).to_vec());
}
