//! The words of a global address space, and programs that are written in them.
//!
//! A program of Split-C knows where something lies ([`Global`], [`Spread`]), what can lie there ([`Element`]), and what
//! it may do with it ([`Space`]). Whoever is a [`Space`] can run it: a rank of `cutthrough-splitc`, which sends
//! messages to others, or a node that is simulated. So the [`programs`] by which U-Net was judged are written once.
//!
//! | file | what |
//! |---|---|
//! | `element`, `place` | what lies where: numbers, global pointers, spread arrays |
//! | `space` | what a program asks for |
//! | `together` | broadcast, reduce and scan, as letters from rank to rank |
//! | `programs` | the seven, each beside a serial run |
//!
//! What a program computes between two messages is done by the processor that runs it, wherever that is. A machine that
//! is not there cannot time it, so programs say how many operations it is ([`Work`], [`Space::computes`]).

#![forbid(unsafe_code)]

mod element;
mod place;
pub mod programs;
mod space;
pub mod together;

pub use element::{Element, Op};
pub use place::{Global, Spread};
pub use space::{Space, Work};
