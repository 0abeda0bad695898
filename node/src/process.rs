//! Which process something belongs to: a child that it forks has a copy of its memory, and none of its threads, names
//! and channels.

use crate::sys::forked::own_number;

/// A process, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The one that asks.
    #[must_use]
    pub fn this() -> Self {
        Self(own_number())
    }

    /// Whether it is the one that asks, and not a child of it. Costs next to nothing.
    #[must_use]
    #[inline]
    pub fn is_this(self) -> bool {
        self == Self::this()
    }
}
