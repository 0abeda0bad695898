//! Key files: what is read, what is refused, and that nothing secret is shown.

use cutthrough_seal::{KeyError, KeyFault, Keys, PrivateKey, PublicKey, SharedKey};
use proptest::prelude::*;

const ONE: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const TWO: &str = "02FFaa0202020202020202020202020202020202020202020202020202020202";

fn fault(text: &str) -> (Option<usize>, KeyFault) {
    let KeyError { line, fault, .. } = Keys::from_text(text).expect_err("a wrong key file is read");
    (line, fault)
}

#[test]
fn a_shared_key_is_read() {
    let keys = Keys::from_text(&format!("# ours\n\n  psk : {ONE}  # since then\r\n")).unwrap();
    assert!(matches!(keys, Keys::Shared(key) if *key.to_hex() == ONE));
}

#[test]
fn static_keys_are_read_in_any_order() {
    let text = format!("public:{ONE}\nprivate:{ONE}\npublic:{TWO}\n");
    let Keys::Static { own, peers } = Keys::from_text(&text).unwrap() else { panic!("not static") };
    assert_eq!(*own.to_hex(), ONE);
    let hex: Vec<String> = peers.iter().map(PublicKey::to_hex).collect();
    assert_eq!(hex, [ONE, &TWO.to_lowercase()]);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let zeros = "0".repeat(64);
    let cases = [
        (String::new(), (None, KeyFault::None)),
        ("# psk:\n".to_owned(), (None, KeyFault::None)),
        ("\nhello".to_owned(), (Some(2), KeyFault::Kind)),
        (format!("secret:{ONE}"), (Some(1), KeyFault::Kind)),
        ("psk:01".to_owned(), (Some(1), KeyFault::Length(2))),
        (format!("psk:{}é", &ONE[1..]), (Some(1), KeyFault::Digit(64))),
        (format!("psk:x{}", &ONE[1..]), (Some(1), KeyFault::Digit(1))),
        (format!("psk:{zeros}"), (Some(1), KeyFault::Zero)),
        (format!("psk:{ONE}\npsk:{TWO}"), (Some(2), KeyFault::Second)),
        (format!("private:{ONE}\nprivate:{TWO}"), (Some(2), KeyFault::Second)),
        (format!("private:{ONE}\n\npsk:{TWO}"), (Some(3), KeyFault::Mixed)),
        (format!("psk:{ONE}\npublic:{TWO}"), (Some(2), KeyFault::Mixed)),
        (format!("public:{TWO}\npublic:{}", TWO.to_lowercase()), (Some(2), KeyFault::Twice)),
        (format!("private:{ONE}"), (None, KeyFault::NoPeer)),
        (format!("public:{ONE}"), (None, KeyFault::NoPrivate)),
    ];
    for (text, expected) in cases {
        assert_eq!(fault(&text), expected, "{text:?}");
    }
    assert_eq!(Keys::from_text("\npsk:01").unwrap_err().to_string(), "line 2: a key has 64 hexadecimal digits, not 2");
}

#[test]
fn nothing_secret_is_shown() {
    let shared = Keys::Shared(SharedKey::from_hex(ONE).unwrap());
    assert_eq!(format!("{shared:?}"), "Shared(SharedKey(..))");
    let own = PrivateKey::from_hex(ONE).unwrap();
    let shown = format!("{:?}", Keys::Static { peers: vec![PublicKey::from_hex(TWO).unwrap()], own });
    assert!(!shown.contains("0101") && shown.contains("PrivateKey(..)") && shown.contains("02ffaa02"), "{shown}");
    let wrong = Keys::from_text(&format!("psk:{}", &ONE[1..])).unwrap_err();
    assert!(!format!("{wrong} {wrong:?}").contains("0101"));
}

#[test]
fn a_public_key_is_that_of_rfc_7748() {
    // Section 6.1: Alice's and Bob's.
    let pairs = [
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        ),
        (
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        ),
    ];
    for (private, public) in pairs {
        assert_eq!(PrivateKey::from_hex(private).unwrap().public().to_hex(), public);
    }
}

#[test]
fn generated_keys_differ_from_their_entropy_and_from_each_other() {
    let shared = SharedKey::generate([7; 32]);
    let private = PrivateKey::generate([7; 32]);
    assert_ne!(*shared.to_hex(), *private.to_hex());
    assert_ne!(*shared.to_hex(), "07".repeat(32));
    assert_eq!(*shared.to_hex(), *SharedKey::generate([7; 32]).to_hex());
    assert_ne!(*shared.to_hex(), *SharedKey::generate([8; 32]).to_hex());
}

proptest! {
    #[test]
    fn lines_are_read_as_they_were_written(shared: [u8; 32], own: [u8; 32], peer: [u8; 32]) {
        prop_assume!(shared != [0; 32] && own != [0; 32] && peer != [0; 32]);
        let (shared, own, peer) =
            (SharedKey::from_bytes(shared), PrivateKey::from_bytes(own), PublicKey::from_bytes(peer));
        let read = Keys::from_text(&shared.line()).unwrap();
        prop_assert!(matches!(read, Keys::Shared(key) if key.line() == shared.line()));
        let Keys::Static { own: read, peers } =
            Keys::from_text(&format!("{}\n{}", *own.line(), peer.line())).unwrap() else { panic!("not static") };
        prop_assert_eq!(read.line(), own.line());
        prop_assert_eq!(peers, [peer]);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(psk|private|public|[a-z]*)?[: #\n]?[0-9a-fg]{0,70}\n?\\PC*") {
        drop(Keys::from_text(&text));
    }
}
