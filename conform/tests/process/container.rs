//! Two processes in a container that has nothing to give: no capability, no write access but to one folder, no
//! `/dev/shm`, hardly any memory that may be locked. All that needs no privileges works there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cutthrough::{
    Adapter, CloseReason, Config, Endpoint, Event, Keys, Landing, ListenError, Payload, Receipt, SendError, SharedKey,
    Token, UdpAddressError,
};
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::Side;
use rustix::process::{Resource, getrlimit};

use crate::child::{Folder, Other, PATIENCE, config};

/// Payloads that go there and come back.
const SIZES: [usize; 6] = [64, 1000, 4096, 10_000, 64 << 10, 1 << 20];
/// Who runs there: no user of any name.
const USER: u32 = 65534;
/// What may be locked there, in KiB.
const LOCKED_KIB: u64 = 64;

/// Makes the container, and runs what it is given there: a tree of its own in `$ROOT`, of which nothing can be written
/// but `/tmp`; `$DROP` gives all rights up, for good.
const MAKE: &str = r#"
set -e
ip link set lo up
ip link add eth0 type veth peer eth1
ip addr add 10.73.3.1/30 dev eth0
ip link set eth0 up
ip link set eth1 up
mount -t tmpfs -o mode=755 tmpfs "$ROOT"
cd "$ROOT"
mkdir dev old proc tmp
for folder in usr bin sbin lib lib32 lib64; do
    if [ -L "/$folder" ]; then cp -P "/$folder" "$folder"
    elif [ -d "/$folder" ]; then mkdir "$folder" && mount --rbind "/$folder" "$folder"
    fi
done
touch test dev/null && mount --bind "$TEST" test && mount --bind /dev/null dev/null
mount -t tmpfs -o mode=1777,nosuid,nodev,noexec tmpfs tmp
mount -t proc proc proc
pivot_root . old
cd /
umount -l old && rmdir old
mount -o remount,bind,ro /
ulimit -l "$LOCKED"
exec $DROP --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs "$@"
"#;

/// What that takes of rights, the kernel, and programs. Where anything of it is not to be had, there is no container;
/// what else goes wrong is for us to mend.
const NEEDS: &str = r#"
set -e
ip link add eth0 type veth peer eth1
mount -t tmpfs -o mode=755 tmpfs "$ROOT"
cd "$ROOT"
mkdir bind proc
mount --bind bind bind
mount -t proc proc proc
exec $DROP --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs true
"#;

/// The rights that make a container, and how they are given up: those of root, and those of anybody over name spaces
/// of his own.
const WAYS: [(&[&str], &str); 2] = [
    (&[], "setpriv --reuid=65534 --regid=65534 --clear-groups"),
    (&["-U", "-r"], "unshare -U --map-user=65534 --map-group=65534 --keep-caps setpriv"),
];

/// Runs a script where it may do as it likes, with these words.
fn within((rights, drop): (&[&str], &str), root: &Path, script: &str, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(rights).args(["-m", "-n", "-p", "-i", "--fork", "--kill-child", "sh", "-c", script, "sh"]);
    command.args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("RUST_BACKTRACE", "0");
    command.env("ROOT", root).env("DROP", drop).env("LOCKED", LOCKED_KIB.to_string());
    command.env("TEST", std::env::current_exe().expect("this program")).stdin(Stdio::null());
    command
}

#[test]
fn who_has_no_rights_has_all_that_needs_none() {
    let folder = Folder::new();
    let mut lacks = String::new();
    let way = WAYS.into_iter().find(|way| {
        let tried = within(*way, folder.path(), NEEDS, &[]).output();
        let said = tried.map(|tried| (!tried.status.success()).then(|| String::from_utf8_lossy(&tried.stderr).into()));
        let why: Option<String> = said.unwrap_or_else(|error| Some(format!("unshare: {error}")));
        lacks = why.clone().unwrap_or_default();
        why.is_none()
    });
    let Some(way) = way else {
        let why = lacks.lines().next().unwrap_or("it says nothing");
        return cutthrough_conform::skipped(format_args!(
            "no container; it needs root or 'unshare -Ur', ip, mount, and setpriv: {why}"
        ));
    };
    let words = ["/test", "--exact", "container::inside", "--ignored", "--nocapture", "--test-threads=1"];
    let ran = within(way, folder.path(), MAKE, &words).output().expect("it ran before");
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(ran.status.success() && said[0].contains("1 passed"), "{}\n{}", said[0], said[1]);
}

