//! The handshake: two messages, after which both sides have the keys of a session.
//!
//! It is a handshake of the Noise Protocol Framework (rev. 34): `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s` with a shared
//! key, and `Noise_IK_25519_ChaChaPoly_BLAKE2s` with static keys, in which the initiator knows whom it calls. The
//! payload of each message is one byte: the cipher that the initiator would like for frames, then the one that the
//! responder has chosen (1: AES-256-GCM, 2: ChaCha20-Poly1305). Both are authenticated.
//!
//! # What a first message costs
//!
//! Its length is checked before anything else. If the key is shared, a stranger's message then costs some hashes. With
//! static keys it costs two multiplications on the curve, and a third one if the stranger knows our public key; he
//! pays two for it. Nothing is kept of it. `examples/ciphers.rs` measures them all. A limit for first messages is up to
//! the caller.
//!
//! # What is wiped
//!
//! Private keys, shared keys and keys of frames are wiped where this crate and AWS-LC hold them. What `snow` holds
//! until the end of the handshake is not: its copy of the shared key, and its chaining key.

use snow::{Builder, HandshakeState};
use zeroize::Zeroize;

use crate::cipher::Cipher;
use crate::frames::{Session, TAG};
use crate::keys::{KEY, Keys, PublicKey};
use crate::primitives::{self, Primitives, Secret};

const SHARED: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const STATIC: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

/// Bytes of a handshake message's payload: the cipher.
const PAYLOAD: usize = 1;
/// Bytes of a first message if the key is shared: ephemeral key, payload, tag.
pub const FIRST_SHARED: usize = KEY + PAYLOAD + TAG;
/// Bytes of a first message with static keys: ephemeral key, static key, tag, payload, tag.
pub const FIRST_STATIC: usize = KEY + KEY + TAG + PAYLOAD + TAG;
/// Bytes of every second message: ephemeral key, payload, tag. It is never longer than the first: nobody can make us
/// send more to a third party than he has sent.
pub const SECOND: usize = KEY + PAYLOAD + TAG;

/// Why there is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The keys name several peers, and nobody says which one is called.
    #[error("the key file names several peers; name the one that is called behind its address: udp:HOST:PORT#HEX")]
    WhichPeer,
    /// The keys name no peer at all.
    #[error("the key file names no peer")]
    NoPeer,
    /// A peer was named, and the key is shared: its holders cannot be told apart.
    #[error("with a shared key no peer can be chosen; leave its key away, or use `private:` and `public:` lines")]
    SharedPeer,
    /// The other side has proved to hold this key, or we were to call it, and our list does not have it.
    #[error("the peer's public key {0} is not in the key file; add it as a line `public:`")]
    Unknown(PublicKey),
    /// The message cannot be one of this handshake.
    #[error("a handshake message has {wanted} bytes here, not {got}; does the other side use keys of the same kind?")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes that such a message has.
        wanted: usize,
    },
    /// The message is forged or damaged, or was made for other keys or another prologue.
    #[error("the handshake message does not open: it is damaged, or the two sides differ in keys or in version")]
    Refused,
    /// The other side names a cipher that we do not have, or did not offer.
    #[error("the other side asks for cipher {0}, which is not on offer")]
    Cipher(u8),
    /// The handshake has ended.
    #[error("the handshake is over")]
    Over,
}

impl From<snow::Error> for SealError {
    fn from(error: snow::Error) -> Self {
        match error {
            snow::Error::State(_) => Self::Over,
            _ => Self::Refused,
        }
    }
}

/// What an initiator asks for. The default is what [`Initiator::begin`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Whom to call; with static keys only. None: the one peer of the list.
    pub peer: Option<PublicKey>,
    /// The cipher that we would like. [`Cipher::Aes256Gcm`] is used if both sides would like it.
    pub cipher: Cipher,
}

impl Default for Terms {
    fn default() -> Self {
        Self { peer: None, cipher: Cipher::fast_here() }
    }
}

