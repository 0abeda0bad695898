//! The other side: this program, started again with a part to play. Its test `other_side` plays it.

pub(crate) mod doings;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cutthrough::{Channel, Config, Endpoint, Event, Incoming, Placement, Token};

/// Says which part to play.
const PART: &str = "CONFORM_PART";
/// Says where the two sides meet.
const ADDRESS: &str = "CONFORM_ADDRESS";
/// Says that rings cut payloads free.
pub(crate) const CUT: &str = "CONFORM_CUT";
/// Says that `net:` has rings of AF_XDP, too.
pub(crate) const XDP: &str = "CONFORM_XDP";
/// Says for how many milliseconds the other side hears nothing before it takes its peer for dead, if not as usual.
pub(crate) const SILENCE: &str = "CONFORM_SILENCE";
/// Nothing may take longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of both sides.
pub(crate) fn config() -> Config {
    let placement = if std::env::var_os(CUT).is_some() { Placement::HeaderCut } else { Placement::Auto };
    let deadline = Duration::from_secs(5);
    let silence = std::env::var(SILENCE).ok().and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    let silence = silence.unwrap_or(Config::default().silence);
    let net_xdp = std::env::var_os(XDP).is_some();
    Config { staging_bytes: 64 << 10, deadline, silence, insecure: true, placement, net_xdp, ..Config::default() }
}

/// A process that plays a part; killed when dropped.
pub(crate) struct Other {
    pub(crate) process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Other {
    /// Prepares the part, for those who have to change more of the process.
    pub(crate) fn command(part: &str, address: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "other_side", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env(ADDRESS, address).env("RUST_BACKTRACE", "0");
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        command
    }

    /// Starts the part.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.spawn().expect("another process");
        let said = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, said }
    }

    /// Starts the part, and waits until it says that it is ready.
    pub(crate) fn ready(part: &str, address: &str) -> Self {
        let mut other = Self::start(Self::command(part, address));
        assert_eq!(other.says(), "ready");
        other
    }

    /// What it says next. Lines of the test harness are passed over.
    pub(crate) fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.said.read_line(&mut line).expect("its output") > 0, "it ended without a word");
            if let Some((_, word)) = line.split_once("SAYS ") {
                return word.trim_end().to_owned();
            }
        }
    }

    /// Its process number.
    pub(crate) fn number(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.process)
    }

    /// Stops it. The kernel tells one of its threads to stop the others, which go on until that has run: so this waits
    /// until all of them stand still.
    pub(crate) fn stop(&self) {
        rustix::process::kill_process(self.number(), rustix::process::Signal::STOP).expect("it is there");
        let begun = Instant::now();
        let tasks = format!("/proc/{}/task", self.process.id());
        let stands = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
        while !std::fs::read_dir(&tasks).expect("its threads").flatten().all(|task| {
            // One that has ended since does nothing any more.
            std::fs::read_to_string(task.path().join("stat")).map_or(true, stands)
        }) {
            assert!(begun.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder of its own for each test, gone afterwards.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cutthrough-process-{}-{number}", std::process::id()));
        // What an earlier run has left, which was killed and whose process number was the same.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a folder");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its mode");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn address(&self) -> String {
        format!("shm:{}", self.path().join("name.sock").display())
    }

    /// What lies in it.
    pub(crate) fn files(&self) -> Vec<std::ffi::OsString> {
        std::fs::read_dir(&self.0).expect("the folder").map(|entry| entry.expect("an entry").file_name()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Says a word to the process that started this one.
fn say(word: &str) {
    // The harness writes the test's name without a line end before.
    println!("SAYS {word}");
    let _ = std::io::stdout().flush();
}

/// Plays the part that this process was started for, if it was; `more` plays those of one program alone.
pub(crate) fn run(more: impl FnOnce(&str, &str, fn(&str))) {
    let (Ok(part), Ok(address)) = (std::env::var(PART), std::env::var(ADDRESS)) else { return };
    match part.as_str() {
        "listen" | "listen-send" | "listen-hold" => {
            let mut endpoint = Endpoint::open(config()).expect("an endpoint");
            endpoint.listen(&address).expect("the name");
            say("ready");
            let channel = loop {
                if let Event::Opened(channel) = endpoint.wait(None).expect("a caller") {
                    break channel;
                }
            };
            play(&mut endpoint, channel, part.trim_start_matches("listen"));
        }
        "connect" | "connect-send" | "connect-hold" | "connect-compute" | "connect-fill" => {
            let mut endpoint = Endpoint::open(config()).expect("an endpoint");
            let channel = endpoint.connect(&address, PATIENCE).expect("a channel");
            say("ready");
            play(&mut endpoint, channel, part.trim_start_matches("connect"));
        }
        "reopen" => {
            let open = || {
                let mut endpoint = Endpoint::open(config()).expect("an endpoint");
                endpoint.listen(&address).expect("the name");
            };
            open();
            say("ready");
            loop {
                open();
            }
        }
        "try-listen" => {
            let listened = Endpoint::open(config()).expect("an endpoint").listen(&address);
            say(&listened.map_or_else(|error| error.to_string(), |()| "listening".to_owned()));
        }
        "try-connect" => {
            let connected = Endpoint::open(config()).expect("an endpoint").connect(&address, PATIENCE);
            say(&connected.map_or_else(|error| error.to_string(), |_| "connected".to_owned()));
        }
        other => more(other, &address, say),
    }
}

/// A payload that takes a while.
pub(crate) const LONG: usize = 256 << 20;

/// Plays until it is killed: takes what comes and reads it, sends without end, computes for a while, holds what it
/// gets, or fills what the first message names.
fn play(endpoint: &mut Endpoint, channel: Channel, how: &str) {
    if how == "-compute" {
        let first = endpoint.outgoing(channel).expect("room").write(b"computing");
        first.attach_copy(&vec![4; 1 << 20]).send().expect("sent");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            std::hint::spin_loop();
        }
        endpoint.send(channel, b"computed").expect("sent");
    }
    let payload = vec![5; 8 << 20];
    let mut bytes = vec![0; 8 << 20];
    let mut held: Vec<Incoming> = Vec::new();
    loop {
        if how == "-send" {
            let Ok(outgoing) = endpoint.outgoing(channel) else { return };
            if outgoing.attach_copy(&payload).send().is_err() {
                return;
            }
            continue;
        }
        match endpoint.wait(None).expect("an event") {
            Event::Message(message) if how == "-hold" => held.push(message),
            Event::Message(message) if how == "-fill" => {
                let (index, key) = message.control().split_at(2);
                let index = u16::from_le_bytes(index.try_into().expect("a number"));
                let key = u64::from_le_bytes(key.try_into().expect("a key"));
                let outgoing = endpoint.outgoing(channel).expect("room").to(Token { index, key });
                if outgoing.attach_copy(&vec![6; LONG]).send().is_err() {
                    return;
                }
            }
            Event::Message(mut message) => {
                if message.payload_len() > 0 && endpoint.read(&mut message, &mut bytes).is_err() {
                    return;
                }
            }
            Event::Closed(..) => return,
            Event::Opened(_) | Event::Connected(..) | Event::Completed(_) | Event::Room(_) => {}
            other => panic!("{other:?}: a child does not know of it"),
        }
    }
}
