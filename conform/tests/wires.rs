//! The behaviour suite over a network that is not there: with wires on which nothing goes wrong, and with bad ones.

#[path = "wires/mod.rs"]
mod joined;

use std::time::Duration;

use cutthrough::simulated::Wire;

use joined::Wires;

/// As in a house full of people who use the same radio.
const BAD: Wire = Wire {
    mtu: 1500,
    latency: Duration::from_micros(20),
    jitter: Duration::from_micros(30),
    bandwidth: None,
    loss: 0.02,
    duplicates: 0.01,
    reorders: 0.02,
    corrupts: 0.002,
    truncates: 0.002,
};

mod good {
    use super::{Wire, Wires};

    cutthrough_conform::suite!(Wires::new(Wire::default()));
}

mod bad {
    use super::{BAD, Wires};

    cutthrough_conform::suite!(Wires::new(BAD));
}
