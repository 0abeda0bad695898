//! However a process ends, the other one ends too, and no name is left.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use cutthrough::{Config, Endpoint, PrivateKey, PublicKey};
use rustix::process::Signal;

use crate::folder::{Folder, Running, interrupts_are_heeded, kill, runs, until};

/// A measurement that would take long, and the other end that it has started, both at work.
fn measuring(folder: &Folder) -> (Running, u32) {
    let first = folder.start(&["perf", "lat", "--size", "64KiB", "--seconds", "60"]);
    let second = first.other_end();
    until("they are at work", || folder.has(&format!("perf-{}-0-2.lane.sock", first.pid())));
    (first, second)
}

#[test]
fn the_other_end_ends_with_the_measuring_end() {
    for (test, signal) in [("killed", Signal::KILL), ("interrupted", Signal::INT), ("terminated", Signal::TERM)] {
        if signal == Signal::INT && !interrupts_are_heeded() {
            continue;
        }
        let folder = Folder::new(test);
        let (first, second) = measuring(&folder);
        kill(first.pid(), signal);
        assert_eq!(first.end(), (None, String::new()), "{test}");
        until("the other end has ended", || !runs(second));
        folder.wait_until_empty();
    }
}

#[test]
fn the_measuring_end_says_so_if_the_other_end_dies() {
    for (test, signal) in [("other-killed", Signal::KILL), ("other-interrupted", Signal::INT)] {
        let folder = Folder::new(test);
        let (first, second) = measuring(&folder);
        kill(second, signal);
        let (code, said) = first.end();
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{test}: {said}");
        assert!(said.starts_with("cutthrough: ") && said.contains("; "), "{test}: {said}");
        folder.wait_until_empty();
    }
}

#[test]
fn a_server_waits_for_its_signal_and_leaves_nothing() {
    for (test, signal) in [("server-interrupted", Signal::INT), ("server-terminated", Signal::TERM)] {
        let folder = Folder::new(test);
        let server = folder.listening(&["perf", "serve", "--listen", "shm:server"]);
        folder.lines(&["perf", "rate", "--peer", "shm:server", "--count", "100"]);
        folder.lines(&["perf", "fetch", "--peer", "shm:server", "--count", "10", "--size", "4KiB"]);
        kill(server.pid(), signal);
        assert_eq!(server.end(), (Some(0), String::new()), "{test}");
        folder.wait_until_empty();
    }
}

#[test]
fn a_listening_measurement_is_the_other_end_once() {
    let folder = Folder::new("once");
    let server = folder.listening(&["perf", "lat", "--listen", "shm:once"]);
    folder.lines(&["perf", "lat", "--peer", "shm:once", "--count", "10", "--size", "64,4KiB"]);
    assert_eq!(server.end(), (Some(0), String::new()));
    folder.wait_until_empty();
}

/// Whoever looks in and goes is not the client that it waits for.
#[test]
fn a_listening_measurement_ends_with_its_client_and_with_no_other() {
    let folder = Folder::new("stray");
    let server = folder.listening(&["perf", "lat", "--listen", "shm:stray"]);
    let mut stray = Endpoint::open(Config::default()).expect("an endpoint");
    stray.connect(&folder.address("stray"), Duration::from_secs(10)).expect("it listens");
    drop(stray);
    // So long that it has heard of that.
    std::thread::sleep(Duration::from_millis(500));
    folder.lines(&["perf", "lat", "--peer", "shm:stray", "--count", "10", "--size", "64"]);
    assert_eq!(server.end(), (Some(0), String::new()));
    folder.wait_until_empty();
}

