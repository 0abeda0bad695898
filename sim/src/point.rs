//! One operating point of one platform: any point of any curve can be asked for, not only the published ones.

use std::str::FromStr;

use cutthrough_engine::pulse::{Policy, PolicyError};
use serde::Serialize;

use crate::platform::PlatformError;

/// How the firmware of the simulated adapters treats a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// The engine, with a rule for each side: Trapeze.
    Engine {
        /// For the stages of the sender's adapter.
        send: Policy,
        /// For the stages of the receiver's adapter.
        recv: Policy,
    },
    /// Two coroutines that pipeline successive messages, but not one message: the LANai Active Messages prototype.
    Coroutine,
    /// What the maker of the adapter delivered.
    Vendor,
    /// The operating system's sockets.
    Kernel,
}

impl Firmware {
    /// Whether a rule was asked for by name, where one that has an effect may be.
    #[must_use]
    pub fn has_rule(&self) -> bool {
        let default = Policy::default();
        matches!(self, Self::Engine { send, recv } if (*send, *recv) != (default, default))
    }
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Who moves the bytes, and by which rule.
    pub firmware: Firmware,
    /// Bytes of payload in each message.
    pub payload: u64,
    /// Messages of each sender; 1 asks for the latency of a lone message.
    pub count: u64,
    /// Senders that send to the one receiver at the same time.
    pub senders: u32,
}

/// When one stage was at work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageTime {
    /// Which.
    pub stage: String,
    /// From when, in microseconds since the first message was sent.
    pub first_us: f64,
    /// Until when.
    pub last_us: f64,
    /// Time in which it moved bytes.
    pub busy_us: f64,
    /// Unbroken moves.
    pub pulses: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// From the first message's send until its receiver has it; the mean, where a lone message was sent repeatedly.
    pub one_way_us: f64,
    /// Payload delivered in the whole run, over its time; that of a lone message, over its own.
    pub bytes_per_s: f64,
    /// The stages, in the order of travel.
    pub stages: Vec<StageTime>,
    /// Events that the simulator handled.
    pub events: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointError {
    /// The platform's file is wrong.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The platform cannot do what was asked.
    #[error("{0}")]
    Impossible(String),
}

/// Policies as they are asked for, where a stage is decided about. What else there is depends on the platform.
pub const POLICIES: &str = "`store-and-forward`, `fixed:BYTES`, `adaptive`, `adaptive:MINPULSE`";

impl FromStr for Firmware {
    type Err = String;

    /// Reads `store-and-forward`, `fixed:BYTES`, `fixed:SEND:RECV`, `adaptive`, `adaptive:MINPULSE`,
    /// `adaptive:SEND:RECV`, `coroutine`, `vendor` or `kernel`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "coroutine" => return Ok(Self::Coroutine),
            "vendor" => return Ok(Self::Vendor),
            "kernel" => return Ok(Self::Kernel),
            _ => {}
        }
        let policy = |text: &str| {
            Policy::from_str(text).map_err(|error| match error {
                PolicyError::Unknown => {
                    format!(
                        "unknown policy; use one of {POLICIES}, `coroutine`, `vendor`, `kernel`, where a size may be \
                         SEND:RECV"
                    )
                }
                PolicyError::Size => error.to_string(),
            })
        };
        if let [kind, send, recv] = text.split(':').collect::<Vec<_>>()[..] {
            return Ok(Self::Engine {
                send: policy(&format!("{kind}:{send}"))?,
                recv: policy(&format!("{kind}:{recv}"))?,
            });
        }
        let both = policy(text)?;
        Ok(Self::Engine { send: both, recv: both })
    }
}

#[cfg(test)]
mod tests {
    use super::Firmware;
    use cutthrough_engine::pulse::Policy;

    #[test]
    fn the_default_is_no_rule_of_its_own() {
        let has_rule = |text: &str| text.parse::<Firmware>().unwrap().has_rule();
        assert!(["fixed:64", "store-and-forward", "adaptive:64", "adaptive:64:32"].into_iter().all(has_rule));
        assert!(!["adaptive", "kernel", "vendor", "coroutine"].into_iter().any(has_rule));
    }

    #[test]
    fn each_side_may_have_a_rule_of_its_own() {
        let policy = |text: &str| text.parse::<Policy>().unwrap();
        let both = |send, recv| Ok(Firmware::Engine { send: policy(send), recv: policy(recv) });
        assert_eq!("adaptive:384:512".parse(), both("adaptive:384", "adaptive:512"));
        assert_eq!("fixed:1280".parse(), both("fixed:1280", "fixed:1280"));
        assert_eq!("coroutine".parse(), Ok(Firmware::Coroutine));
        assert!("fixed:0:1".parse::<Firmware>().is_err());
    }

    #[test]
    fn who_asks_for_no_policy_is_told_all_of_them() {
        for wrong in ["eager", "eager:1:2", ""] {
            let why = wrong.parse::<Firmware>().unwrap_err();
            for known in ["store-and-forward", "fixed:BYTES", "adaptive:MINPULSE", "coroutine", "vendor", "kernel"] {
                assert!(why.contains(&format!("`{known}`")), "{wrong}: {why}");
            }
        }
    }
}
