//! The measuring end's side of the other end: starts it, or finds the one that was started by hand; asks it for lanes
//! and jobs; ends it.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use cutthrough::am::{Node, Settings};
use cutthrough::{AddressError, Channel, Config, ConnectError, Endpoint, SealError, UdpAddressError, UdpCallError};
use cutthrough_node::shm::rendezvous::sweep_own;
use cutthrough_node::udp::address::{is_number, numbers};

use super::across::scheme;
use super::ask::{self, Answer, Ask, Job, Setup};
use super::lane::{Lane, LaneError, PATIENCE, config, has_ring};
use super::way::{Seal, Way};
use crate::address::{self, Use};
use crate::args::Adapter;
use crate::cpu::Pair;
use crate::failure::Failure;
use crate::hint;
use crate::machine;

/// How long an other end that was asked to end may take.
const ENDING: Duration = Duration::from_secs(2);

/// How long an other end on a wire may take to answer before it is asked anew.
const ANSWER: Duration = Duration::from_millis(500);

/// Time between two looks at a process that starts or ends.
const NAP: Duration = Duration::from_millis(1);

/// How long it is waited for why the other end has closed a lane: it says so before.
const SOON: Duration = Duration::from_secs(1);

/// The other end of a measurement.
#[derive(Debug)]
pub struct Peer {
    // Dropped in this order: the other end ends when the lobby is gone, and is then waited for.
    lobby: Lane,
    child: Option<Process>,
    address: String,
    seal: Seal,
}

impl Peer {
    /// Starts an other end of our own on a core, at the far end of this way.
    ///
    /// # Errors
    /// If it cannot be started or does not let us in; says what it said.
    pub fn start(core: usize, way: &Way) -> Result<Self, Failure> {
        let no_address = |error| Failure::new(format!("no address for the other end: {error}"), "try again");
        let address = way.own_address().map_err(no_address)?;
        let seal = way.seal.clone();
        let mut child = Process::start(&["perf", "serve", "--once", "--listen", &address], core, way)?;
        let lobby = connect(&address, &seal, None, |error| match error {
            // It has not come so far yet.
            ConnectError::Address(AddressError::Nobody(_))
            | ConnectError::Net(UdpCallError::Silence(_) | UdpCallError::Nobody) => child.running(),
            error => Err(unreachable(&error, &seal, None)),
        })?;
        Ok(Self { lobby, child: Some(child), address, seal })
    }

    /// Finds the other end that somebody has started at `address`, this way. On this machine it goes to another core
    /// than [`cores`] says to measure on.
    ///
    /// # Errors
    /// If there is none, or it serves somebody else.
    pub fn reach(address: &str, way: &Way) -> Result<Self, Failure> {
        address::check(address, Use::Peer)?;
        let seal = way.seal.clone();
        let far = Far { address, seal: &seal };
        let lobby = connect(address, &seal, Some(far), |error| Err(unreachable(&error, &seal, Some(far))))?;
        let mut peer = Self { lobby, child: None, address: address.to_owned(), seal };
        let core = u32::try_from(cores().first).unwrap_or(u32::MAX);
        match peer.asked(&Ask::Meet { machine: machine::number(), core })? {
            Answer::Ready => Ok(peer),
            _ => Err(LaneError::Unexpected.into()),
        }
    }

    /// Opens a lane with these settings.
    ///
    /// # Errors
    /// If either end has no memory for it, or the other end does not answer.
    pub fn lane(&mut self, setup: &Setup) -> Result<Lane, Failure> {
        let number = match self.asked(&Ask::Open(setup.clone()))? {
            Answer::Opened(number) => number,
            _ => return Err(LaneError::Unexpected.into()),
        };
        let mut endpoint = open(self.seal.apply(config(setup)?)?)?;
        let address = ask::lane_address(&self.address, number);
        let mut channel = None;
        for _ in 0..setup.channels.max(1) {
            let connected = endpoint.connect(&address, PATIENCE);
            channel = Some(connected.map_err(|error| unreachable(&error, &self.seal, None))?);
        }
        has_ring(&endpoint, setup)?;
        let channel = channel.ok_or(LaneError::Unexpected)?;
        let mut lane = Lane::new(endpoint, channel, number, setup, Arc::default())?;
        lane.ready()?;
        Ok(lane)
    }

    /// Opens a station at the other end, where a node attends until it is told to leave: a node with a channel to it,
    /// and its number.
    ///
    /// # Errors
    /// As [`Peer::lane`].
    pub fn station(&mut self, setup: &Setup) -> Result<(Node, Channel, u32), Failure> {
        let number = match self.asked(&Ask::Station(setup.clone()))? {
            Answer::Opened(number) => number,
            _ => return Err(LaneError::Unexpected.into()),
        };
        let mut node = self.node(setup)?;
        let connected = node.connect(&self.address_of(number), PATIENCE);
        let channel = connected.map_err(|error| unreachable(&error, &self.seal, None))?;
        has_ring(node.endpoint(), setup)?;
        Ok((node, channel, number))
    }

