//! The program as scripts see it: exit codes, what is on which stream, and lines of JSON.

use std::process::{Command, Output, Stdio};

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutthrough"));
    command.args(words).stdin(Stdio::null()).env_remove("CARGO_PKG_NAME");
    command
}

fn run(words: &[&str]) -> Output {
    program(words).output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

#[test]
fn bad_use_is_exit_code_2_and_one_line() {
    for words in [
        &[][..],
        &["perf", "lat", "--size", "8KB"],
        &["perf", "lat", "--policy", "eager"],
        &["perf", "limits", "--size", "0"],
        &["no-such-command"],
        &["mem"],
        &["perf", "fault"],
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let message = text(&output.stderr);
        assert_eq!(message.lines().count(), 1, "{words:?}: {message}");
        assert!(message.starts_with("cutthrough: ") && message.contains("; "), "{words:?}: {message}");
    }
}

/// Pools are what a program chooses that uses the library.
#[test]
fn where_memory_is_short_only_what_the_user_can_do_is_told() {
    for kib in [100_000, 250_000] {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -v {kib}; exec \"$0\" perf lat --size 8KiB --count 5");
        let output = shell.args(["-c", &script, env!("CARGO_BIN_EXE_cutthrough")]).output().expect("a shell");
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{kib}: {message}");
        assert!(message.contains("ulimit -v") && !message.contains("pools"), "{kib}: {message}");
    }
}

/// Whoever has it run by cargo has no program of that name.
#[test]
fn a_command_to_type_is_written_as_the_program_was_started() {
    let said = |words: &[&str], package: Option<&str>| {
        let mut command = program(words);
        let output = package.iter().fold(&mut command, |command, package| command.env("CARGO_PKG_NAME", package));
        let output = output.output().expect("the program can be started");
        [text(&output.stdout), text(&output.stderr)].concat()
    };
    for (words, plain, by_cargo) in [
        (&["perf"][..], "try 'cutthrough perf lat'", "try 'cargo run --release -- perf lat'"),
        (&["perf", "lat", "--peer", "shm:nobody"], "'cutthrough perf serve", "'cargo run --release -- perf serve"),
        (&["info"], "Next: cutthrough demo\n", "Next: cargo run --release -- demo\n"),
    ] {
        for (package, expected) in [(None, plain), (Some("their-own"), plain), (Some("cutthrough-cli"), by_cargo)] {
            let said = said(words, package);
            assert!(said.contains(expected), "{words:?} {package:?}: {said}");
        }
    }
}

#[test]
fn help_and_version_are_exit_code_0_on_standard_output() {
    for words in [&["--help"][..], &["perf", "lat", "--help"], &["--version"]] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
}

/// No address space has room for a stack so long, so that each thread is refused.
#[test]
fn where_there_are_no_more_threads_nothing_panics_or_hangs() {
    for words in [
        &["sim", "T1", "N2"][..],
        &["sim", "fault", "--seeds", "2"],
        &["perf", "limits", "--seconds", "0.01"],
        &["perf", "lat", "--size", "64", "--seconds", "0.01"],
        &["perf", "incast", "--senders", "2", "--seconds", "0.01", "--adapter", "udp", "--insecure"],
    ] {
        let output =
            program(words).env("RUST_MIN_STACK", (1_u64 << 46).to_string()).output().expect("it can be started");
        let message = text(&output.stderr);
        assert!(!message.contains("panicked"), "{words:?}: {message}");
        assert!(matches!(output.status.code(), Some(0 | 2)), "{words:?}: {message}");
    }
}

