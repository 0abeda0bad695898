//! The SBA-200: an i960 that moves messages between host memory, its own memory and the fibre.
//!
//! The firmware is a loop. A turn takes up a message that begins to arrive, or else a descriptor from the send queue,
//! or else asks the engine what the movers can do. The engine decides; the loop charges the i960 for each mover that is
//! started. A mover carries one cell at a time:
//!
//! | stage | mover |
//! |---|---|
//! | host to adapter | DMA over the Sbus; absent for a message that travels inside its descriptor |
//! | adapter to link | the i960 fills the output FIFO; the adapter adds AAL5's padding, trailer and CRC |
//! | link to adapter | the fibre fills the input FIFO: the receiving engine can only watch |
//! | adapter to host | DMA over the Sbus, and a descriptor when all of a message is there |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Stage};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;
use cutthrough_engine::transfer::{Step, Transfer};
use cutthrough_engine::tune::Tuner;

use crate::time::{Span, Time};

use super::aal5;
use super::parts::{Coprocessor, Nic};
use super::world::{Bus, Cell, Event, HostId, Id, Message, Station, World};

/// Bytes that a cell carries.
const CELL: u64 = aal5::PAYLOAD as u64;

/// Bytes of a descriptor in the receive queue.
const DESCRIPTOR: u64 = 16;

/// A DMA transfer under way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    message: Id,
    start: Time,
    end: Time,
    bytes: u64,
}

impl Flight {
    /// Bytes that have passed, the time of the bursts' set-up spread over them.
    fn passed(&self, now: Time) -> u64 {
        if now >= self.end {
            return self.bytes;
        }
        let (spent, whole) = ((now - self.start).as_ps(), (self.end - self.start).as_ps());
        u64::try_from(u128::from(self.bytes) * u128::from(spent) / u128::from(whole)).unwrap_or(self.bytes)
    }
}

/// The message on its way out.
#[derive(Debug, Clone)]
struct Leaving {
    id: Id,
    bytes: u64,
    cells: u64,
    inline: bool,
    /// Bytes in the adapter's memory, in the output FIFO, and cells there.
    fetched: u64,
    pushed: u64,
    emitted: u64,
    transfer: Transfer,
}

/// A message on its way in.
#[derive(Debug, Clone)]
struct Coming {
    bytes: u64,
    cells: u64,
    inline: bool,
    /// Cells that have reached the adapter, and those of them that have left its input FIFO.
    arrived: u64,
    taken: u64,
    /// Bytes in host memory.
    stored: u64,
    /// Whether it waits for its turn.
    queued: bool,
    transfer: Transfer,
}

/// The firmware's memory of one host's adapter.
#[derive(Debug, Clone)]
pub(crate) struct Firmware {
    send: Policy,
    recv: Policy,
    queue: VecDeque<Id>,
    leaving: Option<Leaving>,
    fetch: Option<Flight>,
    push: Option<u64>,
    coming: BTreeMap<Id, Coming>,
    /// Messages whose first cell has come, with their senders, and messages with cells to move, in the order of turns.
    fresh: VecDeque<(Id, HostId)>,
    ready: VecDeque<Id>,
    /// Senders of messages that are taken up: the next message of a channel waits until the one before it is there.
    busy: BTreeSet<HostId>,
    store: Option<Flight>,
    /// Cells in the input FIFO.
    held: usize,
    tuners: [[Tuner; Stage::COUNT]; 2],
    /// Since when nothing was to be done; none while the loop runs.
    idle_since: Option<Time>,
}

impl Firmware {
    /// Firmware that sends and receives by these rules, and has nothing to do.
    pub(crate) fn new(send: Policy, recv: Policy) -> Self {
        Self {
            send,
            recv,
            queue: VecDeque::new(),
            leaving: None,
            fetch: None,
            push: None,
            coming: BTreeMap::new(),
            fresh: VecDeque::new(),
            ready: VecDeque::new(),
            busy: BTreeSet::new(),
            store: None,
            held: 0,
            tuners: Default::default(),
            idle_since: Some(Time::START),
        }
    }

    /// Descriptors in the send queue.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    fn has_work(&self) -> bool {
        self.leaving.is_some() || self.store.is_some() || self.held > 0 || !self.queue.is_empty()
    }
}

/// A transfer that finds every handover of at least a cell worth its cost: longer pulses than a cell there are none.
fn transfer(bytes: u64, policy: Policy) -> Transfer {
    let mut transfer = Transfer::new(bytes, policy);
    transfer.set_minpulse_max(CELL);
    transfer
}

impl World {
    /// The host has put a descriptor into the send queue.
    pub(crate) fn post(&mut self, host: HostId, message: Id) {
        self.hosts[host].firmware.queue.push_back(message);
        self.wake(host);
    }

