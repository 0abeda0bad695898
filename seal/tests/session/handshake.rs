//! Handshakes that succeed, and all those that must not.

use cutthrough_seal::{
    Cipher, FIRST_SHARED, FIRST_STATIC, Initiator, Keys, PrivateKey, PublicKey, SECOND, SealError, Session, SharedKey,
    Terms, respond, respond_on,
};
use proptest::prelude::*;

use crate::sides::{PROLOGUE, meet, pair, shared};

const AES: Cipher = Cipher::Aes256Gcm;
const CHACHA: Cipher = Cipher::ChaCha20Poly1305;

/// Whether what one side seals is opened by the other, both ways.
fn understand(one: &mut Session, other: &mut Session) -> bool {
    let through = |from: &mut Session, to: &mut Session| {
        let mut body = *b"hello";
        let tag = from.sealer.seal_in_place(0, b"header", &mut body);
        to.opener.open(0, b"header", &tag, &mut body).is_ok() && &body == b"hello"
    };
    through(one, other) && through(other, one)
}

fn refused(keys: &Keys, prologue: &[u8], first: &[u8]) -> SealError {
    respond(keys, prologue, [5; 32], first).expect_err("a wrong first message is answered")
}

#[test]
fn both_kinds_of_keys_make_a_session() {
    let (own, other) = pair();
    for (keys, first_len) in [((&shared(), &shared()), FIRST_SHARED), ((&own, &other), FIRST_STATIC)] {
        let (first, second, mut ours, mut theirs) = meet(keys, AES);
        assert_eq!((first.len(), second.len()), (first_len, SECOND));
        assert!(second.len() <= first.len());
        assert!(understand(&mut ours, &mut theirs));
    }
}

#[test]
fn a_session_names_the_peer_if_it_has_a_name() {
    let (own, other) = pair();
    let public = |keys: &Keys| match keys {
        Keys::Static { own, .. } => Some(own.public()),
        Keys::Shared(_) => None,
    };
    let (.., ours, theirs) = meet((&own, &other), AES);
    assert_eq!((ours.peer, theirs.peer), (public(&other), public(&own)));
    let (.., ours, theirs) = meet((&shared(), &shared()), AES);
    assert_eq!((ours.peer, theirs.peer), (None, None));
}

#[test]
fn aes_is_used_if_both_sides_would_like_it() {
    for (ours, theirs, agreed) in [(AES, AES, AES), (AES, CHACHA, CHACHA), (CHACHA, AES, CHACHA)] {
        let terms = Terms { peer: None, cipher: ours };
        let (initiator, first) = Initiator::begin_on(&shared(), terms, PROLOGUE, [4; 32]).unwrap();
        let (mut theirs, second) = respond_on(&shared(), theirs, PROLOGUE, [5; 32], &first).unwrap();
        let mut ours = initiator.finish(&second).unwrap();
        assert_eq!((ours.cipher(), theirs.cipher()), (agreed, agreed));
        assert!(understand(&mut ours, &mut theirs));
    }
}

#[test]
fn the_same_entropy_makes_the_same_messages_and_other_entropy_others() {
    let begin = |entropy| Initiator::begin(&shared(), PROLOGUE, [entropy; 32]).unwrap().1;
    assert_eq!(begin(4), begin(4));
    assert_ne!(begin(4)[..32], begin(6)[..32]);
    let first = begin(4);
    let answer = |entropy| respond(&shared(), PROLOGUE, [entropy; 32], &first).unwrap().1;
    assert_eq!(answer(5), answer(5));
    assert_ne!(answer(5)[..32], answer(6)[..32]);
    assert_ne!(answer(4)[..32], first[..32]);
}

#[test]
fn another_shared_key_is_refused() {
    let (_, first) = Initiator::begin(&shared(), PROLOGUE, [4; 32]).unwrap();
    let other = Keys::Shared(SharedKey::generate([9; 32]));
    let error = refused(&other, PROLOGUE, &first);
    assert_eq!(error, SealError::Refused);
    assert_eq!(
        error.to_string(),
        "the handshake message does not open: it is damaged, or the two sides differ in keys or in version"
    );
}

#[test]
fn another_prologue_is_refused() {
    let (own, other) = pair();
    for (ours, theirs) in [(&shared(), &shared()), (&own, &other)] {
        let (_, first) = Initiator::begin(ours, PROLOGUE, [4; 32]).unwrap();
        assert_eq!(refused(theirs, b"cutthrough tesu", &first), SealError::Refused);
    }
}

#[test]
fn a_caller_that_is_not_in_the_list_is_refused_by_name() {
    let (_, other) = pair();
    let Keys::Static { own: callee, .. } = &other else { panic!("not static") };
    let stranger = PrivateKey::generate([9; 32]);
    let name = stranger.public();
    let keys = Keys::Static { own: stranger, peers: vec![callee.public()] };
    let (_, first) = Initiator::begin(&keys, PROLOGUE, [4; 32]).unwrap();
    let error = refused(&other, PROLOGUE, &first);
    assert_eq!(error, SealError::Unknown(name));
    let said = error.to_string();
    assert!(said.starts_with(&format!("the peer's public key {name} is not in the key file; ")), "{said}");
}

#[test]
fn a_call_for_somebody_else_is_refused() {
    let (own, _) = pair();
    let (_, first) = Initiator::begin(&own, PROLOGUE, [4; 32]).unwrap();
    let Keys::Static { own: caller, .. } = &own else { panic!("not static") };
    let somebody = Keys::Static { own: PrivateKey::generate([9; 32]), peers: vec![caller.public()] };
    assert_eq!(refused(&somebody, PROLOGUE, &first), SealError::Refused);
}

