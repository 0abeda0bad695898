//! The behaviour suite over UDP across a veth pair: all of it with the frames of an Ethernet, and with jumbo frames
//! those behaviours in which the length of a frame matters.

mod veth;

use veth::Veth;

mod ethernet {
    use super::Veth;

    cutthrough_conform::suite!(Veth(1500, "udp"));
}

mod jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "udp"); control, paths, tokens);
}
