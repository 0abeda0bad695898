//! `cutthrough run`: ranks, what they say, how they end, and that nothing is left of them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::folder::{Folder, Running, kill, parent, runs, until};

const LOOPBACK: &str = "127.0.0.1";

/// Runs a shell script in every rank: exit code, standard output, standard error.
pub(crate) fn run(folder: &Folder, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let words = [&["run"], options, &["--", "sh", "-c", script]].concat();
    let output = folder.run(&words);
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_know_who_they_are_and_every_line_says_who_spoke() {
    let folder = Folder::new("run-lines");
    let script = "echo $CUTTHROUGH_RANK of $CUTTHROUGH_SIZE; echo to you >&2; printf 'no end'";
    let (code, said, errors) = run(&folder, &["-n", "3"], script);
    assert_eq!(code, Some(0), "{errors}");
    let expected = ["[0] 0 of 3", "[0] no end", "[1] 1 of 3", "[1] no end", "[2] 2 of 3", "[2] no end"];
    assert_eq!(sorted(&said), expected);
    assert_eq!(sorted(&errors), ["[0] to you", "[1] to you", "[2] to you"]);
    let output = folder.run(&["--json", "run", "-n", "1", "--", "echo", "hello"]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!(line, serde_json::json!({ "rank": 0, "stream": "stdout", "line": "hello" }));
}

/// Long lines mixed where both streams went to one pipe that was read slowly.
#[test]
fn long_lines_are_whole_where_both_streams_are_one() {
    let folder = Folder::new("run-long-lines");
    let line = "for i in 1 2 3 4 5 6 7 8; do head -c 30000 /dev/zero | tr '\\0' ";
    let script = format!("({line} a; echo; done) & ({line} b; echo; done) >&2; wait");
    let (mut read, write) = std::io::pipe().expect("a pipe");
    let mut command = folder.program(&["run", "-n", "2", "--", "sh", "-c", &script]);
    let child = command.stdout(write.try_clone().expect("a descriptor")).stderr(write).spawn();
    let mut child = child.expect("it starts");
    drop(command);
    std::thread::sleep(Duration::from_millis(300));
    let mut said = String::new();
    read.read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("it ends").success());
    let one_of = |line: &str| line.len() == 30004 && ["a", "b"].iter().any(|letter| line[4..] == letter.repeat(30000));
    assert_eq!(said.lines().filter(|line| one_of(line)).count(), 32);
}

/// Ranks that were ended because nobody read on had ended well.
#[test]
fn ranks_that_are_ended_with_their_reader_have_not_ended_well() {
    let folder = Folder::new("run-reader");
    let mut command = folder.program(&["run", "-n", "2", "--", "yes"]);
    let mut starter = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = [0; 6];
    starter.stdout.take().expect("it was asked for").read_exact(&mut first).expect("a line");
    assert!(first.ends_with(b"] y\n"));
    let output = starter.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said, "cutthrough: nobody reads what ranks say any more; all ranks were ended\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn all_end_with_the_first_that_fails_and_it_is_named() {
    let folder = Folder::new("run-fails");
    let (code, said, errors) = run(&folder, &["-n", "3"], "[ $CUTTHROUGH_RANK = 1 ] && exit 7; sleep 600 & wait");
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert_eq!(errors, "cutthrough: rank 1 ended with exit code 7; all others were ended\n");
    // Another one may hear of its end, and end for it, before it is known to have ended.
    let pipe = std::env::temp_dir().join(format!("run-fails-{}", std::process::id()));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    let script = pipe.display();
    let sooner =
        format!("[ $CUTTHROUGH_RANK = 1 ] && {{ echo now > {script}; kill -9 $$; }}; read now < {script}; exit 1");
    for first in ["[ $CUTTHROUGH_RANK = 1 ] && kill -9 $$", &sooner] {
        let (code, _, errors) = run(&folder, &["-n", "2"], &format!("{first}; sleep 600 & wait"));
        assert_eq!(code, Some(1));
        assert_eq!(errors, "cutthrough: rank 1 was ended by signal 9 (SIGKILL); all others were ended\n");
    }
    fs::remove_file(&pipe).expect("it was made");
}

/// A run whose standard output nobody reads yet, of a rank that says more than a pipe holds.
fn unread(folder: &Folder) -> (std::process::Child, std::process::ChildStdout) {
    let mut command = folder.program(&["run", "-n", "1", "--", "seq", "1", "18000"]);
    let mut starter = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let out = starter.stdout.take().expect("it was asked for");
    std::thread::sleep(Duration::from_secs(2));
    (starter, out)
}

#[test]
fn all_that_was_said_reaches_a_reader_that_is_slow() {
    let folder = Folder::new("run-slow");
    let (mut starter, mut out) = unread(&folder);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut out, &mut said).expect("output is UTF-8");
    assert!(starter.wait().expect("it has ended").success());
    assert_eq!(said.lines().last(), Some("[0] 18000"), "{} lines", said.lines().count());
}