    /// A cell has reached the adapter; `false` if the input FIFO is full.
    pub(crate) fn cell_in(&mut self, host: HostId, cell: Cell) -> bool {
        let (message, capacity) = (self.message(cell.message), self.input_capacity());
        let Nic::Coprocessor(cost) = self.nic else { return false };
        let firmware = &mut self.hosts[host].firmware;
        if firmware.held == capacity {
            return false;
        }
        firmware.held += 1;
        let coming = firmware.coming.entry(cell.message).or_insert_with(|| {
            firmware.fresh.push_back((cell.message, message.from));
            Coming::new(&message, &cost, firmware.recv)
        });
        coming.arrived += 1;
        if !coming.queued {
            coming.queued = true;
            firmware.ready.push_back(cell.message);
        }
        self.wake(host);
        true
    }

    /// Lets a loop that has found nothing to do find it at its next turn.
    fn wake(&mut self, host: HostId) {
        let Nic::Coprocessor(cost) = self.nic else { return };
        if let Some(since) = self.hosts[host].firmware.idle_since.take() {
            let turns = (self.heap.now() - since).as_ps().div_ceil(cost.turn.as_ps());
            self.heap.at(since + cost.turn * turns, Event::Turn(host));
        }
    }

    /// One turn of the firmware's loop.
    pub(crate) fn turn(&mut self, host: HostId) {
        let Nic::Coprocessor(cost) = self.nic else { return };
        let spent = match self.take_up(host, &cost) {
            Some(spent) => spent,
            None => {
                let (stored, finish) = self.turn_in(host, &cost);
                let started = stored + self.turn_out(host, &cost);
                cost.turn * started.max(1) + finish
            }
        };
        if self.hosts[host].firmware.has_work() {
            self.heap.after(spent, Event::Turn(host));
        } else {
            self.hosts[host].firmware.idle_since = Some(self.heap.now() + spent);
        }
    }

    /// Takes up a message that has begun to arrive or that waits to be sent. Returns what that costs.
    fn take_up(&mut self, host: HostId, cost: &Coprocessor) -> Option<Span> {
        let firmware = &mut self.hosts[host].firmware;
        let next = firmware.fresh.iter().position(|(_, from)| !firmware.busy.contains(from));
        if let Some((id, from)) = next.and_then(|next| firmware.fresh.remove(next)) {
            firmware.busy.insert(from);
            firmware.ready.push_back(id);
            return Some(cost.single);
        }
        if firmware.leaving.is_some() {
            return None;
        }
        let id = firmware.queue.pop_front()?;
        let policy = firmware.send;
        let Message { bytes, cells, .. } = self.message(id);
        let inline = bytes <= cost.inline;
        let transfer = transfer(bytes, policy);
        self.hosts[host].firmware.leaving =
            Some(Leaving { id, bytes, cells, inline, fetched: 0, pushed: 0, emitted: 0, transfer });
        self.look_up(host);
        Some(cost.single + cost.beyond_single(inline))
    }

    /// Asks the engine about the message on its way out. Returns how many movers it started.
    fn turn_out(&mut self, host: HostId, cost: &Coprocessor) -> u64 {
        let (now, free) = (self.heap.now(), self.output_room(host));
        let machine = &mut self.hosts[host];
        let Firmware { leaving, fetch, push, tuners, .. } = &mut machine.firmware;
        let Some(message) = leaving else { return 0 };
        let (id, bus) = (message.id, &mut machine.bus);
        let mut transfer = message.transfer.clone();
        let mut port = Out { message, fetch, push, bus, cost, now, free, fetches: None, pushes: false };
        let step = transfer.poll(now.instant(), &mut port, &mut tuners[0], &mut ());
        let (fetches, pushes) = (port.fetches, port.pushes);
        message.transfer = transfer;
        self.delivered.lost += u64::from(matches!(step, Step::Misreported { .. }));
        let all_out = message.emitted == message.cells;
        if step == Step::Done && all_out {
            *leaving = None;
        }
        if let Some((start, end)) = fetches {
            self.note(id, Station::HostToAdapter, start, end);
        }
        if pushes {
            self.note(id, Station::AdapterToLink, now, now + cost.turn);
            self.heap.after(cost.turn, Event::Pushed(host));
        }
        let trailer = step == Step::Done && !all_out && free > 0;
        if trailer {
            self.emit(host);
        }
        [fetches.is_some(), pushes, trailer].map(u64::from).iter().sum()
    }

