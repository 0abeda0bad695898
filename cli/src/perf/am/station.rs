//! The other end of `perf am` and `perf rpc`: a node with handlers, which attends until it is told to leave.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Event, Failure as Refusal, Node, Request, Service, Settings};
use cutthrough::rma::{Owner, Region};
use cutthrough::rpc::{self, Method};
use cutthrough::{Channel, Counter, Endpoint, Frozen, PAYLOAD_MAX};

use crate::perf::ask::MEMORY_MAX;
use crate::perf::lane::{LOOKS, LaneError};
use crate::perf::room::{Budget, possible, refill};

/// Replies with the same bytes.
pub const ECHO: u16 = 0;
/// Replies with the same words and the same payload, of up to a page.
pub const MEDIUM: u16 = 1;
/// Reads the payload into private memory.
pub const STORE: u16 = 2;
/// Says what is fetched: how many pages, and bytes of each.
pub const STOCK: u16 = 3;
/// Replies with the page of this number, to where the requester says.
pub const FETCH: u16 = 4;
/// Replies with a page by reference.
pub const LEND: u16 = 5;
/// Registers a region: how many slots, and bytes of each. Replies with its key.
pub const REGION: u16 = 6;
/// Ends the attendance.
pub const LEAVE: u16 = 7;
/// A typed call: 64 bytes of arguments, a number back.
pub const TYPED: Method<(u64, Vec<u8>), u64> = Method::new(8);
/// Replies with the same four words.
pub const SHORT: u16 = 9;

/// Has the node served by a service's thread from the next attendance on, if the word is not 0.
pub const SERVED: u16 = 10;

/// How often a station looks after what its service's thread does.
const LOOK: Duration = Duration::from_millis(5);

/// A node that serves one client.
#[derive(Debug)]
pub struct Station {
    /// `None` only while a service has it.
    node: Option<Node>,
    /// How often it was told to leave.
    leaves: Arc<AtomicU64>,
    /// How often it has attended. A service's thread may be told to leave the next attendance before this one has
    /// ended.
    attended: u64,
    served: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// How long its client may say nothing while it is attended.
    patience: Duration,
}

impl Station {
    /// A station of an endpoint, which listens. What it keeps is a part of the budget. It ends when `stop` is set.
    #[must_use]
    pub fn new(endpoint: Endpoint, budget: &Budget, patience: Duration, stop: Arc<AtomicBool>) -> Self {
        let mut node = Node::new(endpoint, Settings::default());
        let (leaves, served) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        short(&mut node, &leaves);
        let serves = Arc::clone(&served);
        node.short(SERVED, Args::Words(1), move |request| serves.store(request.word(0) != 0, Ordering::Relaxed));
        pages(&mut node, budget);
        let (mut place, mut placed) = (Vec::new(), budget.nothing());
        let longest = usize::try_from(PAYLOAD_MAX).unwrap_or(usize::MAX);
        node.long(STORE, Args::Any, longest, move |mut request| {
            let bytes = request.payload_len();
            if !placed.grow(bytes as u64) || refill(&mut place, bytes, 0xa5).is_err() {
                return request.fail(Refusal::TooLong);
            }
            if request.read(&mut place[..bytes]).is_err() {
                request.fail(Refusal::Abandoned);
            }
        });
        rpc::serve(&mut node, TYPED, |(number, bytes)| Ok(number + bytes.len() as u64));
        Self { node: Some(node), leaves, attended: 0, served, stop, patience }
    }

    /// Waits so long for somebody. Whether there is somebody.
    pub fn let_in(&mut self, time: Duration) -> bool {
        let Some(node) = self.node.as_mut() else { return false };
        // Whatever happens, what counts is whether somebody is there.
        let _ = node.wait(Some(time));
        node.channels().next().is_some()
    }

    /// Serves requests until one of them says that this is enough.
    ///
    /// # Errors
    /// [`LaneError`], if the client goes before or says nothing for too long, or this process shall end.
    pub fn attend(&mut self) -> Result<(), LaneError> {
        self.attended += 1;
        if self.served.load(Ordering::Relaxed) { self.have_served() } else { self.serve() }
    }

    /// Serves on this thread, which looks all the time.
    fn serve(&mut self) -> Result<(), LaneError> {
        let node = self.node.as_mut().ok_or(LaneError::Interrupted)?;
        let mut quiet = Quiet::since_now(heard(node));
        for looks in 1_u64.. {
            if self.leaves.load(Ordering::Relaxed) >= self.attended {
                break;
            }
            if looks.is_multiple_of(LOOKS) && quiet.lasts(heard(node)) >= self.patience {
                return Err(LaneError::Silent(self.patience));
            }
            match node.poll() {
                Some(Event::Closed(_, why)) if node.channels().next().is_none() => {
                    return Err(CallError::Closed(why).into());
                }
                Some(_) => {}
                None if self.stop.load(Ordering::Relaxed) => return Err(LaneError::Interrupted),
                None => {}
            }
        }
        Ok(())
    }

