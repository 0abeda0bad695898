//! A rank of Split-C, another rank of its job that sends it any arguments and any payloads, and a stranger. What the
//! rank's part shall hold, and what it answers, is said by a model, in plain words.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arbitrary::Arbitrary;
use cutthrough::am::Failure;
use cutthrough::{Channel, Config, Endpoint, Event, Incoming};
use cutthrough_splitc::{Error, Global, Settings, World};

use crate::offset::{self, Offset};

/// Bytes of the rank's part.
const BYTES: usize = 3000;
/// Most bytes of a payload, and bytes that fit beside a ticket.
const PIECE: usize = 128 << 10;
const INLINE: usize = 60;
/// Numbers of letters that may come: that of the last operation, and of those until all ranks meet.
const LETTERS: u64 = 16;
/// Most bytes that are sent at once: one thread plays both sides, so a payload that is longer than the shortest lap of
/// the staging ring would wait for itself.
const LIST: usize = 192 << 10;
/// Looks after which an answer is missing.
const LOOKS: u32 = 10_000_000;

const HELLO: u16 = 1;
const GET: u16 = 2;
const PUT: u16 = 3;
const STORE: u16 = 4;
const ARRIVE: u16 = 5;
const LETTER: u16 = 6;
const BYE: u16 = 7;
const BLAME: u16 = 8;
const PUT_BATCH: u16 = 9;
const STORE_BATCH: u16 = 10;
const GET_BATCH: u16 = 11;

/// What happens next. `bool`s that come first say that it is the stranger who asks; those that come last, that what is
/// sent lies in a page.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    /// Anything: which of the handlers, arguments, payload.
    Any(bool, u8, Vec<u8>, Vec<u8>, bool),
    /// To read so many bytes, with a ticket.
    Get(bool, Offset, u32, u32),
    /// To write bytes beside their place, or as a payload; counted or not.
    Put(bool, Offset, Vec<u8>, bool, bool),
    /// To read from some places, that many times over, of which the last is cut.
    Gets(bool, u16, Vec<Offset>, u8, u8, bool),
    /// To write a byte again and again to some places, of which the last is cut; counted or not.
    Puts(bool, u8, Vec<(Offset, u8)>, u8, bool, bool),
    /// Part of a letter: how far its number is from that of the last operation, the length of the whole, and bytes.
    Letter(bool, i8, u16, Vec<u8>, bool),
    /// Another operation of all ranks, for which this one waits for nobody.
    Operation,
    /// The rank reads bytes of the other one, which answers so.
    Read(u16, u16, Answer),
}

/// How a rank answers that is asked for bytes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Answer {
    /// As it shall.
    Right,
    /// With so many more bytes, or fewer.
    Long(i8),
    /// With another ticket.
    Ticket(u32),
    /// With bytes as arguments that shall be a payload, or the other way.
    Other,
    /// With nothing.
    Nothing,
    /// It fails, and says so much about why.
    Fails(u8, [u8; 21], u8),
}

/// Where a run of bytes lies, if it does in the part.
fn range(at: u64, len: usize) -> Option<std::ops::Range<usize>> {
    offset::range(at, len, BYTES)
}

fn word(args: &[u8], at: usize) -> usize {
    u32::from_le_bytes(args[at..at + 4].try_into().expect("four bytes")) as usize
}

fn long(args: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(args[at..at + 8].try_into().expect("eight bytes"))
}

/// What the rank shall hold.
struct Model {
    job: u64,
    part: Vec<u8>,
    stored: u64,
    /// Of each letter the length of the whole, and how much has come.
    letters: HashMap<u64, (u64, usize)>,
    /// Operations of all ranks so far.
    operations: u64,
    /// Whether it can ask nothing of others any more, and whether the other one has said that it has finished.
    blamed: bool,
    left: bool,
}

