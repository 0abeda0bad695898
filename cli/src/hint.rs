//! How a command of this program is written for somebody who shall type it.

use std::ffi::OsStr;
use std::path::Path;

/// What cargo runs of this project, as whoever has read of it there does.
const BY_CARGO: &str = "cargo run --release --";

/// The program's own name.
const NAME: &str = "cutthrough";

/// This program with these words, as they can be typed where it was started: by cargo if cargo has started it.
#[must_use]
pub fn command(words: &str) -> String {
    let package = std::env::var_os("CARGO_PKG_NAME");
    let program = std::env::current_exe().ok();
    let by_cargo = is_run_by_cargo(package.as_deref(), program.as_deref());
    format!("{} {words}", if by_cargo { BY_CARGO } else { NAME })
}

/// Whether cargo runs this program, and no test of it and none of another project.
fn is_run_by_cargo(package: Option<&OsStr>, program: Option<&Path>) -> bool {
    package == Some(OsStr::new(env!("CARGO_PKG_NAME"))) && program.and_then(Path::file_name) == Some(OsStr::new(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cargo_runs_of_this_project_is_written_so() {
        let is_so = |package: &str, program| is_run_by_cargo(Some(OsStr::new(package)), Some(Path::new(program)));
        assert!(is_so("cutthrough-cli", "/home/target/release/cutthrough"));
        assert!(!is_so("their-own", "/home/target/release/cutthrough"));
        assert!(!is_so("cutthrough-cli", "/home/target/debug/deps/cutthrough_cli-00ff"));
        assert!(!is_run_by_cargo(None, Some(Path::new("/usr/bin/cutthrough"))));
        assert!(!is_run_by_cargo(Some(OsStr::new("cutthrough-cli")), None));
        // As this test is.
        assert_eq!(command("info"), "cutthrough info");
    }
}
