//! Bytes only: what two endpoints may read of each other.
//!
//! This crate says where every field lies and what values it may have: the [`slot`] that carries a control message,
//! the [`layout`] of the memory that two processes share, the [`hello`] that they exchange first, the [`token`] that
//! names where a payload shall land, the packed [`run`] of pages, and the [`frame`] that crosses a network, with the
//! trait of its [`seal`]. It moves nothing and decides nothing.
//!
//! Everything decoded here is an *allegation* by the other side: decoding never panics, whatever the bytes, and says
//! only that the fields are well formed. Whether they are *true* (bounds, ownership, one use) is checked by the
//! engine. The rules are numbered in `docs/wire.md`.
#![no_std]
#![forbid(unsafe_code)]

pub mod frame;
pub mod hello;
pub mod layout;
pub mod run;
pub mod seal;
pub mod slot;
pub mod token;

/// Version of the wire: of the hello, the slot and the layout together (rule W1). Two sides of different versions
/// refuse each other by name.
pub const VERSION: u16 = 1;
