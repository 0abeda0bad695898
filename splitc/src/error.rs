//! What goes wrong between ranks.

use std::time::Duration;

/// Why an operation of a world has ended. After nearly any of these nothing can be had of other ranks any more: every
/// later operation that needs them says the same; what a rank does in its own part goes on. But [`Error::Outside`],
/// [`Error::Unaligned`] and [`Error::NoRank`] are found before anything is sent, and change nothing; nor does
/// [`Error::TooLarge`] where all ranks say it, nor [`Error::Left`] of an operation on a rank that has finished before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The variables of the environment that say who this process is cannot be used.
    #[error("{0}")]
    Variables(String),
    /// The endpoint could not be opened, or cannot listen.
    #[error("rank {rank} cannot take part: {why}")]
    Endpoint {
        /// This rank.
        rank: u32,
        /// What the endpoint says.
        why: String,
    },
    /// Some ranks have not come.
    #[error("{} not come within {within:?}: see that every rank is started, and reached at {at}", who(.ranks))]
    Absent {
        /// Who is missing.
        ranks: Vec<u32>,
        /// How long they were waited for.
        within: Duration,
        /// The address of the first of them.
        at: String,
    },
    /// A rank takes part in another job, or thinks that there are more or fewer ranks.
    #[error("rank {rank} is of another job, or counts other ranks: start all ranks with the same variables")]
    Stranger {
        /// Which one.
        rank: u32,
    },
    /// A rank has died, or has ended without [`World::finish`](crate::World::finish).
    #[error("rank {rank} is gone: {why}")]
    Lost {
        /// Which one.
        rank: u32,
        /// What is known of it.
        why: String,
    },
    /// A rank has finished, and this one waits for it, or asks something of it.
    #[error("rank {rank} has finished while this rank waits for it: all ranks have to meet as often")]
    Left {
        /// Which one.
        rank: u32,
    },
    /// A rank is there, but has not done what was waited for.
    #[error(
        "nothing that is waited for came from rank {rank} within {within:?}: it stands still, or computes for longer, \
         for which the deadline can be raised (CUTTHROUGH_DEADLINE, in seconds)"
    )]
    Late {
        /// Which one.
        rank: u32,
        /// How long it was waited for.
        within: Duration,
    },
    /// A pointer leads outside of a rank's part.
    #[error("{len} bytes from {offset:#x} on do not lie in the part of rank {rank}: check the pointer and the count")]
    Outside {
        /// Whose part.
        rank: u32,
        /// Where the bytes begin.
        offset: u64,
        /// How many there are.
        len: u64,
    },
    /// Elements cannot be had where they lie, because of where that is.
    #[error("elements of {bytes} bytes cannot be had in place at {offset:#x}, which is no multiple of that")]
    Unaligned {
        /// Where they begin.
        offset: u64,
        /// Bytes of one.
        bytes: usize,
    },
    /// There is no such rank.
    #[error("there is no rank {rank} among {size}")]
    NoRank {
        /// The number.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// The ranks have asked for arrays of different sizes.
    #[error("the ranks have not asked for the same memory: every rank has to make the same arrays in the same order")]
    Uneven,
    /// A rank has no memory for an array. Where no rank has any, nothing has changed.
    #[error("no memory for {count} elements of {bytes} bytes at each rank: make a smaller array")]
    TooLarge {
        /// How many elements were asked for.
        count: usize,
        /// Bytes of one.
        bytes: usize,
    },
    /// A rank has sent what makes no sense.
    #[error("rank {rank} broke a rule: {why}")]
    Broken {
        /// Which one.
        rank: u32,
        /// What it did.
        why: String,
    },
}

fn who(ranks: &[u32]) -> String {
    match ranks {
        [rank] => format!("rank {rank} has"),
        ranks => {
            let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("ranks {} have", names.join(", "))
        }
    }
}
