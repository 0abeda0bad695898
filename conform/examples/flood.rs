//! What a flood of forged frames costs an endpoint, and honest messages beside it:
//! `cargo run --release -p cutthrough-conform --example flood -- [SECONDS [FRAMES A SECOND]]`.
//!
//! Two endpoints on loopback send each other 64 bytes to and fro, while a third socket sends the one that answers
//! frames which it has to refuse, as many as it can or so many in a second. For each kind of frame, in plain text and
//! sealed:
//!
//! | column | what |
//! |---|---|
//! | p50, p99 | of the honest round trips, without the flood and with it, in turns |
//! | refused/s | frames refused during those, as the endpoint's own counters say |
//! | ns a frame | what refusing one takes, the receive call included: the median of bursts that lie in the socket |
//! | us a trip | what refusing takes of a round trip: frames refused in each on average, times that |
//! | overruns | datagrams for which the socket had no room: honest ones among them come again after a time |
//!
//! If a flood does nothing but what refusing it takes, p99 moves by about as much as "us a trip" says. But the flooder
//! needs a core of its own, and on loopback the kernel delivers each frame on the core of its sender: with two cores it
//! takes half of the machine from the two endpoints, and p99 says more of the scheduler than of this library. Frames
//! with a wrong seal have to come from where the channel's do: they, and the honest ones beside them, go through a
//! relay, which makes both columns of theirs longer.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Channel, Config, Counter, Endpoint, Event, Keys, SharedKey};
use cutthrough_conform::free_udp_address;
use cutthrough_conform::join::connect;
use cutthrough_wire::frame::{Header, Kind};

/// Frames that lie in the socket at a time when their cost is measured, and how often that is done.
const BURST: u64 = 64;
const BURSTS: usize = 200;
/// How long a side waits for something to happen before it looks whether all is over.
const NAP: Duration = Duration::from_millis(5);
/// Turns with and without the flood.
const TURNS: u32 = 4;
/// What counts refused frames.
const REFUSED: [Counter; 3] = [Counter::FramesStale, Counter::FramesForged, Counter::HellosRefused];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    /// Frames of a channel that there is, and of another life of it.
    Generation,
    /// The same, cut short.
    Short,
    /// Frames of a channel that there is, from where its peer is, with a wrong seal.
    Seal,
    /// True hellos of somebody who does not come again with the cookie. They are answered, and counted nowhere.
    Hello,
}

impl Flood {
    const ALL: [Self; 4] = [Self::Generation, Self::Short, Self::Seal, Self::Hello];

    /// A frame of its kind. `seen` is one of the channel's.
    fn frame(self, seen: &[u8], config: &Config) -> Result<Vec<u8>> {
        let mut frame = seen.to_vec();
        match self {
            Self::Generation => {
                let header = Header {
                    kind: Kind::Records,
                    body: 64,
                    tag: 0,
                    generation: 0x5eed_5eed,
                    awaited: 0,
                    number: 1000,
                    below: 0,
                    held: 0,
                    waits: false,
                    calls: 0,
                    asks: 0,
                    bits: 0,
                    words: [0, 1],
                };
                frame = [&header.to_bytes()[..], &[7; 64]].concat();
            }
            Self::Short => frame = vec![1, Kind::Records as u8, 64, 0, 0, 0, 0, 0, 9, 9, 9, 9],
            // Far enough ahead to be new, and another seal.
            Self::Seal => {
                frame[18] ^= 1;
                frame[50] ^= 1;
            }
            Self::Hello => {
                let ear = UdpSocket::bind("127.0.0.1:0")?;
                ear.set_read_timeout(Some(Duration::from_secs(2)))?;
                let mut caller = Endpoint::open(config.clone())?;
                caller.begin_connect(&format!("udp:{}", ear.local_addr()?), Duration::from_secs(2))?;
                caller.poll();
                frame.resize(1 << 16, 0);
                let (bytes, _) = ear.recv_from(&mut frame)?;
                frame.truncate(bytes);
            }
        }
        Ok(frame)
    }
}

