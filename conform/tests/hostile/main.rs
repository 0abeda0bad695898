//! A peer that does the handshake and then lies, against a victim that also has a channel to somebody honest.
//!
//! Each lie ends in the end of that one channel, with the right reason, counted; the honest channel goes on.

mod files;
mod hello;
mod liar;
mod lies;
mod naps;
mod onward;
mod races;
mod recall;
mod scribble;
mod shares;
mod standing;
