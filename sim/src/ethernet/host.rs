//! What a host's processor does: the driver's handler, the stack, and processes that send and read.

use cutthrough_engine::place::{self, Verdict};

use super::connection::{Connection, Kind};
use super::cpu::{Cost, Level, Part};
use super::frame::{self, ETHERNET, IP, Length, MSS, PAGE, TCP, UDP};
use super::receiver::{Guessing, Landed};
use super::wire::{Frame, What};
use super::world::{Event, Segment, Then, Up, World};
use crate::time::Span;

/// Bytes of a request for a page, after its headers.
const REQUEST: u64 = 64;

impl World<'_> {
    /// The processor has spent the time for it.
    pub(crate) fn act(&mut self, host: usize, then: Then) {
        match then {
            Then::Handle => self.handle(host),
            Then::Handled(up) => self.handled(host, up),
            Then::Risen(up) => self.risen(host, up),
            Then::Sent(connection, bytes) => self.sent(connection, bytes),
            Then::Post(frame) => self.post(host, frame),
            Then::Awake(connection) => self.read_next(connection),
            Then::Read(segment) => self.read(segment),
        }
    }

    /// A frame that says something to `to` about a connection, and carries no payload of it.
    fn note(&self, connection: usize, to: usize, what: What) -> Frame {
        let length = match what {
            What::Request => Length { header: ETHERNET + IP + UDP, payload: REQUEST },
            _ => Length { header: ETHERNET + IP + TCP, payload: 0 },
        };
        Frame { connection, to, length, descriptors: 1, what }
    }
}

/// The driver.
impl World<'_> {
    /// A frame has landed.
    pub(crate) fn interrupt(&mut self, host: usize) {
        if !self.hosts[host].receiver.handling {
            self.hosts[host].receiver.handling = true;
            self.submit(host, Level::Interrupt, Cost::of(Part::Interrupt, self.parts.interrupt), Then::Handle);
        }
    }

    /// Takes the next frame that has landed; the handler returns when there is none.
    fn handle(&mut self, host: usize) {
        let Some(landed) = self.hosts[host].receiver.landed.pop_front() else {
            self.hosts[host].receiver.handling = false;
            return;
        };
        let (cost, up) =
            if landed.slots > 0 { self.take_guessed(host, &landed) } else { self.take_ordinary(host, &landed.frame) };
        self.count(host, &landed.frame);
        self.submit(host, Level::Interrupt, cost, Then::Handled(up));
    }

    /// A frame in guessed descriptors: they are posted anew, and what has landed in the wrong place is copied.
    fn take_guessed(&mut self, host: usize, landed: &Landed) -> (Cost, Option<Up>) {
        let guessing = self.hosts[host].receiver.guessing.as_mut();
        let Some(found) = guessing.and_then(|guessing| guessing.look(landed)) else { return (Cost::default(), None) };
        let driver = self.parts.driver * (2 * landed.slots as u64);
        let cost = Cost::of(Part::Driver, driver).and(Part::Copy, self.parts.copy(found.copied, false));
        let up = match (found.verdict, landed.frame.what) {
            (Verdict::Apart, _) => self.rise(host, &landed.frame, true),
            (_, What::Data { bytes, last, .. }) => {
                let connection = landed.frame.connection;
                found.whole.map(|cached| Up::Segment(Segment { connection, bytes, cached, last }))
            }
            _ => None,
        };
        self.hosts[host].placed += u64::from(found.verdict == Verdict::Hit);
        (cost, up)
    }

    /// A frame in an ordinary buffer. A copying driver puts the fragments of a page together.
    fn take_ordinary(&mut self, host: usize, frame: &Frame) -> (Cost, Option<Up>) {
        let of_page = matches!(frame.what, What::Data { part: Some(_), .. });
        let method = self.hosts[host].method;
        let cost = method.take(self.parts, frame.length, of_page);
        let up = self.rise(host, frame, method.joins(of_page));
        let joined = match up {
            Some(Up::Fragment(whole)) if method.joins(of_page) => whole.map(|(segment, _)| Up::Segment(segment)),
            up => up,
        };
        (cost, joined)
    }

    /// What a frame is to the stack; `cached` says whether the driver has copied it.
    fn rise(&mut self, host: usize, frame: &Frame, cached: bool) -> Option<Up> {
        let connection = frame.connection;
        match frame.what {
            What::Data { bytes, frames: 1, last, .. } => Some(Up::Segment(Segment { connection, bytes, cached, last })),
            What::Data { segment, bytes, frames, last, .. } => {
                let held = self.hosts[host].held.entry((connection, segment)).or_default();
                *held += 1;
                let complete = *held == frames;
                if complete {
                    self.hosts[host].held.remove(&(connection, segment));
                }
                let whole = Segment { connection, bytes, cached: true, last };
                Some(Up::Fragment(complete.then_some((whole, cached))))
            }
            What::Ack { edge } => Some(Up::Ack(connection, edge)),
            What::Request => Some(Up::Request(connection)),
            What::Ask { bytes } => {
                self.ask(host, connection, bytes);
                None
            }
            What::Grant => {
                self.connections[connection].granted = true;
                self.advance(connection);
                None
            }
        }
    }

    /// The driver is done with a frame: descriptors are posted again, and the stack gets what the frame completed.
    fn handled(&mut self, host: usize, up: Option<Up>) {
        let resynced = self.hosts[host].receiver.guessing.as_mut().is_some_and(Guessing::refill);
        self.start_putting(host);
        if let Some(up) = up {
            let glue = match up {
                Up::Fragment(Some((whole, cached))) => self.parts.copy(whole.bytes, cached),
                _ => Span::ZERO,
            };
            let cost = Cost::of(Part::Stack, self.parts.stack).and(Part::Copy, glue);
            self.submit(host, Level::Stack, cost, Then::Risen(up));
        }
        if resynced {
            self.submit(host, Level::Interrupt, Cost::of(Part::Driver, self.parts.driver * 2), Then::Handle);
        } else {
            self.handle(host);
        }
    }
}