impl Model {
    /// What is asked for, and the answer: arguments and payload; none, if it is refused.
    fn ask(&mut self, member: bool, handler: u16, args: &[u8], payload: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (exact, least) = match handler {
            HELLO | GET => (true, 16),
            ARRIVE | BLAME => (true, 4),
            BYE => (true, 0),
            PUT | STORE | GET_BATCH => (false, 8),
            PUT_BATCH | STORE_BATCH => (false, 4),
            LETTER => (false, 16),
            _ => return None,
        };
        let fits = if exact { args.len() == least && payload.is_empty() } else { args.len() >= least };
        if !fits || payload.len() > PIECE {
            return None;
        }
        if handler == BLAME {
            self.blamed |= member && word(args, 0) == 1;
            return Some(Default::default());
        }
        if !member {
            return None;
        }
        let rest = if payload.is_empty() { &args[least..] } else { payload };
        match handler {
            HELLO => (word(args, 0) == 2 && word(args, 4) == 1 && long(args, 8) == self.job).then(Default::default),
            GET => {
                let bytes = &self.part[range(long(args, 0), word(args, 8))?];
                Some(answer(&args[12..], bytes))
            }
            PUT | STORE => {
                self.part[range(long(args, 0), rest.len())?].copy_from_slice(rest);
                self.stored += if handler == STORE { rest.len() as u64 } else { 0 };
                Some(Default::default())
            }
            GET_BATCH => {
                let (len, mut all) = (word(args, 0), Vec::new());
                for place in rest.chunks(8) {
                    let at = place.try_into().map(u64::from_le_bytes).ok()?;
                    all.extend_from_slice(&self.part[range(at, len)?]);
                    if all.len() > PIECE {
                        return None;
                    }
                }
                Some(answer(&args[4..8], &all))
            }
            PUT_BATCH | STORE_BATCH => {
                let len = word(args, 0);
                let writes: Vec<&[u8]> = rest.chunks(8 + len).collect();
                let whole = |write: &&[u8]| write.len() == 8 + len && range(long(write, 0), len).is_some();
                if !writes.iter().all(whole) {
                    return None;
                }
                for write in writes {
                    self.part[range(long(write, 0), len)?].copy_from_slice(&write[8..]);
                    self.stored += if handler == STORE_BATCH { len as u64 } else { 0 };
                }
                Some(Default::default())
            }
            LETTER => {
                let (number, whole) = (long(args, 0), long(args, 8));
                let &(before, had) = self.letters.get(&number).unwrap_or(&(whole, 0));
                let soon = (self.operations..self.operations + LETTERS).contains(&number);
                let fits = before == whole && had as u64 + rest.len() as u64 <= whole;
                if !soon || !fits {
                    return None;
                }
                self.letters.insert(number, (whole, had + rest.len()));
                Some(Default::default())
            }
            BYE => {
                self.left = true;
                Some(Default::default())
            }
            _ => Some(Default::default()),
        }
    }
}

/// The arguments and the payload of a read's answer.
fn answer(ticket: &[u8], bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    if bytes.len() <= INLINE { ([ticket, bytes].concat(), Vec::new()) } else { (ticket.to_vec(), bytes.to_vec()) }
}

struct Scene {
    world: World,
    model: Model,
    peer: Endpoint,
    /// The other rank's channel, and the stranger's.
    channels: [Channel; 2],
    calls: u64,
}

