//! The behaviour suite over UDP, on loopback.

mod loopback;

use loopback::Loopback;

cutthrough_conform::suite!(Loopback);
