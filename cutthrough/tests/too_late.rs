//! Replies whose calls were cancelled before they came: not a byte of them is written to the memory that was given
//! back, whatever that is used for by then.

mod two;

use cutthrough::am::{Call, Node, Settings, WINDOW};
use cutthrough::{Channel, Config, Counter, Endpoint, Event, Landing, Payload, Token};
use two::{Over, PATIENCE, meet, small, until};

over_both! { late_replies_leave_buffers_as_they_are, late_replies_leave_pages_as_they_are }

/// Bytes of one place, which is half of the landing memory.
const BYTES: usize = 2 * 4096;
/// What is written to the memory that was given back.
const OURS: u8 = 0xa5;
/// What late replies carry.
const LATE: u8 = 0x11;

/// A server that answers what it likes when it likes: it knows the calls, and where their replies shall go.
struct Server {
    endpoint: Endpoint,
    channel: Channel,
    /// Calls, by the bytes that name them, and their tokens.
    asked: Vec<([u8; 8], Token)>,
}

impl Server {
    /// Takes in what has come. That a call is cancelled is nothing to it.
    fn look(&mut self) {
        const REQUEST: u8 = 1;
        while let Some(event) = self.endpoint.poll() {
            let Event::Message(message) = event else { panic!("{event:?}") };
            let control = message.control();
            if control[0] != REQUEST {
                continue;
            }
            let token = &control[control.len() - 10..];
            let index = u16::from_le_bytes(token[..2].try_into().expect("two bytes"));
            let key = u64::from_le_bytes(token[2..].try_into().expect("eight bytes"));
            self.asked.push((control[8..16].try_into().expect("eight bytes"), Token { index, key }));
        }
    }

    /// Replies to a call, with a payload to its place.
    fn reply(&mut self, (call, token): ([u8; 8], Token), byte: u8, len: usize) {
        const REPLY: u8 = 2;
        let mut control = [REPLY, 0, 0, 0, 0, 0, 0, 0].to_vec();
        control.extend(call);
        let outgoing = self.endpoint.outgoing(self.channel).expect("room").write(&control);
        outgoing.to(token).attach_copy(&vec![byte; len]).send().expect("it goes, or its payload is dropped");
    }
}

/// A node, and a server of that kind.
fn two(over: Over) -> (Node, Channel, Server) {
    let config = Config { landing_bytes: 2 * BYTES as u64, ..small() };
    let (mut far, address) = over.listening(config.clone(), Settings::default());
    let mut node = Over::node(config, Settings::default());
    let channel = meet(&mut far, &mut node, &address);
    let endpoint = far.into_endpoint();
    let there = endpoint.channels().next().expect("a channel");
    (node, channel, Server { endpoint, channel: there, asked: Vec::new() })
}

/// Makes a call that names this place, of which the server hears.
fn ask(node: &mut Node, channel: Channel, server: &mut Server, place: Landing) -> Call {
    let before = server.asked.len();
    let call = node.ask(channel, 1).reply_into(place).send().expect("room");
    until("the request comes", || {
        assert!(node.poll().is_none());
        server.look();
        server.asked.len() > before
    });
    call
}

/// Both replies to calls that were cancelled come now.
fn come_late(node: &mut Node, channel: Channel, server: &mut Server, late: [([u8; 8], Token); 2]) {
    let dropped = node.endpoint().counter(Counter::PayloadDropped);
    for late in late {
        server.reply(late, LATE, BYTES);
    }
    until("they come, and both payloads are dropped", || {
        assert!(node.poll().is_none(), "nobody waits for them");
        server.look();
        node.endpoint().counter(Counter::PayloadDropped) == dropped + 2 && node.room(channel) == WINDOW
    });
}

fn late_replies_leave_buffers_as_they_are(over: Over) {
    let (mut node, channel, mut server) = two(over);
    for _ in 0..3 {
        let mut kept = Vec::new();
        for _ in 0..2 {
            let call = ask(&mut node, channel, &mut server, Landing::Buffer(vec![0; BYTES]));
            let Some(Landing::Buffer(mut bytes)) = node.cancel(call) else { panic!("the place does not come back") };
            assert_eq!(bytes, [0; BYTES], "and nothing has come there");
            bytes.fill(OURS);
            kept.push(bytes);
        }
        let late = std::mem::take(&mut server.asked).try_into().expect("two");
        come_late(&mut node, channel, &mut server, late);
        assert!(kept.iter().flatten().all(|byte| *byte == OURS), "a late reply was written to memory of the caller");
    }
}

/// Pages that are given back are landing memory again: the next payload lies in them, which its owner holds.
fn late_replies_leave_pages_as_they_are(over: Over) {
    let (mut node, channel, mut server) = two(over);
    for _ in 0..3 {
        let calls = [(); 2].map(|()| ask(&mut node, channel, &mut server, Landing::Pages(BYTES)));
        let none = node.ask(channel, 1).reply_into(Landing::Pages(1)).send().map(drop);
        assert!(none.is_err(), "all pages are granted");
        for call in calls {
            assert_eq!(node.cancel(call), Some(Landing::Pages(BYTES)));
        }
        let late = std::mem::take(&mut server.asked).try_into().expect("two");
        // One that needs all the pages.
        let call = ask(&mut node, channel, &mut server, Landing::Pages(2 * BYTES));
        let asked = server.asked.pop().expect("one");
        server.reply(asked, OURS, 2 * BYTES);
        let mut reply = node.wait_for(call, PATIENCE).expect("a reply");
        let Payload::Landed(landed) = reply.take_payload() else { panic!("a payload in pages") };
        assert_eq!(landed.to_vec(), [OURS; 2 * BYTES]);
        come_late(&mut node, channel, &mut server, late);
        assert!(landed.to_vec().iter().all(|byte| *byte == OURS), "a late reply was written to pages in use");
    }
}