/// The side that calls, waiting for the second message. About 1 KiB on the heap.
pub struct Initiator {
    noise: Box<HandshakeState>,
    offer: Cipher,
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Initiator").field("offer", &self.offer).finish_non_exhaustive()
    }
}

impl Initiator {
    /// Begins a handshake, with the one peer of static keys, and the cipher that is fast here. See
    /// [`begin_on`](Self::begin_on).
    ///
    /// # Errors
    /// [`SealError::WhichPeer`], [`SealError::NoPeer`].
    pub fn begin(keys: &Keys, prologue: &[u8], entropy: [u8; 32]) -> Result<(Self, Vec<u8>), SealError> {
        Self::begin_on(keys, Terms::default(), prologue, entropy)
    }

    /// Begins a handshake: the initiator, and the first message, which the other side gives to [`respond`].
    ///
    /// `prologue` are bytes that both sides know and want to be sure that they agree on, such as the version of the
    /// wire. `entropy` are 32 bytes that nobody can guess, fresh for every handshake: the same arguments give the same
    /// message.
    ///
    /// # Errors
    /// [`SealError::WhichPeer`], [`SealError::NoPeer`], [`SealError::SharedPeer`], [`SealError::Unknown`], if `terms`
    /// and `keys` do not say whom to call; [`SealError::Refused`], if that peer's public key is none (of low order).
    pub fn begin_on(
        keys: &Keys,
        terms: Terms,
        prologue: &[u8],
        entropy: [u8; 32],
    ) -> Result<(Self, Vec<u8>), SealError> {
        let peer = keys.callee(terms.peer)?;
        let mut builder = noise(keys, b"initiator", prologue, entropy)?;
        if let Some(peer) = &peer {
            builder = builder.remote_public_key(peer.bytes())?;
        }
        let mut noise = builder.build_initiator()?;
        let mut first = vec![0; first_len(keys)];
        noise.write_message(&[terms.cipher.code()], &mut first)?;
        Ok((Self { noise: Box::new(noise), offer: terms.cipher }, first))
    }

    /// Ends the handshake with the second message.
    ///
    /// # Errors
    /// As [`hear`](Self::hear).
    pub fn finish(mut self, second: &[u8]) -> Result<Session, SealError> {
        self.hear(second)
    }

    /// Ends the handshake with what may be the second message. After an error the initiator waits as before, so that
    /// a forged message does not end the handshake.
    ///
    /// # Errors
    /// [`SealError::Length`] and [`SealError::Refused`], if it is not the second message; [`SealError::Cipher`], if the
    /// other side breaks the rules; [`SealError::Over`], if there is a session already.
    pub fn hear(&mut self, second: &[u8]) -> Result<Session, SealError> {
        length(second, SECOND)?;
        let code = read(&mut self.noise, second)?;
        let chosen = Cipher::from_code(code).filter(|chosen| self.offer.agree(*chosen) == *chosen);
        Ok(session(&mut self.noise, chosen.ok_or(SealError::Cipher(code))?))
    }
}

/// Answers a first message, and prefers the cipher that is fast here. See [`respond_on`].
///
/// # Errors
/// As [`respond_on`].
pub fn respond(keys: &Keys, prologue: &[u8], entropy: [u8; 32], first: &[u8]) -> Result<(Session, Vec<u8>), SealError> {
    respond_on(keys, Cipher::fast_here(), prologue, entropy, first)
}

/// Answers a first message: the session, and the second message, which the other side gives to [`Initiator::finish`].
/// `prologue` and `entropy` are as for [`Initiator::begin_on`]; `cipher` is the one that we would like.
///
/// A first message that is repeated is answered again, with other keys. See the crate's text.
///
/// # Errors
/// [`SealError::Length`] and [`SealError::Refused`], if it is not a first message for these keys and this prologue;
/// [`SealError::Unknown`], if the caller is not in the list; [`SealError::Cipher`], if it offers what does not exist.
pub fn respond_on(
    keys: &Keys,
    cipher: Cipher,
    prologue: &[u8],
    entropy: [u8; 32],
    first: &[u8],
) -> Result<(Session, Vec<u8>), SealError> {
    length(first, first_len(keys))?;
    let mut noise = noise(keys, b"responder", prologue, entropy)?.build_responder()?;
    let code = read(&mut noise, first)?;
    if let Keys::Static { peers, .. } = keys {
        let caller = peer(&noise).ok_or(SealError::Refused)?;
        peers.contains(&caller).then_some(()).ok_or(SealError::Unknown(caller))?;
    }
    let chosen = cipher.agree(Cipher::from_code(code).ok_or(SealError::Cipher(code))?);
    let mut second = vec![0; SECOND];
    noise.write_message(&[chosen.code()], &mut second)?;
    Ok((session(&mut noise, chosen), second))
}

