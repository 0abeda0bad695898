//! Rings of hosts that are not there, in simulated time: what only they can show at will.

use std::time::Duration;

use cutthrough::simulated::{Network, Time, Wire};
use cutthrough::{Channel, Config, Endpoint, Event, Incoming, Landing, Payload, Placement, Receipt};
use cutthrough_conform::bytes::{check, pattern};

const STEP: Duration = Duration::from_micros(20);
const LEN: usize = 8000;

/// Two endpoints at rings, and the channel between them as both have it.
struct Pair {
    near: Endpoint,
    far: Endpoint,
    to_far: Channel,
    to_near: Channel,
    network: Network,
    time: Time,
}

impl Pair {
    /// The second one has payloads placed where they belong.
    fn new(seed: u64) -> Self {
        let time = Time::begin(seed);
        let network = Network::new(seed, Wire::default());
        let open = |host: [u8; 4], placement| {
            let host = Some(network.host(host));
            let config = Config { host, insecure: true, placement, landing_bytes: 1 << 20, ..Config::default() };
            Endpoint::open(config).expect("an endpoint")
        };
        let (mut near, mut far) = (open([10, 0, 0, 1], Placement::Copy), open([10, 0, 0, 2], Placement::HeaderCut));
        near.listen("xdp:10.0.0.1:7000").expect("a free port");
        far.listen("xdp:10.0.0.2:7000").expect("a free port");
        near.begin_connect("xdp:10.0.0.2:7000", Duration::from_secs(5)).expect("a call");
        let (mut to_far, mut to_near) = (None, None);
        while to_far.is_none() || to_near.is_none() {
            if let Some(Event::Connected(_, opened)) = near.poll() {
                to_far = Some(opened.expect("a channel"));
            }
            if let Some(Event::Opened(opened)) = far.poll() {
                to_near = Some(opened);
            }
            time.pass(STEP);
        }
        let (to_far, to_near) = to_far.zip(to_near).expect("both");
        Self { near, far, to_far, to_near, network, time }
    }

    /// Sends a page from the first one to the second one.
    fn send(&mut self, number: u64) -> Incoming {
        let mut page = self.near.page(self.to_far, LEN).expect("a page");
        page.copy_from_slice(&pattern(number, LEN));
        self.near.outgoing(self.to_far).expect("a slot").write(b"page").attach(page).send().expect("sent");
        loop {
            assert!(self.near.poll().is_none());
            if let Some(Event::Message(message)) = self.far.poll() {
                return message;
            }
            self.time.pass(STEP);
        }
    }
}

fn checked(message: &Incoming, number: u64) -> Receipt {
    let Payload::Landed(landed) = message.payload() else { panic!("{message:?}") };
    check(number, &landed.to_vec());
    message.receipt()
}

/// What lands where the next payload was expected, and belongs elsewhere, is copied out of there and then to its place:
/// the receipt says so. What was expected is not copied at all.
#[test]
fn a_wrong_guess_is_said_to_cost_two_copies() {
    let mut pair = Pair::new(1);
    pair.far.post(pair.to_near, LEN, 4).expect("room");
    let mut kept = Vec::new();
    for number in 0..3 {
        let message = pair.send(number);
        let receipt = checked(&message, number);
        assert_eq!((receipt.copies, receipt.placed), (0, LEN as u64), "{receipt:?}");
        kept.push(message);
    }
    let through = pair.network.frames().through;
    // Who grants a place expects a payload there.
    pair.far.grant(pair.to_near, Landing::Pages(LEN)).expect("room");
    let message = pair.send(3);
    let receipt = checked(&message, 3);
    assert!(pair.network.frames().through > through, "it has not been taken for the next one");
    assert!(receipt.copies == 2 && receipt.placed < LEN as u64, "{receipt:?}");
    kept.iter().zip(0..).for_each(|(message, number)| assert_eq!(checked(message, number).copies, 0));
}
