//! Two nodes of one process, joined over shared memory or over UDP on loopback; the server has a thread of its own.
#![allow(dead_code, reason = "each test uses some of it")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use cutthrough::am::{Event, Node, Settings};
use cutthrough::{Channel, Config, Endpoint};

/// Nothing takes longer, unless something was lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How two nodes are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Shared memory.
    Shm,
    /// UDP on loopback, in plain text.
    Udp,
}

impl Over {
    /// A node that listens, and where.
    pub(crate) fn listening(self, config: Config, settings: Settings) -> (Node, String) {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let config = Config { insecure: true, ..config };
        let mut node = Node::new(Endpoint::open(config).expect("an endpoint"), settings);
        if self == Self::Udp {
            node.listen("udp:127.0.0.1:0").expect("a free port");
            let address = format!("udp:{}", node.endpoint().net_address().expect("an address"));
            return (node, address);
        }
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        let address = format!("shm:cutthrough-am-{}-{number}", std::process::id());
        node.listen(&address).expect("a free name");
        (node, address)
    }

    /// A node without channels.
    pub(crate) fn node(config: Config, settings: Settings) -> Node {
        Node::new(Endpoint::open(Config { insecure: true, ..config }).expect("an endpoint"), settings)
    }

    /// A server that `prepare` has given its handlers, served by its own thread, and a node with a channel to it.
    pub(crate) fn serve(self, prepare: impl FnOnce(&mut Node)) -> (Server, Node, Channel) {
        self.serve_with(small(), Settings::default(), prepare)
    }

    /// The same, with settings.
    pub(crate) fn serve_with(
        self,
        config: Config,
        settings: Settings,
        prepare: impl FnOnce(&mut Node),
    ) -> (Server, Node, Channel) {
        let (mut node, address) = self.listening(config.clone(), settings);
        prepare(&mut node);
        let server = Server::run(node, address);
        let mut node = Self::node(config, settings);
        let channel = node.connect(&server.address, PATIENCE).expect("a channel");
        (server, node, channel)
    }
}

/// Rings so small that they are full all the time.
pub(crate) fn small() -> Config {
    Config { slots: 16, staging_bytes: 64 << 10, ..Config::default() }
}

/// A node that serves on its own thread until this is dropped.
pub(crate) struct Server {
    pub(crate) address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Node>>,
}

impl Server {
    pub(crate) fn run(mut node: Node, address: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !its.load(Ordering::Relaxed) {
                let _ = node.wait(Some(Duration::from_millis(2)));
            }
            node
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// Ends the thread: its node, which is not polled any more.
    pub(crate) fn end(mut self) -> Node {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("the thread").join().expect("no panic outside of handlers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until it is done.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until the task is woken, and for nothing else.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

/// Opens a channel to a node that listens, as it is told in both.
pub(crate) fn meet(far: &mut Node, node: &mut Node, address: &str) -> Channel {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect(address, PATIENCE).expect("a channel"));
        assert!(matches!(far.wait(Some(PATIENCE)), Ok(Event::Opened(_))));
        connecting.join().expect("the other thread")
    })
}

/// What happens next at `node`, while `far` serves.
pub(crate) fn next(far: &mut Node, node: &mut Node) -> Event {
    let since = Instant::now();
    loop {
        assert!(far.poll().is_none(), "nothing that is not served");
        if let Ok(event) = node.wait(Some(Duration::from_millis(1))) {
            return event;
        }
        assert!(since.elapsed() < PATIENCE, "nothing has come");
    }
}

/// Makes a `#[test]` of each behaviour over shared memory and over UDP.
#[macro_export]
macro_rules! over_both {
    ($($behaviour:ident),+ $(,)?) => {
        mod shm {
            $( #[test] fn $behaviour() { super::$behaviour($crate::two::Over::Shm); } )+
        }
        mod udp {
            $( #[test] fn $behaviour() { super::$behaviour($crate::two::Over::Udp); } )+
        }
    };
}
