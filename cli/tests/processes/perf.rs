//! Every test of `perf`, briefly: lines as the contract says. No figure is judged here.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use serde_json::Value;

use crate::folder::Folder;
use crate::veth::pair;

fn number(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("{field} of {line}"))
}

/// Where a result is held against a limit, its ratio lies between those of the rounds.
fn in_range(line: &Value) {
    if !line["limit"].is_null() {
        let [least, ratio, most] = ["ratio_min", "ratio_to_limit", "ratio_max"].map(|field| number(line, field));
        assert!(least <= ratio && ratio <= most, "{line}");
    }
}

/// What a measurement says if each line has as many copies as it `should`. What its reader comes for late is set aside,
/// a copy more: then it is measured again.
fn in_time(folder: &Folder, words: &[&str], should: impl Fn(&Value) -> Value) -> Vec<Value> {
    let mut late = Vec::new();
    for _ in 0..10 {
        let lines = folder.lines(words);
        if lines.iter().all(|line| line["copies"] == should(line)) {
            return lines;
        }
        late.push(lines);
    }
    panic!("{late:?}");
}

#[test]
fn latency_has_times_and_says_how_payloads_travelled() {
    let folder = Folder::new("lat");
    for (memory, copies) in [("private", 2), ("pool", 1), ("reference", 0)] {
        let is_control = |line: &Value| memory == "private" && line["size"] == 64;
        let words = ["perf", "lat", "--size", "64,8KiB,300000", "--count", "50", "--memory", memory];
        let should = |line: &Value| if is_control(line) { Value::Null } else { copies.into() };
        let lines = in_time(&folder, &words, should);
        assert_eq!(lines.len(), 3);
        for (line, size) in lines.iter().zip([64, 8192, 300_000]) {
            assert_eq!((&line["test"], &line["adapter"]), (&"lat".into(), &"shm".into()));
            assert_eq!(line["policy"], if memory == "reference" { Value::Null } else { "adaptive".into() }, "{line}");
            assert_eq!((&line["size"], &line["count"], &line["rounds"]), (&size.into(), &50.into(), &5.into()));
            in_range(line);
            assert!(
                number(line, "min_ns") <= number(line, "p50_ns") && number(line, "p50_ns") <= number(line, "p999_ns")
            );
            assert_eq!(line["memory"], if is_control(line) { Value::Null } else { memory.into() }, "{line}");
            assert!(line["machine"]["cores"].is_number());
        }
    }
    folder.wait_until_empty();
}

#[test]
fn every_policy_moves_payloads_of_every_length() {
    let folder = Folder::new("policies");
    for policy in ["store-and-forward", "fixed:1000", "fixed:524288", "adaptive:64"] {
        let options =
            ["perf", "lat", "--count", "4", "--warmup", "0", "--size", "97,1000,100001,1MiB", "--policy", policy];
        let lines = in_time(&folder, &options, |_| 2.into());
        assert_eq!(lines.len(), 4, "{policy}");
        assert!(lines.iter().all(|line| line["policy"] == policy), "{lines:?}");
    }
}

