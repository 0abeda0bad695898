//! How fast frames are sealed and opened, and what handshakes and forged frames cost.
//!
//! ```text
//! cargo run --release -p cutthrough-seal --example ciphers [ROUNDS]
//! ```
//!
//! Each figure is the best of 60 rounds, or as many as are asked for, on one thread, with data that lies in the cache.

use std::hint::black_box;
use std::mem::size_of;
use std::time::{Duration, Instant};

use cutthrough_seal::{
    Cipher, EPOCH, Forged, Initiator, Keys, Opener, PrivateKey, SealError, Sealer, Session, SharedKey, TAG, Terms,
    respond, respond_on,
};

const HEADER: [u8; 48] = [1; 48];
const PROLOGUE: &[u8] = b"speed";
/// Time that a round takes, about.
const ROUND: Duration = Duration::from_millis(4);

fn rounds() -> u32 {
    std::env::args().nth(1).map_or(60, |text| text.parse().expect("ROUNDS is a whole number"))
}

/// Nanoseconds of one call, in the best round.
fn time(mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut calls = 0_u32;
    while begin.elapsed() < ROUND {
        call();
        calls += 1;
    }
    let round = |_| {
        let begin = Instant::now();
        (0..calls).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..rounds()).map(round).fold(f64::INFINITY, f64::min)
}

fn session(cipher: Cipher) -> (Session, Session) {
    let keys = Keys::Shared(SharedKey::generate([1; 32]));
    let terms = Terms { peer: None, cipher };
    let (initiator, first) = Initiator::begin_on(&keys, terms, PROLOGUE, [2; 32]).expect("a first message");
    let (theirs, second) = respond_on(&keys, cipher, PROLOGUE, [3; 32], &first).expect("a second message");
    (initiator.finish(&second).expect("a session"), theirs)
}

/// Numbers from 0 up, each once.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0 - 1
    }
}

fn frames(cipher: Cipher) {
    println!("\n{cipher:?}, GB/s (ns for a frame)");
    println!(
        "{:>8}{:>18}{:>18}{:>18}{:>18}{:>18}",
        "bytes", "seal apart", "copy, seal there", "seal in place", "copy, open there", "open apart"
    );
    for len in [0, 64, 1408, 8904, 65536] {
        let figures = figures(cipher, len);
        print!("{len:>8}");
        figures.iter().for_each(|nanos| print!("{:>18}", format!("{:.2} ({nanos:.0})", len as f64 / nanos)));
        println!();
    }
}

fn figures(cipher: Cipher, len: usize) -> [f64; 5] {
    let (Session { mut sealer, .. }, Session { mut opener, .. }) = session(cipher);
    let mut numbers = Numbers(0);
    let plain = vec![7; len];
    let mut out = vec![0; len];
    let apart = time(|| {
        black_box(sealer.seal(numbers.next(), &HEADER, black_box(&plain), &mut out));
    });
    let copied = time(|| {
        out.copy_from_slice(black_box(&plain));
        black_box(sealer.seal_in_place(numbers.next(), &HEADER, &mut out));
    });
    let in_place = time(|| {
        black_box(sealer.seal_in_place(numbers.next(), &HEADER, black_box(&mut out)));
    });
    let (Session { mut sealer, .. }, _) = session(cipher);
    let mut sealed = vec![0; len];
    let tag = sealer.seal(0, &HEADER, &plain, &mut sealed);
    let open = time(|| {
        out.copy_from_slice(black_box(&sealed));
        opener.open(0, &HEADER, &tag, &mut out).expect("it opens");
    });
    let open_apart = time(|| opener.open_apart(0, &HEADER, &tag, black_box(&sealed), &mut out).expect("it opens"));
    [apart, copied, in_place, open, open_apart]
}

/// What a forged frame of 64 bytes costs, by the epoch that it pretends to be of.
fn forged(cipher: Cipher) {
    let (Session { mut sealer, .. }, Session { mut opener, .. }) = session(cipher);
    let mut body = [0; 64];
    let tag = sealer.seal_in_place(EPOCH, &HEADER, &mut body);
    assert_eq!(opener.open(EPOCH, &HEADER, &tag, &mut body), Ok(()));
    let [before, now, next, far] = [0, EPOCH, 2 * EPOCH, 3 * EPOCH].map(|number| {
        time(|| {
            assert_eq!(opener.open(number, &HEADER, &[0; TAG], black_box(&mut body)), Err(Forged));
        })
    });
    println!(
        "{cipher:?}: {now:.0} ns, of the epoch before {before:.0}, of the next {next:.0}, of one further on {far:.0}"
    );
}

fn handshakes() {
    let shared = Keys::Shared(SharedKey::generate([1; 32]));
    let (own, other) = (PrivateKey::generate([2; 32]), PrivateKey::generate([3; 32]));
    let caller = Keys::Static { own: own.clone(), peers: vec![other.public()] };
    let stranger = Keys::Static { own: PrivateKey::generate([4; 32]), peers: vec![other.public()] };
    let callee = Keys::Static { own: other, peers: vec![own.public()] };
    let begin = |keys: &Keys| Initiator::begin(keys, PROLOGUE, [5; 32]).expect("a first message").1;
    let answer = |keys: &Keys, first: &[u8]| respond(keys, PROLOGUE, [6; 32], black_box(first)).map(|_| ());
    let costs = |keys: &Keys, first: &[u8], expected: Result<(), SealError>| {
        assert_eq!(answer(keys, first), expected);
        time(|| {
            let _ = black_box(answer(keys, first));
        }) / 1000.0
    };
    let noise = |len: usize| vec![9; len];
    let refused = Err(SealError::Refused);
    let first = begin(&stranger);
    let unknown = answer(&callee, &first);
    let short = answer(&shared, &noise(48));
    println!("\na first message costs the responder, in us");
    println!("{:>8.1}  shared key, wrong length", costs(&shared, &noise(48), short));
    println!("{:>8.1}  shared key, noise", costs(&shared, &noise(49), refused));
    println!("{:>8.1}  shared key, answered", costs(&shared, &begin(&shared), Ok(())));
    println!("{:>8.1}  static keys, noise", costs(&callee, &noise(97), refused));
    println!("{:>8.1}  static keys, a stranger who knows our public key", costs(&callee, &first, unknown));
    println!("{:>8.1}  static keys, answered", costs(&callee, &begin(&caller), Ok(())));
    let begins = [&shared, &caller].map(|keys| time(|| drop(black_box(begin(keys)))) / 1000.0);
    println!("to begin costs {:.1} us with a shared key, {:.1} us with static keys", begins[0], begins[1]);
}

fn main() {
    println!("fast here: {:?}", Cipher::fast_here());
    let sizes = (size_of::<Session>(), size_of::<Sealer>(), size_of::<Opener>(), size_of::<Initiator>());
    println!(
        "bytes, without the heap: session {}, sealer {}, opener {}, initiator {}",
        sizes.0, sizes.1, sizes.2, sizes.3
    );
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        frames(cipher);
    }
    println!("\na forged frame of 64 bytes costs");
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        forged(cipher);
    }
    handshakes();
}
