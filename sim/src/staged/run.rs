//! Runs as the papers measured: round trips, streams, calls.

use cutthrough_engine::pulse::Policy;

use crate::outcome::Stripe;
use crate::point::{Firmware, POLICIES, PointError};
use crate::time::Span;

use super::adapter::Rules;
use super::host::{Lens, Program, Sends, To};
use super::machine::{Machine, Notice};
use super::watch::{Milestones, Only, Taken, Watch};
use super::world::{Loop, Manner, Setting, World};

/// Round trips that a latency is the mean of, as in HPDC 1997, section 4.1.
pub const ROUNDS: u64 = 50;

/// How a run goes.
#[derive(Debug, Clone)]
pub struct Run {
    machines: Vec<Machine>,
    settings: Vec<Setting>,
    manner: Manner,
    goal: u64,
    watch: Kept,
}

/// What is kept of a run beside the counts.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    stripes: Option<(u32, u32)>,
    milestones: bool,
    deliveries: Option<u32>,
    only: Option<Only>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// What was seen.
    pub watch: Watch,
    /// Events that were handled.
    pub events: u64,
    /// The most events that waited at a time.
    pub longest_queue: usize,
    /// Whether everything arrived.
    pub complete: bool,
}

impl Run {
    /// Two hosts that send a message of `len` bytes to and fro, `rounds` times.
    ///
    /// # Errors
    /// The machines have no such firmware.
    pub fn ping_pong(pair: [&Machine; 2], firmware: Firmware, len: u64, rounds: u64) -> Result<Self, PointError> {
        let sends = Sends { to: To::One(1), lens: Lens::Same(len), count: rounds, window: 1 };
        Self::new(pair, firmware, vec![(0, sends_alone(sends)), (1, answers(len))], 2 * rounds)
    }

    /// `senders` hosts that each send `count` messages of `len` bytes to one more host, without waiting for answers.
    ///
    /// # Errors
    /// The machines have no such firmware.
    pub fn stream(
        pair: [&Machine; 2],
        firmware: Firmware,
        lens: Lens,
        count: u64,
        senders: u32,
    ) -> Result<Self, PointError> {
        let sends = Sends { to: To::One(0), lens, count, window: u64::MAX };
        let mut programs = vec![(1, Program::default())];
        programs.resize(1 + senders as usize, (0, sends_alone(sends)));
        Self::new(pair, firmware, programs, count * u64::from(senders))
    }

    /// A client that makes `count` calls, `window` of them at a time, to a server that answers each with a payload of
    /// `len` bytes.
    ///
    /// # Errors
    /// The machines have no such firmware.
    pub fn calls(
        pair: [&Machine; 2],
        firmware: Firmware,
        len: u64,
        count: u64,
        window: u64,
    ) -> Result<Self, PointError> {
        let sends = Sends { to: To::One(1), lens: Lens::Same(0), count, window };
        Self::new(pair, firmware, vec![(0, sends_alone(sends)), (1, answers(len))], 2 * count)
    }

    /// `hosts` hosts, each of which sends `count` messages of `len` bytes to the others in turn.
    ///
    /// # Errors
    /// The machine has no such firmware.
    pub fn all_to_all(
        machine: &Machine,
        firmware: Firmware,
        len: u64,
        count: u64,
        hosts: u32,
    ) -> Result<Self, PointError> {
        let sends = Sends { to: To::Others, lens: Lens::Same(len), count, window: u64::MAX };
        let programs = vec![(0, sends_alone(sends)); hosts as usize];
        Self::new([machine, machine], firmware, programs, count * u64::from(hosts))
    }

    fn new(
        pair: [&Machine; 2],
        firmware: Firmware,
        programs: Vec<(usize, Program)>,
        goal: u64,
    ) -> Result<Self, PointError> {
        let (rules, copies) = rules(firmware)?;
        let settings = programs.into_iter().map(|(machine, program)| Setting { machine, program }).collect();
        let manner = Manner { rules, notice: Notice::Poll, copies, turns: Loop::Parked };
        Ok(Self { machines: pair.map(Machine::clone).to_vec(), settings, manner, goal, watch: Kept::default() })
    }

    /// Lets the adapters interrupt their hosts, which otherwise poll.
    #[must_use]
    pub fn interrupts(mut self) -> Self {
        self.manner.notice = Notice::Interrupt;
        self
    }

    /// Chooses how the firmware's loops go round; parked otherwise.
    #[must_use]
    pub fn turns(mut self, turns: Loop) -> Self {
        self.manner.turns = turns;
        self
    }

