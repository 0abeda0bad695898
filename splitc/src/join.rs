//! How ranks find each other.
//!
//! Every rank listens at its address, connects to all ranks below it, and waits for all ranks above it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{self, Node};
use cutthrough::{AddressError, Channel, Config, ConnectError, Endpoint, HandshakeError, Keys, ListenError};
use cutthrough::{UdpAddressError, UdpCallError};

use crate::Error;
use crate::part::{self, HELLO, Part};
use crate::world::World;

/// How long ranks wait for each other, where nothing else is said.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a rank may take to come.
const START: Duration = Duration::from_secs(30);
/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Time between two attempts.
const NAP: Duration = Duration::from_millis(2);
/// Bytes of a channel's pool: what goes in one direction, and answers, each up to half of it.
const POOL: u64 = 16 << 20;
/// Bytes of a channel's landing memory: what is on its way to this rank over a network lands there.
const LANDING: u64 = 16 << 20;

/// Characters of a job's name.
const NAME: usize = 40;
/// What a program's user sets where there has to be a key.
const KEYLESS: &str = "no key is configured: set CUTTHROUGH_KEY, or ask for plain text by CUTTHROUGH_INSECURE=1 \
                       (Settings::keys, Settings::insecure)";

/// Who a rank is, and where the others are. Settings may be added: write those that shall be others, and
/// `..Settings::alone()`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its number, from 0.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Where each rank listens: one address for each, or one with `{rank}` in it.
    pub addresses: Vec<String>,
    /// The name of the job: a rank of another one is not let in.
    pub job: String,
    /// Keys for channels over a network.
    pub keys: Option<Arc<Keys>>,
    /// Whether channels over a network may be plain text where there are no keys.
    pub insecure: bool,
    /// How long a rank waits for another.
    pub deadline: Duration,
    /// How long a rank may take to come.
    pub start: Duration,
    /// The network that is not there, each rank on the host of its address ([`cutthrough::simulated`]): to try a
    /// program against what networks do, with its ranks in one process ([`World::threads_at`]). There is one only with
    /// the feature `simulated`.
    pub network: Option<cutthrough::simulated::Network>,
}

