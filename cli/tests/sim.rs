//! `sim` as scripts see it: exit codes, lines of the contract, and files that do not change from run to run.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The fields of a line that are always there, in the contract's order, and those that may be absent.
const FIELDS: [&str; 11] =
    ["id", "what", "conditions", "unit", "paper", "sim", "error_pct", "role", "tolerance_pct", "ok", "source"];
const OPTIONAL: [&str; 4] = ["paper", "error_pct", "tolerance_pct", "ok"];

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutthrough"));
    command.arg("sim").args(words).stdin(Stdio::null()).output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// A folder of a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sim-program-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listed(kind: &str) -> Vec<String> {
    let output = run(&["list", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = lines(&output);
    let names: Vec<String> = lines.iter().filter_map(|line| line[kind].as_str()).map(str::to_owned).collect();
    assert!(!names.is_empty(), "no {kind} is listed");
    names
}

#[test]
fn bad_use_is_exit_code_2_and_one_line() {
    let folder = Folder::new("bad");
    let wrong = folder.file("wrong.toml", "name = \"x\"\ntitle = \"x\"\nmodel = \"x\"\n[bus]\nvalue = -1\n");
    let point = |platform| ["point", "--platform", platform, "--policy", "adaptive", "--payload", "64"];
    for words in
        [&[][..], &["Q1"], &["list", "T1"], &["all", "--out", "/proc/no"], &point("no-such"), &point(wrong.as_str())]
    {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let message = text(&output.stderr);
        assert_eq!(message.lines().count(), 1, "{words:?}: {message}");
        assert!(message.starts_with("cutthrough: ") && message.contains("; "), "{words:?}: {message}");
    }
    let message = run(&point(wrong.as_str())).stderr;
    assert!(text(&message).contains("wrong.toml:5: `bus.value` must be a number"), "{}", text(&message));
}

#[test]
fn lines_follow_the_contract_and_two_runs_are_equal() {
    let id = listed("experiment").into_iter().next().expect("there are experiments");
    let folder = Folder::new("lines");
    let runs = ["one", "two"].map(|name| {
        let out = folder.0.join(name);
        (run(&[&id, "--json", "--out", &out.display().to_string()]), out)
    });
    let [(one, one_out), (two, two_out)] = &runs;
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
    assert_eq!(one.stdout, two.stdout);
    let names = fs::read_dir(one_out).expect("the report").map(|entry| entry.expect("a file").file_name());
    let names: Vec<_> = names.collect();
    assert!(!names.is_empty() && !one.stdout.is_empty(), "nothing to compare");
    for name in names {
        let read = |folder: &PathBuf| fs::read(folder.join(&name)).expect("a file");
        assert!(read(one_out) == read(two_out), "{} differs", name.display());
    }
    for (line, value) in text(&one.stdout).lines().zip(lines(one)) {
        let object = value.as_object().expect("an object");
        assert!(object.keys().all(|key| FIELDS.contains(&key.as_str())), "{line}");
        assert!(FIELDS.iter().all(|field| OPTIONAL.contains(field) || object.contains_key(*field)), "{line}");
        let places: Vec<_> = FIELDS.iter().filter_map(|field| line.find(&format!("\"{field}\":"))).collect();
        assert!(places.is_sorted(), "{line}");
    }
}

/// What is known to miss the papers is named by a check, and does not fail it.
#[test]
fn a_check_names_what_is_known_to_miss() {
    let output = run(&["S1", "S2", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, named) = said.split_once("4 figures miss, as is known: ").unwrap_or_else(|| panic!("{said}"));
    assert_eq!(named.matches("(SS-1+)").count(), 4, "{named}");
}

#[test]
fn every_platform_answers_for_a_point() {
    for platform in listed("platform") {
        let asked = ["adaptive:512", "adaptive", "kernel", "vendor"]
            .map(|policy| run(&["point", "--platform", &platform, "--policy", policy, "--payload", "1KiB", "--json"]));
        let answered = asked.iter().find(|output| output.status.code() == Some(0));
        let answered = answered.unwrap_or_else(|| panic!("{platform}: {}", text(&asked[0].stderr)));
        let point = &lines(answered)[0];
        assert!(point["one_way_us"].as_f64().is_some_and(|us| us > 0.0), "{platform}: {point}");
        assert!(point["bytes_per_s"].is_number() && point["stages"].is_array(), "{platform}: {point}");
    }
}

/// A policy that has an effect nowhere on a platform is refused there, and none that has one.
#[test]
fn a_policy_without_effect_is_refused() {
    for platform in listed("platform") {
        let ask = |policy: &str| {
            let output = run(&["point", "--platform", &platform, "--policy", policy, "--payload", "8KiB", "--json"]);
            let said = text(&output.stderr);
            if output.status.code() == Some(0) {
                return Ok(lines(&output).remove(0)["one_way_us"].clone());
            }
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{platform}, {policy}: {said}");
            Err(said.to_owned())
        };
        let plain = ask("adaptive").unwrap_or_else(|why| panic!("{platform}: {why}"));
        for policy in ["store-and-forward", "fixed:256", "fixed:256:512"] {
            match ask(policy) {
                Ok(other) => assert_ne!(other, plain, "{platform}: {policy} changes nothing"),
                Err(said) => assert!(said.contains("; ask for `adaptive`"), "{platform}, {policy}: {said}"),
            }
        }
    }
}

/// What people read of `sim fault` fits into a terminal, and what programs read is exact in each of their numbers.
#[test]
fn faults_are_told_in_short_lines_and_exact_numbers() {
    let output = run(&["fault", "--seeds", "1", "--seed", "9007199254740991"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
    let hash = said.trim_end().rsplit_once("frames: ").expect("a hash").1;
    let output = run(&["fault", "--seeds", "1", "--seed", "9007199254740991", "--json"]);
    let line = &lines(&output)[0];
    assert_eq!((line["first_seed"].as_u64(), line["hash"].as_str()), (Some(9_007_199_254_740_991), Some(hash)));
    assert!(hash.len() == 16 && u64::from_str_radix(hash, 16).is_ok(), "{hash}");
    assert_eq!(line["lies"]["added"].as_u64(), Some(0));
    let output = run(&["fault", "--seeds", "2", "--liars"]);
    let said = text(&output.stdout);
    assert!(said.lines().all(|line| line.chars().count() <= 100) && said.contains("Lies: frames changed "), "{said}");
    assert!(said.contains(" liars "), "what is drawn of them is told: {said}");
    let output = run(&["fault", "--seeds", "1", "--seed", "9007199254740992"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}

/// What a few seeds draw is told before what comes of them; of many it would hide that.
#[test]
fn the_options_of_a_few_seeds_are_told_first() {
    let told = |seeds: &str| {
        let output = run(&["fault", "--seeds", seeds, "--seed", "7"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let (before, _) = said.split_once(" kept every rule").expect("what came of them");
        (7..20)
            .filter(|seed| before.contains(&format!("Settings of the world of seed {seed}: nodes ")))
            .collect::<Vec<_>>()
    };
    assert_eq!((told("1"), told("3"), told("9")), (vec![7], vec![7, 8, 9], vec![]));
}

/// The pictures in the texts are those that the simulator draws now; if not, the numbers beside them are old too.
#[test]
fn the_texts_show_what_is_simulated() {
    let folder = Folder::new("figures");
    let out = folder.0.display().to_string();
    let output = run(&["M1", "M2", "M3", "M4", "M5", "--out", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/figures"));
    let pictures = fs::read_dir(&shown).expect("the pictures of the texts");
    let names: Vec<_> = pictures.map(|entry| entry.expect("a picture").file_name()).collect();
    assert!(!names.is_empty(), "no pictures");
    for name in names {
        let [old, new] = [&shown, &folder.0].map(|folder| fs::read(folder.join(&name)).unwrap_or_default());
        let name = name.display();
        assert!(
            old == new,
            "docs/figures/{name} is old: copy it from 'cutthrough sim M1 M2 M3 M4 M5 --out DIR', and see \
            whether docs/today.md still tells the truth"
        );
    }
}

/// A message in pulses is drawn in pulses, and all that is said of it is of the same runs.
#[test]
fn a_timeline_of_a_point_has_every_pulse() {
    let folder = Folder::new("pulses");
    let trace = folder.0.join("point.json").display().to_string();
    let words = ["point", "--platform", "alphastation500", "--policy", "fixed:1KiB", "--payload", "8KiB", "--json"];
    let output = run(&[&words[..], &["--trace", &trace]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let point = lines(&output).remove(0);
    let pulses: u64 = point["stages"].as_array().expect("stages").iter().filter_map(|it| it["pulses"].as_u64()).sum();
    let drawn: Value = serde_json::from_str(&fs::read_to_string(&trace).expect("a timeline")).expect("JSON");
    let events = drawn["traceEvents"].as_array().expect("events");
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count() as u64, pulses);
    assert!(pulses > 4 * 4, "8 KiB in pulses of 1 KiB: {point}");
    // A model without single pulses draws what it knows, and says so.
    let words = ["point", "--platform", "gige-pentium2", "--policy", "adaptive", "--payload", "8KiB"];
    let output = run(&[&words[..], &["--trace", &trace]].concat());
    assert!(text(&output.stdout).ends_with("each stage is one bar.\n"), "{}", text(&output.stdout));
}

/// A platform that is known by what messages cost has no stages, and so no table of them.
#[test]
fn what_has_no_stages_shows_no_table_of_them() {
    for (platform, stages) in [("cm5", false), ("pcie4-100g", true)] {
        let output = run(&["point", "--platform", platform, "--policy", "adaptive", "--payload", "4KiB"]);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains("bandwidth"), "{said}");
        assert_eq!(said.contains("stage  "), stages, "{said}");
        assert!(!said.ends_with("\n\n"), "{said:?}");
    }
}

#[test]
fn an_unknown_policy_is_told_all_that_there_are() {
    let point = |platform, policy| run(&["point", "--platform", platform, "--policy", policy, "--payload", "64"]);
    for (platform, policy) in [("pcie4-100g", "eager"), ("fore-sba200", "coroutine"), ("pcie4-100g", "kernel")] {
        let output = point(platform, policy);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.matches("; ").count()), (Some(2), 1), "{said}");
        assert!(said.contains("`fixed:BYTES`") && said.contains("`vendor`"), "{said}");
        assert!(!said.contains("firmware"), "{said}");
    }
}

/// A run of these words, with one of its streams going to a pipe that nobody reads.
fn unread(words: &[&str], stream: fn(&mut Command, std::io::PipeWriter) -> &mut Command) -> Output {
    let (_, writer) = std::io::pipe().expect("a pipe");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutthrough"));
    command.arg("sim").args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    stream(&mut command, writer);
    let child = command.spawn().expect("the program can be started");
    // With the command goes this process's end of the pipe.
    drop(command);
    child.wait_with_output().expect("the program ends")
}

#[test]
fn what_was_asked_for_is_written_though_nobody_reads_the_results() {
    let folder = Folder::new("unread");
    let id = &listed("experiment")[0];
    let report = folder.0.join("report");
    let words = [id, "--out", report.to_str().expect("UTF-8"), "--check"];
    let output = unread(&words, |command, writer| command.stdout(writer));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(report.join("index.html").exists() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn lines_of_json_come_whole_though_nobody_reads_what_is_for_people() {
    let ids = listed("experiment");
    let words = [&ids[0], &ids[1], "--json"];
    let output = unread(&words, |command, writer| command.stderr(writer));
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout) == text(&run(&words).stdout), "{}", text(&output.stdout));
}