    /// A node with these settings, without a channel.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn node(&self, setup: &Setup) -> Result<Node, Failure> {
        Ok(Node::new(open(self.seal.apply(config(setup)?)?)?, Settings::default()))
    }

    /// Where a lane or a station of the other end is.
    #[must_use]
    pub fn address_of(&self, number: u32) -> String {
        ask::lane_address(&self.address, number)
    }

    /// Has the other end attend at a station again.
    ///
    /// # Errors
    /// If it has gone.
    pub fn attend(&mut self, station: u32) -> Result<(), Failure> {
        self.ask(&Ask::Attend { station })
    }

    /// Closes a station at the other end, which does not attend there.
    ///
    /// # Errors
    /// If it has gone.
    pub fn dismiss(&mut self, station: u32) -> Result<(), Failure> {
        self.ask(&Ask::Close { lane: station })
    }

    /// Has a job begun on a lane, and waits until the other end is ready for its first message.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn begin(&mut self, lane: &mut Lane, job: Job) -> Result<(), Failure> {
        lane.bear_with(job.needs());
        self.ask(&Ask::Run { lane: lane.number, job })?;
        Ok(lane.ready()?)
    }

    /// Why a job has failed: what the other end says of it, if it has given the job up, and else this.
    #[must_use]
    pub fn why(&mut self, failure: Failure) -> Failure {
        self.lobby.refusal(SOON).map_or(failure, Failure::from)
    }

    /// Closes a lane at both ends.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn close(&mut self, lane: Lane) -> Result<(), Failure> {
        let number = lane.number;
        drop(lane);
        self.ask(&Ask::Close { lane: number })
    }

    /// Nanoseconds of processor time that the other end has used so far.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn cpu_time(&mut self) -> Result<u64, Failure> {
        match self.asked(&Ask::CpuTime)? {
            Answer::CpuTime(ns) => Ok(ns),
            _ => Err(LaneError::Unexpected.into()),
        }
    }

    /// Whether it is a process that this one has started, on the second of the [`cores`].
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.child.is_some()
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), Failure> {
        Ok(self.lobby.tell(&ask::write(ask)?)?)
    }

    fn asked(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        self.ask(ask)?;
        Ok(self.lobby.answered()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        self.lobby.endpoint.close(self.lobby.channel);
        if !child.end() {
            // What was killed has left its name.
            sweep_own();
        }
    }
}

/// An endpoint with these settings.
///
/// # Errors
/// If there is no memory for it.
pub(super) fn open(config: Config) -> Result<Endpoint, Failure> {
    Endpoint::open(config).map_err(|error| Failure::of_memory(&error))
}

/// The lobby of whoever listens at `address`; `again` is asked about each error whether to try once more.
fn connect(
    address: &str,
    seal: &Seal,
    far: Option<Far<'_>>,
    mut again: impl FnMut(ConnectError) -> Result<(), Failure>,
) -> Result<Lane, Failure> {
    let mut endpoint = open(seal.apply(Config::default())?)?;
    let begun = Instant::now();
    // Nobody says that nobody is there yet, on a wire: asked again and again, it is heard of when a child has died.
    let patience = if scheme(address).is_some_and(|adapter| adapter != Adapter::Shm) { ANSWER } else { PATIENCE };
    let channel = loop {
        match endpoint.connect(&ask::lobby_address(address), patience) {
            Ok(channel) => break channel,
            Err(error) if begun.elapsed() < PATIENCE => again(error)?,
            Err(error) => return Err(unreachable(&error, seal, far)),
        }
        std::thread::sleep(NAP);
    };
    lobby(endpoint, channel)
}

fn lobby(endpoint: Endpoint, channel: Channel) -> Result<Lane, Failure> {
    let [policy, placement, xdp_mode] = [const { String::new() }; 3];
    let (staging_bytes, memory_bytes) = (0, 0);
    let setup =
        Setup { policy, placement, net_xdp: false, xdp_mode, staging_bytes, memory_bytes, landing: None, channels: 1 };
    Ok(Lane::new(endpoint, channel, 0, &setup, Arc::new(AtomicBool::new(false)))?)
}

/// An other end that somebody starts by hand.
#[derive(Clone, Copy)]
pub(super) struct Far<'a> {
    address: &'a str,
    seal: &'a Seal,
}

