//! What the measuring end asks of the other end, and how it is answered: one control message each.
//!
//! There are two kinds of channels. On the first one, the lobby, the measuring end asks for everything. What is
//! measured goes over lanes: endpoints of their own, each opened with the settings that a test wants.

use cutthrough::{CONTROL_MAX, PAYLOAD_MAX};
use serde::{Deserialize, Serialize};

use crate::args::Memory;
use crate::failure::Failure;
use crate::units::Size;

/// Most bytes that a client may have the other end keep, for its jobs and at its stations together.
pub const MEMORY_MAX: u64 = 4 << 30;

/// First byte of a message that another one follows.
pub const MORE: u8 = 0;
/// First byte of the last message of a job.
pub const LAST: u8 = 1;

/// A question on the lobby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Open a lane with these settings. Answered with [`Answer::Opened`] before the lane lets anybody in.
    Open(Setup),
    /// Do this on a lane. Answered with [`Answer::Ready`] on the lane itself.
    Run {
        /// The lane's number.
        lane: u32,
        /// What to do there.
        job: Job,
    },
    /// Close a lane or a station. Not answered.
    Close {
        /// Its number.
        lane: u32,
    },
    /// Open a station with these settings: a node of active messages. Answered with [`Answer::Opened`] before it lets
    /// anybody in. Then it attends.
    Station(Setup),
    /// Attend at a station until somebody asks for the end there. Not answered.
    Attend {
        /// The station's number.
        station: u32,
    },
    /// How much processor time this process has used. Answered with [`Answer::CpuTime`].
    CpuTime,
    /// Serve me and, if we are on one machine, stay off the core that I measure on. Answered with [`Answer::Ready`].
    Meet {
        /// The machine's [`number`](crate::machine::number).
        machine: Option<u128>,
        /// The core.
        core: u32,
    },
}

/// The settings of a lane; both ends open their endpoint with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The pulse policy, as on the command line.
    pub policy: String,
    /// How payloads get from a ring to their pages, as on the command line.
    pub placement: String,
    /// Whether the adapter net has a ring of AF_XDP too.
    pub net_xdp: bool,
    /// Where the program of rings of AF_XDP runs, as on the command line.
    pub xdp_mode: String,
    /// Bytes of the staging ring.
    pub staging_bytes: u32,
    /// Bytes of the pool, and of the landing memory.
    pub memory_bytes: u64,
    /// Landing pages that both ends post at once: bytes of each run, and how many.
    pub landing: Option<(u32, u32)>,
    /// Channels that the measuring end opens; the last of them is used.
    pub channels: u32,
}

/// What the other end does on a lane until a message begins with [`LAST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// Sends every message back, of the same size and in the same way.
    Echo(Shape),
    /// Takes every message, and says how many there were after each `confirm_every` and after the last.
    Sink {
        /// What the messages look like.
        shape: Shape,
        /// Messages between two confirmations.
        confirm_every: u32,
    },
    /// Answers each request with the page that it names.
    Pages {
        /// What the pages look like.
        shape: Shape,
        /// How many there are.
        count: u32,
    },
    /// Takes pages in any order, each to the slot that its message names, and says after the last how many there were.
    Slots {
        /// Bytes of a slot.
        bytes: u32,
        /// How many there are.
        count: u32,
    },
    /// Sleeps until a message comes, and answers when it woke up.
    Wake,
}

impl Job {
    /// Bytes of each payload, and how many of them it keeps at once.
    const fn memory(&self) -> (u32, u32) {
        match *self {
            // Memory that payloads leave from, and memory that they arrive in.
            Self::Echo(shape) | Self::Sink { shape, .. } => (shape.bytes, 2),
            Self::Pages { shape, count } => (shape.bytes, count),
            Self::Slots { bytes, count } => (bytes, count),
            Self::Wake => (0, 0),
        }
    }

