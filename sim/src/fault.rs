//! Everything that can go wrong between machines, from a seed: a world of endpoints which run the engine's network side
//! unchanged, over wires that lose, repeat, change and hold back frames, on machines that stop, jump, fill up and die.
//!
//! [`run`] is one thread in virtual time, and draws every chance from its seed: the same seed is the same world, byte
//! for byte. After every step what was handed over is held against what was sent (*safety*); at last nothing goes
//! wrong any more, and then everything has to come to its end within a time (*liveness*).
//!
//! | file | what |
//! |---|---|
//! | `options`, `ways` | what a seed decides |
//! | `world`, `trouble` | time and the machines, and what goes wrong |
//! | `user` | who calls, sends, takes and reads |
//! | `calls` | active messages: who asks, serves, hands over, cancels |
//! | `receive` | frames that came together, in trains |
//! | `ring`, `stream`, `cut` | frames that come by rings, among foreign ones, and land in parts of pages, or bare |
//! | `memory`, `guard` | pages, tokens, readers; keys and check sums |
//! | `blind` | a forger who hears nothing |
//! | `liar` | a peer that holds the key, and lies |
//! | `network` | the wire |
//! | `wraps` | counters that go past their end |
//! | `calm`, [`crowd`] | no faults: many peers that are quiet |
//! | [`links`] | no faults: links that are long, slow, crowded or uneven |
//! | [`script`] | no faults: what is delivered of given messages |
//! | `watch` | what has to be true |

mod blind;
mod bounds;
mod calls;
mod calm;
pub mod crowd;
mod cut;
mod guard;
mod liar;
pub mod links;
mod memory;
mod network;
mod options;
mod random;
mod receive;
mod ring;
pub mod script;
mod stream;
mod user;
mod watch;
mod ways;
mod world;
mod wraps;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{self, AssertUnwindSafe};

pub use self::calls::Calls;
pub use self::liar::Lies;
pub use self::wraps::Wraps;
pub use cutthrough_engine::net::Planted as Bug;
use cutthrough_engine::net::ways::WAYS;
use serde::Serialize;

use self::options::Options;
use self::random::Random;
use self::world::World;

/// Whether bugs can be planted in this build: with the feature `planted` only.
pub const PLANTS: bool = cfg!(feature = "planted");

/// What was done to a world, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Injected {
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames that arrived once more.
    pub repeated: u64,
    /// Frames that came later than their neighbours.
    pub reordered: u64,
    /// Frames of which a bit was changed.
    pub corrupted: u64,
    /// Frames that were cut short.
    pub truncated: u64,
    /// Frames for which the receiver's queue had no room.
    pub overflowed: u64,
    /// Frames on a path that was cut.
    pub cut_off: u64,
    /// Old frames that were sent again by nobody.
    pub replayed: u64,
    /// Frames that nobody has sent.
    pub forged: u64,
    /// Calls that failed by what nobody has sent.
    pub misled: u64,
    /// Frames of channels that nobody has sent, with sums that are right and generations that were guessed.
    pub guessed: u64,
    /// Endpoints that died.
    pub crashes: u64,
    /// Machines that did nothing for a time.
    pub pauses: u64,
    /// Clocks that were set ahead.
    pub jumps: u64,
    /// Paths that let nothing through for a time, and then all of it.
    pub clogs: u64,
    /// Frames that had to wait for such a path.
    pub clogged: u64,
    /// Frames that took longer than their path takes, reordered ones left out.
    pub delayed: u64,
    /// Paths that were cut in one direction for a time.
    pub cuts: u64,
    /// Users that took nothing for a time.
    pub slow: u64,
    /// Channels that were closed in good order.
    pub closed: u64,
    /// Looks at which payloads that nobody had read made way.
    pub relieved: u64,
    /// Frames for which a ring had no room, or no place.
    pub ring_overflows: u64,
    /// Foreign frames that came where there are rings.
    pub strays: u64,
    /// Frames that a way has swallowed.
    pub swallowed: u64,
    /// Ways that began to swallow everything.
    pub black_holes: u64,
    /// Times that ways were taken away or given back.
    pub ways_changed: u64,
    /// Times that a path began to carry less, or more again.
    pub narrowed: u64,
    /// Frames that were too long for their path.
    pub too_long: u64,
    /// Times that something went wrong while something was under way.
    pub amid: u64,
    /// Times that one side of a channel went on to the keys of the next epoch of the other one.
    pub moved_keys: u64,
}

