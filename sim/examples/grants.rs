//! How many payloads should be asked for at a time: many who send to one, in virtual time, with 1, 2, 4 and 8.
//!
//! `cargo run --release -p cutthrough-sim --example grants [SHARE]`: one message in SHARE is sent (all by default).

use cutthrough_sim::fault::incast::{Case, Outcome, Stream, run};

/// A case: its name, what its senders send, and which of them are short.
type Sent = (&'static str, Vec<Stream>, fn(usize) -> bool);

fn cases(share: u64) -> [Sent; 3] {
    let stream =
        |messages: u64, bytes, ahead, every_ns| Stream { messages: messages.div_ceil(share), bytes, ahead, every_ns };
    let mixed = |sender| match sender {
        0..4 => stream(40, 1 << 20, 2, 0),
        _ => stream(400, 32 << 10, 0, 100_000),
    };
    [
        ("16 senders, 1 MiB once", vec![stream(1, 1 << 20, 1, 0); 16], |_| true),
        ("4 senders, 500 x 64 KiB, 8 ahead", vec![stream(500, 64 << 10, 8, 0); 4], |_| true),
        ("4 senders of 1 MiB, 4 of 32 KiB now and then", (0..8).map(mixed).collect(), |sender| sender >= 4),
    ]
}

fn main() {
    let share = std::env::args().nth(1).map_or(1, |text| text.parse::<u64>().expect("a whole number").max(1));
    for (name, senders, short) in cases(share) {
        for (buffer, what) in [(416 << 10, "416 KiB"), (4 << 20, "4 MiB"), (32 << 20, "32 MiB")] {
            for admitted in [1, 2, 4, 8] {
                let ran = run(&Case { senders: senders.clone(), buffer, admitted, seed: 1 });
                let Outcome { whole_ns, port_bytes, socket_bytes, dropped, .. } = ran;
                let micros = |nanos: u64| nanos as f64 / 1e3;
                let (half, most) = (ran.percentile(short, 50), ran.percentile(short, 99));
                println!(
                    "{name}; socket {what}; {admitted} asked for: all in {:.0} us, p50 {:.0} us, p99 {:.0} us, at the \
                     switch {} KiB, in the socket {} KiB, {dropped} dropped",
                    micros(whole_ns),
                    micros(half),
                    micros(most),
                    port_bytes >> 10,
                    socket_bytes >> 10,
                );
            }
        }
    }
}
