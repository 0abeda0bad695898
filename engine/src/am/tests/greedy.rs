//! Peers that want to be served and never take an answer in.

use alloc::vec::Vec;

use super::*;

/// Who sent requests and never took an answer had each served, and each answer kept.
#[test]
fn who_never_takes_an_answer_in_is_refused_after_a_window() {
    let call = CallId::new(3, 9);
    let mut control = [0; CONTROL_MAX];
    for (plain_first, wants, most) in [(true, false, WINDOW), (false, false, WINDOW), (false, true, LARGE)] {
        let mut node: Core<(), Vec<u8>> = Core::new(WINDOW);
        node.opened(0, 1);
        let mut shut = Narrow(0, Vec::new());
        let len = Message { window: wants, ..Message::new(Kind::Request, call) }.encode(&mut control).expect("short");
        let mut refused = None;
        for _ in 0..2 * most {
            let plain = if plain_first { node.accept_plain(0, &control[..len]) } else { Plain::Other };
            let to = match plain {
                Plain::Request(.., to) => to,
                _ => match node.accept(0, &control[..len]) {
                    Ok(Got::Request(_, to)) => to,
                    other => {
                        refused = other.err();
                        break;
                    }
                },
            };
            node.reply(&mut shut, to, Arguments::default(), None, None);
        }
        assert_eq!((refused, node.waiting_to_go()), (Some(Malformed::Unexpected), most as usize), "{plain_first}");
        // Half of the answers are taken in: so many more are served.
        shut.0 = most as usize / 2;
        node.flush(&mut shut);
        let served = (0..most).take_while(|_| match node.accept(0, &control[..len]) {
            Ok(Got::Request(_, to)) => !node.reply(&mut shut, to, Arguments::default(), None, None),
            _ => false,
        });
        assert_eq!(served.count(), most as usize / 2);
    }
}

/// Two that work together: one hands requests over whose replies the other never takes in.
#[test]
fn direct_replies_that_nobody_takes_in_are_thrown_away_in_the_end() {
    let mut node: Core<(), Vec<u8>> = Core::new(WINDOW);
    node.opened(0, 1);
    node.opened(1, 2);
    let call = CallId::new(3, 9);
    let mut control = [0; CONTROL_MAX];
    let origin = Some(Origin { generation: 1, call });
    let len = Message { origin, ..Message::new(Kind::Request, call) }.encode(&mut control).expect("short");
    let mut way = OneShut(Vec::new());
    for _ in 0..2 * LARGE {
        let Ok(Got::Request(_, to)) = node.accept(1, &control[..len]) else {
            panic!("refused, though it takes every answer in")
        };
        node.reply(&mut way, to, Arguments::default(), None, None);
        node.flush(&mut way);
    }
    assert_eq!(node.waiting_to_go(), LARGE as usize);
    let last = Message::decode(way.0.last().expect("answers")).expect("an answer");
    assert_eq!((last.kind, Failure::of(last.code)), (Kind::Failed, Failure::Abandoned));
    assert_eq!(node.take_thrown(), u64::from(LARGE));
}

/// The way to row 0 is shut, the other is not.
struct OneShut(Vec<Vec<u8>>);

impl Transport<Option<Vec<u8>>> for OneShut {
    fn send(
        &mut self,
        row: u32,
        control: &[u8],
        _: Option<Token>,
        load: Option<Vec<u8>>,
    ) -> Result<(), (Unsent, Option<Vec<u8>>)> {
        if row == 0 {
            return Err((Unsent::Full, load));
        }
        self.0.push(control.to_vec());
        Ok(())
    }
}

/// Each answer was kept whole, however long, so that a window of them was as much memory as the peer liked.
#[test]
fn long_answers_to_who_takes_nothing_in_are_bounded_in_bytes() {
    let mut node: Core<(), Vec<u8>> = Core::new(WINDOW);
    node.opened(0, 1);
    let mut shut = Narrow(0, Vec::new());
    let mut control = [0; CONTROL_MAX];
    let mut answer = |node: &mut Core<(), Vec<u8>>, shut: &mut Narrow, index, bytes| {
        let call = CallId::new(index, 9);
        let len = Message::new(Kind::Request, call).encode(&mut control).expect("short");
        let Ok(Got::Request(_, to)) = node.accept(0, &control[..len]) else { panic!("refused") };
        node.reply(shut, to, Arguments::default(), None, Some(alloc::vec![0; bytes]));
    };
    // One alone may be as long as it is.
    answer(&mut node, &mut shut, 0, KEPT_BYTES + 1);
    for index in 1..5 {
        answer(&mut node, &mut shut, index, KEPT_BYTES / 4);
    }
    shut.0 = 100;
    assert!(node.flush(&mut shut));
    for index in 5..10 {
        shut.0 = shut.1.len();
        answer(&mut node, &mut shut, index, KEPT_BYTES / 4);
    }
    shut.0 = 100;
    assert!(node.flush(&mut shut));
    let of = |sent: &[u8]| Message::decode(sent).map(|sent| (sent.kind, sent.code)).expect("well-formed");
    let kinds: Vec<_> = shut.1.iter().map(|(sent, _)| of(sent)).collect();
    // Nobody may ask again for what was served.
    let (whole, gone) = ((Kind::Reply, 0), (Kind::Failed, Failure::Abandoned as u8));
    assert_eq!(kinds, [whole, gone, gone, gone, gone, whole, whole, whole, whole, gone]);
    assert_eq!((node.take_thrown(), node.take_thrown()), (5, 0));
}

