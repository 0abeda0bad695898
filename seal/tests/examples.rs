//! The example that measures the ciphers runs, and says all that it promises.

use std::process::{Command, Stdio};

#[test]
fn the_ciphers_are_measured() {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the build").join("examples");
    let program = folder.join("ciphers");
    // A run of this test alone does not build it.
    assert!(program.exists(), "{} is not built; run 'cargo test -p cutthrough-seal'", program.display());
    let output = Command::new(program).arg("1").stdin(Stdio::null()).output().expect("the example");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.starts_with("fast here: "), "{said}");
    for len in ["0", "64", "1408", "8904", "65536"] {
        let rows = said.lines().filter(|line| line.split_whitespace().next() == Some(len) && line.ends_with(')'));
        assert_eq!(rows.count(), 2, "{len} bytes, by two ciphers: {said}");
    }
    assert_eq!(said.matches(" of the epoch before ").count(), 2, "{said}");
    assert!(said.lines().last().is_some_and(|line| line.starts_with("to begin costs ")), "{said}");
}
