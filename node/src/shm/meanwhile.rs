//! What an endpoint does for its other channels while a send in one of them waits.
//!
//! The receiver that is waited for may wait for room itself, in a channel to somebody who waits for room in a channel
//! to this endpoint. Each of them goes on only if the one before it does: so whoever waits takes out of the way what
//! others have sent to it.

use crate::stat::Stat;

/// The other channels of an endpoint.
pub trait Meanwhile {
    /// Whether there are none.
    fn is_nobody(&self) -> bool;

    /// Takes out of the way what their peers have sent. True if there was anything.
    fn relieve(&mut self, stat: &Stat) -> bool;
}

/// A channel that is alone.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl Meanwhile for Alone {
    fn is_nobody(&self) -> bool {
        true
    }

    fn relieve(&mut self, _stat: &Stat) -> bool {
        false
    }
}
