//! What a liar has lent or put is sent on to others, while the liar writes there, or is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Channel, CloseReason, Config, Counter, Endpoint, Event, Landed, Path, Payload};
use cutthrough_conform::free_udp_address;
use cutthrough_conform::join::{connect, keep_house};
use cutthrough_segment::copy::Copying;
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::Kind;

use crate::liar::{Liar, PATIENCE, Victim, config};
use crate::scribble::Dice;

/// Bytes of a payload: many frames, whatever the loopback interface carries.
const LEN: u32 = 256 << 10;

/// Bytes of one that does not go unasked: all pages of the liar.
const LONG: u32 = 1 << 20;

/// A victim that sends on what a liar has, over a network.
struct Relay {
    victim: Victim,
    third: Endpoint,
    onward: Channel,
}

impl Relay {
    fn open(third: Config) -> Self {
        let mut victim = Victim::with(Config { insecure: true, ..config() });
        let address = format!("udp:{}", free_udp_address());
        let mut third = Endpoint::open(Config { insecure: true, ..third }).expect("an endpoint");
        third.listen(&address).expect("a free port");
        let (onward, _) = connect(&mut victim.endpoint, &mut third, &address);
        Self { victim, third, onward }
    }

    /// The pages of the liar's next message.
    fn take(&mut self) -> Arc<Landed> {
        match self.victim.message().take_payload() {
            Payload::Landed(landed) => Arc::new(landed),
            other => panic!("instead of pages: {other:?}"),
        }
    }

    /// Sends pages on: how often they were copied.
    fn send_on(&mut self, landed: Arc<Landed>) -> u32 {
        let outgoing = self.victim.endpoint.outgoing(self.onward).expect("a slot");
        let receipt = outgoing.attach_landed(landed).send().expect("sent");
        assert_eq!(receipt.path, Path::Wire);
        receipt.copies
    }

    /// What the third one has got.
    fn got(&mut self) -> Vec<u8> {
        match self.third.wait(Some(PATIENCE)).expect("a message") {
            Event::Message(message) => match message.payload() {
                Payload::Landed(landed) => landed.to_vec(),
                other => panic!("instead of pages: {other:?}"),
            },
            other => panic!("instead of a message: {other:?}"),
        }
    }
}

/// A payload in the first pages, of so many bytes.
const fn run(bytes: u32) -> u64 {
    Run { first: 0, count: bytes / 4096, id: 0 }.to_word()
}

/// The liar lends its first pages.
fn lend(liar: &mut Liar, bytes: u32, number: u64) {
    liar.say(Kind::Reference, 1, bytes, run(bytes), number);
}

/// Frames of what somebody else writes at the same time are as whole as others: none is lost for its check sum, and
/// all that was lent goes back.
#[test]
fn what_a_peer_writes_over_is_sent_on_without_loss() {
    const ROUNDS: u64 = 200;
    let mut relay = Relay::open(config());
    let mut liar = Liar::join(&mut relay.victim);
    let (out, landing) = (Arc::clone(&liar.out), liar.peer.landing().clone());
    let pool = liar.own.sizes().layout().expect("good sizes").pool;
    assert_eq!(relay.victim.endpoint.post(liar.channel, LEN as usize, 1), Ok(1));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice::new(7);
            while !stop.load(Ordering::Relaxed) {
                let (place, word) = (dice.below(u64::from(LEN) / 8) * 8, dice.number());
                out.word(pool + place).store(word, Ordering::Relaxed);
                landing.word(place).store(word, Ordering::Relaxed);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..ROUNDS {
                match round % 2 {
                    0 => lend(&mut liar, LEN, round),
                    _ => liar.say(Kind::Put, 1, LEN, run(LEN), 0),
                }
                let landed = relay.take();
                assert_eq!(relay.send_on(landed), 1);
                assert_eq!(relay.got().len(), LEN as usize);
                // Nothing is posted again before it has arrived.
                let begun = Instant::now();
                while liar.peer.get(Line::Returned) + liar.peer.get(Line::Posted) < round + 2 {
                    assert!(begun.elapsed() < PATIENCE, "nothing goes back");
                    assert!(relay.victim.endpoint.poll().is_none());
                }
                liar.own.set(Line::Taken, liar.peer.get(Line::Posted));
                liar.own.set(Line::Reclaimed, liar.peer.get(Line::Returned));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        done.expect("every round");
    });
    keep_house(&mut relay.third, |event| panic!("{event:?}"));
    let counts = [Counter::FramesForged, Counter::FramesRepeated].map(|counter| relay.third.counter(counter));
    assert_eq!(counts[0], 0, "frames that were wrong, and those that came twice: {counts:?}");
    relay.victim.honest_channel_works(1);
}

/// Pages of a liar that has gone are there as long as somebody sends them on.
#[test]
fn what_a_peer_has_lent_is_sent_on_when_that_is_gone() {
    let mut relay = Relay::open(config());
    let mut liar = Liar::join(&mut relay.victim);
    let bytes = cutthrough_conform::bytes::pattern(3, LEN as usize);
    let pool = liar.own.sizes().layout().expect("good sizes").pool;
    liar.out.copy_in(pool, &bytes, Copying::Pieces);
    lend(&mut liar, LEN, 0);
    let landed = relay.take();
    relay.send_on(Arc::clone(&landed));
    drop(liar);
    assert_eq!(relay.victim.closed(), CloseReason::Died);
    relay.send_on(landed);
    assert!(relay.got() == bytes && relay.got() == bytes);
    relay.victim.honest_channel_works(1);
}

/// A page that was lent is held as long as it goes, and no longer: the third one has no room for more payloads before
/// it lets go of the first, but for what it sets aside; or it goes itself.
#[test]
fn what_a_peer_has_lent_goes_back_when_it_is_needed_no_more() {
    const COUNT: u64 = 24;
    for leaves in [false, true] {
        let mut relay = Relay::open(config());
        let mut liar = Liar::join(&mut relay.victim);
        for number in 0..COUNT {
            lend(&mut liar, LONG, number);
            let landed = relay.take();
            relay.send_on(landed);
        }
        let Event::Message(first) = relay.third.wait(Some(PATIENCE)).expect("a message") else { panic!("no message") };
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(100) || liar.peer.get(Line::Returned) == 0 {
            assert!(relay.victim.endpoint.poll().is_none() && since.elapsed() < PATIENCE);
        }
        assert!(liar.peer.get(Line::Returned) < COUNT, "they are on their way");
        if leaves {
            relay.third.close(first.channel());
        } else {
            drop(first);
            (1..COUNT).for_each(|_| assert_eq!(relay.got().len(), LONG as usize));
        }
        let since = Instant::now();
        while liar.peer.get(Line::Returned) < COUNT {
            assert!(since.elapsed() < PATIENCE, "it is held for nobody");
            match relay.victim.endpoint.poll() {
                Some(Event::Closed(channel, _)) => assert!(leaves && channel == relay.onward),
                None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
        relay.victim.honest_channel_works(1);
    }
}
