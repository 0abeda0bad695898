//! What the fuzz targets do with their input, as plain functions, so that a finding can be a plain test.
//!
//! [`decode`] is for everything that is decoded without a peer: the hello, the slot, the words of the rings and
//! tables. [`watch`] is the file of counters that `cutthrough stat` reads. [`hostile`] is a channel whose other side
//! does as the fuzzer says, against a [`victim`] that must come out of it in good order. [`pair`] is two sides
//! that keep the rules.
//!
//! [`frame`] is for everything that is decoded of a datagram, [`handshake`] a stranger without keys, and [`net`] an
//! endpoint with channels over a [`ground`] of memory, at which anybody throws frames with a right check sum. In
//! [`trains`] its frames come in trains, scattered over that memory before anybody has looked at them.
//!
//! [`envelope`] is for frames of Ethernet, [`program`] and [`placing`] for the programs that look at them at an
//! interface, [`ring`] for rings whose other side writes anything, and [`place`] and [`register`] for payloads that
//! land in parts of pages. [`placed`] is a whole endpoint whose ring places payloads, before a kernel that does as it
//! is told.
//!
//! [`am`] is for active messages, of peers that know the rules and break them, and [`memory`] for what they ask of an
//! owner of memory and of a server of calls. [`part`] is for what they ask of a rank of Split-C, and answer it. Both
//! name memory by an [`offset`].

pub mod am;
pub mod decode;
pub mod envelope;
pub mod frame;
pub mod ground;
pub mod handshake;
pub mod hostile;
pub mod memory;
pub mod net;
pub mod offset;
pub mod pair;
pub mod part;
pub mod place;
pub mod placed;
pub mod placing;
pub mod program;
pub mod register;
pub mod ring;
pub mod trains;
pub mod victim;
pub mod watch;