    /// Keeps every pulse that host `from` makes for sending and host `to` for receiving.
    #[must_use]
    pub fn stripes(mut self, from: u32, to: u32) -> Self {
        self.watch.stripes = Some((from, to));
        self
    }

    /// Counts the pulses of one message alone, the last that the first host of a ping-pong sends: by then the firmware
    /// has settled.
    #[must_use]
    pub fn settled(mut self) -> Self {
        let after = self.goal.saturating_sub(2);
        self.watch.only = Some(Only { hosts: [0, 1], number: after / 2, after, sent: None });
        self
    }

    /// Keeps when the first message of each host came where.
    #[must_use]
    pub fn milestones(mut self) -> Self {
        self.watch.milestones = true;
        self
    }

    /// Keeps what host `host` takes, in order.
    #[must_use]
    pub fn deliveries(mut self, host: u32) -> Self {
        self.watch.deliveries = Some(host);
        self
    }

    /// Runs.
    #[must_use]
    pub fn go(self) -> Ran {
        let mut watch = Watch::default();
        watch.only = self.watch.only;
        watch.stripes = self.watch.stripes.map(|(from, to)| (from, to, Vec::new()));
        watch.milestones = self.watch.milestones.then(|| vec![Milestones::default(); self.settings.len()]);
        watch.deliveries = self.watch.deliveries.map(|host| (host, Vec::new()));
        let mut world = World::new(self.machines, self.settings, self.manner, watch);
        let complete = world.run(self.goal);
        debug_assert!(complete, "everything stands still: {world:?}");
        let (events, longest_queue) = (world.events(), world.longest_queue());
        let mut watch = world.watch;
        if let Some((_, _, stripes)) = &mut watch.stripes {
            stripes.sort_by(|one, other| one.start_us.total_cmp(&other.start_us).then(one.row.cmp(&other.row)));
        }
        Ran { events, longest_queue, complete, watch }
    }
}

impl Ran {
    /// Mean time of one message of several that went one after the other.
    #[must_use]
    pub fn each_us(&self) -> f64 {
        self.watch.all().as_us() / self.watch.taken().max(1) as f64
    }

    /// Payload delivered in the whole run, over its time; 0 if it took no time.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        let span = self.watch.all();
        if span == Span::ZERO { 0.0 } else { self.watch.bytes() as f64 / span.as_s() }
    }

    /// The pulses that were kept, by their starts.
    #[must_use]
    pub fn stripes(&self) -> &[Stripe] {
        self.watch.stripes.as_ref().map_or(&[], |(_, _, stripes)| stripes)
    }

    /// The deliveries that were kept.
    #[must_use]
    pub fn deliveries(&self) -> &[Taken] {
        self.watch.deliveries.as_ref().map_or(&[], |(_, list)| list)
    }

    /// The milestones of the first message of `host`, if they were kept.
    #[must_use]
    pub fn milestones(&self, host: usize) -> Milestones {
        self.watch.milestones.as_ref().and_then(|list| list.get(host)).copied().unwrap_or_default()
    }
}

fn sends_alone(sends: Sends) -> Program {
    Program { sends: Some(sends), reply: None }
}

fn answers(len: u64) -> Program {
    Program { sends: None, reply: Some(len) }
}

/// What a firmware does with messages, and whether its hosts copy them.
///
/// The coroutines of the LANai Active Messages prototype ask whether a message is ready for its next stage; a message
/// is when all of it is there, its control message with it, while others are in other stages. The vendor's firmware is
/// modelled as far as the texts go: one message at a time, and an interface that cannot move the program's own pages,
/// so that both hosts copy.
fn rules(firmware: Firmware) -> Result<(Rules, bool), PointError> {
    let whole = Policy::StoreAndForward;
    let rules = |send, recv| Rules { send, recv, early: true, one_by_one: false };
    match firmware {
        Firmware::Engine { send, recv } => Ok((rules(send, recv), false)),
        Firmware::Coroutine => Ok((Rules { early: false, ..rules(whole, whole) }, false)),
        Firmware::Vendor => Ok((Rules { early: false, one_by_one: true, ..rules(whole, whole) }, true)),
        Firmware::Kernel => {
            let what = "no text says what the kernel's sockets cost on this platform; ask for one of";
            Err(PointError::Impossible(format!("{what} {POLICIES}, `coroutine`, `vendor`")))
        }
    }
}
