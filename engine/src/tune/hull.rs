//! The line below the measurements that is nearest to them.

use super::CLASSES;

/// The fastest recent pulse of one class. `ns == u32::MAX` means that there was none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fastest {
    pub(super) bytes: u32,
    pub(super) ns: u32,
}

impl Fastest {
    pub(super) const NONE: Self = Self { bytes: 0, ns: u32::MAX };

    pub(super) fn of(self, other: Self) -> Self {
        if other.ns < self.ns { other } else { self }
    }
}

/// The lower convex hull of points that come in the order of their lengths. Its points rise strictly, in bytes and ns.
pub(super) struct Hull {
    pub(super) points: [Fastest; CLASSES],
    len: usize,
    /// Sums for the mean length, each point weighted with 1 / ns so that it is relative errors that count.
    weight: f64,
    weighted_bytes: f64,
}

impl Hull {
    pub(super) const EMPTY: Self = Self { points: [Fastest::NONE; CLASSES], len: 0, weight: 0.0, weighted_bytes: 0.0 };

    /// Adds a point with more bytes than all before it. Points that took no less time than a longer one were held up
    /// by something else, and fall out; so do those above the line between their neighbours.
    pub(super) fn push(&mut self, point: Fastest) {
        let weight = f64::from(point.ns).recip();
        self.weight += weight;
        self.weighted_bytes += weight * f64::from(point.bytes);
        while self.drops_last_for(point) {
            self.len -= 1;
        }
        self.points[self.len] = point;
        self.len += 1;
    }

    /// Whether the last point cannot stay in the hull when `next` comes in.
    fn drops_last_for(&self, next: Fastest) -> bool {
        match self.points[..self.len] {
            [.., last] if last.ns >= next.ns => true,
            [.., before, last] => is_above(last, before, next),
            [_] | [] => false,
        }
    }

    /// The edge over the weighted mean length; `None` if there is only one point.
    pub(super) fn edge(&self) -> Option<(Fastest, Fastest)> {
        let mean = self.weighted_bytes / self.weight;
        let mut edges = self.points[..self.len].windows(2).map(|ends| (ends[0], ends[1]));
        let last = edges.clone().next_back();
        edges.find(|(_, long)| f64::from(long.bytes) >= mean).or(last)
    }
}

/// Whether `middle` lies on or above the line from `left` to `right`, all three rising in both directions.
fn is_above(middle: Fastest, left: Fastest, right: Fastest) -> bool {
    let slope_to_middle = u64::from(middle.ns - left.ns) * u64::from(right.bytes - left.bytes);
    let slope_to_right = u64::from(right.ns - left.ns) * u64::from(middle.bytes - left.bytes);
    slope_to_middle >= slope_to_right
}