/// One sender at a time.
impl World<'_> {
    /// A sender asks to send `bytes` bytes.
    fn ask(&mut self, host: usize, connection: usize, bytes: u64) {
        self.hosts[host].asked.insert(connection, bytes);
        let guessing = self.hosts[host].receiver.guessing.as_mut();
        let admission = guessing.and_then(|guessing| guessing.admission.as_mut());
        if admission.is_none_or(|admission| admission.ask(connection as u64)) {
            self.grant(host, connection);
        }
    }

    /// Admits a connection and tells its sender.
    fn grant(&mut self, host: usize, connection: usize) {
        let state = &mut self.hosts[host];
        state.burst = state.asked.remove(&connection).unwrap_or(0);
        if let Some(guessing) = &mut state.receiver.guessing {
            guessing.admit(connection);
        }
        let frame = self.note(connection, self.connections[connection].from, What::Grant);
        self.submit(host, Level::Interrupt, Cost::of(Part::Driver, self.parts.driver), Then::Post(frame));
    }

    /// Counts a frame that the driver has taken. The end of an admitted burst is the next sender's turn.
    fn count(&mut self, host: usize, frame: &Frame) {
        let What::Data { part, .. } = frame.what else { return };
        let state = &mut self.hosts[host];
        state.page_frames += u64::from(part.is_some());
        let Some(guessing) = &mut state.receiver.guessing else { return };
        if part.is_some() && guessing.is_open() {
            guessing.admit(frame.connection);
        }
        let Some(admission) = guessing.admission.as_mut() else { return };
        if admission.admitted() != Some(frame.connection as u64) {
            return;
        }
        state.burst = state.burst.saturating_sub(frame.length.payload);
        if state.burst == 0
            && let Some(next) = admission.done(frame.connection as u64)
        {
            let next = usize::try_from(next).unwrap_or(usize::MAX);
            self.grant(host, next);
        }
    }
}

/// The stack.
impl World<'_> {
    fn risen(&mut self, host: usize, up: Up) {
        match up {
            Up::Segment(segment) | Up::Fragment(Some((segment, _))) => self.received(host, segment),
            Up::Fragment(None) => {}
            Up::Ack(connection, edge) => {
                let known = &mut self.connections[connection].edge;
                *known = edge.max(*known);
                self.advance(connection);
            }
            Up::Request(connection) => self.answer(connection),
        }
    }

    /// A segment is ready to be read. Every second one is acknowledged, and the last of a message.
    fn received(&mut self, host: usize, segment: Segment) {
        let connection = &mut self.connections[segment.connection];
        connection.received += segment.bytes;
        connection.unread_bytes += segment.bytes;
        connection.unread.push_back(segment);
        connection.unacknowledged += 1;
        if connection.kind != Kind::Fetch && (connection.unacknowledged == 2 || segment.last) {
            self.acknowledge(segment.connection, Level::Stack);
        }
        if !self.connections[segment.connection].reading {
            self.connections[segment.connection].reading = true;
            let cost = Cost::of(Part::System, self.parts.wake + self.parts.call);
            self.submit(host, Level::Process, cost, Then::Awake(segment.connection));
        }
    }

    fn acknowledge(&mut self, number: usize, level: Level) {
        let connection = &mut self.connections[number];
        let edge = connection.acknowledge(self.parts.window);
        let (from, to) = (connection.from, connection.to);
        let frame = self.note(number, from, What::Ack { edge });
        let cost = Cost::of(Part::Stack, self.parts.stack).and(Part::Driver, self.parts.driver);
        self.submit(to, level, cost, Then::Post(frame));
    }
}