#[test]
fn nobody_waits_for_a_reader_who_has_interrupted() {
    let folder = Folder::new("run-unread");
    let (mut starter, _out) = unread(&folder);
    // Not SIGINT, which may be ignored since these tests were started, and is then.
    kill(starter.id(), Signal::TERM);
    assert_eq!(starter.wait().expect("it has ended").code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut starter.stderr.take().expect("it was asked for"), &mut said).expect("UTF-8");
    assert_eq!(said, "cutthrough: interrupted; not all that was said was read\n");
}

/// `nohup` has a signal ignored, and so do shells for what they start in the background.
#[test]
fn a_signal_that_was_ignored_at_the_start_ends_nothing() {
    let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("run-nohup-notes-{}", std::process::id()));
    fs::create_dir_all(&notes).expect("a folder");
    let words = "trap '' HUP INT; exec \"$0\" run -n 1 -- sh -c \"echo \\$\\$ >$1/rank; while ! [ -e $1/go ]; do \
                 sleep 0.05; done\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", words, env!("CARGO_BIN_EXE_cutthrough")]).arg(&notes).stdin(Stdio::null());
    let mut starter = command.spawn().expect("it can be started");
    named(&notes, 1);
    kill(starter.id(), Signal::HUP);
    kill(starter.id(), Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    fs::write(notes.join("go"), "").expect("a file");
    assert_eq!(starter.wait().expect("it has ended").code(), Some(0));
    let _ = fs::remove_dir_all(&notes);
}

/// What has left its rank's group has the rank's output still, and talks on.
#[test]
fn what_a_rank_leaves_behind_is_not_listened_to_for_ever() {
    let folder = Folder::new("run-talks-on");
    let (code, said, errors) = run(&folder, &["-n", "1"], "echo first; setsid yes & sleep 0.3");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(said.starts_with("[0] first\n"));
}

#[test]
fn what_cannot_run_is_told_before_anything_is_started() {
    let folder = Folder::new("run-cannot");
    let refused = |words: &[&str]| folder.refuses(words);
    let no_program = refused(&["run", "-n", "2", "--", "there-is-no-such-program"]);
    assert_eq!(no_program, "cutthrough: there is no program there-is-no-such-program; check its name\n");
    let no_right = refused(&["run", "-n", "2", "--", "/etc/passwd"]);
    assert!(no_right.starts_with("cutthrough: /etc/passwd is no file that may be executed; chmod +x it"), "{no_right}");
    assert!(refused(&["run", "-n", "2"]).contains("PROGRAM"));
    assert!(refused(&["run", "-n", "0", "--", "true"]).contains("write a number from 1 to 4096"));
    let no_file = refused(&["run", "--hosts", "/nonexistent", "--", "true"]);
    assert!(
        no_file.starts_with("cutthrough: /nonexistent: ") && no_file.ends_with("a host on each line\n"),
        "{no_file}"
    );
}

