//! The seven programs, each as ranks that are processes: they compare themselves with a serial run, and say so.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// The seven, with sizes that do not divide evenly.
const PROGRAMS: [(&str, &str, &str); 7] = [
    ("matmul", "3 17", "matrix multiply"),
    ("sample_sort", "small 5001", "sample sort, short messages"),
    ("sample_sort", "bulk 50001", "sample sort, bulk"),
    ("radix_sort", "small 5001", "radix sort, short messages"),
    ("radix_sort", "bulk 50001", "radix sort, bulk"),
    ("components", "61 55", "connected components"),
    ("gradient", "37 40", "conjugate gradient"),
];

/// Where cargo has built an example, next to the folder of this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let built = test.parent().and_then(|deps| deps.parent()).map(|profile| profile.join("examples").join(name));
    built.filter(|path| path.exists()).expect("`cargo test` builds the examples, too")
}

/// Ranks that do not outlive the test.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs an example in so many processes, with variables for each: what they have said.
fn run(name: &str, words: &str, size: u32, job: &str) -> Vec<Output> {
    let addresses = format!("shm:{job}-{}-{{rank}}", std::process::id());
    let start = |rank: u32| {
        let mut command = Command::new(example(name));
        command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let variables = [("RANK", rank.to_string()), ("SIZE", size.to_string()), ("ADDRESSES", addresses.clone())];
        command.envs(variables.map(|(name, value)| (format!("CUTTHROUGH_{name}"), value)));
        command.spawn().expect("a process")
    };
    let mut ranks = Ranks((0..size).map(start).collect());
    std::mem::take(&mut ranks.0).into_iter().map(|child| child.wait_with_output().expect("its output")).collect()
}

#[test]
fn the_seven_programs_come_to_what_a_serial_run_comes_to() {
    for (number, (name, words, what)) in PROGRAMS.into_iter().enumerate() {
        for size in 1..=3 {
            let outputs = run(name, words, size, &format!("seven-{number}-{size}"));
            for (rank, output) in outputs.iter().enumerate() {
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{what}, rank {rank}: {}", String::from_utf8_lossy(&output.stderr));
                if rank == 0 {
                    let right = said.starts_with(&format!("{what}: ")) && said.ends_with(", verified\n");
                    assert!(right && said.contains(&format!(" on {size} ranks, ")), "{said}");
                } else {
                    assert_eq!(said, "", "{what}, rank {rank}");
                }
            }
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (name, words, says) in [
        ("matmul", "x", "argument 1, BLOCKS, cannot be"),
        ("matmul", "4 0", "BLOCKS and SIDE are at least 1"),
        ("sample_sort", "large", "the first argument is small or bulk"),
        ("components", "0", "SIDE has to be at least the number of ranks"),
    ] {
        let output = &run(name, words, 1, "wrong")[0];
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{words}");
    }
}
