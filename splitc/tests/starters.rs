//! Ranks that a real starter of MPI programs has started: what it says in their environment is all that they know.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cutthrough_conform::skipped;

/// A program, its size, and what it says: one that stores in bulk, one in short messages, and one with barriers in each
/// of its rounds.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("sample_sort", "bulk 50001", "sample sort, bulk"),
    ("radix_sort", "small 5001", "radix sort, short messages"),
    ("gradient", "37 40", "conjugate gradient"),
];
const RANKS: &str = "3";

/// A starter: its names, what its version has in it, and what it wants to hear.
struct Starter {
    name: &'static str,
    programs: [&'static str; 2],
    says: &'static [&'static str],
    options: &'static [&'static str],
}

const OPEN_MPI: Starter = Starter {
    name: "Open MPI",
    programs: ["mpirun.openmpi", "mpirun"],
    says: &["OpenRTE", "Open MPI"],
    // More ranks than cores, and whoever runs the tests may be root.
    options: &["--allow-run-as-root", "--oversubscribe"],
};
const MPICH: Starter =
    Starter { name: "MPICH", programs: ["mpiexec.hydra", "mpiexec"], says: &["HYDRA"], options: &[] };

/// Where cargo has built an example, next to the folder of this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let built = test.parent().and_then(|deps| deps.parent()).map(|profile| profile.join("examples").join(name));
    built.filter(|path| path.exists()).expect("`cargo test` builds the examples, too")
}

impl Starter {
    /// Its program; none, with the reason said, where it is not installed.
    fn program(&self) -> Option<&'static str> {
        let is_it = |program: &&str| {
            let asked = Command::new(program).arg("--version").stdin(Stdio::null()).output();
            let said = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            self.says.iter().any(|word| said.contains(word))
        };
        let found = self.programs.into_iter().find(is_it);
        if found.is_none() {
            skipped(format_args!("{} is not installed here; {} would be tried", self.name, self.programs.join(" or ")));
        }
        found
    }

    /// Starts an example as ranks.
    fn start(&self, program: &str, name: &str, words: &str) -> Child {
        let mut command = Command::new(program);
        // What has started this test may be such a starter, too: that is none of theirs.
        for (name, _) in std::env::vars_os() {
            let known = ["CUTTHROUGH_", "PMI", "OMPI_", "SLURM_", "MPI_"];
            if known.iter().any(|of| name.to_string_lossy().starts_with(of)) {
                command.env_remove(name);
            }
        }
        // Ranks that do not find each other end by themselves, and with them the starter.
        command.envs([("CUTTHROUGH_START", "20"), ("CUTTHROUGH_DEADLINE", "30")]);
        command.args(self.options).args(["-n", RANKS]).arg(example(name)).args(words.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
    }

    /// Each program is one world of all ranks; two at the same time are two.
    fn starts_programs(&self) {
        let Some(program) = self.program() else { return };
        for (name, words, what) in PROGRAMS {
            let both = [(); 2].map(|()| self.start(program, name, words));
            for output in both.map(|started| started.wait_with_output().expect("its output")) {
                let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                assert!(output.status.success(), "{}, {what}: {said}{errors}", self.name);
                // Rank 0 alone says something.
                let right = said.starts_with(&format!("{what}: ")) && said.ends_with(", verified\n");
                assert!(right && said.contains(&format!(" on {RANKS} ranks, ")), "{}: {said}", self.name);
                assert_eq!(said.lines().count(), 1, "{}: {said}", self.name);
            }
        }
        // That ranks have failed is heard of where they were started.
        let failed = self.start(program, "sample_sort", "large").wait_with_output().expect("its output");
        let errors = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && errors.contains("the first argument is small or bulk"), "{errors}");
    }
}

#[test]
fn ranks_of_open_mpi_find_each_other() {
    OPEN_MPI.starts_programs();
}

#[test]
fn ranks_of_mpich_find_each_other() {
    MPICH.starts_programs();
}
