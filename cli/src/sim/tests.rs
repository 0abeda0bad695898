//! `sim` with a family of machines that exists only here, so that every ending can be seen.

use std::fs;
use std::path::PathBuf;

use clap::Parser;
use cutthrough_sim::catalogue::{Catalogue, Family};
use cutthrough_sim::outcome::{Drawing, Experiment, Figure, Line, Outcome, Paper, Stripe};
use cutthrough_sim::platform::Platform;
use cutthrough_sim::point::{Point, PointError, Query, StageTime};
use serde_json::Value;

use super::run_with;
use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::Output;

const PLATFORM: &str = "name = \"wire\"\ntitle = \"A wire\"\nmodel = \"wire\"\n\n\
    [link.rate]\nvalue = 100\nunit = \"MB/s\"\nsource = \"a test\"\n";

fn point(platform: &Platform, query: &Query) -> Result<Point, PointError> {
    let rate = platform.rate("link.rate")?;
    platform.all_used()?;
    if query.senders > 1 {
        return Err(PointError::Impossible("a wire has one sender".into()));
    }
    let one_way_us = rate.span(query.payload).as_us();
    let stage = StageTime { stage: "link".into(), first_us: 0.0, last_us: one_way_us, busy_us: one_way_us, pulses: 1 };
    Ok(Point { one_way_us, bytes_per_s: rate.bytes_per_s() as f64, stages: vec![stage], events: 1 })
}

fn hit() -> Outcome {
    let line = Line::new("T1", "latency", "8 KiB", "us", 300.0).against(Paper::Value(308.0), 10.0);
    Outcome { lines: vec![line], figures: Vec::new(), events: 1 }
}

fn miss() -> Outcome {
    // The first to begin is the last to end.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let line = Line::new("N2", "bandwidth", "a burst", "MB/s", 30.0).against(Paper::Value(60.0), 10.0);
    let stripes = vec![Stripe { row: 0, message: 0, start_us: 0.0, end_us: 1.0, bytes: 64 }];
    let drawing = Drawing::Flow { rows: vec!["link".into()], stripes };
    let figure = Figure { id: "n2".into(), title: "A burst".into(), caption: String::new(), drawing };
    Outcome { lines: vec![line], figures: vec![figure], events: 1 }
}

fn catalogue() -> Catalogue {
    let experiments = || {
        vec![
            Experiment { id: "N2", title: "a burst", run: miss },
            Experiment { id: "T1", title: "latency", run: hit },
            Experiment { id: "T2", title: "latency again", run: hit },
        ]
    };
    Catalogue::of(vec![Family { models: &["wire"], platforms: &[("wire", PLATFORM)], experiments, point, flow: None }])
}

