//! Frames: sealing, opening, and the keys that move on.
//!
//! A frame's number is its nonce. Of a frame, the header is authenticated and the body is encrypted and authenticated.
//! A frame may have a second text beside its body, with a seal of its own: its nonce is the number with [`BESIDE`].
//! The numbers of a direction fall into **epochs** of 2²² frames; each epoch has a key of its own, made out of the
//! epoch before (as in TLS 1.3, RFC 8446 section 7.2), so nothing is said on the wire. With two texts a frame, an epoch
//! is what RFC 9001 section 6.6 lets a key of AES-GCM seal (2²³ texts). What a forger may try is bounded as there: once
//! so many texts of a direction have not opened, none does any more, and its channel ends by that.
//!
//! Epochs end by their number of frames, and by nothing else. So whoever takes a channel's keys while it is open can
//! read what it was sent in this epoch and the one before, however long ago that was, and what it sends or is sent from
//! then on; and nothing that is older, nor anything of a channel whose session is gone.
//!
//! ```text
//! secret of epoch 0               = Expand(Extract(handshake hash, Noise's key of the direction),
//!                                          "cutthrough frames" cipher, 32)
//! key, secret of epoch n + 1      = Expand(secret of epoch n, "cutthrough epoch", 32 + 32)
//! nonce                           = four bytes zero, the number in 8 bytes, little-endian (with or without BESIDE)
//! ```
//!
//! `Extract` and `Expand` are HKDF with SHA-256 (RFC 5869; salt before secret), `cipher` is the byte of the handshake.

use std::fmt;

