//! The examples that serve do what they say, each with its own client. Those of the README and the guide are run in
//! `documents`.

mod example;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use cutthrough::{AddressError, CloseReason, Config, ConnectError, Endpoint, Event};
use example::{example, make_key};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// An address that no other process uses.
fn address(name: &str) -> String {
    format!("shm:example-{}-{name}", std::process::id())
}

/// A server, what it says, line by line, and where it listens; ends with the test and leaves nothing.
struct Server {
    child: Child,
    said: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    /// Starts one, which has to begin by saying what it does there.
    fn start(mut command: Command, doing: &str, address: &str) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the server");
        Self::started(child, doing, address)
    }

    /// The same of one that was started, with its output piped.
    fn started(mut child: Child, doing: &str, address: &str) -> Self {
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut server = Self { child, said, address: address.to_owned() };
        assert_eq!(server.line(), format!("{doing} at {address}"));
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Whoever is killed leaves its socket for the next one of its name.
        let socket = self.address.trim_start_matches("shm:");
        for file in [socket.to_owned(), format!("{socket}.lock")] {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn run(name: &str, words: &[&str]) -> Output {
    example(name).args(words).stdin(Stdio::null()).output().expect("the example")
}

/// What an example that ends well says on standard output.
fn says(name: &str, words: &[&str]) -> Vec<u8> {
    let output = run(name, words);
    assert!(output.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn words_are_echoed() {
    let address = address("echo");
    let mut command = example("echo");
    command.args(["serve", &address]);
    let mut server = Server::start(command, "echoing", &address);
    for _ in 0..2 {
        let said = String::from_utf8(says("echo", &[&address])).expect("text");
        assert!(said.starts_with("1000 round trips, ") && said.ends_with(" each\n"), "{said}");
        let (came, went) = (server.line(), server.line());
        assert!(came.starts_with("Opened(") && went.starts_with("Closed("), "{came}, {went}");
    }
}

#[test]
fn a_server_stops_in_good_order() {
    let address = address("stop");
    let mut command = example("stop");
    command.arg(&address).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server::started(command.spawn().expect("the server"), "serving", &address);
    let mut endpoint = Endpoint::open(Config::default()).expect("an endpoint");
    let channel = endpoint.connect(&address, PATIENCE).expect("a channel");
    endpoint.send(channel, b"hello").expect("room");
    match endpoint.wait(Some(PATIENCE)) {
        Ok(Event::Message(message)) => assert_eq!(message.control(), b"hello"),
        other => panic!("instead of an echo: {other:?}"),
    }
    drop(server.child.stdin.take());
    assert_eq!(server.line(), "nobody else comes in");
    let refused = Endpoint::open(Config::default()).expect("an endpoint").connect(&address, PATIENCE);
    assert!(matches!(refused, Err(ConnectError::Address(AddressError::Nobody(_)))), "{refused:?}");
    // Who is there is told of the end, whether it has ended itself or not.
    match endpoint.wait(Some(PATIENCE)) {
        Ok(Event::Closed(of, CloseReason::Peer)) => assert_eq!(of, channel),
        other => panic!("instead of the end: {other:?}"),
    }
    assert_eq!(server.line(), "over");
    assert!(server.child.wait().expect("its end").success());
    let refused = run("stop", &["udp:127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.starts_with("stop: ") && said.lines().count() == 1, "{said}");
}

/// A cache before the page server sends on what has landed there, and has it for the next one: with one copy where
/// shared memory is on either side, and none else.
#[test]
fn pages_are_kept_and_sent_on() {
    let folder = std::env::temp_dir().join(format!("cutthrough-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let keys = folder.join("pages.key");
    make_key(&keys);
    let keys = keys.display().to_string();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE-APACHE");
    let page = &std::fs::read(file).expect("the file")[4096..8192];
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let net = |port| format!("udp:127.{}.{middle}.{low}:{port}", high + 1);
    let ways = [(address("pages"), address("cache"), 1), (net(7100), net(7101), 0), (net(7102), address("cached"), 1)];
    for (origin, cache, copies) in ways {
        let mut command = example("page_server");
        command.args([file, &origin, &keys]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server");
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        said.read_line(&mut String::new()).expect("text");
        let mut source = Server { child, said, address: origin.clone() };
        let mut command = example("page_cache");
        command.args([&cache, &origin, &keys]);
        let mut server = Server::start(command, "keeping pages", &cache);
        for from in ["the server", "here"] {
            assert_eq!(says("page_client", &["1", &cache, &keys]), page);
            assert_eq!(server.line(), format!("page 1 from {from}: 4096 bytes, copies {copies}"));
        }
        let none = complains("page_client", &["4294967295", &cache, &keys]);
        assert_eq!(none, "page_client: the server has no page 4294967295\n");
        if cache.starts_with("shm:") {
            // More pages that there are not than there is room for pages that are.
            let mut endpoint = Endpoint::open(Config::default()).expect("an endpoint");
            let channel = endpoint.connect(&cache, PATIENCE).expect("a channel");
            // What they have said of the two pages before.
            for server in [&mut source, &mut server] {
                server.line();
            }
            source.line();
            for number in 1_000_000_u32..1_003_000 {
                endpoint.send(channel, &[&number.to_le_bytes()[..], &[0; 16]].concat()).expect("room");
                let Ok(Event::Message(reply)) = endpoint.wait(Some(PATIENCE)) else { panic!("no answer") };
                assert_eq!(reply.payload_len(), 0);
                assert_eq!(server.line(), format!("page {number} from the server: 0 bytes, copies 0"));
                source.line();
            }
            assert_eq!(says("page_client", &["1", &cache, &keys]), page);
            let other = std::fs::read(file).expect("the file")[..4096].to_vec();
            assert_eq!(says("page_client", &["0", &cache, &keys]), other);
        }
    }
    std::fs::remove_dir_all(folder).expect("the folder");
}

/// What an example says why it does not do what it was told.
fn complains(name: &str, words: &[&str]) -> String {
    let output = run(name, words);
    assert!(!output.status.success() && output.stdout.is_empty(), "{name} {words:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn values_are_stored_by_their_keys() {
    let address = address("kv");
    let nobody = complains("kv", &["get", "colour", &address]);
    assert!(nobody.starts_with("kv: nobody listens at ") && nobody.lines().count() == 1, "{nobody}");
    let mut command = example("kv");
    command.args(["serve", &address]);
    let _server = Server::start(command, "storing", &address);
    assert_eq!(says("kv", &["set", "colour", "green", &address]), b"stored\n");
    assert_eq!(says("kv", &["set", "colour", "blue", &address]), b"replaced\n");
    assert_eq!(says("kv", &["get", "colour", &address]), b"blue");
    // Straight into the caller's pages.
    let told = run("kv", &["get", "colour", &address]).stderr;
    assert_eq!(String::from_utf8_lossy(&told), "4 bytes, path put, copies 1\n");
    let long = "x".repeat(100_000);
    assert_eq!(says("kv", &["set", "shade", &long, &address]), b"stored\n");
    assert_eq!(says("kv", &["get", "shade", &address]), long.as_bytes());
    assert_eq!(says("kv", &["set", "shade", "", &address]), b"replaced\n");
    assert_eq!(says("kv", &["get", "shade", &address]), b"");
    assert_eq!(complains("kv", &["get", "shape", &address]), "kv: the server refused the call: no such key\n");
    let key = "k".repeat(65);
    assert_eq!(complains("kv", &["get", &key, &address]), "kv: the key is too long: it may have 64 bytes\n");
    assert_eq!(says("kv", &["set", &key[1..], "v", &address]), b"stored\n");
    assert_eq!(says("kv", &["get", &key[1..], &address]), b"v");
    assert!(complains("kv", &[]).starts_with("kv: usage: kv serve"));
}

/// At an address of another machine, for which both sides need a key.
#[test]
fn values_are_stored_over_a_network() {
    let keys = std::env::temp_dir().join(format!("example-{}-kv.key", std::process::id()));
    make_key(&keys);
    let keys = keys.to_str().expect("text");
    // A host of this process alone, and a port that the system gives nobody by itself.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = format!("udp:127.{}.{middle}.{low}:7001", high + 1);
    let mut command = example("kv");
    command.args(["serve", &address, keys]);
    let _server = Server::start(command, "storing", &address);
    assert_eq!(says("kv", &["set", "colour", "green", &address, keys]), b"stored\n");
    assert_eq!(says("kv", &["get", "colour", &address, keys]), b"green");
    let without = complains("kv", &["get", "colour", &address]);
    assert!(without.starts_with("kv: ") && without.lines().count() == 1, "{without}");
    assert!(complains("kv", &["get", "colour", &address, keys, "more"]).starts_with("kv: usage: kv serve"));
    std::fs::remove_file(keys).expect("it was made");
}

/// One line of text, as for whoever reads it, and not what a debugger shows.
#[test]
fn whoever_finds_nobody_is_told_what_to_do() {
    for (name, words) in [("echo", &[][..]), ("fileserver", &[]), ("page_client", &["0"])] {
        let address = address(&format!("nobody-{name}"));
        let why = complains(name, &[words, &[&address[..]]].concat());
        let told = format!("{name}: nobody listens at ");
        assert!(why.starts_with(&told) && why.ends_with("start the listening side first\n"), "{why}");
    }
}

/// What the system says of a file is no use without its name, nor is what the library for numbers says.
#[test]
fn what_is_wrong_with_an_argument_is_said_for_people() {
    let missing = "No such file or directory (os error 2)\n";
    assert_eq!(complains("page_server", &["nofile"]), format!("page_server: nofile: {missing}"));
    assert_eq!(complains("fileserver", &["serve", "nofile"]), format!("fileserver: nofile: {missing}"));
    assert_eq!(complains("page_client", &["x"]), "page_client: usage: page_client NUMBER [ADDRESS [KEYS]]\n");
}

/// Whoever asks is told what an example does and how it is called, and nothing is opened for that.
#[test]
fn each_says_what_it_does_and_how_it_is_called() {
    let names = ["echo", "fileserver", "kv", "page_cache", "page_client", "page_server", "stop"];
    for name in names.into_iter().chain(cfg!(feature = "tokio").then_some("echo_tokio")) {
        let said = String::from_utf8(says(name, &["--help"])).expect("text");
        let (what, usage) = said.split_once("usage: ").unwrap_or_else(|| panic!("{name}: {said}"));
        assert!(what.trim_end().ends_with('.') && usage.starts_with(&format!("{name} ")), "{said}");
        assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    }
}

/// By standard input, as no argument can have so many bytes.
#[test]
fn values_may_have_up_to_a_mebibyte() {
    let address = address("kv-long");
    let mut command = example("kv");
    command.args(["serve", &address]);
    let _server = Server::start(command, "storing", &address);
    let set = |value: &[u8]| {
        let file = std::env::temp_dir().join(format!("example-{}-value", std::process::id()));
        std::fs::write(&file, value).expect("a file");
        let from = std::fs::File::open(&file).expect("a file");
        std::fs::remove_file(&file).expect("it was made");
        example("kv").args(["set", "picture", "-", &address]).stdin(from).output().expect("the example")
    };
    let value: Vec<u8> = (0..1 << 20_u32).map(|at: u32| (at * 7 / 8).to_le_bytes()[0]).collect();
    assert_eq!(set(&value).stdout, b"stored\n");
    let refused = set(&[&value[..], b"x"].concat());
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why == "kv: the value is too long: it may have 1048576 bytes\n", "{why}");
    assert!(says("kv", &["get", "picture", &address]) == value, "another value came");
}

/// Blocks of 64 KiB, the last of which is short; nothing of a file that is empty.
#[test]
fn a_file_is_copied_block_by_block() {
    for bytes in [5 * (64 << 10) + 123_u32, 64 << 10, 1, 0] {
        let address = address(&format!("files-{bytes}"));
        let content: Vec<u8> = (0..bytes).map(|at| (at * 7 / 8).to_le_bytes()[0]).collect();
        let file = std::env::temp_dir().join(format!("example-{}-{bytes}", std::process::id()));
        std::fs::write(&file, &content).expect("a file");
        let mut command = example("fileserver");
        command.arg("serve").arg(&file).arg(&address);
        let _server = Server::start(command, &format!("serving {bytes} bytes"), &address);
        std::fs::remove_file(&file).expect("it was made");
        assert!(says("fileserver", &[&address]) == content, "{bytes} bytes came otherwise");
    }
}

/// As of `fileserver | head -c 10`: no error, as there is none for the program itself.
#[test]
fn a_reader_of_a_file_may_leave_when_it_has_enough() {
    let address = address("files-head");
    let file = std::env::temp_dir().join(format!("example-{}-head", std::process::id()));
    std::fs::write(&file, vec![b'x'; 1 << 20]).expect("a file");
    let mut command = example("fileserver");
    command.arg("serve").arg(&file).arg(&address);
    let _server = Server::start(command, "serving 1048576 bytes", &address);
    std::fs::remove_file(&file).expect("it was made");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = example("fileserver").arg(&address).stdout(writer).output().expect("the example");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[cfg(feature = "tokio")]
#[test]
fn messages_are_echoed_in_a_runtime() {
    use cutthrough::{Config, Endpoint, Event};
    let patience = std::time::Duration::from_secs(20);
    let address = address("tokio");
    let mut command = example("echo_tokio");
    command.arg(&address);
    let mut server = Server::start(command, "echoing", &address);
    let mut endpoint = Endpoint::open(Config::default()).expect("an endpoint");
    let channel = endpoint.connect(&address, patience).expect("the server");
    assert_eq!(server.line(), "channel 0 opened");
    endpoint.send(channel, b"hello").expect("sent");
    match endpoint.wait(Some(patience)).expect("an answer") {
        Event::Message(message) => assert_eq!(message.control(), b"hello"),
        other => panic!("{other:?}"),
    }
    drop(endpoint);
    let left = server.line();
    assert!(left.starts_with("channel 0: "), "{left}");
}

/// Whoever takes nothing in hears that, instead of missing some echoes without a word.
#[cfg(feature = "tokio")]
#[test]
fn who_takes_no_echoes_in_is_left() {
    use cutthrough::SendError;
    let address = address("tokio-full");
    let mut command = example("echo_tokio");
    command.arg(&address).stderr(Stdio::piped());
    let mut server = Server::start(command, "echoing", &address);
    let mut endpoint = Endpoint::open(Config { slots: 16, ..Config::default() }).expect("an endpoint");
    let channel = endpoint.connect(&address, PATIENCE).expect("the server");
    // Until it is left: nothing is taken in here.
    let mut said = BufReader::new(server.child.stderr.take().expect("its errors"));
    let telling = std::thread::spawn(move || {
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        line
    });
    let since = std::time::Instant::now();
    while !telling.is_finished() {
        assert!(since.elapsed() < PATIENCE, "it is not left");
        match endpoint.send(channel, b"hello") {
            Ok(_) => {}
            Err(SendError::Full | SendError::Closed(_)) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    let told = telling.join().expect("the other thread");
    assert!(told.starts_with("channel 0 is left, not sent back: "), "{told}");
    while !matches!(endpoint.wait(Some(PATIENCE)).expect("its end"), Event::Closed(..)) {}
}
