//! Long transfers, and what is said when ranks do not agree on how long.

use cutthrough_splitc::{Error, World};

/// Lengths about those of the pieces that a long read goes in, and far beyond, of a rank's own part and of another's.
#[test]
fn a_long_read_brings_every_element() {
    const LENS: [usize; 6] = [(128 << 10) / 8, (128 << 10) / 8 + 1, (128 << 10) - 1, 128 << 10, 400_001, 1_100_003];
    World::threads(2, |world| {
        let (numbers, bytes) = (world.alloc::<u64>(LENS[5])?, world.alloc::<u8>(LENS[5])?);
        let its = |rank: u32, at: usize| (u64::from(rank) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let rank = world.rank();
        for (at, number) in world.in_place_mut(numbers, LENS[5])?.iter_mut().enumerate() {
            *number = its(rank, at);
        }
        for (at, byte) in world.in_place_mut(bytes, LENS[5])?.iter_mut().enumerate() {
            *byte = its(rank, at).to_le_bytes()[7];
        }
        world.barrier()?;
        for (from, len) in [0, 1].into_iter().flat_map(|from| LENS.map(|len| (from, len))) {
            let begin = LENS[5] - len;
            let mut read = vec![0_u64; len];
            world.read_bulk(numbers.on(from).at(begin), &mut read)?;
            assert!((begin..).zip(&read).all(|(at, number)| *number == its(from, at)), "{len} from {from}");
            let mut read = vec![0_u8; len];
            world.read_bulk(bytes.on(from).at(begin), &mut read)?;
            assert!(
                (begin..).zip(&read).all(|(at, byte)| *byte == its(from, at).to_le_bytes()[7]),
                "{len} from {from}"
            );
        }
        world.barrier()
    })
    .expect("no rank fails");
}

/// Rank 0 said that rank 1 was lost, which had said why itself.
#[test]
fn threads_say_the_cause_and_not_whom_others_have_lost() {
    let cause = || Error::Variables("what went wrong at rank 1".into());
    let end = World::threads(3, |world| {
        world.barrier()?;
        if world.rank() == 1 { Err(cause()) } else { world.barrier() }
    });
    assert_eq!(end, Err(cause()));
    let uneven = World::threads(3, |world| world.broadcast_bulk(0, &mut vec![0_u8; 10 + world.rank() as usize]));
    assert_eq!(uneven, Err(Error::Uneven));
}

/// It was another request's place there, or there was none.
#[test]
fn what_one_world_has_asked_for_is_no_others() {
    World::threads(1, |one| {
        let place = one.alloc::<u64>(1)?;
        one.set_local(place, &[7])?;
        let coming = one.get(place)?;
        World::threads(1, |other| {
            let place = other.alloc::<u64>(1)?;
            let its = other.get(place)?;
            let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.wait_for(&coming)));
            let why = *waited.expect_err("a panic").downcast::<&str>().expect("words");
            assert!(why.contains("another world"), "{why}");
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.arrived(&coming).is_some()));
            assert!(looked.is_err());
            assert_eq!(other.take(its)?, 0);
            Ok(())
        })?;
        assert_eq!(one.take(coming)?, 7);
        Ok(())
    })
    .expect("no rank fails");
}
