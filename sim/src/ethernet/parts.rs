//! What a platform's file says of hosts, bus, adapter and network.

use crate::platform::{Platform, PlatformError};
use crate::time::{Rate, Span};

/// Rates at which a processor copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copying {
    /// Out of memory.
    pub memory: Rate,
    /// What the processor has just written.
    pub cached: Rate,
}

/// A host with its adapter, and the network between hosts.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// Copying; `None` if it is part of [`Parts::receipt`].
    pub copying: Option<Copying>,
    /// Entering and leaving the interrupt handler.
    pub interrupt: Span,
    /// TCP/IP or UDP/IP, for each segment, fragment or acknowledgement that goes through the stack.
    pub stack: Span,
    /// The driver, for each descriptor.
    pub driver: Span,
    /// Exchanging a page between kernel and process.
    pub remap: Span,
    /// A system call.
    pub call: Span,
    /// Waking a process.
    pub wake: Span,
    /// Bytes over the bus.
    pub bus: Rate,
    /// The adapter's mover, for each descriptor, before the bytes move.
    pub setup: Span,
    /// Frames for which receive descriptors are posted.
    pub ring: usize,
    /// Bytes of frames that the adapter holds in each direction.
    pub fifo: u64,
    /// The wire.
    pub link: Rate,
    /// How long the switch takes to decide where a frame goes.
    pub switch: Span,
    /// Bytes of a frame that the switch decides by, if it does not wait for the whole frame.
    pub header: Option<u64>,
    /// Bytes of frames that the switch holds for each of its ports.
    pub port: u64,
    /// Bytes that a receiver of a stream takes before they are read.
    pub window: u64,
    /// Work of a process before it asks for a page.
    pub request: Span,
    /// Work of the host that is asked.
    pub lookup: Span,
    /// Work of a process with the page that it gets.
    pub receipt: Span,
}

/// Fewest bytes of a window: four pages, so that acknowledgements of two keep a stream going.
const WINDOW: u64 = 16_384;

/// Longest frame, and least room for frames.
const FRAME: u64 = 1514;

impl Parts {
    /// Hosts that stream by TCP.
    ///
    /// # Errors
    /// A parameter is missing, stray, or makes no machine.
    pub(crate) fn of_streams(platform: &Platform) -> Result<Self, PlatformError> {
        let memory = platform.rate("host.copy")?;
        let copying = Copying { memory, cached: platform.rate("host.copy_cached")? };
        let window = platform.size("tcp.window")?;
        if window < WINDOW {
            return Err(platform.refuse("tcp.window", "a window must hold 4 pages of 4096 bytes"));
        }
        let parts = Self {
            copying: Some(copying),
            remap: platform.time("host.remap")?,
            call: platform.time("host.call")?,
            wake: platform.time("host.wake")?,
            window,
            ..Self::common(platform)?
        };
        platform.all_used()?;
        Ok(parts)
    }

    /// Hosts that fetch pages from one another's memory.
    ///
    /// # Errors
    /// A parameter is missing, stray, or makes no machine.
    pub(crate) fn of_fetches(platform: &Platform) -> Result<Self, PlatformError> {
        let parts = Self {
            request: platform.time("gms.request")?,
            lookup: platform.time("gms.lookup")?,
            receipt: platform.time("gms.receipt")?,
            ..Self::common(platform)?
        };
        platform.all_used()?;
        Ok(parts)
    }

    fn common(platform: &Platform) -> Result<Self, PlatformError> {
        let ring = platform.count("adapter.ring")?;
        if !(3..=4096).contains(&ring) {
            return Err(platform.refuse("adapter.ring", "a ring holds at least 3 and at most 4096 frames"));
        }
        let room = |key: &str| {
            let size = platform.size(key)?;
            if size < FRAME { Err(platform.refuse(key, "a frame of 1514 bytes must fit")) } else { Ok(size) }
        };
        Ok(Self {
            copying: None,
            interrupt: platform.time("host.interrupt")?,
            stack: platform.time("host.stack")?,
            driver: platform.time("host.driver")?,
            remap: Span::ZERO,
            call: Span::ZERO,
            wake: Span::ZERO,
            bus: platform.rate("bus.rate")?,
            setup: platform.time("adapter.setup")?,
            ring: usize::try_from(ring).unwrap_or(usize::MAX),
            fifo: room("adapter.fifo")?,
            link: platform.rate("link.rate")?,
            switch: platform.time("switch.delay")?,
            header: if platform.has("switch.header") { Some(platform.size("switch.header")?) } else { None },
            port: room("switch.port")?,
            window: u64::MAX / 2,
            request: Span::ZERO,
            lookup: Span::ZERO,
            receipt: Span::ZERO,
        })
    }

    /// Time to copy `bytes` bytes, which the processor has just written if they are `cached`.
    pub(crate) fn copy(&self, bytes: u64, cached: bool) -> Span {
        let rate = |copying: &Copying| if cached { copying.cached } else { copying.memory };
        self.copying.as_ref().map_or(Span::ZERO, |copying| rate(copying).span(bytes))
    }
}
