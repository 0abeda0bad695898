//! `perf`: measures messages, and what this machine can do at best, to hold them against.
//!
//! A measurement has two ends in two processes, and a [`way`] between them, as the options say of what lies [`across`].
//! The measuring end ([`measure`], [`sweep`], [`compare`], [`wake`], [`idle`], [`am`], [`rpc`], [`incast`]) starts the
//! other end ([`peer`] starts [`serve`]), or finds one that was started by hand, and asks it ([`ask`]) for lanes
//! ([`lane`]) and for jobs on them ([`answer`]).
//! [`loss`] loses frames on that way, and [`rights`] says who may not go it.
//! Several are measured in turn, each in its [`seat`].
//! A [`case`] is measured by [`lat`], [`stream`] or [`fetch`] in [`rounds`], in turn with its [`floor`], which comes
//! from [`limits`]; how far it is from that is [`held`], and [`legend`] says so below the table; [`others`] says what
//! else the machine did meanwhile.

pub mod across;
pub mod am;
pub mod answer;
pub mod ask;
pub mod cargo;
pub mod case;
pub mod compare;
pub mod defrag;
pub mod fetch;
pub mod floor;
pub mod held;
pub mod idle;
pub mod incast;
pub mod lane;
pub mod lat;
pub mod legend;
pub mod limits;
pub mod loss;
pub mod measure;
pub mod others;
pub mod peer;
pub mod rights;
pub mod room;
pub mod rounds;
pub mod rpc;
pub mod seat;
pub mod serve;
pub mod stream;
pub mod sweep;
pub mod wake;
pub mod way;

use crate::args::PerfTest;
use crate::failure::Failure;
use crate::output::Output;

use case::Test;

/// Measures what the command line asks for, and prints it.
///
/// # Errors
/// If it cannot be measured, or the output cannot be written.
pub fn run(test: &PerfTest, output: Output) -> Result<(), Failure> {
    match test {
        PerfTest::Limits(args) => limits::run(args, output),
        PerfTest::Lat(options) => measure::run(Test::Lat, options, output),
        PerfTest::Bw(options) => measure::run(Test::Bw, options, output),
        PerfTest::Rate(options) => measure::run(Test::Rate, options, output),
        PerfTest::Fetch(options) => measure::run(Test::Fetch, options, output),
        PerfTest::Wake(args) => wake::run(args, output),
        PerfTest::Idle(args) => idle::run(args, output),
        PerfTest::Am(args) => am::run(args, output),
        PerfTest::Rpc(args) => rpc::run(args, output),
        PerfTest::Defrag(args) => defrag::run(args, output),
        PerfTest::Incast(args) => incast::run(args, output),
        PerfTest::Sweep(options) => sweep::run(options, output),
        PerfTest::Compare(args) => compare::run(args, output),
        PerfTest::Serve(args) => serve::run(args, output),
    }
}
