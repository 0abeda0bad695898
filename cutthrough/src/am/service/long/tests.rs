use std::sync::mpsc;
use std::time::Instant as Clock;

use super::*;
use crate::am::{Service, Settings};
use crate::{Config, Endpoint};

/// Nothing takes longer, unless something was lost.
const PATIENCE: Duration = Duration::from_secs(20);

type List = Arc<Mutex<Vec<u32>>>;

/// Notes what becomes of it.
#[derive(Clone)]
struct Noted {
    number: u32,
    ran: List,
    late: List,
    /// Whether it panics.
    panics: bool,
}

impl Long for Noted {
    fn run(&self, _: &mut Node) {
        assert!(!self.panics, "as it shall");
        self.ran.lock().expect("a list").push(self.number);
    }

    fn is_over(&self) {}

    fn is_late(&self) {
        self.late.lock().expect("a list").push(self.number);
    }
}

/// Has begun, and goes on when that is said.
struct Waits(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);

impl Long for Waits {
    fn run(&self, _: &mut Node) {
        self.0.send(()).expect("somebody waits");
        let _ = self.1.lock().expect("no panic").recv_timeout(PATIENCE);
    }

    fn is_over(&self) {}

    fn is_late(&self) {}
}

fn service() -> Service {
    let endpoint = Endpoint::open(Config { insecure: true, ..Config::default() }).expect("an endpoint");
    Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread")
}

/// Threads that are there for it: each has hold of the line.
fn threads(line: &Arc<Line>) -> usize {
    Arc::strong_count(line) - 1
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Clock::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn within(time: Duration) -> Instant {
    clock::now() + time
}

/// Those with these numbers, none of which has run.
fn noted(numbers: std::ops::Range<u32>) -> (Vec<Noted>, List, List) {
    let (ran, late) = (List::default(), List::default());
    let noted = numbers.map(|number| Noted { number, ran: List::clone(&ran), late: List::clone(&late), panics: false });
    (noted.collect(), ran, late)
}

/// Runs this while another thread has the node.
fn while_held<R>(service: &Service, work: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let ((has, had), (tell, told)) = (mpsc::channel(), mpsc::channel::<()>());
        scope.spawn(move || {
            service.with(|_| {
                has.send(()).expect("somebody waits");
                let _ = told.recv_timeout(PATIENCE);
            });
        });
        had.recv_timeout(PATIENCE).expect("the node");
        let done = work();
        drop(tell);
        done
    })
}

#[test]
fn one_thread_does_all_in_order_but_what_was_given_up() {
    let service = service();
    let (all, ran, late) = noted(0..200);
    while_held(&service, || {
        let give = |noted: &Noted| service.do_long(within(PATIENCE), Arc::new(noted.clone())).expect("a thread");
        let places: Vec<_> = all.iter().map(give).collect();
        places.iter().step_by(3).for_each(|place| service.leave_long(*place));
        assert_eq!(threads(&service.shared.line), 1);
        // Whoever gave it up has hold of all there was of it.
        assert_eq!(Arc::strong_count(&ran), 1 + all.len() + all.len() - places.iter().step_by(3).count());
    });
    let expected: Vec<_> = (0..200).filter(|number| number % 3 != 0).collect();
    until("all have run", || ran.lock().expect("a list").len() >= expected.len());
    assert_eq!(*ran.lock().expect("a list"), expected);
    assert!(late.lock().expect("a list").is_empty());
    until("the thread ends", || threads(&service.shared.line) == 0);
    // Another one comes.
    service.do_long(within(PATIENCE), Arc::new(all[0].clone())).expect("a thread");
    until("it runs", || ran.lock().expect("a list").len() > expected.len());
}

#[test]
fn what_is_late_is_told_so_while_others_have_the_node() {
    let service = service();
    let (all, ran, late) = noted(0..4);
    while_held(&service, || {
        // The earliest comes last.
        for (noted, millis) in all.iter().zip([600_000, 40, 60, 20]) {
            let until = within(Duration::from_millis(millis));
            service.do_long(until, Arc::new(noted.clone())).expect("a thread");
        }
        until("they are late", || late.lock().expect("a list").len() == 3);
        assert!(!late.lock().expect("a list").contains(&0));
    });
    until("one has run", || !ran.lock().expect("a list").is_empty());
    until("the thread ends", || threads(&service.shared.line) == 0);
    assert_eq!(*ran.lock().expect("a list"), [0]);
}

#[test]
fn a_panic_is_the_end_of_that_one_alone() {
    let service = service();
    let (mut all, ran, _) = noted(0..2);
    all[0].panics = true;
    for noted in all {
        service.do_long(within(PATIENCE), Arc::new(noted)).expect("a thread");
    }
    until("the next one runs", || *ran.lock().expect("a list") == [1]);
    service.with(|node| assert!(node.poll().is_none()));
}

#[test]
fn a_service_ends_with_what_it_does_or_leaves_it() {
    let begin = || {
        let service = service();
        let ((has, had), (tell, told)) = (mpsc::channel(), mpsc::channel::<()>());
        let waits = Arc::new(Waits(has, Mutex::new(told)));
        service.do_long(within(PATIENCE), waits).expect("a thread");
        had.recv_timeout(PATIENCE).expect("it runs");
        (service, tell)
    };
    // Who wants the node back waits for it.
    let (service, tell) = begin();
    let stopping = std::thread::spawn(move || service.stop());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!stopping.is_finished());
    drop(tell);
    assert!(stopping.join().expect("no panic").is_some(), "nobody has the node any more");
    // Nobody else does.
    let (service, tell) = begin();
    let (shared, line) = (Arc::downgrade(&service.shared), Arc::clone(&service.shared.line));
    let since = Clock::now();
    drop(service);
    assert!(since.elapsed() < PATIENCE / 2 && shared.strong_count() > 0);
    drop(tell);
    until("nobody has the node any more", || shared.strong_count() == 0 && Arc::strong_count(&line) == 1);
    // It is idle, and nobody waits for that.
    let service = self::service();
    let (all, ran, _) = noted(0..1);
    service.do_long(within(PATIENCE), Arc::new(all[0].clone())).expect("a thread");
    until("it runs", || !ran.lock().expect("a list").is_empty());
    assert!(service.stop().is_some());
}
