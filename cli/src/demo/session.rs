//! The fetching process's side: starts the serving process, and opens a channel to it for each way of fetching.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use cutthrough::{CONTROL_MAX, Channel, Endpoint, Event, Incoming};
use cutthrough_node::shm::rendezvous::PATH_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ask::{READY, Request, Setup};
use super::serve;
use super::socket::{Client, SOCKET};
use crate::cpu::{self, Pair};
use crate::failure::Failure;
use crate::perf::others::{Others, time_of_process};

/// How long the other process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The serving process. It ends with this value, and with this process however that ends.
#[derive(Debug)]
pub struct Server {
    child: Child,
    setups: ChildStdin,
    answers: BufReader<ChildStdout>,
    core: Option<usize>,
    cores: Vec<usize>,
    file_bytes: usize,
}

impl Server {
    /// Starts a process that serves the pages of a file of `file_bytes` bytes. It and the calling thread run on two
    /// cores from now on, if this process may use two.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(file: &Path, file_bytes: usize) -> Result<Self, Failure> {
        // Whether there is a place to meet is said now, before anything is printed.
        drop(Meeting::new()?);
        let cannot = |error| Failure::of_start("cannot start the serving process", &error);
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = Command::new(program);
        command.args(["demo", "--serve", "--file"]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C ends this process, and with its pipe the other one, which then has time to tidy up.
        let mut child = command.process_group(0).spawn().map_err(cannot)?;
        let (Some(setups), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(lost(&"it has no pipes"));
        };
        let pair = Pair::apart().filter(|pair| cpu::pin(pair.first).is_ok());
        let core = pair.map(|pair| pair.second);
        let cores = pair.map_or_else(cpu::allowed, |pair| vec![pair.first, pair.second]);
        Ok(Self { child, setups, answers: BufReader::new(answers), core, cores, file_bytes })
    }

    /// Looks what else is on the cores of both processes from now on.
    #[must_use]
    pub fn watch(&self) -> Others {
        Others::on(self.cores.clone(), time_of_process(self.child.id()))
    }

    /// Which share of the cores' time other work has had since then, 0 to 1. None if that cannot be told.
    #[must_use]
    pub fn share(&self, others: &Others) -> Option<f64> {
        others.share_beside(time_of_process(self.child.id()))
    }

    /// Opens a channel to the serving process, both ends with this policy and so much memory.
    ///
    /// # Errors
    /// If the serving process says why it cannot, or is gone.
    pub fn open(&mut self, policy: &str, staging_bytes: u32, memory_bytes: u64) -> Result<Session, Failure> {
        let meeting = Meeting::new()?;
        let setup = Setup { policy: policy.to_owned(), staging_bytes, memory_bytes, ..self.setup(&meeting) };
        self.tell(&setup)?;
        let config = serve::config(&setup).map_err(|error| lost(&error))?;
        let mut endpoint = Endpoint::open(config)
            .map_err(|error| Failure::from_error(&error, "free some memory, or name a smaller file with --file"))?;
        let channel = endpoint.connect(&setup.address(), PATIENCE).map_err(|error| lost(&error))?;
        Ok(Session { endpoint, channel })
    }

    /// Connects to the serving process by a Unix stream socket.
    ///
    /// # Errors
    /// If the serving process says why it cannot, or is gone.
    pub fn connect(&mut self) -> Result<Client, Failure> {
        let meeting = Meeting::new()?;
        let setup = Setup { socket: true, ..self.setup(&meeting) };
        self.tell(&setup)?;
        Client::connect(&setup).map_err(|error| lost(&error))
    }

    /// What each setup says.
    fn setup(&self, meeting: &Meeting) -> Setup {
        Setup {
            folder: meeting.0.clone(),
            core: self.core,
            policy: String::new(),
            staging_bytes: 0,
            memory_bytes: 0,
            socket: false,
            file_bytes: self.file_bytes,
        }
    }

    fn tell(&mut self, setup: &Setup) -> Result<(), Failure> {
        let line = serde_json::to_string(setup).map_err(|error| lost(&error))?;
        writeln!(self.setups, "{line}").map_err(|error| lost(&error))?;
        // It answers with a whole line. It may be stopped.
        let mut answers = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        let time = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
        match poll(&mut answers, Some(&time)) {
            Ok(0) => return Err(lost(&format!("it does not answer within {PATIENCE:?}"))),
            Ok(_) => {}
            Err(error) => return Err(lost(&error)),
        }
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|error| lost(&error))?;
        match answer.trim_end() {
            READY => Ok(()),
            "" => Err(lost(&"it has ended")),
            why => Err(lost(&why)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing left to tidy up: its endpoints have ended with ours.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a folder lies for the time it takes to meet there. The serving process makes it and removes it; this one
/// removes what is left where that one was killed.
struct Meeting(PathBuf);

impl Meeting {
    /// Such a folder, which is not there yet.
    ///
    /// # Errors
    /// If a socket in it would have too long a path.
    fn new() -> Result<Self, Failure> {
        let name = format!("cutthrough-demo-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let path = std::env::temp_dir().join(name);
        if path.join(SOCKET).as_os_str().len() > PATH_MAX {
            let what = format!("folder {path:?} is too long for a socket in it ({PATH_MAX} bytes)");
            return Err(Failure::new(what, "set TMPDIR to a folder with a shorter path"));
        }
        Ok(Self(path))
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Something went wrong at or with the other process.
pub fn lost(why: &dyn std::fmt::Display) -> Failure {
    Failure::from_error(&format!("the serving process failed: {why}"), "run the demo again")
}

/// A channel to the serving process.
#[derive(Debug)]
pub struct Session {
    /// Our endpoint.
    pub endpoint: Endpoint,
    /// Its one channel.
    pub channel: Channel,
}

impl Session {
    /// Sends a request.
    ///
    /// # Errors
    /// If the serving process is gone.
    pub fn ask(&mut self, request: Request) -> Result<(), Failure> {
        let mut control = [0; CONTROL_MAX];
        self.endpoint.send(self.channel, request.write(&mut control)).map_err(|error| lost(&error))
    }

    /// The next message; spins briefly for it, then sleeps.
    ///
    /// # Errors
    /// If the serving process is gone, or says nothing for five seconds.
    pub fn hear(&mut self) -> Result<Incoming, Failure> {
        loop {
            match self.endpoint.wait(Some(PATIENCE)).map_err(|error| lost(&error))? {
                Event::Message(message) => return Ok(message),
                Event::Closed(_, reason) => return Err(lost(&reason)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serving_process_that_is_stopped_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (setups, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Server { child, setups, answers, core: None, cores: vec![0], file_bytes: 1 };
        let refusal = server.open("adaptive", 1 << 16, 1 << 20).expect_err("it says nothing").to_string();
        assert_eq!(refusal, "the serving process failed: it does not answer within 5s; run the demo again");
    }
}
