//! The seal of a channel between machines: who the other side is, and that a frame is as that side made it.
//!
//! Bytes go in, bytes come out. Nothing here opens anything, waits, reads a clock or draws a random number: entropy is
//! an argument, so that a simulated run can be repeated. Of the machine it is only asked which cipher is fast on it
//! ([`Cipher::fast_here`]), and who wants no answer to that names a cipher.
//!
//! # The order of things
//!
//! | step | file | what happens |
//! |---|---|---|
//! | a key file is read | [`keys`] | text becomes a shared key, or an own private key and the public keys of peers |
//! | two messages go to and fro | [`handshake`] | both sides prove what they know; a cipher is agreed |
//! | every frame is sealed and opened | [`frames`] | header authenticated, body encrypted; keys move on by themselves |
//! | or only summed | `seals` | [`CheckSum`]: finds what the wire has changed, where plain text was asked for |
//!
//! [`cipher`] holds the two ciphers of frames. The arithmetic is that of AWS-LC and of the crate `blake2`; the order of
//! the handshake is that of the crate `snow`.
//!
//! # What an attacker can do
//!
//! Who can read, change, drop, repeat and invent datagrams can stop a channel, and learns lengths and times. What such
//! an attacker cannot do: read a body, have a changed frame or header accepted, or pass for a peer.
//!
//! Keys taken from a machine later do not open frames of channels that have ended, whatever a key file says: the
//! handshake is ephemeral, and the keys of a channel go with its [`Session`]. Of a channel that is open they open the
//! frames of this epoch and of the one before in the direction that is received, and of this epoch in the other one:
//! the keys of frames move on after 2²² frames of a direction ([`EPOCH`]), and not with the time. Who has little to say
//! and wants more than that opens its channel anew.
//!
//! Two things are left to the caller. A frame that is repeated opens again, so the caller keeps a **replay window**. A
//! first handshake message that is repeated makes [`respond`] answer again, so a caller gives a new session no more
//! than its own memory **until a frame of it has opened**: only who has made the first message can seal that.

#![forbid(unsafe_code)]

pub mod cipher;
pub mod frames;
pub mod handshake;
pub mod keys;
mod primitives;
mod seals;

pub use cipher::Cipher;
pub use frames::{BESIDE, EPOCH, Forged, Opener, Sealer, Session, TAG};
pub use handshake::{FIRST_SHARED, FIRST_STATIC, Initiator, SECOND, SealError, Terms, respond, respond_on};
pub use keys::{KEY, KeyError, KeyFault, Keys, PrivateKey, PublicKey, SharedKey};
pub use seals::CheckSum;
pub use zeroize::Zeroizing;
