//! Every check, in the order of how soon it tells something.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// Seconds for which a fuzz target runs.
const FUZZ_SECONDS: u32 = 4;
/// The same for `pair`, which joins two sides for each input: less than a hundred inputs a second.
const PAIR_SECONDS: u32 = 15;

/// How the line of a test begins that says that it is skipped.
const SKIPPED: &str = "SKIPPED ";

/// What tests say that need two network namespaces and a wire between them, and have none.
const WIRELESS: [&str; 5] =
    ["no veth pair", "network namespaces", "namespaces cannot be made", "may not make links", "'ip' is missing"];

/// One check: a command line, and what it needs in its environment.
struct Step {
    name: String,
    words: Vec<String>,
    variables: &'static [(&'static str, &'static str)],
}

/// Runs every check: whether all passed. Stops at the first that did not.
pub(crate) fn run(root: &Path) -> bool {
    let steps = steps(root);
    let begun = Instant::now();
    let mut skipped = Vec::new();
    for (done, step) in steps.iter().enumerate() {
        println!("\n=== {}: {}", step.name, step.words.join(" "));
        let started = Instant::now();
        let passed = step.run(root, &mut skipped);
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("=== {} ... {verdict} ({:.1} s)", step.name, started.elapsed().as_secs_f64());
        if !passed {
            let left = steps.len() - done - 1;
            println!("\ntest result: FAILED. {done} passed; 1 failed; {left} ignored; finished in {}", seconds(begun));
            return false;
        }
    }
    if !skipped.is_empty() {
        println!("\nskipped, in whole or in part:\n{}", skipped.join("\n"));
    }
    let passed = steps.len();
    if skipped.iter().any(|line| is_wireless(line)) && can_make_wires() {
        println!("\nno test may be skipped for want of a wire where one can be made");
        println!("\ntest result: FAILED. {passed} passed; 1 failed; 0 ignored; finished in {}", seconds(begun));
        return false;
    }
    println!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; finished in {}", seconds(begun));
    true
}

fn seconds(begun: Instant) -> String {
    format!("{:.2}s", begun.elapsed().as_secs_f64())
}

/// Whether the line of a skipped test says that it has no wire.
fn is_wireless(line: &str) -> bool {
    WIRELESS.iter().any(|reason| line.contains(reason))
}

/// Whether this user may make a wire, and has the program for it.
fn can_make_wires() -> bool {
    let words = "--net ip link add near type veth peer name far";
    let ran = Command::new("unshare").args(words.split(' ')).stdin(Stdio::null()).output();
    ran.is_ok_and(|output| output.status.success())
}

impl Step {
    fn new(name: &str, command: &str) -> Self {
        let words = command.split_whitespace().map(str::to_owned).collect();
        Self { name: name.to_owned(), words, variables: &[] }
    }

    fn with(self, variables: &'static [(&'static str, &'static str)]) -> Self {
        Self { variables, ..self }
    }

    /// Whether it passed, and if it is one of tests, whether there were any. Tests that were skipped say so on standard
    /// error, line by line.
    fn run(&self, root: &Path, skipped: &mut Vec<String>) -> bool {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir(root).stdin(Stdio::null());
        // Nothing is built a second time here.
        command.env("CARGO_INCREMENTAL", "0");
        command.envs(self.variables.iter().copied());
        let tests = self.words.get(1).is_some_and(|word| word == "test");
        if tests {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let ended = command.spawn().and_then(|mut child| {
            let results = child.stdout.take().map(|said| thread::spawn(move || count(BufReader::new(said))));
            child.stderr.take().map_or(Ok(()), |said| hear(BufReader::new(said), skipped))?;
            let passed = results.map_or(Ok(0), |results| results.join().unwrap_or(Ok(0)))?;
            Ok((child.wait()?, passed))
        });
        match ended {
            Ok((status, 0)) if tests && status.success() => {
                eprintln!("no test has run");
                false
            }
            Ok((status, _)) => status.success(),
            Err(error) => {
                eprintln!("{}: {error}", self.words[0]);
                false
            }
        }
    }
}

/// Passes on what a step says on standard error, and keeps the lines of tests that were skipped.
fn hear(said: impl BufRead, skipped: &mut Vec<String>) -> io::Result<()> {
    for line in said.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        eprintln!("{line}");
        skipped.extend(line.starts_with(SKIPPED).then_some(line));
    }
    Ok(())
}

/// Passes on what a step says on standard output: how many tests have passed.
fn count(said: impl BufRead) -> io::Result<u64> {
    let mut passed = 0;
    for line in said.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        passed += passed_by(&line);
    }
    Ok(passed)
}

/// How many tests have passed by the last line of a program of tests; none by any other line.
fn passed_by(line: &str) -> u64 {
    let counts = line.strip_prefix("test result: ok. ").and_then(|counts| counts.split_once(" passed"));
    counts.and_then(|(passed, _)| passed.parse().ok()).unwrap_or(0)
}

