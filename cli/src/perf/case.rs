//! One case to measure: a test, a size, a policy, a kind of memory; and the lane it runs over.

use std::time::Duration;

use cutthrough::{Config, PAYLOAD_MAX, Placement, Policy, WaitError};

use super::across::Mode;
use super::ask::{Setup, Shape};
use super::lane::{Lane, LaneError, on_core};
use super::peer::Peer;
use super::{fetch, lat, stream};
use crate::args::{Adapter, Measure, Memory};
use crate::clock::{Length, Span};
use crate::failure::Failure;
use crate::stats::{Quantiles, Samples};
use crate::units::Size;

use super::cargo::{Cargo, Tally};

/// What is measured of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Half of a round trip.
    Lat,
    /// Bytes per second of a stream.
    Bw,
    /// Messages per second of a stream.
    Rate,
    /// A whole demand fetch.
    Fetch,
}

impl Test {
    /// The name on the command line and in JSON lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lat => "lat",
            Self::Bw => "bw",
            Self::Rate => "rate",
            Self::Fetch => "fetch",
        }
    }

    /// Whether a time is measured, of which less is better.
    #[must_use]
    pub fn is_time(self) -> bool {
        matches!(self, Self::Lat | Self::Fetch)
    }

    /// How many of what one sample holds: a round trip is two ways.
    #[must_use]
    pub fn ways(self) -> f64 {
        if self == Self::Lat { 2.0 } else { 1.0 }
    }

    /// The sizes if none are given.
    fn sizes(self) -> &'static [u64] {
        match self {
            Self::Lat => &[64, 8 << 10, 64 << 10, 1 << 20],
            Self::Bw => &[8 << 10, 64 << 10, 1 << 20, 4 << 20],
            Self::Rate => &[64],
            Self::Fetch => &[4 << 10, 8 << 10, 64 << 10],
        }
    }
}

/// One case to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What is measured.
    pub test: Test,
    /// What the messages look like.
    pub shape: Shape,
    /// How payloads are cut into pulses.
    pub policy: Policy,
    /// How payloads get from a ring to their pages.
    pub placement: Placement,
    /// Whether the adapter net has a ring of AF_XDP too.
    pub net_xdp: bool,
    /// Where the program of rings of AF_XDP runs.
    pub xdp_mode: Mode,
    /// Whether the two ends share memory, and so a staging ring.
    pub shared: bool,
    /// How much is measured.
    pub length: Length,
    /// Seed of the order of fetches.
    pub seed: u64,
}

impl Case {
    /// The cases of these options, one for each size.
    ///
    /// # Errors
    /// If an option cannot be served.
    pub fn all(test: Test, options: &Measure) -> Result<Vec<Self>, Failure> {
        let adapter = options.across.adapter(options.far.peer.as_deref().or(options.far.listen.as_deref()))?;
        let default: Vec<Size> = test.sizes().iter().copied().map(Size).collect();
        let sizes = if options.size.is_empty() { &default } else { &options.size };
        sizes.iter().map(|&size| Self::one(test, options, adapter, size)).collect()
    }

    fn one(test: Test, options: &Measure, adapter: Adapter, size: Size) -> Result<Self, Failure> {
        let bytes = u32::try_from(size.0).ok().filter(|&bytes| bytes > 0 && u64::from(bytes) <= PAYLOAD_MAX);
        let Some(bytes) = bytes else {
            return Err(Failure::new("a message of 0 bytes cannot be measured", "give --size of 1 or more"));
        };
        Ok(Self {
            test,
            shape: Shape { memory: options.memory.unwrap_or(Memory::Private), bytes },
            policy: options.policy.unwrap_or_default(),
            placement: options.across.placement.unwrap_or_default(),
            net_xdp: options.across.net_xdp,
            xdp_mode: options.across.xdp_mode.unwrap_or_default(),
            shared: adapter == Adapter::Shm,
            length: length(options),
            seed: options.seed.unwrap_or_default(),
        })
    }

    /// The size of a message.
    #[must_use]
    pub fn size(&self) -> Size {
        Size(u64::from(self.shape.bytes))
    }