#[test]
fn a_program_whose_interpreter_is_missing_cannot_be_started() {
    let folder = Folder::new("run-shebang");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("run-shebang-{}.sh", std::process::id()));
    fs::write(&program, "#!/nonexistent/interpreter\n").expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its mode");
    let name = program.display().to_string();
    let output = folder.run(&["run", "-n", "1", "--", &name]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let [why, what] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(why.starts_with(&format!("[0] cutthrough: {name}: No such file")), "{said}");
    assert_eq!(what, "cutthrough: rank 0 could not be started; see what it says");
    // A program that ends so itself has failed.
    let (code, _, errors) = run(&folder, &["-n", "1"], "exit 2");
    assert_eq!((code, &errors[..]), (Some(1), "cutthrough: rank 0 ended with exit code 2; all others were ended\n"));
    let _ = fs::remove_file(&program);
}

/// Processes that ranks have named by writing their numbers into files of a folder.
fn named(folder: &PathBuf, count: usize) -> Vec<u32> {
    let mut found = Vec::new();
    until("the ranks have written their numbers", || {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        found = files.filter_map(|file| fs::read_to_string(file.path()).ok()?.trim().parse().ok()).collect();
        found.len() == count
    });
    found
}

#[test]
fn nothing_is_left_when_the_starter_ends_in_any_way() {
    for (test, signal) in [("run-killed", Signal::KILL), ("run-terminated", Signal::TERM)] {
        let folder = Folder::new(test);
        let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-notes-{}", std::process::id()));
        fs::create_dir_all(&notes).expect("a folder");
        // Each rank has a child of its own.
        let script = format!(
            "cd {}; echo $$ >rank-$$.new; sleep 600 & echo $! >child-$$; mv rank-$$.new rank-$$; wait",
            notes.display()
        );
        let starter = folder.start(&["run", "-n", "2", "--", "sh", "-c", &script]);
        let left = named(&notes, 4);
        assert!(left.iter().all(|pid| runs(*pid)));
        kill(starter.pid(), signal);
        let (code, said) = starter.end();
        if signal == Signal::TERM {
            assert_eq!((code, said.as_str()), (Some(1), "cutthrough: interrupted; all ranks were ended\n"));
        }
        until("ranks and their children have ended", || left.iter().all(|pid| !runs(*pid)));
        let _ = fs::remove_dir_all(&notes);
    }
}

#[test]
fn the_names_of_ranks_that_were_killed_are_removed() {
    let program = env!("CARGO_BIN_EXE_cutthrough");
    let name = "rank-$CUTTHROUGH_RANK";
    let listen =
        format!("{program} perf serve --listen shm:{name} >/dev/null & until [ -S $CUTTHROUGH_DIR/{name}.sock ]");
    let listen = format!("{listen}; do sleep 0.01; done");
    let folder = Folder::new("run-names");
    let (code, _, errors) = run(&folder, &["-n", "2"], &format!("{listen}; kill -9 $!; kill -9 $$"));
    assert_eq!(code, Some(1), "{errors}");
    assert!(!["rank-0", "rank-1"].iter().any(|name| folder.has(&format!("{name}.sock"))), "at once");
    folder.wait_until_empty();
    // And of those that end with their starter, whoever ends that.
    let starter = folder.start(&["run", "-n", "2", "--", "sh", "-c", &format!("{listen}; wait")]);
    until("the ranks listen", || folder.has("rank-0.sock") && folder.has("rank-1.sock"));
    kill(starter.pid(), Signal::KILL);
    folder.wait_until_empty();
}

/// The group of a rank that has ended is signalled at the end of all: its number must not have gone to another by then.
#[test]
fn the_number_of_a_rank_that_has_ended_is_kept_until_all_have() {
    let folder = Folder::new("run-kept");
    let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("run-kept-notes-{}", std::process::id()));
    fs::create_dir_all(&notes).expect("a folder");
    let script = format!(
        "cd {}; echo $$ >rank-$CUTTHROUGH_RANK; [ $CUTTHROUGH_RANK = 0 ] && exit
         while ! [ -e go ]; do sleep 0.05; done",
        notes.display()
    );
    let starter = folder.start(&["run", "-n", "2", "--", "sh", "-c", &script]);
    named(&notes, 2);
    let first = fs::read_to_string(notes.join("rank-0")).expect("its number").trim().parse().expect("a number");
    until("the first rank has ended", || !runs(first));
    // The starter hears of it at once. It has time for that, and takes its number back at no time.
    for _ in 0..100 {
        assert_eq!(parent(first), Some(starter.pid()), "the number of a rank was given back while others run");
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::write(notes.join("go"), "").expect("a file");
    assert_eq!(starter.end(), (Some(0), String::new()));
    assert_eq!(parent(first), None, "the starter leaves the number to nobody");
    let _ = fs::remove_dir_all(&notes);
}

