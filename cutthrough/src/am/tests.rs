//! What only the node itself can show.

use super::*;

/// A node that lets another in, that node, and its channel.
pub(super) fn joined(name: &str) -> (Node, Node, Channel) {
    let address = format!("shm:cutthrough-{name}-{}", std::process::id());
    let mut far = Node::new(Endpoint::open(crate::Config::default()).expect("an endpoint"), Settings::default());
    far.listen(&address).expect("a free name");
    let mut node = Node::new(Endpoint::open(crate::Config::default()).expect("an endpoint"), Settings::default());
    let channel = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect(&address, Duration::from_secs(20)).expect("a channel"));
        assert!(matches!(far.wait(Some(Duration::from_secs(20))), Ok(Event::Opened(_))));
        connecting.join().expect("the other thread")
    });
    (far, node, channel)
}

/// Whoever waits for calls of his own by [`Node::drive`] may be the only one who uses the node.
#[test]
fn a_driven_node_looks_at_the_clock() {
    let (_far, mut node, channel) = joined("drive");
    for sleep in [false, true] {
        let call = node.ask(channel, 1).within(Duration::from_millis(20)).send().expect("room");
        let begun = clock::now();
        let is_late = |event: &Event| matches!(event, Event::Failed(failed) if failed.call == call);
        while !node.ready.iter().any(is_late) {
            node.drive(sleep);
            assert!(clock::now().saturating_since(begun) < 5_000_000_000, "it is never late");
        }
        node.ready.clear();
    }
}

/// Its thread leaves a node to who drives it, but not for ever, be there always somebody who does nothing: neither what
/// happens is kept from who is told, nor a call from being late.
#[test]
fn a_thread_looks_after_a_node_that_others_always_drive() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let (mut far, mut node, channel) = joined("driven");
    let address = format!("shm:cutthrough-driven-2-{}", std::process::id());
    node.listen(&address).expect("a free name");
    let (tell, told) = std::sync::mpsc::channel();
    let service = Service::spawn(node, move |event| drop(tell.send(event))).expect("a thread");
    let driving = service.driving();
    // Now and then it is used, so that the thread finds that it is left alone again.
    let used = || {
        std::thread::sleep(Duration::from_millis(10));
        driving.drive(8, || true);
    };
    (0..10).for_each(|_| used());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| far.connect(&address, PATIENCE).map(drop));
        assert!(matches!(told.recv_timeout(PATIENCE), Ok(Event::Opened(_))));
        connecting.join().expect("the other thread").expect("a channel");
    });
    // The thread may have the node just now: it looks for a while before it sleeps.
    let call = driving.with_in(PATIENCE, |node| node.ask(channel, 1).within(Duration::from_millis(30)).send());
    let call = call.expect("the thread leaves it").expect("room");
    assert!(matches!(told.recv_timeout(PATIENCE), Ok(Event::Failed(failed)) if failed.call == call));
    driving.leave(true);
}

/// Who has the node in hand for a moment, and is not counted among those that drive it, takes the bell off a door as
/// they do. Afterwards the thread is the one to notice what comes.
#[test]
fn a_thread_looks_after_a_node_that_others_have_passed_by() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let (mut far, mut node, _) = joined("passed");
    let address = format!("shm:cutthrough-passed-2-{}", std::process::id());
    node.short(1, Args::Words(0), |request| request.reply(&[]));
    node.listen(&address).expect("a free name");
    let service = Service::spawn(node, |_| ()).expect("a thread");
    let channel = far.connect(&address, PATIENCE).expect("a channel");
    for relies in [false, true, false] {
        // Until it sleeps.
        std::thread::sleep(Duration::from_millis(50));
        let passing = std::iter::repeat_with(|| service.pass()).find_map(|passing| passing);
        let mut passing = passing.expect("it sleeps");
        assert!(service.pass().is_none(), "somebody has it");
        let call = far.request(channel, 1, &[]).expect("room");
        while far.room(channel) < WINDOW {
            assert!(passing.node().poll().is_none());
            assert!(far.poll().is_none_or(|event| matches!(event, Event::Replied(reply) if reply.call() == call)));
        }
        if relies {
            drop(passing);
        } else {
            passing.leave();
        }
        far.call(channel, 1, &[], Duration::from_secs(5)).expect("an answer");
    }
    let pass = || std::iter::repeat_with(|| service.pass()).find_map(|passing| passing).expect("it is free");
    let driving = pass().stay();
    assert!(!pass().others().are_none(), "somebody drives");
    driving.leave(true);
}

/// With none in service, each request was refused as by a node that is busy.
#[test]
fn settings_that_serve_nobody_are_refused() {
    for (settings, text) in [
        (Settings { serve: 0, ..Settings::default() }, "Settings::serve is 0"),
        (Settings { window: 0, ..Settings::default() }, "Settings::window is 0"),
        (Settings { window: WINDOW + 1, ..Settings::default() }, "Settings::window is"),
    ] {
        let endpoint = Endpoint::open(crate::Config::default()).expect("an endpoint");
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Node::new(endpoint, settings)));
        let why = *made.expect_err("a panic").downcast::<String>().expect("words");
        assert!(why.contains(text), "{why}");
    }
}
