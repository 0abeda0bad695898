//! U-Net's direct access: a process without rights has a ring of its own, and nobody else is on the path.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use cutthrough::{Adapter, Config, Endpoint, Event};
use cutthrough_cli::veth::Pair;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{capabilities, set_no_new_privs};

use super::{PATIENCE, at, program, refusal, shown, text, wire, within};

/// Who may have the ring, and somebody else.
const USER: u32 = 65_534;
const OTHER: u32 = 65_533;
const PORT: u16 = 7000;
const SIZES: [usize; 5] = [1, 64, 1400, 8 << 10, 100_000];
const ROUNDS: usize = 20;

/// A folder that everybody may enter; gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cutthrough-lease-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("its mode");
        Self(path)
    }

    fn path(&self) -> PathBuf {
        self.0.join("ring.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process and what it says, line by line; killed when dropped.
struct Process(Child, BufReader<ChildStdout>);

impl Process {
    fn start(pair: &Pair, mut command: Command) -> std::io::Result<Self> {
        command.stdout(Stdio::piped());
        let mut child = within(&pair.near, || command.spawn())?;
        let said = BufReader::new(child.stdout.take().expect("its output"));
        Ok(Self(child, said))
    }

    /// The rest of the next line with this in it.
    fn says(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.1.read_line(&mut line).expect("its output") > 0, "it ended without saying {word:?}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program again, as a process of this user that takes the ring at `path`; its peer has the adapter `scheme`.
fn tenant(path: &Path, user: u32, scheme: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "lease::other_side", "--nocapture", "--test-threads=1"]);
    command.env("LEASE_AT", path).env("LEASE_PEER", scheme).stdin(Stdio::null()).uid(user).gid(user);
    command
}

fn helper(pair: &Pair, path: &Path) -> Process {
    let (address, user) = (at("xdp", Pair::NEAR, PORT), USER.to_string());
    let words = ["lease", &address, "--user", &user, "--at", path.to_str().expect("a path"), "--json"];
    let mut helper = Process::start(pair, program(&words)).expect("the program can be started");
    helper.says("\"lease\"");
    helper
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 8 + seed).to_le_bytes()[0]).collect()
}

/// The helper refuses another user by name, passes the ring to the right one, and ends. Then that one, which has no
/// capabilities, answers a peer with payloads by the ring. Killed, it leaves nothing, and the next one has the same
/// address at once.
#[test]
fn a_process_without_rights_has_a_ring_of_its_own() {
    let Some(pair) = wire() else { return };
    let folder = Folder::new("own");
    for scheme in ["udp", "xdp"] {
        let mut helper = helper(&pair, &folder.path());
        assert!(shown(&pair).contains("xdp"), "{}", shown(&pair));
        let mut other = match Process::start(&pair, tenant(&folder.path(), OTHER, scheme)) {
            Ok(other) => other,
            Err(error) => return crate::skipped(format_args!("another user cannot run this program: {error}")),
        };
        let why = other.says("DECLINED ");
        assert!(why.contains(&format!("for user {USER}, and you are user {OTHER}; ")), "{why}");
        drop(other);

        let mut tenant = Process::start(&pair, tenant(&folder.path(), USER, scheme)).expect("a process");
        tenant.says("READY");
        let passed = helper.says("\"process\"");
        assert!(passed.contains(&tenant.0.id().to_string()), "{passed}");
        assert!(helper.0.wait().expect("it ends").success());
        assert!(!folder.path().exists(), "the helper leaves its socket");
        // Nobody else has the program now.
        assert!(shown(&pair).contains("xdp"), "{}", shown(&pair));

        exchange(&pair, scheme);
        tenant.0.kill().expect("it runs");
        tenant.0.wait().expect("it was killed");
        let begun = Instant::now();
        while shown(&pair).contains("xdp") {
            assert!(begun.elapsed() < PATIENCE, "{}", shown(&pair));
        }
        echo(&pair);
    }
}

