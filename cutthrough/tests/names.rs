//! A server that is called by its name, where names are looked up for as long as this test likes: in namespaces of its
//! own, which need root (or `unshare -Ur`) and the programs `unshare`, `mount` and `ip`.

#![cfg(target_os = "linux")]

mod two;

use std::io::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, RequestError, Service, Settings};
use cutthrough::rpc::{self, Client, Method};
use two::{Over, PATIENCE, Server, small};

const DOUBLE: Method<u64, u64> = Method::new(1);
const ECHO: u16 = 2;
const NAME: &str = "server.test";
/// Says to the test that it runs in namespaces of its own, and where the file is that names are looked up in first.
const INSIDE: &str = "CUTTHROUGH_TEST_NAMES";
const WITHOUT: &str = "127.0.0.1 localhost\n";
/// It has two addresses. Who has a socket of IPv4 calls it by the second one.
const WITH: &str = "127.0.0.1 localhost\n::1 server.test\n127.0.0.1 server.test\n";

#[test]
fn who_looks_a_name_up_holds_nobody_up() {
    match std::env::var_os(INSIDE) {
        Some(hosts) => inside(&PathBuf::from(hosts)),
        None => outside(),
    }
}

/// Runs this test again where it may answer for names itself.
fn outside() {
    let folder = std::env::temp_dir().join(format!("cutthrough-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, WITH).expect("a file");
    std::fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:3 attempts:1\n").expect("a file");
    std::fs::write(folder.join("nsswitch.conf"), "hosts: files dns\n").expect("a file");
    let within = |rights: &[&str], what: &str| {
        let names = "for name in hosts resolv.conf nsswitch.conf; do mount --bind $name /etc/$name || exit 1; done";
        let script = format!("ip link set lo up && {names} && {what}");
        let mut command = Command::new("unshare");
        command.args(rights).args(["-m", "-n", "sh", "-c", &script]).current_dir(&folder).env(INSIDE, &hosts);
        command.env("TEST", std::env::current_exe().expect("the path of this test"));
        command
    };
    let may = |rights: &&&[&str]| within(rights, "true").output().is_ok_and(|output| output.status.success());
    let rights = [&[][..], &["-U", "-r"]];
    let ran = rights.iter().find(may).map(|rights| {
        within(rights, "exec \"$TEST\" --exact who_looks_a_name_up_holds_nobody_up --nocapture").status()
    });
    let _ = std::fs::remove_dir_all(&folder);
    match ran {
        Some(status) => assert!(status.expect("it was run").success()),
        // Also if the test passes.
        None => {
            let why =
                "SKIPPED who_looks_a_name_up_holds_nobody_up: no namespaces; it needs root, unshare, mount and ip";
            let _ = writeln!(std::io::stderr(), "{why}");
        }
    }
}

fn inside(hosts: &Path) {
    let asked = UdpSocket::bind("127.0.0.1:53").expect("the port of names");
    asked.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let (mut node, address) = Over::Udp.listening(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    let server = Server::run(node, address.clone());
    // Who calls by a name serves others.
    let (mut node, own) = Over::Udp.listening(small(), Settings::default());
    node.short(ECHO, Args::Words(1), |request| {
        let word = request.word(0);
        request.reply(&[word]);
    });
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let client = Client::connect(service, &address.replace("127.0.0.1", NAME), PATIENCE).expect("a channel");
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
    let mut other = Over::node(small(), Settings::default());
    let channel = other.connect(&own, PATIENCE).expect("a channel");
    std::fs::write(hosts, WITHOUT).expect("a file");
    drop(server.end());
    std::thread::scope(|scope| {
        // Nobody waits for these, and drives the node meanwhile.
        let begun = Instant::now();
        while client.call_then(DOUBLE, &5, |_| ()) != Err(RequestError::Closed) {
            assert!(begun.elapsed() < PATIENCE, "it does not hear of the end");
        }
        let mut question = [0; 512];
        asked.recv_from(&mut question).expect("a question");
        for word in 0..100 {
            let reply = other.call(channel, ECHO, &[word], Duration::from_secs(1)).expect("a reply while it is asked");
            assert_eq!(reply.word(0), word);
        }
        // There is no such name any more, and that is said at once.
        let its = client.within(PATIENCE);
        let calling = scope.spawn(move || its.call(DOUBLE.idempotent(), &5));
        asked.set_read_timeout(Some(Duration::from_millis(10))).expect("a socket");
        while asked.recv_from(&mut question).is_ok() {}
        let (begun, mut since, mut answered) = (Instant::now(), None, 0);
        while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(1)) {
            assert!(begun.elapsed() < PATIENCE, "nobody asks again");
            let Ok((len, from)) = asked.recv_from(&mut question) else { continue };
            question[2..4].copy_from_slice(&[0x81, 0x83]);
            asked.send_to(&question[..len], from).expect("an answer");
            since = since.or(Some(Instant::now()));
            answered += 1;
        }
        assert!(answered < 100, "asked {answered} times in a second");
        // It comes again.
        let mut node = Over::node(small(), Settings::default());
        rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
        let begun = Instant::now();
        while node.listen(&address).is_err() {
            assert!(begun.elapsed() < PATIENCE, "its address is not free");
        }
        let _server = Server::run(node, address);
        std::fs::write(hosts, WITH).expect("a file");
        assert_eq!(calling.join().expect("no panic"), Ok(10));
    });
}
