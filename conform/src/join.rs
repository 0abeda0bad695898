//! Two endpoints, joined, and short words for what a test does with them.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    Channel, CloseReason, Config, Counter, Endpoint, Event, Incoming, Landed, Path, Payload, Receipt, SendError, Token,
};
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size};

/// Nothing in the suite may take longer than this: whoever waits so long has lost something.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a way of joining may lack by its nature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Pages change hands by reference, and are fetched by token, without going through private memory.
    SharedPages,
    /// A thousand channels on one endpoint.
    ThousandChannels,
    /// More than one endpoint on a side.
    ManyEndpoints,
}

/// An address on loopback that nobody listens at, nor will until whoever asked does.
///
/// A port that the system has given and taken back may go to the next socket that asks for any. So the host is one of
/// this process alone (127.0.0.0/8 is all of this machine, and no process has a number of more than 22 bits), and the
/// port one that the system gives nobody by itself.
///
/// # Panics
///
/// When a process has asked for more than 20,000 of them.
#[must_use]
pub fn free_udp_address() -> SocketAddrV4 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 20_000, "so many addresses for one process");
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, high + 1, middle, low), 2000 + number)
}

/// A way in which two endpoints are joined. Behaviours take it as it is, so that they are built once for all ways.
pub trait Join {
    /// An address that nobody listens at.
    fn address(&self) -> String;

    /// Why a capability is missing here, if it is.
    fn lacks(&self, capability: Capability) -> Option<String>;

    /// Whether payloads cross a network: then receipts say so, and tell of no copies but the receiver's.
    fn crosses_wire(&self) -> bool {
        false
    }

    /// Whether what crosses it may be damaged on the way.
    fn damages(&self) -> bool {
        false
    }

    /// Why nothing can be joined here at all, on this machine or by this user, if it is so.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Settings of a behaviour, with what this way of joining needs beside them.
    fn config(&self, config: Config) -> Config {
        config
    }

    /// Runs this where the side that connects lives: what makes or takes an address has to happen there.
    fn near(&self, run: &mut (dyn FnMut() + Send)) {
        run();
    }

    /// Runs this where the side that listens lives.
    fn far(&self, run: &mut (dyn FnMut() + Send)) {
        run();
    }

    /// The address by which the side that connects reaches whoever listens at this one.
    fn way(&self, address: &str) -> String {
        address.to_owned()
    }

    /// An endpoint of the side that listens, listening at this address.
    ///
    /// # Panics
    /// If it is not free, nor soon.
    fn listening(&self, config: Config, address: &str) -> Endpoint {
        let mut endpoint = Endpoint::open(self.config(config)).expect("an endpoint");
        self.far(&mut || listen(&mut endpoint, address));
        endpoint
    }

    /// Two endpoints with one channel between them.
    ///
    /// # Panics
    /// If they cannot be joined.
    fn pair(&self, a: Config, b: Config) -> Pair {
        let address = self.address();
        let mut b = self.listening(b, &address);
        let mut a = Endpoint::open(self.config(a)).expect("an endpoint");
        let way = self.way(&address);
        let mut joined = None;
        self.near(&mut || joined = Some(connect(&mut a, &mut b, &way)));
        let (at_a, at_b) = joined.expect("it was run");
        Pair {
            a: Side { endpoint: a, channel: at_a },
            b: Side { endpoint: b, channel: at_b },
            address,
            way,
            wire: self.crosses_wire(),
        }
    }

    /// Whether to skip all behaviours; says so where it is seen, whether the test passes or not.
    fn skips_all(&self) -> bool {
        let missing = self.missing();
        if let Some(why) = &missing {
            crate::skipped(why);
        }
        missing.is_some()
    }

    /// Whether to skip a behaviour that needs this; says so as [`Join::skips_all`] does, unless it cannot be otherwise.
    fn skips(&self, capability: Capability) -> bool {
        let lack = self.lacks(capability);
        if let Some(why) = &lack {
            match capability {
                // Where two machines are, there are none by nature: nobody can do anything about it.
                Capability::SharedPages => eprintln!("left out, no {capability:?}: {why}"),
                _ => crate::skipped(format_args!("no {capability:?}: {why}")),
            }
        }
        lack.is_some()
    }
}

