//! Keys and sessions that the tests share.

use cutthrough_seal::{Cipher, Initiator, Keys, PrivateKey, Session, SharedKey, Terms, respond_on};

/// What both sides know beforehand.
pub(crate) const PROLOGUE: &[u8] = b"cutthrough test";

/// A shared key.
pub(crate) fn shared() -> Keys {
    Keys::Shared(SharedKey::generate([1; 32]))
}

/// Static keys of two that name each other: initiator, responder.
pub(crate) fn pair() -> (Keys, Keys) {
    let (own, other) = (PrivateKey::generate([2; 32]), PrivateKey::generate([3; 32]));
    let peers = (vec![other.public()], vec![own.public()]);
    (Keys::Static { own, peers: peers.0 }, Keys::Static { own: other, peers: peers.1 })
}

/// A handshake: both messages, and the sessions of the initiator and of the responder.
pub(crate) fn meet(keys: (&Keys, &Keys), cipher: Cipher) -> (Vec<u8>, Vec<u8>, Session, Session) {
    let terms = Terms { peer: None, cipher };
    let (initiator, first) = Initiator::begin_on(keys.0, terms, PROLOGUE, [4; 32]).unwrap();
    let (theirs, second) = respond_on(keys.1, cipher, PROLOGUE, [5; 32], &first).unwrap();
    let ours = initiator.finish(&second).unwrap();
    (first, second, ours, theirs)
}