/// Frames on their way between two endpoints, passed on by two threads; the last one that went there.
struct Relay {
    address: SocketAddr,
    back: UdpSocket,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Its threads end with the process.
    fn before(to: SocketAddr) -> Result<Self> {
        let front = UdpSocket::bind("127.0.0.1:0")?;
        let back = UdpSocket::bind("127.0.0.1:0")?;
        let (address, seen) = (front.local_addr()?, Arc::new(Mutex::new(Vec::new())));
        let caller: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let (ends, caller_there, last) =
            ((front.try_clone()?, back.try_clone()?), Arc::clone(&caller), Arc::clone(&seen));
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok((len, from)) = ends.0.recv_from(&mut bytes) {
                *caller_there.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
                if bytes[1] == Kind::Records as u8 {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = bytes[..len].to_vec();
                }
                // What cannot be passed on is lost, as on any wire.
                let _ = ends.1.send_to(&bytes[..len], to);
            }
        });
        let from = back.try_clone()?;
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok((len, _)) = from.recv_from(&mut bytes) {
                let caller = *caller.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = caller.map(|caller| front.send_to(&bytes[..len], caller));
            }
        });
        Ok(Self { address, back, seen })
    }
}

/// The side that answers, in a thread of its own.
struct Answerer {
    stop: AtomicBool,
    refused: AtomicU64,
    overruns: AtomicU64,
}

impl Answerer {
    fn run(&self, endpoint: &mut Endpoint, channel: Channel) {
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok(Event::Message(message)) = endpoint.wait(Some(NAP)) {
                endpoint.release(message);
                // There is room: no more than one is on its way.
                let _ = endpoint.send(channel, &[7; 64]);
            }
            self.refused.store(refused(endpoint), Ordering::Relaxed);
            self.overruns.store(endpoint.counter(Counter::SocketOverruns), Ordering::Relaxed);
        }
    }
}

fn refused(endpoint: &Endpoint) -> u64 {
    REFUSED.iter().map(|counter| endpoint.counter(*counter)).sum()
}

/// Sends and waits for the answer until then: how long each took.
fn to_and_fro(endpoint: &mut Endpoint, channel: Channel, until: Instant, took: &mut Vec<Duration>) -> Result<()> {
    while Instant::now() < until {
        let begun = Instant::now();
        endpoint.send(channel, &[7; 64])?;
        loop {
            match endpoint.wait(Some(Duration::from_secs(2)))? {
                Event::Message(message) => {
                    endpoint.release(message);
                    break;
                }
                Event::Closed(_, reason) => return Err(format!("the channel has ended: {reason:?}").into()),
                _ => {}
            }
        }
        took.push(begun.elapsed());
    }
    Ok(())
}

/// Sends the frame until it is told to stop; so many in a second, if that is said.
fn flood(
    socket: &UdpSocket,
    (to, frame): (SocketAddr, &[u8]),
    rate: Option<u64>,
    goes: &AtomicBool,
    ends: &AtomicBool,
) {
    let (mut begun, mut sent) = (Instant::now(), 0_u64);
    while !ends.load(Ordering::Relaxed) {
        if !goes.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
            (begun, sent) = (Instant::now(), 0);
            continue;
        }
        let due = rate.map(|rate| Duration::from_nanos(sent * 1_000_000_000 / rate.max(1)));
        if let Some(early) = due.and_then(|due| due.checked_sub(begun.elapsed())).filter(|early| !early.is_zero()) {
            thread::sleep(early);
        }
        for _ in 0..8 {
            let _ = socket.send_to(frame, to);
        }
        sent += 8;
    }
}

/// What refusing a frame takes, in ns: how much longer looks take while a burst lies in the socket. Nothing of hellos,
/// which no counter has.
fn cost(endpoint: &mut Endpoint, socket: &UdpSocket, to: SocketAddr, frame: &[u8]) -> Result<Option<f64>> {
    let look = |endpoint: &mut Endpoint| {
        let begun = Instant::now();
        for _ in 0..BURST {
            endpoint.poll();
        }
        begun.elapsed()
    };
    while endpoint.poll().is_some() {}
    let (before, mut costs) = (refused(endpoint), Vec::new());
    for _ in 0..BURSTS {
        let quiet = look(endpoint);
        for _ in 0..BURST {
            socket.send_to(frame, to)?;
        }
        let took = look(endpoint).saturating_sub(quiet);
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        costs.push(took.as_nanos() as f64 / BURST as f64);
    }
    // Counters are brought up to date now and then.
    let until = Instant::now() + Duration::from_secs(2);
    let all = before + BURST * BURSTS as u64;
    while refused(endpoint) < all && Instant::now() < until {
        endpoint.poll();
    }
    costs.sort_by(f64::total_cmp);
    Ok(if refused(endpoint) < all { None } else { costs.get(costs.len() / 2).copied() })
}

/// The value that so many thousandths of these are not above, in us.
fn quantile(of: &mut [Duration], thousandths: usize) -> f64 {
    of.sort_unstable();
    of.get((of.len() * thousandths / 1000).min(of.len().saturating_sub(1))).map_or(0.0, |took| took.as_secs_f64() * 1e6)
}

