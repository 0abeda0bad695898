//! Too few files, too little memory: a clear error at every step, never a panic.

use std::collections::BTreeSet;
use std::time::Duration;

use cutthrough::Endpoint;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child::{Folder, Other, config};

/// What stands between two errors.
const BETWEEN: &str = " | ";

/// Opens, listens, connects to itself, sends: the error of whatever fails first.
fn everything(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoint = Endpoint::open(config())?;
    endpoint.listen(address)?;
    let channel = endpoint.connect(address, Duration::from_secs(1))?;
    endpoint.send(channel, b"control")?;
    Ok(())
}

/// Tries everything under each limit: says how many tries failed and how many worked, and what the errors were.
fn try_limits(address: &str, resource: Resource, limits: impl Iterator<Item = u64>, say: impl Fn(&str)) {
    let whole = getrlimit(resource);
    let (mut failed, mut worked, mut errors) = (0, 0, BTreeSet::new());
    for limit in limits {
        setrlimit(resource, Rlimit { current: Some(limit), ..whole }).expect("a lower limit");
        match everything(address) {
            Ok(()) => worked += 1,
            Err(error) => {
                failed += 1;
                errors.insert(error.to_string());
            }
        }
    }
    setrlimit(resource, whole).expect("the limit of before");
    let errors: Vec<String> = errors.into_iter().collect();
    say(&format!("failed {failed}, worked {worked}: {}", errors.join(BETWEEN)));
}

/// The part that has ever more files, from none on.
pub(crate) fn few_files(address: &str, say: impl Fn(&str)) {
    let open = std::fs::read_dir("/proc/self/fd").expect("our files").count() as u64;
    try_limits(address, Resource::Nofile, open - 1..open + 24, say);
}

/// The part that has ever more address space.
pub(crate) fn little_memory(address: &str, say: impl Fn(&str)) {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .expect("our address space");
    let steps = (0..60).map(|step| pages * 4096 + (step << 24));
    try_limits(address, Resource::As, steps, say);
}

/// Starts a part and checks that both outcomes came up and were told in words, with this advice. It calls itself: what
/// the side that listens has too little of, the other side cannot know.
fn check(part: &str, advice: &str) {
    let folder = Folder::new();
    let mut other = Other::start(Other::command(part, &folder.address()));
    let said = other.says();
    assert!(!said.starts_with("failed 0,") && !said.contains("worked 0:"), "{said}");
    let (_, errors) = said.split_once(": ").expect("errors");
    let there = ["the other side refused: the memory passed to it", "no answer within"];
    let advised = |error: &str| error.contains(advice) || there.iter().any(|said| error.starts_with(said));
    assert!(errors.contains(advice) && errors.split(BETWEEN).all(advised), "{said}");
    assert!(other.process.wait().expect("its end").success(), "{said}");
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

#[test]
fn too_few_files_are_an_error() {
    check("few-files", "ulimit -n");
}

#[test]
fn too_little_address_space_is_an_error() {
    check("little-memory", "ulimit");
}
