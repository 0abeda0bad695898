//! The firmware of Cutthrough: what an intelligent adapter's processor would run, as pure code.
//!
//! Nothing here reads a clock, opens a socket, starts a thread or draws a random number. Time arrives as an argument,
//! bytes move behind the trait [`Adapter`](adapter::Adapter), and what happened leaves as values. That is why one and
//! the same rule drives a copy through shared memory, a socket call, and the adapters of the papers in a simulator.
//!
//! # The travel of a message
//!
//! One file for each thing that happens to a message, in the order in which it happens:
//!
//! | step | file | what it decides |
//! |---|---|---|
//! | who is there? | [`hello`] | whether two sides that meet can talk to each other |
//! | whose turn is it? | [`turn`] | which channel the poll loop looks at next, so that none starves |
//! | is it true? | [`check`] | which of the other side's numbers are believed |
//! | where to? | [`token`] | whether a named landing place is good, once |
//! | how much to move now? | [`pulse`] | the rule: a sink that falls idle takes everything that waits for it |
//! | what is worth a pulse? | [`tune`] | the cost of a pulse, learnt from the pulses that were made |
//! | alone or together? | [`choose`] | whether both sides copy a payload that both can see |
//! | how to copy? | [`rivals`] | which of two ways of copying is the quicker here, learnt from a few of many |
//! | by the kernel's copy? | [`contest`] | which of two ways of sending costs less as a rule |
//! | how far round the ring? | [`lap`] | how much of the staging ring is used, learnt from what was quicker |
//! | how close behind the sender? | [`trail`] | how a receiver follows a stream, learnt likewise |
//! | move it | [`transfer`] | one payload's way through the stages of an adapter |
//! | does it lie where it belongs? | [`place`] | where the next frame lands, and how a wrong guess is mended |
//! | the same on a ring shared with a kernel | [`place_ring`] | which places the kernel is offered, in which order |
//! | the same behind a program that cuts headers off | [`register`] | which frames land next, and when none does |
//! | did it get there? | [`flow`] | which frames have arrived, which go again, and how much may be under way |
//! | what became of it? | [`receipt`] | path, copies, pulses, times of one message |
//! | how often? | [`count`] | every event, drop and refusal has a counter |
//!
//! Above messages there is one thing more: [`am`], requests that run a handler and the replies that answer them.
//!
//! Two files hold the words which all the others speak: [`time`] (nanoseconds, passed in) and [`adapter`] (the stages,
//! and the trait between the engine and the world); and [`survey`] is how [`lap`] and [`trail`] learn.
//!
//! # How a caller drives a transfer
//!
//! Make a [`Transfer`](transfer::Transfer) for a message, then call [`poll`](transfer::Transfer::poll) with the time,
//! the adapter and the adapter's four [`Tuner`](tune::Tuner)s until it says [`Done`](transfer::Step::Done). Each poll
//! starts a pulse on every stage that is idle and has something worth moving, and feeds the duration of every pulse
//! that has ended to the stage's tuner.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod adapter;
pub mod am;
pub mod check;
pub mod choose;
pub mod contest;
pub mod count;
pub mod flow;
pub mod hello;
pub mod lap;
pub mod net;
pub mod place;
pub mod place_ring;
pub mod pulse;
pub mod receipt;
pub mod register;
pub mod rivals;
pub mod seal;
pub mod survey;
pub mod time;
pub mod token;
pub mod trail;
pub mod transfer;
pub mod tune;
pub mod turn;
