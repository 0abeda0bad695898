//! `stat`: counters and queue depths of running endpoints, read without stopping or asking them.

use std::collections::HashMap;
use std::fs;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use cutthrough::stat::{Cell, Row, Snapshot, Watch, find, printable};
use serde::Serialize;

use crate::args::StatArgs;
use crate::failure::Failure;
use crate::hint;
use crate::output::Output;
use crate::table::{Table, hanging};
use crate::units;

/// Sets the cursor to the first line and clears what is below it.
const CLEAR: &str = "\x1b[H\x1b[J";

/// A space at which no line is broken.
const KEEP: char = '\u{a0}';

/// One endpoint, as a JSON line.
#[derive(Debug, Serialize)]
struct EndpointLine {
    test: &'static str,
    /// The process, as this one counts.
    pid: u32,
    /// The name of its program.
    program: String,
    /// The address that it listens on; absent if it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// Random number of this life of the endpoint; as 16 hexadecimal digits, which every reader has whole.
    #[serde(serialize_with = "digits")]
    generation: u64,
    /// Every counter that is not 0.
    counters: serde_json::Map<String, serde_json::Value>,
    channels: Vec<ChannelLine>,
}

fn digits<S: serde::Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:016x}"))
}

/// One channel of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ChannelLine {
    channel: usize,
    /// The process of the peer, as the endpoint's counts.
    peer_pid: u64,
    /// The user of the peer.
    peer_user: u64,
    sent: u64,
    /// Messages sent that the peer is not known to have taken.
    queued: u64,
    received: u64,
    payload_bytes_sent: u64,
    payload_bytes_received: u64,
    /// Pages lent to the peer.
    lent_pages: u64,
    /// Runs of landing pages posted for the peer.
    posted_runs: u64,
    /// Bytes in the staging ring towards the peer.
    staged_bytes: u64,
}

/// Shows all endpoints that may be looked at, once or again and again.
///
/// # Errors
/// If processes cannot be looked at, the one that was asked for has no endpoint from the first, or the output cannot be
/// written.
pub fn run(args: &StatArgs, output: Output) -> Result<(), Failure> {
    let (mut before, mut was_there) = (Earlier::default(), false);
    loop {
        let lines = look(args)?;
        if let Some(what) = absent(args).filter(|_| lines.is_empty()) {
            if was_there {
                return output.say(&gone(args));
            }
            return Err(Failure::new(
                what,
                format!("'{}' lists all of them, and as root those of other users too", hint::command("stat")),
            ));
        }
        was_there = true;
        lines.iter().try_for_each(|line| output.line(line))?;
        if args.watch.is_some() && !output.is_json() && std::io::stdout().is_terminal() {
            write!(std::io::stdout(), "{CLEAR}").map_err(|error| Failure::output(&error))?;
        }
        if !output.is_json() {
            output.say(&text(&lines, &before))?;
        }
        let Some(interval) = args.watch else { return Ok(()) };
        before = Earlier::of(&lines);
        std::thread::sleep(Duration::from_secs_f64(interval));
    }
}

/// That what was asked for is not there, in words; `None` if nothing was.
fn absent(args: &StatArgs) -> Option<String> {
    match (args.pid, &args.peer) {
        (Some(pid), Some(name)) => Some(format!("process {pid} has no endpoint named '{name}' that may be looked at")),
        (Some(pid), None) => Some(format!("process {pid} has no endpoint that may be looked at")),
        (None, Some(name)) => Some(format!("no endpoint is named '{name}' that may be looked at")),
        (None, None) => None,
    }
}

/// That what was watched has ended, as everything does.
fn gone(args: &StatArgs) -> String {
    match (args.pid, &args.peer) {
        (Some(pid), None) => format!("Process {pid} has no endpoint any more."),
        (_, Some(name)) => format!("Nobody listens at {name} any more."),
        (None, None) => String::new(),
    }
}

/// Every endpoint that is asked for. One that has ended meanwhile is left out.
fn look(args: &StatArgs) -> Result<Vec<EndpointLine>, Failure> {
    let found = find().map_err(|error| Failure::new(format!("/proc: {error}"), "mount it"))?;
    let wanted = found.into_iter().filter(|(pid, _)| args.pid.is_none_or(|wanted| wanted == *pid));
    let seen = wanted.filter_map(|(pid, path)| Some((pid, Watch::open(&path).ok()?.snapshot())));
    let seen = own(seen.filter(|(_, seen)| args.peer.as_ref().is_none_or(|name| *name == seen.name)).collect());
    Ok(seen.into_iter().map(|(pid, snapshot)| endpoint_line(pid, snapshot)).collect())
}

