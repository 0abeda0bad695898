//! What is left of a channel that has ended.

use super::pair;
use crate::config::Config;
use crate::shm::unmap;

/// Whether there is memory at this address.
fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (begin, rest) = line.split_once('-').unwrap();
        let end = rest.split(' ').next().unwrap();
        let [begin, end] = [begin, end].map(|at| usize::from_str_radix(at, 16).unwrap());
        (begin..end).contains(&address) && line.contains("cutthrough-pages")
    })
}

/// A channel ends in a poll, which all others would wait for: as over shared memory, what was its memory is given back
/// elsewhere.
#[test]
fn nobody_waits_for_the_memory_of_a_channel_that_has_ended() {
    let (near, _far, channel) = pair();
    let bytes = usize::try_from(Config::default().pool_bytes).unwrap();
    let mut page = near.page(channel, bytes).unwrap();
    page.fill(1);
    let address = page.as_ptr() as usize;
    drop(page);
    near.tidy();
    unmap::tests::while_all_waits(|| {
        near.close(channel);
        near.retire(channel);
        assert!(is_mapped(address), "given back at once, {bytes} bytes");
    });
}