impl Keys {
    /// Whom a call goes to that names this peer, or none; `None` if holders of the key cannot be told apart.
    ///
    /// # Errors
    /// [`SealError::WhichPeer`], [`SealError::NoPeer`], [`SealError::SharedPeer`], [`SealError::Unknown`], if the keys
    /// do not say whom.
    pub fn callee(&self, named: Option<PublicKey>) -> Result<Option<PublicKey>, SealError> {
        match (self, named) {
            (Self::Shared(_), None) => Ok(None),
            (Self::Shared(_), Some(_)) => Err(SealError::SharedPeer),
            (Self::Static { peers, .. }, Some(named)) if peers.contains(&named) => Ok(Some(named)),
            (Self::Static { .. }, Some(named)) => Err(SealError::Unknown(named)),
            (Self::Static { peers, .. }, None) => match peers[..] {
                [] => Err(SealError::NoPeer),
                [peer] => Ok(Some(peer)),
                _ => Err(SealError::WhichPeer),
            },
        }
    }
}

/// Noise's handshake for keys of this kind, all but whom to call.
fn noise<'a>(
    keys: &'a Keys,
    role: &'static [u8],
    prologue: &'a [u8],
    entropy: [u8; 32],
) -> Result<Builder<'a>, SealError> {
    let name = match keys {
        Keys::Shared(_) => SHARED,
        Keys::Static { .. } => STATIC,
    };
    let primitives = Primitives { entropy: Secret::new(entropy), role };
    let builder = Builder::with_resolver(name.parse()?, Box::new(primitives)).prologue(prologue)?;
    Ok(match keys {
        Keys::Shared(shared) => builder.psk(0, shared.bytes())?,
        Keys::Static { own, .. } => builder.local_private_key(own.bytes())?,
    })
}

const fn first_len(keys: &Keys) -> usize {
    match keys {
        Keys::Shared(_) => FIRST_SHARED,
        Keys::Static { .. } => FIRST_STATIC,
    }
}

fn length(message: &[u8], wanted: usize) -> Result<(), SealError> {
    if message.len() == wanted { Ok(()) } else { Err(SealError::Length { got: message.len(), wanted }) }
}

/// The payload of a message whose length is right.
fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<u8, SealError> {
    let mut payload = [0; PAYLOAD];
    noise.read_message(message, &mut payload)?;
    Ok(payload[0])
}

fn peer(noise: &HandshakeState) -> Option<PublicKey> {
    noise.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey::from_bytes)
}

/// The session of a handshake that has ended: for each direction, Noise's key (section 5.2, `Split`), tied to all that
/// was said by the hash of the handshake.
fn session(noise: &mut HandshakeState, cipher: Cipher) -> Session {
    let (mut forth, mut back) = noise.dangerously_get_raw_split();
    let secret = |key: &[u8; KEY]| {
        let mut secret = Secret::default();
        let key = primitives::extract(noise.get_handshake_hash(), key);
        primitives::expand(&key, &[b"cutthrough frames", &[cipher.code()]], &mut *secret);
        secret
    };
    let (ours, theirs) =
        if noise.is_initiator() { (secret(&forth), secret(&back)) } else { (secret(&back), secret(&forth)) };
    forth.zeroize();
    back.zeroize();
    Session::new(cipher, &ours, &theirs, peer(noise))
}
