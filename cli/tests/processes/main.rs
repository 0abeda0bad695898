//! The program and the other ends that it starts: what they print, and that nothing of them is left.

mod calls;
mod compare;
mod ends;
mod folder;
mod perf;
mod run;
mod said;
mod seven;
mod stat;
mod veth;

use cutthrough_conform::skipped;
