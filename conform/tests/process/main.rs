//! Processes that die, stop, are in each other's way, or have too little of everything.
//!
//! Each test starts this program again as its other side: the test `other_side` does nothing unless it is told to.

#[path = "../child/mod.rs"]
mod child;
mod container;
mod deaf;
mod forks;
mod limits;
mod names;
mod network;
mod rings;
mod signals;
mod slow;

#[test]
fn other_side() {
    child::run(|part, address, say| match part {
        "echo" | "echo-sealed" => container::echo(part, address, say),
        "few-files" => limits::few_files(address, say),
        "no-file-for-a-caller" => limits::no_file_for_a_caller(address, say),
        "fork" => forks::fork(address, say),
        "fork-sends" => forks::fork_sends(address, say),
        "fork-calls" => forks::fork_calls(address, say),
        "fork-closes" => forks::fork_closes(address, say),
        "fork-crowded" => forks::fork_crowded(address, say),
        "goes" => slow::goes(address, say),
        "takes-late" => slow::takes_late(address, say),
        part if part.starts_with("goes-on") => slow::goes_on_after_stops(part, address, say),
        "interrupted" => signals::interrupted(address, say),
        "little-memory" => limits::little_memory(address, say),
        "little-memory-for-what-lies-aside" => limits::little_memory_for_what_lies_aside(say),
        "little-memory-for-a-payload" => limits::little_memory_for_a_payload(address, say),
        "small-files" => limits::small_files(address, say),
        other => panic!("no such part: {other}"),
    });
}
