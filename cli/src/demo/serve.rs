//! The serving process: has the file in memory, and answers requests for its pages.
//!
//! Its standard input says how to open the next endpoint ([`Setup`]); it ends when that ends. So it never outlives the
//! process that started it.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cutthrough::{Channel, Config, Endpoint, Event, NoMemory, Outgoing, Page, Receipt, SendError, Stage, Token, Trace};
use rustix::process::{Pid, getppid};

use super::ask::{self, PULSES, READY, Request, Setup};
use super::socket::{self, Door};
use super::source::{self, PAGE};
use crate::cpu;
use crate::failure::Failure;
use crate::file;
use crate::timeline::Pulse;

/// How long to wait for the other process where it is about to do something.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at whether it still runs meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Serves the pages of a file for as long as there are setups on standard input.
///
/// # Errors
/// If standard output cannot be written. Other failures are told to whoever writes the setups.
pub fn run(path: &Path) -> Result<(), Failure> {
    let parent = getppid();
    let file = file::load(path);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let setup: Setup = match serde_json::from_str(&line) {
            Ok(setup) => setup,
            Err(error) => return say(&error.to_string()),
        };
        let opened = match &file {
            Ok(file) if setup.socket => match open_door(&setup, file.bytes.len()) {
                Ok((folder, door)) => {
                    say(READY)?;
                    let stream = door.let_in(parent);
                    drop(folder);
                    stream.into_iter().for_each(|stream| socket::serve(stream, &file.bytes));
                    continue;
                }
                Err(why) => Err(why),
            },
            Ok(file) => listen(&setup, file.bytes.len()).map(|opened| (opened, &file.bytes)),
            Err(failure) => Err(failure.to_string()),
        };
        match opened {
            Ok(((folder, mut endpoint), file)) => {
                say(READY)?;
                let channel = let_in(&mut endpoint, parent);
                // They have met, or never will.
                drop(folder);
                if let Some(channel) = channel {
                    serve(endpoint, channel, file);
                }
            }
            Err(why) => say(&why)?,
        }
    }
    Ok(())
}

/// A folder of our own for the time it takes to meet there. This process makes it, which tidies up however the other
/// one ends; where this one is killed, the other one does so.
struct Meeting<'a>(&'a Path);

impl<'a> Meeting<'a> {
    fn make(path: &'a Path) -> Result<Self, String> {
        DirBuilder::new().mode(0o700).create(path).map_err(|error| {
            format!("cannot make the folder {}: {error}; set TMPDIR to another one", path.display())
        })?;
        Ok(Self(path))
    }
}

impl Drop for Meeting<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Opens an endpoint as a setup says, or says in one line why not.
fn listen(setup: &Setup, file_bytes: usize) -> Result<(Meeting<'_>, Endpoint), String> {
    prepare(setup, file_bytes)?;
    let mut endpoint = Endpoint::open(config(setup)?).map_err(|error| error.to_string())?;
    let folder = Meeting::make(&setup.folder)?;
    endpoint.listen(&setup.address()).map_err(|error| error.to_string())?;
    Ok((folder, endpoint))
}

/// The same of a socket of the kernel's.
fn open_door(setup: &Setup, file_bytes: usize) -> Result<(Meeting<'_>, Door), String> {
    prepare(setup, file_bytes)?;
    let folder = Meeting::make(&setup.folder)?;
    let door = Door::open(setup).map_err(|error| error.to_string())?;
    Ok((folder, door))
}

/// Looks at the file, and goes to the core of a setup.
fn prepare(setup: &Setup, file_bytes: usize) -> Result<(), String> {
    if setup.file_bytes != file_bytes {
        return Err("the file has changed meanwhile".into());
    }
    if let Some(core) = setup.core {
        cpu::pin(core).map_err(|error| format!("cannot run on core {core}: {error}"))?;
    }
    Ok(())
}

/// The channel of the other process; none if it does not come, or has died.
fn let_in(endpoint: &mut Endpoint, parent: Option<Pid>) -> Option<Channel> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && getppid() == parent {
        if let Ok(Event::Opened(channel)) = endpoint.wait(Some(LOOK)) {
            return Some(channel);
        }
    }
    None
}

/// The settings of both endpoints of a setup.
///
/// # Errors
/// If the policy cannot be read.
pub fn config(setup: &Setup) -> Result<Config, String> {
    Ok(Config {
        policy: setup.policy.parse().map_err(|error| format!("policy {:?}: {error}", setup.policy))?,
        staging_bytes: setup.staging_bytes,
        pool_bytes: setup.memory_bytes,
        landing_bytes: setup.memory_bytes,
        ..Config::default()
    })
}