impl Far<'_> {
    /// Which number was called, if its host is a name: that may have others, too.
    fn number(self) -> String {
        let (address, _) = self.address.split_once('#').unwrap_or((self.address, ""));
        if is_number(address) {
            return String::new();
        }
        numbers(address).map(|number| format!(", which is {number} here")).unwrap_or_default()
    }

    /// What starts it.
    fn command(self) -> String {
        let (address, _) = self.address.split_once('#').unwrap_or((self.address, ""));
        hint::command(&format!("perf serve --listen {address}{}", self.seal.option()))
    }
}

/// Why the other end cannot be called by who seals so; `far` is that one, if it has to be started by hand.
pub(super) fn unreachable(error: &ConnectError, seal: &Seal, far: Option<Far<'_>>) -> Failure {
    let remedy = match (error, far) {
        (ConnectError::Address(AddressError::Nobody(_)), Some(far)) => {
            return Failure::new(format!("nobody listens at {}", far.address), format!("start '{}'", far.command()));
        }
        (ConnectError::Net(UdpCallError::Silence(_)), Some(far)) => {
            let remedy = format!(
                "start '{}' there, and see that its interface is up and that no firewall keeps UDP away",
                far.command()
            );
            return Failure::new(format!("nobody answers at {}{}", far.address, far.number()), remedy);
        }
        (ConnectError::Net(UdpCallError::Silence(time)), None) => {
            let what = format!("the other end does not answer within {time:?}");
            return Failure::new(
                what,
                "let UDP through to its port and the next ones, on each of which a lane listens",
            );
        }
        (ConnectError::Net(UdpCallError::Key), _) => {
            return Failure::new("the keys do not fit", seal.fitting());
        }
        (ConnectError::Net(UdpCallError::Peer(SealError::Unknown(peer))), _) => {
            let what = format!("the public key {peer} of the other end is not in the key file of this one");
            return Failure::new(what, "add the line public:HEX that was printed when the other end's key was made");
        }
        (ConnectError::Net(UdpCallError::NoKey), _) => {
            return Failure::new("only who has a key can call a peer by its public key", "give --key FILE");
        }
        (ConnectError::Timeout(time), _) => {
            let what = format!("the other end does not answer within {time:?}");
            return Failure::new(what, "see that it is not stopped, and may open enough files (ulimit -n)");
        }
        (ConnectError::NetAddress(UdpAddressError::Socket { error: said, .. }), _)
            if said.kind() == io::ErrorKind::WouldBlock =>
        {
            "raise the limits of processes and memory (ulimit -u, ulimit -v), or end some"
        }
        (ConnectError::NetAddress(_), Some(_)) => "check the address that is given to --peer",
        // That is this machine's own.
        (ConnectError::NetAddress(_) | ConnectError::Net(UdpCallError::Unreachable { .. }), None) => {
            "see that the loopback interface is up: ip link set lo up"
        }
        // Either end may be the one that has no room.
        (ConnectError::Handshake(_), _) => {
            "use the same version at both ends, and raise their limits of open files and memory (ulimit -n, ulimit -v)"
        }
        (ConnectError::Net(UdpCallError::Unreachable { .. } | UdpCallError::OtherFamily { .. }), _) => {
            "check the address that is given to --peer, and the routes of this machine: ip route get HOST"
        }
        (_, Some(far)) => &format!("start '{}'", far.command()),
        (_, None) => "see that the other end runs, and try again",
    };
    Failure::from_error(error, remedy)
}

/// A process that we have started, which ends with this value.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts this program with these words, on a core, at the far end of this way.
    pub(super) fn start(words: &[&str], core: usize, way: &Way) -> Result<Self, Failure> {
        let refuse = |error: std::io::Error| Failure::of_start("the other end cannot be started", &error);
        let (options, key) = way.child();
        let mut child = Command::new(std::env::current_exe().map_err(refuse)?)
            .args(words)
            .args(["--core", &core.to_string()])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(refuse)?;
        if let Some(mut stdin) = child.stdin.take() {
            // If it does not read, it has ended, and has said why.
            let _ = stdin.write_all(key.as_bytes());
        }
        Ok(Self(child))
    }

    /// Fails with what it said if it has ended.
    pub(super) fn running(&mut self) -> Result<(), Failure> {
        if self.ended().is_none() {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            // What cannot be read cannot be told.
            let _ = stderr.read_to_string(&mut said);
        }
        let said = said.lines().next().unwrap_or("it said nothing");
        let said = said.strip_prefix("cutthrough: ").unwrap_or(said);
        let (what, remedy) = said.split_once("; ").unwrap_or((said, "try again"));
        Err(Failure::new(what, remedy))
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Waits until it has ended by itself, and ends it if it does not. Whether it ended in good order.
    pub(super) fn end(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < ENDING {
            if let Some(status) = self.ended() {
                return status.success();
            }
            std::thread::sleep(NAP);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// The two cores of a measurement: two different ones, if this process may use two.
#[must_use]
pub fn cores() -> Pair {
    Pair::apart().unwrap_or_else(Pair::together)
}
