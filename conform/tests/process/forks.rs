//! A process that forks: what its child drops is still the parent's, and so are its keys.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, Node, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use cutthrough::{Channel, CloseReason, Config, Counter, Endpoint, Event, Keys, SharedKey};
use cutthrough_conform::join::lingering;
use cutthrough_node::shm::rendezvous::{reach, socket_path};
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::child::{Folder, Other, PATIENCE, config};

/// Seconds after which a child that does not end is killed.
const CHILD_MAX: u32 = 10;

/// Forks: 0 in the child, which drops what it has, and ends, without a word to the threads that it lacks.
fn child() -> libc::pid_t {
    // SAFETY: that is what it does.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it has nobody else's timer.
        unsafe { libc::alarm(CHILD_MAX) };
    }
    child
}

/// The end of the child.
fn end() -> ! {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(0) }
}

/// Waits for the end of the child, which is a good one.
fn wait_for(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: a child of this process, and a place for what has become of it.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
}

/// Listens, on a network too, and once somebody has come has a child that drops the endpoint, and a service.
pub(crate) fn fork(address: &str, say: fn(&str)) {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(address).expect("the name");
    endpoint.listen("udp:127.0.0.1:0").expect("a port");
    let node = Node::new(Endpoint::open(config()).expect("an endpoint"), Settings::default());
    let service = Service::spawn(node, |_| ()).expect("a service");
    say("ready");
    while !matches!(endpoint.wait(Some(PATIENCE)), Ok(Event::Opened(_))) {}
    let child = child();
    if child == 0 {
        drop(endpoint);
        drop(service);
        end();
    }
    wait_for(child);
    say("forked");
    say(&format!("udp:{}", endpoint.net_address().expect("it is bound")));
    loop {
        let _ = endpoint.wait(Some(PATIENCE));
    }
}

/// The next end of a channel: whose, and why.
fn ended(endpoint: &mut Endpoint) -> (Channel, CloseReason) {
    loop {
        if let Event::Closed(channel, reason) = endpoint.wait(Some(PATIENCE)).expect("the end") {
            return (channel, reason);
        }
    }
}

#[test]
fn what_a_child_drops_is_its_parents() {
    let folder = Folder::new();
    let mut other = Other::ready("fork", &folder.address());
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let channel = endpoint.connect(&folder.address(), PATIENCE).expect("a channel");
    assert_eq!(other.says(), "forked");
    assert_eq!(folder.files().len(), 2, "the socket and its lock: {:?}", folder.files());
    let mut late = Endpoint::open(config()).expect("an endpoint");
    late.connect(&folder.address(), PATIENCE).expect("the parent still listens");
    late.connect(&other.says(), PATIENCE).expect("on its network, too");
    drop(other);
    assert_eq!(ended(&mut endpoint), (channel, CloseReason::Died));
}