    /// The i960 has pushed a pulse: whole cells are in the output FIFO, and at the end of the message also the last.
    pub(crate) fn pushed(&mut self, host: HostId) {
        let Firmware { leaving, push, .. } = &mut self.hosts[host].firmware;
        let (Some(message), Some(bytes)) = (leaving, push.take()) else { return };
        message.pushed += bytes;
        let filled = if message.pushed == message.bytes { message.bytes.div_ceil(CELL) } else { message.pushed / CELL };
        for _ in message.emitted..filled {
            self.emit(host);
        }
    }

    /// Puts the next cell of the message on its way out into the output FIFO.
    fn emit(&mut self, host: HostId) {
        let Some(message) = &mut self.hosts[host].firmware.leaving else { return };
        message.emitted += 1;
        let cell = Cell { message: message.id, last: message.emitted == message.cells };
        self.put_out(host, cell);
    }

    /// Asks the engine about messages on their way in. Returns how many movers it started, and how long the i960 needs
    /// for the messages that are all there.
    fn turn_in(&mut self, host: HostId, cost: &Coprocessor) -> (u64, Span) {
        let now = self.heap.now();
        let firmware = &self.hosts[host].firmware;
        let stored = firmware.store.filter(|flight| flight.end <= now).map(|flight| flight.message);
        let next = firmware.ready.front().copied().filter(|id| stored != Some(*id));
        let (mut started, mut finish) = (0, Span::ZERO);
        for id in [stored, next].into_iter().flatten() {
            let (more, longer) = self.turn_in_of(host, id, cost, finish);
            (started, finish) = (started + more, longer);
        }
        (started, finish)
    }

    /// The same for one message, when the i960 is busy for `finish` with others that are all there.
    fn turn_in_of(&mut self, host: HostId, id: Id, cost: &Coprocessor, finish: Span) -> (u64, Span) {
        let (now, capacity, from) = (self.heap.now(), self.input_capacity(), self.message(id).from);
        let machine = &mut self.hosts[host];
        let Firmware { coming, store, held, tuners, ready, busy, .. } = &mut machine.firmware;
        let Some(message) = coming.get(&id) else { return (0, finish) };
        let mut transfer = message.transfer.clone();
        let room = capacity - *held;
        let bus = &mut machine.bus;
        let mut port = In { coming, id, store, held, bus, cost, now, room, stores: None };
        let step = transfer.poll(now.instant(), &mut port, &mut tuners[1], &mut ());
        let stores = port.stores;
        let mut started = u64::from(stores.is_some());
        let Some(message) = coming.get_mut(&id) else { return (started, finish) };
        message.transfer = transfer;
        self.delivered.lost += u64::from(matches!(step, Step::Misreported { .. }));
        if step == Step::Done && message.taken < message.arrived {
            // A last cell without payload: the firmware throws it away.
            *held -= usize::try_from(message.arrived - message.taken).unwrap_or(0);
            message.taken = message.arrived;
            started += 1;
        }
        let (waits, inline) = (message.taken < message.arrived, message.inline);
        let whole = step == Step::Done && message.taken == message.cells;
        if ready.front() == Some(&id) {
            ready.pop_front();
            message.queued = waits;
            if waits {
                ready.push_back(id);
            }
        }
        let finish = if whole { finish + cost.beyond_single(inline) } else { finish };
        if whole {
            if message.queued {
                ready.retain(|&other| other != id);
            }
            coming.remove(&id);
            busy.remove(&from);
            let event = if inline { Event::Notify(host, id) } else { Event::Announce(host, id) };
            self.heap.after(finish, event);
        }
        if let Some((start, end)) = stores {
            self.note(id, Station::AdapterToHost, start, end);
        }
        (started, finish)
    }

    /// The firmware has a descriptor for a message that is in host memory, and moves it into the receive queue.
    pub(crate) fn announce(&mut self, host: HostId, message: Id) {
        let Nic::Coprocessor(cost) = self.nic else { return };
        let (_, end) = self.hosts[host].bus.transfer(self.heap.now(), DESCRIPTOR, &cost.bus);
        self.heap.at(end, Event::Notify(host, message));
    }
}

impl Coming {
    /// A message whose first cell is arriving. It gets its turn once the firmware has taken it up.
    fn new(message: &Message, cost: &Coprocessor, policy: Policy) -> Self {
        let &Message { bytes, cells, .. } = message;
        let inline = bytes <= cost.inline;
        Self { bytes, cells, inline, arrived: 0, taken: 0, stored: 0, queued: true, transfer: transfer(bytes, policy) }
    }
}

impl Coprocessor {
    /// What a message that does not travel inside its descriptor costs more: the sender needs it before the first cell,
    /// for its buffer and DMA; the receiver after the last one, for the buffers of its descriptor.
    fn beyond_single(&self, inline: bool) -> Span {
        if inline { Span::ZERO } else { self.multi }
    }
}

