//! Signals that interrupt whatever a process waits for: nobody sees anything of them.

use std::thread;
use std::time::Duration;

use cutthrough::am::{Args, Body, Node, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use cutthrough::{Channel, CloseReason, Config, Endpoint, Event, SendError};
use cutthrough_conform::bytes::{check, pattern};

use crate::child::{Folder, Other, PATIENCE, config};

/// How often channels are opened, by each way.
const ROUNDS: u64 = 30;
/// Payloads that go there and come back.
const SIZES: [usize; 6] = [0, 64, 5000, 70_000, 300_000, 2 << 20];
const ECHO: u16 = 1;

/// From now on a signal comes each time that so much time is over; what it interrupts is not begun anew by itself.
fn interrupt_every(time: Duration) {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: all zeros are no flags and an empty mask, and the handler does nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the action lies there, and what was before is not asked for.
    assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) }, 0);
    let each = libc::timeval { tv_sec: 0, tv_usec: time.as_micros().try_into().expect("below a second") };
    let timer = libc::itimerval { it_interval: each, it_value: each };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }, 0);
}

/// Sends back what comes, until the other side has gone so often.
fn echo(mut endpoint: Endpoint) {
    let mut gone = 0;
    while gone < ROUNDS {
        match endpoint.wait(Some(PATIENCE)).expect("an event") {
            Event::Message(mut message) => {
                let mut bytes = vec![0; message.payload_len()];
                endpoint.read(&mut message, &mut bytes).expect("a payload");
                // Who has the last of it may have closed the channel before this side has seen that all has gone.
                if let Err(error) = send(&mut endpoint, message.channel(), &bytes) {
                    assert_eq!(error, SendError::Closed(CloseReason::Peer));
                }
            }
            Event::Closed(..) => gone += 1,
            _ => {}
        }
    }
}

fn send(endpoint: &mut Endpoint, channel: Channel, bytes: &[u8]) -> Result<(), SendError> {
    loop {
        match endpoint.outgoing(channel) {
            Ok(outgoing) => return outgoing.write(b"!").attach_copy(bytes).send().map(|_| ()),
            Err(SendError::Full) => endpoint.wait_for_room(channel, Some(PATIENCE)).expect("room"),
            Err(error) => return Err(error),
        }
    }
}

/// The part that talks to itself, in all ways that need no rights, and is interrupted meanwhile.
pub(crate) fn interrupted(address: &str, say: fn(&str)) {
    interrupt_every(Duration::from_micros(300));
    let settings = || Config { slots: 16, ..config() };
    for name in [address, "udp:127.0.0.1:0"] {
        let mut server = Endpoint::open(settings()).expect("an endpoint");
        server.listen(name).expect("a name");
        let at = server.net_address().map_or_else(|| name.to_owned(), |at| format!("udp:{at}"));
        let server = thread::spawn(move || echo(server));
        let mut client = Endpoint::open(settings()).expect("an endpoint");
        for round in 0..ROUNDS {
            let channel = client.connect(&at, PATIENCE).expect("a channel");
            for len in SIZES {
                send(&mut client, channel, &pattern(round, len)).expect("sent");
                let mut message = loop {
                    if let Event::Message(message) = client.wait(Some(PATIENCE)).expect("an event") {
                        break message;
                    }
                };
                let mut bytes = vec![0; len];
                client.read(&mut message, &mut bytes).expect("a payload");
                check(round, &bytes);
            }
            client.close(channel);
        }
        server.join().expect("it has served all");
    }
    for name in [address, "udp:127.0.0.1:0"] {
        let mut node = Node::new(Endpoint::open(settings()).expect("an endpoint"), Settings::default());
        node.medium(ECHO, Args::Any, |request| {
            let payload = request.medium().to_vec();
            request.reply_with(&[], Body::Owned(payload));
        });
        node.listen(name).expect("a name");
        let at = node.endpoint().net_address().map_or_else(|| name.to_owned(), |at| format!("udp:{at}"));
        let server = Service::spawn(node, |_| ()).expect("a service");
        let node = Node::new(Endpoint::open(settings()).expect("an endpoint"), Settings::default());
        let service = std::sync::Arc::new(Service::spawn(node, |_| ()).expect("a service"));
        let client = Client::connect(service, &at, PATIENCE).expect("a channel").within(PATIENCE);
        for round in 0..10 * ROUNDS {
            let bytes = pattern(round, 3000);
            let reply = client.call_raw(Raw::new(ECHO).body(Body::Copy(&bytes))).expect("an answer");
            assert_eq!(reply.payload_len(), bytes.len());
        }
        drop((client, server));
    }
    say("done");
}

#[test]
fn signals_disturb_nobody() {
    let folder = Folder::new();
    let mut other = Other::start(Other::command("interrupted", &folder.address()));
    assert_eq!(other.says(), "done");
}