/// Has payloads echoed across the wire.
fn exchange(pair: &Pair, scheme: &str) {
    let config = Config { insecure: true, ..Config::default() };
    let mut endpoint = Endpoint::open(config).expect("an endpoint");
    let peer = at(scheme, Pair::NEAR, PORT);
    let (mut endpoint, channel) = within(&pair.far, move || {
        let channel = endpoint.connect(&peer, PATIENCE).expect("a channel");
        (endpoint, channel)
    });
    for round in 0..ROUNDS {
        for len in SIZES {
            let payload = bytes(round + len, len);
            let outgoing = endpoint.outgoing(channel).expect("room");
            outgoing.write(&round.to_le_bytes()).attach_copy(&payload).send().expect("sent");
            let mut message = match endpoint.wait(Some(PATIENCE)).expect("an answer") {
                Event::Message(message) => message,
                other => panic!("{other:?}"),
            };
            assert_eq!(message.control(), round.to_le_bytes());
            let mut back = vec![0; message.payload_len()];
            endpoint.read(&mut message, &mut back).expect("its payload");
            assert!(back == payload, "{round}: {len} bytes");
        }
    }
    endpoint.close(channel);
}

/// The kernel's own sockets reach each other.
fn echo(pair: &Pair) {
    let near = within(&pair.near, || UdpSocket::bind((Pair::NEAR, PORT)).expect("a free port"));
    let far = within(&pair.far, || UdpSocket::bind((Pair::FAR, 0)).expect("a port"));
    near.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    far.send_to(b"alive", (Pair::NEAR, PORT)).expect("sent");
    assert_eq!(near.recv(&mut [0; 10]).expect("a datagram"), 5);
    drop(near);
    // What another test starts has our files for an instant.
    let begun = Instant::now();
    let sockets = || std::fs::read_to_string("/proc/thread-self/net/udp").expect("the namespace's sockets");
    while within(&pair.near, sockets).lines().count() > 1 {
        assert!(begun.elapsed() < PATIENCE, "the port is not free");
    }
}

fn say(words: &str) {
    println!("\n{words}");
    let _ = std::io::stdout().flush();
}

/// The process without rights, if it was started as such.
#[test]
fn other_side() {
    let Ok(path) = std::env::var("LEASE_AT") else { return };
    let kernel = std::env::var("LEASE_PEER").is_ok_and(|scheme| scheme == "udp");
    set_no_new_privs(true).expect("less rights");
    let sets = capabilities(None).expect("its rights");
    assert!(sets.effective.is_empty() && sets.permitted.is_empty() && sets.inheritable.is_empty());
    let config = Config { insecure: true, ..Config::default() };
    // By itself it can have no ring.
    let bare = Endpoint::open(config.clone()).expect("an endpoint").listen(&at("xdp", Pair::NEAR, PORT + 1));
    assert!(bare.expect_err("it has no rights").to_string().contains("cutthrough lease"));

    let mut endpoint = Endpoint::open(Config { lease: Some(path.into()), ..config }).expect("an endpoint");
    if let Err(error) = endpoint.listen(&at("xdp", Pair::NEAR, PORT)) {
        return say(&format!("DECLINED {error}"));
    }
    say("READY");
    while let Ok(event) = endpoint.wait(Some(PATIENCE)) {
        let Event::Message(mut message) = event else { continue };
        let mut bytes = vec![0; message.payload_len()];
        let came = endpoint.read(&mut message, &mut bytes).expect("its payload");
        let reply = endpoint.outgoing(message.channel()).expect("room").write(message.control());
        let went = reply.attach_copy(&bytes).send().expect("sent");
        assert_eq!(went.adapter, Adapter::Xdp);
        // Trains of a kernel come uncut across a pair, and stay with the socket.
        assert!(came.adapter == Adapter::Xdp || kernel, "{came:?}");
    }
}

/// A helper that is ended before its user has come leaves no socket, and no ring.
#[test]
fn a_helper_that_is_ended_leaves_nothing() {
    let Some(pair) = wire() else { return };
    let folder = Folder::new("ended");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut helper = helper(&pair, &folder.path());
        assert!(folder.path().exists() && shown(&pair).contains("xdp"));
        let pid = i32::try_from(helper.0.id()).ok().and_then(Pid::from_raw).expect("a process number");
        kill_process(pid, signal).expect("it runs");
        assert_eq!(helper.0.wait().expect("it ends").code(), Some(1), "{signal:?}");
        let mut said = String::new();
        let stderr = helper.0.stderr.as_mut().expect("it was asked for");
        stderr.read_to_string(&mut said).expect("output is UTF-8");
        assert!(said.ends_with("cutthrough: interrupted; the ring was given up\n"), "{said}");
        assert!(!folder.path().exists(), "{signal:?}: the helper leaves its socket");
        assert!(!shown(&pair).contains("xdp"), "{}", shown(&pair));
    }
}

