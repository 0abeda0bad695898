//! Where programs of AF_XDP run: chosen for both ends, or refused in one line. No figure is judged here.

use super::pair;
use crate::folder::Folder;

/// Whether rings of AF_XDP can be had across a veth pair here; if not, the reason goes where the test's output goes.
pub(crate) fn has_xdp() -> bool {
    if pair(1500).is_none() {
        return false;
    }
    let missing = cutthrough::probe(cutthrough::Adapter::Xdp).into_iter().find_map(|(_, tried)| tried.err());
    missing.map(crate::skipped).is_none()
}

#[test]
fn a_mode_that_cannot_be_honoured_is_refused_in_one_line() {
    let folder = Folder::new("modes-refused");
    let (shm, alone) =
        ("and this is shm; give --adapter xdp, or leave --xdp-mode away", "give --veth 1500, too, or leave");
    for (words, why) in [
        (&["perf", "lat", "--xdp-mode", "native"][..], shm),
        (&["perf", "wake", "--xdp-mode", "auto"], shm),
        (&["perf", "rpc", "--xdp-mode", "generic"], shm),
        (&["perf", "sweep", "--veth", "1500", "--xdp-mode", "native"], "and this is udp; give --adapter xdp"),
        (&["perf", "bw", "--adapter", "net", "--xdp-mode", "native"], "give --net-xdp, too, or leave --xdp-mode away"),
        (&["perf", "lat", "--adapter", "xdp", "--xdp-mode", "native"], "the adapter xdp needs a network interface"),
        (&["perf", "lat", "--xdp-mode", "skb"], "one of auto, generic, native, zero-copy"),
        (&["perf", "idle", "--adapter", "xdp", "--veth", "1500"], "one ring of AF_XDP; give --adapter packet or"),
        (&["perf", "compare", "lat", "--a", "", "--b", "--xdp-mode native"], shm),
        (&["perf", "limits", "--xdp-mode", "native"], alone),
        (&["perf", "limits", "udp_pingpong", "--veth", "1500", "--xdp-mode", "native"], alone),
    ] {
        let said = folder.refuses(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn both_ends_have_rings_in_the_mode_that_is_asked_for() {
    if !has_xdp() {
        return;
    }
    let folder = Folder::new("modes");
    let xdp = ["--adapter", "xdp", "--veth", "1500", "--xdp-mode"];
    let few = ["--size", "64", "--count", "20"];
    for mode in ["generic", "native", "auto"] {
        let chosen = |line: &serde_json::Value| line["xdp_mode"].as_str() == Some(mode).filter(|mode| *mode != "auto");
        for test in ["lat", "bw", "fetch"] {
            let lines = folder.lines(&[&["perf", test], &xdp[..], &[mode], &few].concat());
            assert!(!lines.is_empty() && lines.iter().all(chosen), "{test} {mode}: {lines:?}");
        }
        let words = [&["perf", "limits", "xdp_pingpong", "udp_pingpong", "--seconds", "0.1"], &xdp[2..], &[mode]];
        let lines = folder.lines(&words.concat());
        assert!(lines[0]["p50_ns"].is_number() && chosen(&lines[0]), "{lines:?}");
        assert!(lines[1]["xdp_mode"].is_null(), "{lines:?}");
    }
    let lines =
        folder.lines(&["perf", "wake", "--count", "20", "--adapter", "xdp", "--veth", "1500", "--xdp-mode", "native"]);
    assert!(lines.iter().all(|line| line["xdp_mode"] == "native"), "{lines:?}");
    folder.lines(&[&["perf", "incast", "--senders", "2", "--seconds", "0.1"], &xdp[..], &["native"]].concat());
    // The driver of a veth device has no such rings: of each of these somebody asks it for one.
    let [of_lane, bare] = [&xdp[..], &xdp[2..]].map(|across| [across, &["zero-copy"]].concat());
    for (words, across) in [
        (&["perf", "lat"][..], &of_lane),
        (&["perf", "wake"], &of_lane),
        (&["perf", "incast"], &of_lane),
        (&["perf", "limits", "xdp_pingpong"], &bare),
    ] {
        let said = folder.refuses(&[words, across].concat());
        assert!(said.contains("not supported") && said.contains("; use generic mode"), "{words:?}: {said}");
    }
    let net = ["--adapter", "net", "--net-xdp", "--veth", "1500", "--xdp-mode"];
    let lines = folder.lines(&[&["perf", "lat"], &net[..], &["native"], &few].concat());
    assert_eq!((&lines[0]["xdp_mode"], &lines[0]["net_xdp"]), (&"native".into(), &true.into()));
    let said = folder.refuses(&[&["perf", "lat"], &net[..], &["zero-copy"]].concat());
    assert!(said.contains("the adapter net has no ring of AF_XDP") && said.contains("not supported"), "{said}");
    folder.wait_until_empty();
}