/// A file whose last close lasts for so long, and the other end, which ends that when it goes.
///
/// # Panics
/// If the system gives no such sockets.
#[must_use]
pub fn lingering(lingers: Duration) -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    set_socket_recv_buffer_size(&listener, 4096).expect("a small buffer");
    let mut socket = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
    let (end, _) = listener.accept().expect("a caller");
    set_socket_send_buffer_size(&socket, 4096).expect("a small buffer");
    socket.set_nonblocking(true).expect("non-blocking");
    // What nobody reads has to be sent before the close returns.
    while socket.write(&[0; 4096]).is_ok() {}
    set_socket_linger(&socket, Some(lingers)).expect("it lingers");
    (socket.into(), end)
}

/// Opens a channel from `from` to `to`, which listens at `address`: the channel as each of them knows it.
///
/// # Panics
/// If none comes about.
pub fn connect(from: &mut Endpoint, to: &mut Endpoint, address: &str) -> (Channel, Channel) {
    thread::scope(|scope| {
        let connecting = scope.spawn(|| from.connect(address, PATIENCE).expect("a channel"));
        let opened = match to.wait(Some(PATIENCE)) {
            Ok(Event::Opened(channel)) => channel,
            Ok(other) => panic!("instead of a caller: {other:?}"),
            Err(error) => {
                let (next, over) = (to.poll(), connecting.is_finished());
                panic!("no caller: {error}; a look shows {next:?}; the one who calls is through: {over}");
            }
        };
        (connecting.join().expect("the thread that connects"), opened)
    })
}

/// Three endpoints send 20 MiB at the same time, each to the next one in a circle by its address, and read only when
/// they are done: each is waited for by one, waits for another, and goes on.
///
/// # Panics
/// If one does not, or a byte is wrong.
pub fn circle(mut nodes: [Endpoint; 3], next: [&str; 3]) {
    const LEN: usize = 20 << 20;
    let channels = [(0, 1), (1, 2), (2, 0)].map(|(from, to)| {
        let [caller, called] = nodes.get_disjoint_mut([from, to]).expect("two of three");
        connect(caller, called, next[from]).0
    });
    for round in 0..3 {
        thread::scope(|scope| {
            for (endpoint, channel) in nodes.iter_mut().zip(channels) {
                scope.spawn(move || {
                    let payload = crate::bytes::pattern(round, LEN);
                    let outgoing = endpoint.outgoing(channel).expect("a slot").write(b"large");
                    outgoing.attach_copy(&payload).send().expect("sent");
                    let mut message = match endpoint.wait(Some(PATIENCE)) {
                        Ok(Event::Message(message)) => message,
                        other => panic!("instead of a message: {other:?}"),
                    };
                    let mut bytes = vec![0; LEN];
                    endpoint.read(&mut message, &mut bytes).expect("a payload");
                    crate::bytes::check(round, &bytes);
                });
            }
        });
    }
}

/// Polls an endpoint long enough that it has kept house: then its counters say all that it has done. Shows `each` what
/// happens meanwhile.
///
/// # Panics
/// If it does not keep house.
pub fn keep_house(endpoint: &mut Endpoint, mut each: impl FnMut(Event)) {
    let (houses, begun) = (endpoint.counter(Counter::Housekeeping), Instant::now());
    while endpoint.counter(Counter::Housekeeping) < houses + 2 {
        endpoint.poll().into_iter().for_each(&mut each);
        assert!(begun.elapsed() < PATIENCE, "nobody keeps house");
    }
}

/// Two joined endpoints; `b` listens.
#[derive(Debug)]
pub struct Pair {
    /// The side that has connected.
    pub a: Side,
    /// The side that has let it in.
    pub b: Side,
    /// Where `b` listens.
    pub address: String,
    /// How `a` reaches it.
    pub way: String,
    /// Whether payloads cross a network.
    pub wire: bool,
}

impl Pair {
    /// What a receipt says here of a payload that takes this path over shared memory.
    #[must_use]
    pub fn path(&self, path: Path) -> Path {
        if self.wire && !matches!(path, Path::None | Path::Dropped) { Path::Wire } else { path }
    }

    /// Runs both sides at the same time, each in a thread: what each came to.
    ///
    /// # Panics
    /// If one of them does.
    pub fn both<A: Send, B: Send>(
        &mut self,
        a: impl FnOnce(&mut Side) -> A + Send,
        b: impl FnOnce(&mut Side) -> B + Send,
    ) -> (A, B) {
        let (left, right) = (&mut self.a, &mut self.b);
        thread::scope(|scope| {
            let left = scope.spawn(move || a(left));
            let right = b(right);
            (left.join().expect("side a"), right)
        })
    }
}

