//! Several rings at one interface, which has room for one program: that one hands each frame to the program of its
//! queue, if a ring is there.
//!
//! ```text
//! interface -- link -- dispatcher -- by number of the queue: a ring is there?  -- its program -- its ring
//!                                                            none is there     -- the kernel
//! ```
//!
//! Rings of different processes do not know each other. The first one brings the dispatcher; who comes later finds it
//! at the interface, and takes the link by which it is there, too: so it stays until the last of them has gone, and
//! goes with that one, however it ended. A ring's program sees the frames of its own queue only, and none of any other
//! process's. When a process dies, the kernel takes its socket out of the map of rings, and its program runs no more.
//!
//! The dispatcher never looks into a frame. Two constants in it, without effect, name the interface and its network
//! namespace; so the kernel's digest of its instructions (the program's tag) tells whether a program is this one: one
//! of another release, or of somebody else, is not joined. What its name says is in which mode it runs.
//!
//! This is U-Net's multiplexing (SOSP 1995) for an ordinary adapter: several endpoints at one interface, each with its
//! own rings and memory, and the hardware's queues as the tag by which frames are told apart.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::bpf::{Attached, FIRST_PAUSE, Program, Programs, Rings, rest};
use super::code::{Code, Do, When, Width};
use super::placing::STACK;
use super::program::{CONTEXT, QUEUE, R0, R1, R2, R3, ends};
use super::{Interface, Mode, XdpError};

/// How many queues an interface may have whose rings can share a dispatcher.
pub const QUEUES: u32 = 4096;

const LOOK_UP: i32 = 1;
const TAIL_CALL: i32 = 12;

/// How long a dispatcher in another mode is waited for: it may be of an endpoint that is just ending.
const ENDING: Duration = Duration::from_millis(200);

/// How long it may take the kernel to empty a map that had no holder for a moment.
const EMPTIED: Duration = Duration::from_millis(5);
const EMPTIED_LOOKS: u32 = 10;

/// Hands each frame to the program of its queue, if there is one and a ring is there; the kernel takes it otherwise.
/// `rings` and `programs` are the descriptors of the maps; the rest says for which interface it is made.
fn dispatch(interface: u32, namespace: u64, rings: i32, programs: i32) -> Vec<u8> {
    let mut code = Code::new();
    let pass = code.label();
    code.change(CONTEXT, Do::Move, R1);
    let [a, b, c, d, e, f, g, h] = namespace.to_le_bytes();
    for word in [interface, u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])] {
        code.change(R0, Do::Move, word.cast_signed());
    }
    code.load(Width::Word, R2, CONTEXT, QUEUE).store(Width::Word, STACK, -4, R2);
    code.change(R2, Do::Move, STACK).change(R2, Do::Add, -4).map(R1, rings).call(LOOK_UP);
    code.jump(R0, When::Equal, 0, pass);
    // A call that does not come back, but where there is no program.
    code.load(Width::Word, R3, CONTEXT, QUEUE);
    code.change(R1, Do::Move, CONTEXT).map(R2, programs).call(TAIL_CALL);
    ends(code, pass)
}

/// What a dispatcher is called that runs in this mode. Sockets of both other modes have their programs in the driver.
const fn name(mode: Mode) -> [u8; 16] {
    match mode {
        Mode::Generic => *b"cutthrough_gen\0\0",
        Mode::Native | Mode::ZeroCopy => *b"cutthrough_drv\0\0",
    }
}

/// A dispatcher for this interface, which is not there yet, and its maps.
fn made_for(interface: &Interface, mode: Mode) -> Result<(Program, Rings, Programs), XdpError> {
    let (rings, programs) = (Rings::new(QUEUES)?, Programs::new(QUEUES)?);
    let namespace = interface.namespace.unwrap_or(0);
    let code = dispatch(interface.index, namespace, rings.number(), programs.number());
    Ok((Program::load_as(&code, name(mode))?, rings, programs))
}

/// Takes the dispatcher off this interface, as root does by `bpftool link detach`.
#[cfg(test)]
pub(crate) fn take_off(interface: &Interface) {
    let (program, ..) = made_for(interface, Mode::Native).unwrap();
    let there = program.find_twin(interface.index).unwrap().expect("a dispatcher");
    there.link.detach().unwrap();
}

/// The dispatcher at an interface.
#[derive(Debug)]
pub struct Dispatcher {
    link: Attached,
    rings: Rings,
    programs: Programs,
    /// Whether it was there before.
    joined: bool,
}

