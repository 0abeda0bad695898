//! The staging ring against an endless row of bytes.

use cutthrough_segment::copy::Copying;
use cutthrough_segment::map::{Mapping, Writers};
use cutthrough_segment::stage::Staging;
use proptest::prelude::*;

const RING: usize = 4096;
/// The ring does not start at the start of its mapping, and does not end at its end.
const START: usize = 128;

fn staging() -> (Staging, std::sync::Arc<Mapping>) {
    let (mapping, _) = Mapping::create("staging", (RING + 2 * START) as u64, 4096, Writers::Maker).unwrap();
    (Staging::new((mapping.clone(), START as u64), RING as u64), mapping)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_come_out_as_they_went_in(
        start in prop_oneof![0..9000_u64, u64::MAX - 20_000..u64::MAX - 10_000],
        moves in proptest::collection::vec((0..1500_usize, 0..1500_usize, any::<u8>()), 1..60),
    ) {
        let (staging, mapping) = staging();
        let mut held: std::collections::VecDeque<u8> = std::collections::VecDeque::new();
        let (mut written, mut read) = (start, start);
        for (into, out, seed) in moves {
            let room = RING - held.len();
            let bytes: Vec<u8> = (0..into.min(room)).map(|at| seed.wrapping_add(at.to_le_bytes()[0])).collect();
            staging.copy_in(written, &bytes, Copying::Pieces);
            written = written.wrapping_add(bytes.len() as u64);
            held.extend(&bytes);
            let mut bytes = vec![0; out.min(held.len())];
            staging.copy_out(read, &mut bytes, Copying::Pieces);
            read = read.wrapping_add(bytes.len() as u64);
            prop_assert!(held.drain(..bytes.len()).eq(bytes));
        }
        let mut around = [0xff; 2 * START];
        let (before, behind) = around.split_at_mut(START);
        mapping.copy_out(0, before, Copying::Pieces);
        mapping.copy_out((START + RING) as u64, behind, Copying::Pieces);
        prop_assert_eq!(around, [0; 2 * START], "bytes beside the ring were written");
    }
}

#[test]
fn the_whole_ring_can_be_filled_across_its_end() {
    let (staging, _) = staging();
    let bytes: Vec<u8> = (0..RING).map(|at| at.to_le_bytes()[0]).collect();
    staging.copy_in(RING as u64 - 1, &bytes, Copying::Pieces);
    let mut out = vec![0; bytes.len()];
    staging.copy_out(RING as u64 - 1, &mut out, Copying::Pieces);
    assert_eq!(out, bytes);
}

#[test]
#[should_panic = "more than the ring holds"]
fn more_than_the_ring_holds_is_refused() {
    let (staging, _) = staging();
    staging.copy_in(0, &[0; RING + 1], Copying::Pieces);
}
