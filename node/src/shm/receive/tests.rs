//! What only shows from inside, or after years.

use std::time::Duration;

use crate::config::Config;
use crate::incoming::Event;
use crate::node::Node;
use crate::shm::meanwhile::Alone;
use crate::shm::send::{Cargo, Control, Load};

/// Nobody who waits for so long means well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whoever is never untidy counts payloads for ever.
#[test]
fn the_count_of_payloads_has_no_end() {
    let config = || Config { slots: 16, pool_bytes: 1 << 16, landing_bytes: 1 << 16, ..Config::default() };
    let address = format!("shm:/tmp/cutthrough-receive-tests-{}.sock", std::process::id());
    let (mut a, mut b) = (Node::open(config()).unwrap(), Node::open(config()).unwrap());
    b.listen(&address).unwrap();
    let connecting = a.begin_connect(&address, PATIENCE).unwrap();
    let Ok(Event::Opened(at_b)) = b.wait(Some(PATIENCE)) else { panic!("no caller") };
    let Ok(Event::Connected(of, Ok(at_a))) = a.wait(Some(PATIENCE)) else { panic!("no channel") };
    assert_eq!(of, connecting);
    b.link(at_b).unwrap().0.inbox.untidied = u32::MAX;
    for number in 0..3 {
        let (link, _, stat) = a.link_to_wait(at_a).unwrap();
        let cargo = Cargo { load: Load::Copy(&[number; 100]), token: None, cookie: None };
        link.send(Control::Borrowed(b"one more"), cargo, &mut (), (&mut Alone, stat)).unwrap();
        let Ok(Event::Message(message)) = b.wait(Some(PATIENCE)) else { panic!("no message") };
        assert_eq!(message.payload_len(), 100);
    }
}
