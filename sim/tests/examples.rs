//! The examples run, and say all that they promise.

use std::process::{Command, Stdio};

/// What an example says.
fn said(name: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the build").join("examples");
    let program = folder.join(name);
    // A run of this test alone does not build it.
    assert!(program.exists(), "{} is not built; run 'cargo test -p cutthrough-sim'", program.display());
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("the example");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_simulator_is_measured() {
    let said = said("speed", &["1", "1000"]);
    let cases =
        ["burst of ", "incast, 16 ", "incast, 1,024 ", "all to all, 16 ", "all to all, 128 ", "all to all, 1,024 "];
    assert_eq!(said.lines().count(), cases.len(), "{said}");
    for (line, case) in said.lines().zip(cases) {
        let events = line.split_once(": ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(line.starts_with(case) && events.is_some_and(|events| events > 0), "{line}");
        assert!(line.contains(" million/s, "), "{line}");
    }
}

/// Three cases with three sizes of a socket, and four numbers of payloads that are asked for; the same in each run.
#[test]
fn numbers_of_open_grants_are_compared() {
    let said_once = said("grants", &["50"]);
    assert_eq!(said_once.lines().count(), 3 * 3 * 4, "{said_once}");
    for (line, admitted) in said_once.lines().zip([1, 2, 4, 8].into_iter().cycle()) {
        assert!(line.contains(&format!("; {admitted} asked for: all in ")) && line.ends_with(" dropped"), "{line}");
    }
    assert_eq!(said_once, said("grants", &["50"]));
}
