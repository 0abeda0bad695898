//! Fetches all pages of the file in random order, in one way, and checks every byte of them.

use std::time::{Duration, Instant};

use cutthrough::{Incoming, Landing, Payload, Policy, Receipt};

use super::ask::Request;
use super::session::{Server, Session, lost};
use super::socket::{self, Client};
use super::source::{self, PAGE};
use crate::failure::Failure;
use crate::stats::Samples;

/// Bytes of the messages in which the whole file is streamed.
pub const STREAM: u32 = 64 << 10;

/// Runs of landing pages that wait for a streamed message each.
const POSTED: u32 = 16;

/// The most times over that the file is streamed.
const MOST_LAPS: u32 = 100_000;

/// The staging ring of every way, so that all have the same memory: the default.
const STAGING: u32 = 2 << 20;

/// The least that an endpoint has for its pool and for its landing pages.
const MEMORY: u64 = 2 << 20;

/// What memory holds before a page is fetched into it.
const EMPTY: u8 = 0xa5;

/// How a page comes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of private memory into private memory, in pulses.
    Copied(Policy),
    /// Out of private memory into the landing page that the request names.
    Put,
    /// The page itself, as it lies in the pool of the serving process.
    ByReference,
    /// Through a Unix stream socket, without any of this.
    Socket,
}

impl Way {
    /// The policy of the endpoints; only the first way has to do with it.
    fn policy(self) -> Policy {
        if let Self::Copied(policy) = self { policy } else { Policy::default() }
    }
}

/// How long the parts of a measurement may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// One fetch of every page.
    pub every_page: Duration,
    /// The fetches that are measured.
    pub fetches: Duration,
    /// The stream.
    pub stream: Duration,
}

/// What was measured of one way.
#[derive(Debug)]
pub struct Fetched {
    /// The way.
    pub way: Way,
    /// Whether pages are fetched so; if not, it is the stream alone that is measured.
    pub pages: bool,
    /// From the request until the page is in its place.
    pub times: Samples,
    /// Bytes per second of the streams, one each; none by reference, where nothing moves.
    pub streams: Vec<f64>,
    /// How often a page was copied, from the receipts.
    pub copies: u32,
    /// Pulses of the fetching side, from the receipts.
    pub pulses: u64,
    /// Which pages were fetched and found to be as in the file.
    pub checked: Vec<bool>,
}

impl Fetched {
    /// Nothing yet, of a file of so many bytes.
    #[must_use]
    pub fn new(way: Way, file_bytes: usize) -> Self {
        let checked = vec![false; source::pages(file_bytes)];
        Self { way, pages: true, times: Samples::new(), streams: Vec::new(), copies: 0, pulses: 0, checked }
    }

    /// The same of a way that is measured by the stream alone.
    #[must_use]
    pub fn of_stream(way: Way) -> Self {
        Self { pages: false, ..Self::new(way, 0) }
    }

    /// The median of the streams.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<f64> {
        let mut streams = self.streams.clone();
        streams.sort_unstable_by(f64::total_cmp);
        streams.get(streams.len() / 2).copied()
    }

    /// Measures once more, over a channel of its own.
    ///
    /// # Errors
    /// If the other process fails, or a page is not as in the file.
    pub fn measure(
        &mut self,
        server: &mut Server,
        file: &[u8],
        places: &mut Places,
        order: &[u32],
        budget: Budget,
    ) -> Result<(), Failure> {
        let memory = if matches!(self.way, Way::Copied(_)) { MEMORY } else { MEMORY + file.len() as u64 };
        let link = if self.way == Way::Socket {
            Link::Socket(server.connect()?)
        } else {
            Link::Channel(Box::new(server.open(&self.way.policy().to_string(), STAGING, memory)?))
        };
        let mut fetcher = Fetcher { link, way: self.way, places, bytes: file.len() };
        if self.pages {
            self.fetch(&mut fetcher, file, order, budget)?;
        }
        if self.way != Way::ByReference {
            self.streams.push(fetcher.stream(file, budget.stream)?);
        }
        Ok(())
    }

    fn fetch(&mut self, fetcher: &mut Fetcher<'_>, file: &[u8], order: &[u32], budget: Budget) -> Result<(), Failure> {
        // All pages once, which also warms up caches and measured costs; then again, with a clock.
        fetcher.pass(order, budget.every_page, |_, _| {})?;
        fetcher.check(file, &mut self.checked)?;
        let mut last = Receipt::default();
        while_time(budget.fetches, |left| {
            fetcher.pass(order, left, |time, receipt| {
                self.times.record_duration(time);
                self.pulses += u64::from(receipt.pulses);
                last = receipt;
            })?;
            fetcher.check(file, &mut self.checked)
        })?;
        self.copies = self.copies.max(last.copies);
        Ok(())
    }
}

/// Repeats, at least once, until the time is over; passes what is left of it.
fn while_time(time: Duration, mut part: impl FnMut(Duration) -> Result<(), Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        part(time.saturating_sub(begun.elapsed()))?;
        if begun.elapsed() >= time {
            return Ok(());
        }
    }
}

/// Where the pages come to lie: one big piece of private memory, or shared pages that are kept.
#[derive(Debug)]
pub struct Places {
    private: Vec<u8>,
    shared: Vec<Payload>,
    fetched: Vec<bool>,
}

