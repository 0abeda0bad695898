//! What a machine of this family is made of, read from its platform's file.

use cutthrough_engine::adapter::Stage;
use cutthrough_engine::tune::Tuner;

use crate::model::bus::{BusParts, WHOLE};
use crate::platform::{Platform, PlatformError};
use crate::time::{Rate, Span};

/// How the host learns that a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// It asks again and again.
    Poll,
    /// The adapter interrupts it.
    Interrupt,
}

/// A host, its bus, its adapter and its link.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The I/O bus.
    pub bus: BusParts,
    /// Host time of one access to adapter memory by programmed I/O, and the bytes that it carries.
    pub pio: Pio,
    /// The host's own work.
    pub host: HostParts,
    /// Bytes of a control message.
    pub control: u64,
    /// Bytes of it that the program writes and reads; the rest stays as it is.
    pub control_used: u64,
    /// Whether the adapter writes control messages into host memory, where the host finds them without its bus.
    pub control_by_dma: bool,
    /// Adapter memory for payloads on their way out and in, and slots of each ring.
    pub sram: Sram,
    /// Processor time of one turn of the firmware loop.
    pub turn: Span,
    /// Processor time of each thing that a turn starts: a transfer, a notice to the host.
    pub decision: Span,
    /// Processor time of taking up a message, on either side.
    pub message: Span,
    /// The link.
    pub link: Link,
}

/// Programmed I/O.
#[derive(Debug, Clone, Copy)]
pub struct Pio {
    /// Bytes that one access carries.
    pub word: u64,
    /// Time of a write, and how long of it the bus is taken.
    pub write: [Span; 2],
    /// Time of a read, and how long of it the bus is taken.
    pub read: [Span; 2],
}

/// What a host's processor spends.
#[derive(Debug, Clone, Copy)]
pub struct HostParts {
    /// Work for a message sent, beside programmed I/O.
    pub post: Span,
    /// Work for a message received, beside programmed I/O.
    pub take: Span,
    /// From one look for a message to the next.
    pub poll: Span,
    /// From an adapter's interrupt until its handler runs.
    pub interrupt: Span,
    /// Rate of a copy in memory: what an interface costs that cannot move the program's own pages.
    pub copy: Rate,
}

/// Adapter memory.
#[derive(Debug, Clone, Copy)]
pub struct Sram {
    /// Bytes for payloads on their way out.
    pub send: u64,
    /// Bytes for payloads on their way in.
    pub recv: u64,
    /// Slots of the send ring and of the receive ring.
    pub slots: u64,
}

/// The way from one adapter to the other.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Bytes of messages per second: frame headers are taken off.
    pub rate: Rate,
    /// From the first byte's leaving until its arrival, through a switch that cuts through.
    pub latency: Span,
    /// Longest frame that a switch stores before it forwards it; 0 for a switch that cuts through.
    pub stored: u64,
}

impl Machine {
    /// Builds the machine that `platform` describes.
    ///
    /// # Errors
    /// The first parameter that is missing, has the wrong unit, or cannot be.
    pub fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let clock = platform.cycle("bus.clock")?;
        let bus = bus(platform)?;
        let clocks = |key: &str| Ok::<Span, PlatformError>(clock * platform.count(key)?);
        let pio = Pio {
            word: at_least(platform, "pio.word", platform.size("pio.word")?, 1)?,
            write: [platform.time("pio.write")?, clocks("pio.write_clocks")?],
            read: [platform.time("pio.read")?, clocks("pio.read_clocks")?],
        };
        let host = HostParts {
            post: platform.time("host.post")?,
            take: platform.time("host.take")?,
            poll: platform.time("host.poll")?,
            interrupt: platform.time("host.interrupt")?,
            copy: platform.rate("host.copy")?,
        };
        let control = at_least(platform, "control.size", platform.size("control.size")?, 1)?;
        let used = platform.size("control.used")?;
        if used > control {
            return Err(platform.refuse("control.used", "more than `control.size`"));
        }
        let positive = |key: &str| {
            let span = platform.time(key)?;
            if span == Span::ZERO { Err(platform.refuse(key, "a loop takes some time")) } else { Ok(span) }
        };
        if host.poll == Span::ZERO {
            return Err(platform.refuse("host.poll", "a loop takes some time"));
        }
        let machine = Self {
            bus,
            pio,
            host,
            control,
            control_used: used,
            control_by_dma: platform.count("control.by_dma")? != 0,
            sram: sram(platform, control)?,
            turn: positive("firmware.turn")?,
            decision: platform.time("firmware.decision")?,
            message: platform.time("firmware.message")?,
            link: link(platform)?,
        };
        platform.all_used()?;
        Ok(machine)
    }

    /// Programmed I/O of a control message out: time, and how long of it the bus is taken.
    #[must_use]
    pub fn write_control(&self) -> [Span; 2] {
        self.pio.write.map(|span| span * self.control_used.div_ceil(self.pio.word))
    }

    /// The same of a control message in; nothing if the adapter brings it into host memory.
    #[must_use]
    pub fn read_control(&self) -> [Span; 2] {
        if self.control_by_dma {
            return [Span::ZERO; 2];
        }
        self.pio.read.map(|span| span * self.control_used.div_ceil(self.pio.word))
    }

    /// What a host that polls takes of its bus.
    #[must_use]
    pub fn poll_share(&self) -> u64 {
        if self.control_by_dma { 0 } else { share(self.pio.read[1], self.host.poll) }
    }

    /// Tuners that know what the parts of this adapter cost, as its maker does.
    #[must_use]
    pub fn tuners(&self) -> [Tuner; Stage::COUNT] {
        let firmware = self.turn + self.turn + self.decision;
        let tuner = |setup: Span, rate: Rate| {
            Tuner::with_prior((firmware + setup).as_ps() / 1000, rate.bytes_per_s() / 1_000_000)
        };
        let link = || tuner(Span::ZERO, self.link.rate);
        [tuner(self.bus.read_setup, self.bus.read), link(), link(), tuner(self.bus.write_setup, self.bus.write)]
    }

    /// Time by which a pulse of `len` bytes arrives later than it leaves.
    #[must_use]
    pub fn delay(&self, len: u64) -> Span {
        self.link.latency + self.link.rate.span(len.min(self.link.stored))
    }
}

