//! `demo` as people and scripts see it: what it prints, how it refuses, and what is left when one of its processes
//! dies.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, inotify, mknodat};
use serde_json::Value;

/// A folder of a test, which the demo uses for its own files too; gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("demo-test-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("tmp")).expect("a folder can be made");
        Self(folder)
    }

    /// A file of so many random bytes.
    fn file(&self, bytes: usize) -> PathBuf {
        let path = self.0.join("file");
        let mut content = vec![0; bytes];
        fastrand::Rng::with_seed(7).fill(&mut content);
        fs::write(&path, content).expect("a file can be written");
        path
    }

    fn demo(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutthrough"));
        command.arg("demo").args(options).env("TMPDIR", self.0.join("tmp")).stdin(Stdio::null());
        // As cargo runs it, not one of its tests: what is said then is the longest.
        command.env("CARGO_PKG_NAME", "cutthrough-cli");
        command
    }

    fn run(&self, options: &[&str]) -> Output {
        self.demo(options).output().expect("the program can be started")
    }

    fn start(&self, file: &Path) -> Demo {
        let mut command = self.demo(&["--file", text(file)]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program can be started");
        Demo(child)
    }

    /// Whether the demo has left nothing behind.
    fn is_clean(&self) -> bool {
        fs::read_dir(self.0.join("tmp")).is_ok_and(|mut entries| entries.next().is_none())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running demo; killed with the test.
struct Demo(Child);

impl Demo {
    /// The process that serves the pages, once it listens.
    fn server(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        let mut server = None;
        until("there is a serving process", || {
            let children = fs::read_to_string(&path).unwrap_or_default();
            server = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
            server.is_some_and(has_endpoint)
        });
        server.expect("it was there")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_endpoint(pid: u32) -> bool {
    let found = cutthrough::stat::find().unwrap_or_default();
    found.iter().any(|(owner, _)| *owner == pid)
}

fn runs(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie that its parent, dead too, has not been asked about yet does nothing any more.
    state.rsplit(") ").next().is_some_and(|fields| !fields.is_empty() && !fields.starts_with('Z'))
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let since = Instant::now();
    while !happened() {
        assert!(since.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the process runs");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

#[test]
fn every_way_is_a_line_of_json_and_the_picture_is_drawn() {
    let folder = Folder::new("json");
    let (file, svg) = (folder.file(3 * 4096 + 1), folder.0.join("demo.svg"));
    let output = folder.run(&["--json", "--file", text(&file), "--svg", text(&svg)]);
    let people = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{people}");
    assert!(people.contains("All 4 pages came in every way, and every byte is as in the file."), "{people}");
    assert!(people.contains("copy out") && people.contains("Try next:"), "{people}");
    assert!(people.contains("\n  cargo run --release -- perf lat  "), "{people}");
    // A path is as long as it is.
    let texts = people.lines().filter(|line| !line.contains('/'));
    assert!(texts.into_iter().all(|line| line.chars().count() <= 80), "{people}");

    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ways: Vec<(&str, &str, &str, Option<u64>)> = lines
        .iter()
        .map(|line| {
            let word = |field: &str| line[field].as_str().unwrap_or_default();
            (word("adapter"), word("policy"), word("memory"), line["copies"].as_u64())
        })
        .collect();
    let (two, one, none) = (Some(2), Some(1), Some(0));
    assert_eq!(
        ways,
        [
            ("shm", "store-and-forward", "private", two),
            ("shm", "fixed:512", "private", two),
            ("shm", "fixed:1024", "private", two),
            ("shm", "fixed:2048", "private", two),
            ("shm", "adaptive", "private", two),
            ("shm", "", "pool", one),
            ("shm", "", "reference", none),
            ("unix", "", "private", two),
            ("shm", "fixed:4096", "private", None),
            ("shm", "fixed:8192", "private", None),
            ("shm", "fixed:16384", "private", None),
            ("shm", "fixed:32768", "private", None),
        ]
    );
    let (pages, streams) = lines.split_at(8);
    for line in streams {
        assert!(line["test"] == "bw" && line["bytes_per_s"].is_number() && line["p50_ns"].is_null(), "{line}");
        assert!(line["size"] == 3 * 4096 + 1 && line["checked"].is_null(), "{line}");
    }
    for line in pages {
        assert!(line["test"] == "fetch" && line["size"] == 4096 && line["checked"] == 4, "{line}");
        assert!(line["p50_ns"].is_number() && line["p99_ns"].is_number() && line["count"].is_number(), "{line}");
        assert_eq!(line["bytes_per_s"].is_number(), line["memory"] != "reference", "{line}");
    }
    let picture = fs::read_to_string(svg).expect("it was drawn");
    assert!(picture.starts_with("<svg") && picture.contains("adaptive"), "{picture}");
    assert!(folder.is_clean());
}

#[test]
fn a_file_of_one_byte_has_one_page() {
    let folder = Folder::new("byte");
    let output = folder.run(&["--file", text(&folder.file(1))]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let people = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(people.contains("The one page came in every way"), "{people}");
}

#[test]
fn what_cannot_be_fetched_or_drawn_is_refused_in_one_line() {
    let folder = Folder::new("refused");
    let file = folder.file(0);
    let nowhere = folder.0.join("no/such/folder.svg");
    for options in [
        &["--file", "/no/such/file"][..],
        &["--file", text(&folder.0)],
        &["--file", text(&file)],
        &["--file", "/dev/null"],
        &["--svg", text(&nowhere)],
        &["--svg", text(&folder.0)],
    ] {
        let output = folder.run(options);
        let message = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {message}");
        assert!(output.stdout.is_empty(), "{options:?}");
        assert!(message.lines().count() == 1 && message.contains("; "), "{options:?}: {message}");
    }
}

/// What is too long is a folder that the user has not named here.
#[test]
fn a_folder_for_sockets_that_is_too_long_is_refused_with_the_variable_to_set() {
    let folder = Folder::new("long");
    let file = folder.file(1);
    let tmp = folder.0.join("x".repeat(100));
    fs::create_dir(&tmp).expect("a folder can be made");
    let output = folder.demo(&["--file", text(&file)]).env("TMPDIR", &tmp).output().expect("it can be started");
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), output.stdout.len(), message.lines().count()), (Some(2), 0, 1), "{message}");
    assert!(message.ends_with("; set TMPDIR to a folder with a shorter path\n"), "{message}");
    assert!(message.contains(text(&tmp)), "{message}");
}

/// The file changes after the fetching process has read it and before the serving one has: what is fetched is not what
/// it is checked against.
#[test]
fn a_byte_that_is_not_as_in_the_file_is_a_failed_check() {
    let folder = Folder::new("changed");
    let (file, svg) = (folder.file(5 * 4096), folder.0.join("pipe.svg"));
    // Whoever opens a pipe to write waits for a reader. The demo makes sure that it can write the picture when it has
    // read the file, before it starts the serving process.
    mknodat(CWD, &svg, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    let watch = inotify::init(inotify::CreateFlags::empty()).expect("files can be watched");
    inotify::add_watch(&watch, &file, inotify::WatchFlags::CLOSE_NOWRITE).expect("the file can be watched");

    let mut command = folder.demo(&["--file", text(&file), "--svg", text(&svg)]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program can be started");
    let mut demo = Demo(child);
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    let read = poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&patience));
    assert_eq!(read, Ok(1), "the demo has not read the file within 20 s");
    let open = fs::File::options().read(true).write(true).open(&file).expect("the file can be written");
    let mut byte = [0];
    open.read_exact_at(&mut byte, 3 * 4096 + 17).expect("it is that long");
    open.write_all_at(&[!byte[0]], 3 * 4096 + 17).expect("it can be written");
    let _reader = rustix::fs::open(&svg, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("the pipe is there");

    let mut message = String::new();
    demo.0.stderr.as_mut().expect("it is piped").read_to_string(&mut message).expect("UTF-8");
    assert_eq!(demo.0.wait().expect("it has ended").code(), Some(1), "{message}");
    assert!(message.lines().count() == 1 && message.contains("page 3 is not as in the file"), "{message}");
    assert!(folder.is_clean());
}

#[test]
fn the_serving_process_ends_with_the_other_and_leaves_nothing() {
    let folder = Folder::new("parent");
    let mut demo = folder.start(&folder.file(100_000));
    let server = demo.server();
    demo.0.kill().expect("it runs");
    demo.0.wait().expect("it has ended");
    until("the serving process has ended", || !runs(server));
    assert!(folder.is_clean());
}

#[test]
fn the_demo_says_so_if_the_serving_process_dies() {
    let folder = Folder::new("child");
    let mut demo = folder.start(&folder.file(100_000));
    kill(demo.server());
    let mut message = String::new();
    let stderr = demo.0.stderr.as_mut().expect("it is piped");
    stderr.read_to_string(&mut message).expect("UTF-8");
    assert_eq!(demo.0.wait().expect("it has ended").code(), Some(2), "{message}");
    assert!(message.lines().count() == 1 && message.contains("the serving process failed"), "{message}");
    assert!(folder.is_clean());
}

/// Killed at any moment, from before it has started the serving process until it measures.
#[test]
fn a_demo_that_is_killed_at_once_leaves_nothing() {
    let folder = Folder::new("at-once");
    let file = folder.file(100_000);
    for moment in 0..40 {
        let mut demo = folder.start(&file);
        std::thread::sleep(Duration::from_millis(moment));
        demo.0.kill().expect("it runs");
        demo.0.wait().expect("it has ended");
    }
    until("nothing is left", || folder.is_clean());
}