/// A folder with a program `ssh` that runs what it is told on this machine, or does something else; and a file of two
/// hosts.
fn fake_ssh(test: &str, body: &str, addresses: [&str; 2]) -> (PathBuf, String) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-ssh-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let ssh = folder.join("ssh");
    fs::write(&ssh, format!("#!/bin/sh\nwhile [ \"$1\" = -o ]; do shift 2; done\nhost=$1; shift\n{body}\n"))
        .expect("a file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("its mode");
    let hosts = folder.join("hosts");
    let [alpha, beta] = addresses;
    fs::write(&hosts, format!("alpha {alpha}\nbeta {beta}\n")).expect("a file");
    (folder, hosts.display().to_string())
}

fn run_by_ssh(test: &str, body: &str, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    run_at_hosts(test, body, [LOOPBACK; 2], options, &["sh", "-c", script])
}

/// Runs a program at two hosts that have these addresses and are this machine.
pub(crate) fn run_at_hosts(
    test: &str,
    ssh: &str,
    addresses: [&str; 2],
    options: &[&str],
    program: &[&str],
) -> (Option<i32>, String, String) {
    let folder = Folder::new(test);
    let (path, hosts) = fake_ssh(test, ssh, addresses);
    let words = [&["run", "--hosts", &hosts], options, &["--"], program].concat();
    let mut command = folder.program(&words);
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", paths).stdout(Stdio::piped()).output().expect("the program can be started");
    let _ = fs::remove_dir_all(&path);
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What the starter says itself. The shell of another rank may see its child die before it dies itself, and say so.
fn own(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| !line.starts_with("[0] ")).collect()
}

#[test]
fn ranks_are_started_on_hosts() {
    let script = "echo \"it's $CUTTHROUGH_RANK at $CUTTHROUGH_ADDRESSES, ${#CUTTHROUGH_KEY}\"";
    let (code, said, errors) = run_by_ssh("run-hosts", "exec \"$@\"", &["-n", "3", "--port", "7500"], script);
    assert_eq!(code, Some(0), "{errors}");
    let at = "udp:127.0.0.1:7500,udp:127.0.0.1:7501,udp:127.0.0.1:7502, 69";
    assert_eq!(sorted(&said), [0, 1, 2].map(|rank| format!("[{rank}] it's {rank} at {at}")));
}

#[test]
fn ranks_on_hosts_have_the_deadline_of_the_starter() {
    let folder = Folder::new("run-hosts-deadline");
    // A host knows nothing of the starter's environment.
    let (path, hosts) = fake_ssh("run-hosts-deadline", "exec env -u CUTTHROUGH_DEADLINE \"$@\"", [LOOPBACK; 2]);
    let words = ["run", "--hosts", &hosts, "--", "sh", "-c", "echo $CUTTHROUGH_DEADLINE"];
    let mut command = folder.program(&words);
    command.env("PATH", format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default()));
    let output = command.env("CUTTHROUGH_DEADLINE", "7.5").output().expect("the program can be started");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[0] 7.5\n");
    let _ = fs::remove_dir_all(&path);
}

#[test]
fn a_rank_that_fails_on_its_host_is_named() {
    let script = "[ $CUTTHROUGH_RANK = 1 ] && exit 3; sleep 600";
    let (code, _, errors) = run_by_ssh("run-hosts-fail", "exec setsid -w \"$@\"", &["-n", "2"], script);
    assert_eq!(code, Some(1));
    assert_eq!(own(&errors), ["cutthrough: rank 1 on beta ended with exit code 3; all others were ended"], "{errors}");
}