/// Two ends that do not fit say what does not, and what to do about that; the reasons of the other end come whole.
#[test]
fn ends_that_do_not_fit_say_what_to_do() {
    let folder = Folder::new("unfit");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let taken = format!("udp:{}", socket.local_addr().expect("bound"));
    let said = folder.refuses(&["perf", "serve", "--listen", &taken, "--insecure"]);
    assert!(said.ends_with("; choose another port, or end the process that has it\n"), "{said}");
    // An address of rings is tried before anybody comes, and named as it was given.
    let said = folder.refuses(&["perf", "serve", "--listen", "net:nowhere", "--insecure"]);
    assert!(said.contains("'net:nowhere' is no address"), "{said}");
    let said = folder.refuses(&["perf", "serve", "--listen", "packet:127.0.0.1:0", "--insecure"]);
    assert!(said.contains("packet: ") && said.contains("use udp: or shm:"), "{said}");
    let said = folder.refuses(&["perf", "serve", "--listen", "udp:192.0.2.1:7000", "--insecure"]);
    assert!(said.ends_with("; use an address of this machine; 'ip address' lists them\n"), "{said}");
    let said = folder.refuses(&["perf", "lat", "--peer", "fabric:x", "--insecure"]);
    assert!(said.contains("\"fabric:x\" names no adapter; use shm:NAME on this machine, or udp:HOST:PORT"), "{said}");
    let said = folder.refuses(&["perf", "lat", "--peer", "udp:localhost", "--insecure"]);
    assert!(said.contains("'udp:localhost' is no address: it has no port; give --peer an address such as"), "{said}");

    drop(socket);
    let server = folder.listening(&["perf", "serve", "--listen", &taken, "--insecure"]);
    let key = format!("{}/unfit-{}.key", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    fs::write(&key, format!("psk: {}\n", "5a".repeat(32))).expect("the folder for tests can be written to");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("its mode");
    let said = folder.refuses(&["perf", "lat", "--peer", &taken, "--key", &key]);
    fs::remove_file(&key).expect("it was written");
    assert!(said.ends_with("; give both ends the same --key FILE, or --insecure\n"), "{said}");
    kill(server.pid(), Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    folder.wait_until_empty();
}

/// Each end has a key of its own; the other end is called by its public key, and so is each of its lanes.
#[test]
fn an_other_end_is_called_by_its_public_key() {
    let folder = Folder::new("pairs");
    let path = |name: &str| format!("{}/pairs-{}-{name}.key", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let keys =
        [("near", 1), ("far", 2), ("other", 3)].map(|(name, seed)| (path(name), PrivateKey::generate([seed; 32])));
    let [(near, near_key), (far, far_key), (other, other_key)] = &keys;
    for (path, own, peers) in [
        (near, near_key, &[far_key.public(), other_key.public()][..]),
        (far, far_key, &[near_key.public()]),
        (other, other_key, &[far_key.public()]),
    ] {
        let lines: Vec<String> = peers.iter().map(PublicKey::line).collect();
        fs::write(path, format!("{}\n{}\n", *own.line(), lines.join("\n"))).expect("it can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = format!("udp:{}", socket.local_addr().expect("bound"));
    drop(socket);
    let server = folder.listening(&["perf", "serve", "--listen", &at, "--key", far]);
    let called = format!("{at}#{}", far_key.public());
    let measured = ["--count", "20", "--size", "64,8KiB", "--peer", &called, "--key", near];
    let lines = folder.lines(&[&["perf", "lat"], &measured[..]].concat());
    assert!(lines.len() == 2 && lines.iter().all(|line| line["sealed"] == true), "{lines:?}");
    let lines = folder.lines(&["perf", "am", "short", "--count", "20", "--peer", &called, "--key", near]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    // The other end does not know this key, or is not the one that is called.
    let said = folder.refuses(&["perf", "lat", "--peer", &called, "--key", other]);
    assert!(said.contains("the keys do not fit; see that the key file of each end has the line public:HEX"), "{said}");
    let stranger = format!("{at}#{}", PrivateKey::generate([9; 32]).public());
    let said = folder.refuses(&["perf", "lat", "--peer", &stranger, "--key", near]);
    assert!(said.contains("of the other end is not in the key file of this one; add the line public:HEX"), "{said}");
    let said = folder.refuses(&["perf", "lat", "--adapter", "udp", "--key", near]);
    assert!(said.contains("; give --seal or a key that both share"), "{said}");
    keys.iter().for_each(|(path, _)| fs::remove_file(path).expect("it was written"));
    kill(server.pid(), Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    folder.wait_until_empty();
}

#[test]
fn a_name_in_use_is_refused_and_a_dead_one_is_not() {
    let folder = Folder::new("name");
    let server = folder.listening(&["perf", "serve", "--listen", "shm:name"]);
    let second = folder.run(&["perf", "serve", "--listen", "shm:name"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by a running process"));
    kill(server.pid(), Signal::KILL);
    let (code, _) = server.end();
    assert_eq!(code, None);
    let heir = folder.listening(&["perf", "serve", "--listen", "shm:name"]);
    folder.lines(&["perf", "lat", "--peer", "shm:name", "--count", "5", "--size", "64"]);
    kill(heir.pid(), Signal::TERM);
    assert_eq!(heir.end().0, Some(0));
    folder.wait_until_empty();
}

/// Lanes are named after the other end: one whose name leaves no room for that would be of use to nobody.
#[test]
fn a_name_too_long_for_lanes_is_refused_at_once() {
    let folder = Folder::new("long");
    let root = std::env::temp_dir();
    let path = |bytes: usize| {
        let path = root.join(format!("l{}-", std::process::id())).display().to_string();
        format!("shm:{path}{}", "x".repeat(bytes - path.len()))
    };
    for (fits, too_long, remedy) in [
        (format!("shm:{}", "n".repeat(56)), format!("shm:{}", "n".repeat(57)), "use a name of at most 56 letters"),
        (path(99), path(100), "use a path of at most 99 bytes"),
    ] {
        let said = folder.refuses(&["perf", "serve", "--listen", &too_long]);
        assert_eq!(said, format!("cutthrough: {too_long} is too long for lanes, whose names are longer; {remedy}\n"));
        let server = folder.listening(&["perf", "serve", "--listen", &fits]);
        folder.lines(&["perf", "lat", "--peer", &fits, "--count", "5", "--size", "64,8KiB"]);
        kill(server.pid(), Signal::TERM);
        assert_eq!(server.end(), (Some(0), String::new()));
    }
    let said = folder.refuses(&["perf", "serve", "--listen", &format!("shm:{}", "n".repeat(65))]);
    assert!(said.contains("is not usable; use 1 to 64 letters"), "{said}");
}

/// A limit that is too low is named as what it is: nothing is wrong with the other end, or with its address.
#[test]
fn too_few_open_files_are_said_to_be_the_cause() {
    let folder = Folder::new("few-files");
    let server = folder.listening(&["perf", "serve", "--listen", "shm:files"]);
    let (mut refused, mut ran) = (0, 0);
    for (files, words) in (5..20).map(|files| (files, "--peer shm:files")).chain([(5, ""), (8, "")]) {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" perf lat --count 2 --size 64 {words}");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_cutthrough")]);
        let output = folder.told(&mut shell).output().expect("a shell can be started");
        if output.status.success() {
            ran += 1;
            continue;
        }
        refused += 1;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.lines().count() == 1 && said.contains("ulimit -n"), "{files} {words}: {said}");
        assert_eq!(said.matches("; ").count(), 1, "{files} {words}: {said}");
    }
    assert!(refused > 0 && ran > 0, "{refused} refused, {ran} ran");
    kill(server.pid(), Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    folder.wait_until_empty();
}

/// Shared memory is files: where they may not be long enough the kernel would end the program by a signal.
#[test]
fn too_small_files_are_said_to_be_the_cause() {
    let folder = Folder::new("small-files");
    for words in ["perf lat --size 64 --count 100", "demo"] {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("ulimit -f 100; exec \"$0\" {words}"), env!("CARGO_BIN_EXE_cutthrough")]);
        let output = folder.told(&mut shell).output().expect("a shell can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words}: {said}");
        assert!(said.contains("; raise `ulimit -f`"), "{words}: {said}");
    }
    folder.wait_until_empty();
}

/// The other end is on this machine, and was started by hand: it has to leave the core alone that is measured on.
#[test]
fn an_other_end_that_is_measured_goes_to_another_core() {
    let folder = Folder::new("apart");
    let cores = cutthrough_cli::cpu::allowed();
    let server = folder.listening(&["perf", "serve", "--listen", "shm:apart"]);
    let used = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("its cores");
        cutthrough_cli::cpu::parse_list(list)
    };
    assert_eq!(used(), cores);
    folder.lines(&["perf", "lat", "--peer", "shm:apart", "--count", "5", "--size", "64"]);
    match cores.as_slice() {
        [first, .., _] => assert!(used().len() == 1 && used() != [*first], "{:?} of {cores:?}", used()),
        _ => assert_eq!(used(), cores),
    }
    kill(server.pid(), Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

/// Two measurements at once would measure each other. Whoever comes second is told so, and served when the first one
/// has gone.
#[test]
fn an_other_end_that_is_busy_says_so() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let udp = format!("udp:{}", socket.local_addr().expect("bound"));
    drop(socket);
    for (test, address, options) in [("occupied", "shm:occupied", &[][..]), ("occupied-udp", &udp, &["--insecure"])] {
        let folder = Folder::new(test);
        let server = folder.listening(&[&["perf", "serve", "--listen", address], options].concat());
        let measure = [&["perf", "lat", "--size", "64", "--peer", address], options].concat();
        let short = [&measure[..], &["--count", "5"]].concat();
        let first = folder.start(&[&measure[..], &["--seconds", "60"]].concat());
        // Until the first one has come, the second is served.
        until("it is busy", || !folder.run(&short).status.success());
        let said = folder.refuses(&short);
        assert!(said.contains("the other end refuses: it is busy with another measurement; wait until"), "{said}");
        kill(first.pid(), Signal::TERM);
        first.end();
        folder.lines(&short);
        kill(server.pid(), Signal::TERM);
        assert_eq!(server.end().0, Some(0), "{test}");
        folder.wait_until_empty();
    }
}
