//! The behaviour suite over UDP through a bad wire: 5 % of the frames are lost, 2 % come twice, 5 % come late. Once
//! with frames as long as loopback carries, and once with a wire that swallows what is longer than an Ethernet frame
//! carries, without a word.

mod loopback;
mod relay;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use cutthrough::Config;
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::landed;
use cutthrough_conform::{Capability, Join, suite};

use loopback::Loopback;
use relay::{Badness, Done, Relay};

/// Joins over UDP on loopback through a relay.
#[derive(Debug)]
struct Lossy {
    badness: Badness,
    done: Arc<Done>,
    relays: Mutex<Vec<Relay>>,
}

impl Lossy {
    /// A wire that swallows datagrams longer than this many bytes.
    fn new(longest: usize) -> Self {
        let badness = Badness { lost: 50, repeated: 20, late: 50, longest, seed: 1 };
        Self { badness, done: Arc::default(), relays: Mutex::default() }
    }
}

impl Join for Lossy {
    fn address(&self) -> String {
        Loopback(None).address()
    }

    fn way(&self, address: &str) -> String {
        let to = address.trim_start_matches("udp:").parse().expect("an address of numbers");
        let mut relays = self.relays.lock().expect("nobody panics here");
        let seed = self.badness.seed + relays.len() as u64;
        let relay = Relay::start(to, Badness { seed, ..self.badness }, Arc::clone(&self.done));
        let way = relay.address.clone();
        relays.push(relay);
        way
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn config(&self, config: Config) -> Config {
        Loopback(None).config(config)
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        Loopback(None).lacks(capability)
    }
}

suite!(Lossy::new(usize::MAX));

mod short {
    use super::Lossy;

    cutthrough_conform::suite!(Lossy::new(1472); control, paths, tokens, arriving);
}

/// The wire is as bad as it is said to be.
#[test]
fn frames_are_lost_and_late() {
    let join = Lossy::new(1472);
    let mut pair = join.pair(suite::config(), suite::config());
    let payload = pattern(1, 1 << 20);
    pair.both(
        |a| {
            a.send_copy(b"long", &payload, None);
        },
        |b| {
            let mut message = b.message();
            b.read_checked(&mut message, 1);
        },
    );
    let [passed, lost, late] =
        [&join.done.passed, &join.done.lost, &join.done.late].map(|count| count.load(Ordering::Relaxed));
    eprintln!("{passed} passed, {lost} lost, {late} late");
    let all = passed + lost;
    assert!(all > 700 && lost * 100 > all && lost * 10 < all && late * 50 > all, "{passed}, {lost}, {late}");
}

/// What is posted is filled in the order of the messages, though the opening of one is overtaken by the next.
#[test]
fn posted_runs_are_filled_in_the_order_of_the_messages() {
    for seed in 0..50 {
        let mut join = Lossy::new(1472);
        join.badness.seed = seed;
        let mut pair = join.pair(suite::config(), suite::config());
        assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 1), Ok(1));
        pair.a.send_copy(b"first", &pattern(1, 4000), None);
        pair.a.send_copy(b"second", &pattern(2, 3000), None);
        check(1, &landed(&pair.b.message()).to_vec());
        let mut message = pair.b.message();
        pair.b.read_checked(&mut message, 2);
    }
}
