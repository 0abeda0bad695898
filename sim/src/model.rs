//! Parts of machines, each alone: how bytes get on with time. Families of machines put them together.
//!
//! Parts answer for a point in time instead of being stepped through it. A mover that is left alone costs no events.

pub mod bus;
pub mod flow;
pub mod turns;
