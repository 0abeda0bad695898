//! `cutthrough run`: what ranks say where it cannot be written, where nobody reads it, and where it has no end.

use std::fs::File;
use std::process::Command;

use crate::folder::{Folder, Running};

#[test]
fn output_that_cannot_be_written_is_told() {
    let folder = Folder::new("said-full");
    // The rank is still there when that is found, or has ended well.
    for script in ["echo hello; sleep 600", "echo hello"] {
        for options in [&["run"][..], &["--json", "run"]] {
            let mut command = folder.program(&[options, &["--", "sh", "-c", script]].concat());
            let full = File::options().write(true).open("/dev/full").expect("the device that is always full");
            let (code, said) = Running::of(command.stdout(full)).end();
            assert_eq!(code, Some(2), "{script}: {said}");
            let told = "cutthrough: cannot write the output: No space left on device (os error 28); check where \
                        standard output goes\n";
            assert_eq!(said, told, "{script}");
        }
    }
}

#[test]
fn too_little_memory_for_threads_is_said_to_be_the_cause() {
    let folder = Folder::new("said-threads");
    let mut shell = Command::new("sh");
    let script = "ulimit -v 200000; exec \"$0\" run -n 100 -- sleep 5";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_cutthrough")]);
    let output = folder.told(&mut shell).output().expect("a shell can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let [told] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(told.starts_with("cutthrough: the ranks cannot be started: ") && told.contains("memory"), "{said}");
}
