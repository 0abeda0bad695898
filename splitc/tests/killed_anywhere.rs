//! A rank that is killed at any step of a program: every other one says who is gone. The ranks are this program itself.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use cutthrough_splitc::{Error, Op, World};

/// At which step rank 1 kills itself; where this is not set, nobody is a rank.
const STEP: &str = "KILLED_AT";
const KILLED: u32 = 1;
const SIZE: u32 = 3;
/// Steps of [`program`]; and the first at which all have met for sure.
const STEPS: u32 = 19;
const JOINED: u32 = 2;

/// What ranks do together. `at` is told of each step before it is taken, and between what is asked for and waited for.
fn program(at: impl Fn(u32)) -> Result<(), Error> {
    const LONG: usize = 1 << 17;
    at(0);
    let mut world = World::from_environment()?;
    at(1);
    world.barrier()?;
    at(2);
    let here = world.alloc::<u64>(LONG)?;
    at(3);
    let dealt = world.spread::<u64>(1000, 10)?;
    let next = here.on((world.rank() + 1) % world.size());
    at(4);
    world.put(next, 7)?;
    at(5);
    world.sync()?;
    at(6);
    let coming = world.get(next)?;
    at(7);
    world.take(coming)?;
    at(8);
    world.store_bulk(next, &vec![1; LONG])?;
    at(9);
    world.all_store_sync()?;
    at(10);
    let coming = world.get_bulk(next, LONG)?;
    at(11);
    world.release(coming)?;
    // Many, which go together.
    at(12);
    (0..1000).try_for_each(|i| world.put(dealt.place(i), 5))?;
    at(13);
    world.sync()?;
    let coming: Vec<_> = (0..1000).map(|i| world.get(dealt.place(i))).collect::<Result<_, _>>()?;
    at(14);
    coming.into_iter().try_for_each(|coming| world.take(coming).map(drop))?;
    at(15);
    world.broadcast(KILLED, 3_u32)?;
    at(16);
    world.reduce_bulk(Op::Sum, &mut [1_u64; 1000])?;
    at(17);
    world.scan(Op::Max, 2_i32)?;
    at(18);
    world.finish()
}

/// Has its part in the tests below, in processes of its own.
#[test]
fn rank() {
    let Some(killed_at) = std::env::var(STEP).ok().and_then(|step| step.parse::<u32>().ok()) else { return };
    let rank = std::env::var("CUTTHROUGH_RANK").expect("a rank");
    println!("process {}", std::process::id());
    let end = program(|step| {
        if step == killed_at && rank == KILLED.to_string() {
            // `kill` of the shell: a signal that this process sends to itself, and none that it could handle.
            let _ = Command::new("sh").args(["-c", &format!("kill -9 {}", std::process::id())]).status();
            unreachable!("it was killed");
        }
    });
    println!("ends with {end:?}");
    // Not by a panic: to say where it was takes longer than all the rest.
    std::process::exit(i32::from(end.is_err()));
}

