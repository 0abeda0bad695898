//! `perf serve`: the other end of a measurement. Sleeps until it is asked for something.

mod lobby;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use cutthrough::{AddressError, Channel, Config, Endpoint, Event, ListenError, UdpAddressError};
use cutthrough_node::shm::rendezvous::{NAME_MAX, PATH_MAX, socket_path};
use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::am::station::Station;
use super::answer;
use super::ask::{self, Answer, Ask, Setup};
use super::lane::{Lane, LaneError, PATIENCE, config, has_ring};
use super::room::Budget;
use super::way::{self, Seal};
use crate::address::{self, Use};
use crate::args::ServeArgs;
use crate::cpu;
use crate::failure::Failure;
use crate::hint;
use crate::machine;
use crate::output::Output;
use lobby::{Desk, Heard, Lobby, Said};

/// Time between two looks at what else happens, while somebody who should come has not come yet.
const LOOK: Duration = Duration::from_millis(50);

/// How long a starter may take to come when another one has come before it, and has gone: it tries all the time.
const COMING: Duration = Duration::from_secs(1);

/// Most channels that a client may have opened on a lane.
const CHANNELS_MAX: u32 = 4096;

/// Addresses that are tried for a lane: another program may have the first ones, or other lanes. Beside a name all.
const TRIES: u32 = 128;

/// Serves until it is ended by a signal, or, with `--once`, until its first client has gone.
///
/// # Errors
/// If the address cannot be used, the core is not ours or the file cannot be read.
pub fn run(args: &ServeArgs, output: Output) -> Result<(), Failure> {
    way::take_place(&args.started)?;
    address::check(&args.listen, Use::Listen)?;
    leaves_room_for_lanes(&args.listen)?;
    let seal = Seal::of_server(args)?;
    let ending = Ending::watch().map_err(|error| Failure::of_start("signals cannot be heeded", &error))?;
    let open = || Endpoint::open(seal.apply(Config::default())?).map_err(refusal);
    let at = ask::lobby_address(&args.listen);
    if at != args.listen && std::env::var_os("CUTTHROUGH_LEASE").is_none() {
        // Whether there can be such a ring is said now, not to the first client; but one that is leased is given once.
        open()?.listen(&args.listen).map_err(refusal)?;
    }
    let mut lobby = open()?;
    lobby.listen(&at).map_err(refusal)?;
    let port = lobby.net_address().map(|address| address.port());
    let address = match (args.listen.strip_suffix(":0"), port) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => args.listen.clone(),
    };
    let (called, option) = (called(&address), seal.option());
    let measure = hint::command(&format!("perf lat --peer {called}{option}"));
    output.say(&format!("Waiting at {address}; measure with\n  {measure}"))?;
    // Whoever starts this for itself says on which core.
    let time = match (args.once, args.started.core) {
        (false, _) => Time::Always,
        (true, None) => Time::Once,
        (true, Some(_)) => Time::OnceForStarter,
    };
    serve(lobby, address, seal, &ending, time, Bounds::default())
}

/// Whether the lanes of an other end that listens at `address` can be named after it. What is no address itself is left
/// to whoever listens there.
///
/// # Errors
/// If it is too long for that.
fn leaves_room_for_lanes(address: &str) -> Result<(), Failure> {
    let Some(name) = address.strip_prefix("shm:").filter(|_| socket_path(address).is_ok()) else { return Ok(()) };
    let Err(error) = socket_path(&ask::lane_address(address, ask::LONGEST)) else { return Ok(()) };
    let what = format!("{address} is too long for lanes, whose names are longer");
    let spare = ask::lane_address("", ask::LONGEST).len();
    let remedy = match error {
        AddressError::Name(_) => format!("use a name of at most {} letters", NAME_MAX - spare),
        AddressError::TooLong(_) if name.starts_with('/') => {
            format!("use a path of at most {} bytes", PATH_MAX - spare)
        }
        error => return Err(Failure::from_error(&error, "choose another name")),
    };
    Err(Failure::new(what, remedy))
}

