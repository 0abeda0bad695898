//! However a process ends, the other one ends too, and no name is left.

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
