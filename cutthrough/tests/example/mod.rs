//! Programs that cargo has built beside these tests.

use std::process::Command;

/// An example that cargo has built beside this test; a run of this test alone does not build them.
pub(crate) fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the build").join("examples");
    let program = folder.join(name);
    assert!(program.exists(), "{} is not built; run 'cargo test -p cutthrough'", program.display());
    Command::new(program)
}