    /// Bytes of memory that it needs.
    #[must_use]
    pub fn needs(&self) -> u64 {
        let (bytes, times) = self.memory();
        u64::from(bytes) * u64::from(times)
    }

    /// Why no other end does this job; none if it can be begun. A client may say anything.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let (bytes, times) = self.memory();
        if matches!(self, Self::Wake) {
            return None;
        }
        if bytes == 0 || times == 0 || matches!(self, Self::Sink { confirm_every: 0, .. }) {
            return Some("a job of nothing cannot be done; use the same version at both ends".into());
        }
        let needed = self.needs();
        let most = if u64::from(bytes) > PAYLOAD_MAX { PAYLOAD_MAX } else { MEMORY_MAX };
        (needed > most).then(|| format!("a job of {} is more than {}; use smaller sizes", Size(needed), Size(most)))
    }
}

/// What the messages of a job look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Where payloads are kept.
    pub memory: Memory,
    /// Bytes of the payload; of the control message if there is none.
    pub bytes: u32,
}

impl Shape {
    /// Whether it is a control message without payload.
    #[must_use]
    pub fn is_control(self) -> bool {
        self.memory == Memory::Private && self.bytes as usize <= CONTROL_MAX
    }
}

/// An answer, on the lobby or on a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The lane with this number is open.
    Opened(u32),
    /// The job, or the measurement, can begin.
    Ready,
    /// So many messages were taken.
    Taken(u64),
    /// When something happened, on the clock that all processes of a machine share.
    At(u64),
    /// Processor time used so far, in nanoseconds.
    CpuTime(u64),
    /// It cannot be done; why, is the payload.
    Refused,
}

/// The bytes of a question or an answer.
///
/// # Errors
/// If they do not fit into a control message.
pub fn write(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    match postcard::to_allocvec(value) {
        Ok(bytes) if bytes.len() <= CONTROL_MAX => Ok(bytes),
        _ => Err(Failure::new("a setting is too long to be sent", "use shorter values")),
    }
}

/// The question or answer that the bytes hold; none if they hold no such thing.
#[must_use]
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// The first port that every user may take.
pub(super) const FIRST_PORT: u16 = 1024;

/// Names that the lanes of one other end have in turn, so that none is longer than another one's by more than a digit.
/// It tries the next one where a lane still has its name.
const NAMES: u32 = 100;

/// The lane whose name is the longest.
pub(super) const LONGEST: u32 = NAMES - 1;

/// The address of a lane of the other end that listens at `address`: of a port, one as many ports further; of a name,
/// one that ends in an extension of its own, so that no two lanes share what lies beside a socket. A public key of the
/// other end stays behind it, because every lane is called by it.
#[must_use]
pub fn lane_address(address: &str, lane: u32) -> String {
    let wired = address.split_once(':').filter(|(scheme, _)| *scheme != "shm");
    if let Some((place, key)) = address.split_once('#').filter(|_| wired.is_some()) {
        return format!("{}#{key}", lane_address(place, lane));
    }
    let port = wired.and_then(|(scheme, address)| Some((scheme, address.rsplit_once(':')?)));
    match port.and_then(|(scheme, (host, port))| Some((scheme, host, port.parse::<u16>().ok()?))) {
        Some((scheme, host, port)) => {
            // After the last port comes the first one that is for everybody.
            let further = (u32::from(port.saturating_sub(FIRST_PORT)) + lane) % (65_536 - u32::from(FIRST_PORT));
            format!("{scheme}:{host}:{}", u32::from(FIRST_PORT) + further)
        }
        None => format!("{address}-{}.lane", lane % NAMES),
    }
}

