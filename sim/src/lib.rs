//! A discrete-event simulator of hosts, I/O buses, adapters, links and switches that drives the *unchanged* engine.
//!
//! The results that cut-through delivery, U-Net, SSAM and Speculative Defragmentation were published with came from
//! machines that nobody has any more. Here they are built again out of their parts: a part costs what its platform's
//! file says, and every curve comes out of the mechanism. The firmware is [`cutthrough_engine`], the code that moves
//! messages through shared memory; it does not know that it is simulated.
//!
//! | file | what |
//! |---|---|
//! | [`time`], [`heap`] | picoseconds, and what happens next |
//! | [`platform`] | machines as TOML files, each number with its source or the word `fitted` |
//! | [`point`] | one operating point, asked for by the user |
//! | [`outcome`] | lines held against the papers', and figures to draw |
//! | [`catalogue`] | every experiment and every platform that there is |
//! | [`fault`] | the engine's network side, and everything that can go wrong around it |
//! | [`report`], [`trace`] | outcomes as pages, pictures and tables, and as timelines |

#![forbid(unsafe_code)]

pub mod atm;
pub mod catalogue;
pub mod ethernet;
pub mod fault;
pub mod heap;
pub mod model;
pub mod outcome;
pub mod platform;
pub mod point;
pub mod report;
pub mod splitc;
pub mod staged;
pub mod time;
pub mod trace;
