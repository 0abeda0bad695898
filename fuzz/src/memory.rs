//! An owner of memory that also serves calls, and a peer that sends it any arguments and any payloads. What the memory
//! shall hold is said by a model, in plain words.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use arbitrary::Arbitrary;
use cutthrough::am::{self, Failure, Node, RESERVED, Settings};
use cutthrough::rma::{Key, Owner, Region};
use cutthrough::rpc::{self, Message, Method};
use cutthrough::{Channel, Config, Endpoint, Event};

use crate::offset::{self, Offset};

/// Bytes of the region, and of its slots.
const BYTES: usize = 3 * SLOT + 100;
const SLOT: usize = 256;
/// The typed method.
const MIXED: Method<Mixed, Vec<u8>> = Method::new(1);
type Mixed = (u64, String, Option<Vec<u8>>, (bool, i32));
/// Looks after which an answer is missing.
const LOOKS: u32 = 10_000_000;
/// Most bytes of the runs of a list, and the list itself beside them: one thread plays both sides, so a payload that is
/// longer than the shortest lap of the staging ring would wait for itself.
const LIST: usize = 192 << 10;

/// What the peer asks for.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    /// Anything: which of the handlers, arguments, payload, and whether that lies in a page.
    Any(u8, Vec<u8>, Vec<u8>, bool),
    /// To write bytes, from here on.
    Put(Offset, Vec<u8>, bool),
    /// To read so many.
    Get(Offset, u16),
    /// An operation on a cell.
    Atomic(u8, Offset, u64, u64),
    /// To write runs: how many more than there are it speaks of, and whether they are pages.
    Scatter(Vec<Run>, i8, bool, bool),
    /// To read runs.
    Gather(Vec<Run>, i8),
    /// A call with a value of the method's type, of which a byte is changed.
    Call(Mixed, Option<(u8, u8)>, bool),
    /// The key is another one from now on.
    Again,
}

/// A run of bytes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Run {
    /// Where it begins.
    pub at: Offset,
    /// Bytes of it.
    pub len: u16,
    /// What they are, where they are written.
    pub byte: u8,
}

/// What a run is of, if it lies in the region.
fn range(at: u64, len: usize) -> Option<std::ops::Range<usize>> {
    offset::range(at, len, BYTES)
}

/// An answer: whether it is a reply, its code, arguments, payload.
struct Answer {
    code: Option<u8>,
    args: Vec<u8>,
    payload: Vec<u8>,
}

struct World {
    node: Node,
    owner: Owner,
    region: Region,
    key: Key,
    peer: Endpoint,
    channel: Channel,
    calls: u64,
    model: Vec<u8>,
}

