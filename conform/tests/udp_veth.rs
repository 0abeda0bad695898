//! The behaviour suite over UDP across a veth pair: all of it with the frames of an Ethernet, and with jumbo frames
//! those behaviours in which the length of a frame matters.

mod veth;

use cutthrough_conform::Join as _;
use cutthrough_conform::suite::paths::{a_stream_is_placed, a_stream_of_pages_is_placed, forged_and_unplaced};
use veth::Veth;

mod ethernet {
    use super::Veth;

    cutthrough_conform::suite!(Veth(1500, "udp"));
}

mod jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "udp"); control, paths, tokens);
}

/// Messages of one frame, and of several, as long as their pages and shorter: what follows the first in a train lands
/// like the first.
#[test]
fn messages_that_share_trains_land_where_they_belong() {
    let lens = [(1500, 1000), (1500, 3000), (1500, 4096), (1500, 8192), (1500, 64 << 10)];
    for (mtu, len) in lens.into_iter().chain([(9000, 3000), (9000, 8192), (9000, 20_000), (9000, 64 << 10)]) {
        let veth = Veth(mtu, "udp");
        if veth.skips_all() {
            return;
        }
        assert!(a_stream_is_placed(&veth, len), "MTU {mtu}, {len} bytes, posted");
        assert!(a_stream_of_pages_is_placed(&veth, len), "MTU {mtu}, {len} bytes, by reference");
    }
}

/// A payload that takes several posted runs takes places in which others of its train have landed.
#[test]
fn what_lands_elsewhere_comes_once() {
    for (mtu, posted) in [(1500, true), (1500, false), (9000, true), (9000, false)] {
        let veth = Veth(mtu, "udp");
        if veth.skips_all() {
            return;
        }
        assert_eq!(forged_and_unplaced(&veth, posted), [0, 0], "MTU {mtu}, posted: {posted}");
    }
}
