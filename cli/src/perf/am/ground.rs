//! What requests are made on: a station at the other end, a client of it here, and what is done there again and again.

use std::fmt;

use cutthrough::Channel;
use cutthrough::am::{CallError, Event, Node, Reply};

use super::station::LEAVE;
use crate::args::{Measure, Memory};
use crate::clock::Length;
use crate::failure::Failure;
use crate::perf::ask::Setup;
use crate::perf::cargo::Tally;
use crate::perf::case::{Case, Slice, Test};
use crate::perf::lane::{LaneError, PATIENCE, on_core};
use crate::perf::peer::Peer;
use crate::perf::seat::Subject;
use crate::units::Size;

/// The raw messages of this test and size, with these options.
///
/// # Errors
/// If an option cannot be served.
pub fn raw(options: &Measure, test: Test, bytes: u64, memory: Memory) -> Result<Case, Failure> {
    let options = Measure { size: vec![Size(bytes)], memory: Some(memory), ..options.clone() };
    Case::all(test, &options)?.pop().ok_or_else(|| Failure::new("no size", "give --size of 1 or more"))
}

/// What a row says.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name of the row.
    pub what: &'static str,
    /// What is measured of both sides.
    pub test: Test,
    /// The name of what it is held against.
    pub limit: &'static str,
    /// Raw figures in one of the row: 2 if a whole operation is held against half round trips.
    pub times: f64,
}

/// What is done at a station, for so long: what came of it.
pub type Own = Box<dyn FnMut(&mut Side, Length) -> Result<Slice, LaneError> + Send>;

/// How a row gets its station.
type Make = Box<dyn Fn(&mut Ground<'_>, &Case) -> Result<Ready, Failure>>;

/// A row, and how it is made ready to be measured.
pub struct Plan {
    /// What it says.
    pub row: Row,
    /// The raw messages that it is held against.
    pub case: Case,
    /// Bytes of one operation.
    pub size: Size,
    /// Whether it has a client with an endpoint of its own beside the node of this end.
    pub has_client: bool,
    options: Measure,
    make: Make,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("row", &self.row).field("case", &self.case).finish_non_exhaustive()
    }
}

impl Plan {
    /// A row with these options; its station is as `make` makes it.
    #[must_use]
    pub fn new(
        row: Row,
        case: Case,
        options: &Measure,
        make: impl Fn(&mut Ground<'_>, &Case) -> Result<Ready, Failure> + 'static,
    ) -> Self {
        let size = case.size();
        Self { row, case, size, has_client: false, options: options.clone(), make: Box::new(make) }
    }

    /// This row, which has a client.
    #[must_use]
    pub fn with_client(self) -> Self {
        Self { has_client: true, ..self }
    }

    /// Whether it can be measured where only one endpoint at a time can be at each end.
    ///
    /// # Errors
    /// If it cannot, and the way is such a one.
    pub fn fits(&self, narrow: bool) -> Result<(), Failure> {
        if narrow && self.has_client { Err(two_endpoints(self.row.what)) } else { Ok(()) }
    }
}

/// Why a row cannot be measured over a ring of AF_XDP.
#[must_use]
pub fn two_endpoints(row: &str) -> Failure {
    Failure::new(
        format!("the row {row} has two endpoints at a time, and a queue of an interface has one ring of AF_XDP"),
        "ask for other rows, or give another --adapter",
    )
}

impl Subject for Plan {
    type Open = Ready;

    fn test(&self) -> Test {
        self.row.test
    }

    fn length(&self) -> Length {
        self.case.length
    }

    fn size(&self) -> Size {
        self.size
    }

    fn what(&self) -> Option<&'static str> {
        Some(self.row.what)
    }

    fn open(&self, peer: &mut Peer, core: usize) -> Result<Ready, Failure> {
        (self.make)(&mut Ground { options: &self.options, peer, core }, &self.case)
    }