/// What stands in front of the mark is a line of its own; `a_rank_that_fails_on_its_host_is_named` is without it.
#[test]
fn a_host_that_says_half_a_line_hides_no_start() {
    let (code, said, errors) = run_by_ssh("run-hosts-half", "printf welcome\nexec \"$@\"", &["-n", "1"], "exit 3");
    assert_eq!(own(&errors), ["cutthrough: rank 0 on alpha ended with exit code 3; all others were ended"]);
    assert_eq!((code, said.lines().next()), (Some(1), Some("[0] welcome")), "{said}");
}

#[test]
fn a_host_that_cannot_be_reached_is_named() {
    let ssh = "[ $host = beta ] && { echo no route >&2; exit 255; }\nexec setsid -w \"$@\"";
    let (code, _, errors) = run_by_ssh("run-hosts-none", ssh, &["-n", "2"], "sleep 600");
    assert_eq!(code, Some(2));
    let says = "cutthrough: rank 1 could not be started on beta: ssh ended with exit code 255; check that \
                'ssh beta true' works without being asked anything, and that the program is there";
    assert!(errors.lines().any(|line| line == says) && errors.lines().any(|line| line == "[1] no route"), "{errors}");
}

#[test]
fn a_rank_that_never_starts_is_named() {
    let ssh = "[ $host = beta ] && exec sleep 600\nexec \"$@\"";
    let (code, _, errors) = run_by_ssh("run-hosts-late", ssh, &["-n", "2", "--start", "0.5"], "sleep 600");
    assert_eq!(code, Some(2));
    let says = "cutthrough: rank 1 has not started on beta within 500ms; check that 'ssh beta true' works without \
                being asked anything, or raise --start";
    assert_eq!(own(&errors), [says], "{errors}");
}

/// What a host is told may be longer than what a pipe holds, and the host may never read it.
#[test]
fn a_host_that_reads_nothing_is_not_waited_for() {
    let folder = Folder::new("run-hosts-deaf");
    let (path, hosts) = fake_ssh("run-hosts-deaf", "exec sleep 600", [LOOPBACK; 2]);
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
    let long = "x".repeat(100_000);
    let started = |seconds| {
        let words = ["run", "--hosts", &hosts, "--start", seconds, "--", "echo", &long];
        Running::of(folder.program(&words).env("PATH", &paths).stdout(Stdio::null()))
    };
    let (code, said) = started("0.5").end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.starts_with("cutthrough: rank 0 has not started on alpha within 500ms; "), "{said}");
    let waits = started("60");
    std::thread::sleep(Duration::from_secs(1));
    kill(waits.pid(), Signal::TERM);
    assert_eq!(waits.end(), (Some(1), "cutthrough: interrupted; all ranks were ended\n".to_owned()));
    let _ = fs::remove_dir_all(&path);
}

#[test]
fn a_host_that_reads_slowly_is_told_all() {
    let long = "x".repeat(100_000);
    let options = ["-n", "1", "--start", "20"];
    let ssh = "sleep 0.5\nexec \"$@\"";
    let program = ["sh", "-c", "printf %s \"$1\" | wc -c", "sh", &long];
    let (code, said, errors) = run_at_hosts("run-hosts-slow", ssh, [LOOPBACK; 2], &options, &program);
    assert_eq!((code, said.trim()), (Some(0), "[0] 100000"), "{errors}");
}

#[test]
fn a_word_that_no_host_can_be_told_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Folder::new("run-hosts-words");
    let (path, hosts) = fake_ssh("run-hosts-words", "exec \"$@\"", [LOOPBACK; 2]);
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = folder.program(&["run", "--hosts", &hosts, "--", "echo"]);
    command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9")).env("PATH", &paths);
    let output = command.output().expect("the program can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{said}");
    assert!(said.starts_with("cutthrough: \"caf\\xE9\" is not UTF-8; "), "{said}");
    let _ = fs::remove_dir_all(&path);
}

