//! The seven Split-C programs under `cutthrough run`: two ranks over shared memory, and over sealed UDP on loopback.

use std::path::PathBuf;

use crate::folder::Folder;
use crate::run::run_at_hosts;

/// Each program with small sizes that do not divide evenly, and what it calls itself.
const PROGRAMS: [(&str, &[&str], &str); 7] = [
    ("matmul", &["3", "17"], "matrix multiply"),
    ("sample_sort", &["small", "501"], "sample sort, short messages"),
    ("sample_sort", &["bulk", "5001"], "sample sort, bulk"),
    ("radix_sort", &["small", "501"], "radix sort, short messages"),
    ("radix_sort", &["bulk", "5001"], "radix sort, bulk"),
    ("components", &["31", "55"], "connected components"),
    ("gradient", &["17", "20"], "conjugate gradient"),
];

/// An example of `cutthrough-splitc`, as cargo has built it beside the program. A run of these tests alone does not.
fn example(name: &str) -> Option<PathBuf> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_cutthrough"));
    let path = program.with_file_name("examples").join(name);
    path.exists().then_some(path)
}

/// Runs all of them so, and looks at the line in which each says that it came to what a serial run comes to.
fn run_all(run: impl Fn(usize, &[&str]) -> (Option<i32>, String, String)) {
    for (number, (name, words, what)) in PROGRAMS.into_iter().enumerate() {
        let Some(program) = example(name) else {
            return crate::skipped("the programs are not built; 'cargo test --workspace' builds them");
        };
        let program = program.display().to_string();
        let (code, said, errors) = run(number, &[&[program.as_str()], words].concat());
        assert_eq!(code, Some(0), "{what}: {errors}");
        let line = said.strip_prefix(&format!("[0] {what}: ")).unwrap_or_else(|| panic!("{what}: {said:?}"));
        assert!(line.contains(" ms on 2 ranks, ") && line.ends_with(" x, verified\n"), "{what}: {said:?}");
        assert_eq!(line.lines().count(), 1, "{what}: {said:?}");
    }
}

#[test]
fn the_seven_programs_run_over_shared_memory() {
    let folder = Folder::new("seven");
    run_all(|_, program| {
        let output = folder.run(&[&["run", "-n", "2", "--"], program].concat());
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    });
}

#[test]
fn the_seven_programs_run_over_udp() {
    // A host of this process alone, and ports that the system gives nobody by itself.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{middle}.{low}", high + 1);
    run_all(|number, program| {
        let port = (7500 + 2 * number).to_string();
        run_at_hosts("seven-udp", "exec \"$@\"", [&host, &host], &["-n", "2", "--port", &port], program)
    });
}
