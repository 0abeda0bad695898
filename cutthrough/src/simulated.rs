//! A network that is not there, to test programs against what networks do: without a network, without rights, and, if
//! you like, in simulated time, so that a run is the seed's alone. With the feature `simulated`.
//!
//! An endpoint is on a host of a [`Network`] if its [`Config::host`](crate::Config::host) says so. Nothing else of it
//! is another than in earnest: what goes over the [`Wire`]s are the datagrams that would go over a network, sealed if
//! there are keys; wires lose, repeat, delay, reorder, change and cut them, hosts are [unplugged](Network::unplug), and
//! wires [cut](Network::cut).
//!
//! Where each side has its thread, time passes by itself, as in earnest. On a thread that has begun a simulated
//! [`Time`], everything runs on that thread, and time passes while somebody waits, or when it is told to:
//!
//! ```
//! use std::time::Duration;
//! use cutthrough::am::{Args, Node, Settings};
//! use cutthrough::simulated::{Network, Time, Wire};
//! use cutthrough::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const ADD: u16 = 1;
//! let time = Time::begin(42);
//! let network = Network::new(42, Wire { loss: 0.2, latency: Duration::from_millis(30), ..Wire::default() });
//! let on = |host: [u8; 4]| Config { host: Some(network.host(host)), insecure: true, ..Config::default() };
//!
//! let mut server = Node::new(Endpoint::open(on([10, 0, 0, 2]))?, Settings::default());
//! server.short(ADD, Args::Words(2), |request| {
//!     let sum = request.word(0) + request.word(1);
//!     request.reply(&[sum]);
//! });
//! server.listen("udp:10.0.0.2:7000")?;
//! // Whenever somebody waits, the server has its turn.
//! time.beside(move || while server.poll().is_some() {});
//!
//! let mut node = Node::new(Endpoint::open(on([10, 0, 0, 1]))?, Settings::default());
//! let channel = node.connect("udp:10.0.0.2:7000", Duration::from_secs(10))?;
//! for number in 0..100 {
//!     assert_eq!(node.call(channel, ADD, &[number, 1], Duration::from_secs(10))?.word(0), number + 1);
//! }
//! // Six seconds at least, which have taken some milliseconds.
//! assert!(network.counts().lost > 0 && cutthrough::now().as_nanos() > 6_000_000_000);
//! # Ok(())
//! # }
//! ```
//!
//! In simulated time an endpoint may be at an address of the form `xdp:HOST:PORT`, one at a host: it has a ring of
//! AF_XDP beside its socket then, and all that the library does with one is done. The kernel of that ring is played; it
//! may be [interrupted](Network::interrupt) at any time, and [counts](Network::frames) what comes.
//!
//! A [`Service`](crate::am::Service) has no thread in simulated time, but is [turned](crate::am::Service::turn); so
//! clients of [`rpc`](crate::rpc) work there, too. What waits within what runs beside others waits alone.

pub use cutthrough_node::simulated::{Counts, Frames, Host, Interrupts, Network, Time, Wire};
