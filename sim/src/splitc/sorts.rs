//! The two sorts, run on keys from a seed so that each message goes where a key goes.

use crate::ethernet::random::Random;

use super::parts::Work;
use super::programs::{Sizes, first_of, owner};
use super::world::{Node, Step};

/// Bytes of a key or a count, and of one that travels with its place or number.
const WORD: u64 = 4;
const PAIR: u64 = 8;

/// Operations to look at a key: load, shift, mask, load a count, add, store.
const COUNT: u64 = 6;
/// To move a key within memory: load, load the place, store, add, store the place.
const MOVE: u64 = 5;
/// One step of a search or of a quicksort: load, compare, branch, and in half of the cases an exchange.
const COMPARE: u64 = 5;

fn keys(sizes: &Sizes) -> Vec<u64> {
    let mut random = Random(1);
    (0..sizes.keys).map(|_| random.below(1 << sizes.key_bits)).collect()
}

/// Operations to sort so many by comparison.
fn sorting(count: usize) -> Work {
    let levels = u64::from(count.max(1).next_power_of_two().ilog2());
    Work::integer(COMPARE * levels * count as u64)
}

/// Everybody's puts have arrived.
const ALL_STORED: [Step; 2] = [Step::Sync, Step::Barrier];

/// A put of so many bytes, or as many puts of a pair as it takes.
fn send(steps: &mut Vec<Step>, to: Node, bytes: u64, bulk: bool) {
    if bulk {
        steps.push(Step::Put { to, bytes });
    } else {
        steps.extend((0..bytes.div_ceil(PAIR)).map(|_| Step::Put { to, bytes: PAIR }));
    }
}

/// Samples go to the first node, which sorts them and tells everybody where each node's range ends. Keys go to the
/// nodes of their ranges (two to a short message), and are sorted there.
pub(crate) fn sample_sort(sizes: &Sizes, nodes: usize, bulk: bool) -> Vec<Vec<Step>> {
    let keys = keys(sizes);
    let mine = |node| &keys[first_of(node, keys.len(), nodes)..first_of(node + 1, keys.len(), nodes)];
    let mut samples: Vec<u64> = (0..nodes).flat_map(|node| mine(node).iter().take(sizes.samples)).copied().collect();
    samples.sort_unstable();
    let ends: Vec<u64> = (1..nodes).map(|node| samples[node * samples.len() / nodes]).collect();
    let range = |key: u64| ends.partition_point(|end| *end <= key);
    let mut received = vec![0; nodes];
    for key in &keys {
        received[range(*key)] += 1;
    }
    let search = COUNT + COMPARE * u64::from(nodes.next_power_of_two().ilog2());
    let program = |node: Node| {
        let mut steps = Vec::new();
        let offered = sizes.samples.min(mine(node).len());
        steps.push(Step::Compute(Work::integer(MOVE * offered as u64)));
        if node != 0 {
            send(&mut steps, 0, WORD * offered as u64, bulk);
        }
        steps.extend(ALL_STORED);
        if node == 0 {
            steps.push(Step::Compute(sorting(samples.len())));
            (1..nodes).for_each(|to| send(&mut steps, to, WORD * ends.len() as u64, bulk));
        }
        steps.extend(ALL_STORED);
        if bulk {
            steps.push(Step::Compute(Work::integer((search + MOVE) * mine(node).len() as u64)));
            let mut counts = vec![0u64; nodes];
            mine(node).iter().for_each(|key| counts[range(*key)] += 1);
            put_all(&mut steps, node, &counts.iter().map(|count| WORD * count).collect::<Vec<_>>());
        } else {
            let to = mine(node).iter().map(|key| range(*key));
            put_each(&mut steps, node, to, nodes, search, 2);
        }
        steps.extend(ALL_STORED);
        steps.push(Step::Compute(sorting(received[node])));
        steps.push(Step::Barrier);
        steps
    };
    (0..nodes).map(program).collect()
}

