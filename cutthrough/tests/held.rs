//! Payloads that are held as long as one likes, beyond their channel and their endpoint: nothing of them changes, and
//! all of their memory comes back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    Channel, Config, Endpoint, Event, Incoming, Keys, Landed, Landing, NoMemory, Payload, RevokeError, SendError,
    SharedKey, Token,
};

const PATIENCE: Duration = Duration::from_secs(20);
const PAGE: usize = 4096;
/// Worlds that are tried over each adapter.
const CASES: u64 = 12;
/// Pages of each pool, and of each landing memory.
const PAGES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Shm,
    Udp,
    Sealed,
}

/// How long something has taken; time in which this machine stood still counts for little.
struct Patience(Instant, Duration);

impl Patience {
    fn new() -> Self {
        Self(Instant::now(), Duration::ZERO)
    }

    fn lasts(&mut self) -> bool {
        self.1 += self.0.elapsed().min(Duration::from_millis(100));
        self.0 = Instant::now();
        self.1 < PATIENCE
    }
}

/// Draws numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((value ^ (value >> 31)) % end as u64).unwrap()
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(0x9e37_79b9) >> 7).wrapping_add(at as u64 * 7).to_le_bytes()[0]).collect()
}

/// What is held of a message.
enum Held {
    Landed(Arc<Landed>),
    Message(Incoming),
}

/// What a message has to be when it comes: its number; the pattern of its payload, and bytes.
type Expected = (u64, Option<(u64, usize)>);

/// One endpoint, its channel, and what its user has.
struct Side {
    endpoint: Endpoint,
    channel: Channel,
    coming: VecDeque<Expected>,
    held: Vec<(Held, Expected)>,
    tokens: Vec<(Token, usize)>,
    tracked: usize,
    completed: usize,
    closed: bool,
}

impl Side {
    fn new(endpoint: Endpoint, channel: Channel) -> Self {
        let (coming, held, tokens) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { endpoint, channel, coming, held, tokens, tracked: 0, completed: 0, closed: false }
    }

    /// Takes what has happened: whether anything had.
    fn poll(&mut self, random: &mut Random) -> bool {
        match self.endpoint.poll() {
            Some(Event::Message(mut message)) => {
                let expected = self.coming.pop_front().expect("a message that was sent");
                assert_eq!(message.control(), expected.0.to_le_bytes());
                let held = match message.payload() {
                    Payload::Landed(_) if random.below(2) == 0 => match message.take_payload() {
                        Payload::Landed(landed) => Held::Landed(Arc::new(landed)),
                        _ => unreachable!("it has landed"),
                    },
                    _ => Held::Message(message),
                };
                self.held.push((held, expected));
            }
            Some(Event::Completed(_)) => self.completed += 1,
            Some(Event::Closed(..)) => self.closed = true,
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// What is held is what was sent.
    fn check(&mut self) {
        for (held, (number, payload)) in &self.held {
            let landed = match held {
                Held::Landed(landed) => &**landed,
                Held::Message(message) => match (message.payload(), payload) {
                    (Payload::Landed(landed), Some(_)) => landed,
                    (Payload::Buffer(bytes), Some((seed, len))) => {
                        assert!(*bytes == pattern(*seed, *len), "message {number}");
                        continue;
                    }
                    (Payload::Arriving(_), Some(_)) | (Payload::None, None) => continue,
                    other => panic!("{other:?}"),
                },
            };
            let (seed, len) = payload.expect("a payload");
            assert!(landed.to_vec() == pattern(seed, len), "message {number}");
        }
    }

    /// Drops one thing that is held, here or elsewhere.
    fn drop_one(&mut self, random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let (held, (_, payload)) = self.held.swap_remove(random.below(self.held.len()));
        match (held, random.below(3)) {
            (Held::Message(mut message), 0) if matches!(message.payload(), Payload::Arriving(_)) => {
                let (seed, len) = payload.expect("a payload");
                let mut bytes = vec![0; len];
                match self.endpoint.read(&mut message, &mut bytes) {
                    Ok(_) => assert!(bytes == pattern(seed, bytes.len()), "message {seed}"),
                    Err(why) => assert!(self.closed, "{why}"),
                }
            }
            (Held::Message(message), 1) => self.endpoint.release(message),
            (held, 2) => thread::spawn(move || drop(held)).join().expect("dropped"),
            (held, _) => drop(held),
        }
    }
}

/// Two that are joined.
fn join(over: Over) -> [Side; 2] {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let config = || Config {
        slots: 16,
        staging_bytes: 64 << 10,
        pool_bytes: (PAGES * PAGE) as u64,
        landing_bytes: (PAGES * PAGE) as u64,
        keys: (over == Over::Sealed).then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32])))),
        insecure: over != Over::Sealed,
        silence: Duration::from_secs(10),
        ..Config::default()
    };
    let [mut a, mut b] = [config(), config()].map(|config| Endpoint::open(config).expect("an endpoint"));
    let address = if over == Over::Shm {
        format!("shm:cutthrough-held-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed))
    } else {
        "udp:127.0.0.1:0".to_owned()
    };
    b.listen(&address).expect("a free address");
    let address = if over == Over::Shm { address } else { format!("udp:{}", b.net_address().expect("an address")) };
    let (at_a, at_b) = thread::scope(|scope| {
        let calls = scope.spawn(|| a.connect(&address, PATIENCE).expect("a channel"));
        let Event::Opened(at_b) = b.wait(Some(PATIENCE)).expect("a caller") else { panic!("no caller") };
        (calls.join().expect("connected"), at_b)
    });
    [Side::new(a, at_a), Side::new(b, at_b)]
}

