//! `perf am` and `perf rpc`, briefly: lines as the contract says. No figure is judged here.

use serde_json::Value;

use crate::folder::Folder;
use crate::veth::pair;

fn number(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("{field} of {line}"))
}

/// What the lines say of these fields, each line once.
fn told(lines: &[Value], field: &str) -> Vec<String> {
    lines.iter().map(|line| line[field].to_string().trim_matches('"').to_owned()).collect()
}

#[test]
fn active_messages_have_a_line_for_every_row() {
    let folder = Folder::new("am");
    let lines = folder.lines(&["perf", "am", "--count", "40", "--size", "64KiB,100001"]);
    let rows = ["short", "medium", "store", "store", "rate", "pages_store", "pages_fetch", "pages_raw", "pages_copy"];
    assert_eq!(told(&lines, "what"), rows);
    assert_eq!(told(&lines, "size"), ["64", "4096", "65536", "100001", "16", "16384", "16384", "16384", "16384"]);
    for line in &lines {
        assert_eq!((&line["test"], &line["adapter"]), (&"am".into(), &"shm".into()));
        assert!(line["machine"]["cores"].is_number());
    }
    // Batches of pages are measured five times.
    assert_eq!(told(&lines, "count"), [["40"; 5].as_slice(), &["200"; 4]].concat());
    for line in &lines[..2] {
        assert!(number(line, "min_ns") <= number(line, "p50_ns") && number(line, "p50_ns") <= number(line, "p999_ns"));
        assert!(number(line, "limit_ns") > 0.0 && number(line, "ratio_to_limit") > 0.0, "{line}");
    }
    for line in &lines[2..5] {
        assert!(number(line, "msgs_per_s") > 0.0 && number(line, "bytes_per_s") > 0.0 && line["p50_ns"].is_null());
    }
    for line in &lines[5..] {
        assert!(number(line, "mean_ns") > 0.0 && number(line, "bytes_per_s") > 0.0);
    }
    for line in &lines[5..7] {
        let overhead = number(line, "mean_ns") - number(line, "limit_ns");
        assert_eq!(line["limit"], "pages_raw");
        assert!((number(line, "overhead_ns") - overhead).abs() < 0.11, "{line}");
    }
    folder.wait_until_empty();
}

/// A pool has room for four of these pages: more are out than that now and then, and they are waited for.
#[test]
fn the_longest_pages_are_fetched_by_reference() {
    let folder = Folder::new("long");
    let lines = folder.lines(&["perf", "rpc", "fetch", "am-fetch", "--size", "16MiB", "--seconds", "0.3"]);
    assert_eq!(told(&lines, "what"), ["fetch_put", "fetch_reference", "am_fetch_put", "am_fetch_reference"]);
    assert_eq!(told(&lines, "copies"), ["1", "0", "1", "0"]);
    folder.wait_until_empty();
}

#[test]
fn calls_are_whole_operations_and_fetches_say_how_they_came() {
    let folder = Folder::new("rpc");
    let lines = folder.lines(&["perf", "rpc", "--count", "40", "--size", "64,8KiB", "--seed", "7"]);
    assert_eq!(told(&lines[..6], "what"), ["raw", "tokio", "tasks", "typed", "served", "shared"]);
    for line in [&lines[2], &lines[5]] {
        assert!(number(line, "msgs_per_s") > 0.0 && line["count"] == 40, "{line}");
    }
    let others = ["tasks", "served", "shared"];
    let lines: Vec<_> = lines.into_iter().filter(|line| others.iter().all(|other| line["what"] != *other)).collect();
    let rows = ["raw", "tokio", "typed", "fetch_put", "fetch_put", "fetch_reference", "fetch_reference"];
    assert_eq!(told(&lines[..7], "what"), rows);
    assert_eq!(told(&lines[..7], "copies"), ["null", "null", "null", "1", "1", "0", "0"]);
    assert_eq!(told(&lines[..7], "size"), ["64", "64", "64", "64", "8192", "64", "8192"]);
    let rows = ["am_call", "am_fetch_put", "am_fetch_put", "am_fetch_reference", "am_fetch_reference"];
    assert_eq!(told(&lines[7..], "what"), rows);
    assert_eq!(told(&lines[7..], "copies"), ["null", "1", "1", "0", "0"]);
    assert_eq!(told(&lines[7..], "size"), ["64", "64", "8192", "64", "8192"]);
    for line in &lines {
        assert_eq!((&line["test"], &line["count"]), (&"rpc".into(), &40.into()));
        assert!(number(line, "p50_ns") > 0.0 && number(line, "ratio_to_limit") > 0.0, "{line}");
    }
    folder.wait_until_empty();
}

