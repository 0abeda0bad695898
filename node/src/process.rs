//! Which process something belongs to: a child that it forks has a copy of its memory, and none of its threads, names
//! and channels.

/// A process, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The one that asks.
    #[must_use]
    pub fn this() -> Self {
        Self(std::process::id())
    }

    /// Whether it is the one that asks, and not a child of it.
    #[must_use]
    pub fn is_this(self) -> bool {
        self == Self::this()
    }
}
