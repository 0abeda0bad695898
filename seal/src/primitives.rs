//! The arithmetic under the handshake: X25519, ChaCha20-Poly1305 and HKDF of AWS-LC, BLAKE2s of the crate `blake2`, in
//! the shapes that `snow` asks for.
//!
//! Own shapes instead of those that `snow` brings, for three reasons: the ephemeral key comes from the caller's
//! entropy, private keys are wiped, and a public key of low order is refused (RFC 7748 section 6.1), so that a peer's
//! static key that anyone can answer for proves nothing.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use blake2::{Blake2s256, Digest};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types;
use zeroize::Zeroizing;

use crate::cipher::Cipher;
use crate::frames::TAG;
use crate::keys::KEY;

/// Bytes that are wiped when they are dropped.
pub(crate) type Secret = Zeroizing<[u8; KEY]>;

/// HKDF-Extract with SHA-256 (RFC 5869 section 2.2).
pub(crate) fn extract(salt: &[u8], secret: &[u8]) -> Prk {
    Salt::new(HKDF_SHA256, salt).extract(secret)
}

/// HKDF-Expand with SHA-256 (RFC 5869 section 2.3) into all of `out`, at most 8160 bytes.
pub(crate) fn expand(key: &Prk, info: &[&[u8]], out: &mut [u8]) {
    let filled = key.expand(info, Length(out.len())).and_then(|okm| okm.fill(out));
    filled.expect("HKDF gives up to 255 hashes");
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The nonce of a number: the number in the last 8 of 12 bytes, little-endian, as Noise writes it for ChaChaPoly (rev.
/// 34, section 12.3).
pub(crate) fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The public key of a private one.
pub(crate) fn public(private: &[u8; KEY]) -> [u8; KEY] {
    let mut dh = Dh::default();
    types::Dh::set(&mut dh, private);
    dh.public
}

/// Hands `snow` the primitives of both handshakes, and randomness out of the caller's entropy.
pub(crate) struct Primitives {
    /// 32 bytes that nobody else knows.
    pub(crate) entropy: Secret,
    /// Who draws: the two sides get different bytes, even from the same entropy.
    pub(crate) role: &'static [u8],
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn types::Random>> {
        let key = extract(b"cutthrough handshake", &*self.entropy);
        Some(Box::new(Expander { key, role: self.role, drawn: 0 }))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn types::Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(Dh::default()) as Box<dyn types::Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn types::Hash>> {
        matches!(choice, HashChoice::Blake2s).then(|| Box::new(Blake2s(Blake2s256::new())) as Box<dyn types::Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn types::Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly).then(|| Box::new(ChaChaPoly(None)) as Box<dyn types::Cipher>)
    }
}

/// Entropy, drawn out: each draw is an HKDF-Expand of its own.
struct Expander {
    key: Prk,
    role: &'static [u8],
    drawn: u8,
}

impl types::Random for Expander {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let draw = [self.drawn];
        self.drawn = self.drawn.checked_add(1).ok_or(Error::Rng)?;
        expand(&self.key, &[self.role, &draw], dest);
        Ok(())
    }
}

/// X25519 (RFC 7748).
#[derive(Default)]
struct Dh {
    private: Secret,
    ready: Option<agreement::PrivateKey>,
    public: [u8; KEY],
}

impl types::Dh for Dh {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY
    }

    fn priv_len(&self) -> usize {
        KEY
    }

    fn set(&mut self, privkey: &[u8]) {
        self.private.copy_from_slice(privkey);
        let ready = agreement::PrivateKey::from_private_key(&X25519, privkey).expect("any 32 bytes are a key");
        self.public.copy_from_slice(ready.compute_public_key().expect("every private key has a public one").as_ref());
        self.ready = Some(ready);
    }

    fn generate(&mut self, rng: &mut dyn types::Random) -> Result<(), Error> {
        let mut private = Secret::default();
        rng.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    /// Fails for a public key of low order, whose secret is zero whatever the private key.
    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let ready = self.ready.as_ref().ok_or(Error::Dh)?;
        let theirs = UnparsedPublicKey::new(&X25519, pubkey.get(..KEY).ok_or(Error::Dh)?);
        agreement::agree(ready, theirs, Error::Dh, |secret| {
            out.get_mut(..secret.len()).ok_or(Error::Dh)?.copy_from_slice(secret);
            Ok(())
        })
    }
}

/// BLAKE2s with hashes of 32 bytes (RFC 7693).
struct Blake2s(Blake2s256);

impl types::Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&std::mem::take(&mut self.0).finalize());
    }
}

/// ChaCha20-Poly1305 as Noise uses it (rev. 34, section 12.3). There is no key before the first `set`.
struct ChaChaPoly(Option<LessSafeKey>);

impl types::Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY]) {
        self.0 = Some(Cipher::ChaCha20Poly1305.key(key));
    }

    fn encrypt(&self, number: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let key = self.0.as_ref().expect("a key is set before the first use");
        let (body, rest) = out.split_at_mut(plaintext.len());
        let aad = Aad::from(authtext);
        let sealed = key.seal_out_of_place_scatter(nonce(number), aad, plaintext, body, &[], &mut rest[..TAG]);
        sealed.expect("a handshake message is short");
        plaintext.len() + TAG
    }

    fn decrypt(&self, number: u64, authtext: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::Decrypt)?;
        let (body, tag) = sealed.split_last_chunk::<TAG>().ok_or(Error::Decrypt)?;
        let plain = out.get_mut(..body.len()).ok_or(Error::Decrypt)?;
        key.open_separate_gather(nonce(number), Aad::from(authtext), body, tag, plain).map_err(|_| Error::Decrypt)?;
        Ok(body.len())
    }
}

