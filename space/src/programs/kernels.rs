//! What the programs compute between their messages. The programs that `bench/peers` puts beside them send by other
//! means and compute by this very code, so that what is compared is what they send.

use std::ops::Range;

/// A random number for each number (SplitMix64).
#[must_use]
pub(crate) fn random(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Adds a row times a square block to a row.
pub(crate) fn multiply_row(row: &[f64], block: &[f64], into: &mut [f64]) {
    for (factor, row) in row.iter().zip(block.chunks_exact(into.len())) {
        add(into, *factor, row);
    }
}

/// Adds `factor` times a vector to another.
pub(crate) fn add(into: &mut [f64], factor: f64, vector: &[f64]) {
    into.iter_mut().zip(vector).for_each(|(a, b)| *a += factor * b);
}

/// The product of two vectors.
pub(crate) fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The five-point matrix of a grid with rows of `side` points, times a vector that has a row of a neighbour, or zeros,
/// before and after it.
pub(crate) fn apply(side: usize, vector: &[f64], into: &mut [f64]) {
    for (y, row) in into.chunks_exact_mut(side).enumerate() {
        let rows = &vector[y * side..(y + 3) * side];
        let (above, rest) = rows.split_at(side);
        let (here, below) = rest.split_at(side);
        for x in 0..side {
            let left = if x > 0 { here[x - 1] } else { 0.0 };
            let right = if x + 1 < side { here[x + 1] } else { 0.0 };
            row[x] = 4.0 * here[x] - left - right - above[x] - below[x];
        }
    }
}

/// A mesh of `side` x `side` points, of whose edges `percent` in a hundred are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mesh {
    pub(crate) side: usize,
    pub(crate) percent: u64,
}

impl Mesh {
    /// Whether there is an edge from a point to the right, or down.
    pub(crate) fn has(self, point: usize, down: bool) -> bool {
        let inside =
            if down { point + self.side < self.side * self.side } else { !(point + 1).is_multiple_of(self.side) };
        inside && random(point as u64 * 2 + u64::from(down)) % 100 < self.percent
    }

    /// The least point of each point's component, within some rows.
    pub(crate) fn join(self, rows: Range<usize>) -> Vec<usize> {
        let first = rows.start * self.side;
        let mut parents: Vec<usize> = (0..rows.len() * self.side).collect();
        for point in 0..parents.len() {
            for (down, step) in [(false, 1), (true, self.side)] {
                if point + step < parents.len() && self.has(first + point, down) {
                    let (a, b) = (find(&mut parents, point), find(&mut parents, point + step));
                    parents[a.max(b)] = a.min(b);
                }
            }
        }
        (0..parents.len()).map(|point| first + find(&mut parents, point)).collect()
    }
}

/// The root of a point; the way to it becomes shorter.
fn find(parents: &mut [usize], mut point: usize) -> usize {
    while parents[point] != point {
        parents[point] = parents[parents[point]];
        point = parents[point];
    }
    point
}