/// What a client can have of the other end.
#[derive(Clone, Debug)]
struct Bounds {
    /// Memory.
    budget: Budget,
    /// Time in which it says nothing where it should.
    patience: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { budget: Budget::default(), patience: PATIENCE }
    }
}

/// How long it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// Until a signal ends it.
    Always,
    /// Until the first client has gone.
    Once,
    /// Until then, or until it is clear that whoever has started this does not come.
    OnceForStarter,
}

/// Serves whoever comes to this endpoint, which listens.
fn serve(
    lobby: Endpoint,
    address: String,
    seal: Seal,
    ending: &Ending,
    time: Time,
    bounds: Bounds,
) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::of_start("the lobby cannot be opened", &error);
    let (lobby, heard, desk) = Lobby::open(lobby).map_err(cannot)?;
    std::thread::scope(|scope| {
        let attends = std::thread::Builder::new().name("lobby".into());
        let thread = attends.spawn_scoped(scope, || lobby.attend(ending)).map_err(cannot)?;
        Server::new(heard, desk, address, seal, Arc::clone(&ending.asked), bounds).serve(time);
        // It ends when nobody stands at its desk any more.
        let _ = thread.join();
        Ok(())
    })
}

/// How the one that listens at an address is called: one that listens at all addresses, by any of them.
fn called(address: &str) -> String {
    ["0.0.0.0", "[::]"]
        .iter()
        .fold(address.to_owned(), |address, any| address.replacen(&format!(":{any}:"), ":HOST:", 1))
}

