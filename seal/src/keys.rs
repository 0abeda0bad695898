//! Keys, and the text that they are kept in.
//!
//! A key file has one key on a line; empty lines and what follows a `#` count for nothing. Either
//!
//! ```text
//! psk:HEX          # the key that all endpoints share
//! ```
//!
//! or
//!
//! ```text
//! private:HEX      # our own
//! public:HEX       # a peer's; one line for each
//! ```
//!
//! where `HEX` stands for 64 hexadecimal digits. No error and no `Debug` output holds a digit of a secret.

use std::fmt;

use zeroize::Zeroizing;

use crate::primitives::{self, Secret};

/// Bytes of every key.
pub const KEY: usize = 32;

/// What is wrong with a key's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// Nothing says what kind of key it is.
    #[error("a key is written `psk:HEX`, `private:HEX` or `public:HEX`")]
    Kind,
    /// Another number of characters, given here.
    #[error("a key has 64 hexadecimal digits, not {0}")]
    Length(usize),
    /// The character at this place, counted from 1, is none of 0-9, a-f, A-F.
    #[error("character {0} of the key is not a hexadecimal digit")]
    Digit(usize),
    /// All zeros: a place for a key, and not a key.
    #[error("the key is all zeros")]
    Zero,
    /// There is room for one.
    #[error("a second `psk:` or `private:` line; there can be one")]
    Second,
    /// The same public key as in an earlier line.
    #[error("this public key was named before")]
    Twice,
    /// A shared key and others.
    #[error("a shared key stands alone: either one `psk:` line, or one `private:` line and `public:` lines")]
    Mixed,
    /// Neither a shared nor a private key.
    #[error("there is no key; write a line `psk:HEX`, or a line `private:HEX` and `public:HEX` for each peer")]
    None,
    /// A private key that nobody could be called or heard with.
    #[error("there is no peer; write a line `public:HEX` for each")]
    NoPeer,
    /// Public keys and no private one.
    #[error("there is no key of our own; write a line `private:HEX`")]
    NoPrivate,
}

/// What is wrong with a key file, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyError {
    /// The line, counted from 1; none if something is missing in the whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub fault: KeyFault,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl std::error::Error for KeyError {}

/// A key that both sides hold. It is wiped when it is dropped.
#[derive(Clone)]
pub struct SharedKey(Secret);

/// The secret half of a key pair (X25519, RFC 7748). It is wiped when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(Secret);

/// The half of a key pair that everybody may know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY]);

impl SharedKey {
    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY]) -> Self {
        Self(Secret::new(bytes))
    }

    /// A new key, out of 32 bytes that nobody can guess.
    #[must_use]
    pub fn generate(entropy: [u8; KEY]) -> Self {
        Self(drawn(entropy, b"shared key"))
    }

    /// The key of 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`KeyFault::Length`], [`KeyFault::Digit`], [`KeyFault::Zero`].
    pub fn from_hex(hex: &str) -> Result<Self, KeyFault> {
        Ok(Self(decode(hex)?))
    }

    /// 64 hexadecimal digits. They are the secret; the text is wiped when it is dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        encode(&self.0)
    }

    /// Its line of a key file, without the end of the line. It holds the secret.
    #[must_use]
    pub fn line(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("psk:{}", *self.to_hex()))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }
}

impl PrivateKey {
    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY]) -> Self {
        Self(Secret::new(bytes))
    }

    /// A new key, out of 32 bytes that nobody can guess.
    #[must_use]
    pub fn generate(entropy: [u8; KEY]) -> Self {
        Self(drawn(entropy, b"private key"))
    }

    /// The key of 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`KeyFault::Length`], [`KeyFault::Digit`], [`KeyFault::Zero`].
    pub fn from_hex(hex: &str) -> Result<Self, KeyFault> {
        Ok(Self(decode(hex)?))
    }

    /// 64 hexadecimal digits. They are the secret; the text is wiped when it is dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        encode(&self.0)
    }

    /// Its line of a key file, without the end of the line. It holds the secret.
    #[must_use]
    pub fn line(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("private:{}", *self.to_hex()))
    }

    /// The public half, for the key files of peers.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(primitives::public(&self.0))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }
}

