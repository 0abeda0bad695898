//! A world of two endpoints and the wire between them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cutthrough_engine::net::batch::{Batch, Piece};
use cutthrough_engine::net::channel::{Bodies, Body};
use cutthrough_engine::net::inbox::{Reading, Ready};
use cutthrough_engine::net::memory::{Load as _, Memory, Place as _, Placing, Want};
use cutthrough_engine::net::trains::{Came, Trains};
use cutthrough_engine::net::{CallError, Guess, Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Refused;
use cutthrough_wire::frame::{Greeting, HEADER_BYTES, Header, Kind, low};

pub(crate) use super::doorman::{Doorman, sum};
use super::trains::Socket;

/// How often what goes wrong, in per cent of frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) loss: u32,
    pub(crate) duplicates: u32,
    pub(crate) reorder: u32,
    pub(crate) corrupt: u32,
}

impl Faults {
    pub(crate) const NONE: Self = Self { loss: 0, duplicates: 0, reorder: 0, corrupt: 0 };
}

/// Tokens of this place are revoked.
pub(crate) const REVOKED: u16 = u16::MAX;

/// Places for payloads that come from pages; others wait for a reader.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Those that are posted, in their order.
    posted: VecDeque<Vec<u8>>,
    /// Whether what would be filled next is exchanged whenever a place is asked for, and no place is the guessed one.
    pub(crate) fickle: bool,
    /// Lengths of the places that messages had got behind the last one that has asked for one.
    pub(crate) behind: Vec<usize>,
}

impl Pages {
    /// Posts a place of so many bytes, which are not 0.
    pub(crate) fn post(&mut self, bytes: usize) {
        self.posted.push_back(vec![0x5a; bytes]);
    }
}

impl Memory for Pages {
    type Load = Vec<u8>;
    type Place = Vec<u8>;
    fn place<'a>(
        &mut self,
        _channel: usize,
        want: &Want,
        behind: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Placing<Vec<u8>> {
        self.behind = behind.map(Vec::len).collect();
        if self.fickle {
            self.posted.front_mut().into_iter().for_each(|next| *next = vec![0x5a; next.len()]);
            return if want.pages { Placing::Here(vec![0; want.bytes as usize]) } else { Placing::Reader };
        }
        if want.token.is_some_and(|token| token.index == REVOKED) {
            return Placing::Refused(Refused::Revoked);
        }
        if !want.pages {
            return Placing::Reader;
        }
        match self.posted.pop_front_if(|next| next.len() >= want.bytes as usize) {
            Some(next) => Placing::Guessed(next),
            None => Placing::Here(vec![0; want.bytes as usize]),
        }
    }
    fn guess(&mut self, _channel: usize) -> Option<&mut Vec<u8>> {
        self.posted.front_mut()
    }
    fn guesses(&mut self, _channel: usize) -> impl Iterator<Item = &mut Vec<u8>> {
        self.posted.iter_mut()
    }
}

pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| mix(seed ^ (at as u64 / 8)).to_le_bytes()[at % 8]).collect()
}

pub(crate) struct Node {
    pub(crate) net: Net<Pages>,
    pub(crate) trains: Trains,
    address: SocketAddr,
}

/// A frame that arrives: at which node, from where.
pub(crate) type Arrived = (usize, SocketAddr, Vec<u8>);

/// Bytes that the only channel of a node may send unasked.
pub(crate) const UNASKED: u64 = 64 << 10;

/// How long a channel that is closed may make no progress.
pub(crate) const DEADLINE_NS: u64 = 30_000_000_000;

/// Payload bytes that a node asks for at a time.
pub(crate) const GRANTED: u32 = 256 << 10;