/// Frames that came by rings whose buffers are parts of pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// Fragments that landed where they belong.
    pub hits: u64,
    /// Fragments that were copied.
    pub misses: u64,
    /// Frames that were not expected, or could not be kept.
    pub strays: u64,
    /// Pages that were complete.
    pub pages: u64,
    /// Frames whose headers a register has cut off, and how often it was aimed.
    pub cut: u64,
    /// See `cut`.
    pub aims: u64,
}

/// Frames that came by sockets, in trains that a guess had scattered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Landed {
    /// Trains of several frames.
    pub trains: u64,
    /// Frames that landed where they belong.
    pub hits: u64,
    /// Frames that were copied there.
    pub misses: u64,
}

/// What has happened in the worlds of some seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Seeds.
    pub seeds: u64,
    /// Frames sent.
    pub frames: u64,
    /// Messages handed over.
    pub messages: u64,
    /// Payload bytes that were compared with what was sent.
    pub payload_bytes: u64,
    /// Channels, counted at both ends.
    pub channels: u64,
    /// Channels that ended without this side's asking.
    pub endings: u64,
    /// Lives of endpoints.
    pub lives: u64,
    /// Moments at which something happened.
    pub steps: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// What was done to them.
    pub injected: Injected,
    /// Frames sent, by each way.
    pub frames_by_way: [u64; WAYS],
    /// What came of trains.
    pub landed: Landed,
    /// What came of pages that rings were to place.
    pub placed: Placed,
    /// What became of calls.
    pub calls: Calls,
    /// What has gone past the end of a counter.
    pub wraps: Wraps,
    /// What peers that lie have said.
    pub lies: Lies,
    /// A hash of every frame that arrived and when: of two runs of one seed it is the same. Of several worlds it is the
    /// sum.
    #[serde(skip)]
    pub hash: u64,
}

impl Summary {
    /// Adds what has happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        let Injected {
            lost,
            repeated,
            reordered,
            corrupted,
            truncated,
            overflowed,
            cut_off,
            replayed,
            forged,
            misled,
            guessed,
            crashes,
            pauses,
            jumps,
            clogs,
            clogged,
            delayed,
            cuts,
            slow,
            closed,
            relieved,
            ring_overflows,
            strays,
            swallowed,
            black_holes,
            ways_changed,
            narrowed,
            too_long,
            amid,
            moved_keys,
        } = &mut self.injected;
        let theirs = &other.injected;
        let pairs = [
            (&mut self.seeds, other.seeds),
            (&mut self.frames, other.frames),
            (&mut self.messages, other.messages),
            (&mut self.payload_bytes, other.payload_bytes),
            (&mut self.channels, other.channels),
            (&mut self.endings, other.endings),
            (&mut self.lives, other.lives),
            (&mut self.steps, other.steps),
            (&mut self.virtual_ns, other.virtual_ns),
            (lost, theirs.lost),
            (repeated, theirs.repeated),
            (reordered, theirs.reordered),
            (corrupted, theirs.corrupted),
            (truncated, theirs.truncated),
            (overflowed, theirs.overflowed),
            (cut_off, theirs.cut_off),
            (replayed, theirs.replayed),
            (forged, theirs.forged),
            (misled, theirs.misled),
            (guessed, theirs.guessed),
            (crashes, theirs.crashes),
            (pauses, theirs.pauses),
            (jumps, theirs.jumps),
            (clogs, theirs.clogs),
            (clogged, theirs.clogged),
            (delayed, theirs.delayed),
            (cuts, theirs.cuts),
            (slow, theirs.slow),
            (closed, theirs.closed),
            (relieved, theirs.relieved),
            (ring_overflows, theirs.ring_overflows),
            (strays, theirs.strays),
            (swallowed, theirs.swallowed),
            (black_holes, theirs.black_holes),
            (ways_changed, theirs.ways_changed),
            (narrowed, theirs.narrowed),
            (too_long, theirs.too_long),
            (amid, theirs.amid),
            (moved_keys, theirs.moved_keys),
            (&mut self.landed.trains, other.landed.trains),
            (&mut self.landed.hits, other.landed.hits),
            (&mut self.landed.misses, other.landed.misses),
            (&mut self.placed.hits, other.placed.hits),
            (&mut self.placed.misses, other.placed.misses),
            (&mut self.placed.strays, other.placed.strays),
            (&mut self.placed.pages, other.placed.pages),
            (&mut self.placed.cut, other.placed.cut),
            (&mut self.placed.aims, other.placed.aims),
        ];
        pairs.into_iter().for_each(|(ours, theirs)| *ours += theirs);
        self.frames_by_way.iter_mut().zip(other.frames_by_way).for_each(|(ours, theirs)| *ours += theirs);
        self.calls.add(&other.calls);
        self.wraps.add(&other.wraps);
        self.lies.add(&other.lies);
        // In whatever order worlds end: several threads run them.
        self.hash = self.hash.wrapping_add(other.hash);
    }
}

