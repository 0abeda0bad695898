//! The one place of this crate where unsafe code may be.
#![allow(unsafe_code, reason = "see each block")]

#[cfg(feature = "tokio")]
pub mod readable;
