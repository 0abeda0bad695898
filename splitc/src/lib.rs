//! A global address space over many processes, as Split-C had it (Culler and others, Supercomputing 1993), on active
//! messages: every process is a **rank** with a part of the space; any rank reads and writes any part.
//!
//! ```
//! use cutthrough_splitc::{Op, World};
//!
//! # fn main() -> Result<(), cutthrough_splitc::Error> {
//! let sums = World::threads(3, |world| {
//!     // A hundred numbers, dealt out to the ranks in blocks of ten.
//!     let numbers = world.spread::<u64>(100, 10)?;
//!     if world.rank() == 0 {
//!         for i in 0..100 {
//!             world.store(numbers.place(i), i as u64)?;
//!         }
//!     }
//!     world.all_store_sync()?;
//!     // Everybody reads all of them: asked for at once, waited for once.
//!     let mut sum = 0;
//!     let coming: Vec<_> = (0..100).map(|i| world.get(numbers.place(i))).collect::<Result<_, _>>()?;
//!     world.sync()?;
//!     for number in coming {
//!         sum += world.take(number)?;
//!     }
//!     world.reduce(Op::Sum, sum)
//! })?;
//! assert_eq!(sums, [3 * 4950; 3]);
//! # Ok(())
//! # }
//! ```
//!
//! A program that `cutthrough run -n 4 -- PROGRAM` starts begins with [`World::from_environment`] and ends with
//! [`World::finish`].
//!
//! | file | what happens there |
//! |---|---|
//! | `join` | ranks find each other |
//! | `cutthrough-space` | what lies where: numbers, global pointers, spread arrays; the seven programs |
//! | `world` | get, put, store |
//! | `batch` | short writes that go together |
//! | `waiting` | what has come, and who is late or gone |
//! | `gets` | what was asked for and has not come yet |
//! | `part` | what the others do with this rank's part |
//! | `together` | barrier, broadcast, reduce, scan |
//! | `space` | a rank as the seven programs know it |
//!
//! # What is promised
//!
//! A rank that waits serves the others. Every wait ends: by what was waited for, or by an [`Error`] that names the rank
//! that is gone, late or finished. What one rank writes to one place arrives in the order in which it was written; for
//! any other order, [`World::sync`] or meet. A pointer that leads outside of a part is found out before anything is
//! sent, as every part is as long as this rank's own; the world goes on.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod gets;
mod join;
mod part;
#[cfg(target_endian = "little")]
mod space;
mod together;
mod waiting;
mod world;

#[doc(inline)]
pub use cutthrough_space::{Element, Global, Op, Spread};
pub use error::Error;
pub use gets::Coming;
pub use join::Settings;
pub use world::World;

/// The code of the guide compiles, and runs: as the only rank, where the environment names no job.
#[cfg(doctest)]
#[doc = include_str!("../../docs/splitc.md")]
struct Guide;
