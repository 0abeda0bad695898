//! Messages and memory pages that start arriving before they have finished leaving.
//!
//! An [`Endpoint`] is a process's own door. It listens under a name or connects to one, and from then on each
//! [`Channel`] carries control messages of up to 96 bytes, in order, each at most once, with a payload of up to 1 GiB.
//!
//! ```
//! use std::time::Duration;
//! use cutthrough::{Config, Endpoint, Event};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address = format!("shm:echo-{}", std::process::id());
//! let mut server = Endpoint::open(Config::default())?;
//! server.listen(&address)?;
//! // In another process, or on another thread: says what it hears, until its peer is gone.
//! let echo = std::thread::spawn(move || {
//!     while let Ok(event) = server.wait(None) {
//!         match event {
//!             Event::Message(message) => drop(server.send(message.channel(), message.control())),
//!             Event::Closed(..) => return,
//!             _ => {}
//!         }
//!     }
//! });
//!
//! let mut endpoint = Endpoint::open(Config::default())?;
//! let channel = endpoint.connect(&address, Duration::from_secs(10))?;
//! endpoint.send(channel, b"hello")?;
//! let Event::Message(message) = endpoint.wait(None)? else { return Err("it is gone".into()) };
//! assert_eq!(message.control(), b"hello");
//! # drop((message, endpoint));
//! # echo.join().expect("no panic");
//! # Ok(())
//! # }
//! ```
//!
//! One thread uses an endpoint at a time; it may be moved between threads. What a peer can write is never trusted: an
//! impossible value closes that channel alone, with a counted reason. Every operation ends in data or in an error.
//!
//! # What to begin with
//!
//! | you want | use |
//! |---|---|
//! | messages and pages, as they come | [`Endpoint`] |
//! | the same in a tokio runtime | `AsyncEndpoint`, with the feature `tokio` |
//! | requests that run a handler at the peer, thousands of them under way | [`am`] |
//! | typed calls from many threads: blocking, awaited, or with a continuation | [`rpc`]; its futures need no feature |
//! | the same as a `tower_service::Service` | `rpc::Tower`, with the feature `tower` |
//! | the peer's memory, without code there: put, get, atomics, pages by the batch | [`rma`] |
//! | a network that is not there, to test all of this against faults | `simulated`, with the feature `simulated` |
//!
//! # Addresses
//!
//! | address | who is reached | needs |
//! |---|---|---|
//! | `shm:NAME`, `shm:/PATH` | processes of this user on this machine, by shared memory | nothing |
//! | `udp:HOST:PORT` | other machines, and this one | nothing |
//! | `packet:HOST:PORT` | the same peers, by a ring of AF_PACKET | `CAP_NET_RAW` |
//! | `xdp:HOST:PORT` | the same peers, by a ring of AF_XDP | more rights, or a [`Lease`] |
//! | `net:HOST:PORT` | the same peers; each batch goes the way that costs the least | nothing |
//!
//! A name has 1 to 64 letters, digits, `.`, `_` or `-`, and does not begin with a `.`; names lie in [`folder`]. Between
//! machines an endpoint needs [`Config::keys`], which [`read_keys`] has from a file, or says [`Config::insecure`].
//!
//! # Which way a payload goes
//!
//! It chooses itself, and the [`Receipt`] says which way it was. Between two processes of one machine:
//!
//! | the payload lies in | it shall land in | path | copies | made by |
//! |---|---|---|---|---|
//! | pages of the channel | wherever the receiver reads it | `reference` | 0 | nobody: the pages are lent |
//! | one run of pages of the channel | landing pages, named by a token | `put` or `shared` | 1 | the sender, or both |
//! | pages of the channel | private memory, named by a token | `get` | 1 | the receiver |
//! | several runs of pages | landing pages, named by a token | `get` | 1 | the receiver |
//! | private memory | landing pages, named by a token or posted | `put` | 1 | the sender |
//! | private memory | private memory, named by a token or by who reads | `cut-through` | 2 | both at once |
//!
//! Pages are taken by [`Endpoint::page`], tokens granted by [`Endpoint::grant`], landing pages posted by
//! [`Endpoint::post`]. Between machines the path is `wire`.
#![forbid(unsafe_code)]

pub mod am;
mod endpoint;
mod outgoing;
pub mod rma;
pub mod rpc;
#[cfg(feature = "simulated")]
pub mod simulated;
/// A network that is not there, to test programs against what networks do: with the feature `simulated`. Without it
/// these types have no value, so a setting that may have one is `None`.
#[cfg(not(feature = "simulated"))]
pub mod simulated {
    pub use cutthrough_node::simulated::{Host, Network};
}
#[cfg(feature = "tokio")]
mod tokio;

pub use cutthrough_engine::check::Breach;
pub use cutthrough_engine::count::{Count, Counter};
pub use cutthrough_engine::hello::NoChannel;
pub use cutthrough_engine::pulse::{Policy, PolicyError};
pub use cutthrough_engine::receipt::{Adapter, Path, Receipt, Why};
pub use cutthrough_engine::time::Instant;
pub use cutthrough_engine::token::{Refused, Token};
pub use cutthrough_engine::{adapter::Stage, transfer::Trace};
pub use cutthrough_node::clock::now;
pub use cutthrough_node::config::{Config, PageSize, Placement};
pub use cutthrough_node::incoming::{Arriving, Channel, Completion, Connecting, Event, Incoming, Payload};
pub use cutthrough_node::key_file::{KeyFileError, read_key_text, read_keys};
pub use cutthrough_node::node::room::RoomError;
pub use cutthrough_node::node::{ConnectError, ListenError, OpenError, WaitError, Waker};
pub use cutthrough_node::raw::xdp::lease::{Lease, LeaseError, Tenant};
pub use cutthrough_node::shm::grant::{Landing, NoMemory, RevokeError};
pub use cutthrough_node::shm::handshake::HandshakeError;
pub use cutthrough_node::shm::link::{CloseReason, Identity, LIST_MAX, SendError};
pub use cutthrough_node::shm::receive::ReadError;
pub use cutthrough_node::shm::rendezvous::AddressError;
pub use cutthrough_node::sys::xdp::{Mode as XdpMode, XdpError, ring::Broken as XdpBroken};
pub use cutthrough_node::udp::{Offer, address::UdpAddressError, calls::UdpCallError, probe};
pub use cutthrough_node::{shm::rendezvous::folder, stat};
pub use cutthrough_seal::{KeyError, KeyFault, Keys, PrivateKey, PublicKey, SealError, SharedKey};
pub use cutthrough_segment::bell::Fence;
pub use cutthrough_segment::map::MapError;
pub use cutthrough_segment::page::{Frozen, Landed, Page};
pub use cutthrough_segment::private::PrivateMemory;
pub use cutthrough_wire::VERSION as WIRE_VERSION;
pub use cutthrough_wire::frame::FRAME_VERSION;
pub use cutthrough_wire::hello::Refusal as HelloRefusal;
pub use cutthrough_wire::layout::SizeError;
pub use cutthrough_wire::slot::{CONTROL_MAX, PAYLOAD_MAX};
pub use cutthrough_wire::token::{TOKEN_BYTES, TOKENS};
/// What the kernel has said, as its number: in errors such as [`WaitError::System`]. It is that of the crate `rustix`,
/// and becomes a [`std::io::Error`] by `into()`.
pub use rustix::io::Errno;

pub use endpoint::Endpoint;
pub use outgoing::Outgoing;
#[cfg(feature = "tokio")]
pub use tokio::AsyncEndpoint;

/// The code of the guide compiles, and runs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/am.md")]
struct Guide;