    /// Whether the message has no payload, so that the policy has nothing to decide.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.test != Test::Fetch && self.shape.is_control()
    }

    /// Whether payloads may travel in pulses, or on a network in batches, by the policy. By reference nothing travels.
    #[must_use]
    pub fn heeds_policy(&self) -> bool {
        !self.shared || self.shape.memory != Memory::Reference
    }

    /// Whether payloads come over a wire to places that wait for them, so that some may have to be moved there.
    #[must_use]
    pub fn lands_by_wire(&self) -> bool {
        !self.shared && (self.shape.memory == Memory::Pool || self.placement != Placement::Auto)
    }

    /// How much is measured in each round.
    #[must_use]
    pub fn rounds(&self) -> Vec<Length> {
        self.length.rounds(ROUNDS, if self.test.is_time() { LEAST } else { LEAST_OF_STREAM })
    }

    /// The settings of a lane for this case.
    ///
    /// Store-and-forward has to have the whole message in the staging ring before any of it is copied out, and so has,
    /// nearly, a long fixed pulse; they get a ring that is long enough. Others keep the default ring, and the length of
    /// its lap is found as for adaptive pulses. On a network there is no such ring, and the policy says how long
    /// batches are: all have the same memory.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let default = Config::default();
        let whole = self.shape.bytes.checked_next_power_of_two().unwrap_or(1 << 30);
        let staging_bytes = match self.policy {
            _ if !self.shared => default.staging_bytes,
            Policy::StoreAndForward => default.staging_bytes.max(whole),
            Policy::Fixed(pulse) if pulse.get() > u64::from(default.staging_bytes / 4) => {
                default.staging_bytes.max(whole)
            }
            Policy::Fixed(_) | Policy::Adaptive { .. } => default.staging_bytes,
        };
        let posted = self.shape.memory == Memory::Pool && self.test != Test::Fetch;
        Setup {
            policy: self.policy.to_string(),
            placement: self.placement.name().into(),
            net_xdp: self.net_xdp,
            xdp_mode: self.xdp_mode.name().into(),
            staging_bytes,
            memory_bytes: default.pool_bytes.max(4 * u64::from(self.shape.bytes)),
            landing: posted.then(|| (self.shape.bytes, window(self.shape))),
            channels: 1,
        }
    }
}

/// How often a case and its limit are measured in turn.
const ROUNDS: u32 = 5;

/// Messages of a round at least, where they are counted: of a stream as many as make one.
const LEAST: u64 = 10;
const LEAST_OF_STREAM: u64 = 100;

/// Runs of landing pages that each end posts, and so the payloads that may be on their way to them at a time: enough to
/// keep both ends busy, few enough to stay in a cache.
#[must_use]
pub fn window(shape: Shape) -> u32 {
    few(shape.bytes).max(2)
}

/// How many payloads of so many bytes make 256 KiB: 64 at most, and one at least.
#[must_use]
pub fn few(bytes: u32) -> u32 {
    ((256 << 10) / bytes.max(1)).clamp(1, 64)
}

/// How much is measured, by the options.
fn length(options: &Measure) -> Length {
    let measure = match (options.count, options.seconds) {
        (Some(count), _) => Span::Count(count),
        (None, seconds) => Span::Time(Duration::from_secs_f64(seconds.unwrap_or(1.0))),
    };
    Length { warmup: options.warmup.map_or(measure.tenth(), Span::Count), measure }
}

/// A part of a measurement that ran without a break.
#[derive(Debug)]
pub struct Slice {
    /// Every time that was measured; none of a stream.
    pub samples: Option<Samples>,
    /// Messages or whole operations.
    pub count: u64,
    /// Messages per second.
    pub msgs_per_s: Option<f64>,
    /// What the receipts said.
    pub tally: Tally,
}

/// A case with its lane.
#[derive(Debug)]
pub struct Rig {
    /// The case.
    pub case: Case,
    lane: Lane,
}

impl Rig {
    /// Opens a lane for the case.
    ///
    /// # Errors
    /// If either end cannot.
    pub fn open(peer: &mut Peer, case: Case) -> Result<Self, Failure> {
        Self::open_many(peer, case, 1)
    }

    /// As [`Rig::open`], with so many channels, all of them idle but the last.
    ///
    /// # Errors
    /// As [`Rig::open`].
    pub fn open_many(peer: &mut Peer, case: Case, channels: u32) -> Result<Self, Failure> {
        let lane = peer.lane(&Setup { channels, ..case.setup() })?;
        Ok(Self { case, lane })
    }

    /// Waits so long for a message that does not come.
    ///
    /// # Errors
    /// If something comes.
    pub fn idle(&mut self, time: Duration) -> Result<(), Failure> {
        match self.lane.endpoint.wait(Some(time)) {
            Err(WaitError::TimedOut) => Ok(()),
            _ => Err(LaneError::Unexpected.into()),
        }
    }

    /// Measures without a break, on `core`, for as long as the case says.
    ///
    /// # Errors
    /// If the other end goes away.
    pub fn measure(&mut self, peer: &mut Peer, core: usize) -> Result<Slice, Failure> {
        self.measure_as(peer, core, self.case.test, self.case.length)
    }

    /// As [`Rig::measure`], of another test over the same lane, and for another length.
    ///
    /// # Errors
    /// As [`Rig::measure`].
    pub fn measure_as(&mut self, peer: &mut Peer, core: usize, test: Test, length: Length) -> Result<Slice, Failure> {
        let (lane, shape) = (&mut self.lane, self.case.shape);
        if test == Test::Fetch {
            return fetch::measure(peer, lane, core, &self.case, length);
        }
        let job = if test == Test::Lat { lat::job(shape) } else { stream::job(shape) };
        // Before the job begins: from then on the other end waits.
        let cargo = on_core(core, || Ok(Cargo::new(shape)?))?;
        peer.begin(lane, job)?;
        let measured = on_core(core, || {
            if test == Test::Lat { lat::measure(lane, cargo, length) } else { stream::measure(lane, cargo, length) }
        });
        measured.map_err(|failure| peer.why(failure))
    }

