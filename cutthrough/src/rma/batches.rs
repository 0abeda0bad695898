//! How long operations are cut into messages.

use super::extents::{EXTENT_BYTES, Extent};

/// Bytes of one message with several runs, without their list. In shared memory: what is under way then stays in a
/// second-level cache between the copy in and the copy out. Measured with 20,000 random pages of 16 KiB: 64 KiB is
/// about 6 per cent faster than 256 KiB.
const BATCH: usize = 64 << 10;
/// Over a network, where a message begins and ends trains of frames of its own: the same pages are 10 to 18 per cent
/// faster than by 64 KiB, which is a train and some frames. By 256 KiB they are 6 per cent faster still, but each of a
/// message is there only when all of them are.
const BATCH_ON_WIRE: usize = 128 << 10;
/// Messages of an operation under way.
pub(super) const DEPTH: usize = 8;
/// Most runs in one message.
const LIST: usize = 512;

/// How long the messages of an operation may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// Bytes that a channel has for one, with its list.
    pool: usize,
    /// Bytes of one that is a piece of more, without its list.
    pub(super) batch: usize,
}

impl Lengths {
    /// On a channel that has so many bytes for messages, over a network or not.
    pub(super) fn new(pool: usize, is_wire: bool) -> Self {
        let most = if is_wire { BATCH_ON_WIRE } else { BATCH };
        let batch = most.min(pool / DEPTH).max(BATCH);
        Self { pool, batch: batch.min(pool).max(1) }
    }

    /// How many runs go in a list without their bytes.
    pub(super) fn list(self) -> usize {
        (self.batch.min(BATCH) / EXTENT_BYTES).max(1)
    }

    /// Runs of at most a batch each, which fit into the pool, and where each begins in the bytes of all.
    pub(super) fn pieces(self, runs: &[Extent]) -> (Vec<Extent>, Vec<usize>) {
        let most = self.pool.saturating_sub(EXTENT_BYTES).clamp(1, self.batch);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let (mut cut, mut starts, mut at) = (Vec::new(), Vec::new(), 0);
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let len = (run.len - done).min(most);
                cut.push(Extent { offset: run.offset.saturating_add(u64::from(done)), len });
                starts.push(at);
                at += len as usize;
                done += len;
            }
        }
        (cut, starts)
    }

    /// First and end of the runs of each message, which fits into the pool with its list unless it is one run.
    pub(super) fn batches(self, runs: &[Extent]) -> Vec<(usize, usize)> {
        let mut batches = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        for (i, run) in runs.iter().enumerate() {
            let len = run.len as usize;
            let list = (i + 1 - first) * EXTENT_BYTES;
            if i > first && (bytes + len > self.batch.min(self.pool.saturating_sub(list)) || i - first == LIST) {
                batches.push((first, i));
                (first, bytes) = (i, 0);
            }
            bytes += len;
        }
        if first < runs.len() {
            batches.push((first, runs.len()));
        }
        batches
    }
}

/// Runs that fill slots.
pub(super) fn to_slots(slots: impl Iterator<Item = u32>, bytes: u32) -> Vec<Extent> {
    slots.map(|slot| Extent { offset: u64::from(slot) * u64::from(bytes), len: bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_messages_fit_into_a_pool_at_the_same_time() {
        let batch = |pool, is_wire| Lengths::new(pool, is_wire).batch;
        assert_eq!([0, 4096, 64 << 10, 64 << 20].map(|pool| batch(pool, false)), [1, 4096, 64 << 10, 64 << 10]);
        assert_eq!([0, 4096, 64 << 10, 64 << 20].map(|pool| batch(pool, true)), [1, 4096, 64 << 10, 128 << 10]);
        assert_eq!(batch(800 << 10, true), 100 << 10, "eight of them");
    }

    #[test]
    fn a_batch_is_as_many_runs_as_may_be() {
        let runs = to_slots(0..40, 16 << 10);
        let runs_of = |is_wire| -> Vec<usize> {
            Lengths::new(64 << 20, is_wire).batches(&runs).iter().map(|(first, end)| end - first).collect()
        };
        assert_eq!(runs_of(false), [4; 10]);
        assert_eq!(runs_of(true), [8; 5]);
        // Its list has to fit as well.
        assert_eq!(Lengths::new(64 << 10, false).batches(&runs).len(), 14);
    }
}
