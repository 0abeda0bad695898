//! Where a veth pair cannot be made: one line that says what is missing, and exit code 2.

use std::process::{Command, Output, Stdio};

use super::pair;
use crate::folder::Folder;

const LIMITS: [&str; 7] = ["perf", "limits", "udp_pingpong", "--seconds", "0.05", "--veth", "1500"];

/// Runs the program by way of another one, such as `setpriv`; none if that one is not there or does not work here.
fn by(words: &[&str], these: &[&str]) -> Option<Output> {
    let run = |program: &str, rest: &[&str]| {
        Command::new(words[0]).args(&words[1..]).arg(program).args(rest).stdin(Stdio::null()).output()
    };
    let works = run("true", &[]).is_ok_and(|output| output.status.success());
    if !works {
        crate::skipped(format_args!("{words:?} does not work here"));
        return None;
    }
    run(env!("CARGO_BIN_EXE_cutthrough"), these).ok()
}

fn refusal(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(output.stdout.is_empty() && said.starts_with("cutthrough: ") && said.contains("; "), "{said}");
    said
}

#[test]
fn a_missing_right_is_named() {
    for (right, named) in [("-sys_admin", "CAP_SYS_ADMIN"), ("-net_admin", "CAP_NET_ADMIN"), ("-all", "CAP_SYS_ADMIN")]
    {
        let words = ["setpriv", "--inh-caps", right, "--bounding-set", right];
        let Some(output) = by(&words, &LIMITS) else { return };
        let said = refusal(&output);
        assert!(said.contains(named) && said.contains("unshare -Ur"), "{right}: {said}");
    }
}

/// The other end is found by a socket: without this, nobody would answer there, whatever is missing here.
#[test]
fn a_right_that_rings_need_is_named_before_anybody_is_called() {
    for (right, address, named) in [
        ("-net_raw", "packet:127.0.0.1:7400", "this process lacks CAP_NET_RAW; run it as root"),
        ("-net_raw", "xdp:127.0.0.1:7400", "this process lacks CAP_NET_RAW; run it as root"),
        ("-all", "xdp:127.0.0.1:7400", "this process lacks CAP_NET_RAW and CAP_NET_ADMIN and CAP_BPF; run it as root"),
    ] {
        let words = ["setpriv", "--inh-caps", right, "--bounding-set", right];
        let Some(output) = by(&words, &["perf", "lat", "--insecure", "--peer", address]) else { return };
        let said = refusal(&output);
        assert!(said.contains(named), "{right} {address}: {said}");
    }
}

#[test]
fn a_user_namespace_gives_the_rights() {
    let Some(output) = by(&["unshare", "-Ur"], &LIMITS) else { return };
    if pair(1500).is_none() {
        // Where even root may not, nobody may.
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("udp_pingpong"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let folder = Folder::new("veth-refused");
    for (words, why) in [
        (&["perf", "limits", "--veth", "1279"][..], "1280"),
        (&["perf", "lat", "--veth", "70000"], "1280..65535"),
        (&["perf", "lat", "--adapter", "shm", "--veth", "1500"], "; leave --veth away, or --adapter"),
        (&["perf", "wake", "--adapter", "shm", "--veth", "1500"], "; leave --veth away, or --adapter"),
        (&["perf", "lat", "--veth", "1500", "--peer", "shm:x"], "--veth"),
        (&["perf", "lat", "--adapter", "shm", "--seal"], "not sealed"),
        (&["perf", "serve", "--listen", "shm:x", "--key", "/dev/null"], "not sealed"),
        (&["perf", "compare", "lat", "--a", "--veth 1500", "--b", ""], "same other end"),
        (&["perf", "serve", "--listen", "shm:x", "--netns", "/proc/1/nothing"], "/proc/1/nothing"),
    ] {
        let said = refusal(&folder.run(words));
        assert!(said.contains(why), "{words:?}: {said}");
    }
}
