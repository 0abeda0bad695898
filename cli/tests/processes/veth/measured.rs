//! What is measured across a veth pair: lines as the contract says. No figure is judged here.

use serde_json::Value;

use super::modes::has_xdp;
use super::pair;
use crate::folder::Folder;

#[test]
fn limits_across_a_veth_pair_say_so() {
    if pair(1500).is_none() {
        return;
    }
    let folder = Folder::new("veth-limits");
    let measured = |mtu: u32, asked: &[&str]| {
        let lines =
            folder.lines(&[&["perf", "limits"], asked, &["--veth", &mtu.to_string(), "--seconds", "0.1"]].concat());
        let shown = |line: &Value| line["test"] == "limits" && line["veth"] == mtu;
        assert!(lines.iter().all(shown), "{lines:?}");
        lines
    };
    let lines = measured(1500, &[]);
    let of = |limit: &str| lines.iter().filter(|line| line["limit"] == limit).collect::<Vec<_>>();
    assert_eq!(lines.len(), 23, "{lines:?}");
    for limit in ["udp_pingpong", "udp_pingpong_sleeping", "udp_wake_rested", "tcp_pingpong"] {
        assert!(of(limit).iter().all(|line| line["p50_ns"].is_number() && line["size"] == 64), "{lines:?}");
    }
    for limit in ["tcp_oneway", "udp_gso_oneway", "udp_gso_oneway_header64"] {
        let sizes: Vec<_> = of(limit).iter().filter_map(|line| line["size"].as_u64()).collect();
        assert_eq!(sizes, [8 << 10, 64 << 10, 1 << 20]);
        assert!(of(limit).iter().all(|line| line["p50_ns"].is_number()), "{lines:?}");
    }
    for limit in
        ["packet_pingpong", "packet_fetch", "packet_wake_rested", "xdp_pingpong", "xdp_fetch", "xdp_wake_rested"]
    {
        let shown = |line: &&Value| line["p50_ns"].is_number() || line["unavailable"].is_string();
        assert!(of(limit).len() == 1 && of(limit).iter().all(shown), "{lines:?}");
    }
    for limit in ["tcp_stream", "udp_gso_stream"] {
        assert!(of(limit).iter().all(|line| line["bytes_per_s"].is_number()), "{lines:?}");
    }
    // How long a frame may be, and so a train, is another question for each wire.
    for mtu in [1280, 9000, 65_535] {
        let lines = measured(mtu, &["udp_gso_oneway", "udp_gso_oneway_header64", "udp_gso_stream", "xdp_pingpong"]);
        let shown = |line: &Value| ["p50_ns", "bytes_per_s", "unavailable"].iter().any(|field| !line[field].is_null());
        assert!(lines.len() == 8 && lines.iter().all(shown), "{lines:?}");
    }
}

#[test]
fn the_same_limits_can_be_asked_for_on_loopback() {
    let folder = Folder::new("loopback-limits");
    // What cannot be measured is told, and where that is all, nothing was done.
    let refused = folder.refuses(&["perf", "limits", "packet_pingpong"]);
    assert!(refused.starts_with("cutthrough: packet_pingpong: rings need an interface; give --veth 1500"), "{refused}");
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return crate::skipped("one core cannot show these limits");
    }
    let limits = ["tcp_oneway", "udp_gso_oneway", "udp_gso_stream", "udp_pingpong_sleeping"];
    let options = ["--size", "1,3000,100001", "--seconds", "0.05"];
    let lines = folder.lines(&[&["perf", "limits"], &limits[..], &options].concat());
    assert_eq!(lines.len(), 3 + 3 + 2);
    let measured = |line: &serde_json::Value| line["p50_ns"].is_number() || line["bytes_per_s"].is_number();
    assert!(lines.iter().all(|line| measured(line) || line["unavailable"].is_string()), "{lines:?}");
    assert!(lines.iter().all(|line| line["veth"].is_null()), "{lines:?}");
}

#[test]
fn both_ends_of_a_measurement_are_apart() {
    if pair(1500).is_none() {
        return;
    }
    let folder = Folder::new("veth-ends");
    let across = ["--veth", "1500"];
    let few = ["--size", "64,4KiB", "--count", "20"];
    for test in ["lat", "bw", "rate", "fetch", "sweep"] {
        let lines = folder.lines(&[&["perf", test], &across[..], &few].concat());
        let perf = || lines.iter().filter(|line| line["test"] == test);
        assert!(perf().count() > 0 && perf().all(|line| line["veth"] == 1500 && line["adapter"] == "udp"), "{lines:?}");
        assert!(perf().all(|line| line["sealed"] == false), "{lines:?}");
    }
    for words in [&["perf", "wake", "--count", "10"][..], &["perf", "idle", "--seconds", "0.1", "--channels", "10"]] {
        let lines = folder.lines(&[words, &across].concat());
        assert_eq!((&lines[0]["veth"], &lines[0]["adapter"]), (&1500.into(), &"udp".into()));
    }
    let woken = |adapter: &str| {
        let words = ["perf", "wake", "--count", "20", "--adapter", adapter];
        let lines = folder.lines(&[&words, &across[..]].concat());
        lines.iter().filter_map(|line| Some(line["limit"].as_str()?.to_owned())).collect::<Vec<_>>()
    };
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        // Beside the futexes what its receiver sleeps on.
        assert_eq!(woken("udp"), ["futex_wake", "futex_wake_rested", "udp_wake_rested"]);
        assert_eq!(woken("packet"), ["futex_wake", "futex_wake_rested", "packet_wake_rested"]);
        if has_xdp() {
            assert_eq!(woken("xdp"), ["futex_wake", "futex_wake_rested", "xdp_wake_rested"]);
        }
    }
    let sides = ["--a", "--policy adaptive", "--b", "--policy store-and-forward", "--size", "64"];
    let compared = folder.lines(&[&["perf", "compare", "lat"], &across[..], &sides, &["--seconds", "0.05"]].concat());
    assert!(compared[0]["ratio_p50"].is_number());
    folder.wait_until_empty();
}

#[test]
fn the_adapter_net_can_have_another_ring() {
    if !has_xdp() {
        return;
    }
    let folder = Folder::new("veth-net-xdp");
    let across = ["--adapter", "net", "--veth", "1500"];
    let few = ["--size", "64,64KiB", "--count", "20"];
    let ring = &["--net-xdp"][..];
    for (test, asked, shown) in [("lat", ring, true.into()), ("bw", ring, true.into()), ("lat", &[], Value::Null)] {
        let lines = folder.lines(&[&["perf", test], &across[..], &few, asked].concat());
        let perf = || lines.iter().filter(|line| line["test"] == test);
        assert!(perf().count() > 0 && perf().all(|line| line["net_xdp"] == shown), "{lines:?}");
    }
    let sides = ["--a", "--net-xdp", "--b", "", "--size", "64", "--seconds", "0.05"];
    let compared = folder.lines(&[&["perf", "compare", "lat"], &across[..], &sides].concat());
    assert!(compared[0]["ratio_p50"].is_number());
    let idle = ["perf", "idle", "--adapter", "net", "--net-xdp", "--veth", "1500"];
    for (words, why) in
        [(&["perf", "lat", "--veth", "1500", "--net-xdp"][..], "give --adapter net"), (&idle, "leave --net-xdp away")]
    {
        let output = folder.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    folder.wait_until_empty();
}
