//! What a caller is told, and by whom; and what is counted of which nobody is told.

use cutthrough_engine::check::Breach;
use cutthrough_engine::net::{CallError, NetEvent};
use cutthrough_wire::frame::{BODY_MIN, FRAME_VERSION, Greeting, HEADER_BYTES, Kind, Limits, Refusal};

use super::doorman::answer;
use super::rules::{FIRST, Forger, VICTIM, greeting, records};
use super::wire::{Faults, World, sum};

/// A refusal of this version says which other one its maker speaks; and a reason that nobody knows is no version.
#[test]
fn a_refusal_is_told_as_it_was_said() {
    for (body, told) in [
        (&[Refusal::Version as u8, 7][..], CallError::Version(7)),
        (&[Refusal::Channels as u8, 1], CallError::Refused(Refusal::Channels)),
        (&[99, 1], CallError::Unknown(99)),
        (&[], CallError::Unknown(0)),
    ] {
        let mut world = World::new(38, Faults::NONE);
        let mut forger = Forger::stranger(9);
        let now = world.now();
        world.nodes[VICTIM].net.call(now, forger.address, 1408).unwrap();
        let (_, hello) = world.nodes[VICTIM].net.greeting().unwrap();
        let (said, _) = Greeting::from_bytes(&hello[HEADER_BYTES..]).unwrap();
        (forger.tag, forger.generation) = (said.tag, said.generation);
        forger.send(&mut world, Kind::Refuse, [0, 0], body);
        let events = forger.events(&mut world);
        assert!(matches!(events[..], [NetEvent::Failed(_, why)] if why == told), "{events:?}");
    }
}

/// Whoever has proved its key, and breaks a rule by its first frame, has no channel, and is told of to nobody; nor is
/// one whose channel was closed before. Both are counted.
#[test]
fn a_breach_of_which_nobody_is_told_is_counted() {
    let untold = |world: &World| world.nodes[VICTIM].net.tally().untold;
    let mut world = World::new(37, Faults::NONE);
    let mut forger = Forger::stranger(9);
    let retry = forger.hello(&mut world, 0, FIRST, BODY_MIN).expect("a cookie");
    let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
    let welcome = forger.hello(&mut world, cookie, FIRST, BODY_MIN).expect("let in");
    let (greeting, _) = Greeting::from_bytes(&welcome[HEADER_BYTES..]).unwrap();
    (forger.tag, forger.generation) = (greeting.tag, greeting.generation);
    forger.send(&mut world, Kind::Records, [0, 1], &[]);
    assert!(forger.events(&mut world).is_empty());
    assert_eq!((world.nodes[VICTIM].net.channels(), untold(&world)), (0, [0, 1, 0, 0, 0, 0]));
    let mut forger = Forger::joined(&mut world);
    world.nodes[VICTIM].net.close(forger.tag as usize);
    forger.send(&mut world, Kind::Records, [64, 1], &records(1));
    assert!(forger.events(&mut world).is_empty());
    assert_eq!((world.nodes[VICTIM].net.channels(), untold(&world)), (0, [1, 1, 0, 0, 0, 0]));
    // Whoever is told counts by itself.
    let mut forger = Forger::joined(&mut world);
    forger.send(&mut world, Kind::Records, [64, 1], &records(1));
    assert_eq!((forger.breach(&mut world), untold(&world)), (Some(Breach::Index), [1, 1, 0, 0, 0, 0]));
    assert!((0..).zip(Breach::ALL).all(|(at, breach)| breach as usize == at));
}

#[test]
fn a_welcome_is_vouched_for() {
    for lie in [false, true] {
        let mut world = World::new(28, Faults::NONE);
        let mut forger = Forger::stranger(9);
        let now = world.now();
        let index = world.nodes[VICTIM].net.call(now, forger.address, 1408).unwrap();
        let (_, hello) = world.nodes[VICTIM].net.greeting().unwrap();
        let (said, _) = Greeting::from_bytes(&hello[HEADER_BYTES..]).unwrap();
        (forger.tag, forger.generation) = (said.tag, said.generation);
        forger.send(&mut world, Kind::Retry, [0, 0], &7_u64.to_le_bytes());
        let (_, hello) = world.nodes[VICTIM].net.greeting().unwrap();
        let (said, _) = Greeting::from_bytes(&hello[HEADER_BYTES..]).unwrap();
        // Other limits than its maker's: who is on the way can make the check sum right, and not the proof.
        let truth = greeting(0);
        let limits = Limits { messages: truth.limits.messages + u32::from(lie), ..truth.limits };
        let proof = sum(0, [&truth.to_bytes(0), &[]]);
        let prologue = [&said.to_bytes(0)[..], &[FRAME_VERSION]].concat();
        let handshake = [&answer(&prologue)[..], &proof].concat();
        let told = Greeting { limits, body: 1200, ..truth }.to_bytes(u16::try_from(handshake.len()).unwrap());
        forger.send(&mut world, Kind::Welcome, [0, 0], &[&told[..], &handshake].concat());
        match world.nodes[VICTIM].net.next_event() {
            Some(NetEvent::Connected(at)) => assert!(at == index && !lie),
            Some(NetEvent::Failed(at, CallError::Key)) => assert!(at == index && lie),
            event => panic!("{event:?}"),
        }
    }
}