/// Each endpoint once, where its own process is: children may have inherited its file.
fn own(mut seen: Vec<(u32, Snapshot)>) -> Vec<(u32, Snapshot)> {
    seen.sort_by_key(|(pid, snapshot)| (snapshot.generation, u64::from(*pid) != snapshot.process, *pid));
    seen.dedup_by_key(|(_, snapshot)| snapshot.generation);
    seen.sort_by_key(|(pid, _)| *pid);
    seen
}

fn endpoint_line(pid: u32, snapshot: Snapshot) -> EndpointLine {
    let program = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let counters = snapshot.counters.iter().filter(|(_, value)| *value > 0);
    EndpointLine {
        test: "stat",
        pid,
        program: printable(program.trim_ascii()),
        generation: snapshot.generation,
        counters: counters.map(|(counter, value)| (counter.name().into(), (*value).into())).collect(),
        channels: snapshot.rows.iter().map(channel_line).collect(),
        name: snapshot.name,
    }
}

fn channel_line(row: &Row) -> ChannelLine {
    let cell = |cell: Cell| row.cells[cell as usize];
    ChannelLine {
        channel: row.channel,
        peer_pid: cell(Cell::Peer),
        peer_user: cell(Cell::User),
        sent: cell(Cell::Sent),
        queued: cell(Cell::Sent).saturating_sub(cell(Cell::Acknowledged)),
        received: cell(Cell::Received),
        payload_bytes_sent: cell(Cell::PayloadSent),
        payload_bytes_received: cell(Cell::PayloadReceived),
        lent_pages: cell(Cell::Lent),
        posted_runs: cell(Cell::Posted),
        staged_bytes: cell(Cell::Staged),
    }
}

/// What was seen at the last look, to tell rates from.
#[derive(Debug, Default)]
struct Earlier {
    at: Option<Instant>,
    /// Messages sent and received, by the endpoint's generation and the channel.
    messages: HashMap<(u64, usize), (u64, u64)>,
}

impl Earlier {
    fn of(lines: &[EndpointLine]) -> Self {
        let messages = lines.iter().flat_map(|line| {
            line.channels.iter().map(|row| ((line.generation, row.channel), (row.sent, row.received)))
        });
        Self { at: Some(Instant::now()), messages: messages.collect() }
    }

    /// Messages sent and received per second since then; none at the first look.
    fn rates(&self, generation: u64, row: &ChannelLine) -> Option<(f64, f64)> {
        let seconds = self.at?.elapsed().as_secs_f64();
        let (sent, received) = self.messages.get(&(generation, row.channel))?;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Some((rate(row.sent, *sent), rate(row.received, *received)))
    }
}

fn text(lines: &[EndpointLine], before: &Earlier) -> String {
    if lines.is_empty() {
        return format!(
            "No endpoint runs that may be looked at. For one, start in another terminal:\n  {}",
            hint::command("perf serve --listen shm:try")
        );
    }
    lines.iter().map(|line| endpoint_text(line, before)).collect::<Vec<_>>().join("\n\n")
}

fn endpoint_text(line: &EndpointLine, before: &Earlier) -> String {
    let name = if line.name.is_empty() { "(listens nowhere)" } else { &line.name };
    let mut lines = vec![format!("{name}  process {} ({})", line.pid, line.program)];
    // A number stays beside its name.
    let counters: Vec<String> = line.counters.iter().map(|(name, value)| format!("{name}{KEEP}{value}")).collect();
    if !counters.is_empty() {
        lines.push(hanging(&format!("  {}", counters.join(", ")), 2).replace(KEEP, " "));
    }
    let tables = [message_table(line, before), payload_table(line)];
    let rows = tables.iter().flatten().map(|table| table.to_string());
    lines.extend(rows.flat_map(|table| table.lines().map(|line| format!("  {line}")).collect::<Vec<_>>()));
    lines.join("\n")
}

