//! A process that forks: what its child drops is still the parent's.

use cutthrough::{Channel, CloseReason, Endpoint, Event};

use crate::child::{Folder, Other, PATIENCE, config};

/// Listens, and once somebody has come has a child that drops the endpoint.
pub(crate) fn fork(address: &str, say: fn(&str)) {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(address).expect("the name");
    say("ready");
    while !matches!(endpoint.wait(Some(PATIENCE)), Ok(Event::Opened(_))) {}
    // SAFETY: the child drops what it has, and ends, without a word to the threads that it lacks.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(endpoint);
        // SAFETY: it ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for what has become of it.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
    say("forked");
    loop {
        let _ = endpoint.wait(Some(PATIENCE));
    }
}

/// The next end of a channel: whose, and why.
fn ended(endpoint: &mut Endpoint) -> (Channel, CloseReason) {
    loop {
        if let Event::Closed(channel, reason) = endpoint.wait(Some(PATIENCE)).expect("the end") {
            return (channel, reason);
        }
    }
}

#[test]
fn what_a_child_drops_is_its_parents() {
    let folder = Folder::new();
    let mut other = Other::ready("fork", &folder.address());
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let channel = endpoint.connect(&folder.address(), PATIENCE).expect("a channel");
    assert_eq!(other.says(), "forked");
    assert_eq!(folder.files().len(), 2, "the socket and its lock: {:?}", folder.files());
    let mut late = Endpoint::open(config()).expect("an endpoint");
    late.connect(&folder.address(), PATIENCE).expect("the parent still listens");
    drop(other);
    assert_eq!(ended(&mut endpoint), (channel, CloseReason::Died));
}
