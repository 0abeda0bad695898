//! Payloads of which nothing is wanted: they cost the channel nothing once their sender has heard so.

use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::net::{Cargo, Refused};
use cutthrough_engine::token::Refused as Why;
use cutthrough_wire::token::Token;

use super::wire::{Faults, REVOKED, World, pattern};

/// A payload whose token was revoked is refused while a long one before it still comes: its sender has heard so long
/// before it is handed over.
#[test]
fn payloads_refused_behind_long_ones_leave_the_channel_as_it_was() {
    const SLOTS: u64 = 16;
    let mut world = World::with_slots(62, Faults::NONE, SLOTS);
    let (a, _) = world.join();
    let revoked = Some(Token { index: REVOKED, key: 1 });
    for round in 0..3 * SLOTS {
        let long = Cargo { load: pattern(round, 1_000_000), token: None, pages: true, cookie: None };
        let refused = Cargo { load: pattern(round, 100_000), token: revoked, pages: true, cookie: None };
        for cargo in [long, refused] {
            let sent = world.nodes[0].net.send(a, b"in its turn", Some(cargo));
            assert!(!matches!(sent, Err((Refused::Full, _))), "round {round}: no message may be sent any more");
        }
        let (_, first) = world.message(1);
        assert!(matches!(first.payload, ReadyPayload::Landed(place, _) if place == pattern(round, 1_000_000)));
        let (_, second) = world.message(1);
        assert!(matches!(second.payload, ReadyPayload::Refused(Why::Revoked, _)), "{:?}", second.payload);
        world.settle();
    }
}
