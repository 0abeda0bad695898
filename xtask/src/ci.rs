//! Every check, in the order of how soon it tells something. While the tests run, which wait more than they compute,
//! what only computes goes on beside them.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Seconds for which a fuzz target runs.
const FUZZ_SECONDS: u32 = 4;
/// The same for `pair`, which joins two sides for each input: less than a hundred inputs a second.
const PAIR_SECONDS: u32 = 15;

/// How many lines are told once more, at the end, of what has failed: who keeps the end of a long output only is to
/// find it there.
const TOLD_AGAIN: usize = 120;

/// How the line of a test begins that says that it is skipped.
const SKIPPED: &str = "SKIPPED ";

/// Why a test may be skipped even where a wire can be made: for want of a kernel, of hardware, of rights outside of
/// this user's namespace, of a program of somebody else's that only its test is for, or by a limit that was set for
/// this process. All else can be had there.
const EXCUSED: [&str; 26] = [
    "before Linux 6.",
    "no bond can be made: the kernel has none (CONFIG_BONDING)",
    "raw frames need Linux 6.2 or newer",
    ": not supported (",
    "no memory files of huge pages here",
    "one core cannot show these limits",
    "a thread cannot be bound to core 0",
    "this machine has no [::1]",
    "outside of all user namespaces; use ",
    "needs CAP_",
    "only root can ",
    "only root gives ",
    "another user cannot run ",
    "no folder can be given to another user",
    "no name space of processes",
    "no container; it needs root",
    "do not fit into a receive buffer of ",
    "the addresses of this process are limited",
    "no ThousandChannels: 8192 open files",
    "cannot be locked; raise 'ulimit -l'",
    "no interrupts: this test was started with SIGINT ignored",
    "\"-Ur\"] does not work here",
    "'unshare -Ur' does not work here",
    "Open MPI is not installed here",
    "MPICH is not installed here",
    // By nature: nobody can do anything about it.
    "no ManyEndpoints: a queue has one ring of AF_XDP",
];

/// One check: a command line, and what it needs in its environment.
struct Step {
    name: String,
    words: Vec<String>,
    variables: &'static [(&'static str, &'static str)],
}

/// Where a step says what it says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// To who looks on.
    AtOnce,
    /// All of it when it is over: something else goes on beside it.
    Later,
}

/// What has become of steps that go one after the other.
#[derive(Default)]
struct Ran {
    passed: usize,
    failed: usize,
    skipped: Vec<String>,
    /// What those that failed have said of it.
    failures: Vec<String>,
}

/// What a step has said.
#[derive(Default)]
struct Said {
    /// Whole, if it is to be printed when the step is over.
    kept: String,
    /// How many of its tests have passed.
    passed: u64,
    /// What it has said of those that failed.
    failures: Vec<String>,
    /// The lines of those that were skipped.
    skipped: Vec<String>,
}

/// Runs every check: whether all passed. Stops at the first that did not.
pub(crate) fn run(root: &Path) -> bool {
    let Plan { first, then, beside } = plan(root);
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    let all = first.len() + then.len() + beside.len();
    let mut ran = one_by_one(&first, root, Says::AtOnce, &stop);
    thread::scope(|scope| {
        let side = scope.spawn(|| one_by_one(&beside, root, Says::Later, &stop));
        ran.add(one_by_one(&then, root, Says::AtOnce, &stop));
        ran.add(side.join().unwrap_or_default());
    });
    let Ran { passed, mut failed, skipped, failures } = ran;
    if !skipped.is_empty() {
        println!("\nskipped, in whole or in part:\n{}", skipped.join("\n"));
    }
    let unexcused: Vec<&str> = skipped.iter().map(String::as_str).filter(|line| !is_excused(line)).collect();
    if failed == 0 && !unexcused.is_empty() && can_make_wires() {
        println!("\nwhere a wire can be made, none of these may be skipped:\n{}", unexcused.join("\n"));
        failed = 1;
    }
    let (verdict, left) = (if failed == 0 { "ok" } else { "FAILED" }, all.saturating_sub(passed + failed));
    let time = seconds(begun);
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; {left} ignored; finished in {time}");
    if failed != 0 {
        for line in failures.iter().take(TOLD_AGAIN) {
            println!("{line}");
        }
        // A full disk makes compilers and linkers die in ways that do not name it.
        println!("free on the disk: {}", free_space(root).as_deref().unwrap_or("not known"));
    }
    failed == 0 && left == 0
}

