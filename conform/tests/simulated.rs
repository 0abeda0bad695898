//! One scripted workload over every way of joining endpoints and in the simulator: the same messages are delivered, in
//! the same order. The engine that cuts payloads into pulses over shared memory is the same code as on the simulated
//! platforms of the papers, and what delivers messages over a network the same as in the fault simulation.

mod loopback;
mod shared_memory;
mod veth;

use std::sync::Arc;

use cutthrough::{Config, Keys, Payload, Policy, SharedKey};
use cutthrough_conform::bytes::pattern;
use cutthrough_conform::{Join, suite};
use cutthrough_sim::fault::script::{self, Message};
use cutthrough_sim::platform::Platform;
use cutthrough_sim::point::Firmware;
use cutthrough_sim::staged;

use loopback::Loopback;
use shared_memory::SharedMemory;
use veth::Veth;

/// Payloads of the script, in bytes; 0 is a message without payload. Short, long, odd, and longer than any buffer
/// between the two.
fn script() -> Vec<u64> {
    let lens = [0, 1, 127, 4096, 0, 0, 8192, 53, 70_000, 1408, 8191, 0, 300_000, 2048, 1, 65_536];
    lens.into_iter().cycle().take(64).collect()
}

/// The messages of the script: each has its number, and bytes of its own.
fn messages() -> Vec<Message> {
    let message = |(number, len): (u64, u64)| Message {
        control: number.to_le_bytes().to_vec(),
        payload: pattern(number, usize::try_from(len).expect("a short payload")),
    };
    (0..).zip(script()).map(message).collect()
}

/// The messages as the receiver has them.
fn delivered(join: &dyn Join, policy: Policy) -> Vec<Message> {
    let settings = || Config { policy, ..suite::config() };
    let mut pair = join.pair(settings(), settings());
    let (_, delivered) = pair.both(
        |a| {
            for Message { control, payload } in messages() {
                match payload.len() {
                    0 => a.say(&control),
                    _ => drop(a.send_copy(&control, &payload, None)),
                }
            }
        },
        |b| {
            let mut delivered = Vec::new();
            for _ in script() {
                let mut message = b.message();
                let mut payload = vec![0; message.payload_len()];
                if !matches!(message.payload(), Payload::None) {
                    b.endpoint.read(&mut message, &mut payload).expect("a payload");
                }
                delivered.push(Message { control: message.control().to_vec(), payload });
            }
            delivered
        },
    );
    delivered
}

/// Number and length of each message, on a simulated platform.
fn simulated(name: &str, text: &str, policy: Policy) -> Vec<(u64, u64)> {
    let platform = Platform::parse(text, name).expect("a platform");
    let firmware = Firmware::Engine { send: policy, recv: policy };
    let delivered = staged::deliver(&platform, firmware, &script()).expect("deliveries");
    delivered.into_iter().map(|taken| (taken.number, taken.len)).collect()
}

/// Policies that cut payloads in every way.
fn policies() -> impl Iterator<Item = Policy> {
    ["adaptive", "adaptive:512", "fixed:1408", "store-and-forward"]
        .map(|text| text.parse().expect("a policy"))
        .into_iter()
}

#[test]
fn the_same_script_is_delivered_alike() {
    let expected: Vec<_> = (0..).zip(script()).collect();
    let sealed = Loopback(Some(Arc::new(Keys::Shared(SharedKey::from_bytes([42; 32])))));
    for policy in policies() {
        let plain = delivered(&Loopback(None), policy);
        assert!(plain == messages(), "{policy} over UDP");
        assert!(delivered(&SharedMemory::new(), policy) == plain, "{policy} over shared memory");
        assert!(delivered(&sealed, policy) == plain, "{policy} over UDP, sealed");
        for sealed in [false, true] {
            assert!(script::deliver(&messages(), policy, sealed) == plain, "{policy}, simulated, sealed: {sealed}");
        }
        for (name, text) in staged::PLATFORMS {
            assert_eq!(simulated(name, text, policy), expected, "{policy} on {name}");
        }
    }
}

#[test]
fn the_same_script_is_delivered_alike_across_a_wire() {
    for join in [Veth(1500, "udp"), Veth(9000, "udp"), Veth(1500, "packet"), Veth(1500, "xdp"), Veth(1500, "net")]
        .into_iter()
        .filter(|join| !join.skips_all())
    {
        for policy in policies() {
            assert!(delivered(&join, policy) == messages(), "{policy} across {join:?}");
        }
    }
}