impl World {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cutthrough-fuzz-{}-{number}.sock", std::process::id());
        let address = format!("shm:{}", std::env::temp_dir().join(name).display());
        let config = Config { slots: 16, ..Config::default() };
        let endpoint = Endpoint::open(config.clone()).expect("an endpoint");
        let mut node = Node::new(endpoint, Settings::default());
        let owner = Owner::new(&mut node);
        let region = Region::new(BYTES, u32::try_from(SLOT).expect("a number"));
        let key = owner.register(&region);
        rpc::serve(&mut node, MIXED, |value| {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            Ok(bytes)
        });
        node.listen(&address).expect("a free name");
        let joining = std::thread::spawn(move || {
            let mut peer = Endpoint::open(config).expect("an endpoint");
            let channel = peer.connect(&address, std::time::Duration::from_secs(20)).expect("a channel");
            (peer, channel)
        });
        while !joining.is_finished() || node.channels().next().is_none() {
            assert!(node.poll().is_none_or(|event| matches!(event, am::Event::Opened(_))));
        }
        let (peer, channel) = joining.join().expect("the peer");
        Self { node, owner, region, key, peer, channel, calls: 0, model: vec![0; BYTES] }
    }

    /// Sends a request, and takes the only answer to it.
    fn ask(&mut self, handler: u16, args: &[u8], payload: &[u8], page: bool) -> Answer {
        self.calls += 1;
        let args = &args[..args.len().min(64)];
        let [low, high] = handler.to_le_bytes();
        let head = [1, 0, u8::try_from(args.len()).expect("few"), 0, low, high, 0, 0];
        let control = [&head[..], &self.calls.to_le_bytes(), args].concat();
        let lent = if page { self.peer.page(self.channel, payload.len().max(1)).ok() } else { None };
        let outgoing = self.peer.outgoing(self.channel).expect("room").write(&control);
        let sent = match lent {
            Some(mut lent) if !payload.is_empty() => {
                lent.copy_from_slice(payload);
                outgoing.attach(lent).send()
            }
            _ if payload.is_empty() => outgoing.send(),
            _ => outgoing.attach_copy(payload).send(),
        };
        sent.expect("shorter than any lap of the ring");
        for _ in 0..LOOKS {
            assert!(self.node.poll().is_none(), "the owner has made no call, and nobody else comes");
            match self.peer.poll() {
                None => {}
                Some(Event::Message(message)) => return self.take(message),
                Some(other) => panic!("{other:?}"),
            }
        }
        panic!("no answer to handler {handler} with {args:?}")
    }

    fn take(&mut self, mut message: cutthrough::Incoming) -> Answer {
        let control = message.control().to_vec();
        assert_eq!(control[8..16], self.calls.to_le_bytes(), "each request is answered once");
        assert!(matches!(control[0], 2 | 3), "{control:?}");
        let code = (control[0] == 3).then_some(control[3]);
        assert_ne!(code, Some(Failure::Panicked as u8), "a handler has panicked");
        let mut payload = vec![0; message.payload_len()];
        if !payload.is_empty() {
            self.peer.read(&mut message, &mut payload).expect("the payload");
        }
        Answer { code, args: control[16..16 + usize::from(control[2])].to_vec(), payload }
    }

    fn args(&self, words: &[u64]) -> Vec<u8> {
        self.key.0.to_le_bytes().into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Any(which, args, payload, page) => {
                let handler = [1, 2, RESERVED, RESERVED + 1, RESERVED + 2, RESERVED + 3, RESERVED + 4, RESERVED + 5];
                let mine = args.starts_with(&self.key.0.to_le_bytes());
                self.ask(handler[usize::from(*which) % handler.len()], args, payload, *page);
                if mine {
                    // Somebody has found the key, and may have written.
                    self.model.copy_from_slice(&self.region.lock());
                }
            }
            Step::Put(at, bytes, page) => {
                let args = self.args(&[at.of(BYTES)]);
                let answer = self.ask(RESERVED, &args, bytes, *page);
                let range = range(at.of(BYTES), bytes.len());
                assert_eq!(answer.code.is_none(), range.is_some(), "{at:?} {}", bytes.len());
                if let Some(range) = range {
                    self.model[range].copy_from_slice(bytes);
                }
            }
            Step::Get(at, len) => {
                let mut args = self.args(&[at.of(BYTES)]);
                args.extend_from_slice(&u32::from(*len).to_le_bytes());
                let answer = self.ask(RESERVED + 1, &args, &[], false);
                match range(at.of(BYTES), usize::from(*len)) {
                    Some(range) => assert!(answer.code.is_none() && answer.payload == self.model[range]),
                    None => assert!(answer.code.is_some() && answer.payload.is_empty()),
                }
            }
            Step::Atomic(which, at, operand, expected) => self.atomic(*which, at.of(BYTES), *operand, *expected),
            Step::Scatter(runs, more, pages, page) => self.scatter(runs, *more, *pages, *page),
            Step::Gather(runs, more) => self.gather(runs, *more),
            Step::Call(value, change, page) => self.call(value, *change, *page),
            Step::Again => {
                self.owner.unregister(self.key);
                let before = self.key;
                assert!(
                    self.ask(RESERVED, &self.args(&[0]), &[1], false).code.is_some(),
                    "the key is not good any more"
                );
                self.key = self.owner.register(&self.region);
                assert_ne!(self.key, before);
            }
        }
    }

    fn atomic(&mut self, which: u8, at: u64, operand: u64, expected: u64) {
        let mut args = self.key.0.to_le_bytes().to_vec();
        args.extend_from_slice(&u32::from(which).to_le_bytes());
        args.extend([at, operand, expected].iter().flat_map(|word| word.to_le_bytes()));
        let answer = self.ask(RESERVED + 2, &args, &[], false);
        let cell = range(at, 8).filter(|_| at.is_multiple_of(8) && which < 3);
        let Some(cell) = cell else { return assert!(answer.code.is_some()) };
        let before = u64::from_le_bytes(self.model[cell.clone()].try_into().expect("eight bytes"));
        assert_eq!((answer.code, answer.args), (None, before.to_le_bytes().to_vec()));
        let after = match which {
            0 => before.wrapping_add(operand),
            1 => operand,
            _ => {
                if before == expected {
                    operand
                } else {
                    before
                }
            }
        };
        self.model[cell].copy_from_slice(&after.to_le_bytes());
    }

    /// The list of runs, how many there are said to be, and whether all of them lie in the region.
    fn list(runs: &[Run], more: i8) -> (Vec<u8>, u32, bool) {
        let mut list = Vec::new();
        for run in runs {
            list.extend_from_slice(&run.at.of(BYTES).to_le_bytes());
            list.extend_from_slice(&u64::from(run.len).to_le_bytes());
        }
        let inside = runs.iter().all(|run| range(run.at.of(BYTES), run.len.into()).is_some());
        let count = u32::try_from(runs.len()).expect("few").saturating_add_signed(more.into());
        (list, count, inside)
    }

    fn scatter(&mut self, runs: &[Run], more: i8, pages: bool, page: bool) {
        let mut bytes = 0;
        let fits = runs.iter().take_while(|run| {
            bytes += 16 + usize::from(run.len);
            bytes <= LIST
        });
        let runs = &runs[..fits.count()];
        let (mut payload, count, inside) = Self::list(runs, more);
        payload.extend(runs.iter().flat_map(|run| std::iter::repeat_n(run.byte, run.len.into())));
        let words = [count, u32::from(pages)];
        let mut args = self.key.0.to_le_bytes().to_vec();
        args.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let answer = self.ask(RESERVED + 3, &args, &payload, page);
        if count as usize != runs.len() {
            // What it says is read as if it was meant, for there is no telling.
            return self.model.copy_from_slice(&self.region.lock());
        }
        // Without runs there is no payload, and so nothing that could be a list.
        assert!(answer.code.is_none() == inside || payload.is_empty(), "{:?} {runs:?}", answer.code);
        if inside {
            for run in runs {
                let range = range(run.at.of(BYTES), run.len.into()).expect("it lies in the region");
                self.model[range].fill(run.byte);
            }
        }
    }

    fn gather(&mut self, runs: &[Run], more: i8) {
        let (payload, count, inside) = Self::list(runs, more);
        let mut args = self.key.0.to_le_bytes().to_vec();
        args.extend_from_slice(&count.to_le_bytes());
        let answer = self.ask(RESERVED + 4, &args, &payload, true);
        if count as usize == runs.len() && !payload.is_empty() {
            assert_eq!(answer.code.is_none(), inside, "{runs:?}");
        }
        if answer.code.is_none() {
            let named = runs.iter().take(count as usize);
            let bytes = named.filter_map(|run| range(run.at.of(BYTES), run.len.into()));
            let expected: Vec<u8> = bytes.flat_map(|range| self.model[range].to_vec()).collect();
            assert!(answer.payload == expected, "{runs:?}");
        }
    }

    fn call(&mut self, value: &Mixed, change: Option<(u8, u8)>, page: bool) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        if let Some((at, byte)) = change {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        let (args, payload): (&[u8], &[u8]) = if bytes.len() <= 58 { (&bytes, &[]) } else { (&[], &bytes) };
        let answer = self.ask(MIXED.number(), args, payload, page);
        match Mixed::decode(&bytes) {
            Some(_) => {
                let back = if answer.payload.is_empty() { &answer.args } else { &answer.payload };
                assert!(answer.code.is_none() && *back == bytes, "{value:?}");
            }
            None => assert_eq!(answer.code, Some(Failure::Arguments as u8)),
        }
    }
}

/// Runs the steps: the memory holds what the model does, whatever is asked for.
///
/// # Panics
/// If a promise is broken.
pub fn run(steps: &[Step]) {
    thread_local! {
        static WORLD: RefCell<World> = RefCell::new(World::new());
    }
    WORLD.with_borrow_mut(|world| {
        world.region.lock().fill(0);
        world.model.fill(0);
        for step in steps.iter().take(64) {
            world.step(step);
            assert!(*world.region.lock() == world.model, "the memory is not as it should be after {step:?}");
        }
    });
}
