//! The handshake of a cipher, and frames sealed with it, against a stranger who has none of the keys.

use arbitrary::Arbitrary;
use cutthrough_seal::{
    Cipher, FIRST_SHARED, FIRST_STATIC, Initiator, Keys, PrivateKey, SECOND, Session, SharedKey, TAG, Terms, respond_on,
};

/// What a stranger sends in the place of a message.
#[derive(Debug, Arbitrary)]
pub enum Forgery {
    /// Anything.
    Any(Vec<u8>),
    /// The true message with these bits of a byte turned round.
    Bits(u8, u8),
    /// Bytes that have the length of the true message.
    Long(u8, Vec<u8>),
    /// The true message, cut off or with more behind it.
    Cut(u8),
}

impl Forgery {
    fn of(&self, truth: &[u8]) -> Vec<u8> {
        let mut forged = truth.to_vec();
        match self {
            Self::Any(bytes) => forged.clone_from(bytes),
            Self::Bits(at, bits) => {
                if let Some(byte) = forged.get_mut(usize::from(*at)) {
                    *byte ^= bits;
                }
            }
            Self::Long(at, bytes) => {
                forged.iter_mut().skip(usize::from(*at)).zip(bytes).for_each(|(byte, other)| *byte = *other);
            }
            Self::Cut(len) => forged.resize(usize::from(*len), 0),
        }
        forged
    }
}

/// What a stranger tries, in its order.
#[derive(Debug, Arbitrary)]
pub struct Attack {
    /// Whether every side has keys of its own, or all share one.
    pub own: bool,
    /// Which cipher the two sides would like.
    pub aes: [bool; 2],
    /// What both sides know.
    pub prologue: Vec<u8>,
    /// First messages for the one who answers.
    pub first: Vec<Forgery>,
    /// Second messages for the one who calls.
    pub second: Vec<Forgery>,
    /// Frames: the number, and the sealed bytes.
    pub frames: Vec<(u64, Forgery)>,
}

/// Forged messages are refused and change nothing: the true ones behind them make a session.
///
/// # Panics
/// If one is taken, or the true ones are not.
pub fn run(attack: &Attack) {
    let (caller, callee) = keys(attack.own);
    let cipher = |aes| if aes { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 };
    let terms = Terms { peer: None, cipher: cipher(attack.aes[0]) };
    let (mut initiator, first) =
        Initiator::begin_on(&caller, terms, &attack.prologue, [3; 32]).expect("keys that fit each other");
    assert_eq!(first.len(), if attack.own { FIRST_STATIC } else { FIRST_SHARED });
    let answer = |first: &[u8]| respond_on(&callee, cipher(attack.aes[1]), &attack.prologue, [4; 32], first);
    for forgery in attack.first.iter().take(128) {
        let forged = forgery.of(&first);
        assert!(answer(&forged).is_err() || forged == first, "taken as a first message: {forged:?}");
    }
    let (mut theirs, second) = answer(&first).expect("the true first message");
    assert!(second.len() == SECOND && second.len() <= first.len());
    for forgery in attack.second.iter().take(128) {
        let forged = forgery.of(&second);
        if forged != second {
            assert!(initiator.hear(&forged).is_err(), "taken as a second message: {forged:?}");
        }
    }
    let mut ours = initiator.hear(&second).expect("the true second message");
    assert_eq!(ours.cipher(), theirs.cipher());
    assert!(initiator.hear(&second).is_err(), "a handshake ends once");
    for (next, (number, forgery)) in (0..).zip(&attack.frames) {
        frame(&mut ours, &mut theirs, next, (*number, forgery));
    }
}

fn keys(own: bool) -> (Keys, Keys) {
    if !own {
        let shared = || Keys::Shared(SharedKey::from_bytes([9; 32]));
        return (shared(), shared());
    }
    let (one, other) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]));
    let (public, others) = (one.public(), other.public());
    (Keys::Static { own: one, peers: vec![others] }, Keys::Static { own: other, peers: vec![public] })
}

/// A forged frame does not open, whatever its number, and the true one that it was made of does.
fn frame(ours: &mut Session, theirs: &mut Session, next: u64, (number, forgery): (u64, &Forgery)) {
    const HEADER: usize = 48;
    let (header, plain) = ([5; HEADER], [6; 40]);
    let mut body = plain;
    let tag = ours.sealer.seal_in_place(next, &header, &mut body);
    let truth = [&header[..], &tag, &body].concat();
    let forged = forgery.of(&truth);
    if let Some((head, rest)) = forged.split_first_chunk::<HEADER>()
        && let Some((tag, body)) = rest.split_first_chunk::<TAG>()
    {
        for number in [number, next] {
            let opens = theirs.opener.open(number, head, tag, &mut body.to_vec()).is_ok();
            assert!(!opens || forged == truth && number == next, "taken under {number}: {forged:?}");
        }
    }
    assert!(theirs.opener.open(next, &header, &tag, &mut body).is_ok());
    assert_eq!(body, plain);
}