/// `part` of `whole`, in parts of [`WHOLE`].
#[must_use]
pub fn share(part: Span, whole: Span) -> u64 {
    let parts = u128::from(part.as_ps()) * u128::from(WHOLE) / u128::from(whole.as_ps().max(1));
    u64::try_from(parts).unwrap_or(WHOLE).min(WHOLE)
}

fn at_least(platform: &Platform, key: &str, value: u64, least: u64) -> Result<u64, PlatformError> {
    if value < least { Err(platform.refuse(key, &format!("must be at least {least}"))) } else { Ok(value) }
}

fn bus(platform: &Platform) -> Result<BusParts, PlatformError> {
    let width = at_least(platform, "bus.width", platform.size("bus.width")?, 1)?;
    let per_s = u128::from(width) * 1_000_000_000_000 / u128::from(platform.cycle("bus.clock")?.as_ps().max(1));
    let peak = u64::try_from(per_s).ok().and_then(Rate::from_bytes_per_s);
    let peak = peak.ok_or_else(|| platform.refuse("bus.width", "too wide for this clock"))?;
    let bounded = |key: &str| {
        let rate = platform.rate(key)?;
        // A clock is known to the picosecond only.
        let most = u128::from(peak.bytes_per_s()) * 101 / 100;
        if u128::from(rate.bytes_per_s()) > most {
            Err(platform.refuse(key, "faster than the bus is wide and clocked"))
        } else {
            Ok(rate)
        }
    };
    let at_once = platform.count("bus.at_once")?;
    if !(1..=2).contains(&at_once) {
        return Err(platform.refuse("bus.at_once", "a bus carries 1 transfer at a time, or 2: one in each direction"));
    }
    Ok(BusParts {
        peak,
        read: bounded("bus.read")?,
        write: bounded("bus.write")?,
        read_setup: platform.time("bus.read_setup")?,
        write_setup: platform.time("bus.write_setup")?,
        write_buffer: platform.size("bus.write_buffer")?,
        duplex: at_once == 2,
        ahead: platform.count("bus.ahead")? != 0,
    })
}

fn sram(platform: &Platform, control: u64) -> Result<Sram, PlatformError> {
    let size = platform.size("sram.size")?;
    let least = |key: &str| at_least(platform, key, platform.size(key)?, 64);
    let sram = Sram {
        send: least("sram.send")?,
        recv: least("sram.receive")?,
        slots: at_least(platform, "sram.slots", platform.count("sram.slots")?, 1)?,
    };
    if sram.slots > 1 << 16 {
        return Err(platform.refuse("sram.slots", "must be at most 65536"));
    }
    let taken = sram.send.saturating_add(sram.recv).saturating_add(2 * sram.slots.saturating_mul(control));
    if taken > size {
        return Err(platform.refuse("sram.size", &format!("buffers and rings take {taken} bytes")));
    }
    Ok(sram)
}

fn link(platform: &Platform) -> Result<Link, PlatformError> {
    let frame = at_least(platform, "link.frame", platform.size("link.frame")?, 1)?;
    let overhead = platform.size("link.overhead")?;
    let rate = platform.rate("link.rate")?;
    let bytes = u128::from(rate.bytes_per_s()) * u128::from(frame) / u128::from(frame + overhead);
    let rate = u64::try_from(bytes).ok().and_then(Rate::from_bytes_per_s);
    let stored = if platform.count("switch.stores")? == 0 { 0 } else { frame };
    Ok(Link {
        rate: rate.ok_or_else(|| platform.refuse("link.rate", "nothing is left beside the frame headers"))?,
        latency: platform.time("link.latency")?,
        stored,
    })
}
