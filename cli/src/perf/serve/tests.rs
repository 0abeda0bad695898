//! The other end of a measurement, and clients of many kinds.

use std::io::Write;

use cutthrough::am::{self, CallError, Failure as Refusal};
use cutthrough::{CloseReason, SendError};

use super::super::am::station::REGION;
use super::super::ask::{Job, Shape};
use super::super::peer::Peer;
use super::super::way::Way;
use super::*;
use crate::args::{Across, Memory};

/// Ends a server when it is dropped, also by a test that fails.
struct End {
    asked: Arc<AtomicBool>,
    rope: UnixStream,
}

impl Drop for End {
    fn drop(&mut self) {
        self.asked.store(true, Ordering::Relaxed);
        let _ = self.rope.write_all(b"x");
    }
}

#[test]
fn an_address_that_is_told_can_be_called() {
    for (listens, is_called) in [
        ("shm:bench", "shm:bench"),
        ("udp:0.0.0.0:7400", "udp:HOST:7400"),
        ("net:[::]:7400", "net:HOST:7400"),
        ("udp:10.0.0.0:7400", "udp:10.0.0.0:7400"),
    ] {
        assert_eq!(called(listens), is_called);
    }
}

/// Serves for as long as this runs, which is told the address.
fn served(test: &str, run: impl FnOnce(&str)) {
    served_within(test, Bounds::default(), run);
}