#[test]
fn keys_of_another_kind_are_refused() {
    let (own, other) = pair();
    let (_, first) = Initiator::begin(&own, PROLOGUE, [4; 32]).unwrap();
    let wrong = SealError::Length { got: FIRST_STATIC, wanted: FIRST_SHARED };
    assert_eq!(refused(&shared(), PROLOGUE, &first), wrong);
    assert!(wrong.to_string().contains("keys of the same kind?"));
    let (_, first) = Initiator::begin(&shared(), PROLOGUE, [4; 32]).unwrap();
    assert_eq!(refused(&other, PROLOGUE, &first), SealError::Length { got: FIRST_SHARED, wanted: FIRST_STATIC });
}

#[test]
fn it_has_to_be_clear_who_is_called() {
    let begin = |keys: &Keys, peer| {
        let terms = Terms { peer, ..Terms::default() };
        Initiator::begin_on(keys, terms, PROLOGUE, [4; 32]).map(|_| ()).err()
    };
    let peers: Vec<PublicKey> = [5, 6].map(|n| PrivateKey::generate([n; 32]).public()).to_vec();
    let nobody = Keys::Static { own: PrivateKey::generate([7; 32]), peers: Vec::new() };
    let two = Keys::Static { own: PrivateKey::generate([7; 32]), peers: peers.clone() };
    let stranger = PublicKey::from_bytes([9; 32]);
    assert_eq!(begin(&nobody, None), Some(SealError::NoPeer));
    assert_eq!(begin(&two, None), Some(SealError::WhichPeer));
    assert_eq!(begin(&two, Some(peers[1])), None);
    assert_eq!(begin(&two, Some(stranger)), Some(SealError::Unknown(stranger)));
    assert_eq!(begin(&shared(), Some(stranger)), Some(SealError::SharedPeer));
    let low = PublicKey::from_bytes([0; 32]);
    let fooled = Keys::Static { own: PrivateKey::generate([7; 32]), peers: vec![low] };
    assert_eq!(begin(&fooled, None), Some(SealError::Refused));
}

#[test]
fn a_forged_second_message_does_not_end_the_handshake() {
    let (own, other) = pair();
    for (ours, theirs) in [(&shared(), &shared()), (&own, &other)] {
        let (mut initiator, first) = Initiator::begin(ours, PROLOGUE, [4; 32]).unwrap();
        let (mut theirs, second) = respond(theirs, PROLOGUE, [5; 32], &first).unwrap();
        assert_eq!(initiator.hear(&[7; SECOND]).err(), Some(SealError::Refused));
        assert_eq!(initiator.hear(&[0; SECOND]).err(), Some(SealError::Refused));
        assert_eq!(initiator.hear(&[]).err(), Some(SealError::Length { got: 0, wanted: SECOND }));
        assert_eq!(initiator.hear(&first[..SECOND]).err(), Some(SealError::Refused));
        let mut ours = initiator.hear(&second).unwrap();
        assert!(understand(&mut ours, &mut theirs));
        assert_eq!(initiator.hear(&second).err(), Some(SealError::Over));
    }
}

#[test]
fn a_repeated_first_message_makes_another_session() {
    let (_, first) = Initiator::begin(&shared(), PROLOGUE, [4; 32]).unwrap();
    let (mut one, _) = respond(&shared(), PROLOGUE, [5; 32], &first).unwrap();
    let (mut other, _) = respond(&shared(), PROLOGUE, [6; 32], &first).unwrap();
    assert!(!understand(&mut one, &mut other));
}

#[test]
fn sessions_go_from_thread_to_thread_and_show_no_secret() {
    fn sent<T: Send>(_: &T) {}
    let (initiator, _) = Initiator::begin(&shared(), PROLOGUE, [4; 32]).unwrap();
    let (.., session, _) = meet((&shared(), &shared()), AES);
    sent(&initiator);
    sent(&session);
    assert_eq!(format!("{:?}", session.sealer), "Sealer { cipher: Aes256Gcm, epoch: 0, .. }");
    assert_eq!(format!("{:?}", session.opener), "Opener { cipher: Aes256Gcm, epoch: 0, .. }");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_change_of_a_message_is_refused(fixed: bool, at: prop::sample::Index, bit in 0..8) {
        let (own, other) = pair();
        let (ours, theirs) = if fixed { (own, other) } else { (shared(), shared()) };
        let (mut initiator, first) = Initiator::begin(&ours, PROLOGUE, [4; 32]).unwrap();
        let (_, second) = respond(&theirs, PROLOGUE, [5; 32], &first).unwrap();
        let flipped = |message: &[u8]| {
            let mut message = message.to_vec();
            *at.get_mut(&mut message) ^= 1_u8 << bit;
            message
        };
        prop_assert_eq!(respond(&theirs, PROLOGUE, [5; 32], &flipped(&first)).err(), Some(SealError::Refused));
        prop_assert_eq!(initiator.hear(&flipped(&second)).err(), Some(SealError::Refused));
        prop_assert!(initiator.finish(&second).is_ok());
    }

    #[test]
    fn any_bytes_are_refused(
        fixed: bool,
        right: bool,
        prologue in prop::collection::vec(any::<u8>(), 0..80),
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (own, other) = pair();
        let (ours, theirs) = if fixed { (own, other) } else { (shared(), shared()) };
        let (mut initiator, first) = Initiator::begin(&ours, &prologue, [4; 32]).unwrap();
        if right {
            bytes.resize(first.len(), 0);
        }
        prop_assert!(respond(&theirs, &prologue, [5; 32], &bytes).is_err());
        bytes.truncate(SECOND);
        prop_assert!(initiator.hear(&bytes).is_err());
    }
}