fn steps(root: &Path) -> Vec<Step> {
    let mut steps = vec![
        Step::new("format", "cargo fmt --all --check"),
        Step::new("format of the fuzz targets", "cargo fmt --manifest-path fuzz/Cargo.toml --check"),
        Step::new("house rules", "cargo xtask tidy"),
        Step::new("clippy", "cargo clippy --locked --workspace --all-targets --all-features -- -D warnings"),
        Step::new("tests", "cargo test --locked --workspace"),
        // Who builds the whole workspace builds the library with what its other crates ask it for.
        Step::new("the library alone", "cargo check --locked --package cutthrough --all-targets"),
        Step::new(
            "planted bugs",
            "cargo test --locked --package cutthrough-sim --features planted --test fault planted",
        ),
        Step::new("documents", "cargo doc --locked --workspace --no-deps --all-features")
            .with(&[("RUSTDOCFLAGS", "-D warnings")]),
        Step::new("loom", "cargo test --locked --package cutthrough-segment --test loom --release")
            .with(&[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")]),
        // What it depends on has been built for the tests.
        Step::new("findings of the fuzzer", "cargo test --locked --manifest-path fuzz/Cargo.toml")
            .with(&[("CARGO_TARGET_DIR", "target")]),
    ];
    steps.extend(targets(root).iter().map(|target| fuzz(target)));
    // As the tests have built it, with the features of the whole workspace: nothing is measured here.
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    for (name, command) in
        [("demo", "demo"), ("faults", "sim fault --seeds 300"), ("the papers' results", "sim all --check")]
    {
        steps.push(Step::new(name, &format!("{target}/debug/cutthrough {command}")));
    }
    steps.push(Step::new("a short storm", &format!("{target}/debug/examples/storm 10")));
    steps
}

/// A short run of a fuzz target. Inputs start short and grow with the number of runs. Where they are steps, and a run
/// costs much, they would stay too short to do anything: there they have any length from the start.
fn fuzz(target: &str) -> Step {
    let (seconds, lengths) = match target {
        "link" | "net" | "trains" => (FUZZ_SECONDS, "-max_len=1024 -len_control=0"),
        "pair" => (PAIR_SECONDS, "-max_len=1024 -len_control=0"),
        _ => (FUZZ_SECONDS, "-max_len=2048"),
    };
    let limits = format!("-max_total_time={seconds} -timeout=10 {lengths} -verbosity=0 -print_final_stats=1");
    Step::new(&format!("fuzz {target}"), &format!("cargo fuzz run {target} -- {limits}"))
        .with(&[("RUSTC_BOOTSTRAP", "1")])
}

/// Names of the fuzz targets: their files' names.
fn targets(root: &Path) -> Vec<String> {
    let files = std::fs::read_dir(root.join("fuzz/fuzz_targets")).into_iter().flatten().flatten();
    let mut names: Vec<String> = files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_run() {
        let manifest = std::fs::read_to_string(crate::root().join("fuzz/Cargo.toml")).unwrap();
        let targets = targets(crate::root());
        assert!(!targets.is_empty());
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
        }
    }

    #[test]
    fn lines_of_skipped_tests_are_kept_and_no_others() {
        let mut skipped = Vec::new();
        hear(&b"SKIPPED a: why\nnot SKIPPED b\n\xff\nSKIPPED c: it"[..], &mut skipped).unwrap();
        assert_eq!(skipped, ["SKIPPED a: why", "SKIPPED c: it"]);
    }

    #[test]
    fn what_is_skipped_for_want_of_a_wire_is_told_from_the_rest() {
        for why in ["no veth pair: ip: it failed", "the program 'ip' is missing; install the package iproute2"] {
            assert!(is_wireless(&format!("SKIPPED some::test: {why}")), "{why}");
        }
        for why in ["the kernel has no XDP", "one core cannot show these limits", "only root can start another user"] {
            assert!(!is_wireless(&format!("SKIPPED some::test: {why}")), "{why}");
        }
    }

    #[test]
    fn tests_that_have_passed_are_counted() {
        let said = "running 2 tests\ntest a ... ok\n\ntest result: ok. 2 passed; 1 failed\ntest result: ok. 40 passed; \
                    0 failed\ntest result: ok. 0 passed; 9 filtered out\n";
        assert_eq!(count(said.as_bytes()).unwrap(), 42);
    }

    /// A filter that fits no test any more is no success.
    #[test]
    fn a_step_without_a_test_has_failed() {
        let folder = std::env::temp_dir().join(format!("cutthrough-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ends = |passed: u32| {
            let script = format!("echo 'test result: ok. {passed} passed; 0 failed'");
            std::fs::write(folder.join("test"), script).unwrap();
            Step::new("tests", "sh test").run(&folder, &mut Vec::new())
        };
        assert!(ends(1) && !ends(0));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn pairs_do_many_steps_in_a_short_run() {
        let steps = steps(crate::root());
        let pair = steps.iter().find(|step| step.name == "fuzz pair").unwrap();
        assert!(pair.words.iter().any(|word| word == "-len_control=0"), "{:?}", pair.words);
    }
}