impl Settings {
    /// A rank that is alone.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            addresses: Vec::new(),
            job: String::new(),
            keys: None,
            insecure: false,
            deadline: DEADLINE,
            start: START,
            network: None,
        }
    }

    /// What the environment says, as `cutthrough run`, PMI, Open MPI or Slurm have set it (the first of these that is
    /// there); alone if it says nothing, as in the shell of an allocation of Slurm, by hand.
    ///
    /// | | rank, size | name of the job |
    /// |---|---|---|
    /// | `cutthrough run` | `CUTTHROUGH_RANK`, `CUTTHROUGH_SIZE` | `CUTTHROUGH_JOB` |
    /// | PMI (MPICH, Intel MPI) | `PMI_RANK`, `PMI_SIZE` | `PMI_JOBID` |
    /// | Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | `PMIX_NAMESPACE`, `OMPI_MCA_ess_base_jobid` |
    /// | Slurm | `SLURM_PROCID`, `SLURM_NTASKS` | `SLURM_JOB_ID` and `SLURM_STEP_ID` |
    ///
    /// Any job can be named by `CUTTHROUGH_JOB`. One that is not named so far is known by its addresses, if they are
    /// given, or by the number of the process that has started the rank.
    ///
    /// `CUTTHROUGH_ADDRESSES` has the addresses of all ranks, with commas between them, or one with `{rank}` in it.
    /// Without it every rank has to be on this machine and run as the same user: rank R listens at
    /// `shm:splitc-JOB-R`. `CUTTHROUGH_KEY` is the text of a key file, for addresses of a network;
    /// `CUTTHROUGH_INSECURE=1` does without. `CUTTHROUGH_DEADLINE` and `CUTTHROUGH_START` are seconds.
    ///
    /// # Errors
    /// [`Error::Variables`], which names the variable and says what to do.
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// [`Settings::from_environment`], of variables that `variable` knows.
    ///
    /// # Errors
    /// As there.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        const STARTERS: [(&str, &str); 4] = [
            ("CUTTHROUGH_RANK", "CUTTHROUGH_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("SLURM_PROCID", "SLURM_NTASKS"),
        ];
        let number = |name: &str| -> Result<u32, Error> {
            let text = variable(name).ok_or_else(|| wrong(format!("{name} is missing; set it as well")))?;
            text.parse().map_err(|_| wrong(format!("{name} is {text:?}; it has to be a whole number")))
        };
        let seconds = |name: &str, default: Duration| match variable(name).map(|text| (text.parse::<f64>(), text)) {
            None => Ok(default),
            Some((Ok(seconds), _)) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
            Some((_, text)) => Err(wrong(format!("{name} is {text:?}; it has to be a number of seconds above 0"))),
        };
        let mut settings = Self {
            deadline: seconds("CUTTHROUGH_DEADLINE", DEADLINE)?,
            start: seconds("CUTTHROUGH_START", START)?,
            insecure: variable("CUTTHROUGH_INSECURE").is_some_and(|value| value != "0"),
            ..Self::alone()
        };
        // Slurm tells the shell of an allocation how many ranks there may be: that starts none.
        let says = |name: &str| name != "SLURM_NTASKS" && variable(name).is_some();
        let found = STARTERS.iter().find(|(rank, size)| says(rank) || says(size));
        let Some((rank, size)) = found else { return Ok(settings) };
        (settings.rank, settings.size) = (number(rank)?, number(size)?);
        if settings.rank >= settings.size {
            return Err(wrong(format!(
                "{rank} is {}, and {size} is {}; ranks count from 0",
                settings.rank, settings.size
            )));
        }
        if let Some(text) = variable("CUTTHROUGH_KEY") {
            let keys = Keys::from_text(&text).map_err(|error| wrong(format!("CUTTHROUGH_KEY: {error}")))?;
            settings.keys = Some(Arc::new(keys));
        }
        settings.job = job(rank, &variable);
        settings.addresses = match variable("CUTTHROUGH_ADDRESSES") {
            Some(list) => list.split(',').map(|address| address.trim().to_owned()).collect(),
            None if settings.size > 1 && is_elsewhere(&variable, settings.size) => {
                return Err(wrong(
                    "the ranks are on several machines; set CUTTHROUGH_ADDRESSES, such as \
                                  udp:node1:7000,udp:node2:7000, and CUTTHROUGH_KEY"
                        .into(),
                ));
            }
            None => vec![format!("shm:splitc-{}-{{rank}}", settings.job)],
        };
        let given = settings.addresses.len();
        if given != settings.size as usize
            && !(given == 1 && settings.addresses[0].contains("{rank}"))
            && settings.size > 1
        {
            return Err(wrong(format!(
                "CUTTHROUGH_ADDRESSES has {given} addresses for {} ranks; give each one, or one with {{rank}} in it",
                settings.size
            )));
        }
        Ok(settings)
    }

    fn address(&self, rank: u32) -> String {
        let own = if self.addresses.len() == 1 { self.addresses.first() } else { self.addresses.get(rank as usize) };
        own.map_or_else(String::new, |address| address.replace("{rank}", &rank.to_string()))
    }

    /// The host that this rank is on, if there is a network that is not there.
    fn host(&self) -> Result<Option<cutthrough::simulated::Host>, Error> {
        let Some(network) = &self.network else { return Ok(None) };
        let address = self.address(self.rank);
        let socket = address.strip_prefix("udp:").and_then(|rest| rest.parse::<std::net::SocketAddr>().ok());
        let socket = socket.ok_or_else(|| {
            let why = format!("{address:?} is on no simulated host; it has to be udp:NUMBER:PORT");
            Error::Endpoint { rank: self.rank, why }
        });
        socket.map(|socket| network.host(socket.ip())).map(Some)
    }
}

