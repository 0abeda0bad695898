//! `cutthrough run`: what ranks say where it cannot be written, where nobody reads it, and where it has no end.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::process::Signal;

use crate::folder::{Folder, Running, kill};
use crate::run::run;

#[test]
fn output_that_cannot_be_written_is_told() {
    let folder = Folder::new("said-full");
    // The rank is still there when that is found, or has ended well.
    for script in ["echo hello; sleep 600", "echo hello"] {
        for options in [&["run"][..], &["--json", "run"]] {
            let mut command = folder.program(&[options, &["--", "sh", "-c", script]].concat());
            let full = File::options().write(true).open("/dev/full").expect("the device that is always full");
            let (code, said) = Running::of(command.stdout(full)).end();
            assert_eq!(code, Some(2), "{script}: {said}");
            let told = "cutthrough: cannot write the output: No space left on device (os error 28); check where \
                        standard output goes\n";
            assert_eq!(said, told, "{script}");
        }
    }
}

/// What a rank has said last may have no line's end, and what it has left behind still has its output.
#[test]
fn the_last_words_of_a_rank_are_told_though_its_output_has_no_end() {
    let folder = Folder::new("said-last");
    let (code, said, errors) = run(&folder, &["-n", "1"], "setsid sleep 30 & sleep 0.3; printf done; printf why >&2");
    assert_eq!((code, said.as_str(), errors.as_str()), (Some(0), "[0] done\n", "[0] why\n"));
    // A line that is said in parts is one, however long the rank thinks in between.
    let (_, said, _) = run(&folder, &["-n", "1"], "printf one; sleep 0.5; echo ' line'");
    assert_eq!(said, "[0] one line\n");
}

/// Both streams go to one reader, who reads neither of them.
#[test]
fn nobody_waits_for_a_reader_of_errors_who_has_interrupted() {
    let folder = Folder::new("said-unread");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = folder.program(&["run", "--", "sh", "-c", "yes >&2 & yes"]);
    command.stdout(writer.try_clone().expect("its other end")).stderr(writer);
    let mut starter = command.spawn().expect("it can be started");
    drop(command);
    std::thread::sleep(Duration::from_secs(1));
    kill(starter.id(), Signal::TERM);
    let code = ended(&mut starter);
    drop(reader);
    assert_eq!(code, Some(Some(1)));
}

/// What the starter says itself, that a rank has failed, finds no room, and nobody reads.
#[test]
fn who_waits_for_a_reader_of_errors_can_be_ended() {
    let folder = Folder::new("said-failed");
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    ioctl_fionbio(&writer, true).expect("it can be told not to block");
    while writer.write(b"x").is_ok() {}
    ioctl_fionbio(&writer, false).expect("it can be told to block");
    let mut command = folder.program(&["run", "--", "sh", "-c", "exit 3"]);
    let mut starter = command.stderr(writer).spawn().expect("it can be started");
    std::thread::sleep(Duration::from_secs(1));
    assert!(starter.try_wait().expect("it can be waited for").is_none(), "it has somehow said why");
    kill(starter.id(), Signal::TERM);
    assert_eq!(ended(&mut starter), Some(None));
}

/// How a process ends within some seconds; it is killed if it does not.
fn ended(process: &mut std::process::Child) -> Option<Option<i32>> {
    for _ in 0..1000 {
        if let Some(status) = process.try_wait().expect("it can be waited for") {
            return Some(status.code());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    process.kill().expect("it runs");
    process.wait().expect("it has ended");
    None
}

#[test]
fn too_little_memory_for_threads_is_said_to_be_the_cause() {
    let folder = Folder::new("said-threads");
    let mut shell = Command::new("sh");
    let script = "ulimit -v 200000; exec \"$0\" run -n 100 -- sleep 5";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_cutthrough")]);
    let output = folder.told(&mut shell).output().expect("a shell can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let [told] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(told.starts_with("cutthrough: the ranks cannot be started: ") && told.contains("memory"), "{said}");
}

/// A line that is longer than what is forwarded as one is told as several, of which each is text.
#[test]
fn no_letter_is_cut_in_two() {
    let folder = Folder::new("said-long");
    // The 65,536th byte is the first of a letter's two.
    let script = "printf x; yes \u{e9} | head -n 40000 | tr -d '\\n'";
    let output = folder.run(&["--json", "run", "--", "sh", "-c", script]);
    let lines = String::from_utf8(output.stdout).expect("output is UTF-8");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let texts: Vec<&str> = lines.iter().filter_map(|line| line["line"].as_str()).collect();
    assert_eq!(texts.iter().map(|text| text.len()).collect::<Vec<_>>(), [65_535, 14_466]);
    assert_eq!(texts.concat(), format!("x{}", "\u{e9}".repeat(40_000)));
}
