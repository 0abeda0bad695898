//! One large message under three policies, with every pulse of both processes on one clock.

use std::time::{Duration, Instant};

use cutthrough::Policy;

use super::ask::{self, Request};
use super::serve::Pulses;
use super::session::{Server, Session, lost};
use crate::failure::Failure;
use crate::timeline::{Pulse, Run, StageSpan, Timeline};
use crate::units::Size;

/// Bytes of the message, unless the file has fewer.
const MESSAGE: usize = 1 << 20;

/// The staging ring where the policy needs no larger one: the default.
const STAGING: usize = 2 << 20;

/// The least that an endpoint has for its pool and for its landing pages; here they are not used.
const MEMORY: u64 = 1 << 20;

/// How often the message is sent before those that count, in each turn.
const WARMUP: usize = 10;

/// The policies take turns, so many times, so that a disturbance of the machine meets all of them.
const TURNS: u32 = 5;

/// Sends the message under store-and-forward, each of these fixed pulses and the adaptive policy, each for about that
/// time in all, and keeps the fastest of each, which nothing else on the machine has disturbed; of all fixed pulses
/// one.
///
/// # Errors
/// If the other process fails, or the message is not as in the file.
pub fn measure(server: &mut Server, file: &[u8], pulses: &[Policy], time: Duration) -> Result<Timeline, Failure> {
    let message = &file[..file.len().min(MESSAGE)];
    let (mut whole, mut fixed, mut adaptive) = (None, None, None);
    let mut turn = |policy| turn(server, message, policy, time / TURNS);
    for _ in 0..TURNS {
        whole = faster(whole, turn(Policy::StoreAndForward)?);
        for &pulse in pulses {
            fixed = faster(fixed, turn(pulse)?);
        }
        adaptive = faster(adaptive, turn(Policy::default())?);
    }
    let runs = [whole, fixed, adaptive].into_iter().flatten().collect();
    let size = Size(message.len() as u64);
    Ok(Timeline { title: format!("One {size} message, private memory to private memory, fastest of many"), runs })
}

/// The faster of two tries.
fn faster(best: Option<Run>, run: Run) -> Option<Run> {
    best.filter(|best| best.total_ns() <= run.total_ns()).or(Some(run))
}

/// The fastest of the tries of one turn.
fn turn(server: &mut Server, message: &[u8], policy: Policy, time: Duration) -> Result<Run, Failure> {
    // What is only moved when it is whole has to fit into the staging ring.
    let whole = policy == Policy::StoreAndForward;
    let staging = if whole { message.len().next_power_of_two().max(STAGING) } else { STAGING };
    let staging = u32::try_from(staging).unwrap_or(u32::MAX);
    let mut session = server.open(&policy.to_string(), staging, MEMORY)?;
    let mut into = vec![0; message.len()];
    for _ in 0..WARMUP {
        send(&mut session, policy, &mut into)?;
    }
    let begun = Instant::now();
    let mut best: Option<Run> = None;
    loop {
        into.fill(0);
        let run = send(&mut session, policy, &mut into)?;
        if into != message {
            return Err(Failure::check("the large message is not as in the file"));
        }
        best = faster(best, run);
        if let Some(best) = best.take_if(|_| begun.elapsed() > time) {
            return Ok(best);
        }
    }
}

/// Has the message sent once.
fn send(session: &mut Session, policy: Policy, into: &mut [u8]) -> Result<Run, Failure> {
    session.ask(Request::Traced(u32::try_from(into.len()).unwrap_or(u32::MAX)))?;
    let mut message = session.hear()?;
    if message.payload_len() != into.len() {
        return Err(lost(&"the large message has the wrong length"));
    }
    let mut copied_out = Pulses::default();
    session.endpoint.read_traced(&mut message, into, &mut copied_out).map_err(|error| lost(&error))?;
    let copied_in = hear_pulses(session)?;
    let stage = |stage: &str, pulses| StageSpan { stage: stage.into(), pulses };
    let stages = vec![stage("copy in", copied_in), stage("copy out", copied_out.0)];
    Ok(Run { policy: policy.to_string(), stages })
}

/// The pulses of the serving process: how many, then all of them.
fn hear_pulses(session: &mut Session) -> Result<Vec<Pulse>, Failure> {
    let count = session.hear()?.control().try_into().map(u64::from_le_bytes).map_err(|error| lost(&error))?;
    let mut pulses = Vec::new();
    while (pulses.len() as u64) < count {
        let some = ask::read_pulses(session.hear()?.control());
        if some.is_empty() {
            return Err(lost(&"it sent fewer pulses than it made"));
        }
        pulses.extend(some);
    }
    Ok(pulses)
}