/// Answers the requests of one channel until it ends.
fn serve(endpoint: Endpoint, channel: Channel, file: &[u8]) {
    let mut server = Server { endpoint, channel, file, pages: Vec::new() };
    while let Ok(event) = server.endpoint.wait(None) {
        let request = match event {
            Event::Message(message) => Request::read(message.control()),
            Event::Closed(..) => return,
            _ => continue,
        };
        // The other process learns of any failure by the end of the channel.
        if request.and_then(|request| server.answer(request)).is_none() {
            return;
        }
    }
}

struct Server<'f> {
    endpoint: Endpoint,
    channel: Channel,
    file: &'f [u8],
    /// The file in pages of the pool, until each is handed over.
    pages: Vec<Option<Page>>,
}

impl<'f> Server<'f> {
    /// Answers a request; none if it is nonsense, or the answer cannot be sent.
    fn answer(&mut self, request: Request) -> Option<()> {
        match request {
            Request::Page(index) => {
                let payload = self.page(index)?;
                self.send(|message| message.write(&index.to_le_bytes()).attach_copy(payload).send())?;
            }
            Request::PageTo(index, token) => {
                let (payload, token) = (self.page(index)?, Token::from_bytes(token));
                self.send(|message| message.write(&index.to_le_bytes()).attach_copy(payload).to(token).send())?;
            }
            Request::PageItself(index) => {
                let page = self.pages.get_mut(index as usize).and_then(Option::take)?;
                self.endpoint.outgoing(self.channel).ok()?.write(&index.to_le_bytes()).attach(page).send().ok()?;
            }
            Request::Fill => {
                self.fill()?;
                self.endpoint.send(self.channel, &[]).ok()?;
            }
            Request::Stream { bytes, laps } => self.stream(bytes as usize, laps)?,
            Request::Traced(bytes) => self.traced(bytes as usize)?,
        }
        Some(())
    }

    fn page(&self, index: u32) -> Option<&'f [u8]> {
        let range = source::page(index as usize, self.file.len());
        (!range.is_empty()).then(|| &self.file[range])
    }

    /// Sends a message, as soon as the ring is not full.
    fn send(&mut self, message: impl Fn(Outgoing<'_>) -> Result<Receipt, SendError>) -> Option<()> {
        loop {
            match self.endpoint.outgoing(self.channel).and_then(&message) {
                Err(SendError::Full) => self.make_way(),
                sent => return sent.ok().map(drop),
            }
        }
    }

    /// Lets the other side's news in while this side waits for it; there are no requests meanwhile.
    fn make_way(&mut self) {
        if self.endpoint.poll().is_none() {
            std::thread::yield_now();
        }
    }

    fn fill(&mut self) -> Option<()> {
        self.pages.clear();
        for piece in self.file.chunks(PAGE) {
            let mut page = self.take(piece.len())?;
            page.copy_from_slice(piece);
            self.pages.push(Some(page));
        }
        Some(())
    }

    /// Pages of the pool, as soon as the other side has given enough of them back.
    fn take(&mut self, bytes: usize) -> Option<Page> {
        let since = Instant::now();
        loop {
            match self.endpoint.page(self.channel, bytes) {
                Err(NoMemory::NoPages) if since.elapsed() < PATIENCE => self.make_way(),
                page => return page.ok(),
            }
        }
    }

    fn stream(&mut self, bytes: usize, laps: u32) -> Option<()> {
        if bytes == 0 {
            return None;
        }
        let file = self.file;
        for _ in 0..laps {
            for piece in file.chunks(bytes) {
                self.send(|message| message.attach_copy(piece).send())?;
            }
        }
        Some(())
    }

    fn traced(&mut self, bytes: usize) -> Option<()> {
        let payload = self.file.get(..bytes)?;
        let mut pulses = Pulses::default();
        self.endpoint.outgoing(self.channel).ok()?.attach_copy(payload).send_traced(&mut pulses).ok()?;
        let count = (pulses.0.len() as u64).to_le_bytes();
        self.send(|message| message.write(&count).send())?;
        for some in pulses.0.chunks(PULSES) {
            let control = ask::write_pulses(some);
            self.send(|message| message.write(&control).send())?;
        }
        Some(())
    }
}

/// Remembers the pulses of a message.
#[derive(Debug, Default)]
pub struct Pulses(pub Vec<Pulse>);

impl Trace for Pulses {
    fn pulse(&mut self, _: Stage, _: u64, len: u64, start: cutthrough::Instant, end: cutthrough::Instant) {
        self.0.push(ask::pulse(start, end, len));
    }
}