/// The sending adapter, as the engine sees it for the message on its way out.
struct Out<'a> {
    message: &'a mut Leaving,
    fetch: &'a mut Option<Flight>,
    push: &'a mut Option<u64>,
    bus: &'a mut Bus,
    cost: &'a Coprocessor,
    now: Time,
    /// Cells that the output FIFO can take.
    free: usize,
    /// The DMA transfer and the push that were started.
    fetches: Option<(Time, Time)>,
    pushes: bool,
}

impl Out<'_> {
    /// Bytes in the adapter's memory so far.
    fn fetched(&self) -> u64 {
        self.message.fetched + self.fetch.map_or(0, |flight| flight.passed(self.now))
    }
}

impl Adapter for Out<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter if !self.message.inline => Capability { pulse_max: Some(CELL), ..Capability::DRIVEN },
            Stage::AdapterToLink => Capability { pulse_max: Some(CELL), ..Capability::DRIVEN },
            _ => Capability::ABSENT,
        }
    }

    fn idle(&mut self, _now: Instant, stage: Stage) -> bool {
        if stage == Stage::AdapterToLink {
            return self.push.is_none();
        }
        if let Some(flight) = self.fetch.take_if(|flight| flight.end <= self.now) {
            self.message.fetched += flight.bytes;
        }
        self.fetch.is_none()
    }

    fn moved(&mut self, _now: Instant, stage: Stage) -> u64 {
        if stage == Stage::AdapterToLink { self.message.pushed } else { self.fetched() }
    }

    fn room(&mut self, _now: Instant, stage: Stage) -> u64 {
        if stage == Stage::AdapterToLink {
            return (self.free as u64 * CELL).saturating_sub(self.message.pushed % CELL);
        }
        self.cost.memory.saturating_sub(self.fetched() - self.message.pushed)
    }

    fn start(&mut self, _now: Instant, stage: Stage, pulse: Pulse) {
        if stage == Stage::AdapterToLink {
            *self.push = Some(pulse.len);
            self.pushes = true;
            return;
        }
        let (start, end) = self.bus.transfer(self.now, pulse.len, &self.cost.bus);
        *self.fetch = Some(Flight { message: self.message.id, start, end, bytes: pulse.len });
        self.fetches = Some((start, end));
    }
}

/// The receiving adapter, as the engine sees it for one message on its way in.
struct In<'a> {
    coming: &'a mut BTreeMap<Id, Coming>,
    id: Id,
    store: &'a mut Option<Flight>,
    held: &'a mut usize,
    bus: &'a mut Bus,
    cost: &'a Coprocessor,
    now: Time,
    /// Cells that the input FIFO can take.
    room: usize,
    /// The DMA transfer that was started.
    stores: Option<(Time, Time)>,
}

impl In<'_> {
    /// Bytes of a message that a number of its first cells carry.
    fn carried(message: &Coming, cells: u64) -> u64 {
        (cells * CELL).min(message.bytes)
    }
}

impl Adapter for In<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::LinkToAdapter => Capability::OBSERVED,
            Stage::AdapterToHost => Capability { pulse_max: Some(CELL), ..Capability::DRIVEN },
            _ => Capability::ABSENT,
        }
    }

    fn idle(&mut self, _now: Instant, _stage: Stage) -> bool {
        if let Some(flight) = self.store.take_if(|flight| flight.end <= self.now)
            && let Some(message) = self.coming.get_mut(&flight.message)
        {
            message.stored += flight.bytes;
        }
        self.store.is_none()
    }

    fn moved(&mut self, _now: Instant, stage: Stage) -> u64 {
        let Some(message) = self.coming.get(&self.id) else { return 0 };
        if stage == Stage::LinkToAdapter {
            return Self::carried(message, message.arrived);
        }
        let flying = self.store.filter(|flight| flight.message == self.id);
        message.stored + flying.map_or(0, |flight| flight.passed(self.now))
    }

    fn room(&mut self, _now: Instant, stage: Stage) -> u64 {
        if stage == Stage::LinkToAdapter { self.room as u64 * CELL } else { u64::MAX }
    }

    fn start(&mut self, _now: Instant, _stage: Stage, pulse: Pulse) {
        let Some(message) = self.coming.get_mut(&self.id) else { return };
        let end = pulse.offset + pulse.len;
        let emptied = if end == message.bytes { end.div_ceil(CELL) } else { end / CELL };
        *self.held -= usize::try_from(emptied - message.taken).unwrap_or(0);
        message.taken = emptied;
        let notice = if message.inline { DESCRIPTOR } else { 0 };
        let (start, end) = self.bus.transfer(self.now, pulse.len + notice, &self.cost.bus);
        *self.store = Some(Flight { message: self.id, start, end, bytes: pulse.len });
        self.stores = Some((start, end));
    }
}