use aws_lc_rs::aead::{Aad, LessSafeKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use zeroize::Zeroizing;

use crate::cipher::Cipher;
use crate::keys::{KEY, PublicKey};
use crate::primitives::{self, Secret};

/// Bytes of a seal.
pub const TAG: usize = 16;
/// Frames of an epoch.
pub const EPOCH: u64 = 1 << 22;
/// Set in a frame's number: the text beside its body. Numbers of frames are below it.
pub const BESIDE: u64 = 1 << 63;

/// The epoch of a frame's number, with [`BESIDE`] or without.
const fn epoch(number: u64) -> u64 {
    (number & !BESIDE) / EPOCH
}

/// The frame was not made by the peer, or was changed, or belongs to an epoch whose key is gone or not yet due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the frame does not open: it is forged or damaged, or far too old")]
pub struct Forged;

/// What a handshake ends in. About 300 bytes, and 600 more on the heap for each direction.
#[derive(Debug)]
pub struct Session {
    /// For the frames that we send.
    pub sealer: Sealer,
    /// For the frames that we receive.
    pub opener: Opener,
    /// The other side's static key; none if the key is shared.
    pub peer: Option<PublicKey>,
}

impl Session {
    pub(crate) fn new(cipher: Cipher, ours: &Secret, theirs: &Secret, peer: Option<PublicKey>) -> Self {
        let sealer = Sealer { now: Keyed::first(cipher, ours).0, least: [0; 2] };
        let (now, raw) = Keyed::first(cipher, theirs);
        let opener = Opener { now, raw, before: None, tries: cipher.tries() };
        Self { sealer, opener, peer }
    }

    /// What frames are sealed with, in both directions.
    #[must_use]
    pub const fn cipher(&self) -> Cipher {
        self.sealer.now.cipher
    }
}

/// The key of an epoch, and what the next one is made of.
struct Keyed {
    cipher: Cipher,
    epoch: u64,
    key: LessSafeKey,
    next: Secret,
}

/// That, and the key as bytes, which nobody keeps who only seals.
type WithRaw = (Keyed, Secret);

impl Keyed {
    fn first(cipher: Cipher, secret: &Secret) -> WithRaw {
        Self::of(cipher, 0, secret)
    }

    /// Costs one HKDF-Expand and one key.
    fn after(&self) -> WithRaw {
        Self::of(self.cipher, self.epoch + 1, &self.next)
    }

    fn of(cipher: Cipher, epoch: u64, secret: &Secret) -> WithRaw {
        let mut both = Zeroizing::new([0; 2 * KEY]);
        let secret = Prk::new_less_safe(HKDF_SHA256, &**secret);
        primitives::expand(&secret, &[b"cutthrough epoch"], &mut *both);
        let (mut raw, mut next) = (Secret::default(), Secret::default());
        raw.copy_from_slice(&both[..KEY]);
        next.copy_from_slice(&both[KEY..]);
        (Self { cipher, epoch, key: cipher.key(&raw), next }, raw)
    }
}

/// Seals the frames of one direction.
pub struct Sealer {
    now: Keyed,
    /// The least number that no body has had, and the same for texts beside bodies.
    least: [u64; 2],
}

impl Sealer {
    /// Encrypts `plain` into `out`, which has its length, and gives the tag over `header` and `out`. The bytes of the
    /// body are read once and written once.
    ///
    /// # Panics
    /// If `number` is not above those of all bodies before, or of all texts beside bodies if it has [`BESIDE`]: two
    /// texts with one nonce would give both away. If it skips an epoch, or goes back to one. If the lengths of `plain`
    /// and `out` differ, or are above 64 GiB.
    #[must_use]
    pub fn seal(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; TAG] {
        assert_eq!(plain.len(), out.len(), "a sealed body is as long as the body");
        let mut tag = [0; TAG];
        let (key, nonce) = (self.key(number), primitives::nonce(number));
        let sealed = key.seal_out_of_place_scatter(nonce, Aad::from(header), plain, out, &[], &mut tag);
        sealed.expect("a body is below 64 GiB");
        tag
    }

    /// Encrypts `body` where it lies, and gives the tag over `header` and it.
    ///
    /// # Panics
    /// As [`seal`](Self::seal).
    #[must_use]
    pub fn seal_in_place(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        let (key, nonce) = (self.key(number), primitives::nonce(number));
        let sealed = key.seal_in_place_scatter(nonce, Aad::from(header), body, &[], &mut tag);
        sealed.expect("a body is below 64 GiB");
        tag
    }

    /// The key of a number; uses the number up.
    fn key(&mut self, number: u64) -> &LessSafeKey {
        let (frame, least) = (number & !BESIDE, &mut self.least[usize::from(number >= BESIDE)]);
        assert!(frame >= *least, "frame {frame} after one before {least}: a number is never used again");
        let ahead = epoch(number).checked_sub(self.now.epoch).expect("no frame is of an epoch that has ended");
        assert!(ahead <= 1, "frame {frame} skips an epoch");
        if ahead == 1 {
            self.now = self.now.after().0;
        }
        *least = frame + 1;
        &self.now.key
    }
}

/// Opens the frames of one direction, in any order within two epochs. It does not know which frames it has opened.
pub struct Opener {
    now: Keyed,
    /// Its key as bytes, for when it is the epoch before; and the key of that.
    raw: Secret,
    before: Option<Secret>,
    /// How many more texts may fail to open, whatever their keys.
    tries: u64,
}

impl Opener {
    /// Decrypts `body` where it lies, if `tag` seals it and `header` under `number`.
    ///
    /// A number of the next epoch moves the keys on, if its frame opens; else everything is as it was. A forged number
    /// costs at most one HKDF and one key more than a forged frame.
    ///
    /// # Errors
    /// [`Forged`]. The bytes of `body` are then worthless.
    pub fn open(&mut self, number: u64, header: &[u8], tag: &[u8; TAG], body: &mut [u8]) -> Result<(), Forged> {
        let nonce = primitives::nonce(number);
        self.with(number, |key| key.open_in_place_separate_tag(nonce, Aad::from(header), tag, body).map(drop))
    }

    /// Decrypts `sealed` into `plain`, which has its length, if `tag` seals it and `header` under `number`. The bytes
    /// of the body are read once and written once. Else as [`open`](Self::open).
    ///
    /// # Errors
    /// [`Forged`], also if the lengths differ. What `plain` holds is then worthless, and no part of the body.
    pub fn open_apart(
        &mut self,
        number: u64,
        header: &[u8],
        tag: &[u8; TAG],
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forged> {
        let nonce = primitives::nonce(number);
        self.with(number, |key| key.open_separate_gather(nonce, Aad::from(header), sealed, tag, plain))
    }

    /// Opens with the key of a number's epoch, unless too much has not opened.
    fn with(&mut self, number: u64, open: impl FnOnce(&LessSafeKey) -> Result<(), Unspecified>) -> Result<(), Forged> {
        if self.tries == 0 {
            return Err(Forged);
        }
        let epoch = epoch(number);
        let opened = if epoch == self.now.epoch {
            open(&self.now.key)
        } else if epoch == self.now.epoch + 1 {
            let (next, raw) = self.now.after();
            let opened = open(&next.key);
            if opened.is_ok() {
                self.now = next;
                self.before = Some(std::mem::replace(&mut self.raw, raw));
            }
            opened
        } else {
            // Late frames are few, so their key is made for each anew: that is cheaper than 600 bytes for every
            // channel.
            let before = self.before.as_ref().filter(|_| epoch + 1 == self.now.epoch).ok_or(Forged)?;
            open(&self.now.cipher.key(before))
        };
        opened.map_err(|Unspecified| {
            self.tries -= 1;
            Forged
        })
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("cipher", &self.now.cipher)
            .field("epoch", &self.now.epoch)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("cipher", &self.now.cipher)
            .field("epoch", &self.now.epoch)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_opens_once_a_forger_has_had_its_tries() {
        for (cipher, tries) in [(Cipher::Aes256Gcm, 1 << 52), (Cipher::ChaCha20Poly1305, 1 << 36)] {
            let secret = Secret::default();
            let mut here = Session::new(cipher, &secret, &secret, None);
            assert_eq!(here.opener.tries, tries);
            here.opener.tries = 3;
            let mut sealed = *b"body";
            let tag = here.sealer.seal_in_place(0, b"header", &mut sealed);
            // What opens uses no try up, and may come again.
            for forged in [0, 1, 1, 1] {
                assert_eq!(here.opener.open(0, b"header", &tag, &mut sealed.clone()), Ok(()), "{cipher:?}");
                for _ in 0..forged {
                    assert_eq!(here.opener.open(0, b"another", &tag, &mut sealed.clone()), Err(Forged));
                }
            }
            assert_eq!(here.opener.open(0, b"header", &tag, &mut sealed), Err(Forged), "{cipher:?}");
        }
    }
}