/// Starters in two containers that share the folder of names may have one number.
#[test]
fn the_names_of_two_jobs_differ_by_more_than_the_number_of_the_starter() {
    let folder = Folder::new("run-job");
    let ends = [(); 2].map(|()| {
        let (code, said, errors) = run(&folder, &["-n", "1"], "echo $CUTTHROUGH_JOB $PPID");
        assert_eq!(code, Some(0), "{errors}");
        let (job, starter) = said.trim().strip_prefix("[0] ").and_then(|said| said.split_once(' ')).expect("both");
        let end = job.strip_prefix(&format!("run-{starter}-")).unwrap_or_else(|| panic!("{said}"));
        assert!(end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
        end.to_owned()
    });
    assert_ne!(ends[0], ends[1]);
}

#[test]
fn ranks_on_hosts_end_with_the_starter() {
    let folder = Folder::new("run-hosts-killed");
    let (path, hosts) = fake_ssh("run-hosts-killed", "exec setsid -w \"$@\"", [LOOPBACK; 2]);
    let notes = path.join("notes");
    fs::create_dir_all(&notes).expect("a folder");
    let script = format!("cd {}; sleep 600 & echo $! >child-$$; echo $$ >rank-$$; wait", notes.display());
    let mut command = folder.program(&["run", "-n", "2", "--hosts", &hosts, "--", "sh", "-c", &script]);
    command.env("PATH", format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default()));
    let mut starter = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program can be started");
    let left = named(&notes, 4);
    kill(starter.id(), Signal::KILL);
    starter.wait().expect("it has ended");
    until("ranks and their children have ended", || left.iter().all(|pid| !runs(*pid)));
    let _ = fs::remove_dir_all(&path);
}

/// Processes that have something of a run in their environment.
fn of_runs(starters: &[u32]) -> Vec<u32> {
    let marks: Vec<String> = starters.iter().map(|pid| format!("CUTTHROUGH_JOB=run-{pid}-")).collect();
    let is_one = |pid: &u32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&variables);
        marks.iter().any(|mark| text.contains(mark))
    };
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

/// One host fails while the shell of the other is anywhere: before its rank, between that and what ends it, behind.
#[test]
fn nothing_is_left_on_a_host_when_another_fails_at_once() {
    let folder = Folder::new("run-hosts-early");
    let ssh = "[ $host = beta ] && { sleep 0.00$SOON; exit 255; }\nexec setsid -w \"$@\"";
    let (path, hosts) = fake_ssh("run-hosts-early", ssh, [LOOPBACK; 2]);
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
    let mut starters = Vec::new();
    for soon in 0..40 {
        let mut command = folder.program(&["run", "-n", "2", "--hosts", &hosts, "--", "sleep", "600"]);
        command.env("PATH", &paths).env("SOON", (soon % 10).to_string());
        let mut starter = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be started");
        starters.push(starter.id());
        starter.wait().expect("it has ended");
    }
    std::thread::sleep(Duration::from_millis(300));
    let left = of_runs(&starters);
    left.iter().for_each(|pid| kill(*pid, Signal::KILL));
    assert!(left.is_empty(), "{left:?} are left of {} runs", starters.len());
    let _ = fs::remove_dir_all(&path);
}

#[test]
fn two_namespaces_have_the_ranks_in_turn() {
    let folder = Folder::new("run-veth");
    let (code, said, errors) =
        run(&folder, &["-n", "3", "--veth", "9000"], "readlink /proc/self/ns/net; echo $CUTTHROUGH_ADDRESSES");
    if code == Some(2)
        && (errors.contains("network namespaces") || errors.contains("iproute2") || errors.contains("veth"))
    {
        crate::skipped(format_args!("no veth pair: {errors}"));
        return;
    }
    assert_eq!(code, Some(0), "{errors}");
    let of = |rank: u32| -> Vec<String> {
        let mark = format!("[{rank}] ");
        said.lines().filter_map(|line| line.strip_prefix(&mark)).map(str::to_owned).collect()
    };
    let here = fs::read_link("/proc/self/ns/net").expect("a namespace").display().to_string();
    assert!(of(0)[0] == of(2)[0] && of(0)[0] != of(1)[0] && of(0)[0] != here && of(1)[0] != here, "{said}");
    assert_eq!(of(0)[1], "udp:10.73.0.1:7400,udp:10.73.0.2:7401,udp:10.73.0.1:7402");
}