    fn measure(
        &self,
        open: &mut Ready,
        peer: &mut Peer,
        core: usize,
        _: Test,
        length: Length,
    ) -> Result<Slice, Failure> {
        let Ready { side, own } = open;
        Ground { options: &self.options, peer, core }.attended(side, |side| own(side, length))
    }

    fn close(open: Ready, peer: &mut Peer) -> Result<(), Failure> {
        let Ready { side, own } = open;
        // A client of its own goes first.
        drop(own);
        let number = side.number;
        drop(side);
        peer.dismiss(number)
    }
}

/// A row whose station is there.
pub struct Ready {
    /// The client of the station.
    pub side: Side,
    /// What is done there.
    pub own: Own,
}

impl Ready {
    /// This is done at the station of `side`.
    #[must_use]
    pub fn new(side: Side, own: impl FnMut(&mut Side, Length) -> Result<Slice, LaneError> + Send + 'static) -> Self {
        Self { side, own: Box::new(own) }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("side", &self.side).finish_non_exhaustive()
    }
}

/// A client of a station.
#[derive(Debug)]
pub struct Side {
    /// The node.
    pub node: Node,
    /// Its channel to the station.
    pub channel: Channel,
    /// The station's number.
    pub number: u32,
    /// What the receipts said.
    pub tally: Tally,
}

impl Side {
    /// The next reply; spins for it.
    ///
    /// # Errors
    /// [`LaneError`], if a request has failed instead.
    #[inline]
    pub fn reply(&mut self) -> Result<Reply, LaneError> {
        loop {
            if let Some(reply) = self.look()? {
                return Ok(reply);
            }
        }
    }

    /// Looks once for a reply.
    ///
    /// # Errors
    /// As [`Side::reply`].
    #[inline]
    pub fn look(&mut self) -> Result<Option<Reply>, LaneError> {
        match self.node.poll() {
            None => Ok(None),
            Some(Event::Replied(reply)) => Ok(Some(reply)),
            Some(Event::Failed(failed)) => Err(failed.error.into()),
            Some(Event::Closed(_, why)) => Err(CallError::Closed(why).into()),
            Some(_) => Ok(None),
        }
    }

    /// Asks for something that may take a while.
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn call(&mut self, handler: u16, words: &[u32]) -> Result<Reply, LaneError> {
        Ok(self.node.call(self.channel, handler, words, PATIENCE).map_err(CallError::from)?)
    }

    /// Ends the attendance of the other end.
    fn leave(&mut self) -> Result<(), LaneError> {
        self.call(LEAVE, &[]).map(drop)
    }
}

/// Where stations are opened.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The options.
    pub options: &'a Measure,
    /// The other end.
    pub peer: &'a mut Peer,
    /// The core of this end.
    pub core: usize,
}

impl Ground<'_> {
    /// Opens a station for payloads of up to so many bytes.
    ///
    /// # Errors
    /// If either end cannot.
    pub fn station(&mut self, bytes: u64) -> Result<Side, Failure> {
        let setup = self.setup(bytes)?;
        let (node, channel, number) = self.peer.station(&setup)?;
        let mut side = Side { node, channel, number, tally: Tally::default() };
        side.leave()?;
        Ok(side)
    }

    /// The settings of a station, and of what talks to it.
    ///
    /// # Errors
    /// If an option cannot be served.
    pub fn setup(&self, bytes: u64) -> Result<Setup, Failure> {
        Ok(raw(self.options, Test::Bw, bytes, Memory::Private)?.setup())
    }

    /// Closes a station.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn close(&mut self, side: Side) -> Result<(), Failure> {
        let number = side.number;
        drop(side);
        self.peer.dismiss(number)
    }

    /// Runs this on our core while the other end attends.
    ///
    /// # Errors
    /// If the other end goes away.
    pub fn attended<R: Send>(
        &mut self,
        side: &mut Side,
        run: impl FnOnce(&mut Side) -> Result<R, LaneError> + Send,
    ) -> Result<R, Failure> {
        self.peer.attend(side.number)?;
        on_core(self.core, || {
            let result = run(side)?;
            side.leave()?;
            Ok(result)
        })
    }
}