/// How much may still be written below `root`, as `df` says it.
fn free_space(root: &Path) -> Option<String> {
    let ran = Command::new("df").args(["-h", "--output=avail"]).arg(root).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&ran.stdout).lines().nth(1)?.trim().to_owned())
}

/// Runs steps until one fails, here or beside them.
fn one_by_one(steps: &[Step], root: &Path, says: Says, stop: &AtomicBool) -> Ran {
    let mut ran = Ran::default();
    for step in steps {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let title = format!("\n=== {}: {}", step.name, step.words.join(" "));
        if says == Says::AtOnce {
            println!("{title}");
        }
        let started = Instant::now();
        let (passed, said) = step.run(root, says);
        ran.skipped.extend(said.skipped);
        if says == Says::Later {
            println!("{title}\n{}", said.kept);
        }
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("=== {} ... {verdict} ({:.1} s)", step.name, started.elapsed().as_secs_f64());
        if passed {
            ran.passed += 1;
        } else {
            ran.failed += 1;
            ran.failures.push(format!("\n=== {} ... FAILED, as it said above:", step.name));
            ran.failures.extend(said.failures);
            stop.store(true, Ordering::Relaxed);
        }
    }
    ran
}

impl Ran {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }
}

fn seconds(begun: Instant) -> String {
    format!("{:.2}s", begun.elapsed().as_secs_f64())
}

/// Whether the line of a skipped test says that it wants what cannot be had here.
fn is_excused(line: &str) -> bool {
    EXCUSED.iter().any(|reason| line.contains(reason))
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

    /// Whether it passed, and if it is one of tests, whether there were any; and what it has said, if that was heard.
    fn run(&self, root: &Path, says: Says) -> (bool, Said) {
        let before: &[&str] = if says == Says::Later { &["nice", "-n", "19"] } else { &[] };
        let words: Vec<&str> = before.iter().copied().chain(self.words.iter().map(String::as_str)).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(root).stdin(Stdio::null());
        // Nothing is built a second time here.
        command.env("CARGO_INCREMENTAL", "0");
        command.envs(self.variables.iter().copied());
        // Tests that are only built are none that run.
        let tests =
            self.words.get(1).is_some_and(|word| word == "test") && !self.words.iter().any(|word| word == "--no-run");
        if tests || says == Says::Later {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let ended = command.spawn().and_then(|mut child| {
            let results = child.stdout.take().map(|said| thread::spawn(move || results(BufReader::new(said), says)));
            let mut errors = child.stderr.take().map(|said| errors(BufReader::new(said), says)).transpose()?;
            let mut said = results.and_then(|results| results.join().ok()).transpose()?.unwrap_or_default();
            if let Some(errors) = &mut errors {
                said.add(errors);
            }
            Ok((child.wait()?, said))
        });
        match ended {
            Ok((status, said)) => {
                let none = tests && status.success() && said.passed == 0;
                if none {
                    eprintln!("no test has run");
                }
                (status.success() && !none, said)
            }
            Err(error) => {
                eprintln!("{}: {error}", words[0]);
                (false, Said::default())
            }
        }
    }
}

impl Said {
    fn add(&mut self, other: &mut Self) {
        self.kept += &other.kept;
        self.passed += other.passed;
        self.failures.append(&mut other.failures);
        self.skipped.append(&mut other.skipped);
    }
}

/// Passes each line on by `show`, or keeps it; and has `each` look at it.
fn pass_on(said: impl BufRead, says: Says, show: fn(&str), mut each: impl FnMut(&str)) -> io::Result<String> {
    let mut kept = String::new();
    for line in said.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        match says {
            Says::AtOnce => show(&line),
            Says::Later => kept.extend([&line, "\n"]),
        }
        each(&line);
    }
    Ok(kept)
}

/// Hears what a step says on standard error: tests that were skipped say so there, line by line, and `cargo` and
/// compilers what is wrong.
fn errors(said: impl BufRead, says: Says) -> io::Result<Said> {
    let (mut skipped, mut failures) = (Vec::new(), Vec::new());
    let kept = pass_on(
        said,
        says,
        |line| eprintln!("{line}"),
        |line| {
            if line.starts_with(SKIPPED) {
                skipped.push(line.to_owned());
            }
            // What follows an error belongs to it, as the names of the programs that failed.
            if line.starts_with("error") || !failures.is_empty() {
                failures.push(line.to_owned());
            }
        },
    )?;
    Ok(Said { kept, skipped, failures, ..Said::default() })
}

