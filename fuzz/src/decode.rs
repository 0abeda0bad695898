//! Bytes and words of the other side, decoded and checked. None of these functions may panic on any input.

use arbitrary::Arbitrary;
use cutthrough_engine::check;
use cutthrough_engine::hello::hear;
use cutthrough_wire::hello::Word;
use cutthrough_wire::layout::{LINE_BYTES, Line, RECORDS, RUNS, Sizes};
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{CONTROL_MAX, Header, PAYLOAD_MAX, SLOT_BYTES};
use cutthrough_wire::token::{Place, TOKENS, Token};

/// Hears any record. What is understood says the same when it is said again, and what makes a channel has a layout that
/// holds.
///
/// # Panics
/// If one of these is not so.
pub fn hello(bytes: &[u8]) {
    if let Ok(word) = Word::from_bytes(bytes) {
        assert_eq!(Word::from_bytes(&word.to_bytes()), Ok(word));
    }
    match hear(bytes) {
        Ok(greeting) => layout(&greeting.sizes),
        Err(refused) => {
            let _ = (refused.answer(), refused.to_string());
        }
    }
}

/// Lays any sizes out: the parts follow each other without overlap.
///
/// # Panics
/// If they do not.
pub fn layout(sizes: &Sizes) {
    let Ok(layout) = sizes.layout() else { return };
    let slot_bytes = SLOT_BYTES as u64 * u64::from(sizes.slots);
    let parts = [
        (0, Line::Left.offset() + LINE_BYTES),
        (layout.slots, slot_bytes),
        (layout.runs, u64::from(RUNS) * 8),
        (layout.free, u64::from(RECORDS) * 8),
        (layout.returns, u64::from(RECORDS) * 8),
        (layout.tokens, u64::from(TOKENS) * 16),
        (layout.claims, u64::from(TOKENS) * 8),
        (layout.staging, u64::from(sizes.staging_bytes)),
        (layout.pool, u64::from(sizes.pool_pages) * u64::from(sizes.page_bytes)),
        (layout.out_bytes, 0),
    ];
    assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{layout:?}");
    assert!(layout.slots.is_multiple_of(SLOT_BYTES as u64) && layout.pool.is_multiple_of(u64::from(sizes.page_bytes)));
    assert_eq!(layout.landing_bytes, u64::from(sizes.landing_pages) * u64::from(sizes.page_bytes));
}

/// Checks any header.
///
/// # Panics
/// If one passes that is out of its bounds, or does not survive its words.
pub fn slot(words: [u64; 3]) {
    if let Ok(header) = Header::from_words(words) {
        assert_eq!(header.to_words(), words);
    }
    if let Ok(header) = check::header(words) {
        assert!(usize::from(header.control_len) <= CONTROL_MAX && u64::from(header.payload_len) <= PAYLOAD_MAX);
    }
}

/// Everything that is a word of a ring or a table, or a counter.
#[derive(Debug, Arbitrary)]
pub struct Words {
    token: [u8; 16],
    word: u64,
    sizes: [u32; 5],
    pages: u32,
    page_shift: u8,
    len: u32,
    counters: [u64; 4],
    ring_shift: u8,
}

/// Checks any words.
///
/// # Panics
/// If something passes that is out of its bounds.
pub fn words(words: &Words) {
    let token = Token::from_bytes(words.token);
    assert_eq!(Token::from_bytes(token.to_bytes()), token);

    let place = Place::from_word(words.word);
    assert_eq!(Place::from_word(place.to_word()), place);

    let [slots, page_bytes, staging_bytes, pool_pages, landing_pages] = words.sizes;
    layout(&Sizes { slots, page_bytes, staging_bytes, pool_pages, landing_pages });

    let run = Run::from_word(words.word);
    assert_eq!(run.to_word(), words.word);
    let page_bytes = 1 << (12 + words.page_shift % 10);
    if let Ok(run) = check::run(run, words.pages) {
        assert!(run.count > 0 && u64::from(run.first) + u64::from(run.count) <= u64::from(words.pages));
        if check::covered(words.len, u64::from(run.count), page_bytes).is_ok() {
            assert!(u64::from(words.len) <= u64::from(run.count) * u64::from(page_bytes));
        }
    }

    let [before, alleged, drained, staged] = words.counters;
    let ring = 1 << (16 + words.ring_shift % 15);
    if check::staged(before, alleged, drained, ring).is_ok() {
        assert!(alleged.wrapping_sub(drained) <= ring && alleged.wrapping_sub(before) <= ring);
    }
    if let Ok(now) = check::drained(before, alleged, staged) {
        assert!(now.wrapping_sub(before) <= staged.wrapping_sub(before));
    }
}
