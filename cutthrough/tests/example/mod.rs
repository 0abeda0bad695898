//! Programs that cargo has built beside these tests.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

/// An example that cargo has built beside this test; a run of this test alone does not build them.
pub(crate) fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the build").join("examples");
    let program = folder.join(name);
    assert!(program.exists(), "{} is not built; run 'cargo test -p cutthrough'", program.display());
    Command::new(program)
}

/// Makes a key file that nobody else can read.
pub(crate) fn make_key(path: &Path) {
    use std::io::Write as _;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    writeln!(file.expect("the key file"), "psk: {}", "5a".repeat(32)).expect("its line");
}
