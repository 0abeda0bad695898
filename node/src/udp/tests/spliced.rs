//! Trains that the kernel sends from where they lie.

use super::*;
use crate::sys::spliced::Spliced;

/// Two endpoints at the ends of a wire, and the number that the first one gives to the channel between them, which has
/// carried so much that a socket is joined to the peer.
fn joined(wire: &Wire) -> (Udp, Udp, usize) {
    joined_with(wire, &Config::default())
}

/// The same with these settings.
fn joined_with(wire: &Wire, config: &Config) -> (Udp, Udp, usize) {
    let (near, far, channel) = across_with(wire, Ways::Udp, config);
    let begun = Instant::now();
    while near.tally().1.joins.made == 0 {
        send(&near, channel, b"short", Cargo { load: Load::None, token: None, cookie: None });
        far.turn(64, |_, _| ());
        near.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "no socket is joined");
    }
    (near, far, channel)
}

/// A wire on which trains go from where they lie; none, and says why, where there cannot be one.
fn wire() -> Option<Wire> {
    let wire = Wire::make(1500)?;
    if !Spliced::is_possible() {
        crate::skipped("this kernel copies what it sends by UDP (before Linux 6.5)");
        return None;
    }
    Some(wire)
}

/// A payload of so many bytes.
fn payload(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at / 3).to_le_bytes()[0].wrapping_mul(7) ^ seed).collect()
}

/// And their memory comes back, also that of a message that is longer than all of it.
#[test]
fn what_lies_where_the_kernel_sends_it_from_arrives_as_it_was() {
    arrives_as_it_was(&Config::default());
}

/// The same of what is sealed, which is written there by the cipher.
#[test]
fn what_is_sealed_where_the_kernel_sends_it_from_arrives_as_it_was() {
    arrives_as_it_was(&sealed());
}

/// Settings by which frames are sealed.
fn sealed() -> Config {
    let keys = cutthrough_seal::Keys::Shared(cutthrough_seal::SharedKey::generate([7; 32]));
    Config { keys: Some(Arc::new(keys)), ..Config::default() }
}

/// Pages, too: what the kernel would have copied is copied there, and the receipt says so.
#[test]
fn pages_are_copied_or_sealed_where_the_kernel_sends_them_from() {
    let Some(wire) = wire() else { return };
    for (config, copies) in [(Config::default(), 1), (sealed(), 0)] {
        let (near, far, channel) = joined_with(&wire, &config);
        near.shared.lock().sink.heard();
        assert_eq!(send_page(&near, &far, channel, &payload(8_000, 3)), 0);
        assert_eq!(near.tally().1.joins.spliced, 0, "a short one by itself goes from where it is");
        assert_eq!(send_page(&near, &far, channel, &payload(200_000, 9)), copies);
        assert!(near.tally().1.joins.spliced > 0);
    }
}

/// Sends a page and checks what arrives: how often the sender has copied it.
fn send_page(near: &Udp, far: &Udp, channel: usize, payload: &[u8]) -> u32 {
    let mut page = near.page(channel, payload.len()).unwrap();
    page[..payload.len()].copy_from_slice(payload);
    page.truncate(payload.len());
    let receipt =
        send(near, channel, b"page", Cargo { load: Load::Pages(Sheaf::One(page)), token: None, cookie: None });
    let (begun, mut came) = (Instant::now(), None);
    while came.is_none() {
        near.turn(64, |_, _| ());
        far.turn(64, |stores, what| {
            let Told::Message(channel, message) = what else { return };
            let payload = std::mem::replace(&mut message.payload, ReadyPayload::None);
            let arrived = stores.hand_over(channel, payload, near.is_sealed());
            if let Some(Payload::Landed(landed)) = arrived.map(|arrived| arrived.payload) {
                came = Some(landed.to_vec());
            }
        });
        assert!(begun.elapsed() < PATIENCE, "it has not come");
    }
    assert!(came.is_some_and(|came| came == payload));
    receipt.copies
}

fn arrives_as_it_was(config: &Config) {
    let Some(wire) = wire() else { return };
    let (near, far, channel) = joined_with(&wire, config);
    for (seed, bytes) in (0..).zip([300_000, 100_000, 9_000_000, 65_536, 200_000, 30_000, 5_000_000, 131_072]) {
        carry(&near, &far, channel, &payload(bytes, seed));
    }
    let joins = near.tally().1.joins;
    assert!(joins.spliced > 40, "{joins:?}");
    let begun = Instant::now();
    while near.shared.lock().trains_under_way() > 0 {
        far.turn(64, |_, _| ());
        near.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "memory of trains that is held");
    }
}

/// Which of the two costs less is learnt from both, whichever it is here.
#[test]
fn trains_are_tried_in_both_ways() {
    let Some(wire) = wire() else { return };
    for config in [Config::default(), sealed()] {
        let (near, far, channel) = joined_with(&wire, &config);
        let mut laid_out = [0; 2];
        for seed in 0..120 {
            laid_out[usize::from(near.shared.lock().joined.as_ref().unwrap().lays_out())] += 1;
            carry(&near, &far, channel, &payload(200_000, seed));
        }
        let spliced = near.tally().1.joins.spliced;
        assert!(spliced >= 10 && laid_out.iter().all(|messages| *messages >= 4), "{laid_out:?}, {spliced} trains");
    }
}

/// Nobody writes where the other side may still read.
#[test]
fn the_memory_of_a_train_is_held_until_that_has_arrived() {
    let Some(wire) = wire() else { return };
    let (near, far, channel) = joined(&wire);
    let payload = payload(100_000, 0);
    let nobody = far.shared.lock();
    send(&near, channel, b"long", Cargo { load: Load::Copy(&payload), token: None, cookie: None });
    let under_way = near.shared.lock().trains_under_way();
    drop(nobody);
    assert!(under_way > 0, "none has arrived");
    let begun = Instant::now();
    let mut number = None;
    while near.shared.lock().trains_under_way() > 0 {
        number = arriving(&far).or(number);
        let mut into = vec![0; payload.len()];
        if let Some(number) = number {
            let _ = far.read_some(0, number, &mut into, 0);
        }
        near.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "memory of trains that is held");
    }
}

/// A device that computes no check sums takes no trains, from wherever.
#[test]
fn where_the_kernel_sends_none_from_where_they_lie_they_go_as_ever() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, far, channel) = joined(&wire);
    near.shared.lock().joined.as_ref().unwrap().hears().unwrap().refuse_trains();
    for seed in 0..12 {
        carry(&near, &far, channel, &payload(300_000, seed));
    }
    let joins = near.tally().1.joins;
    assert_eq!(joins.spliced, 0, "{joins:?}");
}