/// The messages of each channel; none if there is no channel.
fn message_table(line: &EndpointLine, before: &Earlier) -> Option<Table> {
    let mut headings = vec!["channel", "peer", "sent", "queued", "received"];
    if before.at.is_some() {
        headings.extend(["sent/s", "received/s"]);
    }
    let mut table = Table::new(&headings);
    for row in &line.channels {
        let numbers = [row.peer_pid, row.sent, row.queued, row.received];
        let mut cells = vec![row.channel.to_string()];
        cells.extend(numbers.map(|number| number.to_string()));
        if let Some((sent, received)) = before.rates(line.generation, row) {
            cells.extend([sent, received].map(units::rate));
        }
        table.row(cells);
    }
    (!line.channels.is_empty()).then_some(table)
}

/// The payloads of each channel that has or had some; none if no channel has.
fn payload_table(line: &EndpointLine) -> Option<Table> {
    let mut table = Table::new(&["channel", "bytes out", "bytes in", "lent", "posted", "staged"]);
    let mut is_empty = true;
    for row in &line.channels {
        let numbers =
            [row.payload_bytes_sent, row.payload_bytes_received, row.lent_pages, row.posted_runs, row.staged_bytes];
        if numbers.iter().any(|number| *number > 0) {
            is_empty = false;
            table.row([vec![row.channel.to_string()], numbers.map(|number| number.to_string()).to_vec()].concat());
        }
    }
    (!is_empty).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(sent: u64) -> EndpointLine {
        let mut row = Row::default();
        row.channel = 3;
        let channel = ChannelLine { sent, ..channel_line(&row) };
        EndpointLine {
            test: "stat",
            pid: 7,
            program: "program".into(),
            name: "shm:name".into(),
            generation: 1,
            counters: [("full".to_string(), 5.into())].into_iter().collect(),
            channels: vec![channel],
        }
    }

    #[test]
    fn a_generation_is_told_whole() {
        let json = serde_json::to_value(EndpointLine { generation: u64::MAX - 1, ..line(1) }).expect("JSON");
        assert_eq!(json["generation"], "fffffffffffffffe");
    }

    #[test]
    fn what_is_queued_was_sent_and_not_acknowledged() {
        let mut row = Row::default();
        row.cells[Cell::Sent as usize] = 10;
        row.cells[Cell::Acknowledged as usize] = 4;
        assert_eq!(channel_line(&row).queued, 6);
        row.cells[Cell::Acknowledged as usize] = 11;
        assert_eq!(channel_line(&row).queued, 0);
    }

    #[test]
    fn an_endpoint_is_shown_with_its_counters_and_channels() {
        let text = text(&[line(10)], &Earlier::default());
        assert!(text.starts_with("shm:name  process 7 (program)\n  full 5\n  channel"), "{text}");
        assert!(text.lines().count() == 4, "no payload: {text}");
        assert!(text.lines().last().is_some_and(|row| !row.contains("/s")), "{text}");
    }

    #[test]
    fn a_busy_endpoint_fits_into_a_terminal() {
        let mut busy = line(1_234_567_890);
        busy.counters = (0..30).map(|number| (format!("some_counter_{number}"), 1_000_000.into())).collect();
        busy.channels[0].payload_bytes_sent = 1 << 50;
        busy.channels[0].staged_bytes = 1 << 21;
        let mut before = Earlier::of(&[line(10)]);
        before.at = Instant::now().checked_sub(Duration::from_secs(1));
        let text = text(&[busy], &before);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("1125899906842624") && text.contains("G/s") | text.contains("M/s"), "{text}");
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let mut before = Earlier::of(&[line(10)]);
        before.at = Instant::now().checked_sub(Duration::from_secs(10));
        let now = line(110);
        let (sent, received) = before.rates(1, &now.channels[0]).expect("it was there before");
        assert!((9.0..=10.0).contains(&sent) && received == 0.0, "{sent} {received}");
        assert_eq!(before.rates(2, &now.channels[0]), None);
    }

    #[test]
    fn an_inherited_endpoint_is_shown_where_it_belongs() {
        let snapshot = |process, generation| {
            let mut snapshot = Snapshot::default();
            (snapshot.process, snapshot.generation) = (process, generation);
            snapshot
        };
        let seen = vec![(3, snapshot(5, 9)), (5, snapshot(5, 9)), (4, snapshot(4, 8)), (6, snapshot(5, 9))];
        let pids: Vec<u32> = own(seen).iter().map(|(pid, _)| *pid).collect();
        assert_eq!(pids, [4, 5]);
    }

    #[test]
    fn nothing_is_said_so() {
        assert!(text(&[], &Earlier::default()).starts_with("No endpoint"));
    }
}
