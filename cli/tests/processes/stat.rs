//! `stat` sees what runs.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;

use crate::folder::{Folder, kill, until};

#[test]
fn a_running_endpoint_is_seen_with_its_counters() {
    let folder = Folder::new("stat");
    let server = folder.listening(&["perf", "serve", "--listen", "shm:seen"]);
    let pid = server.pid().to_string();
    let lines = folder.lines(&["stat", "--pid", &pid]);
    assert_eq!((&lines[0]["name"], &lines[0]["pid"]), (&"shm:seen".into(), &server.pid().into()));
    assert_eq!(lines[0]["program"], "cutthrough");

    folder.lines(&["perf", "lat", "--peer", "shm:seen", "--size", "8KiB", "--count", "10"]);
    until("its client is counted and gone", || {
        let line = folder.lines(&["stat", "--pid", &pid]).remove(0);
        line["counters"]["channels_closed"] == 1 && line["channels"] == serde_json::json!([])
    });
}

#[test]
fn a_busy_lane_shows_its_queues() {
    let folder = Folder::new("busy");
    let busy = folder.start(&["perf", "lat", "--size", "8KiB", "--seconds", "60"]);
    let pid = busy.other_end().to_string();
    until("its messages are counted", || {
        let output = folder.run(&["stat", "--json", "--pid", &pid]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut channels = lines.flat_map(|line| line["channels"].as_array().cloned().unwrap_or_default());
        channels.any(|channel| channel["payload_bytes_sent"].as_u64() > Some(8192) && channel["queued"].is_number())
    });
    let text = folder.run(&["stat", "--pid", &pid]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("channel"));
}

#[test]
fn it_watches_until_its_reader_goes_away() {
    let folder = Folder::new("watch");
    let server = folder.listening(&["perf", "serve", "--listen", "shm:watched"]);
    let mut command = folder.program(&["stat", "--watch", "0.01", "--json", "--pid", &server.pid().to_string()]);
    let mut watching = command.stdout(Stdio::piped()).spawn().expect("the program can be started");
    drop(watching.stdout.take());
    assert!(watching.wait().expect("it ends").success());
}

/// That a process ends is what one watches it for.
#[test]
fn it_watches_until_there_is_nothing_to_be_seen_any_more() {
    let folder = Folder::new("watch-end");
    for watched in ["--pid", "--peer"] {
        let server = folder.listening(&["perf", "serve", "--listen", "shm:ends"]);
        let pid = server.pid().to_string();
        let what = if watched == "--pid" { pid.as_str() } else { "shm:ends" };
        let mut command = folder.program(&["stat", "--watch", "0.01", watched, what]);
        let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let mut stdout = BufReader::new(watching.stdout.take().expect("it was asked for"));
        let mut text = String::new();
        stdout.read_line(&mut text).expect("UTF-8");
        assert!(text.starts_with("shm:ends  process "), "{text}");
        kill(server.pid(), Signal::TERM);
        assert_eq!(server.end().0, Some(0));
        stdout.read_to_string(&mut text).expect("UTF-8");
        assert!(watching.wait().expect("it ends").success(), "{watched}");
        assert!(text.trim_end().ends_with(" any more."), "{text}");
    }
}