#[test]
#[ignore = "a part of who_has_no_rights_has_all_that_needs_none"]
fn inside() {
    nothing_is_allowed();
    for (part, address) in [
        ("echo", "shm:name"),
        ("echo", "shm:/tmp/name.sock"),
        ("echo", "udp:127.0.0.1:7000"),
        ("echo-sealed", "udp:127.0.0.1:7001"),
        ("echo-sealed", "udp:[::1]:7002"),
        ("echo-sealed", "net:127.0.0.1:7003"),
    ] {
        let mut other = Other::ready(part, address);
        let mut endpoint = Endpoint::open(settings(part)).expect("an endpoint");
        let channel = endpoint.connect(address, PATIENCE).expect(address);
        let mut here = Side { endpoint, channel };
        for (number, len) in (0..).zip(SIZES) {
            for token in [false, true] {
                let receipt = to_and_fro(&mut here, number, len, token);
                let by = if address.starts_with("shm") { Adapter::Shm } else { Adapter::Udp };
                assert_eq!(receipt.adapter, by, "{address}");
                assert_eq!(receipt.sealed, part == "echo-sealed", "{address}");
            }
        }
        here.endpoint.close(here.channel);
        assert_eq!(other.says(), "closed");
    }
    // What needs rights, or a newer kernel, says so.
    for scheme in ["packet", "xdp"] {
        let listened = Endpoint::open(config()).expect("an endpoint").listen(&format!("{scheme}:10.73.3.1:7004"));
        let error = listened.expect_err("a ring without rights");
        assert!(matches!(error, ListenError::Net(UdpAddressError::Way { .. })), "{error:?}");
        assert!(["CAP_", "Linux", "not supported"].iter().any(|why| error.to_string().contains(why)), "{error}");
    }
}

/// This process has no rights, and cannot get any.
fn nothing_is_allowed() {
    let status = std::fs::read_to_string("/proc/self/status").expect("what this process is");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("a line of it").split_whitespace().next().expect("a word").to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(of(set), "0000000000000000", "{set}");
    }
    assert_eq!((of("NoNewPrivs"), of("Uid"), of("Gid")), ("1".into(), USER.to_string(), USER.to_string()));
    let locked = getrlimit(Resource::Memlock);
    assert!(locked.maximum.is_some_and(|most| most <= LOCKED_KIB << 10), "{locked:?}");
    assert!(!Path::new("/dev/shm").exists());
    for path in ["/file", "/usr/file", "/proc/file"] {
        std::fs::write(path, "").expect_err(path);
    }
}

fn settings(part: &str) -> Config {
    let keys = || Arc::new(Keys::Shared(SharedKey::from_bytes([42; 32])));
    let keys = (part == "echo-sealed").then(keys);
    Config { insecure: keys.is_none(), keys, ..config() }
}

/// Sends one payload, and checks what comes back, where a token may have named a place for it.
fn to_and_fro(here: &mut Side, number: u64, len: usize, token: bool) -> Receipt {
    let token = token.then(|| here.endpoint.grant(here.channel, Landing::Pages(len)).expect("a token"));
    here.send_copy(&token.map_or(Vec::new(), |token| token.to_bytes().to_vec()), &pattern(number, len), None);
    let mut message = here.message();
    if let (Some(_), Payload::Landed(landed)) = (token, message.payload()) {
        check(number, &landed.to_vec());
        return message.receipt();
    }
    assert!(token.is_none(), "{message:?}");
    here.read_checked(&mut message, number)
}

/// The part that sends back what comes, to the place that the message names, until the channel ends.
pub(crate) fn echo(part: &str, address: &str, say: fn(&str)) {
    nothing_is_allowed();
    let mut endpoint = Endpoint::open(settings(part)).expect("an endpoint");
    endpoint.listen(address).expect(address);
    say("ready");
    loop {
        match endpoint.wait(Some(PATIENCE)).expect("an event") {
            Event::Message(mut message) => {
                let channel = message.channel();
                let token = message.control().try_into().ok().map(Token::from_bytes);
                let mut bytes = vec![0; message.payload_len()];
                endpoint.read(&mut message, &mut bytes).expect("a payload");
                let reply = endpoint.outgoing(channel).expect("room").attach_copy(&bytes);
                let reply = if let Some(token) = token { reply.to(token) } else { reply };
                // Who has the last of it may have closed the channel before this side has seen that all has gone.
                if let Err(error) = reply.send() {
                    assert_eq!(error, SendError::Closed(CloseReason::Peer));
                    return say("closed");
                }
            }
            Event::Closed(..) => return say("closed"),
            _ => {}
        }
    }
}