    /// Closes the lane.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn close(self, peer: &mut Peer) -> Result<(), Failure> {
        peer.close(self.lane)
    }
}

impl Slice {
    /// The percentiles of what was measured as a time by this test.
    #[must_use]
    pub fn quantiles(&self, test: Test) -> Option<Quantiles> {
        self.samples.as_ref().and_then(|samples| samples.quantiles(test.ways()))
    }

    /// The one number that tells: the median time in nanoseconds, or messages per second.
    #[must_use]
    pub fn figure(&self, test: Test) -> Option<f64> {
        if test.is_time() { self.quantiles(test).map(|quantiles| quantiles.p50_ns) } else { self.msgs_per_s }
    }
}

#[cfg(test)]
mod tests {
    use cutthrough::XdpMode;

    use super::*;
    use crate::args::{Across, Adapter};
    use crate::perf::lane::config;

    fn cases(test: Test, options: &Measure) -> Vec<Case> {
        Case::all(test, options).expect("good options")
    }

    fn sized(bytes: u64, policy: &str) -> Case {
        let policy = Some(policy.parse().expect("a policy"));
        let options = Measure { size: vec![Size(bytes)], policy, ..Measure::default() };
        cases(Test::Lat, &options).remove(0)
    }

    #[test]
    fn each_size_is_a_case_and_each_test_has_sizes_of_its_own() {
        let options = Measure { size: vec![Size(8), Size(4096)], ..Measure::default() };
        let sizes: Vec<u64> = cases(Test::Lat, &options).iter().map(|case| case.size().0).collect();
        assert_eq!(sizes, [8, 4096]);
        assert_eq!(cases(Test::Rate, &Measure::default()).len(), 1);
    }

    #[test]
    fn nothing_cannot_be_measured_and_other_adapters_are_not_built() {
        let nothing = Measure { size: vec![Size(0)], ..Measure::default() };
        assert!(Case::all(Test::Lat, &nothing).is_err());
        let fabric = Across { adapter: Some(Adapter::Fabric), ..Across::default() };
        let fabric = Measure { across: fabric, ..Measure::default() };
        assert!(Case::all(Test::Lat, &fabric).is_err());
    }

    #[test]
    fn only_who_needs_a_longer_staging_ring_gets_one() {
        let staging = |bytes, policy| sized(bytes, policy).setup().staging_bytes;
        assert_eq!(staging(4 << 20, "adaptive"), 2 << 20);
        assert_eq!(staging(4 << 20, "fixed:524288"), 2 << 20);
        assert_eq!(staging(4 << 20, "fixed:1048576"), 4 << 20);
        assert_eq!(staging(3 << 20, "store-and-forward"), 4 << 20);
        assert_eq!(staging(8 << 10, "store-and-forward"), 2 << 20);
        let wired = Case { shared: false, ..sized(4 << 20, "fixed:131072") };
        assert_eq!(wired.setup().staging_bytes, 2 << 20);
    }

    #[test]
    fn the_largest_message_has_a_setup() {
        let setup = sized(1 << 30, "store-and-forward").setup();
        assert_eq!((setup.staging_bytes, setup.memory_bytes), (1 << 30, 4 << 30));
    }

    /// Both ends open their endpoint with what is made of it there.
    #[test]
    fn a_mode_of_rings_goes_to_both_ends() {
        for (xdp_mode, expected) in [(None, None), (Some(Mode(Some(XdpMode::Native))), Some(XdpMode::Native))] {
            let across = Across { adapter: Some(Adapter::Xdp), xdp_mode, ..Across::default() };
            let setup = cases(Test::Lat, &Measure { across, ..Measure::default() }).remove(0).setup();
            assert_eq!(config(&setup).map(|config| config.xdp_mode).ok(), Some(expected));
        }
        let setup = Setup { xdp_mode: "skb".into(), ..sized(64, "adaptive").setup() };
        assert!(config(&setup).is_err_and(|why| why.to_string().contains("same version at both ends")));
    }

    #[test]
    fn the_first_tenth_is_a_warm_up_unless_it_is_said_otherwise() {
        let options = |count, warmup| Measure { count, warmup, ..Measure::default() };
        let warmup = |options: &Measure| length(options).warmup;
        assert_eq!(warmup(&options(Some(100), None)), Span::Count(10));
        assert_eq!(warmup(&options(Some(100), Some(0))), Span::Count(0));
        assert_eq!(warmup(&options(None, None)), Span::Time(Duration::from_millis(100)));
    }
}