fn wrong(text: String) -> Error {
    Error::Variables(text)
}

/// The name of the job, of characters that a name of shared memory may have. Its starter is the one that has set the
/// variable `rank`. What others have set names what that starter runs in, where several jobs may run at the same time.
fn job(rank: &str, variable: &impl Fn(&str) -> Option<String>) -> String {
    let by_starter = || match rank {
        "PMI_RANK" => variable("PMI_JOBID"),
        "OMPI_COMM_WORLD_RANK" => variable("PMIX_NAMESPACE").or_else(|| variable("OMPI_MCA_ess_base_jobid")),
        "SLURM_PROCID" => Some(format!("{}.{}", variable("SLURM_JOB_ID")?, variable("SLURM_STEP_ID")?)),
        _ => None,
    };
    // On another machine the process that has started a rank has another number. No two jobs have the same addresses.
    let by_place = || match variable("CUTTHROUGH_ADDRESSES") {
        Some(_) => "by-addresses".to_owned(),
        None => format!("p{}", std::os::unix::process::parent_id()),
    };
    let name = variable("CUTTHROUGH_JOB").or_else(by_starter).unwrap_or_else(by_place);
    let usable = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let short: String = name.chars().map(usable).take(NAME).collect();
    // Long names may begin alike.
    if name.chars().nth(NAME).is_some() { format!("{:.24}{:016x}", short, hash(&name)) } else { short }
}

/// Whether some ranks are on other machines, as far as their starter says.
fn is_elsewhere(variable: &impl Fn(&str) -> Option<String>, size: u32) -> bool {
    let number = |name| variable(name).and_then(|text| text.parse::<u32>().ok());
    let nodes = ["SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"].into_iter().find_map(number);
    let local = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"].into_iter().find_map(number);
    // Ranks that are all on one machine may have been given more of them.
    local.map_or_else(|| nodes.is_some_and(|nodes| nodes > 1), |local| local != size)
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Whether another attempt may succeed where this one has failed: the other rank has not come so far yet.
const fn is_early(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Address(AddressError::Nobody(_) | AddressError::Busy(_))
            | ConnectError::Net(UdpCallError::Silence(_) | UdpCallError::Nobody)
            | ConnectError::Handshake(HandshakeError::Socket(_))
            | ConnectError::Timeout(_)
    )
}

impl World {
    /// Takes part in the job that the environment names: [`Settings::from_environment`].
    ///
    /// # Errors
    /// As there and as [`World::join`].
    pub fn from_environment() -> Result<Self, Error> {
        Self::join(&Settings::from_environment()?)
    }