/// Opens two channels, has a child that keeps all that there is of them, and closes one, then drops the endpoint.
pub(crate) fn fork_closes(address: &str, say: fn(&str)) {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let [first, _] = [(); 2].map(|()| endpoint.connect(address, PATIENCE).expect("a channel"));
    let child = child();
    if child == 0 {
        // Longer than anybody waits.
        thread::sleep(Duration::from_secs(u64::from(2 * CHILD_MAX)));
        end();
    }
    endpoint.close(first);
    say("closed");
    thread::sleep(PATIENCE / 20);
    drop(endpoint);
    say("dropped");
    // SAFETY: the child of this process, which nobody has waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// What a process closes was open until its child ended: that had the sockets, too, and nobody else was told.
#[test]
fn a_channel_ends_though_a_child_has_its_socket() {
    let folder = Folder::new();
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("the name");
    let mut other = Other::start(Other::command("fork-closes", &folder.address()));
    let mut channels = Vec::new();
    while channels.len() < 2 {
        if let Event::Opened(channel) = endpoint.wait(Some(PATIENCE)).expect("a caller") {
            channels.push(channel);
        }
    }
    let since = Instant::now();
    for channel in channels {
        assert_eq!(ended(&mut endpoint), (channel, CloseReason::Peer));
    }
    assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
    assert_eq!([other.says(), other.says()], ["closed", "dropped"]);
}

/// Settings with a key.
fn sealed() -> Config {
    Config { keys: Some(Arc::new(Keys::Shared(SharedKey::from_bytes([42; 32])))), ..config() }
}

/// Calls, and has a child say something on the channel before it does so itself.
pub(crate) fn fork_sends(address: &str, say: fn(&str)) {
    let mut endpoint = Endpoint::open(sealed()).expect("an endpoint");
    let channel = endpoint.connect(address, PATIENCE).expect("a channel");
    // SAFETY: the child uses what is there of the endpoint, and ends. A thread that it lacks may have held a lock at
    // that moment: then it waits until its time is over.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it has nobody else's timer.
        unsafe { libc::alarm(2) };
        let _ = endpoint.send(channel, b"child");
        endpoint.flush();
        let _ = endpoint.wait(Some(std::time::Duration::from_millis(50)));
        end();
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for what has become of it.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    say("forked");
    endpoint.send(channel, b"parent").expect("room");
    loop {
        let _ = endpoint.wait(Some(PATIENCE));
    }
}

/// The numbers of frames are nonces: two processes that seal with one key and the same numbers would give all of it
/// away.
#[test]
fn a_child_seals_nothing_with_its_parents_keys() {
    let mut endpoint = Endpoint::open(sealed()).expect("an endpoint");
    endpoint.listen("udp:127.0.0.1:0").expect("a port");
    let mut other = Other::start(Other::command("fork-sends", &format!("udp:{}", endpoint.net_address().unwrap())));
    let message = loop {
        if let Event::Message(message) = endpoint.wait(Some(PATIENCE)).expect("a message") {
            break message;
        }
    };
    assert_eq!(message.control(), b"parent");
    assert_eq!(other.says(), "forked");
}

const HELD: u16 = 1;
const ECHO: u16 = 2;

/// Makes a call, and has a child that drops it, and all that it was made by.
pub(crate) fn fork_calls(address: &str, say: fn(&str)) {
    let node = Node::new(Endpoint::open(config()).expect("an endpoint"), Settings::default());
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a service"));
    let client = Client::connect(Arc::clone(&service), address, PATIENCE).expect("a channel").within(PATIENCE);
    let mut call = Box::pin(client.start_raw(Raw::new(HELD)));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let child = child();
    if child == 0 {
        drop(call);
        drop(client);
        drop(service);
        end();
    }
    wait_for(child);
    for number in 0..4_u32 {
        let reply = client.call_raw(Raw::new(ECHO).args(&number.to_le_bytes())).expect("an answer");
        assert_eq!(reply.word(0), number);
    }
    say("forked");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    say(&format!("{:?}", runtime.block_on(pin!(call)).map(|reply| reply.word(0))));
}

#[test]
fn a_call_that_a_child_drops_is_its_parents() {
    let folder = Folder::new();
    let mut node = Node::new(Endpoint::open(config()).expect("an endpoint"), Settings::default());
    let held = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&held);
    node.short(HELD, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    node.short(ECHO, Args::Words(1), |request| {
        let words: [u32; 1] = request.words();
        request.reply(&words);
    });
    node.listen(&folder.address()).expect("the name");
    let server = Service::spawn(node, |_| ()).expect("a service");
    let mut other = Other::start(Other::command("fork-calls", &folder.address()));
    assert_eq!(other.says(), "forked");
    for deferred in held.lock().expect("the list").drain(..) {
        server.with(|node| node.answer(deferred, &7_u32.to_le_bytes(), Body::None));
    }
    assert_eq!(other.says(), "Ok(7)");
}

/// Strangers whose files may wait to be closed before nobody else is heard.
const LOTS: u64 = 32;

/// Listens until as many strangers' files wait to be closed, and forks. The child opens an endpoint of its own: whether
/// it gets a channel once the files are closed.
pub(crate) fn fork_crowded(address: &str, say: fn(&str)) {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let here = format!("{address}-here.sock");
    endpoint.listen(&here).expect("the name");
    let path = socket_path(&here).expect("a path");
    let mut kept = Vec::new();
    let begun = Instant::now();
    while endpoint.counter(Counter::HellosRefused) < LOTS && begun.elapsed() < PATIENCE {
        if let Ok(socket) = reach(&path) {
            let (file, end) = lingering(2 * PATIENCE);
            let (mut space, files) = ([MaybeUninit::uninit(); cmsg_space!(ScmRights(1))], [file.as_fd()]);
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
            sendmsg(&socket, &[IoSlice::new(b"nonsense")], &mut ancillary, SendFlags::NOSIGNAL).expect("said");
            kept.push((socket, end));
        }
        let _ = endpoint.wait(Some(Duration::from_millis(5)));
    }
    say(&format!("{} refused", endpoint.counter(Counter::HellosRefused)));
    let connected = |patience| {
        let connected = Endpoint::open(config()).expect("an endpoint").connect(address, patience);
        connected.map_or_else(|error| error.to_string(), |_| "connected".to_owned())
    };
    let child = child();
    // All that lingers is closed by its other end from here on.
    drop(kept);
    if child == 0 {
        say(&connected(PATIENCE / 5));
        end();
    }
    wait_for(child);
    say(&connected(PATIENCE));
}

/// It was counted for the child, too, where nobody would take it off.
#[test]
fn a_child_is_not_kept_by_files_that_its_parent_closes() {
    let folder = Folder::new();
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("the name");
    let mut other = Other::start(Other::command("fork-crowded", &folder.address()));
    let said = thread::spawn(move || [other.says(), other.says(), other.says()]);
    while !said.is_finished() {
        let _ = endpoint.wait(Some(Duration::from_millis(10)));
    }
    assert_eq!(said.join().expect("what it says"), [&format!("{LOTS} refused"), "connected", "connected"]);
}