impl Places {
    /// Places for a file of so many bytes.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(file_bytes: usize) -> Result<Self, Failure> {
        let mut private = Vec::new();
        private
            .try_reserve_exact(file_bytes)
            .map_err(|_| Failure::new("there is not enough memory", "name a smaller file with --file"))?;
        private.resize(file_bytes, EMPTY);
        let pages = source::pages(file_bytes);
        let shared = std::iter::repeat_with(Payload::default).take(pages).collect();
        Ok(Self { private, shared, fetched: vec![false; pages] })
    }

    /// Forgets everything that was fetched.
    fn clear(&mut self) {
        self.private.fill(EMPTY);
        self.shared.fill_with(Payload::default);
        self.fetched.fill(false);
    }
}

/// What leads to the serving process.
enum Link {
    Channel(Box<Session>),
    Socket(Client),
}

struct Fetcher<'a> {
    link: Link,
    way: Way,
    places: &'a mut Places,
    bytes: usize,
}

impl Fetcher<'_> {
    /// Fetches every page once, or as many as there is time for, and tells of each. One at least.
    fn pass(
        &mut self,
        order: &[u32],
        time: Duration,
        mut fetched: impl FnMut(Duration, Receipt),
    ) -> Result<(), Failure> {
        self.places.clear();
        if let (Way::ByReference, Link::Channel(session)) = (self.way, &mut self.link) {
            session.ask(Request::Fill)?;
            session.hear()?;
        }
        let begun = Instant::now();
        for &page in order {
            let asked = Instant::now();
            let receipt = self.fetch(page)?;
            let there = Instant::now();
            fetched(there - asked, receipt);
            self.places.fetched[page as usize] = true;
            if there - begun > time {
                break;
            }
        }
        Ok(())
    }

    /// Fetches one page: the request, and the page straight into its place.
    fn fetch(&mut self, page: u32) -> Result<Receipt, Failure> {
        let place = source::page(page as usize, self.bytes);
        let session = match &mut self.link {
            Link::Channel(session) => session,
            Link::Socket(client) => {
                client.page(page, &mut self.places.private[place]).map_err(|error| lost(&error))?;
                return Ok(Receipt { copies: socket::COPIES, ..Receipt::default() });
            }
        };
        let request = match self.way {
            Way::Copied(_) | Way::Socket => Request::Page(page),
            Way::Put => {
                let landing = Landing::Pages(place.len());
                let token = session.endpoint.grant(session.channel, landing).map_err(|error| lost(&error))?;
                Request::PageTo(page, token.to_bytes())
            }
            Way::ByReference => Request::PageItself(page),
        };
        session.ask(request)?;
        let mut message = session.hear()?;
        if message.control() != page.to_le_bytes() || message.payload_len() != place.len() {
            return Err(lost(&"it answered another request"));
        }
        if let Way::Copied(_) = self.way {
            let into = &mut self.places.private[place];
            return session.endpoint.read(&mut message, into).map_err(|error| lost(&error));
        }
        self.places.shared[page as usize] = message.take_payload();
        Ok(message.receipt())
    }

    /// Compares every page that was fetched with the file.
    fn check(&self, file: &[u8], checked: &mut [bool]) -> Result<(), Failure> {
        let mut copy = [0; PAGE];
        for (page, checked) in checked.iter_mut().enumerate().filter(|(page, _)| self.places.fetched[*page]) {
            let range = source::page(page, file.len());
            let there = match &self.places.shared[page] {
                Payload::Landed(landed) if landed.len() == range.len() => {
                    landed.read_at(0, &mut copy[..range.len()]);
                    &copy[..range.len()]
                }
                Payload::None => &self.places.private[range.clone()],
                _ => return Err(wrong(page)),
            };
            if there != &file[range] {
                return Err(wrong(page));
            }
            *checked = true;
        }
        Ok(())
    }

    /// Streams the file over and over for about that time: bytes per second.
    fn stream(&mut self, file: &[u8], time: Duration) -> Result<f64, Failure> {
        self.places.clear();
        if let (Way::Put, Link::Channel(session)) = (self.way, &mut self.link) {
            let Session { endpoint, channel } = &mut **session;
            endpoint.post(*channel, STREAM as usize, POSTED).map_err(|error| lost(&error))?;
        }
        let once = self.laps(1)?;
        let laps = time.as_nanos() / once.as_nanos().max(1);
        let laps = u32::try_from(laps).unwrap_or(u32::MAX).clamp(1, MOST_LAPS);
        let taken = self.laps(laps)?;
        if self.way != Way::Put && self.places.private != file {
            return Err(wrong(0));
        }
        Ok(file.len() as f64 * f64::from(laps) / taken.as_secs_f64())
    }

    fn laps(&mut self, laps: u32) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let (way, places, bytes) = (self.way, &mut *self.places, self.bytes);
        match &mut self.link {
            Link::Socket(client) => {
                client.stream(STREAM, laps, &mut places.private).map_err(|error| lost(&error))?;
            }
            Link::Channel(session) => {
                session.ask(Request::Stream { bytes: STREAM, laps })?;
                for _ in 0..laps {
                    for index in 0..bytes.div_ceil(STREAM as usize) {
                        let message = session.hear()?;
                        take(session, message, way, &mut places.private[source::piece(index, STREAM as usize, bytes)])?;
                    }
                }
            }
        }
        Ok(begun.elapsed())
    }
}

/// Reads a streamed message into its place, or gives the pages in which it has landed back.
fn take(session: &mut Session, mut message: Incoming, way: Way, place: &mut [u8]) -> Result<(), Failure> {
    if message.payload_len() != place.len() {
        return Err(lost(&"a message of the stream has the wrong length"));
    }
    if let Way::Copied(_) = way {
        session.endpoint.read(&mut message, place).map_err(|error| lost(&error))?;
    }
    Ok(())
}

fn wrong(page: usize) -> Failure {
    Failure::check(format!("page {page} is not as in the file"))
}