/// Two ends that wait for their cores measure the scheduler. Whoever reads the figures is told.
#[test]
fn what_else_has_the_cores_is_told() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let folder = Folder::new("others");
    let over = AtomicBool::new(false);
    let words = ["perf", "lat", "--size", "64", "--seconds", "0.5", "--json"];
    let output = thread::scope(|scope| {
        for core in cutthrough_cli::cpu::allowed() {
            let over = &over;
            scope.spawn(move || {
                cutthrough_cli::cpu::pin(core).expect("an allowed core");
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let output = folder.run(&words);
        over.store(true, Ordering::Relaxed);
        output
    });
    let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    assert!(said.contains("Other work had up to ") && said.contains("say little of messages"), "{said}");
    let line: Value = serde_json::from_slice(&output.stdout).expect("a line");
    let share = number(&line, "others_share");
    assert!(share > 0.1 && share <= 1.0, "{line}");
}

#[test]
fn streams_have_rates() {
    let folder = Folder::new("streams");
    for memory in ["private", "pool", "reference"] {
        for test in ["bw", "rate"] {
            let lines = folder.lines(&["perf", test, "--size", "64,8KiB,1MiB", "--count", "300", "--memory", memory]);
            for line in &lines {
                assert_eq!((&line["test"], &line["count"], &line["rounds"]), (&test.into(), &300.into(), &3.into()));
                in_range(line);
                assert!(number(line, "msgs_per_s") > 0.0 && number(line, "bytes_per_s") > 0.0);
                assert!(line["p50_ns"].is_null());
                assert_eq!(line["policy"].is_null(), memory == "reference", "{line}");
            }
            assert_eq!(lines.len(), 3);
        }
    }
}

#[test]
fn a_sealed_stream_is_held_against_the_cipher_too() {
    let folder = Folder::new("cipher");
    let stream = ["perf", "bw", "--adapter", "udp", "--size", "64,64KiB", "--count", "100"];
    let lines = folder.lines(&[&stream[..], &["--seal"]].concat());
    assert!(lines[0]["cipher"].is_null(), "{}", lines[0]);
    assert!(lines[1]["cipher"].as_str().is_some_and(|limit| limit.starts_with("aead_")), "{}", lines[1]);
    assert!(number(&lines[1], "cipher_ns") > 0.0 && number(&lines[1], "ratio_to_cipher") > 0.0, "{}", lines[1]);
    let plain = folder.lines(&stream);
    assert!(plain.iter().all(|line| line["ratio_to_cipher"].is_null()), "{plain:?}");
    folder.wait_until_empty();
}

#[test]
fn puts_stay_puts_in_a_stream() {
    let folder = Folder::new("puts");
    let lines = folder.lines(&["perf", "bw", "--size", "8,8KiB,1MiB", "--count", "2000", "--memory", "pool"]);
    assert!(lines.iter().all(|line| line["copies"] == 1), "{lines:?}");
}

#[test]
fn fetches_are_whole_operations() {
    let folder = Folder::new("fetch");
    for (memory, copies) in [("private", 2), ("pool", 1), ("reference", 0)] {
        let options = ["perf", "fetch", "--size", "64,4KiB,2MiB", "--count", "40", "--seed", "7", "--memory", memory];
        let lines = in_time(&folder, &options, |_| copies.into());
        assert_eq!(lines.len(), 3);
        for line in &lines {
            assert_eq!((&line["test"], &line["count"]), (&"fetch".into(), &40.into()));
            assert_eq!(line["policy"].is_null(), memory == "reference", "{line}");
            assert!(number(line, "p50_ns") > 0.0);
        }
    }
}

#[test]
fn a_sweep_ends_each_size_with_the_regret() {
    let folder = Folder::new("sweep");
    let lines = folder.lines(&["perf", "sweep", "--size", "64,2KiB", "--seconds", "0.03"]);
    let told: Vec<(&str, u64)> =
        lines.iter().filter_map(|line| Some((line["test"].as_str()?, line["size"].as_u64()?))).collect();
    let of = |size, policies| [[("sweep", size)].repeat(policies), vec![("regret", size)]].concat();
    assert_eq!(told, [of(64, 2), of(2048, 4)].concat());
    assert!(number(&lines[2], "latency_ratio") > 0.0 && number(&lines[2], "bandwidth_ratio") > 0.0);
}

#[test]
fn a_comparison_has_a_ratio_for_every_size() {
    let folder = Folder::new("compare");
    let sides = ["--a", "--policy adaptive", "--b", "--policy store-and-forward"];
    let options = ["perf", "compare", "lat", "--size", "64,8KiB", "--seconds", "0.05"];
    let lines = folder.lines(&[&options[..], &sides].concat());
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!((&line["test"], &line["a"]), (&"compare".into(), &"--policy adaptive".into()));
        assert!(
            number(line, "ratio_lo") <= number(line, "ratio_p50")
                && number(line, "ratio_p50") <= number(line, "ratio_hi")
        );
    }
}

/// What sealing costs, in one run: each side has an other end of its own.
#[test]
fn sealed_messages_are_compared_with_plain_ones() {
    let folder = Folder::new("compare-sealed");
    let compare = |options: &[&str]| {
        folder.lines(
            &[&["perf", "compare", "lat", "--adapter", "udp", "--size", "64", "--count", "31"], options].concat(),
        )
    };
    let sealed = |line: &Value| [&line["a_sealed"], &line["b_sealed"]].map(Value::as_bool);
    for (options, how) in [
        (&["--a", "--seal", "--b", "--insecure"][..], [true, false]),
        (&["--seal", "--a", "--insecure", "--b", ""], [false, true]),
        (&["--seal", "--a", "", "--b", ""], [true, true]),
        (&["--a", "", "--b", "--insecure"], [false, false]),
    ] {
        let lines = compare(options);
        assert_eq!(lines.iter().map(sealed).collect::<Vec<_>>(), [how.map(Some)], "{options:?}");
        assert!(number(&lines[0], "ratio_p50") > 0.0, "{lines:?}");
    }
    folder.refuses(&["perf", "compare", "lat", "--a", "--seal", "--b", ""]);
    folder.wait_until_empty();
}

#[test]
fn sleepers_are_woken_and_idle_endpoints_are_weighed() {
    let folder = Folder::new("wake");
    let lines = folder.lines(&["perf", "wake", "--count", "20"]);
    assert_eq!((&lines[0]["test"], &lines[0]["count"]), (&"wake".into(), &20.into()));
    let lines = folder.lines(&["perf", "wake", "--seconds", "0.1"]);
    assert!(number(&lines[0], "count") >= 10.0, "{}", lines[0]);
    folder.refuses(&["perf", "wake", "--seconds", "1", "--count", "5"]);
    let lines = folder.lines(&["perf", "idle", "--seconds", "0.1", "--channels", "40"]);
    assert_eq!((&lines[0]["test"], &lines[0]["channels"]), (&"idle".into(), &40.into()));
    assert!(number(&lines[0], "endpoint_bytes") > 0.0 && number(&lines[0], "channel_bytes") > 0.0, "{}", lines[0]);
    assert!(number(&lines[0], "latency_ratio") > 0.0 && number(&lines[0], "one_core_round_trips_per_s") > 0.0);
    folder.wait_until_empty();
}

/// Figures of sealed messages and of plain text are not the same: the table says which they are.
#[test]
fn a_table_says_which_way_was_measured() {
    let folder = Folder::new("head");
    let head = |words: &[&str]| {
        let output = folder.run(words);
        let said = String::from_utf8(output.stdout).expect("output is UTF-8");
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let (head, _) = said.split_once("\n\n").expect("a head and a table");
        head.lines().last().expect("a line").to_owned()
    };
    let lat = ["perf", "lat", "--count", "5", "--size", "64"];
    let compare = ["perf", "compare", "lat", "--a", "", "--b", "", "--count", "31", "--size", "64"];
    for test in [
        &lat[..],
        &["perf", "am", "short", "--count", "10"],
        &["perf", "wake", "--count", "5"],
        &["perf", "idle", "--seconds", "0.01", "--channels", "2"],
        &["perf", "sweep", "--size", "64", "--seconds", "0.03"],
        &compare,
    ] {
        assert_eq!(head(test), "shm", "{test:?}");
    }
    for (options, way) in
        [(&["--adapter", "udp"][..], "udp, plain text"), (&["--adapter", "net", "--seal"], "net, sealed")]
    {
        assert_eq!(head(&[&lat, options].concat()), way);
    }
    if pair(1500).is_some() {
        assert_eq!(head(&[&lat[..], &["--veth", "1500"]].concat()), "udp, MTU 1500, plain text");
    }
    folder.wait_until_empty();
}

#[test]
fn what_cannot_be_measured_is_exit_code_2_and_one_line() {
    let folder = Folder::new("refused");
    for words in [
        &["perf", "lat", "--size", "0"][..],
        &["perf", "lat", "--adapter", "xdp"],
        &["perf", "lat", "--peer", "shm:nobody"],
        &["perf", "lat", "--peer", "tcp:host"],
        &["perf", "serve", "--listen", "shm:bad/name"],
        &["perf", "serve", "--listen", "shm:x", "--core", "100000"],
        &["perf", "sweep", "--policy", "adaptive"],
        &["perf", "compare", "lat", "--a", "--size 8", "--b", "--size 8,64"],
        &["stat", "--pid", "999999999"],
        &["stat", "--peer", "shm:nobody"],
    ] {
        folder.refuses(words);
    }
    folder.wait_until_empty();
}

/// Nobody is there; somebody without a key is called; and another release answers.
#[test]
fn a_peer_that_does_not_do_is_said_in_one_line() {
    let folder = Folder::new("peers");
    for test in [&["perf", "lat"][..], &["perf", "rpc"]] {
        let refused = |address: &str, more: &[&str]| {
            folder.refuses(&[test, &["--adapter", "udp", "--peer", address], more].concat())
        };
        let said = refused("udp:127.0.0.1:9", &["--insecure"]);
        assert!(said.contains("nobody answers at udp:127.0.0.1:9"), "{said}");
        assert!(said.contains("see that its interface is up and that no firewall keeps UDP away"), "{said}");
        let said = refused("udp:127.0.0.1:9", &[]);
        assert!(said.contains("--key"), "{said}");

        let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = format!("udp:{}", other.local_addr().expect("its address"));
        thread::scope(|scope| {
            scope.spawn(|| refuse_for_its_version(&other));
            let said = refused(&address, &["--insecure"]);
            let (ours, other) = (cutthrough::FRAME_VERSION, cutthrough::FRAME_VERSION + 1);
            let other = format!("speaks version {other} of the frames, and not {ours}; use the same release on both");
            assert!(said.contains(&other), "{said}");
        });
    }
    folder.wait_until_empty();
}

/// What another release says to a hello: a refusal lies at the same place in every version, and names the call, as the
/// hello's body does.
fn refuse_for_its_version(socket: &UdpSocket) {
    const HEADER: usize = 64;
    let mut asked = [0; 2048];
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    let (_, from) = socket.recv_from(&mut asked).expect("a hello");
    let (version, refuses, for_its_version) = (asked[0] + 1, 4, 1);
    let mut answer = [0; 2 * HEADER];
    (answer[0], answer[1], answer[2]) = (version, refuses, 2);
    answer[4..12].copy_from_slice(&asked[HEADER..HEADER + 8]);
    (answer[HEADER], answer[HEADER + 1]) = (for_its_version, version);
    socket.send_to(&answer, from).expect("sent");
}

/// What there is to do is said once, and can be done: a test without --peer does not tell of it.
#[test]
fn a_refusal_has_one_remedy_that_fits() {
    let folder = Folder::new("remedies");
    for (words, end) in [
        (&["perf", "wake", "--adapter", "xdp"][..], "; give --veth 1500"),
        (&["perf", "idle", "--adapter", "packet"], "; give --veth 1500"),
        (&["perf", "lat", "--adapter", "net", "--net-xdp"], "or --peer with the address of another machine"),
        (&["perf", "lat", "--peer", "shm:nobody"], "start 'cutthrough perf serve --listen shm:nobody'"),
        (&["perf", "lat", "--seal"], "; leave --seal, --key and --insecure away, or use --adapter udp"),
        (&["perf", "lat", "--peer", "shm:x", "--key", "x"], "away, or give an address of udp:HOST:PORT"),
        (&["perf", "serve", "--listen", "shm:x", "--key", "x"], "; leave --key away, or listen at udp:HOST:PORT"),
        (&["perf", "limits", "xdp_fetch"], "rings need an interface; give --veth 1500 or --veth 9000"),
        (&["perf", "lat", "--placement", "copy"], "and this is shm; give --adapter xdp, or leave --placement away"),
        (&["perf", "sweep", "--loss", "1", "--veth", "1500", "--adapter", "net"], "leave --loss away, or --adapter"),
        (&["key", "/dev/null"], "/dev/null exists; name another file, because no key is overwritten"),
        (&["stat", "--pid", "1"], "'cutthrough stat' lists all of them, and as root those of other users too"),
    ] {
        let said = folder.refuses(words);
        assert_eq!(said.matches("; ").count(), 1, "{words:?}: {said}");
        assert!(said.trim_end().ends_with(end), "{words:?}: {said}");
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_said_once() {
    let folder = Folder::new("unusable");
    let mut command = folder.program(&["perf", "lat", "--count", "1"]);
    let output = command.env("CUTTHROUGH_DIR", "/dev/null/folder").output().expect("the program can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("set CUTTHROUGH_DIR"), "{said}");
}

/// The names are the program's own here, and so it is the folder that is too long.
#[test]
fn a_folder_that_is_too_long_for_sockets_is_said_to_be_the_cause() {
    let folder = Folder::new("long-folder");
    let long = std::env::temp_dir().join(format!("{}-{}", "x".repeat(100), std::process::id()));
    for (variable, other) in [("CUTTHROUGH_DIR", "XDG_RUNTIME_DIR"), ("XDG_RUNTIME_DIR", "CUTTHROUGH_DIR")] {
        let mut command = folder.program(&["perf", "lat", "--count", "1", "--size", "64"]);
        // That of a runtime has to be there.
        std::fs::create_dir_all(&long).expect("a folder can be made");
        std::fs::set_permissions(&long, std::fs::Permissions::from_mode(0o700)).expect("its mode");
        let output = command.env_remove(other).env(variable, &long).output().expect("the program can be started");
        std::fs::remove_dir_all(&long).expect("it was made");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{variable}: {said}");
        assert!(said.ends_with("; set CUTTHROUGH_DIR to a folder with a shorter path\n"), "{variable}: {said}");
    }
}