/// One endpoint with one channel.
#[derive(Debug)]
pub struct Side {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its channel to the other side.
    pub channel: Channel,
}

impl Side {
    /// The next event.
    ///
    /// # Panics
    /// If there is none for [`PATIENCE`].
    pub fn event(&mut self) -> Event {
        self.endpoint.wait(Some(PATIENCE)).expect("an event in time")
    }

    /// The next event, which is a message.
    ///
    /// # Panics
    /// If it is anything else, or does not come.
    pub fn message(&mut self) -> Incoming {
        match self.event() {
            Event::Message(message) => message,
            other => panic!("instead of a message: {other:?}"),
        }
    }

    /// The cookie of the next event, which is a completion.
    ///
    /// # Panics
    /// If it is anything else, or does not come.
    pub fn completed(&mut self) -> u64 {
        match self.event() {
            Event::Completed(completion) => completion.cookie,
            other => panic!("instead of a completion: {other:?}"),
        }
    }

    /// Why the channel has ended; the next event says so.
    ///
    /// # Panics
    /// If it has not ended.
    pub fn closed(&mut self) -> CloseReason {
        match self.event() {
            Event::Closed(_, reason) => reason,
            other => panic!("instead of the end: {other:?}"),
        }
    }

    /// Sends a control message, as soon as there is room.
    ///
    /// # Panics
    /// If the channel has ended.
    pub fn say(&mut self, control: &[u8]) {
        loop {
            match self.endpoint.send(self.channel, control) {
                Ok(()) => return,
                Err(SendError::Full) => thread::yield_now(),
                Err(error) => panic!("not sent: {error}"),
            }
        }
    }

    /// Waits until there is room for a message. Over a network the other side may be a while behind.
    fn room(&mut self) {
        while matches!(self.endpoint.outgoing(self.channel), Err(SendError::Full)) {
            thread::yield_now();
        }
    }

    /// Sends a payload of private memory, as soon as there is room for the message.
    ///
    /// # Panics
    /// If it is not sent.
    pub fn send_copy(&mut self, control: &[u8], payload: &[u8], token: Option<Token>) -> Receipt {
        self.room();
        let mut outgoing = self.endpoint.outgoing(self.channel).expect("a slot").write(control).attach_copy(payload);
        if let Some(token) = token {
            outgoing = outgoing.to(token);
        }
        outgoing.send().expect("sent")
    }

    /// Sends pages with a pattern in them: `lens` bytes each, the pattern running through all of them.
    ///
    /// # Panics
    /// If there are no pages, or they are not sent.
    pub fn send_pages(&mut self, control: &[u8], seed: u64, lens: &[usize], token: Option<Token>) -> Receipt {
        let payload = crate::bytes::pattern(seed, lens.iter().sum());
        let mut rest = payload.as_slice();
        let pages = lens
            .iter()
            .map(|len| {
                let mut page = self.endpoint.page(self.channel, *len).expect("a page");
                let (now, later) = rest.split_at(*len);
                page.copy_from_slice(now);
                rest = later;
                page
            })
            .collect();
        let mut outgoing = self.endpoint.outgoing(self.channel).expect("a slot").write(control).attach_list(pages);
        if let Some(token) = token {
            outgoing = outgoing.to(token);
        }
        outgoing.send().expect("sent")
    }

    /// Reads a message's payload and checks it: its receipt afterwards.
    ///
    /// # Panics
    /// If a byte is wrong.
    pub fn read_checked(&mut self, message: &mut Incoming, seed: u64) -> Receipt {
        let mut bytes = vec![0; message.payload_len()];
        let receipt = self.endpoint.read(message, &mut bytes).expect("a payload");
        crate::bytes::check(seed, &bytes);
        receipt
    }
}

/// The pages of a payload that lies in pages.
///
/// # Panics
/// If it lies elsewhere.
#[must_use]
pub fn landed(message: &Incoming) -> &Landed {
    match message.payload() {
        Payload::Landed(landed) => landed,
        other => panic!("instead of pages: {other:?}"),
    }
}

/// Listens at an address that may have been somebody else's until now. A process that another test begins has a copy of
/// every socket until it runs its own program, and for so long an address is in use.
///
/// # Panics
/// If it is not free within a second.
pub fn listen(endpoint: &mut Endpoint, address: &str) {
    let begun = Instant::now();
    while let Err(error) = endpoint.listen(address) {
        let is_in_use = error.to_string().contains("in use");
        assert!(is_in_use && begun.elapsed() < Duration::from_secs(1), "{address}: {error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
