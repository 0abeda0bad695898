//! The seven programs as steps: what each node computes, and what it asks of the others. Every number of operations and
//! of messages follows from the algorithm and the sizes; where the data decide, the algorithm is run on data.
//!
//! The list is general knowledge: of the seven only the matrix multiply is named in a text at hand.

use super::components::components;
use super::parts::Work;
use super::sorts::{radix_sort, sample_sort};
use super::world::{Node, Step};

/// One of the seven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// Blocked matrix multiply, which fetches the next two blocks while it multiplies two.
    Matrix,
    /// Sample sort, whose keys go in short messages, or in bulk.
    Sample { bulk: bool },
    /// Radix sort, the same.
    Radix { bulk: bool },
    /// Connected components of a graph.
    Components,
    /// Conjugate gradients for a sparse matrix.
    Gradient,
}

impl Program {
    pub(crate) const ALL: [Self; 7] = [
        Self::Matrix,
        Self::Sample { bulk: false },
        Self::Sample { bulk: true },
        Self::Radix { bulk: false },
        Self::Radix { bulk: true },
        Self::Components,
        Self::Gradient,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix multiply",
            Self::Sample { bulk: false } => "sample sort, short messages",
            Self::Sample { bulk: true } => "sample sort, bulk",
            Self::Radix { bulk: false } => "radix sort, short messages",
            Self::Radix { bulk: true } => "radix sort, bulk",
            Self::Components => "connected components",
            Self::Gradient => "conjugate gradient",
        }
    }

    /// The steps of each of `nodes` nodes, which share one problem of these sizes.
    pub(crate) fn steps(self, sizes: &Sizes, nodes: usize) -> Vec<Vec<Step>> {
        match self {
            Self::Matrix => each(nodes, |node| matrix(sizes, node, nodes)),
            Self::Sample { bulk } => sample_sort(sizes, nodes, bulk),
            Self::Radix { bulk } => radix_sort(sizes, nodes, bulk),
            Self::Components => components(sizes, nodes).0,
            Self::Gradient => each(nodes, |node| gradient(sizes, node, nodes)),
        }
    }
}

/// How large the problems are, over all nodes together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Blocks in a row of a matrix, and doubles in a row of a block.
    pub(crate) blocks: usize,
    pub(crate) block: u64,
    /// Keys to sort and their bits; keys that each node offers as samples; bits of a digit.
    pub(crate) keys: usize,
    pub(crate) key_bits: u32,
    pub(crate) samples: usize,
    pub(crate) digit_bits: u32,
    /// Points in a row of the graph's square mesh, and how many percent of its edges there are.
    pub(crate) mesh: usize,
    pub(crate) edges_percent: u64,
    /// Points in a row of the square grid whose five-point matrix is solved, and iterations.
    pub(crate) grid: usize,
    pub(crate) iterations: usize,
}

/// The paper's matrices; the other sizes are chosen.
pub(crate) const SIZES: Sizes = Sizes {
    blocks: 4,
    block: 128,
    keys: 1 << 15,
    key_bits: 24,
    samples: 64,
    digit_bits: 8,
    mesh: 256,
    edges_percent: 60,
    grid: 128,
    iterations: 50,
};

/// Bytes of a double.
pub(crate) const DOUBLE: u64 = 8;

/// The same for every node.
pub(crate) fn each(nodes: usize, steps: impl Fn(Node) -> Vec<Step>) -> Vec<Vec<Step>> {
    (0..nodes).map(steps).collect()
}

/// First of the `total` things of `node`, when they are dealt out in runs of nearly the same length.
pub(crate) const fn first_of(node: Node, total: usize, nodes: usize) -> usize {
    node * total / nodes
}

/// The node that has thing `number`.
pub(crate) const fn owner(number: usize, total: usize, nodes: usize) -> Node {
    ((number + 1) * nodes - 1) / total
}

/// Each node has every `nodes`-th block of each matrix, and computes its blocks of the product.
fn matrix(sizes: &Sizes, node: Node, nodes: usize) -> Vec<Step> {
    let &Sizes { blocks, block, .. } = sizes;
    let bytes = block * block * DOUBLE;
    // A product of a row and a block: a multiplication and an addition for each pair. After it, the node looks for
    // requests: the others want its blocks while it multiplies.
    let row = [Step::Compute(Work::float(2 * block * block)), Step::Poll];
    let mut pairs = Vec::new();
    for mine in (node..blocks * blocks).step_by(nodes) {
        let (i, j) = (mine / blocks, mine % blocks);
        pairs.extend((0..blocks).map(|k| [i * blocks + k, k * blocks + j]));
    }
    let fetch = |pair: Option<&[usize; 2]>| -> Vec<Step> {
        let owners = pair.into_iter().flatten().map(|block| block % nodes);
        owners.filter(|owner| *owner != node).map(|from| Step::Get { from, bytes }).collect()
    };
    let mut steps = fetch(pairs.first());
    for number in 0..pairs.len() {
        steps.push(Step::Sync);
        steps.extend(fetch(pairs.get(number + 1)));
        for _ in 0..block {
            steps.extend(row);
        }
    }
    steps.extend([Step::Sync, Step::Barrier]);
    steps
}

/// Operations of an iteration for each point: five multiplications and four additions with the five indices and one
/// bound of the row; two sums of products; three vectors that another is added to.
const ROW: Work = Work { integer: 6, float: 9 };
const PRODUCT: u64 = 2;
const ADD: u64 = 2;

/// Each node has some rows of the grid, and puts its outermost into its neighbours' memory in each iteration.
fn gradient(sizes: &Sizes, node: Node, nodes: usize) -> Vec<Step> {
    let &Sizes { grid, iterations, .. } = sizes;
    let rows = first_of(node + 1, grid, nodes) - first_of(node, grid, nodes);
    let points = (rows * grid) as u64;
    let bytes = grid as u64 * DOUBLE;
    let near = [node.checked_sub(1), Some(node + 1).filter(|next| *next < nodes)];
    let mut steps = Vec::new();
    for _ in 0..iterations {
        steps.extend(near.iter().flatten().map(|to| Step::Put { to: *to, bytes }));
        steps.extend([
            // The neighbours' rows are here.
            Step::Sync,
            Step::Barrier,
            Step::Compute(Work { integer: ROW.integer * points, float: (ROW.float + PRODUCT) * points }),
            // The first sum.
            Step::Barrier,
            Step::Compute(Work::float((2 * ADD + PRODUCT) * points)),
            // The second.
            Step::Barrier,
            Step::Compute(Work::float(ADD * points)),
        ]);
    }
    steps.push(Step::Barrier);
    steps
}
