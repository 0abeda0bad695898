//! The two ciphers of frames.

use aws_lc_rs::aead::{AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};

use crate::keys::KEY;

/// What frames are sealed with. Both have keys of 32 bytes, nonces of 12 and tags of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-256 in Galois/Counter Mode (NIST SP 800-38D): fast where AES is in hardware.
    Aes256Gcm,
    /// ChaCha20 and Poly1305 (RFC 8439): fast everywhere else.
    ChaCha20Poly1305,
}

impl Cipher {
    /// How many texts may fail to open with one session's keys: the integrity limit of RFC 9001, section 6.6.
    pub(crate) const fn tries(self) -> u64 {
        match self {
            Self::Aes256Gcm => 1 << 52,
            Self::ChaCha20Poly1305 => 1 << 36,
        }
    }

    /// The faster one on the processor that this runs on: AES, if AES and the multiplication of its mode are in
    /// hardware.
    #[must_use]
    pub fn fast_here() -> Self {
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        let hardware = std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let hardware = std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
        let hardware = false;
        if hardware { Self::Aes256Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The cipher of two sides that each prefer one: AES only if both do, since AES without hardware is several times
    /// slower than the other.
    pub(crate) const fn agree(self, other: Self) -> Self {
        match (self, other) {
            (Self::Aes256Gcm, Self::Aes256Gcm) => Self::Aes256Gcm,
            _ => Self::ChaCha20Poly1305,
        }
    }

    /// How the handshake writes it.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }

    /// The cipher that the handshake writes so.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Aes256Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// A key, ready for use. Its memory, about 600 bytes on the heap, is wiped when it is dropped.
    pub(crate) fn key(self, bytes: &[u8; KEY]) -> LessSafeKey {
        let algorithm: &'static Algorithm = match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        LessSafeKey::new(UnboundKey::new(algorithm, bytes).expect("both ciphers take 32 bytes"))
    }
}
