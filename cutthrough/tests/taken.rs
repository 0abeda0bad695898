//! What was given once is not given again in silence: numbers of handlers, and addresses.

mod two;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use cutthrough::am::{Args, Event, Node};
use cutthrough::rpc::{self, Method};
use cutthrough::{Config, Endpoint};
use two::{Over, meet, next};

const ONE: u16 = 1;

fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

#[test]
fn a_number_has_one_handler() {
    let (mut far, address) = Over::Shm.listening(Config::default(), Default::default());
    let mut near = Over::node(Config::default(), Default::default());
    far.short(ONE, Args::Any, |request| request.reply(&[7]));
    let channel = meet(&mut far, &mut near, &address);
    let register: [fn(&mut Node); 5] = [
        |node| node.short(ONE, Args::Any, |request| request.reply(&[0])),
        |node| node.medium(ONE, Args::Any, |request| request.reply(&[1])),
        |node| node.whole(ONE, Args::Any, 100, |request| request.reply(&[2])),
        |node| rpc::serve(node, Method::<(), ()>::new(ONE), Ok),
        |node| rpc::serve_raw(node, ONE, |request| request.reply(&[4])),
    ];
    for second in register {
        assert!(panics(|| second(&mut far)));
        // The first is as it was.
        near.request(channel, ONE, &[]).expect("room");
        assert!(matches!(next(&mut far, &mut near), Event::Replied(reply) if reply.word(0) == 7));
    }
    for first in register {
        for second in register {
            let mut node = Over::node(Config::default(), Default::default());
            first(&mut node);
            assert!(panics(|| second(&mut node)));
            // Others have their own.
            node.short(ONE + 1, Args::Any, |request| request.reply(&[]));
        }
    }
}

/// An endpoint listens at one name of this machine; the name before is free, and who came by it stays.
#[test]
fn a_second_name_takes_the_place_of_the_first() {
    let (mut far, first) = Over::Shm.listening(Config::default(), Default::default());
    far.short(ONE, Args::Any, |request| request.reply(&[7]));
    let mut node = Over::node(Config::default(), Default::default());
    let by_first = meet(&mut far, &mut node, &first);
    let second = format!("{first}-second");
    far.listen(&second).expect("a free name");
    let by_second = meet(&mut far, &mut node, &second);
    assert!(node.connect(&first, Duration::from_millis(100)).is_err());
    let mut other = Endpoint::open(Config::default()).expect("an endpoint");
    other.listen(&first).expect("a free name");
    for channel in [by_first, by_second] {
        let call = node.request(channel, ONE, &[]).expect("room");
        assert!(matches!(next(&mut far, &mut node), Event::Replied(reply) if reply.call() == call));
    }
}