impl PublicKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY]) -> Self {
        Self(bytes)
    }

    /// The key of 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`KeyFault::Length`], [`KeyFault::Digit`], [`KeyFault::Zero`].
    pub fn from_hex(hex: &str) -> Result<Self, KeyFault> {
        Ok(Self(*decode(hex)?))
    }

    /// 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        std::mem::take(&mut *encode(&self.0))
    }

    /// Its line of a key file, without the end of the line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("public:{}", self.to_hex())
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What an endpoint proves itself with.
#[derive(Debug, Clone)]
pub enum Keys {
    /// One key for all: who has it is a peer.
    Shared(SharedKey),
    /// A key pair for each endpoint.
    Static {
        /// Our own.
        own: PrivateKey,
        /// Who may call us, and whom we may call.
        peers: Vec<PublicKey>,
    },
}

impl Keys {
    /// Reads the text of a key file.
    ///
    /// # Errors
    /// [`KeyError`]: the first line that is wrong, or what is missing in the whole.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let mut found = Found::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                found.line(line).map_err(|fault| KeyError { line: Some(number), fault })?;
            }
        }
        found.keys().map_err(|fault| KeyError { line: None, fault })
    }
}

/// The keys of the lines so far.
#[derive(Default)]
struct Found {
    shared: Option<SharedKey>,
    own: Option<PrivateKey>,
    peers: Vec<PublicKey>,
}

impl Found {
    fn line(&mut self, line: &str) -> Result<(), KeyFault> {
        let (kind, hex) = line.split_once(':').ok_or(KeyFault::Kind)?;
        let hex = hex.trim();
        match kind.trim() {
            "psk" if self.own.is_some() || !self.peers.is_empty() => Err(KeyFault::Mixed),
            "private" | "public" if self.shared.is_some() => Err(KeyFault::Mixed),
            "psk" if self.shared.is_some() => Err(KeyFault::Second),
            "private" if self.own.is_some() => Err(KeyFault::Second),
            "psk" => SharedKey::from_hex(hex).map(|key| self.shared = Some(key)),
            "private" => PrivateKey::from_hex(hex).map(|key| self.own = Some(key)),
            "public" => match PublicKey::from_hex(hex)? {
                peer if self.peers.contains(&peer) => Err(KeyFault::Twice),
                peer => {
                    self.peers.push(peer);
                    Ok(())
                }
            },
            _ => Err(KeyFault::Kind),
        }
    }

    fn keys(self) -> Result<Keys, KeyFault> {
        match (self.shared, self.own) {
            (Some(shared), _) => Ok(Keys::Shared(shared)),
            (None, Some(_)) if self.peers.is_empty() => Err(KeyFault::NoPeer),
            (None, Some(own)) => Ok(Keys::Static { own, peers: self.peers }),
            (None, None) if self.peers.is_empty() => Err(KeyFault::None),
            (None, None) => Err(KeyFault::NoPrivate),
        }
    }
}

fn drawn(entropy: [u8; KEY], what: &'static [u8]) -> Secret {
    let mut key = Secret::default();
    primitives::expand(&primitives::extract(b"cutthrough key", &*Secret::new(entropy)), &[what], &mut *key);
    key
}

fn decode(hex: &str) -> Result<Secret, KeyFault> {
    let length = hex.chars().count();
    if length != 2 * KEY {
        return Err(KeyFault::Length(length));
    }
    let mut key = Secret::default();
    for (at, digit) in hex.chars().enumerate() {
        let digit = digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()).ok_or(KeyFault::Digit(at + 1))?;
        key[at / 2] = key[at / 2] << 4 | digit;
    }
    if key.iter().all(|byte| *byte == 0) { Err(KeyFault::Zero) } else { Ok(key) }
}

fn encode(key: &[u8; KEY]) -> Zeroizing<String> {
    let mut hex = Zeroizing::new(String::with_capacity(2 * KEY));
    for byte in key {
        hex.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
    }
    hex
}