/// One kind of flood, in plain text or sealed.
fn case(kind: Flood, sealed: bool, seconds: f64, rate: Option<u64>) -> Result<()> {
    let keys = sealed.then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([42; 32]))));
    let config = Config { insecure: !sealed, keys, ..Config::default() };
    let at: SocketAddr = free_udp_address().into();
    let (mut caller, mut answerer) = (Endpoint::open(config.clone())?, Endpoint::open(config.clone())?);
    answerer.listen(&format!("udp:{at}"))?;
    let relay = (kind == Flood::Seal).then(|| Relay::before(at)).transpose()?;
    let called = relay.as_ref().map_or(at, |relay| relay.address);
    let (at_caller, at_answerer) = connect(&mut caller, &mut answerer, &format!("udp:{called}"));
    let answers = Answerer { stop: AtomicBool::new(false), refused: AtomicU64::new(0), overruns: AtomicU64::new(0) };
    let (goes, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut quiet, mut loud, mut during, mut overruns) = (Vec::new(), Vec::new(), 0, 0);
    let socket = match &relay {
        Some(relay) => relay.back.try_clone()?,
        None => UdpSocket::bind("127.0.0.1:0")?,
    };
    let turn = Duration::from_secs_f64(seconds / f64::from(2 * TURNS));
    let sent = OnceLock::new();
    let (sent, goes, ends, from) = (&sent, &goes, &ends, &socket);
    thread::scope(|scope| -> Result<()> {
        let thread = scope.spawn(|| answers.run(&mut answerer, at_answerer));
        let measured = (|| {
            to_and_fro(&mut caller, at_caller, Instant::now() + turn / 4, &mut Vec::new())?;
            let seen = relay.as_ref().map(|relay| relay.seen.lock().unwrap_or_else(PoisonError::into_inner).clone());
            let frame = kind.frame(&seen.unwrap_or_default(), &config)?;
            let frame: &Vec<u8> = sent.get_or_init(|| frame);
            scope.spawn(move || flood(from, (at, frame), rate, goes, ends));
            for _ in 0..TURNS {
                to_and_fro(&mut caller, at_caller, Instant::now() + turn, &mut quiet)?;
                goes.store(true, Ordering::Relaxed);
                let before = [&answers.refused, &answers.overruns].map(|count| count.load(Ordering::Relaxed));
                to_and_fro(&mut caller, at_caller, Instant::now() + turn, &mut loud)?;
                goes.store(false, Ordering::Relaxed);
                thread::sleep(2 * NAP);
                during += answers.refused.load(Ordering::Relaxed) - before[0];
                overruns += answers.overruns.load(Ordering::Relaxed) - before[1];
            }
            Ok(())
        })();
        ends.store(true, Ordering::Relaxed);
        answers.stop.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| "the side that answers has panicked")?;
        measured
    })?;
    let frame = sent.get().map_or(&[][..], Vec::as_slice);
    let ns = if kind == Flood::Hello { None } else { cost(&mut answerer, &socket, at, frame)? };
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let (trips, frames) = (loud.len().max(1) as f64, during as f64);
    let text =
        |number: Option<f64>, digits: usize| number.map_or_else(|| "-".into(), |number| format!("{number:.digits$}"));
    println!(
        "{:<7} {:<11} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>11.0} {:>10} {:>9} {:>9}",
        if sealed { "sealed" } else { "plain" },
        format!("{kind:?}").to_lowercase(),
        quantile(&mut quiet, 500),
        quantile(&mut loud, 500),
        quantile(&mut quiet, 990),
        quantile(&mut loud, 990),
        frames / (seconds / 2.0),
        text(ns, 0),
        text(ns.map(|ns| ns * frames / trips / 1e3), 2),
        overruns,
    );
    Ok(())
}

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().map_or(Ok(4.0), |text| text.parse())?;
    let rate: Option<u64> = args.next().map(|text| text.parse()).transpose()?;
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("{cores} cores; two endpoints and the flooder want one each, and the relay before wrong seals two more");
    println!(
        "{:<7} {:<11} {:>8} {:>8} {:>8} {:>8} {:>11} {:>10} {:>9} {:>9}",
        "frames", "flood", "p50 us", "flooded", "p99 us", "flooded", "refused/s", "ns a frame", "us a trip", "overruns"
    );
    for sealed in [false, true] {
        Flood::ALL.into_iter().try_for_each(|kind| case(kind, sealed, seconds, rate))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flood: {error}");
            ExitCode::FAILURE
        }
    }
}