/// Hears what a step says on standard output: how many tests have passed, and why others have not.
fn results(said: impl BufRead, says: Says) -> io::Result<Said> {
    let (mut passed, mut failures, mut failing) = (0, Vec::new(), false);
    let kept = pass_on(
        said,
        says,
        |line| println!("{line}"),
        |line| {
            passed += passed_by(line);
            failing |= line == "failures:";
            if failing {
                failures.push(line.to_owned());
            }
            failing &= !line.starts_with("test result: ");
        },
    )?;
    Ok(Said { kept, passed, failures, ..Said::default() })
}

/// How many tests have passed by the last line of a program of tests; none by any other line.
fn passed_by(line: &str) -> u64 {
    let counts = line.strip_prefix("test result: ok. ").and_then(|counts| counts.split_once(" passed"));
    counts.and_then(|(passed, _)| passed.parse().ok()).unwrap_or(0)
}

/// The steps: those that come first, those behind them, and those that go on beside these.
struct Plan {
    first: Vec<Step>,
    then: Vec<Step>,
    beside: Vec<Step>,
}

fn plan(root: &Path) -> Plan {
    let first = vec![
        Step::new("format", "cargo fmt --all --check"),
        Step::new("format of the fuzz targets", "cargo fmt --manifest-path fuzz/Cargo.toml --check"),
        Step::new("house rules", "cargo xtask tidy"),
        Step::new("clippy", "cargo clippy --locked --workspace --all-targets --all-features -- -D warnings"),
        Step::new("tests are built", "cargo test --locked --workspace --no-run"),
    ];
    let mut then = vec![
        // Many of them wait for the kernel to make or to end something.
        Step::new("tests", "cargo test --locked --workspace --no-fail-fast").with(&[("RUST_TEST_THREADS", "4")]),
        // Of the suite, what opens hundreds of rings, and rings with a key.
        Step::new(
            "the whole suite by rings",
            "cargo test --locked --workspace --features cutthrough-conform/long --test raw_veth long::",
        )
        .with(&[("RUST_TEST_THREADS", "4")]),
        // Who builds the whole workspace builds the library with what its other crates ask it for.
        Step::new("the library alone", "cargo check --locked --package cutthrough --all-targets"),
        Step::new(
            "planted bugs",
            "cargo test --locked --package cutthrough-sim --features planted --test fault planted",
        ),
        Step::new("documents", "cargo doc --locked --workspace --no-deps --all-features")
            .with(&[("RUSTDOCFLAGS", "-D warnings")]),
    ];
    // As the tests have built it, with the features of the whole workspace: nothing is measured here.
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    for (name, command) in
        [("demo", "demo"), ("faults", "sim fault --seeds 300"), ("the papers' results", "sim all --check")]
    {
        then.push(Step::new(name, &format!("{target}/debug/cutthrough {command}")));
    }
    then.push(Step::new("a short storm", &format!("{target}/debug/examples/storm 10")));
    let mut beside = vec![
        Step::new("loom", "cargo test --locked --package cutthrough-segment --test loom")
            .with(&[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")]),
        Step::new("fuzz targets are built", "cargo fuzz build").with(&[("RUSTC_BOOTSTRAP", "1")]),
        // What it depends on has been built for the tests, which have looked for that by now: one waits for the other.
        Step::new("findings of the fuzzer", "cargo test --locked --manifest-path fuzz/Cargo.toml")
            .with(&[("CARGO_TARGET_DIR", "target")]),
    ];
    beside.extend(targets(root).iter().map(|target| fuzz(target)));
    Plan { first, then, beside }
}

/// A short run of a fuzz target. Inputs start short and grow with the number of runs. Where they are steps, and a run
/// costs much, they would stay too short to do anything: there they have any length from the start.
fn fuzz(target: &str) -> Step {
    let (seconds, lengths) = match target {
        "link" | "net" | "placed" | "trains" => (FUZZ_SECONDS, "-max_len=1024 -len_control=0"),
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
        let said = errors(&b"SKIPPED a: why\nnot SKIPPED b\n\xff\nSKIPPED c: it"[..], Says::Later).unwrap();
        assert_eq!(said.skipped, ["SKIPPED a: why", "SKIPPED c: it"]);
        assert_eq!(said.kept.lines().count(), 4);
        assert!(said.failures.is_empty(), "{:?}", said.failures);
    }

    /// They are told once more where everything is over.
    #[test]
    fn what_failed_is_kept_and_nothing_else() {
        let failed =
            "failures:\n\n---- b stdout ----\nwhy\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed";
        let all = format!("running 2 tests\ntest a ... ok\n{failed}\n\ntest c ... ok\ntest result: ok. 1 passed;");
        let said = results(all.as_bytes(), Says::Later).unwrap();
        assert_eq!(said.failures.join("\n"), failed);
        let said = errors(&b"Compiling\nerror: 1 target failed:\n    `-p one`"[..], Says::Later).unwrap();
        assert_eq!(said.failures, ["error: 1 target failed:", "    `-p one`"]);
    }

    /// Another spelling would be no line of a skipped test: nobody would hear of it.
    #[test]
    fn whatever_is_skipped_says_so_in_the_same_way() {
        let sources = crate::sources::find(crate::root(), &["rs"]);
        let (mut said, mut others) = (0, Vec::new());
        for source in sources.iter().filter(|source| !source.path.starts_with("xtask/")) {
            for (number, line) in source.lines() {
                for text in line.split('"').filter(|text| text.to_lowercase().starts_with("skipp")) {
                    let name = text.strip_prefix(SKIPPED).and_then(|rest| rest.split_once(": "));
                    let is_name = |name: &str| !name.is_empty() && !name.contains([' ', ',']);
                    said += 1;
                    if !name.is_some_and(|(name, why)| is_name(name) && !why.is_empty()) {
                        others.push(format!("{}:{number}: {text}", source.path));
                    }
                }
            }
        }
        // Those of `node` and `conform`, and of tests that have neither.
        assert!(said >= 4 && others.is_empty(), "{said} in all, and not '{SKIPPED}NAME: WHY': {others:?}");
    }

    #[test]
    fn what_is_skipped_for_want_of_what_can_be_had_is_told_from_the_rest() {
        for why in [
            "no veth pair: ip: it failed",
            "the program 'ip' is missing; install the package iproute2",
            "the programs are not built; 'cargo test --workspace' builds them",
            "no process can be traced here",
            "this kernel cannot dispatch system calls to users",
            "no frames can be lost: no program; run it as root",
            "no namespaces; it needs root, unshare, mount and ip",
            "anything that nobody has thought of",
        ] {
            assert!(!is_excused(&format!("SKIPPED some::test: {why}")), "{why}");
        }
        for why in [
            "this kernel copies what it sends by UDP (before Linux 6.5)",
            "one core cannot show these limits",
            "only root can start another user",
            "a ring: not supported (EOPNOTSUPP); use generic mode",
            "no ManyEndpoints: a queue has one ring of AF_XDP",
        ] {
            assert!(is_excused(&format!("SKIPPED some::test: {why}")), "{why}");
        }
    }

    #[test]
    fn tests_that_have_passed_are_counted() {
        let said = "running 2 tests\ntest a ... ok\n\ntest result: ok. 2 passed; 1 failed\ntest result: ok. 40 passed; \
                    0 failed\ntest result: ok. 0 passed; 9 filtered out\n";
        let kept = |says| results(said.as_bytes(), says).map(|said| (said.passed, said.kept)).unwrap();
        assert_eq!(kept(Says::AtOnce), (42, String::new()));
        assert_eq!(kept(Says::Later), (42, said.to_owned()));
    }

    /// A filter that fits no test any more is no success.
    #[test]
    fn a_step_without_a_test_has_failed() {
        let folder = std::env::temp_dir().join(format!("cutthrough-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ends = |passed: u32| {
            let script = format!("echo 'test result: ok. {passed} passed; 0 failed'");
            std::fs::write(folder.join("test"), script).unwrap();
            let step = Step::new("tests", "sh test");
            [Says::AtOnce, Says::Later].map(|says| step.run(&folder, says).0)
        };
        assert_eq!((ends(1), ends(0)), ([true; 2], [false; 2]));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn pairs_do_many_steps_in_a_short_run() {
        let plan = plan(crate::root());
        let pair = plan.beside.iter().find(|step| step.name == "fuzz pair").unwrap();
        assert!(pair.words.iter().any(|word| word == "-len_control=0"), "{:?}", pair.words);
    }
}