/// Sends something from one side to the other, if there is room for it.
fn send(from: &mut Side, to: &mut Side, random: &mut Random, number: u64) {
    if to.coming.len() + to.held.len() > 12 {
        return;
    }
    let len = [0, 1, 100, 1500, 4096, 5000, 9000][random.below(7)];
    let token = (random.below(3) == 0).then(|| to.tokens.pop()).flatten();
    let len = token.map_or(len, |(_, room)| len.min(room));
    let what = random.below(5);
    let page = if what == 1 {
        match from.endpoint.page(from.channel, len) {
            Ok(mut page) => {
                page.copy_from_slice(&pattern(number, len));
                Some(page)
            }
            Err(why) => {
                assert_eq!(why, NoMemory::NoPages);
                to.tokens.extend(token);
                return;
            }
        }
    } else {
        None
    };
    let again = from.held.iter().find_map(|(held, (_, payload))| match held {
        Held::Landed(landed) if what == 2 => Some((Arc::clone(landed), payload.expect("a payload"))),
        _ => None,
    });
    let again = again.filter(|(landed, _)| token.is_none_or(|(_, room)| landed.len() <= room));
    let (payload, control) = (pattern(number, len), number.to_le_bytes());
    let mut outgoing = match from.endpoint.outgoing(from.channel) {
        Ok(outgoing) => outgoing.write(&control),
        Err(why) => {
            assert_eq!(why, SendError::Full);
            to.tokens.extend(token);
            return;
        }
    };
    let mut expected = (number, Some((number, len)));
    if let Some(page) = page {
        outgoing = outgoing.attach(page).track(number);
        from.tracked += 1;
    } else if let Some((landed, of)) = again {
        outgoing = outgoing.attach_landed(landed).track(number);
        from.tracked += 1;
        expected.1 = Some(of);
    } else if what == 3 && token.is_none() {
        expected.1 = None;
    } else {
        outgoing = outgoing.attach_copy(&payload);
    }
    if let Some((token, _)) = token {
        outgoing = outgoing.to(token);
    }
    outgoing.send().expect("sent");
    to.coming.push_back(expected);
}

fn post_and_grant(side: &mut Side, random: &mut Random) {
    let bytes = [1, PAGE, 2 * PAGE, 3 * PAGE][random.below(4)];
    match random.below(3) {
        0 => match side.endpoint.post(side.channel, bytes, 2) {
            Ok(1..=2) | Err(NoMemory::NoPages) => {}
            other => panic!("{other:?}"),
        },
        pages => {
            let landing = if pages == 1 { Landing::Pages(bytes) } else { Landing::Buffer(vec![0; bytes]) };
            match side.endpoint.grant(side.channel, landing) {
                Ok(token) => side.tokens.push((token, bytes)),
                Err(why) => assert_eq!(why, NoMemory::NoPages),
            }
        }
    }
}

/// Both poll until nothing happens any more.
fn rest(sides: &mut [Side; 2], random: &mut Random) {
    let mut patience = Patience::new();
    let mut quiet = 0;
    while quiet < 50 || sides.iter().any(|side| !side.coming.is_empty()) {
        let any = sides.iter_mut().fold(false, |any, side| side.poll(random) | any);
        quiet = if any { 0 } else { quiet + 1 };
        if sides.iter().any(|side| !side.coming.is_empty() && quiet > 1000) {
            sides.iter_mut().for_each(|side| side.drop_one(random));
        }
        let coming = sides.each_ref().map(|side| &side.coming);
        assert!(patience.lasts(), "messages are lost: {coming:?}");
    }
}

