//! How long operations are cut into messages.

use super::extents::{EXTENT_BYTES, Extent};

/// Bytes of one message of a batch, without the list of its runs: what is under way then stays in a second-level cache
/// between the copy in and the copy out. Measured with 20,000 random pages of 16 KiB: 64 KiB is about 6 per cent faster
/// than 256 KiB.
pub(super) const BATCH: usize = 64 << 10;
/// Most runs in one message.
const LIST: usize = 512;

/// Runs that fill slots.
pub(super) fn to_slots(slots: impl Iterator<Item = u32>, bytes: u32) -> Vec<Extent> {
    slots.map(|slot| Extent { offset: u64::from(slot) * u64::from(bytes), len: bytes }).collect()
}

/// Runs of at most a batch each, which fit into the pool, and where each begins in the bytes of all.
pub(super) fn pieces(runs: &[Extent], pool: usize) -> (Vec<Extent>, Vec<usize>) {
    let most = u32::try_from(pool.saturating_sub(EXTENT_BYTES).clamp(1, BATCH)).unwrap_or(u32::MAX);
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
pub(super) fn batches(runs: &[Extent], pool: usize) -> Vec<(usize, usize)> {
    let mut batches = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (i, run) in runs.iter().enumerate() {
        let len = run.len as usize;
        let list = (i + 1 - first) * EXTENT_BYTES;
        if i > first && (bytes + len > BATCH.min(pool.saturating_sub(list)) || i - first == LIST) {
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