/// What a table calls a row asks for it, once, with those that are measured beside it.
#[test]
fn a_row_is_asked_for_as_it_is_printed() {
    let folder = Folder::new("rows");
    let rows = |test, rows: &[&str]| {
        let lines = folder.lines(&[&["perf", test], rows, &["--count", "10"]].concat());
        told(&lines, "what")
    };
    let pages = ["pages_store", "pages_fetch", "pages_raw", "pages_copy"];
    assert_eq!(rows("am", &["short", "pages_store", "pages_raw", "pages"]), [&["short"], &pages[..]].concat());
    let fetches = ["am_call", "fetch_put", "fetch_reference", "am_fetch_put", "am_fetch_reference"];
    assert_eq!(rows("rpc", &fetches), fetches);
    folder.wait_until_empty();
}

#[test]
fn an_other_end_started_by_hand_serves_calls_and_outlives_its_clients() {
    let folder = Folder::new("am-serve");
    let _server = folder.listening(&["perf", "serve", "--listen", "shm:calls"]);
    for _ in 0..2 {
        let lines = folder.lines(&["perf", "am", "short", "rate", "--count", "40", "--peer", "shm:calls"]);
        assert_eq!(told(&lines, "what"), ["short", "rate"]);
        let lines = folder.lines(&["perf", "rpc", "typed", "--seconds", "0.05", "--peer", "shm:calls"]);
        assert_eq!(told(&lines, "what"), ["typed"]);
    }
}

#[test]
fn calls_cross_a_wire_plain_and_sealed() {
    let folder = Folder::new("am-udp");
    for (words, sealed) in [(&["--adapter", "udp"][..], false), (&["--adapter", "udp", "--seal"], true)] {
        let few = ["--count", "20"];
        let lines = folder.lines(&[&["perf", "am", "short", "medium", "store", "pages"], words, &few].concat());
        assert_eq!(lines.len(), 8, "{lines:?}");
        let rows = ["perf", "rpc", "raw", "tokio", "typed", "served", "shared", "fetch"];
        let calls = folder.lines(&[&rows[..], words, &few].concat());
        let lines = [lines, calls].concat();
        assert!(lines.iter().all(|line| line["adapter"] == "udp" && line["sealed"] == sealed), "{lines:?}");
    }
    if pair(1500).is_none() {
        return;
    }
    let across = ["--count", "20", "--veth", "1500"];
    let calls = folder.lines(&[&["perf", "rpc", "raw", "typed", "fetch"], &across[..]].concat());
    let messages = folder.lines(&[&["perf", "am", "short"], &across[..]].concat());
    assert_eq!((calls.len(), messages.len()), (4, 1), "{calls:?} {messages:?}");
    assert!(calls.iter().chain(&messages).all(|line| line["veth"] == 1500), "{calls:?} {messages:?}");
    folder.wait_until_empty();
}

#[test]
fn what_cannot_be_measured_of_calls_is_exit_code_2_and_one_line() {
    let folder = Folder::new("am-refused");
    for words in [
        &["perf", "am", "--size", "0"][..],
        &["perf", "am", "tall"],
        &["perf", "am", "--memory", "pool"],
        &["perf", "rpc", "--size", "0"],
        &["perf", "rpc", "--adapter", "xdp"],
        &["perf", "rpc", "--seal"],
        &["perf", "am", "--peer", "shm:nobody"],
        &["perf", "am", "--count", "1", "--seconds", "1"],
    ] {
        folder.refuses(words);
    }
    folder.wait_until_empty();
}