#[cfg(test)]
mod tests {
    use snow::{Builder, HandshakeState};

    use super::*;

    const ROLES: [&[u8]; 2] = [b"initiator", b"responder"];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// Both sides of a handshake with the keys of Cacophony's test vectors; the ephemeral keys are fixed.
    fn sides(name: &str, add: impl Fn(Builder<'static>, usize) -> Builder<'static>) -> [HandshakeState; 2] {
        let ephemeral: [&[u8]; 2] = [
            &bytes("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a").leak()[..],
            &bytes("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b").leak()[..],
        ];
        [0, 1].map(|side| {
            let primitives = Primitives { entropy: Secret::default(), role: ROLES[side] };
            let builder = Builder::with_resolver(name.parse().unwrap(), Box::new(primitives));
            let builder = builder.fixed_ephemeral_key_for_testing_only(ephemeral[side]).prologue(b"John Galt").unwrap();
            let builder = add(builder, side);
            if side == 0 { builder.build_initiator().unwrap() } else { builder.build_responder().unwrap() }
        })
    }

    /// Both messages are those of the vector, are read, and end in the vector's hash.
    fn holds([mut initiator, mut responder]: [HandshakeState; 2], first: &str, second: &str, hash: &str) {
        let mut payload = [0; 100];
        let mut message = [0; 200];
        let len = initiator.write_message(b"Ludwig von Mises", &mut message).unwrap();
        assert_eq!(message[..len], bytes(first));
        assert_eq!(responder.read_message(&message[..len], &mut payload).unwrap(), 16);
        assert_eq!(&payload[..16], b"Ludwig von Mises");
        let len = responder.write_message(b"Murray Rothbard", &mut message).unwrap();
        assert_eq!(message[..len], bytes(second));
        assert_eq!(initiator.read_message(&message[..len], &mut payload).unwrap(), 15);
        assert_eq!(initiator.get_handshake_hash(), bytes(hash));
        assert_eq!(responder.get_handshake_hash(), bytes(hash));
        assert_eq!(initiator.dangerously_get_raw_split(), responder.dangerously_get_raw_split());
    }

    #[test]
    fn the_handshake_of_a_shared_key_is_that_of_cacophony() {
        let sides = sides("Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s", |builder, _| {
            builder.psk(0, b"This is my Austrian perspective!").unwrap()
        });
        holds(
            sides,
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944\
             fda936bec35a8adfdff198386f7d5475880897edaaf7495314c99095a2e4d66a",
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
             4cd2a371993ba41ea11448024fca32766b169183c9e691a7a433279da7e729",
            "b3e9c846d264120a4211e18307da91157a21e92e69b639c50f027f101db3e1a6",
        );
    }

    #[test]
    fn the_handshake_of_static_keys_is_that_of_cacophony() {
        let own: [&[u8]; 2] = [
            &bytes("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1").leak()[..],
            &bytes("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893").leak()[..],
        ];
        let peer: &[u8] = bytes("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62").leak();
        let sides = sides("Noise_IK_25519_ChaChaPoly_BLAKE2s", |builder, side| {
            let builder = builder.local_private_key(own[side]).unwrap();
            if side == 0 { builder.remote_public_key(peer).unwrap() } else { builder }
        });
        holds(
            sides,
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944\
             0b03ddc7aac5123d06a1b23b71670e32e76c28239a7ca4ac8f784de7e44c1adb\
             fc6e83fef7352a58d9d56157400c0a737b1d171ce368229c7b752ac25b8faf4e\
             ca690f6d896f543be02c996ab2b86b76",
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
             d9b5a8927f0ac9655ef76833bc7e5561f42e691ac8404efd6fbd6308b6a27c",
            "48f3cb8bc9319da4ba1e9933991b1c4ed4034f1f126a76d3a1fbcfd7f94248d4",
        );
    }

    #[test]
    fn draws_differ_by_role_by_turn_and_by_entropy() {
        let draw = |entropy: u8, role: usize| {
            let primitives = Primitives { entropy: Secret::new([entropy; KEY]), role: ROLES[role] };
            let mut random = primitives.resolve_rng().unwrap();
            let mut drawn = [[0; KEY]; 2];
            drawn.iter_mut().for_each(|drawn| random.try_fill_bytes(drawn).unwrap());
            drawn
        };
        let mut all: Vec<[u8; KEY]> = [draw(1, 0), draw(1, 1), draw(2, 0), draw(2, 1)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
        assert_eq!(draw(1, 0), draw(1, 0));
    }

    #[test]
    fn a_public_key_of_low_order_is_refused() {
        let mut dh = Dh::default();
        types::Dh::set(&mut dh, &[7; KEY]);
        let mut one = [0; KEY];
        one[0] = 1;
        for low in [[0; KEY], one] {
            assert_eq!(types::Dh::dh(&dh, &low, &mut [0; KEY]), Err(Error::Dh));
        }
        assert_eq!(types::Dh::dh(&dh, &public(&[8; KEY]), &mut [0; KEY]), Ok(()));
    }
}
