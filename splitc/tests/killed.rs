//! A rank that is killed, on what might be another machine. This test is alone in its process, and runs itself again.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use cutthrough_conform::free_udp_address;
use cutthrough_splitc::{Error, Settings, World};

/// Ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn joined(rank: u32, addresses: &str) -> World {
    let addresses = addresses.split(',').map(str::to_owned).collect();
    let settings = Settings { rank, size: 2, addresses, job: "killed".into(), insecure: true, ..Settings::alone() };
    let mut world = World::join(&settings).expect("two ranks");
    world.barrier().expect("both are there");
    world
}

#[test]
fn a_rank_that_is_killed_is_missed_within_seconds() {
    const ADDRESSES: &str = "KILLED_ADDRESSES";
    if let Ok(addresses) = std::env::var(ADDRESSES) {
        let _world = joined(1, &addresses);
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let addresses = [free_udp_address(), free_udp_address()].map(|address| format!("udp:{address}")).join(",");
    let mut itself = Command::new(std::env::current_exe().expect("a path"));
    itself.args(["--exact", "a_rank_that_is_killed_is_missed_within_seconds"]).env(ADDRESSES, &addresses);
    let mut killed = Killed(itself.spawn().expect("a process"));
    let mut world = joined(0, &addresses);
    // Longer than the silence: who computes is not missed.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(world.poll(), Ok(()));
    killed.0.kill().expect("it runs");
    let begun = Instant::now();
    let end = world.barrier();
    assert!(matches!(end, Err(Error::Lost { rank: 1, .. })), "{end:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
