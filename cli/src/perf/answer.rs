//! What the other end does on a lane, job by job.

use cutthrough::{Frozen, Incoming, Landing, TOKEN_BYTES, Token};

use super::ask::{Answer, Job, LAST, MORE, Shape};
use super::cargo::Cargo;
use super::lane::{Lane, LaneError};
use super::room::filled;
use crate::args::Memory;

/// Does one job, which [may be begun](Job::refusal), to its last message, or says why not.
///
/// # Errors
/// [`LaneError`], if the lane ends before.
pub fn run(lane: &mut Lane, job: Job) -> Result<(), LaneError> {
    match begin(lane, job) {
        // Its memory is taken before it is said to have begun.
        Err(LaneError::Room(none)) => lane.refuse(&none.to_string()),
        done => done,
    }
}

fn begin(lane: &mut Lane, job: Job) -> Result<(), LaneError> {
    match job {
        Job::Echo(shape) if shape.is_control() => echo_control(lane, shape),
        Job::Echo(shape) => echo(lane, shape),
        Job::Sink { shape, confirm_every } => sink(lane, shape, confirm_every),
        Job::Pages { shape, count } => Library::stock(lane, shape, count)?.serve(lane),
        Job::Slots { bytes, count } => slots(lane, bytes as usize, count as usize),
        Job::Wake => wake(lane),
    }
}

fn echo_control(lane: &mut Lane, shape: Shape) -> Result<(), LaneError> {
    let mut control = vec![MORE; shape.bytes as usize];
    lane.answer(&Answer::Ready)?;
    while lane.hear_op()? == MORE {
        lane.tell(&control)?;
    }
    control[0] = LAST;
    lane.tell(&control)
}

fn echo(lane: &mut Lane, shape: Shape) -> Result<(), LaneError> {
    let mut cargo = Cargo::new(shape)?;
    lane.answer(&Answer::Ready)?;
    loop {
        let op = cargo.take(lane)?;
        cargo.send(lane, op)?;
        if op == LAST {
            return Ok(());
        }
    }
}

fn sink(lane: &mut Lane, shape: Shape, confirm_every: u32) -> Result<(), LaneError> {
    let mut cargo = Cargo::new(shape)?;
    let mut taken = 0_u64;
    let mut until_confirm = confirm_every;
    lane.answer(&Answer::Ready)?;
    loop {
        let op = if shape.is_control() { lane.hear_op()? } else { cargo.take(lane)? };
        taken += 1;
        until_confirm -= 1;
        if until_confirm == 0 || op == LAST {
            until_confirm = confirm_every;
            if shape.memory == Memory::Pool {
                // Posts again what was given back, before the sender hears that it may go on.
                lane.endpoint.post(lane.channel, shape.bytes as usize, 0)?;
            }
            lane.answer(&Answer::Taken(taken))?;
        }
        if op == LAST {
            return Ok(());
        }
    }
}

/// Reads each page into the slot that its message names, as [`Request::plain`] says it.
fn slots(lane: &mut Lane, bytes: usize, count: usize) -> Result<(), LaneError> {
    let mut memory = filled(bytes * count, 0xa5)?;
    let mut taken = 0;
    lane.answer(&Answer::Ready)?;
    loop {
        let mut message = lane.hear()?;
        let request = Request::read(&message)?;
        let begin = (request.page as usize).saturating_mul(bytes);
        let slot = memory.get_mut(begin..begin.saturating_add(bytes)).ok_or(LaneError::Unexpected)?;
        lane.endpoint.read(&mut message, slot)?;
        taken += 1;
        if request.op == LAST {
            return lane.answer(&Answer::Taken(taken));
        }
    }
}

/// Pages to be asked for.
struct Library {
    memory: Memory,
    page_bytes: usize,
    region: Vec<u8>,
    /// By reference each page lies in the pool, and stays there.
    stock: Vec<Frozen>,
}