fn refusal(error: impl std::error::Error + 'static) -> Failure {
    let remedy = match (&error as &(dyn std::error::Error + 'static)).downcast_ref() {
        Some(ListenError::Net(UdpAddressError::Socket { address, error: said }))
            if said.kind() == io::ErrorKind::PermissionDenied && address.port() < ask::FIRST_PORT =>
        {
            "choose a port from 1024 on, or run it as root"
        }
        Some(
            ListenError::Address(_) | ListenError::Net(UdpAddressError::Host { .. } | UdpAddressError::Nowhere(_)),
        ) => "check the address that is given to --listen",
        _ => &format!("see '{}'", hint::command("info")),
    };
    Failure::from_error(&error, remedy)
}

/// Whether somebody else listens there.
fn is_taken(error: &ListenError) -> bool {
    match error {
        ListenError::Net(UdpAddressError::Socket { error: said, .. }) => {
            said.raw_os_error() == Some(Errno::ADDRINUSE.raw_os_error())
        }
        ListenError::Address(AddressError::InUse(_)) => true,
        _ => false,
    }
}

/// Learns that this process shall end, also while it sleeps.
struct Ending {
    asked: Arc<AtomicBool>,
    bell: UnixStream,
}

impl Ending {
    fn watch() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let (bell, rope) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::low_level::pipe::register(signal, rope.try_clone()?)?;
        }
        Ok(Self { asked, bell })
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The other end, with everything that it holds for its clients.
struct Server {
    heard: Receiver<Heard>,
    desk: Desk,
    /// What was heard in the lobby while a client was let in to its lane.
    later: VecDeque<Heard>,
    address: String,
    seal: Seal,
    /// Every lane by its number, and the lobby channel of the client that it belongs to.
    lanes: HashMap<u32, (Channel, Lane)>,
    /// Every station, numbered with the lanes, and the lobby channel of its client.
    stations: HashMap<u32, (Channel, Station)>,
    opened: u32,
    bounds: Bounds,
    /// The cores that this process may use.
    cores: Vec<usize>,
    /// Whether this process shall end.
    ending: Arc<AtomicBool>,
    parent: Option<Pid>,
}

impl Server {
    fn new(
        heard: Receiver<Heard>,
        desk: Desk,
        address: String,
        seal: Seal,
        ending: Arc<AtomicBool>,
        bounds: Bounds,
    ) -> Self {
        Self {
            heard,
            desk,
            later: VecDeque::new(),
            address,
            seal,
            lanes: HashMap::new(),
            stations: HashMap::new(),
            opened: 0,
            bounds,
            cores: cpu::allowed(),
            ending,
            parent: getppid(),
        }
    }

    fn serve(mut self, time: Time) {
        // Whoever has started us comes at once, or has died meanwhile.
        let within = |patience| (time == Time::OnceForStarter).then(|| Instant::now() + patience);
        let (mut until, mut present, mut served) = (within(PATIENCE), 0_usize, None);
        while let Some(heard) = self.next(until) {
            match heard {
                Heard::Came => {
                    present += 1;
                    until = None;
                }
                Heard::Asked(client, ask, _) => {
                    served = Some(client);
                    self.heed(client, ask);
                }
                Heard::Gone(client) => {
                    self.lanes.retain(|_, (owner, _)| *owner != client);
                    self.stations.retain(|_, (owner, _)| *owner != client);
                    if time != Time::Always && served == Some(client) {
                        break;
                    }
                    present = present.saturating_sub(1);
                    // It was another, or the one that has started us, and wants nothing any more.
                    if present == 0 {
                        until = within(COMING);
                    }
                }
            }
        }
    }

    /// The next thing that is heard; sleeps for it without using the processor. None if this process shall end, or at
    /// `until`.
    fn next(&mut self, until: Option<Instant>) -> Option<Heard> {
        loop {
            if self.is_ending() || until.is_some_and(|until| Instant::now() >= until || self.is_orphan()) {
                return None;
            }
            if let Some(heard) = self.later.pop_front() {
                return Some(heard);
            }
            if until.is_none() {
                return self.heard.recv().ok().filter(|_| !self.is_ending());
            }
            match self.heard.recv_timeout(LOOK) {
                Ok(heard) => return Some(heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Whether the process that started this one has died.
    fn is_orphan(&self) -> bool {
        getppid() != self.parent
    }

    /// Does what a client asks for. What goes wrong on a lane ends that lane alone.
    fn heed(&mut self, client: Channel, ask: Ask) {
        match ask {
            Ask::Open(setup) => {
                // The client hears of a refusal, and has gone if it does not.
                if let Err(refused) = self.open(client, &setup) {
                    self.desk.say(client, Said::Refusal(refused.to_string()));
                }
            }
            Ask::Run { lane, job } => {
                let Some((_, lane)) = self.lanes.get_mut(&lane).filter(|(owner, _)| *owner == client) else {
                    return;
                };
                lane.bear_with(job.needs());
                let done = match job.refusal() {
                    Some(why) => lane.refuse(&why),
                    None => match self.bounds.budget.share(job.needs()) {
                        Some(_share) => answer::run(lane, job),
                        None => lane.refuse("all that is kept for one client is too much; use smaller sizes"),
                    },
                };
                if let Err(error) = done {
                    let number = lane.number;
                    // Before the lane ends, which says nothing of why.
                    if let Some(why) = given_up(&error) {
                        self.desk.say(client, Said::Refusal(why));
                    }
                    self.lanes.remove(&number);
                }
            }
            Ask::Close { lane } => {
                self.lanes.retain(|number, (owner, _)| *number != lane || *owner != client);
                self.stations.retain(|number, (owner, _)| *number != lane || *owner != client);
            }
            Ask::Station(setup) => {
                if let Err(refused) = self.open_station(client, &setup) {
                    self.desk.say(client, Said::Refusal(refused.to_string()));
                }
            }
            Ask::Attend { station } => self.attend(client, station),
            Ask::CpuTime => self.say(client, Answer::CpuTime(cpu_time())),
            Ask::Meet { machine, core } => {
                self.keep_apart(machine, core);
                self.say(client, Answer::Ready);
            }
        }
    }

    /// Goes to another core than that of a client on this machine. For one on another machine any core will do.
    fn keep_apart(&self, machine: Option<u128>, core: u32) {
        let here = machine.is_some() && machine == machine::number();
        let apart = cpu::apart_from(core as usize, &self.cores).filter(|_| here);
        // Where the kernel does not let this process move, it stays: it may be measured there all the same.
        let _ = apart.map_or_else(|| cpu::allow(&self.cores), cpu::pin);
    }

    fn say(&self, client: Channel, answer: Answer) {
        self.desk.say(client, Said::Answer(answer));
    }

    /// Opens a lane, tells its number, lets the client in and tells it so.
    fn open(&mut self, client: Channel, setup: &Setup) -> Result<(), Failure> {
        if setup.channels > CHANNELS_MAX {
            return Err(Failure::new(format!("there are {CHANNELS_MAX} channels at most"), "use fewer"));
        }
        let (mut endpoint, number) = self.listening(setup)?;
        has_ring(&endpoint, setup)?;
        self.say(client, Answer::Opened(number));
        let mut channel = self.let_in(client, &mut endpoint)?;
        for _ in 1..setup.channels {
            channel = self.let_in(client, &mut endpoint)?;
        }
        let lane = Lane::new(endpoint, channel, number, setup, Arc::clone(&self.ending))?;
        let mut lane = lane.within(self.bounds.patience);
        lane.answer(&Answer::Ready)?;
        self.lanes.insert(number, (client, lane));
        Ok(())
    }

    /// An endpoint that listens at the next address that nobody has, and the number that this address has.
    fn listening(&mut self, setup: &Setup) -> Result<(Endpoint, u32), Failure> {
        let mut endpoint = Endpoint::open(self.seal.apply(config(setup)?)?).map_err(refusal)?;
        for tries in 1.. {
            self.opened += 1;
            match endpoint.listen(&ask::lane_address(&self.address, self.opened)) {
                Ok(()) => break,
                Err(taken) if tries < TRIES && is_taken(&taken) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        Ok((endpoint, self.opened))
    }

    /// Opens a station, tells its number, lets the client in and attends.
    fn open_station(&mut self, client: Channel, setup: &Setup) -> Result<(), Failure> {
        let (endpoint, number) = self.listening(setup)?;
        let mut station = Station::new(endpoint, &self.bounds.budget, self.bounds.patience, Arc::clone(&self.ending));
        self.say(client, Answer::Opened(number));
        let until = Instant::now() + PATIENCE;
        while !station.let_in(LOOK) {
            if self.is_ending() || Instant::now() >= until || self.has_gone(client) {
                return Err(LaneError::Silent(PATIENCE).into());
            }
        }
        self.stations.insert(number, (client, station));
        self.attend(client, number);
        Ok(())
    }

    /// Attends at a station of a client's. What goes wrong there ends that station alone.
    fn attend(&mut self, client: Channel, number: u32) {
        let station = self.stations.get_mut(&number).filter(|(owner, _)| *owner == client);
        if let Some((_, station)) = station
            && station.attend().is_err()
        {
            self.stations.remove(&number);
        }
    }

    /// The channel that a client opens to its lane.
    fn let_in(&mut self, client: Channel, lane: &mut Endpoint) -> Result<Channel, LaneError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Ok(Event::Opened(channel)) = lane.wait(Some(LOOK)) {
                return Ok(channel);
            }
            if self.is_ending() {
                return Err(LaneError::Interrupted);
            }
            if Instant::now() >= until || self.has_gone(client) {
                return Err(LaneError::Silent(PATIENCE));
            }
        }
    }

    /// Whether a client has left the lobby. What else was heard there is heeded later.
    fn has_gone(&mut self, client: Channel) -> bool {
        self.later.extend(self.heard.try_iter());
        self.later.iter().any(|heard| matches!(heard, Heard::Gone(gone) if *gone == client))
    }
}

/// Why a job was given up, for the client; none if that has left its lane.
fn given_up(error: &LaneError) -> Option<String> {
    match error {
        LaneError::Closed(_) => None,
        LaneError::Silent(time) => Some(format!(
            "the measuring end said nothing for {time:?}; try again with smaller sizes, or on a machine less busy"
        )),
        error => Some(error.to_string()),
    }
}

/// Nanoseconds of processor time that this process has used.
#[must_use]
pub fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
mod tests;
