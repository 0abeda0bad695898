//! The behaviour suite over UDP, on loopback, in plain text.

mod loopback;

use loopback::Loopback;

cutthrough_conform::suite!(Loopback(None));