/// Where the other end that listens at `address` is asked for lanes: a socket is enough for that, whatever the lanes
/// are, and leaves an interface to the lane that needs it for itself.
#[must_use]
pub fn lobby_address(address: &str) -> String {
    match address.split_once(':') {
        Some(("packet" | "xdp" | "net", host)) => format!("udp:{host}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use cutthrough::Placement;

    use super::*;

    #[test]
    fn the_longest_question_fits_into_a_control_message() {
        let setup = Setup {
            policy: format!("adaptive:{}", u64::MAX),
            placement: Placement::HeaderCut.name().into(),
            net_xdp: true,
            xdp_mode: "zero-copy".into(),
            staging_bytes: u32::MAX,
            memory_bytes: u64::MAX,
            landing: Some((u32::MAX, u32::MAX)),
            channels: u32::MAX,
        };
        for ask in [Ask::Open(setup), Ask::Meet { machine: Some(u128::MAX), core: u32::MAX }] {
            let bytes = write(&ask).expect("it fits");
            assert_eq!(read(&bytes), Some(ask));
        }
    }

    #[test]
    fn lanes_have_addresses_beside_that_of_the_lobby() {
        assert_eq!(lane_address("shm:bench", 3), "shm:bench-3.lane");
        assert_eq!(lane_address("shm:bench", 203), "shm:bench-3.lane");
        let longest = lane_address("shm:bench", LONGEST).len();
        assert!((0..500).chain([u32::MAX]).all(|lane| lane_address("shm:bench", lane).len() <= longest));
        assert_eq!(lane_address("udp:10.73.0.2:7400", 3), "udp:10.73.0.2:7403");
        assert_eq!(lane_address("udp:[::1]:65535", 2), "udp:[::1]:1025");
        assert_eq!(lane_address("xdp:10.73.0.2:7400", 1), "xdp:10.73.0.2:7401");
        assert_eq!(lane_address("udp:10.73.0.2:7400#00ff", 1), "udp:10.73.0.2:7401#00ff");
        assert_eq!(lane_address("net:[::1]:65535#00ff", 2), "net:[::1]:1025#00ff");
        assert_eq!(lane_address("shm:bench#1", 3), "shm:bench#1-3.lane");
        assert_eq!(lobby_address("net:10.73.0.2:7400"), "udp:10.73.0.2:7400");
        assert_eq!(lobby_address("xdp:10.73.0.2:7400#00ff"), "udp:10.73.0.2:7400#00ff");
        assert_eq!(lobby_address("shm:bench"), "shm:bench");
    }

    #[test]
    fn a_job_that_would_take_too_much_is_refused() {
        let shape = |bytes| Shape { memory: Memory::Private, bytes };
        let [most, gib] = [u32::MAX, 1 << 30];
        for job in [
            Job::Echo(shape(gib)),
            Job::Sink { shape: shape(gib), confirm_every: 1 },
            Job::Pages { shape: shape(gib), count: 4 },
            Job::Slots { bytes: 1, count: most },
            Job::Wake,
        ] {
            assert_eq!(job.refusal(), None, "{job:?}");
        }
        for job in [
            Job::Echo(shape(0)),
            Job::Echo(shape(gib + 1)),
            Job::Sink { shape: shape(64), confirm_every: 0 },
            Job::Sink { shape: shape(most), confirm_every: 1 },
            Job::Pages { shape: shape(gib), count: 5 },
            Job::Pages { shape: shape(64), count: 0 },
            Job::Slots { bytes: 2, count: most },
            Job::Slots { bytes: most, count: most },
        ] {
            assert!(job.refusal().is_some(), "{job:?}");
        }
    }

    #[test]
    fn anything_else_is_nothing() {
        assert_eq!(read::<Ask>(&[0xff; 20]), None);
        assert_eq!(read::<Answer>(&[]), None);
    }

    #[test]
    fn small_private_messages_have_no_payload() {
        let shape = |memory, bytes| Shape { memory, bytes };
        assert!(shape(Memory::Private, 96).is_control());
        assert!(!shape(Memory::Private, 97).is_control());
        assert!(!shape(Memory::Pool, 8).is_control());
    }
}