impl Dispatcher {
    /// Puts one at the interface, or joins the one that is there. What is at the interface and is none is waited for
    /// as long as that: it may be of somebody who has just ended.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege or support, another program is there, a dispatcher runs in another mode, the MTU is
    /// too long for this one.
    pub fn enter(interface: &Interface, mode: Mode, patience: Duration) -> Result<Self, XdpError> {
        let (program, rings, programs) = made_for(interface, mode)?;
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match program.try_attach(interface.index, mode) {
                Ok(link) => return Ok(Self { link, rings, programs, joined: false }),
                Err(Errno::BUSY | Errno::EXIST) => {}
                Err(errno) => return Err(XdpError::of_attach(interface.index, mode, errno)),
            }
            // Interfaces of two namespaces may have the same number.
            let found = interface.namespace.map_or(Ok(None), |_| program.find_twin(interface.index));
            let why = match found {
                Ok(Some(twin)) if twin.name == name(mode) => {
                    let (rings, programs) = twin.maps;
                    return Ok(Self { link: twin.link, rings, programs, joined: true });
                }
                Ok(Some(twin)) => {
                    let there = if twin.name == name(Mode::Generic) { Mode::Generic } else { Mode::Native };
                    XdpError::OtherMode { interface: interface.name.clone(), there }
                }
                Ok(None) => XdpError::Occupied { interface: interface.name.clone() },
                Err(Errno::PERM | Errno::ACCESS) => XdpError::Hidden { interface: interface.name.clone() },
                Err(errno) => XdpError::Refused { what: "a look at the interface's program", errno },
            };
            let most = if matches!(why, XdpError::OtherMode { .. }) { ENDING.min(patience) } else { patience };
            if begun.elapsed() >= most {
                return Err(why);
            }
            rest(&mut pause);
        }
    }

    /// Gives the frames of `queue` to this program, and its ring to `socket`, which serves that queue: so no other ring
    /// is there.
    ///
    /// # Errors
    /// [`XdpError::Refused`], as the kernel says.
    pub fn seat(self, queue: u32, program: &Program, socket: BorrowedFd<'_>) -> Result<Seat, XdpError> {
        let Self { link, rings, programs, joined } = self;
        // If the last ring went while this one came, the map of programs had no holder for a moment; the kernel empties
        // it then, at its leisure.
        for _ in 0..EMPTIED_LOOKS {
            programs.set(queue, program)?;
            thread::sleep(if joined { EMPTIED } else { Duration::ZERO });
            if programs.has(queue) {
                rings.set(queue, socket)?;
                return Ok(Seat { link, rings: Some(rings), programs, queue, is_left: false });
            }
        }
        Err(XdpError::Refused { what: "the program in the map of programs", errno: Errno::AGAIN })
    }
}

/// The place of a ring at a dispatcher: frames of its queue go to its program, for as long as this lives.
///
/// It is dropped before the ring's socket is closed: then nobody else can have come to the queue.
#[derive(Debug)]
pub struct Seat {
    /// Keeps the dispatcher at its interface.
    link: Attached,
    /// Nothing where another process has opened the ring.
    rings: Option<Rings>,
    programs: Programs,
    queue: u32,
    is_left: bool,
}

impl Seat {
    /// One that another process has passed to this one: link and map of programs.
    #[must_use]
    pub fn passed([link, programs]: [OwnedFd; 2], queue: u32) -> Self {
        let (link, programs) = (Attached::passed(link), Programs::passed(programs));
        Self { link, rings: None, programs, queue, is_left: false }
    }

    /// Whether somebody has taken the dispatcher off its interface: the ring gets no more frames then. A system call.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.link.is_off()
    }

    /// What keeps the dispatcher at its interface, to be passed to another process.
    #[must_use]
    pub fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// The map by which the program is found, to be passed, too; it cannot be changed there. Who could would freeze it,
    /// and no ring would come to the interface any more.
    ///
    /// # Errors
    /// [`XdpError::Privilege`] without `CAP_SYS_ADMIN`.
    pub fn programs_to_keep(&self) -> Result<OwnedFd, XdpError> {
        self.programs.to_keep()
    }

    /// Whether this process can neither change nor freeze what the seats of all are found by.
    #[cfg(test)]
    pub(crate) fn cannot_change(&self) -> bool {
        self.programs.clear(self.queue).is_err() && self.programs.freeze().is_err()
    }

    /// Another process has it: it stays when this value goes.
    pub const fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // If the kernel refuses that, as where another process has opened the ring, the program stays until the next
        // one comes, or the dispatcher goes; it is not run when the socket has been closed.
        let _ = self.rings.as_ref().map(|rings| rings.clear(self.queue));
        let _ = self.programs.clear(self.queue);
    }
}
