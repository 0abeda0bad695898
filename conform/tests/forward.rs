//! What came by one adapter goes on by another one, of another endpoint of the same process.

mod loopback;
mod shared_memory;

use std::sync::Arc;

use cutthrough::{Keys, Landed, Landing, Path, Payload, SharedKey};
use cutthrough_conform::bytes::check;
use cutthrough_conform::{Join, suite};

use loopback::Loopback;
use shared_memory::SharedMemory;

fn joins() -> [(&'static str, Box<dyn Join>); 3] {
    let keys = Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32])));
    [
        ("shm", Box::new(SharedMemory::new())),
        ("udp", Box::new(Loopback(None))),
        ("sealed", Box::new(Loopback(Some(keys)))),
    ]
}

/// What came over a network goes on over a network without a copy, since nobody else can write there; all else is
/// copied once, as the receipt says.
#[test]
fn what_came_one_way_goes_on_by_another() {
    for (comes, (from, first)) in joins().into_iter().enumerate() {
        for (goes, (to, second)) in joins().into_iter().enumerate() {
            eprintln!("from {from} to {to}");
            let [mut near, mut far] =
                [first.pair(suite::config(), suite::config()), second.pair(suite::config(), suite::config())];
            for (number, len) in (0..).zip([1, 4096, 70_000, 1 << 20, 70_000]) {
                // The last of them in several runs.
                let lens: &[usize] = if number == 4 { &[32_768, len - 32_768] } else { &[len] };
                near.a.send_pages(b"", number, lens, None);
                let landed = match near.b.message().take_payload() {
                    Payload::Landed(landed) => landed,
                    other => panic!("instead of pages: {other:?}"),
                };
                let receipt = send_on(&mut far.a, landed);
                let expected = (far.path(Path::Reference), u32::from(comes == 0 || goes == 0));
                assert_eq!((receipt.path, receipt.copies), expected, "{receipt:?}");
                let mut message = far.b.message();
                far.b.read_checked(&mut message, number);
                drop(message);
                assert!(far.b.endpoint.poll().is_none());
                assert_eq!(far.a.completed(), 7);
            }
        }
    }
}

fn send_on(side: &mut cutthrough_conform::Side, landed: Landed) -> cutthrough::Receipt {
    let outgoing = side.endpoint.outgoing(side.channel).expect("a slot");
    outgoing.attach_landed(landed).track(7).send().expect("sent")
}

/// Of runs that were posted, a frame may lie in two: it is copied, and the receipt says so.
#[test]
fn runs_of_pages_go_on_whole() {
    let join = Loopback(None);
    let [mut near, mut far] = [(); 2].map(|()| join.pair(suite::config(), suite::config()));
    assert_eq!(near.b.endpoint.post(near.b.channel, 4096, 3), Ok(3));
    near.a.send_copy(b"", &cutthrough_conform::bytes::pattern(1, 10_000), None);
    let Payload::Landed(landed) = near.b.message().take_payload() else { panic!("no pages") };
    assert_eq!(send_on(&mut far.a, landed).copies, 1);
    check(1, &cutthrough_conform::join::landed(&far.b.message()).to_vec());
    // And to where a token says.
    let token = near.b.endpoint.grant(near.b.channel, Landing::Pages(5000)).expect("a token");
    near.a.send_copy(b"", &cutthrough_conform::bytes::pattern(2, 5000), Some(token));
    let Payload::Landed(landed) = near.b.message().take_payload() else { panic!("no pages") };
    assert_eq!(send_on(&mut far.a, landed).copies, 0);
    check(2, &cutthrough_conform::join::landed(&far.b.message()).to_vec());
}
