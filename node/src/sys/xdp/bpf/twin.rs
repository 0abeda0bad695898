//! A program that is at an interface already, found among all that the kernel has.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

#[cfg(test)]
use super::number;
use super::{Attached, ById, MAP_BY_ID, PROGRAM_XDP, Program, Programs, Rings, bpf, inform, make};

const PROG_BY_ID: u32 = 13;
const LINK_BY_ID: u32 = 30;
const LINK_AFTER: u32 = 31;

const LINK_XDP: u32 = 6;

/// What the kernel says of a program, up to what is used here.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    _lengths: [u32; 2],
    _code: [u64; 2],
    _loaded: u64,
    _user: u32,
    maps: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// What the kernel says of a link, up to what is used here.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    _unused: u32,
    interface: u32,
    _rest: u32,
}

/// A descriptor of what has this number, if there is one and this process may have it.
fn by_id(command: u32, id: u32) -> Result<OwnedFd, Errno> {
    debug_assert!([PROG_BY_ID, MAP_BY_ID, LINK_BY_ID].contains(&command), "it makes a descriptor");
    let mut asked = ById { id, ..ById::default() };
    // SAFETY: the command reads no more than these numbers, and makes a descriptor.
    unsafe { make(command, &mut asked) }
}

impl Attached {
    /// What the kernel says of it, as of a link of XDP.
    fn info(&self) -> Result<LinkInfo, Errno> {
        let mut info = LinkInfo::default();
        // SAFETY: this is the beginning of what the kernel says of links, and of those of XDP; no address is in it, nor
        // in what it says of others, whose addresses and lengths are zero.
        unsafe { inform(self.0.as_fd(), &mut info) }?;
        if info.kind == LINK_XDP { Ok(info) } else { Err(Errno::INVAL) }
    }

    /// Whether somebody has taken the program off its interface, or that is gone. Not if the kernel does not say.
    pub(in crate::sys::xdp) fn is_off(&self) -> bool {
        self.info().is_ok_and(|info| info.interface == 0)
    }

    /// Takes the program off its interface, whoever else keeps it there.
    #[cfg(test)]
    pub(in crate::sys::xdp) fn detach(&self) -> Result<(), Errno> {
        const LINK_DETACH: u32 = 34;
        let mut link = ById { id: number(self.0.as_fd()), ..ById::default() };
        // SAFETY: the command reads one number, a descriptor.
        unsafe { bpf(LINK_DETACH, &mut link) }.map(drop)
    }
}

impl Program {
    /// What the kernel says of it, with the first of its maps.
    fn info(&self) -> Result<(ProgramInfo, [u32; 2]), Errno> {
        let mut maps = [0; 2];
        let map_ids = maps.as_mut_ptr().expose_provenance() as u64;
        let mut info = ProgramInfo { maps: 2, map_ids, ..ProgramInfo::default() };
        // SAFETY: this is the beginning of what the kernel says of programs; it asks for room for two numbers of maps,
        // which is there, and for nothing else that has an address.
        unsafe { inform(self.0.as_fd(), &mut info) }?;
        Ok((info, maps))
    }

    /// The program at the interface of this index that is made of the same instructions as this one (their maps aside),
    /// if there is one: the link that keeps it there, its two maps, and the name that it was loaded under. It takes
    /// `CAP_SYS_ADMIN` to have what another process has made.
    ///
    /// # Errors
    /// As the kernel says.
    pub(in crate::sys::xdp) fn find_twin(&self, interface: u32) -> Result<Option<Twin>, Errno> {
        let tag = self.info()?.0.tag;
        let mut after = ById::default();
        loop {
            // SAFETY: the command reads these numbers and writes one of them.
            match unsafe { bpf(LINK_AFTER, &mut after) } {
                Err(Errno::NOENT) => return Ok(None),
                asked => asked.map(drop)?,
            }
            after.id = after.next;
            // What goes away meanwhile, or may not be looked at, is not what is looked for.
            match Twin::of(after.id, interface, tag) {
                Ok(None) => {}
                Err(errno) if ![Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno) => {}
                found => return found,
            }
        }
    }
}

/// A program that is at an interface already: see [`Program::find_twin`].
#[derive(Debug)]
pub(in crate::sys::xdp) struct Twin {
    /// What keeps it there.
    pub(in crate::sys::xdp) link: Attached,
    /// Its maps: of rings, and of programs.
    pub(in crate::sys::xdp) maps: (Rings, Programs),
    /// The name that it was loaded under.
    pub(in crate::sys::xdp) name: [u8; 16],
}

impl Twin {
    fn of(link: u32, interface: u32, tag: [u8; 8]) -> Result<Option<Self>, Errno> {
        let link = Attached(by_id(LINK_BY_ID, link)?);
        let Some(info) = link.info().ok().filter(|info| info.interface == interface) else { return Ok(None) };
        let (program, [rings, programs]) = Program(by_id(PROG_BY_ID, info.program)?).info()?;
        if program.kind != PROGRAM_XDP || program.tag != tag || program.maps != 2 {
            return Ok(None);
        }
        let maps = (Rings(by_id(MAP_BY_ID, rings)?), Programs(by_id(MAP_BY_ID, programs)?));
        Ok(Some(Self { link, maps, name: program.name }))
    }
}
