//! What an endpoint may choose. Every default is automatic; each setting says what it costs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::pulse::Policy;
pub use cutthrough_engine::receipt::Placement;
use cutthrough_seal::Keys;
use cutthrough_wire::layout::{SizeError, Sizes};

use crate::sys::xdp::Mode;

/// Bytes of a page: the unit in which payloads are lent, landed and returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PageSize {
    /// 4 KiB.
    #[default]
    K4,
    /// 8 KiB.
    K8,
    /// 64 KiB.
    K64,
    /// 2 MiB; the kernel is asked for huge pages.
    M2,
}

impl PageSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::K4 => 4 << 10,
            Self::K8 => 8 << 10,
            Self::K64 => 64 << 10,
            Self::M2 => 2 << 20,
        }
    }
}

/// The settings of an endpoint. All memory is reserved address space until it is touched.
///
/// Settings may be added: write those that shall be others than the defaults, and `..Config::default()`. With a feature
/// there are the same ones as without it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Page size of the endpoint's pool and landing memory. Default: 4 KiB.
    pub page_size: PageSize,
    /// Slots of each channel's ring: how many control messages may be on their way. A power of two, 16 to 65,536. With
    /// fewer than 512 a fast sender waits for the receiver's counter (measured: 256 slots cost a third of the rate).
    /// Default: 1024.
    pub slots: u32,
    /// Bytes of each channel's pool, from which payloads are sent by reference. With a ring of AF_XDP as
    /// many pools as 16 MiB hold, up to 16, lie in its memory, which is locked: pages of those are sent without a copy.
    /// Pools that are longer than that do not. Default: 64 MiB.
    pub pool_bytes: u64,
    /// Bytes of each channel's landing memory, into which the peer puts payloads where the free queue or a token says;
    /// over a network also those from pages for which neither says anything. Of these, one that finds no room there,
    /// and never would, is read as if it came from private memory. Default: 64 MiB.
    pub landing_bytes: u64,
    /// Bytes of each channel's staging ring, through which private payloads are pulsed. A power of two from 64 KiB. How
    /// much of it is used, from 256 KiB to all, is found by measuring what is quicker on this machine. Over a network
    /// no message is taken while copies of so much private memory are kept for a peer that has not acknowledged it.
    /// Default: 2 MiB.
    pub staging_bytes: u32,
    /// How stages cut payloads into pulses. Leave it alone, except to compare. Default: adaptive.
    pub policy: Policy,
    /// How long an operation that needs the peer (a send that waits for room, a read that waits for bytes) may go
    /// without any progress before it ends in an error; over a network, progress of its channel, where a payload may
    /// wait behind others. For as long, and no less than [`Config::silence`], a channel over a network that was closed
    /// waits for its peer to take what was sent. Longer than nothing. Default: 10 s; a payload that has waited so long
    /// ends its channel ([`Stalled`](crate::shm::link::CloseReason::Stalled)).
    pub deadline: Duration,
    /// How long nothing may be heard of a peer on another machine before it is taken for dead: three round trips at
    /// least, so 900 ms are enough for every way on the ground; more where many frames are lost. A caller of which
    /// nothing is heard after it was let in is kept for as long, and for a second at least. So long does `drop` wait
    /// for what was sent, too, where none of it gets on: for one to five seconds, whatever this says, and for five in
    /// all. Longer than nothing. Default: 900 ms.
    pub silence: Duration,
    /// Keys for channels to other machines: what the endpoint proves itself with, and whom it believes. Default: none,
    /// so there are no such channels.
    pub keys: Option<Arc<Keys>>,
    /// Whether channels to other machines may be plain text where no key is configured. Default: no.
    pub insecure: bool,
    /// How payloads get from a ring of the adapter `xdp` to where they belong. Default: the cheaper way, as measured.
    pub placement: Placement,
    /// Where the program of the adapter `xdp` runs, and who moves its frames; if nothing is said, the best that the
    /// interface has: zero copy, then native, then generic. On a veth it is generic: the driver copies each frame into
    /// a page of its own before a native program sees it. So it is on a bond, and on an interface of Hyper-V, where the
    /// other modes are refused: their programs run at the adapters below.
    pub xdp_mode: Option<Mode>,
    /// Which queue of its interface a ring of the adapter `xdp` serves, counted from 0: one that no other ring has.
    /// Datagrams that come on others come by the socket, more slowly: have the network adapter send them to this queue
    /// (`ethtool -N`). Rings at other queues may be of other processes; to come where one is takes
    /// `CAP_SYS_ADMIN`, and Linux 5.14. Default: 0.
    pub xdp_queue: u32,
    /// Whether an endpoint at `net:` has a ring of AF_XDP too, beside its socket and its packet ring, if there can be
    /// one; payloads are copied out of it. It has to be asked for, because it concerns others: an interface has room
    /// for one XDP program and those that share it, some drivers stop all traffic for a moment when it is attached, and
    /// in generic mode the kernel copies all that arrives there once more, trains for the endpoint's own socket too. So
    /// it is for many short messages and few long ones, at an interface that nobody else needs. Default: no.
    pub net_xdp: bool,
    /// The Unix socket of a helper that leases a ring of the adapter `xdp`, for a process that may open none itself:
    /// see [`Lease`](crate::raw::xdp::lease::Lease). The endpoint's address has to be the one that the ring was opened
    /// for; who only connects, has the ring's port. If nothing is said, what the variable `CUTTHROUGH_LEASE` of the
    /// environment says. A leased ring places payloads by copy. Other adapters do not look at it.
    pub lease: Option<PathBuf>,
    /// Most channels of the endpoint, on this machine and to others together; further peers are refused by name. One
    /// that was closed here is none of them any more. One at least. Default: 4096.
    pub channels: u32,
    /// The host of a simulated network that the endpoint is on: its addresses of the form `udp:HOST:PORT`, and in
    /// simulated time `xdp:HOST:PORT`, are of that network, and others are refused. There is such a host only with the
    /// feature `simulated`. Default: none.
    pub host: Option<crate::simulated::Host>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            page_size: PageSize::default(),
            slots: 1024,
            pool_bytes: 64 << 20,
            landing_bytes: 64 << 20,
            staging_bytes: 2 << 20,
            policy: Policy::default(),
            deadline: Duration::from_secs(10),
            silence: Duration::from_millis(900),
            keys: None,
            insecure: false,
            placement: Placement::default(),
            xdp_mode: None,
            xdp_queue: 0,
            net_xdp: false,
            lease: None,
            channels: 4096,
            host: None,
        }
    }
}

