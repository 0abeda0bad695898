//! The one place where chance is asked for.

use rustix::io::Errno;

/// Fills `bytes` with numbers that nobody can guess, from the kernel; it waits until there are some. On a thread with
/// simulated time, which only the feature `simulated` has, they are the seed's, and no secret.
///
/// # Errors
/// As the kernel says: there is no such call.
pub fn fill(bytes: &mut [u8]) -> Result<(), Errno> {
    #[cfg(feature = "simulated")]
    if crate::simulated::time::chance(bytes) {
        return Ok(());
    }
    let mut have = 0;
    while have < bytes.len() {
        have += rustix::rand::getrandom(&mut bytes[have..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

/// One such number.
///
/// # Errors
/// As of [`fill`].
pub fn number() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
