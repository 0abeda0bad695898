//! The shared memory of a channel, and the one home of the unsafe code that touches it.
//!
//! In the order in which a message meets them: [`map`] makes and maps memory, [`half`] names its parts, [`landing`] is
//! the part that both sides write, [`pool`] and [`page`] lend out runs of pages, [`copy`] says how bytes are copied,
//! [`stage`] is the ring that private payloads are pulsed through, [`ring`] carries the slots of control messages,
//! [`record`] carries single words back and forth, [`share`] lets both sides copy one payload, [`shelf`] takes what was
//! dropped, [`bell`] wakes a sleeper. [`private`] is what no other process maps.
//!
//! Two rules make the protection. What a side can write is written by that side alone: every piece of memory has one
//! writer, and the other side maps it read-only (only landing pages are writable by both). And what the other side
//! wrote is never a reference: it is loaded word by word through atomics, or copied out as bytes, because it may
//! change at any instant.

pub mod bell;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod half;
#[cfg(not(loom))]
pub mod landing;
#[cfg(not(loom))]
pub mod map;
#[cfg(not(loom))]
pub mod page;
pub mod pool;
#[cfg(not(loom))]
pub mod private;
pub mod record;
pub mod ring;
#[cfg(not(loom))]
mod room;
pub mod share;
pub mod shelf;
#[cfg(not(loom))]
pub mod stage;
pub mod sync;
