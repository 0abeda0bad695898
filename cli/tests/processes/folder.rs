//! A folder for the names of one test, and processes that use it and end with the test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take that should take an instant, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder of its own, where names of endpoints live.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        // Not where the tests are built: that may lie so deep that no socket's path fits.
        let path = std::env::temp_dir().join(format!("cut-{test}-{}", std::process::id()));
        // What an earlier run has left, whose process number was the same.
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    pub(crate) fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutthrough"));
        self.told(command.args(words));
        command
    }

    /// Tells a command where names live.
    pub(crate) fn told<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("CUTTHROUGH_DIR", &self.0).env_remove("CARGO_PKG_NAME").stdin(Stdio::null())
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.program(words).output().expect("the program can be started")
    }

    /// Runs the program, which has to succeed, and returns its lines of JSON.
    pub(crate) fn lines(&self, words: &[&str]) -> Vec<Value> {
        let output = self.run(&[words, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        let text = String::from_utf8(output.stdout).expect("output is UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Runs the program where it cannot run: exit code 2, and one line on standard error that begins with its name and
    /// says what to do. Returns that line.
    pub(crate) fn refuses(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8(output.stderr).expect("output is UTF-8");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(output.stdout.is_empty() && said.lines().count() == 1, "{words:?}: {said}");
        assert!(said.starts_with("cutthrough: ") && said.contains("; "), "{words:?}: {said}");
        said
    }

    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::of(self.program(words).stdout(Stdio::null()))
    }

    /// A name of this folder as a process that knows nothing of it writes the address.
    pub(crate) fn address(&self, name: &str) -> String {
        format!("shm:{}", self.0.join(format!("{name}.sock")).display())
    }

    /// Starts a program that listens, and waits until it says so.
    pub(crate) fn listening(&self, words: &[&str]) -> Running {
        let mut command = self.program(words);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running(piped.spawn().expect("the program can be started"));
        let mut first = String::new();
        let stdout = running.0.stdout.as_mut().expect("it was asked for");
        BufReader::new(stdout).read_line(&mut first).expect("output is UTF-8");
        assert!(first.starts_with("Waiting at "), "{words:?}: {first}");
        running
    }

    /// Names that are taken, or were and are not given back.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().iter().any(|other| other == name)
    }

    pub(crate) fn wait_until_empty(&self) {
        until(&format!("{:?} is empty", self.0), || self.names().is_empty());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running program.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a command, whose standard error is read when it has ended.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(command.stderr(Stdio::piped()).spawn().expect("the program can be started"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The other end that it has started.
    pub(crate) fn other_end(&self) -> u32 {
        let mut found = None;
        until("it has started its other end", || {
            found = child_of(self.pid());
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits for its end: its exit code, none if a signal ended it, and what it said on standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        until("it has ended", || self.0.try_wait().expect("it can be waited for").is_some());
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("it was asked for");
        stderr.read_to_string(&mut said).expect("output is UTF-8");
        (self.0.wait().expect("it has ended").code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process number");
    kill_process(pid, signal).expect("it can be killed");
}

/// Whether programs that are started from here heed an interrupt: those of a shell's background jobs do not. Says so
/// where the test's output goes, if they do not.
pub(crate) fn interrupts_are_heeded() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("signals that are ignored");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a mask");
    let heeded = ignored & 1 << (Signal::INT.as_raw() - 1) == 0;
    if !heeded {
        crate::skipped("no interrupts: this test was started with SIGINT ignored, as by `nohup` or `&`");
    }
    heeded
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    status(pid).is_some_and(|(state, _)| state != "Z")
}

/// Who has started a process, which may have ended but not been waited for.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    status(pid).map(|(_, parent)| parent)
}

fn child_of(parent: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|&number| status(number).is_some_and(|(_, of)| of == parent))
}

/// State and parent of a process.
fn status(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
