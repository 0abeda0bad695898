//! How many payloads should be asked for at a time: many who send to one, in virtual time, with 1, 2, 4 and 8.
//!
//! `cargo run --release -p cutthrough-sim --example grants [SHARE]`: one message in SHARE is sent (all by default).
//!
//! Each machine has a link of its own to a switch, and all that goes to one waits at the switch's port to it.

use cutthrough_sim::fault::links::{Flow, Link, Machine, World};

/// Bits in a second on a link, and nanoseconds from a machine to the switch, and from there to a machine.
const RATE: u64 = 25_000_000_000;
const HOP_NS: u64 = 1_000;
/// Bytes that the port of the switch holds at most.
const PORT_BYTES: u64 = 2 << 20;

/// A case: its name, what its senders send to machine 0, and which of them are short.
type Sent = (&'static str, Vec<Flow>, fn(usize) -> bool);

fn cases(share: u64) -> [Sent; 3] {
    let flow = |sender: usize, messages: u64, bytes, ahead, every_ns| {
        let messages = messages.div_ceil(share);
        Flow { between: (sender + 1, 0), begins: 0, messages, bytes, ahead, every_ns, pages: true }
    };
    let mixed = |sender| match sender {
        0..4 => flow(sender, 40, 1 << 20, 2, 0),
        _ => flow(sender, 400, 32 << 10, 0, 100_000),
    };
    [
        ("16 senders, 1 MiB once", (0..16).map(|sender| flow(sender, 1, 1 << 20, 1, 0)).collect(), |_| true),
        ("4 senders, 500 x 64 KiB, 8 ahead", (0..4).map(|sender| flow(sender, 500, 64 << 10, 8, 0)).collect(), |_| {
            true
        }),
        ("4 senders of 1 MiB, 4 of 32 KiB now and then", (0..8).map(mixed).collect(), |sender| sender >= 4),
    ]
}

/// Machine 0, and those that send to it.
fn world(flows: &[Flow], buffer: u64, admitted: usize) -> World {
    let machine = Machine { buffer, admitted, body: 8_908, ..Machine::default() };
    let count = flows.len() + 1;
    let links = (0..count).flat_map(|_| [Link::new(RATE, u64::MAX, HOP_NS), Link::new(RATE, PORT_BYTES, HOP_NS)]);
    let mut world = World::new(vec![machine; count], links.collect(), flows, 1);
    for sender in 1..count {
        world.path((sender, 0), &[&[2 * sender, 1]]);
        world.path((0, sender), &[&[0, 2 * sender + 1]]);
    }
    world
}

/// In sorted times: the one at so many per cent, in microseconds.
fn percentile(took: &[u64], per_cent: usize) -> f64 {
    took.get((took.len() * per_cent).div_ceil(100).saturating_sub(1)).map_or(0.0, |nanos| *nanos as f64 / 1e3)
}

fn main() {
    let share = std::env::args().nth(1).map_or(1, |text| text.parse::<u64>().expect("a whole number").max(1));
    for (name, flows, is_short) in cases(share) {
        for (buffer, what) in [(416 << 10, "416 KiB"), (4 << 20, "4 MiB"), (32 << 20, "32 MiB")] {
            for admitted in [1, 2, 4, 8] {
                let mut world = world(&flows, buffer, admitted);
                let whole_ns = world.run_out();
                let short = (0..flows.len()).filter(|sender| is_short(*sender));
                let mut took: Vec<u64> =
                    short.flat_map(|sender| world.arrived(sender)).map(|(sent, at)| at - sent).collect();
                took.sort_unstable();
                let (port, (socket, lost)) = (world.link(1), world.socket(0));
                println!(
                    "{name}; socket {what}; {admitted} asked for: all in {:.0} us, p50 {:.0} us, p99 {:.0} us, at the \
                     switch {} KiB, in the socket {} KiB, {} dropped",
                    whole_ns as f64 / 1e3,
                    percentile(&took, 50),
                    percentile(&took, 99),
                    port.most >> 10,
                    socket >> 10,
                    port.dropped + lost,
                );
            }
        }
    }
}