/// A folder of a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sim-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a file can be written");
        self.path(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sim(words: &[&str]) -> Result<(), Failure> {
    let cli = Cli::try_parse_from([&["cutthrough", "sim"], words].concat()).expect("a command line");
    let Command::Sim(args) = cli.command else { panic!("not sim") };
    run_with(&catalogue(), &args, Output::new(true))
}

fn refusal(words: &[&str]) -> String {
    let Err(failure @ Failure::CannotRun { .. }) = sim(words) else { panic!("{words:?} ran") };
    failure.to_string()
}

/// Nothing is to be waited for that is not wanted.
#[test]
fn a_timeline_that_nobody_draws_is_refused_before_anything_runs() {
    fn never() -> Outcome {
        panic!("it was run")
    }
    let experiments = || vec![Experiment { id: "T5", title: "no timeline", run: never }];
    let family = Family { models: &["wire"], platforms: &[("wire", PLATFORM)], experiments, point, flow: None };
    let cli = Cli::try_parse_from(["cutthrough", "sim", "T5", "--trace", "/proc/no"]).expect("a command line");
    let Command::Sim(args) = cli.command else { panic!("not sim") };
    let refused = run_with(&Catalogue::of(vec![family]), &args, Output::new(true)).expect_err("nothing to be drawn");
    assert!(refused.to_string().starts_with("none of these experiments draws"), "{refused}");
}

fn asked(platform: &str) -> String {
    refusal(&["point", "--platform", platform, "--policy", "adaptive", "--payload", "64"])
}

#[test]
fn a_check_fails_if_a_line_misses_and_says_which() {
    sim(&["T1", "--check"]).expect("it is near enough");
    sim(&["all"]).expect("nothing was to be checked");
    let Err(Failure::CheckFailed { what }) = sim(&["all", "--check"]) else { panic!("the check passed") };
    assert_eq!(what, "1 of 3 figures miss: N2 bandwidth (a burst) -50.0 %, 10 % allowed");
}

#[test]
fn two_reports_of_the_same_are_equal_and_in_order() {
    let (one, other) = (Folder::new("one"), Folder::new("other"));
    for folder in [&one, &other] {
        sim(&["all", "--out", &folder.path(""), "--trace", &folder.path("trace.json")]).expect("a report");
    }
    for name in ["index.html", "lines.jsonl", "lines.csv", "n2.svg", "n2.csv", "trace.json"] {
        assert_eq!(one.read(name), other.read(name), "{name}");
    }
    let lines = one.read("lines.jsonl");
    let ids: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(ids, ["T1", "T1", "N2"]);
    let trace: Value = serde_json::from_str(&one.read("trace.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.iter().any(|event| event["ph"] == "X")));
}

#[test]
fn experiments_are_named_in_any_case_and_run_once() {
    let folder = Folder::new("named");
    sim(&["n2", "t1", "T1", "--out", &folder.path("new")]).expect("a report");
    assert_eq!(folder.read("new/lines.jsonl").lines().count(), 2);
    assert_eq!(refusal(&["T9"]), "there is no experiment \"T9\"; 'cutthrough sim list' shows all of them");
    assert!(refusal(&[]).starts_with("no experiment is named; "));
    assert!(refusal(&["T1", "--trace", &folder.path("t.json")]).starts_with("none of these experiments draws"));
    assert!(!folder.0.join("t.json").exists());
    assert!(refusal(&["T1", "--out", "/proc/no/such"]).starts_with("cannot write /proc/no/such: "));
}

#[test]
fn a_platform_is_a_name_or_a_file() {
    let folder = Folder::new("file");
    let file = folder.write("mine.toml", &PLATFORM.replace("100", "25"));
    for platform in ["wire", &file] {
        let trace = folder.path("point.json");
        let words = ["point", "--platform", platform, "--policy", "fixed:1KiB:512", "--payload", "8KiB", "--trace"];
        sim(&[&words[..], &[&trace]].concat()).expect("an answer");
        assert!(folder.read("point.json").contains("\"name\":\"link\""));
    }
}

#[test]
fn what_is_wrong_with_a_platform_is_said_with_line_key_and_unit() {
    let folder = Folder::new("wrong");
    let wrong = |from: &str, to: &str| {
        let file = folder.write("w.toml", &PLATFORM.replace(from, to));
        let message = asked(&file);
        assert!(!message.contains('\n') && message.contains("; "), "{message}");
        message.strip_prefix(&format!("{file}:")).unwrap_or(&message).to_owned()
    };
    assert!(wrong("MB/s", "us").starts_with("6: `link.rate`: `us` is no unit of a rate; use `B/s`"));
    assert!(wrong("value = 100", "value = 0").starts_with("6: `link.rate`: a rate must not be 0"));
    assert!(wrong("[link.rate]", "[link.speed]").starts_with("1: `link.rate` is missing: a rate, in `B/s`"));
    assert!(wrong("[link.rate]", "[link.rate").starts_with("5: "));
    assert!(wrong("model = \"wire\"", "model = \"rope\"").starts_with("3: `model`: `rope` is unknown; known are wire"));
    let stray = "[link.x]\nvalue = 1\nunit = \"us\"\nsource = \"a\"\n[link.rate]";
    assert!(wrong("[link.rate]", stray).starts_with("6: `link.x`: the model `wire` has no such parameter"));
}

#[test]
fn bad_questions_are_refused() {
    assert!(asked("no-such").starts_with("--platform no-such: no built-in platform, and as a file: "));
    assert!(asked("/").contains("as a file: "));
    assert!(asked("/dev/zero").contains("as a file: "));
    let with = |policy: &str, more: &[&str]| {
        refusal(&[&["point", "--platform", "wire", "--policy", policy, "--payload", "64"], more].concat())
    };
    assert!(with("eager", &[]).starts_with("--policy \"eager\": "));
    assert!(with("fixed:0:9", &[]).starts_with("--policy \"fixed:0:9\": "));
    assert_eq!(with("adaptive", &["--senders", "2"]), "wire: a wire has one sender; ask for something else");
}
