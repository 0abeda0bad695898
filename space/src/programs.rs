//! The seven programs: blocked matrix multiply, two sorts with short messages and in bulk, connected components, and
//! conjugate gradients. U-Net was judged by seven; of those only the matrix multiply is named in a text at hand.
//!
//! | file | what |
//! |---|---|
//! | `matmul`, `sample_sort`, `radix_sort`, `components`, `gradient` | a program each, and beside it a serial run |
//! | `kernels` | what they compute between their messages |

mod components;
mod gradient;
mod kernels;
mod matmul;
mod radix_sort;
mod sample_sort;

use std::ops::Range;
use std::time::Duration;

use crate::{Global, Space};

/// A program, and how large its problem is, over all ranks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Blocked matrix multiply, which fetches the next two blocks while it multiplies two.
    Matmul {
        /// Blocks in a row of a matrix.
        blocks: usize,
        /// Doubles in a row of a block.
        side: usize,
    },
    /// Sorts random numbers of 64 bits by samples, which say what range of them each rank gets.
    SampleSort {
        /// Whether they travel in bulk, or two in a short message.
        bulk: bool,
        /// How many there are.
        keys: usize,
    },
    /// Sorts random numbers of 24 bits by their digits.
    RadixSort {
        /// Whether they travel in bulk, or each in a short message.
        bulk: bool,
        /// How many there are.
        keys: usize,
    },
    /// The connected components of a square mesh of which some edges are missing.
    Components {
        /// Points in a row of the mesh.
        side: usize,
        /// Of a hundred edges, how many are there.
        percent: u64,
    },
    /// Conjugate gradients for the five-point matrix of a square grid.
    Gradient {
        /// Points in a row of the grid.
        side: usize,
        /// Iterations.
        iterations: usize,
    },
}

/// What a program comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Sorted keys of 24 bits.
    Keys(Vec<u32>),
    /// Sorted keys of 64 bits; or of each point the least of its component.
    Words(Vec<u64>),
    /// A matrix, or the solution of an equation.
    Doubles(Vec<f64>),
}

impl Values {
    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Keys(keys) => keys.iter().flat_map(|key| key.to_le_bytes()).collect(),
            Self::Words(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            Self::Doubles(doubles) => doubles.iter().flat_map(|double| double.to_le_bytes()).collect(),
        }
    }
}

/// How a rank's run of a program has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Time that the work took, from when all ranks were ready until all were done.
    pub time: Duration,
    /// What it came to, of all ranks; at rank 0 alone.
    pub values: Option<Values>,
}

/// A serial run: made before it is timed, as the ranks' data are.
pub type Serial = Box<dyn FnOnce() -> Values>;

