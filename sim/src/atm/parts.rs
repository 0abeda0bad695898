//! The parts of an ATM machine, as its platform's file gives them.

use crate::platform::{Platform, PlatformError};
use crate::time::{Rate, Span};

use super::aal5;

/// The way between two adapters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wire {
    /// Time that the fibre needs for one cell.
    pub(crate) cell: Span,
    /// What a switch on the way adds, if there is one: the cell has to be whole before it goes on.
    pub(crate) switch: Option<Span>,
    /// Cells that the adapter's output FIFO holds.
    pub(crate) output: usize,
    /// Cells that the adapter's input FIFO holds.
    pub(crate) input: usize,
}

/// What the traps of SSAM cost, part by part (Table 1), for one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traps {
    pub(crate) write: [Span; 5],
    /// Trap, look at the count of cells, the rest of the kernel's work.
    pub(crate) read: [Span; 3],
    /// Pull a cell, find its owner, store it.
    pub(crate) cell: [Span; 3],
}

/// Names of the parts, as in Table 1.
pub(crate) const WRITE_PARTS: [&str; 5] = ["trap", "check", "kernel", "load", "push"];
pub(crate) const READ_PARTS: [&str; 3] = ["trap", "count", "kernel"];
pub(crate) const CELL_PARTS: [&str; 3] = ["pull", "demux", "store"];

/// What a host pays for a cell that its processor moves into and out of FIFOs, by trap or by system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    /// Sends one cell.
    pub(crate) write: Span,
    /// From the start of a look for cells until their number is known.
    pub(crate) look: Span,
    /// The rest of that look, whatever it found.
    pub(crate) rest: Span,
    /// For each cell that it found.
    pub(crate) cell: Span,
    /// Cells that one look can bring.
    pub(crate) batch: usize,
    /// A write that looks as well skips the first part of a look: it is in the kernel already.
    pub(crate) saves: Option<Span>,
    /// AAL5 by software: the CRC of a cell, on either side.
    pub(crate) crc: Span,
}

/// The i960's firmware and the bus that it masters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coprocessor {
    /// One turn of the firmware's loop, and one mover started.
    pub(crate) turn: Span,
    /// Taking up a message of a single cell, on either side.
    pub(crate) single: Span,
    /// What a message of several cells takes longer.
    pub(crate) multi: Span,
    /// The longest message that travels inside its descriptor.
    pub(crate) inline: u64,
    /// Adapter memory that a message on its way out can fill.
    pub(crate) memory: u64,
    pub(crate) bus: BusCost,
    /// A double word that the host's processor stores into the adapter.
    pub(crate) pio: Span,
}

/// What a transfer over the bus costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusCost {
    pub(crate) rate: Rate,
    /// Bytes of a burst.
    pub(crate) burst: u64,
    /// Arbitration, address translation and acknowledgement of each burst.
    pub(crate) setup: Span,
}

/// A host's network interface.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Nic {
    /// FIFOs that the host's processor fills and empties cell by cell: the SBA-100.
    Fifo(Access),
    /// A processor that moves whole messages: the SBA-200.
    Coprocessor(Coprocessor),
}

impl Wire {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let fifo = |key: &str| match usize::try_from(platform.count(key)?) {
            Ok(cells) if cells > 0 => Ok(cells),
            _ => Err(platform.refuse(key, "a FIFO must hold at least 1 cell")),
        };
        let bytes = platform.size("link.cell")?;
        if bytes < aal5::CELL as u64 {
            return Err(platform.refuse("link.cell", "a cell has at least 53 bytes on the fibre"));
        }
        Ok(Self {
            cell: platform.rate("link.rate")?.span(bytes),
            switch: Some(platform.time("switch.latency")?),
            output: fifo("fifo.out")?,
            input: fifo("fifo.in")?,
        })
    }

    /// The same fibre from host to host.
    pub(crate) fn back_to_back(self) -> Self {
        Self { switch: None, ..self }
    }
}