/// All pages of a side are its own again.
fn whole(sides: &mut [Side; 2], random: &mut Random) {
    for side in sides.iter_mut() {
        while !side.held.is_empty() {
            side.drop_one(random);
        }
        let Side { endpoint, channel, tokens, .. } = side;
        for (token, _) in tokens.drain(..) {
            match endpoint.revoke(*channel, token) {
                Ok(_) => {}
                Err(why) => assert_ne!(why, RevokeError::InFlight, "all has come"),
            }
        }
    }
    let mut patience = Patience::new();
    for at in 0..2 {
        while sides[at].endpoint.recall(sides[at].channel).expect("it is open") > 0
            || sides[at].completed < sides[at].tracked
            || sides[at].endpoint.page(sides[at].channel, PAGES * PAGE).is_err()
        {
            rest(sides, random);
            assert!(patience.lasts(), "{:?} of {:?}", sides[at].completed, sides[at].tracked);
        }
        let Side { endpoint, channel, .. } = &mut sides[at];
        assert_eq!(endpoint.post(*channel, PAGES * PAGE, 1), Ok(1), "all landing pages are here");
        assert_eq!(endpoint.post(*channel, 1, 1), Err(NoMemory::NoPages));
    }
}

fn case(over: Over, seed: u64) {
    let mut random = Random(seed);
    let mut sides = join(over);
    for number in 0..150 {
        let at = random.below(2);
        let [one, other] = &mut sides;
        let (from, to) = if at == 0 { (one, other) } else { (other, one) };
        match random.below(12) {
            0 | 1 => post_and_grant(to, &mut random),
            2..=5 => send(from, to, &mut random, number),
            6..=8 => {
                let _ = from.poll(&mut random) && from.poll(&mut random);
            }
            9 => from.drop_one(&mut random),
            _ => from.check(),
        }
    }
    rest(&mut sides, &mut random);
    sides.iter_mut().for_each(Side::check);
    match random.below(4) {
        0 => whole(&mut sides, &mut random),
        1 => {
            // One of them closes, and both keep what they have.
            let closes = random.below(2);
            let channel = sides[closes].channel;
            sides[closes].endpoint.close(channel);
            sides[closes].closed = true;
            let mut patience = Patience::new();
            while !sides[1 - closes].closed {
                for side in &mut sides {
                    side.poll(&mut random);
                }
                assert!(patience.lasts(), "the end is not told");
            }
            for side in &mut sides {
                side.check();
                assert!(matches!(side.endpoint.page(side.channel, 1), Err(NoMemory::Closed(_))));
                while !side.held.is_empty() {
                    side.drop_one(&mut random);
                    side.check();
                }
            }
        }
        2 => {
            // One endpoint goes; what it has got stays, there and here.
            let [one, mut other] = sides;
            let Side { endpoint, held, .. } = one;
            drop(endpoint);
            let mut patience = Patience::new();
            while !other.closed {
                other.poll(&mut random);
                assert!(patience.lasts(), "the end is not told");
            }
            let mut rest = Side { held, ..join(over).into_iter().next().expect("a side") };
            rest.check();
            other.check();
            drop(other.endpoint);
            let held = rest.held.drain(..).chain(other.held).collect::<Vec<_>>();
            rest.held = held;
            rest.check();
            thread::spawn(move || drop(rest.held)).join().expect("dropped");
        }
        _ => {
            // Both go.
            let [Side { endpoint: a, held, .. }, Side { endpoint: b, held: more, .. }] = sides;
            drop((a, b));
            let mut rest = Side { held, ..join(over).into_iter().next().expect("a side") };
            rest.held.extend(more);
            rest.check();
            rest.closed = true;
            while !rest.held.is_empty() {
                rest.drop_one(&mut random);
                rest.check();
            }
        }
    }
}

/// Files that are open, and mappings of memory files.
fn left() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").expect("a list").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list");
    (files, maps.lines().filter(|line| line.contains("memfd:") || line.contains("/memfd")).count())
}

#[test]
fn what_is_held_stays_as_it_is_and_comes_back() {
    for over in [Over::Shm, Over::Udp, Over::Sealed] {
        case(over, 0);
        let before = left();
        for seed in 0..CASES {
            case(over, seed);
        }
        let mut patience = Patience::new();
        while left().0 > before.0 || left().1 > before.1 {
            assert!(patience.lasts(), "{over:?}: {:?} after {before:?}", left());
            thread::sleep(Duration::from_millis(10));
        }
    }
}