impl Library {
    /// Fills a region with `count` pages, and says when it is there.
    fn stock(lane: &mut Lane, shape: Shape, count: u32) -> Result<Self, LaneError> {
        let page_bytes = shape.bytes as usize;
        let by_reference = shape.memory == Memory::Reference;
        let stock = (0..if by_reference { count } else { 0 })
            .map(|_| {
                let mut page = lane.endpoint.page(lane.channel, page_bytes)?;
                page.fill(0x5a);
                Ok(page.freeze())
            })
            .collect::<Result<_, LaneError>>()?;
        let region = filled(if by_reference { 0 } else { page_bytes * count as usize }, 0x5a)?;
        lane.answer(&Answer::Ready)?;
        Ok(Self { memory: shape.memory, page_bytes, region, stock })
    }

    /// The bytes of a page of the region.
    fn page(&self, number: u32) -> Result<&[u8], LaneError> {
        let begin = (number as usize).saturating_mul(self.page_bytes);
        self.region.get(begin..begin.saturating_add(self.page_bytes)).ok_or(LaneError::Unexpected)
    }

    fn serve(mut self, lane: &mut Lane) -> Result<(), LaneError> {
        loop {
            let request = Request::read(&lane.hear()?)?;
            self.answer(lane, &request)?;
            if request.op == LAST {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, lane: &mut Lane, request: &Request) -> Result<(), LaneError> {
        let number = request.page.to_le_bytes();
        let reply = lane.endpoint.outgoing(lane.channel)?.write(&number);
        match self.memory {
            Memory::Private => reply.attach_copy(self.page(request.page)?).send(),
            Memory::Pool => reply.attach_copy(self.page(request.page)?).to(request.token).send(),
            Memory::Reference => {
                let page = self.stock.get(request.page as usize).ok_or(LaneError::Unexpected)?;
                reply.attach_frozen(page).send()
            }
        }?;
        Ok(())
    }
}

/// A request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`MORE`] or [`LAST`].
    pub op: u8,
    /// The page's number.
    pub page: u32,
    /// Where it shall land, if that was asked for.
    pub token: Token,
}

impl Request {
    /// Bytes of a request without token, and of one with it.
    const SHORT: usize = 8;
    const LONG: usize = Self::SHORT + TOKEN_BYTES;

    /// A request for a page that shall land wherever it can.
    #[must_use]
    pub fn plain(op: u8, page: u32) -> [u8; Self::SHORT] {
        let [a, b, c, d] = page.to_le_bytes();
        [op, 0, 0, 0, a, b, c, d]
    }

    /// A request for a page that shall land where the token says.
    #[must_use]
    pub fn to(token: Token, op: u8, page: u32) -> [u8; Self::LONG] {
        let mut bytes = [0; Self::LONG];
        bytes[..Self::SHORT].copy_from_slice(&Self::plain(op, page));
        bytes[Self::SHORT..].copy_from_slice(&token.to_bytes());
        bytes
    }

    fn read(message: &Incoming) -> Result<Self, LaneError> {
        let control = message.control();
        let (&[op, _, _, _, a, b, c, d], rest) = control.split_first_chunk().ok_or(LaneError::Unexpected)?;
        let token = rest.try_into().unwrap_or([0; TOKEN_BYTES]);
        Ok(Self { op, page: u32::from_le_bytes([a, b, c, d]), token: Token::from_bytes(token) })
    }
}

/// A place for one page of the other end, to be put into a request.
///
/// # Errors
/// [`LaneError::Memory`].
pub fn place(lane: &mut Lane, page_bytes: usize) -> Result<Token, LaneError> {
    Ok(lane.endpoint.grant(lane.channel, Landing::Pages(page_bytes))?)
}

/// Sleeps for each message and says when it woke up.
fn wake(lane: &mut Lane) -> Result<(), LaneError> {
    lane.answer(&Answer::Ready)?;
    loop {
        let message = lane.sleep_for()?;
        let woken = cutthrough::now();
        lane.answer(&Answer::At(woken.as_nanos()))?;
        if message.control().first() != Some(&MORE) {
            return Ok(());
        }
    }
}