    /// Has a service's thread serve, which sleeps while nothing comes.
    fn have_served(&mut self) -> Result<(), LaneError> {
        let node = self.node.take().ok_or(LaneError::Interrupted)?;
        let ended = Arc::new(Mutex::new(None));
        let tells = Arc::clone(&ended);
        let event = move |event| {
            if let Event::Closed(_, why) = event {
                *tells.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        };
        let service = Service::spawn(node, event).map_err(|error| LaneError::Refused(error.to_string()))?;
        let (mut quiet, mut asked) = (Quiet::since_now(0), Instant::now());
        let attended = loop {
            if self.leaves.load(Ordering::Relaxed) >= self.attended {
                break Ok(());
            }
            if self.stop.load(Ordering::Relaxed) {
                break Err(LaneError::Interrupted);
            }
            if let Some(why) = *ended.lock().unwrap_or_else(PoisonError::into_inner) {
                break Err(CallError::Closed(why).into());
            }
            // To ask the node how much it has heard would wake the thread.
            if asked.elapsed() >= self.patience {
                asked = Instant::now();
                if quiet.lasts(service.with(|node| heard(node))) >= self.patience {
                    break Err(LaneError::Silent(self.patience));
                }
            }
            std::thread::sleep(LOOK);
        };
        self.node = service.stop();
        attended
    }
}

/// How many messages have come.
fn heard(node: &Node) -> u64 {
    node.endpoint().counter(Counter::MessagesReceived)
}

/// For how long nothing has been heard.
struct Quiet {
    heard: u64,
    since: Instant,
}

impl Quiet {
    fn since_now(heard: u64) -> Self {
        Self { heard, since: Instant::now() }
    }

    fn lasts(&mut self, heard: u64) -> Duration {
        if heard != self.heard {
            *self = Self::since_now(heard);
        }
        self.since.elapsed()
    }
}

/// Handlers without memory of their own.
fn short(node: &mut Node, leaves: &Arc<AtomicU64>) {
    node.short(SHORT, Args::Words(4), |request| {
        let words: [u32; 4] = request.words();
        request.reply(&words);
    });
    node.short(ECHO, Args::Any, |request| {
        let mut bytes = [0; 64];
        let args = request.args();
        let len = args.len().min(bytes.len());
        bytes[..len].copy_from_slice(&args[..len]);
        request.reply_bytes(&bytes[..len]);
    });
    node.medium(MEDIUM, Args::Any, |request| {
        let payload = request.medium();
        request.reply_with(&[], Body::Copy(payload));
    });
    let leaves = Arc::clone(leaves);
    node.short(LEAVE, Args::Words(0), move |_| {
        leaves.fetch_add(1, Ordering::Relaxed);
    });
}

/// Handlers of pages.
fn pages(node: &mut Node, budget: &Budget) {
    let [pages, page_bytes] = [0, 0].map(|none| Arc::new(AtomicUsize::new(none)));
    let (count, bytes) = (Arc::clone(&pages), Arc::clone(&page_bytes));
    node.short(STOCK, Args::Words(2), move |request| match sizes(&request) {
        Some((many, size)) => {
            count.store(many, Ordering::Relaxed);
            bytes.store(size, Ordering::Relaxed);
        }
        None => request.fail(Refusal::TooLong),
    });
    let bytes = Arc::clone(&page_bytes);
    let (mut stock, mut stocked) = (Vec::new(), budget.nothing());
    node.short(FETCH, Args::Words(1), move |request| {
        let bytes = bytes.load(Ordering::Relaxed);
        let begin = (request.word(0) as usize).saturating_mul(bytes);
        let end = begin.saturating_add(bytes);
        if !stocked.grow(end as u64) || refill(&mut stock, end, 0x5a).is_err() {
            return request.fail(Refusal::TooLong);
        }
        request.reply_with(&[], Body::Copy(&stock[begin..end]));
    });
    // Pages that stay where they are: of one channel, which their memory belongs to.
    let mut lent: (Option<Channel>, Vec<Frozen>) = (None, Vec::new());
    node.short(LEND, Args::Words(1), move |mut request| {
        let (count, bytes) = (pages.load(Ordering::Relaxed), page_bytes.load(Ordering::Relaxed));
        let channel = Some(request.channel());
        if lent.0 != channel || lent.1.len() != count || lent.1.first().is_some_and(|page| page.len() != bytes) {
            lent = (None, Vec::new());
            for _ in 0..count {
                let Ok(mut page) = request.page(bytes) else { return request.fail(Refusal::Busy) };
                page.fill(0x5a);
                lent.1.push(page.freeze());
            }
            lent.0 = channel;
        }
        match lent.1.get(request.word(0) as usize) {
            Some(page) => request.reply_with(&[], page.into()),
            None => request.fail(Refusal::TooLong),
        }
    });
    let owner = Owner::new(node);
    let (budget, mut registered) = (budget.clone(), Vec::new());
    node.short(REGION, Args::Words(2), move |request| {
        let room = || {
            let (count, bytes) = sizes(&request)?;
            let share = budget.share((count * bytes) as u64)?;
            possible(count * bytes).ok()?;
            Some((share, Region::new(count * bytes, request.word(1))))
        };
        let Some((share, region)) = room() else { return request.fail(Refusal::TooLong) };
        region.lock().fill(0x5a);
        registered.push(share);
        request.reply_bytes(&owner.register(&region).0.to_le_bytes());
    });
}

/// How many of how many bytes a request asks for; `None` if that is too much, or nothing.
fn sizes(request: &Request<'_>) -> Option<(usize, usize)> {
    let (count, bytes) = (u64::from(request.word(0)), u64::from(request.word(1)));
    let fits = bytes > 0 && count * bytes <= MEMORY_MAX;
    fits.then_some((request.word(0) as usize, request.word(1) as usize))
}
