//! Sessions: the handshake that makes them, the frames that they seal and open.

mod frames;
mod handshake;
mod known;
mod sides;
mod sums;
