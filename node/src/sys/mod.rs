//! The one place of this crate where unsafe code may be. Public for the programs of this project alone.
#![allow(unsafe_code, reason = "see each block")]

pub(crate) mod counter;
pub(crate) mod credentials;
pub mod datagram;
pub(crate) mod files;
pub(crate) mod forked;
pub(crate) mod lent;
pub(crate) mod made_way;
pub(crate) mod netlink;
pub(crate) mod packet;
#[cfg(feature = "tokio")]
pub mod readable;
pub(crate) mod spliced;
pub mod sum;
pub mod xdp;
