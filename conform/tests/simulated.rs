//! One scripted workload over every way of joining endpoints and in the simulator: the same messages are delivered, in
//! the same order. Over shared memory the engine that cuts their payloads into pulses is the same code as there.

mod loopback;
mod shared_memory;
mod veth;

use cutthrough::{Config, Payload, Policy};
use cutthrough_conform::{Join, suite};
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

/// Number and length of each message, as the receiver has them.
fn delivered(join: &dyn Join, policy: Policy) -> Vec<(u64, u64)> {
    let settings = || Config { policy, ..suite::config() };
    let mut pair = join.pair(settings(), settings());
    let (_, delivered) = pair.both(
        |a| {
            for (number, len) in (0u64..).zip(script()) {
                let payload = vec![7; usize::try_from(len).expect("a short payload")];
                match len {
                    0 => a.say(&number.to_le_bytes()),
                    _ => drop(a.send_copy(&number.to_le_bytes(), &payload, None)),
                }
            }
        },
        |b| {
            let mut delivered = Vec::new();
            for _ in script() {
                let mut message = b.message();
                let number = u64::from_le_bytes(message.control().try_into().expect("a number"));
                let len = message.payload_len();
                if !matches!(message.payload(), Payload::None) {
                    let mut bytes = vec![0; len];
                    b.endpoint.read(&mut message, &mut bytes).expect("a payload");
                    assert!(bytes.iter().all(|&byte| byte == 7));
                }
                delivered.push((number, len as u64));
            }
            delivered
        },
    );
    delivered
}

/// The same on a simulated platform.
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
    for policy in policies() {
        assert_eq!(delivered(&SharedMemory::new(), policy), expected, "{policy} over shared memory");
        assert_eq!(delivered(&Loopback(None), policy), expected, "{policy} over UDP");
        for (name, text) in staged::PLATFORMS {
            assert_eq!(simulated(name, text, policy), expected, "{policy} on {name}");
        }
    }
}

#[test]
fn the_same_script_is_delivered_alike_across_a_wire() {
    let expected: Vec<_> = (0..).zip(script()).collect();
    for join in [Veth(1500, "udp"), Veth(9000, "udp"), Veth(1500, "packet"), Veth(1500, "xdp"), Veth(1500, "net")]
        .into_iter()
        .filter(|join| !join.skips_all())
    {
        for policy in policies() {
            assert_eq!(delivered(&join, policy), expected, "{policy} across {join:?}");
        }
    }
}
