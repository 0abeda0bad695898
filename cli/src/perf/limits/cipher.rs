//! What sealing costs at least: a cipher alone, on one core.

use std::hint::black_box;
use std::time::Duration;

use cutthrough_seal::{Cipher, Initiator, Keys, SealError, Sealer, SharedKey, Terms, respond_on};

use super::copy::per_sample;
use super::wire::Wire;
use super::{Measured, Unavailable, percentiles};
use crate::clock::batches;
use crate::cpu::{self, Pair};
use crate::perf::room::filled;
use crate::units::Size;

/// Bytes of an IPv4 datagram before our frame, of a frame before its body, and of these what is authenticated.
const ENVELOPE: usize = 28;
const HEADER: usize = 64;
const PROTECTED: usize = 48;

/// The longest body of a frame that crosses this wire.
#[must_use]
pub fn body(wire: &Wire) -> Size {
    Size((wire.mtu() - ENVELOPE - HEADER) as u64)
}

/// One core seals bodies of `size` bytes, each with its header, from hot memory to hot memory.
///
/// # Errors
/// If the thread cannot be pinned, or there is no memory.
pub fn aead(cipher: Cipher, size: Size, duration: Duration) -> Measured {
    let seal = || {
        let mut sealer = sealer(cipher).map_err(|error| Unavailable(error.to_string()))?;
        let (plain, mut sealed) = (filled(size.bytes(), 0x5a)?, filled(size.bytes(), 0)?);
        let (batch, mut number) = (per_sample(size.bytes()), 0);
        let samples = batches(duration, batch, || {
            black_box(sealer.seal(number, &[1; PROTECTED], black_box(&plain), &mut sealed));
            number += 1;
        });
        percentiles(&samples, f64::from(batch))
    };
    cpu::on(Pair::together().first, seal)?
}

/// One direction of a channel that nobody uses. Whatever its keys are, they are as quick as others.
fn sealer(cipher: Cipher) -> Result<Sealer, SealError> {
    const PROLOGUE: &[u8] = b"limits";
    let keys = Keys::Shared(SharedKey::generate([1; 32]));
    let (_, first) = Initiator::begin_on(&keys, Terms { peer: None, cipher }, PROLOGUE, [2; 32])?;
    let (session, _) = respond_on(&keys, cipher, PROLOGUE, [3; 32], &first)?;
    Ok(session.sealer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cipher_seals_with_what_was_asked_for() {
        for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let mut sealed = [0; 64];
            let mut seal = |cipher| {
                let tag = sealer(cipher).expect("keys that fit").seal(0, &[1; PROTECTED], &[7; 64], &mut sealed);
                (sealed, tag)
            };
            let other = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305].into_iter().find(|other| *other != cipher);
            assert_eq!(seal(cipher), seal(cipher));
            assert_ne!(seal(cipher), seal(other.expect("two ciphers")));
        }
    }

    #[test]
    fn frames_are_as_long_as_datagrams_let_them_be() {
        assert_eq!(body(&Wire::loopback()), Size(65_535 - 28 - 64));
    }
}
