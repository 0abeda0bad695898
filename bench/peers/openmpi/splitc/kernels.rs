//! What the Split-C programs compute, and Rust's sort, for the C programs: what two programs compute alike says nothing
//! about what they send.

#[path = "../../../../space/src/programs/kernels.rs"]
mod kernels;

use std::slice::{from_raw_parts, from_raw_parts_mut};

use kernels::Mesh;

/// Sorts numbers in place.
///
/// # Safety
/// `count` numbers lie at `numbers`, and nobody else uses them meanwhile.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sort_numbers(numbers: *mut u64, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { from_raw_parts_mut(numbers, count) }.sort_unstable();
}

/// Adds a row times a block of `side` x `side` to a row.
///
/// # Safety
/// So many numbers lie there, and nobody else uses those at `into` meanwhile.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn multiply_row(side: usize, row: *const f64, block: *const f64, into: *mut f64) {
    // SAFETY: as the caller promises.
    let (row, block) = unsafe { (from_raw_parts(row, side), from_raw_parts(block, side * side)) };
    // SAFETY: as the caller promises.
    kernels::multiply_row(row, block, unsafe { from_raw_parts_mut(into, side) });
}

/// Adds `factor` times a vector to another.
///
/// # Safety
/// `count` numbers lie at each, and nobody else uses those at `into` meanwhile.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn add(into: *mut f64, factor: f64, vector: *const f64, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { kernels::add(from_raw_parts_mut(into, count), factor, from_raw_parts(vector, count)) };
}

/// The product of two vectors.
///
/// # Safety
/// `count` numbers lie at each.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn product(a: *const f64, b: *const f64, count: usize) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { kernels::product(from_raw_parts(a, count), from_raw_parts(b, count)) }
}

/// The matrix of a grid times a vector of `rows` rows, and one before and after them.
///
/// # Safety
/// So many rows of `side` numbers lie there, and nobody else uses those at `into` meanwhile.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apply(side: usize, vector: *const f64, into: *mut f64, rows: usize) {
    // SAFETY: as the caller promises.
    let (vector, into) = unsafe { (from_raw_parts(vector, (rows + 2) * side), from_raw_parts_mut(into, rows * side)) };
    kernels::apply(side, vector, into);
}

/// Whether there is an edge of a mesh from a point to the right, or down.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub extern "C" fn mesh_has(side: usize, percent: u64, point: usize, down: bool) -> bool {
    Mesh { side, percent }.has(point, down)
}

/// The least point of each point's component, within some rows of a mesh; they are never given back.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub extern "C" fn mesh_join(side: usize, percent: u64, first: usize, end: usize) -> *mut usize {
    Mesh { side, percent }.join(first..end).leak().as_mut_ptr()
}