/// The number of the job, as ranks tell it each other.
fn number_of(job: &str) -> u64 {
    job.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let job = format!("part-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let address = format!("shm:{}/cutthrough-{job}.sock", std::env::temp_dir().display());
        let addresses = vec![address.clone(), "shm:nobody".to_owned()];
        let hello: Vec<u8> = [2_u32, 1].into_iter().flat_map(u32::to_le_bytes).collect();
        let hello = [hello, number_of(&job).to_le_bytes().to_vec()].concat();
        let model = Model {
            job: number_of(&job),
            part: vec![0; BYTES],
            stored: 0,
            letters: HashMap::new(),
            operations: 1,
            blamed: false,
            left: false,
        };
        let joining = std::thread::spawn(move || {
            let mut world = World::join(&Settings { size: 2, addresses, job, ..Settings::alone() })?;
            let part = world.alloc::<u8>(BYTES)?;
            assert_eq!((part.rank(), part.offset()), (0, 0));
            Ok::<_, Error>(world)
        });
        let mut peer = Endpoint::open(Config::default()).expect("an endpoint");
        let mut connect = || loop {
            if let Ok(channel) = peer.connect(&address, Duration::from_secs(20)) {
                return channel;
            }
        };
        let channels = [connect(), connect()];
        // The other rank's part in making the array: its end, as the greatest and as the least.
        let ends = [BYTES as u64, u64::MAX - BYTES as u64].map(u64::to_le_bytes).concat();
        let letter = [&1_u64.to_le_bytes()[..], &16_u64.to_le_bytes(), &ends[..]].concat();
        for (call, (handler, args)) in [(HELLO, hello), (LETTER, letter)].into_iter().enumerate() {
            send(&mut peer, channels[0], call as u64, handler, &args, &[], false);
        }
        let mut answers = 0;
        while !joining.is_finished() || answers < 2 {
            let mut answer = None;
            tend(&mut peer, &mut answer);
            answers += u32::from(answer.is_some());
        }
        let world = joining.join().expect("no panic").expect("all ranks have come");
        Self { world, model, peer, channels, calls: 2 }
    }

    /// Sends a request, and compares the only answer to it with the model's.
    fn ask(&mut self, stranger: bool, handler: u16, args: &[u8], payload: &[u8], page: bool) {
        self.calls += 1;
        let args = &args[..args.len().min(64)];
        let expected = self.model.ask(!stranger, handler, args, payload);
        let channel = self.channels[usize::from(stranger)];
        send(&mut self.peer, channel, self.calls, handler, args, payload, page);
        for _ in 0..LOOKS {
            // Also a rank that can ask nothing of others any more serves them.
            let polled = self.world.poll();
            assert!(polled.is_ok() || self.model.blamed, "{polled:?}");
            let mut answer = None;
            tend(&mut self.peer, &mut answer);
            if let Some(answer) = answer {
                return self.compare(answer, expected);
            }
        }
        panic!("no answer to handler {handler} with {args:?}")
    }

    fn compare(&mut self, mut message: Incoming, expected: Option<(Vec<u8>, Vec<u8>)>) {
        let control = message.control().to_vec();
        assert_eq!(control[8..16], self.calls.to_le_bytes(), "each request is answered once");
        let code = (control[0] == 3).then_some(control[3]);
        assert_ne!(code, Some(Failure::Panicked as u8), "a handler has panicked");
        assert_eq!(code.is_none(), expected.is_some(), "{control:?}");
        let Some((args, bytes)) = expected else { return };
        let mut payload = vec![0; message.payload_len()];
        if !payload.is_empty() {
            self.peer.read(&mut message, &mut payload).expect("the payload");
        }
        assert_eq!(control[16..16 + usize::from(control[2])], args);
        assert!(payload == bytes, "{} bytes of {}, or others", payload.len(), bytes.len());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Any(stranger, handler, args, payload, page) => {
                self.ask(*stranger, u16::from(*handler) % (GET_BATCH + 2), args, payload, *page);
            }
            Step::Get(stranger, at, len, ticket) => {
                let len = len % (2 * PIECE as u32);
                let args = [&at.of(BYTES).to_le_bytes()[..], &len.to_le_bytes(), &ticket.to_le_bytes()].concat();
                self.ask(*stranger, GET, &args, &[], false);
            }
            Step::Put(stranger, at, bytes, counted, page) => {
                let handler = if *counted { STORE } else { PUT };
                let at = at.of(BYTES).to_le_bytes();
                if bytes.len() <= 56 && !page {
                    self.ask(*stranger, handler, &[&at[..], &bytes[..]].concat(), &[], false);
                } else {
                    self.ask(*stranger, handler, &at, bytes, *page);
                }
            }
            Step::Gets(stranger, len, places, times, cut, page) => {
                let places: Vec<u8> = places.iter().flat_map(|at| at.of(BYTES).to_le_bytes()).collect();
                let mut places = places.repeat(usize::from(*times % 64));
                places.truncate(places.len().saturating_sub(usize::from(*cut % 8)));
                let args = [u32::from(*len), 7].map(u32::to_le_bytes).concat();
                self.batch(*stranger, GET_BATCH, &args, &places, *page);
            }
            Step::Puts(stranger, len, writes, cut, counted, page) => {
                let write = |(at, byte): &(Offset, u8)| {
                    [&at.of(BYTES).to_le_bytes()[..], &vec![*byte; usize::from(*len)][..]].concat()
                };
                let mut bytes: Vec<u8> = writes.iter().flat_map(write).collect();
                bytes.truncate(bytes.len().saturating_sub(usize::from(*cut % 16)));
                let handler = if *counted { STORE_BATCH } else { PUT_BATCH };
                self.batch(*stranger, handler, &u32::from(*len).to_le_bytes(), &bytes, *page);
            }
            Step::Letter(stranger, number, whole, bytes, page) => {
                let number = self.model.operations.wrapping_add_signed(i64::from(*number) / 4);
                let args = [number, u64::from(*whole)].map(u64::to_le_bytes).concat();
                self.batch(*stranger, LETTER, &args, bytes, *page);
            }
            Step::Operation => {
                // At every sixteenth all ranks meet.
                if self.model.operations + 1 < LETTERS && !self.model.blamed && !self.model.left {
                    self.model.operations += 1;
                    let least = self.model.operations;
                    self.model.letters.retain(|number, _| *number >= least);
                    assert_eq!(self.world.broadcast(0, 5_u32), Ok(5));
                }
            }
            Step::Read(at, len, answer) => {
                if !self.model.left {
                    self.read(u64::from(*at), usize::from(*len).max(1), *answer);
                }
            }
        }
    }

    /// Sends what belongs behind some arguments, beside them if it fits.
    fn batch(&mut self, stranger: bool, handler: u16, args: &[u8], bytes: &[u8], page: bool) {
        let bytes = &bytes[..bytes.len().min(LIST)];
        if args.len() + bytes.len() <= 64 && !page {
            self.ask(stranger, handler, &[args, bytes].concat(), &[], false);
        } else {
            self.ask(stranger, handler, args, bytes, page);
        }
    }

    /// The rank reads of the other one. What that answers with is taken, or an error; nobody waits for it in vain.
    fn read(&mut self, at: u64, len: usize, answer: Answer) {
        let asked = self.world.get_bulk(Global::<u8>::new(1, at), len);
        if self.model.blamed || range(at, len).is_none() {
            return assert!(asked.is_err(), "{at} {len}");
        }
        let coming = asked.expect("it lies in the other part");
        // What it has not sent yet, as other requests are under way.
        assert_eq!(self.world.poll(), Ok(()));
        let mut gets = None;
        for _ in 0..LOOKS {
            gets = tend(&mut self.peer, &mut None);
            if gets.is_some() {
                break;
            }
        }
        let (call, ticket) = gets.expect("it asks for the bytes");
        let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
        let (head, tail) = match answer {
            Answer::Right => self::answer(&ticket, &bytes),
            Answer::Long(by) => self::answer(&ticket, &vec![7; len.saturating_add_signed(by.into())]),
            Answer::Ticket(other) => self::answer(&other.to_le_bytes(), &bytes),
            Answer::Other if len <= INLINE => (ticket.to_vec(), bytes.clone()),
            Answer::Other => ([&ticket[..], &bytes[..INLINE]].concat(), Vec::new()),
            Answer::Nothing => Default::default(),
            Answer::Fails(_, words, said) => (words[..usize::from(said) % 22].to_vec(), Vec::new()),
        };
        let [kind, code] = if let Answer::Fails(code, ..) = answer { [3, code] } else { [2, 0] };
        let control =
            [&[kind, 0, u8::try_from(head.len()).expect("few"), code, 0, 0, 0, 0], &call[..], &head[..]].concat();
        let outgoing = self.peer.outgoing(self.channels[0]).expect("room").write(&control);
        let sent = if tail.is_empty() { outgoing.send() } else { outgoing.attach_copy(&tail).send() };
        sent.expect("shorter than any lap of the ring");
        let mut into = vec![0; len];
        let taken = self.world.take_bulk(coming, &mut into);
        let right = match answer {
            Answer::Right | Answer::Long(0) => true,
            Answer::Ticket(other) => other.to_le_bytes() == ticket,
            _ => false,
        };
        assert_eq!(taken.is_ok(), right, "{taken:?}");
        assert!(!matches!(taken, Err(Error::Late { .. })), "it has waited for what was answered");
        if right && !matches!(answer, Answer::Long(_)) {
            assert_eq!(into, bytes);
        }
        self.model.blamed |= !right;
    }

    fn look(&self) {
        let part = self.world.in_place(Global::<u8>::new(0, 0), BYTES).expect("its own part");
        assert!(part == self.model.part, "the part is not as it should be");
        let letters = &self.model.letters;
        let bytes: usize = letters.values().map(|(_, bytes)| *bytes).sum();
        assert_eq!(self.world.kept(), (self.model.stored, letters.len(), bytes));
        assert!(letters.len() <= LETTERS as usize);
    }
}

