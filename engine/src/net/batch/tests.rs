//! Batches: what lies where in them, and which frames go together.

use core::ops::Range;

use cutthrough_wire::frame::Kind;

use super::super::own::tests::Few;
use super::*;

/// No seal; whether it leaves payloads as they are.
struct Unsealed(bool);

impl Seal for Unsealed {
    fn is_bare(&self) -> bool {
        self.0
    }
    fn sum(&mut self, _: u64, _: &[u8], _: &[u8]) -> [u8; SEAL_BYTES] {
        [0; SEAL_BYTES]
    }
    fn seal(&mut self, _: u64, _: &[u8], _: &mut [u8]) -> [u8; SEAL_BYTES] {
        [0; SEAL_BYTES]
    }
    fn seal_into(&mut self, _: u64, _: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        out.copy_from_slice(plain);
        [0; SEAL_BYTES]
    }
    fn open(&mut self, _: u64, _: &[u8], _: &[u8; SEAL_BYTES], _: &mut [u8]) -> bool {
        true
    }
}

const HEADER: Header = Header {
    kind: Kind::Data,
    body: 0,
    tag: 0,
    generation: 0,
    awaited: 0,
    number: 0,
    below: 0,
    held: 0,
    waits: false,
    calls: 0,
    asks: 0,
    bits: 0,
    words: [0; 2],
};

/// Batches of frames of these bodies, each as long as the rule lets it be.
fn frames(bodies: impl Iterator<Item = usize>, most: usize) -> Vec<usize> {
    let (mut batch, mut batches) = (Batch::default(), Vec::new());
    for body in bodies {
        if !batch.is_empty() && !batch.takes(HEADER_BYTES + body, most) {
            batches.push(batch.frames());
            batch.clear();
        }
        batch.push(HEADER, &mut Unsealed(true), |own| own.extend(&[0; 1000][..body]));
    }
    batches.push(batch.frames());
    batches
}

#[test]
fn short_frames_go_together_as_far_as_the_kernel_takes_them() {
    assert_eq!(frames(core::iter::repeat_n(10, 200), 65_000), [64, 64, 64, 8]);
    assert_eq!(frames(core::iter::repeat_n(936, 12), 5_000), [5, 5, 2]);
    // Only the last may be shorter, and none longer.
    assert_eq!(frames([10, 10, 9, 9, 10].into_iter(), 65_000), [3, 1, 1]);
}

/// A payload with memory for what is sealed.
struct Roomy(Vec<u8>);

impl Load for Roomy {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        &self.0[offset..self.0.len().min(offset + most)]
    }
    fn hold(&self) -> Option<Box<dyn Hold>> {
        Some(Box::new(Few(Vec::new(), usize::MAX)))
    }
}

#[test]
fn what_is_sealed_is_the_same_in_memory_of_its_payload() {
    let (plain, roomy) = (vec![7; 250], Roomy(vec![7; 250]));
    let (mut own, mut held) = (Batch::default(), Batch::default());
    for (message, offset, len) in [(3, 0, 100), (3, 100, 100), (4, 0, 50)] {
        own.push_payload(HEADER.sealed(), None, (message, offset, len), &plain, &mut Unsealed(false));
        held.push_payload(HEADER.sealed(), None, (message, offset, len), &roomy, &mut Unsealed(false));
        // And the end of one that is filled up.
        assert_eq!(own.room(HEADER_BYTES + 100, 65_000), held.room(HEADER_BYTES + 100, 65_000));
    }
    for batch in [&mut own, &mut held] {
        batch.push(HEADER, &mut Unsealed(false), |own| own.extend(b"a word"));
    }
    assert_eq!((own.own(), own.pieces()), (held.own(), held.pieces()));
    assert!(own.hold().is_none() && own.take_hold().is_none());
    let whole = own.own().to_vec();
    assert_eq!(held.hold().map(Hold::bytes), Some(&whole[..]));
    let (_, what) = held.take_hold().unwrap();
    assert_eq!(what, Held { first: 3, last: 4, end: 50 });
    held.clear();
    assert!(held.own().is_empty() && held.hold().is_none());
    // What goes bare, or by a ring, or begins with something else, has no use for it.
    held.push_payload(HEADER.sealed(), None, (3, 0, 100), &roomy, &mut Unsealed(true));
    assert!(held.hold().is_none());
    held.clear();
    held.go(Way { number: 1, ..Way::default() });
    held.push_payload(HEADER.sealed(), None, (3, 0, 100), &roomy, &mut Unsealed(false));
    assert!(held.hold().is_none());
    held.clear();
    held.go(Way::default());
    held.push(HEADER, &mut Unsealed(false), |own| own.extend(b"a word"));
    held.push_payload(HEADER.sealed(), None, (3, 0, 100), &roomy, &mut Unsealed(false));
    assert!(held.hold().is_none());
}

