//! A server that is killed: every call ends, and the next server of that name is found at once.

#![cfg(target_os = "linux")]

mod two;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use cutthrough::am::{CallError, Ended, Event, Settings};
use cutthrough::{CloseReason, Config, Landing};
use two::{Over, PATIENCE};

/// A server that ends when this is dropped, and its output, for a server without one ends by itself.
struct Killed(Child, #[allow(dead_code, reason = "kept open")] BufReader<ChildStdout>);

impl Drop for Killed {
    fn drop(&mut self) {
        // The signal that nobody can catch.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The example `echo`, serving at this address.
fn server(address: &str) -> Killed {
    let test = std::env::current_exe().expect("the path of this test");
    let program = test.ancestors().nth(2).expect("the folder of the build").join("examples/echo");
    assert!(program.exists(), "{} is not built; run 'cargo test -p cutthrough'", program.display());
    let mut child = Command::new(program).args(["serve", address]).stdout(Stdio::piped()).spawn().expect("the server");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    assert!(line.starts_with("echoing"), "{line}");
    Killed(child, output)
}

#[test]
fn every_call_to_a_killed_server_ends() {
    let address = format!("shm:cutthrough-am-death-{}", std::process::id());
    let mut node = Over::node(Config::default(), Settings::default());
    for round in 0..3 {
        let child = server(&address);
        let channel = node.connect(&address, PATIENCE).expect("a channel");
        assert_eq!(node.call(channel, 1, &[round, 2], PATIENCE).expect("a reply").word(0), round);
        let mut asked = 0;
        while node.request(channel, 1, &[asked, 0]).is_ok() {
            asked += 1;
        }
        drop(child);
        let (mut ended, mut closed) = (0, false);
        while !closed {
            match node.wait(Some(PATIENCE)).expect("an event in time") {
                Event::Replied(reply) => {
                    assert_eq!(reply.word(0), ended);
                    ended += 1;
                }
                Event::Failed(failed) => {
                    assert_eq!(failed.error, CallError::Closed(Ended::Closed(CloseReason::Died)));
                    ended += 1;
                }
                Event::Closed(its, _) => closed = its == channel,
                _ => {}
            }
        }
        assert_eq!(ended, asked);
    }
}

/// A place that a request has named for its reply comes back with the news that there will be none.
#[test]
fn places_come_back_from_a_killed_server() {
    let address = format!("shm:cutthrough-am-places-{}", std::process::id());
    let mut node = Over::node(Config::default(), Settings::default());
    let child = server(&address);
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    let stopped = Command::new("kill").args(["-STOP", &child.0.id().to_string()]).status().expect("kill");
    assert!(stopped.success());
    let place = |byte| Landing::Buffer(vec![byte; 5000]);
    for byte in 0..3 {
        node.ask(channel, 1).args(&[byte; 8]).reply_into(place(byte)).send().expect("a request");
    }
    drop(child);
    for byte in 0..3 {
        match node.wait(Some(PATIENCE)).expect("an event in time") {
            Event::Failed(failed) => assert_eq!(failed.landing, Some(place(byte))),
            other => panic!("{other:?}"),
        }
    }
}
