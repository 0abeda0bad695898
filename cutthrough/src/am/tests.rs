//! What only the node itself can show.

use super::*;

/// A node that lets another in, that node, and its channel.
pub(super) fn joined(name: &str) -> (Node, Node, Channel) {
    let address = format!("shm:{}/cutthrough-{name}-{}.sock", std::env::temp_dir().display(), std::process::id());
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
