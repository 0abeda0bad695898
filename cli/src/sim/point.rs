//! `sim point`: one operating point of one platform, any of them and not only the published ones.

use std::fs::File;
use std::io::Read;

use cutthrough_sim::catalogue::{Catalogue, Pulses};
use cutthrough_sim::outcome::Stripe;
use cutthrough_sim::platform::Platform;
use cutthrough_sim::point::{Firmware, Point, PointError, Query, StageTime};
use cutthrough_sim::report::number::{count, short};
use cutthrough_sim::trace::Timeline;
use serde::Serialize;

use super::{files, wrong_platform};
use crate::args::PointArgs;
use crate::failure::Failure;
use crate::hint;
use crate::output::Output;
use crate::table::Table;
use crate::units::{self, Size};

/// Most bytes of a platform's file.
const MOST: u64 = 1 << 20;

/// The answer, with the question before it.
#[derive(Debug, Serialize)]
struct PointLine<'a> {
    platform: &'a str,
    policy: &'a str,
    payload: u64,
    count: u64,
    senders: u32,
    #[serde(flatten)]
    point: &'a Point,
}

/// Asks, and prints the answer.
///
/// # Errors
/// If the platform is unknown or wrong, or cannot do what is asked.
pub fn run(catalogue: &Catalogue, args: &PointArgs, output: Output) -> Result<(), Failure> {
    let platform = platform(catalogue, &args.platform)?;
    let firmware: Firmware = args.policy.parse().map_err(|error: String| {
        let what = format!("--policy {:?}: {error}", args.policy);
        Failure::from_error(&what, &format!("see '{}'", hint::command("sim point --help")))
    })?;
    let query = Query { firmware, payload: args.payload.0, count: args.count, senders: args.senders };
    if let Some(file) = &args.trace {
        files::writable(file)?;
    }
    let refuse = |error| match error {
        PointError::Platform(error) => wrong_platform(&error),
        PointError::Impossible(what) => {
            let name = platform.name();
            let what = if what.starts_with(name) { what } else { format!("{name}: {what}") };
            Failure::from_error(&what, "ask for something else")
        }
    };
    let point = catalogue.point(&platform, &query).map_err(refuse)?;
    let flow = if args.trace.is_some() { catalogue.flow(&platform, &query).map_err(refuse)? } else { None };
    let name = platform.name();
    let (policy, payload) = (args.policy.as_str(), args.payload.0);
    let line = PointLine { platform: name, policy, payload, count: args.count, senders: args.senders, point: &point };
    output.line(&line)?;
    output.say(&text(&line, &platform))?;
    let Some(file) = &args.trace else { return Ok(()) };
    let is_whole = flow.is_some();
    files::write_trace(file, &[timeline(&line, flow)], output)?;
    match (is_whole, point.stages.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => output.say("This model keeps neither pulses nor stages: there is nothing to draw."),
        (false, false) => output.say("This model keeps no single pulses: each stage is one bar."),
    }
}

/// The built-in platform of this name, or that of a file.
fn platform(catalogue: &Catalogue, name: &str) -> Result<Platform, Failure> {
    if let Some(found) = catalogue.platform(name) {
        return found.map_err(|error| wrong_platform(&error));
    }
    let refuse = |why: &str| {
        let what = format!("--platform {name}: no built-in platform, and as a file: {why}");
        Failure::new(what, format!("'{}' shows the platforms", hint::command("sim list")))
    };
    let mut text = String::new();
    let read = File::open(name).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
    read.map_err(|error| refuse(&error.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(refuse("larger than any platform"));
    }
    Platform::parse(&text, name).map_err(|error| wrong_platform(&error))
}

fn text(line: &PointLine<'_>, platform: &Platform) -> String {
    let point = line.point;
    let mut table = Table::new(&["stage", "first, us", "last, us", "busy, us", "pulses"]);
    for stage in &point.stages {
        let StageTime { stage, first_us, last_us, busy_us, pulses } = stage;
        table.row(vec![stage.clone(), short(*first_us), short(*last_us), short(*busy_us), count(*pulses)]);
    }
    // Some platforms are known by what a whole message costs, and not by stages.
    let stages = if point.stages.is_empty() { String::new() } else { format!("\n\n{table}") };
    let senders = if line.senders == 1 { String::new() } else { format!(", {} senders", line.senders) };
    let messages = if line.count == 1 { "1 message".to_owned() } else { format!("{} messages", count(line.count)) };
    format!(
        "{}\n{}, {messages} of {}{senders}\n\none way    {} us\nbandwidth  {}{stages}",
        platform.title(),
        line.policy,
        Size(line.payload),
        short(point.one_way_us),
        units::bandwidth(point.bytes_per_s),
    )
}

/// Each pulse as one stripe; where none are kept, each stage as one, from its first move to its last.
fn timeline(line: &PointLine<'_>, flow: Option<Pulses>) -> Timeline {
    let name = format!("{}, {}, {}", line.platform, line.policy, Size(line.payload));
    let (rows, stripes) = flow.unwrap_or_else(|| {
        let bytes = line.payload.saturating_mul(line.count).saturating_mul(u64::from(line.senders));
        let whole = |(row, stage): (usize, &StageTime)| Stripe {
            row,
            message: 0,
            start_us: stage.first_us,
            end_us: stage.last_us,
            bytes,
        };
        let stages = &line.point.stages;
        (stages.iter().map(|stage| stage.stage.clone()).collect(), stages.iter().enumerate().map(whole).collect())
    });
    Timeline { name, rows, stripes }
}
