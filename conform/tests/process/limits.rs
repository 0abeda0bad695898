//! Too few files, too small ones, too little memory: a clear error at every step, never a panic nor a signal.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cutthrough::am::{self, Args, Body, CallError, Failure, Node, Settings};
use cutthrough::{Config, Endpoint, Event};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child::{Folder, Other, PATIENCE, config};

/// What stands between two errors.
const BETWEEN: &str = " | ";

/// Opens, listens, connects to itself, sends: the error of whatever fails first.
fn everything(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoint = Endpoint::open(config())?;
    endpoint.listen(address)?;
    let channel = endpoint.connect(address, Duration::from_secs(1))?;
    endpoint.send(channel, b"control")?;
    Ok(())
}

/// Tries everything under each limit: says how many tries failed and how many worked, and what the errors were.
fn try_limits(address: &str, resource: Resource, limits: impl Iterator<Item = u64>, say: impl Fn(&str)) {
    let whole = getrlimit(resource);
    let (mut failed, mut worked, mut errors) = (0, 0, BTreeSet::new());
    for limit in limits {
        setrlimit(resource, Rlimit { current: Some(limit), ..whole }).expect("a lower limit");
        match everything(address) {
            Ok(()) => worked += 1,
            Err(error) => {
                failed += 1;
                errors.insert(error.to_string());
            }
        }
    }
    setrlimit(resource, whole).expect("the limit of before");
    let errors: Vec<String> = errors.into_iter().collect();
    say(&format!("failed {failed}, worked {worked}: {}", errors.join(BETWEEN)));
}

/// The part that has ever more files, from none on.
pub(crate) fn few_files(address: &str, say: impl Fn(&str)) {
    let open = std::fs::read_dir("/proc/self/fd").expect("our files").count() as u64;
    // What an attempt in vain has opened may still be closing at the next one.
    try_limits(address, Resource::Nofile, open - 1..open + 48, say);
}

/// Bytes of the addresses that this process has.
fn addresses() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("what it has");
    4096 * text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("our address space")
}

/// The part that has ever more address space.
pub(crate) fn little_memory(address: &str, say: impl Fn(&str)) {
    let before = addresses();
    let steps = (0..60).map(|step| before + (step << 24));
    try_limits(address, Resource::As, steps, say);
}

/// The part whose files may be ever longer, and shared memory is files.
pub(crate) fn small_files(address: &str, say: impl Fn(&str)) {
    try_limits(address, Resource::Fsize, (0..40).map(|step| 1 << step), say);
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a time")
}

/// The part that listens, and has no file for a caller: says what waiting for a second costs, then has one.
pub(crate) fn no_file_for_a_caller(address: &str, say: impl Fn(&str)) {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(address).expect("the name");
    let whole = getrlimit(Resource::Nofile);
    // There is none below these any more.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..whole }).expect("a lower limit");
    say("ready");
    let called = endpoint.wait(Some(Duration::from_millis(200)));
    let before = processor_time();
    let told = endpoint.wait(Some(Duration::from_secs(1)));
    say(&format!("{called:?}, {told:?}"));
    say(&(processor_time() - before).as_millis().to_string());
    setrlimit(Resource::Nofile, whole).expect("the limit of before");
    say(&format!("{:?}", endpoint.wait(Some(PATIENCE))));
}

/// A listener that has no file for a caller sleeps, and lets it in once it has.
#[test]
fn a_caller_waits_where_there_is_no_file_for_it() {
    let folder = Folder::new();
    let mut other = Other::ready("no-file-for-a-caller", &folder.address());
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let connecting = endpoint.begin_connect(&folder.address(), PATIENCE).expect("begun");
    assert_eq!(other.says(), "Err(TimedOut), Err(TimedOut)");
    let spent: u64 = other.says().parse().expect("milliseconds");
    assert!(spent < 300, "{spent} ms of a second");
    match endpoint.wait(Some(PATIENCE)) {
        Ok(Event::Connected(of, outcome)) if of == connecting => drop(outcome.expect("a channel")),
        told => panic!("{told:?}"),
    }
    let said = other.says();
    assert!(said.starts_with("Ok(Opened("), "{said}");
}

/// Bytes of a payload for which there is no memory.
const LONG: usize = 400 << 20;

/// The part that serves, and that once somebody has come gets no more memory than half a payload.
pub(crate) fn little_memory_for_a_payload(address: &str, say: impl Fn(&str)) {
    let mut node = Node::new(Endpoint::open(config()).expect("an endpoint"), Settings::default());
    node.whole(1, Args::Any, usize::MAX, |request| {
        let bytes = u32::try_from(request.payload_len()).expect("no payload is longer");
        request.reply(&[bytes]);
    });
    node.listen(address).expect("the name");
    say("ready");
    loop {
        match node.wait(Some(PATIENCE)) {
            Ok(am::Event::Opened(_)) => {
                let limit = Rlimit { current: Some(addresses() + LONG as u64 / 2), ..getrlimit(Resource::As) };
                setrlimit(Resource::As, limit).expect("a lower limit");
            }
            Ok(am::Event::Closed(..)) => return say("it has gone"),
            Ok(_) => {}
            Err(error) => return say(&error.to_string()),
        }
    }
}