/// Sends a request.
fn send(peer: &mut Endpoint, channel: Channel, call: u64, handler: u16, args: &[u8], payload: &[u8], page: bool) {
    let [low, high] = handler.to_le_bytes();
    let head = [1, 0, u8::try_from(args.len()).expect("few"), 0, low, high, 0, 0];
    let control = [&head[..], &call.to_le_bytes(), args].concat();
    let lent = if page && !payload.is_empty() { peer.page(channel, payload.len()).ok() } else { None };
    let outgoing = peer.outgoing(channel).expect("room").write(&control);
    let sent = match lent {
        Some(mut lent) => {
            lent.copy_from_slice(payload);
            outgoing.attach(lent).send()
        }
        None if payload.is_empty() => outgoing.send(),
        None => outgoing.attach_copy(payload).send(),
    };
    sent.expect("shorter than any lap of the ring");
}

/// Takes in what has come for the other rank and the stranger, and answers what needs no thought. A read that it is
/// asked for: the call, and the ticket. An answer goes to `answer`.
fn tend(peer: &mut Endpoint, answer: &mut Option<Incoming>) -> Option<([u8; 8], [u8; 4])> {
    let message = match peer.poll()? {
        Event::Message(message) => message,
        other => panic!("{other:?}"),
    };
    let control = message.control();
    let call: [u8; 8] = control[8..16].try_into().expect("eight bytes");
    let handler = u16::from_le_bytes([control[4], control[5]]);
    match (control[0], handler) {
        (1, GET) => Some((call, control[28..32].try_into().expect("four bytes"))),
        (1, GET_BATCH) => Some((call, control[20..24].try_into().expect("four bytes"))),
        (1, _) => {
            let control = [&[2, 0, 0, 0, 0, 0, 0, 0], &call[..]].concat();
            peer.send(message.channel(), &control).expect("room");
            None
        }
        (2 | 3, _) => {
            *answer = Some(message);
            None
        }
        // That it waits no more for an answer.
        _ => None,
    }
}

/// Runs the steps: the part holds what the model does, whatever is asked for.
///
/// # Panics
/// If a promise is broken.
pub fn run(steps: &[Step]) {
    thread_local! {
        static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
    }
    SCENE.with_borrow_mut(|kept| {
        // A rank that can ask nothing of others any more is of no use to the next run, nor is one that soon has to meet
        // them.
        let good = |model: &Model| !model.blamed && !model.left && model.operations < LETTERS / 2;
        let mut scene = kept.take().filter(|scene| good(&scene.model)).unwrap_or_else(Scene::new);
        for step in steps.iter().take(64) {
            scene.step(step);
            scene.look();
        }
        *kept = Some(scene);
    });
}
