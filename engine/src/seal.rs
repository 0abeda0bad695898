//! Who proves what to whom: the trait of whoever holds the keys.
//!
//! The engine carries the messages of a handshake and puts a [`Seal`] to every frame; what they are made of is chosen
//! by the caller. Without keys a seal is a check sum: it finds what the wire has changed, and nothing else.

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use cutthrough_wire::seal::{OPENING_NUMBER, Seal};

/// The keys do not fit, or what came is no handshake message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keys do not fit")]
pub struct WrongKey;

/// A seal for one channel.
pub type BoxedSeal = Box<dyn Seal + Send>;

/// A handshake that has been begun by the caller of a channel.
pub trait Handshake {
    /// The seal of the channel, once the other side has answered. After an error the handshake waits as before: what
    /// came may have been forged, or have been the answer to an earlier call.
    ///
    /// # Errors
    /// [`WrongKey`].
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey>;
}

/// Holds the keys of an endpoint, and its randomness.
pub trait Guard {
    /// Begins a handshake that is bound to `prologue`: the first message goes to the other side.
    ///
    /// # Errors
    /// [`WrongKey`], if there is no key for calling anybody.
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey>;

    /// Answers a first message.
    ///
    /// # Errors
    /// [`WrongKey`].
    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey>;

    /// The check sum of frames that are sent when there is no channel yet.
    fn plain(&mut self) -> &mut dyn Seal;

    /// A number that nobody can foresee who does not know this guard's secret, and for a while the same for the same
    /// bytes: told to a caller before memory is spent on it.
    fn cookie(&self, bytes: &[u8]) -> u64;

    /// Whether a cookie is one that is told for these bytes, or was told not long ago. It is never 0.
    fn knows(&self, bytes: &[u8], cookie: u64) -> bool {
        self.cookie(bytes).max(1) == cookie
    }

    /// A number that nobody can foresee.
    fn random(&mut self) -> u64;
}