fn served_within(test: &str, bounds: Bounds, run: impl FnOnce(&str)) {
    let folder = std::env::temp_dir().join(format!("cutthrough-serve-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let address = format!("shm:{}", folder.join("lobby.sock").display());
    let asked = Arc::new(AtomicBool::new(false));
    let (bell, rope) = UnixStream::pair().unwrap();
    let ending = Ending { asked: Arc::clone(&asked), bell };
    let mut lobby = Endpoint::open(Config::default()).unwrap();
    lobby.listen(&address).unwrap();
    std::thread::scope(|scope| {
        let at = address.clone();
        scope.spawn(move || serve(lobby, at, Seal::None, &ending, Time::Always, bounds));
        let _end = End { asked, rope };
        run(&address);
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A client that says whatever it likes.
struct Client(Endpoint, Channel);

impl Client {
    fn come(address: &str) -> Self {
        let mut endpoint = Endpoint::open(Config::default()).unwrap();
        let channel = endpoint.connect(address, PATIENCE / 2).unwrap();
        Self(endpoint, channel)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.send(self.1, bytes).unwrap();
    }

    fn ask(&mut self, ask: &Ask) {
        self.say(&ask::write(ask).unwrap());
    }

    fn hear(&mut self) -> Option<Answer> {
        match self.0.wait(Some(PATIENCE / 2)) {
            Ok(Event::Message(message)) => ask::read(message.control()),
            _ => None,
        }
    }

    /// Whether it is served, and not told that somebody else is.
    fn is_served(&mut self) -> bool {
        self.ask(&Ask::CpuTime);
        matches!(self.hear(), Some(Answer::CpuTime(_)))
    }
}

fn setup() -> Setup {
    Setup {
        policy: "adaptive".into(),
        placement: "auto".into(),
        net_xdp: false,
        xdp_mode: "auto".into(),
        staging_bytes: 1 << 16,
        memory_bytes: 1 << 20,
        landing: None,
        channels: 1,
    }
}

/// Asks and goes before it is let in: those that come after it must not wait for what it will never do.
#[test]
fn a_client_that_goes_before_it_is_let_in_holds_up_nobody() {
    served("gone", |address| {
        let mut gone = Client::come(address);
        gone.ask(&Ask::Open(setup()));
        let mut next = Client::come(address);
        next.ask(&Ask::CpuTime);
        drop(gone);
        assert!(next.hear().is_some());
    });
}

/// Its channel is closed. It stays, and knows nothing of that.
#[test]
fn a_client_that_cannot_be_read_holds_up_nobody() {
    served("unread", |address| {
        let mut unread = Client::come(address);
        assert!(unread.is_served());
        unread.say(&[0xff; 20]);
        assert!(Client::come(address).is_served());
    });
}

#[test]
fn a_client_that_cannot_be_read_while_it_waits_is_not_the_next_one() {
    served("unread-waits", |address| {
        let mut first = Client::come(address);
        assert!(first.is_served());
        let mut unread = Client::come(address);
        unread.ask(&Ask::CpuTime);
        unread.say(&[0xff; 20]);
        // Before it would be refused for having waited for too long.
        std::thread::sleep(Duration::from_millis(200));
        drop(first);
        assert!(Client::come(address).is_served());
    });
}

/// A client may ask for anything, and is told in a line why not. The other end goes on as if nothing had been asked.
#[test]
fn what_would_take_too_much_is_refused() {
    served("too-much", |address| {
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut peer = Peer::reach(address, &way).unwrap();
        let mut lane = peer.lane(&setup()).unwrap();
        let shape = Shape { memory: Memory::Private, bytes: 64 };
        for (job, why) in [
            (Job::Slots { bytes: u32::MAX, count: u32::MAX }, "use smaller sizes"),
            (Job::Pages { shape, count: u32::MAX }, "use smaller sizes"),
            (Job::Echo(Shape { bytes: u32::MAX, ..shape }), "use smaller sizes"),
            (Job::Echo(Shape { bytes: 0, ..shape }), "use the same version at both ends"),
            (Job::Sink { shape, confirm_every: 0 }, "use the same version at both ends"),
        ] {
            let refusal = peer.begin(&mut lane, job).expect_err("it is refused").to_string();
            assert!(refusal.starts_with("the other end refuses: a job of ") && refusal.ends_with(why), "{refusal}");
            assert_eq!((refusal.matches("; ").count(), refusal.lines().count()), (1, 1), "{refusal}");
        }
        let refusal = peer.lane(&Setup { channels: u32::MAX, ..setup() }).expect_err("it is refused").to_string();
        assert_eq!(refusal, "the other end refuses: there are 4096 channels at most; use fewer");
        peer.begin(&mut lane, Job::Wake).unwrap();
    });
}

/// What is asked for piece by piece counts as a whole.
#[test]
fn all_regions_of_a_client_are_no_more_than_its_budget() {
    let budget = 1 << 20;
    served_within("budget", Bounds { budget: Budget::of(budget), ..Bounds::default() }, |address| {
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut peer = Peer::reach(address, &way).unwrap();
        let (mut node, channel, _) = peer.station(&setup()).unwrap();
        let mut registers = |bytes: u32| node.call(channel, REGION, &[1, bytes], PATIENCE);
        let more_than_half = u32::try_from(budget / 2 + 1).unwrap();
        registers(more_than_half).unwrap();
        let refusal = registers(more_than_half).unwrap_err();
        assert_eq!(refusal.error, CallError::Failed(Refusal::TooLong));
        registers(more_than_half - 2).unwrap();
    });
}

/// Questions that come while a job runs are kept, and there is a bound.
#[test]
fn who_asks_without_end_is_served_no_more() {
    served("asks", |address| {
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut client = Client::come(address);
        client.ask(&Ask::Open(setup()));
        let Some(Answer::Opened(number)) = client.hear() else { panic!("no lane") };
        let mut lane = Endpoint::open(Config::default()).unwrap();
        lane.connect(&ask::lane_address(address, number), PATIENCE / 2).unwrap();
        let shape = Shape { memory: Memory::Private, bytes: 64 };
        client.ask(&Ask::Run { lane: number, job: Job::Echo(shape) });
        let mut asked = 0;
        let ended = loop {
            match client.0.send(client.1, &ask::write(&Ask::CpuTime).unwrap()) {
                Ok(()) => asked += 1,
                Err(SendError::Full) => std::thread::yield_now(),
                Err(SendError::Closed(why)) => break why,
                Err(error) => panic!("{error}"),
            }
            while let Some(event) = client.0.poll() {
                assert!(!matches!(event, Event::Message(_)), "it does not hear what comes while it does a job");
            }
            assert!(asked < 10_000, "it keeps all that it is asked");
        };
        assert_eq!(ended, CloseReason::Peer);
        drop(lane);
        drop(way);
    });
}

/// It begins a job, and lives, and says nothing: the next one is served when its time is over.
#[test]
fn a_client_that_falls_silent_in_a_job_is_given_up() {
    let patience = Duration::from_millis(300);
    served_within("silent", Bounds { patience, ..Bounds::default() }, |address| {
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut peer = Peer::reach(address, &way).unwrap();
        let mut lane = peer.lane(&setup()).unwrap();
        peer.begin(&mut lane, Job::Echo(Shape { memory: Memory::Private, bytes: 64 })).unwrap();
        assert!(matches!(lane.hear(), Err(LaneError::Closed(CloseReason::Peer))));
        let why = peer.why(Failure::new("the channel has ended", "try again")).to_string();
        assert!(why.starts_with("the other end refuses: the measuring end said nothing for 300ms; try again"), "{why}");
        // It hears this when it has nothing else to do.
        peer.cpu_time().unwrap();
        // At a station, too.
        let (mut node, channel, _) = peer.station(&setup()).unwrap();
        peer.cpu_time().unwrap();
        assert!(matches!(node.wait(Some(PATIENCE)), Ok(am::Event::Closed(closed, _)) if closed == channel));
        drop(peer);
        assert!(Client::come(address).is_served());
    });
}

/// The longest payloads come late from an end that has a busy machine.
#[test]
fn a_client_may_say_nothing_for_longer_the_more_a_job_moves() {
    let patience = Duration::from_millis(10);
    served_within("late", Bounds { patience, ..Bounds::default() }, |address| {
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut peer = Peer::reach(address, &way).unwrap();
        let mut lane = peer.lane(&setup()).unwrap();
        let shape = Shape { memory: Memory::Reference, bytes: 1 << 30 };
        peer.begin(&mut lane, Job::Sink { shape, confirm_every: 1 }).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        lane.tell(&[ask::LAST]).unwrap();
        assert_eq!(lane.answered().unwrap(), Answer::Taken(1));
        let none = Failure::new("nothing", "try again");
        assert_eq!(peer.why(none).to_string(), "nothing; try again");
    });
}

/// Names of lanes do not become longer for ever: the first ones come again, but for those that lanes still have.
#[test]
fn lanes_have_names_in_turn() {
    served("turns", |address| {
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut peer = Peer::reach(address, &way).unwrap();
        let kept = peer.lane(&setup()).unwrap();
        let longest = ask::lane_address(address, ask::LONGEST).len();
        let again = |number| ask::lane_address(address, number) == ask::lane_address(address, kept.number);
        for _ in 0..250 {
            let lane = peer.lane(&setup()).unwrap();
            assert!(!again(lane.number) && ask::lane_address(address, lane.number).len() <= longest, "{lane:?}");
            peer.close(lane).unwrap();
        }
    });
}

/// Where the next address is taken, a lane has the one after that.
#[test]
fn a_lane_goes_where_there_is_room() {
    served("taken", |address| {
        let mut other = Endpoint::open(Config::default()).unwrap();
        other.listen(&ask::lane_address(address, 1)).unwrap();
        let way = Way::make(&Across::default(), Some(address)).unwrap();
        let mut peer = Peer::reach(address, &way).unwrap();
        assert_eq!(peer.lane(&setup()).unwrap().number, 2);
    });
    let taken = |error: io::Error| {
        is_taken(&ListenError::Net(UdpAddressError::Socket { address: "127.0.0.1:1".parse().unwrap(), error }))
    };
    assert!(taken(Errno::ADDRINUSE.into()));
    // A whole interface is taken: no other port of it is better.
    assert!(!taken(io::ErrorKind::AddrInUse.into()) && !taken(Errno::ACCESS.into()));
}