impl Config {
    /// Where the helper is that leases a ring, if there is one.
    pub(crate) fn lease(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("CUTTHROUGH_LEASE").filter(|path| !path.is_empty()).map(PathBuf::from);
        self.lease.clone().or_else(named)
    }

    /// Whether the endpoint is on a network that is not there.
    pub(crate) const fn is_simulated(&self) -> bool {
        self.host.is_some()
    }

    /// What is wrong with a setting that is no size, if something is: with it nothing could be done.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self { channels: 0, .. } => Err("Config::channels has to be 1 or more"),
            Self { deadline: Duration::ZERO, .. } => Err("Config::deadline has to be longer than nothing"),
            Self { silence: Duration::ZERO, .. } => Err("Config::silence has to be longer than nothing"),
            _ => Ok(()),
        }
    }

    /// The sizes that a hello says.
    ///
    /// # Errors
    /// [`SizeError`], if a setting is out of its bounds.
    #[doc(hidden)]
    pub fn sizes(&self) -> Result<Sizes, SizeError> {
        let page_bytes = self.page_size.bytes();
        let pages = |bytes: u64, error| u32::try_from(bytes.div_ceil(u64::from(page_bytes))).map_err(|_| error);
        let sizes = Sizes {
            slots: self.slots,
            page_bytes,
            staging_bytes: self.staging_bytes,
            pool_pages: pages(self.pool_bytes, SizeError::Pool)?,
            landing_pages: pages(self.landing_bytes, SizeError::Landing)?,
        };
        sizes.layout()?;
        Ok(sizes)
    }

    /// The setting that one of the sizes is made of.
    pub(crate) fn given(&self, which: SizeError) -> u64 {
        match which {
            SizeError::Slots => self.slots.into(),
            SizeError::Page => self.page_size.bytes().into(),
            SizeError::Staging => self.staging_bytes.into(),
            SizeError::Pool => self.pool_bytes,
            SizeError::Landing => self.landing_bytes,
        }
    }
}