#[test]
fn info_is_one_object() {
    let output = run(&["info", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 1);
    let info: serde_json::Value = serde_json::from_str(lines[0]).expect("JSON");
    assert_eq!(info["adapters"][0]["name"], "shm");
    // What two programs have to have in common.
    assert_eq!(info["wire_version"], u64::from(cutthrough::WIRE_VERSION));
    assert_eq!(info["frame_version"], u64::from(cutthrough::FRAME_VERSION));
}

#[test]
fn limits_are_lines_of_json_and_text_for_people_is_elsewhere() {
    let limits = ["null_syscall", "memcpy_1core", "futex_wake_same_core"];
    let options = ["--size", "64,8KiB", "--seconds", "0.01", "--json"];
    let output = run(&[&["perf", "limits"][..], &limits, &options].concat());
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| line["limit"].as_str()).collect();
    assert_eq!(names, ["null_syscall", "memcpy_1core", "memcpy_1core", "futex_wake_same_core"]);
    assert!(lines.iter().all(|line| line["test"] == "limits" && line["p50_ns"].is_number()));
    assert!(text(&output.stderr).contains("null_syscall"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = program(&["perf", "limits", "null_syscall", "--seconds", "0.01"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

/// Keys of both kinds, which the library reads, and which nobody else can.
#[test]
fn a_key_file_is_made_once_and_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let [shared, own] = ["shared", "own"].map(|name| {
        let path = std::env::temp_dir().join(format!("program-test-{}-{name}.key", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    });
    let words = |path: &std::path::Path| ["key".to_owned(), path.display().to_string()];
    let made = program(&[]).args(words(&shared)).output().expect("the program");
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let text_of = |path| std::fs::read_to_string(path).expect("a key file");
    assert!(cutthrough::Keys::from_text(&text_of(&shared)).is_ok() && text_of(&shared).starts_with("psk:"));
    let before = text_of(&shared);
    let again = program(&[]).args(words(&shared)).output().expect("the program");
    assert_eq!(again.status.code(), Some(2));
    let message = text(&again.stderr);
    assert!(message.lines().count() == 1 && message.contains("exists; name another file"), "{message}");
    assert_eq!(text_of(&shared), before);

    let made = program(&[]).args(words(&own)).arg("--static").output().expect("the program");
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let hex = text_of(&own).trim().strip_prefix("private:").expect("a private key").to_owned();
    let private = cutthrough::PrivateKey::from_hex(&hex).expect("its digits");
    assert_eq!(text(&made.stdout).trim(), private.public().line());
    for path in [&shared, &own] {
        assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(path).expect("a file");
    }
}

/// The disk is full, as far as this process goes: a file of no bytes would be no key, and in the way of one.
#[test]
fn a_key_file_that_cannot_be_written_is_not_left() {
    let path = std::env::temp_dir().join(format!("program-test-{}-full.key", std::process::id()));
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 0; exec \"$0\" key \"$1\"", env!("CARGO_BIN_EXE_cutthrough")]);
    let output = shell.arg(&path).output().expect("a shell can be started");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.lines().count() == 1 && message.contains("File too large"), "{message}");
    assert!(!path.exists());
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("program-test-{}-open.key", std::process::id()));
    let name = path.display().to_string();
    assert!(run(&["key", &name]).status.success());
    for mode in [0o644, 0o640, 0o660, 0o604] {
        set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        for words in [["perf", "lat", "--peer"], ["perf", "serve", "--listen"]] {
            // A server would not end where it could serve.
            let output = run(&[&words[..], &["udp:192.0.2.1:0", "--key", &name]].concat());
            assert_eq!(output.status.code(), Some(2));
            let expected = format!(
                "cutthrough: others may read or change the key file {name} (mode {mode:o}); run 'chmod 600 {name}', or \
                 make a new key with 'cutthrough key'\n"
            );
            assert_eq!(text(&output.stderr), expected);
        }
    }
    // One of another user's may be for a group, which may not change it.
    if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
        for (mode, refused) in [(0o640, false), (0o660, true), (0o644, true)] {
            set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
            let output = run(&["perf", "lat", "--peer", "udp:192.0.2.1:0", "--key", &name]);
            let said = text(&output.stderr);
            assert_eq!(said.contains(&format!("run 'chmod 640 {name}'")), refused, "{mode:o}: {said}");
        }
    }
    std::fs::remove_file(&path).expect("it was made");
}