/// The command that is a rank, or starts one with these words before it.
fn command(words: &[&str], step: u32) -> Command {
    let itself = std::env::current_exe().expect("a path").display().to_string();
    let words = [words, &[&itself, "--exact", "rank", "--nocapture"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // None waits for as long as this: whoever does says that another is late.
    command.env(STEP, step.to_string()).env("CUTTHROUGH_DEADLINE", "40").env("CUTTHROUGH_START", "15");
    command
}

/// Ranks that do not outlive the test.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(step: u32, addresses: &str) -> Self {
        let rank = |rank: u32| {
            let variables =
                [("RANK", rank.to_string()), ("SIZE", SIZE.to_string()), ("ADDRESSES", addresses.to_owned())];
            let mut command = command(&[], step);
            command.envs(variables.map(|(name, value)| (format!("CUTTHROUGH_{name}"), value)));
            if step == 0 {
                // The last gives up before the first does, which must not take it for the one that is missing.
                command.env("CUTTHROUGH_START", if rank == 0 { "12" } else { "6" });
            }
            command.env("CUTTHROUGH_INSECURE", "1").spawn().expect("a process")
        };
        Self((0..SIZE).map(rank).collect())
    }

    fn ends(mut self) -> Vec<Output> {
        std::mem::take(&mut self.0).into_iter().map(|child| child.wait_with_output().expect("its output")).collect()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the program once for each step at which a rank can die, some of them at a time.
fn every_other_rank_names_it(at_a_time: u32, addresses: impl Fn(u32) -> String) {
    for first in (0..STEPS).step_by(at_a_time as usize) {
        let steps = first..STEPS.min(first + at_a_time);
        let runs: Vec<_> = steps.map(|step| (step, Ranks::start(step, &addresses(step)))).collect();
        for (step, ranks) in runs {
            for (rank, output) in (0..).zip(ranks.ends()) {
                let said = String::from_utf8_lossy(&output.stdout);
                let end = said.lines().find_map(|line| line.split_once("ends with ")).map(|(_, end)| end);
                let Some(end) = end else {
                    assert_eq!(rank, KILLED, "at step {step}: {said}{}", String::from_utf8_lossy(&output.stderr));
                    continue;
                };
                let lost = end.starts_with("Err(Lost { rank: 1,");
                // Who has not met it, or has only just, says that it does not come.
                let absent = step < JOINED && end.starts_with("Err(Absent { ranks: [1],");
                assert!(rank != KILLED && (lost || absent), "rank {rank} after step {step}: {end}");
            }
        }
    }
}

#[test]
fn over_shared_memory() {
    every_other_rank_names_it(10, |step| format!("shm:killed-{}-{step}-{{rank}}", std::process::id()));
}

#[test]
fn over_udp() {
    // A host of this process alone, and ports that the system gives nobody by itself.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    every_other_rank_names_it(5, |step| {
        let port = |rank: u32| 7600 + SIZE * step + rank;
        let addresses = (0..SIZE).map(|rank| format!("udp:127.{}.{middle}.{low}:{}", high + 1, port(rank)));
        addresses.collect::<Vec<_>>().join(",")
    });
}

/// The starter says who was the first, and ends the others. Nothing is left when the next ranks have run.
#[test]
fn under_the_starter() {
    let test = std::env::current_exe().expect("a path");
    let program = test.parent().and_then(|deps| deps.parent()).map(|profile| profile.join("cutthrough"));
    let Some(program) = program.filter(|program| program.exists()) else {
        return cutthrough_conform::skipped("the program is not built; 'cargo test --workspace' builds it");
    };
    let folder = std::env::temp_dir().join(format!("killed-run-{}", std::process::id()));
    let size = SIZE.to_string();
    let run = |step| {
        let words = [&program.display().to_string(), "run", "-n", &size, "--"];
        let output = command(&words, step).env("CUTTHROUGH_DIR", &folder).output().expect("the program");
        let [said, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), said, errors)
    };
    let (code, said, errors) = run(9);
    assert_eq!(code, Some(1), "{said}{errors}");
    let last = errors.lines().last();
    assert_eq!(last, Some("cutthrough: rank 1 was ended by signal 9 (SIGKILL); all others were ended"), "{errors}");
    let processes: Vec<&str> = said.lines().filter_map(|line| line.split_once("process ")).map(|(_, id)| id).collect();
    assert_eq!(processes.len(), SIZE as usize, "{said}");
    assert!(processes.iter().all(|id| !PathBuf::from(format!("/proc/{id}")).exists()), "{processes:?}");
    // Their names are for whoever comes next to remove: here ranks of which nobody is killed.
    let (code, said, errors) = run(STEPS);
    assert_eq!(code, Some(0), "{said}{errors}");
    let left: Vec<_> = std::fs::read_dir(&folder).expect("the folder of names").flatten().collect();
    let _ = std::fs::remove_dir_all(&folder);
    assert!(left.is_empty(), "{left:?}");
}