/// Memory that cannot be had ended the process: whoever sends says how much that is.
#[test]
fn a_payload_for_which_there_is_no_memory_ends_no_server() {
    let folder = Folder::new();
    let mut other = Other::ready("little-memory-for-a-payload", &folder.address());
    let mut node = Node::new(Endpoint::open(config()).expect("an endpoint"), Settings::default());
    let channel = node.connect(&folder.address(), PATIENCE).expect("a channel");
    let mut ask = |len: usize| {
        let call = node.ask(channel, 1).body(Body::Copy(&vec![7; len])).within(PATIENCE).send()?;
        node.wait_for(call, PATIENCE).map(|reply| reply.word(0)).map_err(CallError::from)
    };
    assert_eq!(ask(LONG), Err(CallError::Failed(Failure::Busy)));
    assert_eq!(ask(300_000), Ok(300_000));
    drop(node);
    assert_eq!(other.says(), "it has gone");
}

/// Starts a part and checks that both outcomes came up and were told in words, with this advice. It calls itself: what
/// the side that listens has too little of, the other side hears of.
fn check(part: &str, advice: &str) {
    let folder = Folder::new();
    let mut other = Other::start(Other::command(part, &folder.address()));
    let said = other.says();
    assert!(!said.starts_with("failed 0,") && !said.contains("worked 0:"), "{said}");
    let (_, errors) = said.split_once(": ").expect("errors");
    // Where it has no file at all for a caller, that waits.
    let advised = |error: &str| error.contains(advice) || error.starts_with("no answer within");
    assert!(errors.contains(advice) && errors.split(BETWEEN).all(advised), "{said}");
    assert!(other.process.wait().expect("its end").success(), "{said}");
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

#[test]
fn too_few_files_are_an_error() {
    check("few-files", "ulimit -n");
}

#[test]
fn too_little_address_space_is_an_error() {
    check("little-memory", "ulimit");
}

/// Beyond this limit the kernel does not say no: it sends a signal that ends the process.
#[test]
fn too_small_files_are_an_error() {
    check("small-files", "ulimit -f");
}

/// To take hundreds of megabytes lasts, on a busy machine longer than a peer may be silent or stand still.
fn patient() -> Config {
    Config { silence: PATIENCE, deadline: PATIENCE, ..config() }
}

/// The part that gets no more memory than half a payload for a while, in which it polls and reads nothing; then reads.
pub(crate) fn little_memory_for_what_lies_aside(say: impl Fn(&str)) {
    let mut endpoint = Endpoint::open(patient()).expect("an endpoint");
    endpoint.listen("udp:127.0.0.1:0").expect("a port");
    say(&format!("udp:{}", endpoint.net_address().expect("a port")));
    let whole = getrlimit(Resource::As);
    let (mut unread, mut ends) = (None, Instant::now() + PATIENCE);
    while Instant::now() < ends {
        match endpoint.poll() {
            Some(Event::Opened(_)) => {
                let limit = Rlimit { current: Some(addresses() + LONG as u64 / 2), ..whole };
                setrlimit(Resource::As, limit).expect("a lower limit");
            }
            Some(Event::Message(message)) => {
                unread = Some(message);
                ends = Instant::now() + Duration::from_secs(3);
            }
            Some(told) => return say(&format!("{told:?}")),
            None => {}
        }
    }
    setrlimit(Resource::As, whole).expect("the limit of before");
    let mut message = unread.expect("a message");
    let mut bytes = vec![0; message.payload_len()];
    let read = endpoint.read(&mut message, &mut bytes).map(|_| bytes.iter().filter(|byte| **byte == 7).count());
    say(&format!("{read:?}"));
    say(&format!("{:?}", endpoint.wait(Some(PATIENCE))));
}

/// What waits for its reader over a network while other things are done is asked for whole. What there is no memory for
/// comes again once there is: memory that could not be had ended the process.
#[test]
fn what_cannot_lie_aside_ends_nobody_and_comes_again() {
    let mut other = Other::start(Other::command("little-memory-for-what-lies-aside", ""));
    let address = other.says();
    let mut endpoint = Endpoint::open(patient()).expect("an endpoint");
    let channel = endpoint.connect(&address, PATIENCE).expect("a channel");
    let outgoing = endpoint.outgoing(channel).expect("room").write(b"long");
    outgoing.attach_copy(&vec![7; LONG]).send().expect("all of it is taken in the end");
    drop(endpoint);
    assert_eq!(other.says(), format!("Ok({LONG})"));
    let said = other.says();
    assert!(said.starts_with("Ok(Closed(") && said.ends_with(", Peer))"), "{said}");
}