/// A load of so many bytes: in pages of the channel, or in memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    Paged(usize),
    Own(usize),
}

impl Keep<Self> for Lies {
    fn keep(self) -> Option<Self> {
        Some(self)
    }

    fn bytes(&self) -> usize {
        if let Self::Own(bytes) = self { *bytes } else { 0 }
    }

    fn in_own_memory(self, most: usize) -> Self {
        match self {
            Self::Paged(bytes) if bytes <= most => Self::Own(bytes),
            as_it_was => as_it_was,
        }
    }
}

/// A way with so many pages: each load that lies in none needs one until the peer gives it back.
struct Pool {
    pages: usize,
    sent: Vec<Option<Lies>>,
}

impl Transport<Lies> for Pool {
    fn send(&mut self, row: u32, control: &[u8], token: Option<Token>, load: Lies) -> Result<(), (Unsent, Lies)> {
        self.send(row, control, token, Some(load)).map_err(|(why, load)| (why, load.unwrap_or(Lies::Own(0))))
    }
}

impl Transport<Option<Lies>> for Pool {
    fn send(&mut self, _: u32, _: &[u8], _: Option<Token>, load: Option<Lies>) -> Result<(), (Unsent, Option<Lies>)> {
        if matches!(load, Some(Lies::Own(_))) {
            if self.pages == 0 {
                return Err((Unsent::Full, load));
            }
            self.pages -= 1;
        }
        self.sent.push(load);
        Ok(())
    }
}

/// The next one lay in the page that the first one waited for, and waited behind it.
#[test]
fn what_waits_behind_others_leaves_its_pages_to_them() {
    let mut node: Core<(), Lies> = Core::new(WINDOW);
    node.opened(0, 1);
    let mut pool = Pool { pages: 0, sent: Vec::new() };
    let mut control = [0; CONTROL_MAX];
    let mut answer = |node: &mut Core<(), Lies>, pool: &mut Pool, index, load| {
        let call = CallId::new(index, 9);
        let len = Message::new(Kind::Request, call).encode(&mut control).expect("short");
        let Ok(Got::Request(_, to)) = node.accept(0, &control[..len]) else { panic!("refused") };
        node.reply(pool, to, Arguments::default(), None, load)
    };
    // Nobody waits: what lies in pages goes as it is.
    assert!(answer(&mut node, &mut pool, 0, Lies::Paged(100)));
    assert!(!answer(&mut node, &mut pool, 1, Lies::Own(100)));
    assert!(!answer(&mut node, &mut pool, 2, Lies::Paged(KEPT_BYTES - 100)));
    // There is no room for more: it keeps its pages, and is not thrown away.
    assert!(!answer(&mut node, &mut pool, 3, Lies::Paged(1)));
    assert!(!node.flush(&mut pool) && node.take_thrown() == 0);
    pool.pages = 2;
    assert!(node.flush(&mut pool));
    let sent = [Lies::Paged(100), Lies::Own(100), Lies::Own(KEPT_BYTES - 100), Lies::Paged(1)];
    assert_eq!(pool.sent, sent.map(Some));
}

/// A way whose channel has ended.
struct Ended;

impl Transport<Option<Vec<u8>>> for Ended {
    fn send(
        &mut self,
        _: u32,
        _: &[u8],
        _: Option<Token>,
        load: Option<Vec<u8>>,
    ) -> Result<(), (Unsent, Option<Vec<u8>>)> {
        Err((Unsent::Closed, load))
    }
}

/// Who had put an answer off, or had it wait for room, did not learn that it went nowhere.
#[test]
fn replies_to_who_is_gone_are_thrown_away_and_failures_are_none() {
    let mut node: Core<(), Vec<u8>> = Core::new(WINDOW);
    node.opened(0, 1);
    let mut control = [0; CONTROL_MAX];
    let mut asks = |node: &mut Core<(), Vec<u8>>| {
        let len = Message::new(Kind::Request, CallId::new(3, 9)).encode(&mut control).expect("short");
        let Ok(Got::Request(_, to)) = node.accept(0, &control[..len]) else { panic!("refused") };
        to
    };
    let reply = Arguments::default;
    let (to, fails) = (asks(&mut node), asks(&mut node));
    let mut shut = Narrow(0, Vec::new());
    for _ in 0..2 {
        let to = asks(&mut node);
        assert!(!node.reply(&mut shut, to, reply(), None, Some(alloc::vec![1])));
    }
    let refused = asks(&mut node);
    node.fail(&mut shut, refused, Failure::Refused, &[], None);
    let known = asks(&mut node);
    assert_eq!((node.waiting_to_go(), node.take_thrown()), (3, 0));
    // The endpoint knows of the end, and the node does not yet: this one waits in vain.
    assert!(node.flush(&mut Ended));
    assert_eq!(node.take_thrown(), 2);
    assert!(!node.reply(&mut Ended, known, reply(), None, None));
    assert_eq!(node.take_thrown(), 1);
    for _ in 0..2 {
        let to = asks(&mut node);
        assert!(!node.reply(&mut shut, to, reply(), None, None));
    }
    node.closed(0);
    assert_eq!((node.waiting_to_go(), node.take_thrown()), (0, 2), "those that had no room");
    // Another has the row.
    node.opened(0, 2);
    assert!(!node.reply(&mut shut, to, reply(), None, None));
    assert_eq!((node.take_thrown(), shut.1.len()), (1, 0));
    node.fail(&mut shut, fails, Failure::Abandoned, &[], None);
    assert_eq!(node.take_thrown(), 0, "who fails it knows");
}