/// A payload that is copied; with memory for its batch, or none.
struct CopiedThere(Vec<u8>, bool);

impl Load for CopiedThere {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        self.0.piece(offset, most)
    }
    fn coalesces(&self, _: usize, _: bool) -> bool {
        true
    }
    fn hold(&self) -> Option<Box<dyn Hold>> {
        self.1.then(|| -> Box<dyn Hold> { Box::new(Few(Vec::new(), 2000)) })
    }
}

#[test]
fn what_goes_bare_is_the_same_in_memory_of_its_payload_unless_others_are_named() {
    let bytes: Vec<u8> = (0..250).collect();
    let pushed = |there| {
        let (load, mut batch) = (CopiedThere(bytes.clone(), there), Batch::default());
        for part in [(3, 0, 100), (3, 100, 100), (4, 0, 50)] {
            batch.push_payload(HEADER.sealed(), None, part, &load, &mut Summed);
        }
        batch
    };
    let (own, mut held) = (pushed(false), pushed(true));
    assert_eq!((own.own(), own.pieces(), own.copied()), (held.own(), held.pieces(), held.copied()));
    assert!(own.hold().is_none());
    assert_eq!(held.hold().map(Hold::bytes), Some(own.own()));
    for part in held.copied() {
        assert_eq!(held.own()[part.at..part.at + part.len], bytes[part.offset..part.offset + part.len]);
    }
    held.push_payload(HEADER.sealed(), None, (5, 0, 50), &bytes, &mut Summed);
    assert!(held.hold().is_none(), "not all of it lies there");
    assert_eq!(held.take_hold().map(|(_, what)| what), Some(Held { first: 3, last: 5, end: 50 }));
}

/// Hides what it seals, and never where somebody may still read.
struct Hidden(Range<usize>);

impl Seal for Hidden {
    fn is_bare(&self) -> bool {
        false
    }
    fn sum(&mut self, _: u64, _: &[u8], _: &[u8]) -> [u8; SEAL_BYTES] {
        unreachable!("only what is bare is summed")
    }
    fn seal(&mut self, number: u64, _: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        assert!(body.is_empty() || !self.0.contains(&body.as_ptr().addr()), "plain text lies there");
        body.iter_mut().for_each(|byte| *byte ^= 0x55);
        [number.to_le_bytes()[0]; SEAL_BYTES]
    }
    fn seal_into(&mut self, number: u64, _: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        out.iter_mut().zip(plain).for_each(|(out, plain)| *out = plain ^ 0x55);
        [number.to_le_bytes()[0]; SEAL_BYTES]
    }
    fn open(&mut self, _: u64, _: &[u8], _: &[u8; SEAL_BYTES], _: &mut [u8]) -> bool {
        false
    }
}

/// A payload in pieces of seven bytes, with memory for what is sealed, of these addresses, if there is any.
struct Pieces(Vec<u8>, Option<Vec<u8>>);

impl Load for Pieces {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        &self.0[offset..self.0.len().min(offset + most).min((offset / 7 + 1) * 7)]
    }
    fn hold(&self) -> Option<Box<dyn Hold>> {
        Some(Box::new(Few(Vec::with_capacity(self.1.as_ref()?.len()), usize::MAX)))
    }
}

