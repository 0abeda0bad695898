//! A lane: one channel of an endpoint of its own, over which a test runs. Both ends use it alike.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{CallError, RequestError};
use cutthrough::rma::MoveError;
use cutthrough::rpc::{RawError, RpcError};
use cutthrough::stat::printable;
use cutthrough::{
    Adapter, Channel, CloseReason, Config, Endpoint, Event, Incoming, NoMemory, Offer, Policy, ReadError, SendError,
};

use super::across::{Mode, placement};
use super::ask::{self, Answer, Setup};
use super::room::NoRoom;
use crate::cpu;
use crate::failure::Failure;

/// How long one end waits for the other where it has nothing else to do.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes a second of which memory is made, or payloads move, at the least: a machine that has other work is as slow.
const SLOW: u64 = 64 << 20;

/// How long so many bytes take where they are moved, or looked at, as slowly as that.
#[must_use]
pub fn spare(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / SLOW)
}

/// Looks in vain between two looks at the clock.
pub const LOOKS: u64 = 1 << 16;

/// Most bytes of a reason why the other end cannot do something.
const REASON_MAX: usize = 4096;

/// Why a test ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The channel has ended.
    #[error("the channel to the other end has ended: {0}")]
    Closed(CloseReason),
    /// A message was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A payload was not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A request was not made.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A call was not answered.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A call has no result.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// Pages did not arrive.
    #[error(transparent)]
    Pages(#[from] MoveError),
    /// There are no pages.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// There is no memory.
    #[error(transparent)]
    Room(#[from] NoRoom),
    /// The other end did not answer.
    #[error("the other end did not answer in {0:?}")]
    Silent(Duration),
    /// The other end cannot do it.
    #[error("the other end refuses: {0}")]
    Refused(String),
    /// The other end said something else than it should; perhaps it is of another version.
    #[error("the other end answered something unexpected; use the same version at both ends")]
    Unexpected,
    /// This process was asked to end.
    #[error("interrupted")]
    Interrupted,
    /// The system gives no more threads.
    #[error(
        "no thread to call with: {0}; raise the limits of processes and memory (ulimit -u, ulimit -v), or end some"
    )]
    Thread(String),
}

impl From<io::Error> for LaneError {
    fn from(error: io::Error) -> Self {
        Self::Thread(error.to_string())
    }
}

impl From<RawError> for LaneError {
    fn from(error: RawError) -> Self {
        RpcError::from(error).into()
    }
}

impl From<LaneError> for Failure {
    fn from(error: LaneError) -> Self {
        Self::from_error(&error, "see that the other end runs, and try again")
    }
}

/// Runs this pinned to one core.
///
/// # Errors
/// Its own error, or that this process may not use that core, or have another thread.
pub fn on_core<R: Send>(core: usize, run: impl FnOnce() -> Result<R, LaneError> + Send) -> Result<R, Failure> {
    let ran = cpu::on(core, run);
    Ok(ran.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Failure::of_start("there is no thread to measure with", &error),
        _ => Failure::new(format!("core {core}: {error}"), "choose another with taskset"),
    })??)
}

/// The settings of an endpoint for this setup.
///
/// # Errors
/// If the policy, the placement or the mode cannot be read.
pub fn config(setup: &Setup) -> Result<Config, Failure> {
    let policy: Policy = setup.policy.parse().map_err(|_| {
        Failure::new(format!("policy {:?} is not known", setup.policy), "use the same version at both ends")
    })?;
    let placement = placement(&setup.placement)
        .map_err(|why| Failure::new(format!("placement: {why}"), "use the same version at both ends"))?;
    let Mode(xdp_mode) = setup
        .xdp_mode
        .parse()
        .map_err(|why| Failure::new(format!("mode of AF_XDP: {why}"), "use the same version at both ends"))?;
    let memory = setup.memory_bytes;
    let config = Config::default();
    Ok(Config {
        policy,
        placement,
        net_xdp: setup.net_xdp,
        xdp_mode,
        staging_bytes: setup.staging_bytes,
        pool_bytes: memory,
        landing_bytes: memory,
        channels: config.channels.max(setup.channels),
        ..config
    })
}