    /// Takes part in a job. Returns when this rank has a channel to every other. When a world is over, by
    /// [`World::finish`], the same ranks may join again, with the same settings; not before.
    ///
    /// # Errors
    /// [`Error::Absent`], which names the ranks that have not come; [`Error::Endpoint`] if this one cannot listen, or
    /// the keys do not fit.
    pub fn join(settings: &Settings) -> Result<Self, Error> {
        let &Settings { rank, size, deadline, start, .. } = settings;
        if rank >= size {
            return Err(Error::NoRank { rank, size });
        }
        let begun = Instant::now();
        let unable = |error: &dyn std::fmt::Display| Error::Endpoint { rank, why: error.to_string() };
        let config = Config {
            pool_bytes: POOL,
            landing_bytes: LANDING,
            deadline,
            keys: settings.keys.clone(),
            insecure: settings.insecure,
            host: settings.host()?,
            ..Config::default()
        };
        let endpoint = Endpoint::open(config).map_err(|error| unable(&error))?;
        let job = hash(&settings.job);
        let part = Part::new(rank, size, job);
        let mut node = Node::with_state(endpoint, am::Settings { deadline, ..am::Settings::default() }, part);
        part::serve(&mut node);
        if size > 1 {
            node.listen(&settings.address(rank)).map_err(|error| match error {
                ListenError::Net(UdpAddressError::NoKey) => unable(&KEYLESS),
                error => unable(&error),
            })?;
        }
        let mut world = Self::new(node, (rank, size), deadline);
        let absent = |ranks: Vec<u32>| {
            let at = ranks.first().map_or_else(String::new, |rank| settings.address(*rank));
            Error::Absent { ranks, within: start, at }
        };
        let hello: Vec<u8> = [size, rank].into_iter().flat_map(u32::to_le_bytes).chain(job.to_le_bytes()).collect();
        for lower in 0..rank {
            let address = settings.address(lower);
            let channel = loop {
                match world.node.connect(&address, ATTEMPT) {
                    Ok(channel) => break channel,
                    Err(error) if !is_early(&error) => {
                        let why = format!("rank {lower} at {address}: {error}");
                        return Err(Error::Endpoint { rank, why });
                    }
                    Err(_) if begun.elapsed() >= start => {
                        world.blame(lower);
                        return Err(absent(vec![lower]));
                    }
                    Err(_) => world.greet(NAP),
                }
            };
            if !part::part_mut(&mut world.node).admit(channel, lower) {
                return Err(Error::Stranger { rank: lower });
            }
            world.know(channel, lower);
            world.request(lower, HELLO, &hello)?;
        }
        loop {
            world.greet(Duration::ZERO);
            world.sync()?;
            let missing: Vec<u32> = (0..size).filter(|other| *other != rank && !world.has_channel(*other)).collect();
            if missing.is_empty() {
                // All have come: who comes now is of this job's next world, and waits until that is there.
                world.node.stop_listening();
                return Ok(world);
            }
            if begun.elapsed() >= start {
                world.blame(missing[0]);
                return Err(absent(missing));
            }
            world.greet(NAP);
        }
    }

    /// Lets ranks in that have said who they are, for a while.
    fn greet(&mut self, time: Duration) {
        if let Ok(event) = self.node.wait(Some(time)) {
            self.heed(event);
        }
        // Of a channel that has ended since, the event that says so may still be on its way.
        let is_new = |&(channel, rank): &(Channel, u32)| {
            !self.has_channel(rank) && self.node.channels().any(|open| open == channel)
        };
        let members: Vec<_> = part::part(&self.node).members().filter(is_new).collect();
        for (channel, rank) in members {
            self.know(channel, rank);
        }
    }

    /// Runs `program` in so many ranks, each a thread of this process, over shared memory: what each has returned. Each
    /// finishes when it returns.
    ///
    /// # Errors
    /// The error of the lowest rank that has failed by itself; of the lowest at all, if each has lost another.
    ///
    /// # Panics
    /// If a rank panics, or the system gives no thread.
    pub fn threads<R: Send>(
        size: u32,
        program: impl Fn(&mut World) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let job = format!("t{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let addresses = vec![format!("shm:splitc-{job}-{{rank}}")];
        Self::threads_at(&Settings { size, addresses, job, ..Settings::alone() }, program)
    }

    /// [`World::threads`], with other addresses, keys and deadlines. The rank of `settings` does not matter.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn threads_at<R: Send>(
        settings: &Settings,
        program: impl Fn(&mut World) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let run = |rank| {
            let mut world = Self::join(&Settings { rank, ..settings.clone() })?;
            let result = program(&mut world)?;
            world.finish().map(|()| result)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..settings.size).map(|rank| scope.spawn(move || run(rank))).collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            let ends: Vec<_> = ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
            // A rank that is lost to others has said why itself.
            let cause =
                ends.iter().filter_map(|end| end.as_ref().err()).find(|error| !matches!(error, Error::Lost { .. }));
            cause.cloned().map_or_else(|| ends.into_iter().collect(), Err)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    /// Another crate of the same program may ask for a feature that this one does not know of.
    #[test]
    fn settings_are_the_same_with_a_feature_and_without() {
        let network: Option<cutthrough::simulated::Network> = Settings::alone().network;
        assert!(network.is_none());
        assert!(World::join(&Settings { network, ..Settings::alone() }).is_ok());
    }
}