#[test]
fn no_plain_text_lies_where_somebody_may_read() {
    let sealed = |room: Option<Vec<u8>>| {
        let (load, mut batch) = (Pieces(vec![7; 100], room), Batch::default());
        // Where it lies is known once something does.
        let mut seal = Hidden(0..0);
        batch.push_payload(HEADER.sealed(), None, (0, 0, 0), &load, &mut seal);
        if let Some(hold) = batch.hold() {
            let begin = hold.bytes().as_ptr().addr();
            seal.0 = begin..begin + 4096;
        }
        batch.push_payload(HEADER.sealed(), Some(&[9; OPENING_BYTES]), (0, 0, 50), &load, &mut seal);
        batch.push_payload(HEADER.sealed(), None, (0, 50, 5), &load, &mut seal);
        batch.push(HEADER, &mut seal, |own| own.extend(b"a word"));
        (batch.hold().is_some(), batch.own().to_vec())
    };
    let (own, held) = (sealed(None), sealed(Some(vec![0; 4096])));
    assert_eq!((own.0, held.0), (false, true));
    assert_eq!(own.1, held.1);
}

/// A payload that somebody else writes: each time that it is copied out it is another one.
struct Written(core::cell::Cell<u8>);

impl Load for Written {
    fn len(&self) -> usize {
        100
    }
    fn piece(&self, _: usize, _: usize) -> &[u8] {
        &[]
    }
    fn copy_out(&self, _: usize, out: &mut [u8]) -> bool {
        out.fill(self.0.replace(self.0.get() + 1));
        true
    }
}

/// Sums up what it sees.
struct Summed;

impl Seal for Summed {
    fn is_bare(&self) -> bool {
        true
    }
    fn sum(&mut self, _: u64, _: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        [body.iter().fold(0, |sum, byte| sum ^ byte); SEAL_BYTES]
    }
    fn seal(&mut self, number: u64, protected: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.sum(number, protected, body)
    }
    fn seal_into(&mut self, _: u64, _: &[u8], _: &[u8], _: &mut [u8]) -> [u8; SEAL_BYTES] {
        unreachable!("it is never a slice")
    }
    fn open(&mut self, _: u64, _: &[u8], _: &[u8; SEAL_BYTES], _: &mut [u8]) -> bool {
        true
    }
}

#[test]
fn what_somebody_else_writes_is_copied_before_it_is_summed_up() {
    let (load, mut batch) = (Written(core::cell::Cell::new(1)), Batch::default());
    for (offset, seen) in [(0, 1), (33, 2), (66, 3)] {
        let at = batch.own().len();
        batch.push_payload(HEADER.sealed(), None, (0, offset, 33), &load, &mut Summed);
        assert_eq!(batch.own()[at + HEADER_BYTES..], [seen; 33]);
        assert_eq!(batch.own()[at + SEALED_BYTES..at + HEADER_BYTES], [seen; SEAL_BYTES]);
    }
    assert!(matches!(batch.pieces(), [Piece::Own { .. }]), "{:?}", batch.pieces());
}

/// There is nothing to hide: what lies in pieces is summed where it is copied to, wherever that is.
#[test]
fn what_lies_in_pieces_goes_bare_in_memory_of_its_payload() {
    let (load, mut batch) = (Pieces((0..100).collect(), Some(vec![0; 4096])), Batch::default());
    for offset in [0, 50] {
        batch.push_payload(HEADER.sealed(), None, (0, offset, 50), &load, &mut Summed);
    }
    let held = batch.hold().expect("all of it lies there").bytes();
    for (frame, bytes) in held.chunks(HEADER_BYTES + 50).zip(load.0.chunks(50)) {
        let sum = bytes.iter().fold(0, |sum, byte| sum ^ byte);
        assert_eq!((&frame[SEALED_BYTES..HEADER_BYTES], &frame[HEADER_BYTES..]), (&[sum; SEAL_BYTES][..], bytes));
    }
}

/// A payload of which a part has lost its memory.
struct Torn;

impl Load for Torn {
    fn len(&self) -> usize {
        100
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        [7; 60].get(offset..).map_or(&[], |_| &[7; 60][offset..60.min(offset + most)])
    }
}

#[test]
fn nothing_of_a_payload_leaves_that_has_lost_its_memory() {
    for bare in [false, true] {
        let mut batch = Batch::default();
        batch.push_payload(HEADER.sealed(), None, (0, 0, 100), &Torn, &mut Unsealed(bare));
        assert_eq!(batch.own()[HEADER_BYTES..], [0; 100]);
        assert_eq!(batch.own()[SEALED_BYTES..HEADER_BYTES], [0xff; SEAL_BYTES]);
    }
}