/// Two endpoints and what is on its way between them.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    now: u64,
    /// Frames on their way: when they arrive, and a number that tells those of one moment apart.
    wire: BTreeMap<(u64, u64), Arrived>,
    frames: u64,
    random: u64,
    faults: Faults,
    /// Nanoseconds that a frame is on its way.
    pub(crate) delay: u64,
    /// A way by which nothing of a node arrives.
    pub(crate) black: Option<(usize, u8)>,
    /// Whether everything that node 0 sends comes back to it, as if it came from where that was to go.
    pub(crate) mirror: bool,
    /// Which cookies are told: see [`Doorman`].
    pub(crate) cookies: Arc<AtomicU64>,
    /// Batches that have gone that way.
    pub(crate) swallowed: u64,
    /// Bytes of the longest frame that the path from node 0 carries, and how many longer ones it has dropped.
    pub(crate) carries: usize,
    pub(crate) too_long: u64,
    /// Channels of node 1 whose peer holds back what it is asked for: no more of a payload comes than its opening has.
    pub(crate) kept_back: Vec<usize>,
    /// After how many nanoseconds one frame of those comes all the same, and when the next one does.
    pub(crate) trickle: Option<(u64, u64)>,
    /// A channel of node 1 whose frames take so many nanoseconds more to get there.
    pub(crate) far: Option<(usize, u64)>,
    /// How many hellos with a cookie are lost next.
    pub(crate) lost_hellos: u32,
    /// Whether there is no memory for what is sent to node 1 while it does not look; and when it looks again.
    pub(crate) deaf: bool,
    held: u64,
    /// Bytes of the longest frame that has come out of that path, and of the longest one for node 0.
    pub(crate) longest: usize,
    pub(crate) longest_back: usize,
    /// Generation that the last frame for node 1 names.
    pub(crate) generation: u32,
    /// Whether frames that come together land where the guess says, and are brought in together.
    pub(crate) together: bool,
    /// Whether they come as trains, which are scattered before they are looked at.
    pub(crate) scattered: bool,
    /// How often several came, and were brought in together; and how often the first was looked at before.
    pub(crate) runs: u64,
    pub(crate) peeked: u64,
    /// Frames for node 1, if they are kept.
    pub(crate) kept: Option<Vec<Vec<u8>>>,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self::with_slots(seed, faults, 64)
    }

    /// A world whose channels take so many messages at a time.
    pub(crate) fn with_slots(seed: u64, faults: Faults, slots: u64) -> Self {
        Self::with(seed, faults, slots, 20_000_000_000)
    }

    /// A world whose nodes take each other for dead after so many nanoseconds.
    pub(crate) fn with_silence(seed: u64, silence_ns: u64) -> Self {
        Self::with(seed, Faults::NONE, 64, silence_ns)
    }

    pub(crate) fn with(seed: u64, faults: Faults, slots: u64, silence_ns: u64) -> Self {
        let cookies = Arc::default();
        let node = |number: u64| {
            let settings = Settings {
                slots,
                unasked: UNASKED,
                granted: GRANTED,
                silence_ns,
                deadline_ns: DEADLINE_NS,
                channels: 16,
                body: 1408,
                life: number,
                process: 0,
                user: 0,
            };
            let guard = Box::new(Doorman::of(&cookies, mix(seed ^ number), mix(seed.wrapping_add(number))));
            let address = SocketAddr::from(([10, 0, 0, u8::try_from(number).unwrap()], 7));
            Node { net: Net::new(settings, Pages::default(), guard), trains: Trains::default(), address }
        };
        let nodes = vec![node(1), node(2)];
        let wire = BTreeMap::new();
        let mut world = Self {
            nodes,
            now: 1,
            wire,
            frames: 0,
            random: seed,
            faults,
            delay: 5_000,
            black: None,
            mirror: false,
            cookies,
            swallowed: 0,
            carries: usize::MAX,
            too_long: 0,
            kept_back: Vec::new(),
            trickle: None,
            far: None,
            lost_hellos: 0,
            deaf: false,
            held: 0,
            longest: 0,
            longest_back: 0,
            generation: 0,
            together: false,
            scattered: false,
            runs: 0,
            peeked: 0,
            kept: None,
        };
        world.nodes[1].net.listen(true);
        world
    }

    fn chance(&mut self, per_cent: u32) -> bool {
        self.random = mix(self.random);
        self.random % 100 < u64::from(per_cent)
    }

    pub(crate) fn join(&mut self) -> (usize, usize) {
        let to = self.nodes[1].address;
        let a = loop {
            let a = self.nodes[0].net.call(Instant::from_nanos(self.now), to, 1408).unwrap();
            match self.event(0) {
                NetEvent::Connected(index) if index == a => break a,
                // A hello that was changed twice, on the way and where it came, looks like one of another version.
                NetEvent::Failed(index, CallError::Version(_)) if index == a => {
                    assert!(self.faults.corrupt > 0, "both are of one version");
                }
                other => panic!("not connected: {other:?}"),
            }
        };
        let NetEvent::Opened(b) = self.event(1) else { panic!("not let in") };
        (a, b)
    }

    fn put(&mut self, from: usize, to: SocketAddr, frame: &[u8]) {
        let Some(target) = self.nodes.iter().position(|node| node.address == to) else { return };
        let (target, back) = if self.mirror { (from, to) } else { (target, self.nodes[from].address) };
        let mut more = 0;
        if target == 0 {
            self.longest_back = self.longest_back.max(frame.len());
        }
        if target == 1 {
            self.kept.iter_mut().for_each(|kept| kept.push(frame.to_vec()));
            self.generation = u32::from_le_bytes(*frame[8..].first_chunk().unwrap());
            if frame.len() > self.carries {
                self.too_long += 1;
                return;
            }
            self.longest = self.longest.max(frame.len());
            if self.deaf && self.now < self.held {
                return;
            }
            let channel = u32::from_le_bytes(*frame[4..].first_chunk().unwrap()) as usize;
            if frame[1] == Kind::Hello as u8 {
                let has_cookie = Greeting::from_bytes(&frame[HEADER_BYTES..]).is_ok_and(|hello| hello.0.cookie != 0);
                if has_cookie && self.lost_hellos > 0 {
                    self.lost_hellos -= 1;
                    return;
                }
            } else if let Some((_, nanos)) = self.far.filter(|far| far.0 == channel) {
                more = nanos;
            }
            if frame[1] == Kind::Data as u8 && self.kept_back.contains(&channel) {
                match &mut self.trickle {
                    Some((every, next)) if self.now >= *next => *next = self.now + *every,
                    _ => return,
                }
            }
        }
        let copies = if self.chance(self.faults.loss) { 0 } else { 1 + u32::from(self.chance(self.faults.duplicates)) };
        for _ in 0..copies {
            let mut frame = frame.to_vec();
            if self.chance(self.faults.corrupt) {
                let at = usize::try_from(mix(self.random) % frame.len() as u64).unwrap();
                frame[at] ^= 1 << (self.random % 8);
            }
            let mut arrives = self.now + self.delay + more;
            if self.chance(self.faults.reorder) {
                arrives += mix(self.random) % 50_000;
            }
            if target == 1 {
                arrives = arrives.max(self.held);
            }
            self.frames += 1;
            self.wire.insert((arrives, self.frames), (target, back, frame));
        }
    }

    /// When the next frame arrives, or the next timer ends; never, if nobody has a channel.
    fn next(&self) -> u64 {
        let frame = self.wire.first_key_value().map(|(key, _)| key.0);
        let timer = |node: usize| self.nodes[node].net.timer().map(Instant::as_nanos);
        [frame, timer(0), timer(1).map(|at| at.max(self.held))].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Lets everybody do what there is to do, and the next frame arrive or the next timer end.
    pub(crate) fn step(&mut self, mut reading: Option<(usize, usize, &mut Reading<'_>)>) {
        let mut batch = Batch::default();
        for index in 0..self.nodes.len() {
            if index == 1 && self.now < self.held {
                continue;
            }
            let now = Instant::from_nanos(self.now);
            self.nodes[index].net.tick(now);
            self.nodes[index].net.looked(now);
            while let Some((to, frame)) = self.nodes[index].net.greeting() {
                self.put(index, to, &frame);
            }
            while let Some((channel, to)) = self.nodes[index].net.batch(now, &mut batch, 65_000) {
                if self.black == Some((index, batch.way().number)) {
                    self.swallowed += 1;
                    continue;
                }
                let bytes = self.bytes(index, channel, &batch);
                for frame in bytes.chunks(batch.segment()) {
                    self.put(index, to, frame);
                }
            }
        }
        self.now = self.now.max(Some(self.next()).filter(|next| *next < u64::MAX).unwrap_or(self.now));
        let now = Instant::from_nanos(self.now);
        let mut came = Vec::new();
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            came.push(entry.remove());
        }
        let mut came = &mut came[..];
        while let Some(&(target, from, _)) = came.first() {
            if self.scattered {
                came = self.scatter(target, from, now, came, &mut reading);
                continue;
            }
            if self.together {
                let landed = if reading.is_none() { self.land(target, from, now, came) } else { 0 };
                let taken = if landed > 0 { landed } else { self.aside(target, from, now, came, &mut reading) };
                if taken > 0 {
                    came = &mut came[taken..];
                    continue;
                }
            }
            let frame = &mut came[0].2;
            if let Some((head, body)) = frame.split_first_chunk_mut() {
                let reading = match &mut reading {
                    Some((node, channel, reading)) if *node == target => Some((*channel, &mut **reading)),
                    _ => None,
                };
                self.nodes[target].net.frame(now, from, head, Body::Aside(body), reading);
            }
            came = &mut came[1..];
        }
    }

    /// Receives a train of those that have come, and says what is left.
    fn scatter<'a>(
        &mut self,
        target: usize,
        from: SocketAddr,
        at: Instant,
        came: &'a mut [Arrived],
        reading: &mut Option<(usize, usize, &mut Reading<'_>)>,
    ) -> &'a mut [Arrived] {
        let lies = self.chance(self.faults.corrupt).then_some(usize::try_from(self.random % 3000).unwrap());
        let Node { net, trains, .. } = &mut self.nodes[target];
        let mut socket = Socket { came, at, lies, frames: 0, peeked: 0 };
        let reading = match reading {
            Some((node, channel, reading)) if *node == target => Some((*channel, &mut **reading)),
            _ => None,
        };
        assert_eq!(trains.receive(net, &mut socket, reading), Came::Train, "from {from}");
        self.runs += u64::from(socket.frames > 1);
        self.peeked += socket.peeked;
        socket.came
    }

    /// Lets frames of one sender land where the guess says, as far as it fits, and brings them in: how many.
    fn land(&mut self, target: usize, from: SocketAddr, now: Instant, came: &[Arrived]) -> usize {
        let net = &mut self.nodes[target].net;
        let Some((guess @ Guess::Rest { channel, message, begin, end }, _)) = net.guess(None) else { return 0 };
        let (mut heads, mut lens, mut at) = (Vec::new(), Vec::new(), begin as usize);
        for (_, _, frame) in came.iter().take_while(|other| (other.0, other.1) == (target, from)) {
            let Some((head, body)) = frame.split_first_chunk::<HEADER_BYTES>() else { break };
            let Ok(header) = Header::from_bytes(head) else { break };
            let named = (header.kind, header.tag as usize, header.words[0]) == (Kind::Data, channel, low(message));
            let fits = header.words[1] as usize == at && usize::from(header.body) == body.len();
            if !named || !fits || at + body.len() > end as usize {
                break;
            }
            let Some((place, _)) = net.guessed(guess) else { break };
            place.piece(at, body.len()).copy_from_slice(body);
            heads.push(*head);
            lens.push(body.len());
            at += body.len();
        }
        let mut done = 0;
        while done < heads.len() {
            let taken = net.run(now, from, (&heads[done..], Bodies::Landed), None);
            self.runs += u64::from(taken > 1);
            if taken == 0 {
                net.frame(now, from, &heads[done], Body::Landed { opening: None, len: lens[done] }, None);
            }
            done += taken.max(1);
        }
        done
    }

    /// Brings frames of one sender in together that lie aside: how many.
    fn aside(
        &mut self,
        target: usize,
        from: SocketAddr,
        now: Instant,
        came: &[Arrived],
        reading: &mut Option<(usize, usize, &mut Reading<'_>)>,
    ) -> usize {
        let segment = came[0].2.len();
        let (mut heads, mut train) = (Vec::new(), Vec::new());
        for (_, _, frame) in came.iter().take_while(|other| (other.0, other.1) == (target, from)) {
            let Some(head) = frame.first_chunk::<HEADER_BYTES>() else { break };
            if frame.len() > segment || train.len() % segment != 0 {
                break;
            }
            heads.push(*head);
            train.extend_from_slice(frame);
        }
        let reading = match reading {
            Some((node, channel, reading)) if *node == target => Some((*channel, &mut **reading)),
            _ => None,
        };
        let taken = self.nodes[target].net.run(now, from, (&heads, Bodies::Aside(&mut train, segment)), reading);
        self.runs += u64::from(taken > 1);
        taken
    }

    /// The bytes of a batch.
    pub(crate) fn bytes(&self, index: usize, channel: usize, batch: &Batch) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in batch.pieces() {
            match *piece {
                Piece::Own { at, len } => bytes.extend_from_slice(&batch.own()[at..at + len]),
                Piece::Payload { message, offset, len } => {
                    bytes.extend_from_slice(self.nodes[index].net.load(channel, message).unwrap().piece(offset, len));
                }
            }
        }
        assert_eq!(bytes.len(), batch.bytes());
        bytes
    }

    pub(crate) fn event(&mut self, node: usize) -> NetEvent<Vec<u8>> {
        for _ in 0..200_000 {
            if let Some(event) = self.nodes[node].net.next_event() {
                return event;
            }
            self.step(None);
        }
        panic!("nothing happens: {:?}", self.nodes.iter().map(|node| *node.net.tally()).collect::<Vec<_>>());
    }

    pub(crate) fn message(&mut self, node: usize) -> (usize, Ready<Vec<u8>>) {
        match self.event(node) {
            NetEvent::Message(index, message) => (index, message),
            other => panic!("instead of a message: {other:?}"),
        }
    }

    pub(crate) fn completed(&mut self, node: usize) -> u64 {
        match self.event(node) {
            NetEvent::Completed(_, cookie) => cookie,
            other => panic!("instead of a completion: {other:?}"),
        }
    }

    pub(crate) fn read(&mut self, node: usize, channel: usize, reading: &mut Reading<'_>) {
        for _ in 0..200_000 {
            let now = Instant::from_nanos(self.now);
            let (_, done) = self.nodes[node].net.read(now, channel, reading, 0, true).expect("a payload");
            if done {
                self.nodes[node].net.forget(channel, reading.message);
                return;
            }
            self.step(Some((node, channel, reading)));
        }
        panic!("never read: {:?}", self.nodes.iter().map(|node| &node.net).collect::<Vec<_>>());
    }

    /// As [`World::read`], without lending the memory: what comes lies aside until it is copied.
    pub(crate) fn read_some(&mut self, node: usize, channel: usize, reading: &mut Reading<'_>) {
        let mut valid = 0;
        for _ in 0..20_000 {
            let now = Instant::from_nanos(self.now);
            let (copied, done) = self.nodes[node].net.read(now, channel, reading, valid, false).expect("a payload");
            if done {
                self.nodes[node].net.forget(channel, reading.message);
                return;
            }
            valid = copied;
            self.step(None);
        }
        panic!("never read: {valid} bytes of message {}", reading.message);
    }

    /// Lets time pass without a look.
    pub(crate) const fn pass(&mut self, nanos: u64) {
        self.now += nanos;
    }

    /// Node 1 does not look for so long.
    pub(crate) fn hold(&mut self, nanos: u64) {
        self.held = self.now + nanos;
        let wire = std::mem::take(&mut self.wire).into_iter();
        let held = |target: usize| if target == 1 { self.held } else { 0 };
        self.wire = wire.map(|((at, number), frame)| ((at.max(held(frame.0)), number), frame)).collect();
    }

    /// Lets so much time pass, and happen what happens in it.
    pub(crate) fn let_pass(&mut self, nanos: u64) {
        let until = self.now + nanos;
        while self.next() <= until {
            self.step(None);
        }
        self.now = until;
    }

    /// Lets so much time go on, with everything that happens in it, up to whatever happens next.
    pub(crate) fn go_on(&mut self, nanos: u64) {
        let until = self.now + nanos;
        while self.now < until {
            self.step(None);
            self.now = if self.next() == u64::MAX { until } else { self.now };
        }
    }

    pub(crate) const fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].address
    }

    /// Until a node has no channel left.
    pub(crate) fn settle_side(&mut self, node: usize) {
        for _ in 0..100_000 {
            if self.nodes[node].net.channels() == 0 {
                return;
            }
            self.step(None);
        }
        panic!("never ends");
    }

    /// Until no channel is left.
    pub(crate) fn empties(&mut self) {
        for _ in 0..100_000 {
            if self.nodes.iter().all(|node| node.net.channels() == 0) {
                return;
            }
            self.step(None);
        }
        panic!("channels are left: {:?}", self.nodes.iter().map(|node| &node.net).collect::<Vec<_>>());
    }

    /// Changes the version of every frame that is on its way.
    pub(crate) fn change_versions(&mut self) {
        self.step(None);
        self.wire.values_mut().for_each(|frame| frame.2[0] ^= 2);
    }

    /// Until everything is acknowledged.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.nodes.iter().all(|node| node.net.is_settled()) {
                return;
            }
            self.step(None);
        }
        panic!("never settles");
    }
}
