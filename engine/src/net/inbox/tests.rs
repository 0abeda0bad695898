use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;

/// Memory of somebody who reads all payloads, some time.
struct Readers;

impl Memory for Readers {
    type Load = Vec<u8>;
    type Place = Vec<u8>;

    fn place<'a>(
        &mut self,
        _channel: usize,
        _want: &Want,
        _behind: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Placing<Vec<u8>> {
        Placing::Reader
    }

    fn guess(&mut self, _channel: usize) -> Option<&mut Vec<u8>> {
        None
    }
}

/// What makes way is bounded: payloads beyond that wait for their reader, and do not keep shorter ones waiting.
#[test]
fn no_more_makes_way_than_there_may_be() {
    const LENS: [u32; 5] = [1 << 30, 700 << 20, 400 << 20, 300 << 20, 24 << 20];
    let now = Instant::from_nanos(1);
    let mut inbox: Inbox<Vec<u8>> = Inbox::new(8, 100_000, 0);
    for (number, payload) in (0..).zip(LENS) {
        let limits = Limits { messages: 8, unasked: 0 };
        let (token, control) = (None, [0; CONTROL_MAX]);
        let opening = Opening { payload, unasked: 1000, token, pages: false, limits, control_len: 0, control };
        inbox.open(number, Box::new(opening), 0, &mut Readers, now).unwrap();
    }
    let mut room = 2 << 30;
    inbox.relieve(now, 1_000_000_000, &mut room);
    assert_eq!((inbox.relieved(), room), (0, 2 << 30), "a moment is nothing");
    inbox.relieve(now, 0, &mut room);
    assert_eq!((inbox.relieved(), room), (2 << 30, 0));
    let most: Vec<u32> = inbox.wanting().map(|wanting| wanting.most).collect();
    assert_eq!((most[0], most[1], most[3], most[4]), (LENS[0], LENS[1], LENS[3], LENS[4]));
    assert!(most[2] <= 1000 + 100_000, "it may come as far as any other, beside what comes unasked");
    // Whoever reads one makes room for it.
    inbox.advance();
    inbox.forget(0);
    inbox.relieve(now, 0, &mut (1 << 30));
    assert_eq!(inbox.relieved(), u64::from(LENS[1..].iter().sum::<u32>()));
    assert!(!inbox.has_unread());
}