/// Whether an endpoint that listens or has connected has the ring that the setup asks for.
///
/// # Errors
/// Why not, if it has not.
pub fn has_ring(endpoint: &Endpoint, setup: &Setup) -> Result<(), Failure> {
    let is_xdp = |offer: &Offer| offer.adapter == Adapter::Xdp;
    match endpoint.net_offers().into_iter().find(is_xdp).and_then(|offer| offer.declined) {
        Some(why) if setup.net_xdp => {
            Err(Failure::from_error(&format!("the adapter net has no ring of AF_XDP: {why}"), "leave --net-xdp away"))
        }
        _ => Ok(()),
    }
}

/// One channel of an endpoint of its own.
#[derive(Debug)]
pub struct Lane {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The channel; the last one if there are more.
    pub channel: Channel,
    /// Its number, the same at both ends.
    pub number: u32,
    stop: Arc<AtomicBool>,
    /// How long the other end may say nothing.
    patience: Duration,
    /// How much longer while it does a job, and makes its memory.
    spare: Duration,
    /// Looks in vain since it has said something, and when there were [`LOOKS`] of them.
    looks: u64,
    quiet: Instant,
}

impl Lane {
    /// A lane over a channel of this endpoint; posts the landing pages of the setup. Every wait ends when `stop` is
    /// set.
    ///
    /// # Errors
    /// [`LaneError::Memory`].
    pub fn new(
        mut endpoint: Endpoint,
        channel: Channel,
        number: u32,
        setup: &Setup,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LaneError> {
        if let Some((bytes, runs)) = setup.landing {
            endpoint.post(channel, bytes as usize, runs)?;
        }
        Ok(Self {
            endpoint,
            channel,
            number,
            stop,
            patience: PATIENCE,
            spare: Duration::ZERO,
            looks: 0,
            quiet: Instant::now(),
        })
    }

    /// This lane with another patience than [`PATIENCE`].
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// From now on bears with a job of so many bytes: the longest payloads take longer than [`PATIENCE`] where the
    /// machine has other work.
    pub fn bear_with(&mut self, bytes: u64) {
        self.spare = spare(bytes);
    }

    /// How long the other end may say nothing now.
    fn bears(&self) -> Duration {
        self.patience + self.spare
    }

    /// The next message; spins for it.
    ///
    /// # Errors
    /// [`LaneError::Closed`], [`LaneError::Silent`] or [`LaneError::Interrupted`].
    #[inline]
    pub fn hear(&mut self) -> Result<Incoming, LaneError> {
        self.hear_with(|_, message| Ok(message))
    }

    /// What `take` makes of the next message, where it has come: one that is moved, and then looked at, has to be
    /// waited for. Spins for it.
    ///
    /// # Errors
    /// As [`Lane::hear`], or as `take` says.
    #[inline]
    pub fn hear_with<R>(
        &mut self,
        take: impl FnOnce(&mut Endpoint, Incoming) -> Result<R, LaneError>,
    ) -> Result<R, LaneError> {
        loop {
            match self.endpoint.poll() {
                Some(Event::Message(message)) => {
                    self.looks = 0;
                    return take(&mut self.endpoint, message);
                }
                Some(event) => self.heed(&event)?,
                None => self.go_on()?,
            }
        }
    }

    /// The first byte of the next control message, which is not looked at otherwise; spins for it.
    ///
    /// # Errors
    /// As [`Lane::hear`].
    #[inline]
    pub fn hear_op(&mut self) -> Result<u8, LaneError> {
        self.hear_with(|_, message| message.control().first().copied().ok_or(LaneError::Unexpected))
    }

    /// The next message; sleeps for it after a short spin.
    ///
    /// # Errors
    /// [`LaneError::Closed`] or [`LaneError::Silent`].
    pub fn sleep_for(&mut self) -> Result<Incoming, LaneError> {
        loop {
            match self.endpoint.wait(Some(self.bears())) {
                Ok(Event::Message(message)) => return Ok(message),
                Ok(event) => self.heed(&event)?,
                Err(_) => return Err(LaneError::Silent(self.bears())),
            }
        }
    }

    /// Looks once: whether a confirmation has come, and what it says.
    ///
    /// # Errors
    /// As [`Lane::hear`], or [`LaneError::Unexpected`] if it is something else.
    #[inline]
    pub fn look(&mut self) -> Result<Option<u64>, LaneError> {
        match self.endpoint.poll() {
            None => self.go_on().map(|()| None),
            Some(Event::Message(message)) => match ask::read(message.control()) {
                Some(Answer::Taken(count)) => {
                    self.looks = 0;
                    Ok(Some(count))
                }
                _ => Err(LaneError::Unexpected),
            },
            Some(event) => self.heed(&event).map(|()| None),
        }
    }

    /// Sends a control message.
    ///
    /// # Errors
    /// [`LaneError::Send`].
    #[inline]
    pub fn tell(&mut self, control: &[u8]) -> Result<(), LaneError> {
        Ok(self.endpoint.send(self.channel, control)?)
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// [`LaneError::Send`].
    pub fn answer(&mut self, answer: &Answer) -> Result<(), LaneError> {
        let bytes = ask::write(answer).map_err(|_| LaneError::Unexpected)?;
        self.tell(&bytes)
    }

    /// Says that something cannot be done, and why.
    ///
    /// # Errors
    /// [`LaneError::Send`].
    pub fn refuse(&mut self, why: &str) -> Result<(), LaneError> {
        let bytes = ask::write(&Answer::Refused).map_err(|_| LaneError::Unexpected)?;
        self.endpoint.outgoing(self.channel)?.write(&bytes).attach_copy(why.as_bytes()).send()?;
        Ok(())
    }

    /// Waits until the other end says that it is ready.
    ///
    /// # Errors
    /// [`LaneError`], [`LaneError::Refused`] if it is not.
    pub fn ready(&mut self) -> Result<(), LaneError> {
        match self.answered()? {
            Answer::Ready => Ok(()),
            _ => Err(LaneError::Unexpected),
        }
    }

    /// The next answer; sleeps for it after a short spin.
    ///
    /// # Errors
    /// As [`Lane::sleep_for`]; [`LaneError::Refused`], or [`LaneError::Unexpected`] if it is no answer.
    pub fn answered(&mut self) -> Result<Answer, LaneError> {
        let mut message = self.sleep_for()?;
        let answer = ask::read(message.control()).ok_or(LaneError::Unexpected)?;
        if answer != Answer::Refused {
            return Ok(answer);
        }
        if message.payload_len() > REASON_MAX {
            return Err(LaneError::Unexpected);
        }
        let mut why = vec![0; message.payload_len()];
        self.endpoint.read(&mut message, &mut why)?;
        Err(LaneError::Refused(printable(why.trim_ascii())))
    }

    /// That the other end refuses, if it says so in this time.
    pub fn refusal(&mut self, within: Duration) -> Option<LaneError> {
        let patience = std::mem::replace(&mut self.patience, within);
        let answered = self.answered();
        self.patience = patience;
        answered.err().filter(|error| matches!(error, LaneError::Refused(_)))
    }

    /// What is to be done about an event that is no message: nothing, unless it is the end.
    fn heed(&self, event: &Event) -> Result<(), LaneError> {
        match event {
            Event::Closed(channel, reason) if *channel == self.channel => Err(LaneError::Closed(*reason)),
            _ => Ok(()),
        }
    }

    /// Nothing has come at this look.
    #[inline]
    fn go_on(&mut self) -> Result<(), LaneError> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            self.mind_the_time()?;
        }
        if self.stop.load(Ordering::Relaxed) { Err(LaneError::Interrupted) } else { Ok(()) }
    }

    /// An other end that lives, and says nothing, is given up.
    #[cold]
    fn mind_the_time(&mut self) -> Result<(), LaneError> {
        if self.looks == LOOKS {
            self.quiet = Instant::now();
        }
        if self.quiet.elapsed() < self.bears() { Ok(()) } else { Err(LaneError::Silent(self.bears())) }
    }
}