/// One put to every other node that gets something, beginning with the next, so that not all send to the same.
fn put_all(steps: &mut Vec<Step>, node: Node, bytes: &[u64]) {
    let nodes = bytes.len();
    let others = (1..nodes).map(|far| (node + far) % nodes).filter(|to| bytes[*to] > 0);
    steps.extend(others.map(|to| Step::Put { to, bytes: bytes[to] }));
}

/// A short put whenever `together` keys for the same node have been found; those of the node itself are moved. What is
/// left over goes at the end.
fn put_each(
    steps: &mut Vec<Step>,
    node: Node,
    to: impl Iterator<Item = Node>,
    nodes: usize,
    operations: u64,
    together: u64,
) {
    let mut waiting = vec![0u64; nodes];
    let mut work = 0;
    for to in to {
        work += operations;
        if to == node {
            work += MOVE;
            continue;
        }
        waiting[to] += 1;
        if waiting[to] == together {
            waiting[to] = 0;
            steps.extend([Step::Compute(Work::integer(work)), Step::Put { to, bytes: PAIR }]);
            work = 0;
        }
    }
    steps.push(Step::Compute(Work::integer(work)));
    put_all(steps, node, &waiting.iter().map(|count| WORD * count).collect::<Vec<_>>());
}

/// For each digit, from the lowest: each node counts its keys; the nodes that own a count add it up over all nodes and
/// say where each node's keys begin; every key goes to its place.
pub(crate) fn radix_sort(sizes: &Sizes, nodes: usize, bulk: bool) -> Vec<Vec<Step>> {
    let mut keys = keys(sizes);
    let total = keys.len();
    let digits = 1usize << sizes.digit_bits;
    let mut programs = vec![Vec::new(); nodes];
    for shift in (0..sizes.key_bits).step_by(sizes.digit_bits as usize) {
        let digit = |key: u64| (key >> shift) % digits as u64;
        let mut order: Vec<usize> = (0..total).collect();
        order.sort_by_key(|&at| digit(keys[at]));
        let mut place = vec![0; total];
        order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
        let goes_to = |at: usize| owner(place[at], total, nodes);
        for (node, steps) in programs.iter_mut().enumerate() {
            let mine = first_of(node, total, nodes)..first_of(node + 1, total, nodes);
            steps.push(Step::Compute(Work::integer(COUNT * mine.len() as u64)));
            count_together(steps, node, nodes, digits, bulk);
            if bulk {
                let mut counts = vec![0u64; nodes];
                mine.clone().for_each(|at| counts[goes_to(at)] += 1);
                let away = counts.iter().sum::<u64>() - counts[node];
                steps.push(Step::Compute(Work::integer(COUNT * mine.len() as u64 + MOVE * mine.len() as u64)));
                put_all(steps, node, &counts.iter().map(|count| PAIR * count).collect::<Vec<_>>());
                steps.extend(ALL_STORED);
                // As many come as went: they are put into their places.
                steps.push(Step::Compute(Work::integer(MOVE * away)));
            } else {
                put_each(steps, node, mine.clone().map(goes_to), nodes, COUNT, 1);
                steps.extend(ALL_STORED);
            }
        }
        keys = order.iter().map(|&at| keys[at]).collect();
    }
    programs.iter_mut().for_each(|steps| steps.push(Step::Barrier));
    debug_assert!(keys.is_sorted());
    programs
}

/// Counts go to the nodes that own them, are added up there, and come back as places.
fn count_together(steps: &mut Vec<Step>, node: Node, nodes: usize, digits: usize, bulk: bool) {
    let owned = |node: Node| (first_of(node + 1, digits, nodes) - first_of(node, digits, nodes)) as u64;
    let others = || (1..nodes).map(|far| (node + far) % nodes);
    // A count travels with its number if it travels alone.
    let bytes = |counts: u64| if bulk { WORD * counts } else { PAIR * counts };
    others().for_each(|to| send(steps, to, bytes(owned(to)), bulk));
    steps.extend(ALL_STORED);
    steps.push(Step::Compute(Work::integer(MOVE * owned(node) * nodes as u64)));
    // The sum over all counts of the nodes before this one.
    steps.push(Step::Barrier);
    others().for_each(|to| send(steps, to, bytes(owned(node)), bulk));
    steps.extend(ALL_STORED);
}