/// Processes that read.
impl World<'_> {
    /// Reads the next segment, or sleeps.
    fn read_next(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let Some(segment) = connection.unread.pop_front() else {
            connection.reading = false;
            return;
        };
        let (host, kind) = (connection.to, connection.kind);
        let mut cost = self.hosts[host].method.read(self.parts, segment.bytes, segment.cached);
        if kind == Kind::Fetch {
            cost = cost.and(Part::System, self.parts.receipt);
        }
        self.submit(host, Level::Process, cost, Then::Read(segment));
    }

    fn read(&mut self, segment: Segment) {
        let (now, window) = (self.heap.now(), self.parts.window);
        let number = segment.connection;
        let connection = &mut self.connections[number];
        connection.read(segment.bytes, now);
        let (host, kind) = (connection.to, connection.kind);
        if kind == Kind::Fetch {
            let again = (connection.begun < connection.count).then_some((Span::ZERO, number));
            if let Some((pause, next)) = self.plans[host].pop_front().or(again) {
                self.heap.after(pause, Event::Begin(next));
            }
        } else if connection.window_opened(window, if self.hosts[host].method.sends_pages() { PAGE } else { MSS }) {
            self.acknowledge(number, Level::Process);
        }
        if segment.last && !self.connections[number].unread.is_empty() {
            self.submit(host, Level::Process, Cost::of(Part::System, self.parts.call), Then::Awake(number));
        } else {
            self.read_next(number);
        }
    }
}

/// Processes that send.
impl World<'_> {
    /// A stream begins, or the reading process asks for its next page.
    pub(crate) fn begin(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        if connection.kind != Kind::Fetch {
            connection.resting = false;
            return self.advance(number);
        }
        connection.begun += 1;
        let (from, to) = (connection.from, connection.to);
        let frame = self.note(number, from, What::Request);
        let cost = Cost::of(Part::System, self.parts.call + self.parts.request)
            .and(Part::Stack, self.parts.stack)
            .and(Part::Driver, self.parts.driver);
        self.submit(to, Level::Process, cost, Then::Post(frame));
    }

    /// A page is sent to whom has asked for it.
    fn answer(&mut self, number: usize) {
        let Connection { from, payload, .. } = self.connections[number];
        self.connections[number].left = payload;
        let cost = self.hosts[from].method.send(self.parts, payload);
        let cost = cost.and(Part::System, self.parts.wake + self.parts.call + self.parts.lookup);
        self.submit(from, Level::Process, cost, Then::Sent(number, payload));
    }

    /// Lets every stream of a host go on that had to wait for room.
    pub(crate) fn advance_all(&mut self, host: usize) {
        for index in 0..self.outgoing[host].len() {
            let number = self.outgoing[host][index];
            if self.connections[number].blocked {
                self.advance(number);
            }
        }
    }

    /// Sends the next segment of a stream, if there is one and it may be sent.
    pub(crate) fn advance(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let Kind::Stream { asks } = connection.kind else { return };
        let over = connection.left == 0 && connection.begun == connection.count;
        if connection.sending || connection.resting || over {
            return;
        }
        if connection.left == 0 {
            connection.begun += 1;
            connection.left = connection.payload;
            connection.granted = !asks;
            connection.asked = !asks;
        }
        let begins = connection.left == connection.payload;
        let (from, to, bytes) = (connection.from, connection.to, connection.left);
        if !std::mem::replace(&mut connection.asked, true) {
            let frame = self.note(number, to, What::Ask { bytes });
            return self.submit(from, Level::Process, Cost::of(Part::Driver, self.parts.driver), Then::Post(frame));
        }
        let method = self.hosts[from].method;
        let bytes = method.segment(bytes);
        let frames = frame::fragments(TCP, bytes).len();
        let room = self.hosts[from].sender.ring.len() + frames <= self.parts.ring;
        let connection = &mut self.connections[number];
        let may = connection.granted && connection.sent + bytes <= connection.edge && room;
        let waited = std::mem::replace(&mut connection.blocked, !may);
        if may {
            connection.sending = true;
            let wake = if waited { self.parts.wake } else { Span::ZERO };
            let call = if begins { self.parts.call } else { Span::ZERO };
            let cost = method.send(self.parts, bytes).and(Part::System, wake + call);
            self.submit(from, Level::Process, cost, Then::Sent(number, bytes));
        }
    }

    /// A segment or datagram is ready: its frames are posted.
    fn sent(&mut self, number: usize, bytes: u64) {
        let connection = &mut self.connections[number];
        let (from, to, kind, segment) = (connection.from, connection.to, connection.kind, connection.segments);
        connection.segments += 1;
        connection.sent += bytes;
        connection.left -= bytes;
        connection.sending = false;
        let last = connection.left == 0;
        if last && let Some(pause) = connection.pauses.pop_front() {
            connection.resting = true;
            self.heap.after(pause, Event::Begin(number));
        }
        let method = self.hosts[from].method;
        let of_page = bytes == PAGE && method.sends_pages();
        let transport = if kind == Kind::Fetch && !of_page { UDP } else { TCP };
        let lengths = frame::fragments(transport, bytes);
        let frames = lengths.len();
        let mut offset = 0;
        for length in lengths {
            let part = page_part(offset, length.payload).filter(|_| of_page);
            let what = What::Data { segment, bytes, frames, part, last };
            let descriptors = method.send_descriptors();
            self.post(from, Frame { connection: number, to, length, descriptors, what });
            offset += length.payload;
        }
        self.advance(number);
    }
}

fn page_part(offset: u64, len: u64) -> Option<place::Part> {
    Some(place::Part { offset: u32::try_from(offset).ok()?, len: u32::try_from(len).ok()? })
}
