//! The example that measures the simulator runs, and says all that it promises.

use std::process::{Command, Stdio};

#[test]
fn the_simulator_is_measured() {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the build").join("examples");
    let program = folder.join("speed");
    // A run of this test alone does not build it.
    assert!(program.exists(), "{} is not built; run 'cargo test -p cutthrough-sim'", program.display());
    let output = Command::new(program).args(["1", "1000"]).stdin(Stdio::null()).output().expect("the example");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("text");
    let cases =
        ["burst of ", "incast, 16 ", "incast, 1,024 ", "all to all, 16 ", "all to all, 128 ", "all to all, 1,024 "];
    assert_eq!(said.lines().count(), cases.len(), "{said}");
    for (line, case) in said.lines().zip(cases) {
        let events = line.split_once(": ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(line.starts_with(case) && events.is_some_and(|events| events > 0), "{line}");
        assert!(line.contains(" million/s, "), "{line}");
    }
}