impl Traps {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let part = |group: &str, name: &str| platform.time(&format!("{group}.{name}"));
        let mut traps = Self { write: [Span::ZERO; 5], read: [Span::ZERO; 3], cell: [Span::ZERO; 3] };
        for (span, name) in traps.write.iter_mut().zip(WRITE_PARTS) {
            *span = part("write", name)?;
        }
        for (span, name) in traps.read.iter_mut().zip(READ_PARTS) {
            *span = part("read", name)?;
        }
        for (span, name) in traps.cell.iter_mut().zip(CELL_PARTS) {
            *span = part("read", name)?;
        }
        if traps.look() + traps.read[2] == Span::ZERO {
            return Err(platform.refuse("read.trap", "a look for cells must take time"));
        }
        Ok(traps)
    }

    /// The trap that sends a cell.
    pub(crate) fn write(&self) -> Span {
        self.write.into_iter().sum()
    }

    /// From the start of a reading trap until the number of cells is known.
    fn look(&self) -> Span {
        self.read[0] + self.read[1]
    }

    /// What each cell adds to a reading trap.
    pub(crate) fn cell(&self) -> Span {
        self.cell.into_iter().sum()
    }

    /// The trap that reads `cells` cells.
    pub(crate) fn reads(&self, cells: u64) -> Span {
        self.look() + self.read[2] + self.cell() * cells
    }

    /// The trap that sends a cell and reads `cells` cells: it enters the kernel once.
    pub(crate) fn write_reads(&self, cells: u64) -> Span {
        self.write() + self.reads(cells) - self.read[0]
    }

    /// Copying a cell from memory to memory: loaded as before a push, stored as after a pull.
    pub(crate) fn copy(&self) -> Span {
        self.write[3] + self.cell[2]
    }

    /// Cells by trap, with AAL5 by software if `crc` is not nothing.
    pub(crate) fn access(&self, crc: Span) -> Access {
        Access {
            write: self.write(),
            look: self.look(),
            rest: self.read[2],
            cell: self.cell(),
            batch: usize::MAX,
            saves: Some(self.read[0]),
            crc,
        }
    }
}

/// What the system calls of the same driver cost (Table 2), for one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    /// The call, the file's check with the copy, the push.
    pub(crate) write: [Span; 3],
    /// The call, the file's check with the copy, the pull.
    pub(crate) read: [Span; 3],
    /// The part of a reading check that only a cell makes necessary: its copy.
    copy: Span,
}

impl Calls {
    pub(crate) fn read(platform: &Platform, traps: &Traps) -> Result<Self, PlatformError> {
        let time = |key: &str| platform.time(key);
        let calls = Self {
            write: [time("syscall.write.call")?, time("syscall.write.copy")?, time("syscall.write.push")?],
            read: [time("syscall.read.call")?, time("syscall.read.copy")?, time("syscall.read.pull")?],
            copy: traps.copy(),
        };
        if calls.empty() == Span::ZERO {
            return Err(platform.refuse("syscall.read.call", "a system call must take time"));
        }
        Ok(calls)
    }

    /// The call that finds no cell.
    pub(crate) fn empty(&self) -> Span {
        self.read[0] + (self.read[1] - self.copy)
    }

    /// Cells by system call, one at a time.
    pub(crate) fn access(&self) -> Access {
        Access {
            write: self.write.into_iter().sum(),
            look: self.empty(),
            rest: Span::ZERO,
            cell: self.read.into_iter().sum::<Span>() - self.empty(),
            batch: 1,
            saves: None,
            crc: Span::ZERO,
        }
    }
}

impl Coprocessor {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let turn = platform.time("firmware.turn")?;
        if turn == Span::ZERO {
            return Err(platform.refuse("firmware.turn", "a turn of the firmware must take time"));
        }
        let inline = platform.size("firmware.inline")?;
        if inline > aal5::IN_ONE_CELL as u64 {
            return Err(platform.refuse("firmware.inline", "at most 40 B fit into one cell of AAL5"));
        }
        let memory = platform.size("adapter.memory")?;
        if memory < aal5::PAYLOAD as u64 {
            return Err(platform.refuse("adapter.memory", "the adapter must hold at least a cell's 48 B"));
        }
        let burst = platform.size("sbus.burst")?;
        if burst == 0 {
            return Err(platform.refuse("sbus.burst", "a burst must move something"));
        }
        Ok(Self {
            turn,
            single: platform.time("firmware.single")?,
            multi: platform.time("firmware.multi")?,
            inline,
            memory,
            bus: BusCost { rate: platform.rate("sbus.rate")?, burst, setup: platform.time("sbus.setup")? },
            pio: platform.time("sbus.store")?,
        })
    }
}

impl BusCost {
    /// Time that the transfer of `bytes` bytes holds the bus.
    pub(crate) fn span(&self, bytes: u64) -> Span {
        self.setup * bytes.div_ceil(self.burst) + self.rate.span(bytes)
    }
}