impl Program {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Matmul { .. } => "matrix multiply",
            Self::SampleSort { bulk: false, .. } => "sample sort, short messages",
            Self::SampleSort { bulk: true, .. } => "sample sort, bulk",
            Self::RadixSort { bulk: false, .. } => "radix sort, short messages",
            Self::RadixSort { bulk: true, .. } => "radix sort, bulk",
            Self::Components { .. } => "connected components",
            Self::Gradient { .. } => "conjugate gradient",
        }
    }

    /// Whether so many ranks can run it.
    ///
    /// # Errors
    /// What is wrong.
    pub const fn check(self, ranks: u32) -> Result<(), &'static str> {
        match self {
            Self::Matmul { blocks, side } if blocks == 0 || side == 0 => Err("BLOCKS and SIDE are at least 1"),
            Self::Components { side, .. } | Self::Gradient { side, .. } if side < ranks as usize => {
                Err("SIDE has to be at least the number of ranks")
            }
            _ => Ok(()),
        }
    }

    /// Runs this rank's part of it.
    ///
    /// # Errors
    /// That of the rank.
    pub fn run<S: Space>(self, space: &mut S) -> Result<Done, S::Error> {
        match self {
            Self::Matmul { blocks, side } => matmul::run(space, blocks, side),
            Self::SampleSort { bulk, keys } => sample_sort::run(space, bulk, keys),
            Self::RadixSort { bulk, keys } => radix_sort::run(space, bulk, keys),
            Self::Components { side, percent } => components::run(space, kernels::Mesh { side, percent }),
            Self::Gradient { side, iterations } => gradient::run(space, side, iterations),
        }
    }

    /// The same on one processor, without ranks.
    #[must_use]
    pub fn serial(self) -> Serial {
        match self {
            Self::Matmul { blocks, side } => matmul::serial(blocks, side),
            Self::SampleSort { keys, .. } => sample_sort::serial(keys),
            Self::RadixSort { keys, .. } => radix_sort::serial(keys),
            Self::Components { side, percent } => components::serial(kernels::Mesh { side, percent }),
            Self::Gradient { side, iterations } => gradient::serial(side, iterations),
        }
    }

    /// Whether ranks have come to what a serial run comes to: the same bytes; only sums of conjugate gradients, which
    /// ranks add up in another order, may be off by a billionth of the greatest.
    #[must_use]
    pub fn agrees(self, came: &Values, serial: &Values) -> bool {
        match (self, came, serial) {
            (Self::Gradient { .. }, Values::Doubles(came), Values::Doubles(serial)) => gradient::near(came, serial),
            (Self::SampleSort { .. } | Self::RadixSort { .. }, ..) => came == serial && is_sorted(came),
            _ => came == serial,
        }
    }
}

fn is_sorted(values: &Values) -> bool {
    match values {
        Values::Keys(keys) => keys.is_sorted(),
        Values::Words(words) => words.is_sorted(),
        Values::Doubles(doubles) => doubles.is_sorted(),
    }
}

/// First and end of a rank's share of `total` things that are dealt out in runs of nearly the same length.
const fn share_of(rank: u32, size: u32, total: usize) -> Range<usize> {
    let (rank, size) = (rank as usize, size as usize);
    rank * total / size..(rank + 1) * total / size
}

/// That of this rank.
fn share<S: Space>(space: &S, total: usize) -> Range<usize> {
    share_of(space.rank(), space.size(), total)
}

/// Runs what all ranks do together, from when all are ready until all are done.
fn timed<S: Space, R>(
    space: &mut S,
    run: impl FnOnce(&mut S) -> Result<R, S::Error>,
) -> Result<(R, Duration), S::Error> {
    space.barrier()?;
    let begun = space.time()?;
    let result = run(space)?;
    space.barrier()?;
    Ok((result, space.time()?.saturating_sub(begun)))
}

/// At rank 0 what lies at all ranks, one rank's behind the other's: so many elements of each.
fn gather<S: Space, T: crate::Element>(
    space: &mut S,
    place: Global<T>,
    mut count: impl FnMut(&mut S, u32) -> Result<usize, S::Error>,
) -> Result<Option<Vec<T>>, S::Error> {
    if space.rank() > 0 {
        return Ok(None);
    }
    let mut all = Vec::new();
    for rank in 0..space.size() {
        let begin = all.len();
        let count = count(space, rank)?;
        all.resize(begin + count, T::default());
        space.read_bulk(place.on(rank), &mut all[begin..])?;
    }
    Ok(Some(all))
}

/// What a step of a search takes, or of a quicksort: load, compare, branch, and in half of the cases an exchange.
const COMPARE: u64 = 5;
/// To look at a digit: load the key, shift, mask, load a count or a place, add, store it.
const DIGIT: u64 = 6;
/// To move a key within memory: load it, load the place, store, add, store the place.
const MOVE: u64 = 5;

/// Operations to sort so many keys by comparison.
fn sorting(count: usize) -> crate::Work {
    crate::Work::integer(COMPARE * levels(count) * count as u64)
}

/// How often so many have to be halved.
fn levels(count: usize) -> u64 {
    u64::from(count.max(1).next_power_of_two().ilog2())
}
