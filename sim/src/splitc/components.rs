//! Connected components of a square mesh of which some edges are missing, dealt out in strips of rows.

use crate::ethernet::random::Random;

use super::parts::Work;
use super::programs::{Sizes, first_of, owner};
use super::world::{Node, Step};

/// Operations for an edge within a node: two finds of a few loads, a compare, a store. For a point: load its root's
/// label and store it. For an edge between nodes: load both labels, compare, store.
const EDGE: u64 = 12;
const POINT: u64 = 3;
const BORDER: u64 = 6;
/// Bytes of a label that is fetched.
const LABEL: u64 = 8;

/// Edges of the mesh, in the order of their first points.
pub(crate) fn edges(sizes: &Sizes) -> Vec<[usize; 2]> {
    let mut random = Random(2);
    let side = sizes.mesh;
    let right = |point: usize| (point % side + 1 < side).then_some([point, point + 1]);
    let below = |point: usize| (point + side < side * side).then_some([point, point + side]);
    let all = (0..side * side).flat_map(|point| [right(point), below(point)]).flatten();
    all.filter(|_| random.below(100) < sizes.edges_percent).collect()
}

/// The root of a point; the way to it becomes shorter.
pub(crate) fn find(parents: &mut [usize], mut point: usize) -> usize {
    while parents[point] != point {
        parents[point] = parents[parents[point]];
        point = parents[point];
    }
    point
}

/// Joins two components under the lesser root.
pub(crate) fn join(parents: &mut [usize], [a, b]: [usize; 2]) {
    let [a, b] = [find(parents, a), find(parents, b)];
    parents[a.max(b)] = a.min(b);
}

/// Each node joins what is within its strip. Then, until no label changes anywhere, it fetches the labels beyond its
/// borders, a short message each, and takes over the lesser ones. Returns each node's steps, and what they come to:
/// each point's label, the least number of a point of its component.
pub(crate) fn components(sizes: &Sizes, nodes: usize) -> (Vec<Vec<Step>>, Vec<usize>) {
    let side = sizes.mesh;
    let home = |point: usize| owner(point / side, side, nodes);
    let mut roots: Vec<usize> = (0..side * side).collect();
    let mut inner = vec![0u64; nodes];
    let mut borders: Vec<Vec<[usize; 2]>> = vec![Vec::new(); nodes];
    for [a, b] in edges(sizes) {
        if home(a) == home(b) {
            inner[home(a)] += 1;
            join(&mut roots, [a, b]);
        } else {
            // Its own point first, for either side.
            borders[home(a)].push([a, b]);
            borders[home(b)].push([b, a]);
        }
    }
    let roots: Vec<usize> = (0..side * side).map(|point| find(&mut roots, point)).collect();
    let points = |node: Node| ((first_of(node + 1, side, nodes) - first_of(node, side, nodes)) * side) as u64;
    let mut steps: Vec<Vec<Step>> = (0..nodes)
        .map(|node| vec![Step::Compute(Work::integer(EDGE * inner[node] + POINT * points(node))), Step::Barrier])
        .collect();
    let mut labels: Vec<usize> = (0..side * side).collect();
    loop {
        let mut next = labels.clone();
        for (node, steps) in steps.iter_mut().enumerate() {
            for [mine, other] in &borders[node] {
                steps.push(Step::Get { from: home(*other), bytes: LABEL });
                let label = labels[roots[*other]];
                next[roots[*mine]] = next[roots[*mine]].min(label);
            }
            let work = Work::integer(BORDER * borders[node].len() as u64);
            // All have read before any label changes; whether one did is a sum over the nodes.
            steps.extend([Step::Sync, Step::Barrier, Step::Compute(work), Step::Barrier]);
        }
        if next == labels {
            break;
        }
        labels = next;
    }
    for (node, steps) in steps.iter_mut().enumerate() {
        steps.extend([Step::Compute(Work::integer(POINT * points(node))), Step::Barrier]);
    }
    (steps, roots.iter().map(|root| labels[*root]).collect())
}