/// A world in which something was not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Its options, as one line.
    pub options: String,
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// What.
    pub what: String,
    /// Counters of every endpoint.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {} ns: {}\n  {}", self.seed, self.at_ns, self.what, self.options)
    }
}

impl std::error::Error for Failure {}

/// The options of a seed, as one line.
#[must_use]
pub fn options(seed: u64) -> String {
    options_with(seed, With::ALL)
}

/// As [`options`], of the world that [`run_with`] runs.
#[must_use]
pub fn options_with(seed: u64, with: With) -> String {
    Options::draw(seed, with, &mut Random::new(seed)).to_string()
}

/// Runs the world of a seed to its end. A bug is planted in builds that can ([`PLANTS`]), and does nothing in others.
///
/// # Errors
/// [`Failure`]: a rule was broken, or something did not come to its end.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Summary, Failure> {
    run_with(seed, With::ALL, bug)
}

/// What a world may have beside sockets and messages, if its seed says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct With {
    /// Rings beside the socket.
    pub rings: bool,
    /// Active messages, where both endpoints of a channel speak them.
    pub calls: bool,
    /// Troubles while users talk: early, one soon after another, and with more to say behind them. Without it they come
    /// whenever they come, which is mostly when all has been said.
    pub busy: bool,
    /// Batches that are divided; without it all goes as store-and-forward.
    pub policy: bool,
    /// Paths that begin to carry less.
    pub narrow: bool,
    /// Endpoints that let payloads come aside which nobody reads: they wait themselves, or look for other things.
    pub relief: bool,
    /// Keys of each endpoint's own, another cipher, and numbers at the end of an epoch, where frames are sealed.
    pub locks: bool,
    /// Names of calls, and stamps of their clocks, that are near their end.
    pub names: bool,
    /// Forgers who hear nothing, where frames are not sealed.
    pub blind: bool,
    /// Peers that hold the key and lie. Worlds with them are a family of their own, as long as there are others.
    pub liars: bool,
}

impl With {
    /// All that there is, and peers that lie.
    pub const LIARS: Self = Self { liars: true, ..Self::ALL };
    /// All that there is, but for peers that lie.
    pub const ALL: Self = Self {
        rings: true,
        calls: true,
        busy: true,
        policy: true,
        narrow: true,
        relief: true,
        locks: true,
        names: true,
        blind: true,
        liars: false,
    };
    /// Sockets and messages.
    pub const NOTHING: Self = Self {
        rings: false,
        calls: false,
        busy: false,
        policy: false,
        narrow: false,
        relief: false,
        locks: false,
        names: false,
        blind: false,
        liars: false,
    };
}

/// As [`run`], but nobody has what is not in `with`; all else is as the seed says.
///
/// # Errors
/// As [`run`].
pub fn run_with(seed: u64, with: With, bug: Option<Bug>) -> Result<Summary, Failure> {
    let mut random = Random::new(seed);
    let options = Options::draw(seed, with, &mut random);
    let text = options.to_string();
    let failure = |(at_ns, story), what| Failure { seed, options: text.clone(), at_ns, what, story };
    let mut world =
        caught(|| Ok(World::new(options, bug, random))).map_err(|what| failure((0, String::new()), what))?;
    match caught(|| world.run()) {
        Ok(()) => Ok(world.into_summary()),
        Err(what) => Err(failure((world.now(), world.story()), what)),
    }
}

/// What `run` comes to. A panic is what went wrong, as anything else is: else nobody would learn of its seed.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let ran = panic::catch_unwind(AssertUnwindSafe(run));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(format!("a panic: {}", text.unwrap_or("it says nothing")))
    })
}

/// Where an endpoint listens.
fn address(node: usize) -> SocketAddr {
    let [high, low] = u16::try_from(node).unwrap_or(0).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), 7)
}

/// Which endpoint listens there.
fn node_of(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(u16::from_be_bytes([ip.octets()[2], ip.octets()[3]])),
        IpAddr::V6(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_like_others() {
        assert_eq!(caught(|| Ok(())), Ok(()));
        assert_eq!(caught(|| Err::<(), _>("wrong".into())), Err("wrong".into()));
        assert_eq!(caught::<()>(|| panic!("as it stands")), Err("a panic: as it stands".into()));
        let why = "late".to_owned();
        assert_eq!(caught::<()>(|| panic!("too {why}")), Err("a panic: too late".into()));
    }
}
