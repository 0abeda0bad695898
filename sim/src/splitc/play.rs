//! A program on simulated nodes.
//!
//! Each rank has a thread of its own, since a program is plain code that cannot be left in the middle otherwise. At any
//! moment one thread runs, the simulator's or that of one rank: whoever has the ranks' memory, which is handed from one
//! to the other. So a run is the same each time.

use std::any::Any;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, ScopedJoinHandle, scope};

use crate::platform::{Platform, PlatformError};
use crate::time::Time;

use super::memory::Memory;
use super::parts::Machine;
use super::rank::{Baton, Rank, RankError, Turn};
use super::world::{Course, Node, Run, Step, follow};

/// What a program's run on simulated nodes came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played<R> {
    /// What each rank has returned.
    pub results: Vec<R>,
    /// Messages that the nodes sent each other, answers and those of barriers among them.
    pub messages: u64,
    /// Their bytes, headers left out.
    pub bytes: u64,
    /// Until the last node was done, in picoseconds.
    pub ps: u64,
    /// Events that the simulator handled.
    pub events: u64,
}

/// Why a program has not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// The platform's file is wrong.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The platform has fewer nodes, or none were asked for.
    #[error("{asked} nodes are asked for; the machine has {has}")]
    Nodes {
        /// How many were asked for.
        asked: u32,
        /// How many there are.
        has: usize,
    },
    /// A rank has ended with an error: the first that did.
    #[error("rank {rank}: {error}")]
    Failed {
        /// Which one.
        rank: usize,
        /// What it said.
        error: RankError,
    },
    /// A rank has panicked: the first that did.
    #[error("rank {rank} panicked: {what}")]
    Panicked {
        /// Which one.
        rank: usize,
        /// What it said.
        what: String,
    },
    /// Ranks wait for what nobody sends.
    #[error("ranks {ranks:?} wait for ever: all ranks have to meet as often")]
    Stuck {
        /// Which ones.
        ranks: Vec<usize>,
    },
    /// The system gives no thread.
    #[error("no thread for a rank: {0}")]
    NoThread(std::io::Error),
}

/// Runs a program on so many nodes of a platform: each rank is a node, and its program takes the time that the node
/// takes for what the program says that it computes, and for its messages.
///
/// # Errors
/// [`PlayError`]: if a rank fails or panics, or they wait for each other for ever. All threads have ended by then; only
/// a rank whose program neither waits nor ends is waited for.
pub fn play<R: Send>(
    platform: &Platform,
    nodes: u32,
    program: impl Fn(&mut Rank) -> Result<R, RankError> + Sync,
) -> Result<Played<R>, PlayError> {
    let machine = Machine::read(platform)?;
    if nodes == 0 || nodes as usize > machine.hosts {
        return Err(PlayError::Nodes { asked: nodes, has: machine.hosts });
    }
    let (results, run) = play_on(&machine, nodes, program)?;
    Ok(Played { results, messages: run.sent, bytes: run.sent_bytes, ps: run.time.as_ps(), events: run.events })
}

/// [`play`], on a machine whose nodes suffice.
pub(super) fn play_on<R: Send>(
    machine: &Machine,
    nodes: u32,
    program: impl Fn(&mut Rank) -> Result<R, RankError> + Sync,
) -> Result<(Vec<R>, Run), PlayError> {
    let program = &program;
    scope(|scope| {
        let mut ranks = Ranks { memory: Memory::of(nodes), seats: Vec::new(), failed: None };
        let mut threads = Vec::new();
        for number in 0..nodes {
            let (turn, turns) = channel();
            let (back, steps) = channel();
            let thread = move || {
                let mut rank = Rank::new((number, nodes), turns, back)?;
                let result = program(&mut rank)?;
                rank.leave();
                Ok(result)
            };
            threads.push(Builder::new().spawn_scoped(scope, thread).map_err(PlayError::NoThread)?);
            ranks.seats.push(Seat { turn, steps, is_over: false });
        }
        let run = follow(machine, nodes as usize, &mut ranks);
        let failed = ranks.failed;
        // Who waits for a turn hears that there is none.
        drop(ranks);
        let ends: Vec<End<R>> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        settle(ends, run, failed)
    })
}

/// How a rank's thread has ended.
type End<R> = Result<Result<R, RankError>, Box<dyn Any + Send>>;

/// What all ranks came to; or why not, by the one that failed first.
fn settle<R>(ends: Vec<End<R>>, run: Run, failed: Option<Node>) -> Result<(Vec<R>, Run), PlayError> {
    let mut results = Vec::with_capacity(ends.len());
    for (rank, end) in ends.into_iter().enumerate() {
        match end {
            Ok(Ok(result)) => results.push(result),
            _ if failed.is_some_and(|failed| failed != rank) => {}
            Ok(Err(RankError::Over)) if failed.is_none() => {}
            Ok(Err(error)) => return Err(PlayError::Failed { rank, error }),
            Err(panic) => return Err(PlayError::Panicked { rank, what: said(&*panic) }),
        }
    }
    if run.stuck.is_empty() { Ok((results, run)) } else { Err(PlayError::Stuck { ranks: run.stuck }) }
}

/// The words of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The way to a rank's thread and back.
#[derive(Debug)]
struct Seat {
    turn: Sender<Baton>,
    steps: Receiver<Turn>,
    is_over: bool,
}

/// All ranks, and their memory while none of them runs.
#[derive(Debug)]
struct Ranks {
    memory: Memory,
    seats: Vec<Seat>,
    /// The rank that has ended otherwise than well.
    failed: Option<Node>,
}

impl Course for Ranks {
    /// Has a rank run until it waits.
    fn next(&mut self, node: Node, now: Time) -> Vec<Step> {
        let seat = &mut self.seats[node];
        if self.failed.is_some() || seat.is_over {
            return Vec::new();
        }
        let memory = std::mem::take(&mut self.memory);
        // A thread that has ended takes nothing, and gives nothing back.
        let _ = seat.turn.send(Baton { memory, now });
        let Ok(turn) = seat.steps.recv() else {
            self.failed = Some(node);
            return Vec::new();
        };
        (self.memory, seat.is_over) = (turn.memory, turn.is_last);
        turn.steps
    }
}
