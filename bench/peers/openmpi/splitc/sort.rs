//! Rust's sort for the C programs: what two programs sort alike says nothing about what they send.

/// Sorts numbers in place.
///
/// # Safety
/// `count` numbers lie at `numbers`, and nobody else uses them meanwhile.
// SAFETY: nothing else in the programs has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sort_numbers(numbers: *mut u64, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(numbers, count) }.sort_unstable();
}