/// The guard of a helper: the one process that the helper has started.
fn guard_of(helper: &Process) -> Pid {
    let number = helper.0.id();
    let children = std::fs::read_to_string(format!("/proc/{number}/task/{number}/children")).expect("its children");
    let guards: Vec<_> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    assert_eq!(guards.len(), 1, "{children}");
    Pid::from_raw(guards[0]).expect("a process number")
}

/// The socket of a helper that is killed goes by itself; where its guard is killed, too, the next helper takes its
/// place. Its ring is gone at once, and so the next one has the same address and path.
#[test]
fn a_helper_that_is_killed_leaves_nothing() {
    let Some(pair) = wire() else { return };
    let folder = Folder::new("killed");
    for with_guard in [false, true, false] {
        let mut killed = helper(&pair, &folder.path());
        let mode = std::fs::metadata(folder.path()).expect("its socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        if with_guard {
            let guard = guard_of(&killed);
            kill_process(guard, Signal::KILL).expect("it runs");
        }
        killed.0.kill().expect("it runs");
        killed.0.wait().expect("it was killed");
        let begun = Instant::now();
        while !with_guard && folder.path().exists() {
            assert!(begun.elapsed() < PATIENCE, "its socket is there still");
        }
        assert_eq!(folder.path().exists(), with_guard);
    }
    // At once: whether the guard, or the next helper, removes it.
    for _ in 0..3 {
        drop(helper(&pair, &folder.path()));
    }
    let mut last = helper(&pair, &folder.path());
    let mut tenant = match Process::start(&pair, tenant(&folder.path(), USER, "udp")) {
        Ok(tenant) => tenant,
        Err(error) => return crate::skipped(format_args!("another user cannot run this program: {error}")),
    };
    tenant.says("READY");
    assert!(last.0.wait().expect("it ends").success());
    assert!(!folder.path().exists());
}

#[test]
fn what_cannot_be_leased_is_refused_in_one_line() {
    let Some(pair) = wire() else { return };
    let folder = Folder::new("refused");
    let path = folder.path();
    let path = path.to_str().expect("a path");
    let lease = |address: &str, options: &[&str]| {
        let words = [&["lease", address, "--user", "1", "--at", path][..], options].concat();
        refusal(&within(&pair.near, || program(&words).output()).expect("the program can be started"))
    };
    let here = at("xdp", Pair::NEAR, PORT);
    let _taken = within(&pair.near, || UdpSocket::bind((Pair::NEAR, PORT + 1)).expect("a free port"));
    for (address, options, what) in [
        (here.as_str(), &["--queue", "7"][..], "near has no queue 7: it has 1"),
        (&at("udp", Pair::NEAR, PORT), &[], "cannot be leased"),
        (&at("xdp", Pair::FAR, PORT), &[], "10.73.0.2 is no address of this machine"),
        ("xdp:192.0.2.1:7000", &[], "192.0.2.1 is no address of this machine"),
        ("xdp:127.0.0.1:7000", &[], "loopback"),
        (&at("xdp", Pair::NEAR, PORT + 1), &[], "in use"),
    ] {
        let said = lease(address, options);
        assert!(said.contains(what), "{address}: {said}");
    }
    let waits = helper(&pair, &folder.path());
    let said = lease(&at("xdp", Pair::NEAR, PORT + 2), &[]);
    assert!(said.contains("queue 0 of near is in use"), "{said}");
    drop(waits);

    let mut without = program(&["lease", &here, "--user", "1", "--at", path]);
    match within(&pair.near, || without.uid(USER).gid(USER).output()) {
        Ok(output) => assert!(refusal(&output).contains("CAP_"), "{}", text(&output.stderr)),
        Err(error) => crate::skipped(format_args!("another user cannot run the program: {error}")),
    }
}
