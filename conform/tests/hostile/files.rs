//! Files that come where none belong: whoever is the last to close one may wait for as long as its sender likes. And
//! memory that costs its sender nothing, and its receiver addresses.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Counter, Endpoint, Event};
use cutthrough_conform::join::lingering;
use cutthrough_node::shm::rendezvous;
use cutthrough_wire::hello::Refusal;
use cutthrough_wire::layout::Sizes;

use crate::hello::{SEALED, answer, hello, memory, reach, refused, send};
use crate::liar::{Victim, config, sizes};

/// For how long such a file's close lingers, if nobody helps.
const LINGERS: Duration = Duration::from_secs(40);
/// Who waits longer has closed it.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Says something with such a file among others: what the victim makes of it does not keep it, nor anybody else.
fn no_file_keeps(name: &str, says: impl FnOnce(&Victim, BorrowedFd<'_>) -> OwnedFd) {
    let mut victim = Victim::open();
    let before = victim.endpoint.counter(Counter::HellosRefused);
    let (file, end) = lingering(LINGERS);
    let liar = says(&victim, file.as_fd());
    drop(file);
    let begun = Instant::now();
    refused(&mut victim, before);
    victim.honest_channel_works(1);
    drop(victim);
    assert!(begun.elapsed() < AT_ONCE, "{name}: kept for {:?}", begun.elapsed());
    drop((liar, end));
}

#[test]
fn a_file_whose_close_lingers_keeps_nobody() {
    let layout = sizes().layout().expect("good sizes");
    let good = hello(sizes());
    let memories = || (memory(layout.out_bytes, SEALED), memory(layout.landing_bytes, SEALED));
    no_file_keeps("beside nonsense", |victim, file| {
        let socket = reach(victim);
        send(&socket, b"nonsense", &[file]);
        socket
    });
    no_file_keeps("instead of memory", |victim, file| {
        let (socket, (out, _)) = (reach(victim), memories());
        send(&socket, &good, &[out.as_fd(), file]);
        socket
    });
    no_file_keeps("beside memory", |victim, file| {
        let (socket, (out, landing)) = (reach(victim), memories());
        send(&socket, &good, &[out.as_fd(), landing.as_fd(), file]);
        socket
    });
    no_file_keeps("behind a hello", |victim, file| {
        let (socket, (out, landing)) = (reach(victim), memories());
        send(&socket, &good, &[out.as_fd(), landing.as_fd()]);
        send(&socket, b"", &[file]);
        socket
    });
    no_file_keeps("behind nonsense", |victim, file| {
        let socket = reach(victim);
        send(&socket, b"", &[]);
        send(&socket, b"nonsense", &[file]);
        socket
    });
}

/// Of callers who were not let in before the endpoint goes, nothing is looked at.
#[test]
fn a_file_of_who_was_never_let_in_keeps_nobody() {
    let (file, end) = lingering(LINGERS);
    let Victim { endpoint, address, .. } = Victim::open();
    let socket = rendezvous::reach(&rendezvous::socket_path(&address).expect("a path")).expect("it listens");
    send(&socket, b"nonsense", &[file.as_fd()]);
    drop(file);
    let begun = Instant::now();
    drop(endpoint);
    assert!(begun.elapsed() < AT_ONCE, "kept for {:?}", begun.elapsed());
    drop((socket, end));
}

/// However many files wait to be closed, those who have a channel go on, and once they are closed others are let in.
#[test]
fn a_crowd_of_files_keeps_nobody() {
    let mut victim = Victim::open();
    let crowd: Vec<_> = (0..40).map(|_| lingering(LINGERS)).collect();
    let (files, ends): (Vec<OwnedFd>, Vec<TcpStream>) = crowd.into_iter().unzip();
    let begun = Instant::now();
    let liars: Vec<_> = files
        .iter()
        .map(|file| {
            let socket = reach(&victim);
            send(&socket, b"nonsense", &[file.as_fd()]);
            socket
        })
        .collect();
    drop(files);
    for round in 0..100 {
        victim.honest_channel_works(round);
        let _ = victim.endpoint.wait(Some(Duration::from_millis(1)));
    }
    assert!(begun.elapsed() < AT_ONCE, "kept for {:?}", begun.elapsed());
    drop((liars, ends));
    let address = victim.address.clone();
    let late = thread::spawn(move || {
        let mut late = Endpoint::open(config()).expect("an endpoint");
        late.connect(&address, Duration::from_secs(20)).map(drop)
    });
    while !late.is_finished() {
        let _ = victim.endpoint.wait(Some(Duration::from_millis(10)));
    }
    late.join().expect("the late caller").expect("let in");
}

/// Whoever calls a liar is not kept by it either.
#[test]
fn a_file_beside_an_answer_keeps_nobody() {
    let folder = std::env::temp_dir().join(format!("cutthrough-lingers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let address = format!("shm:{}", folder.join("liar.sock").display());
    let listener = rendezvous::Listener::open(&address).expect("a free name");
    let liar = thread::spawn(move || {
        let socket = loop {
            match rustix::net::accept(listener.socket()) {
                Ok(socket) => break socket,
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        let (file, end) = lingering(LINGERS);
        send(&socket, b"nonsense", &[file.as_fd()]);
        (socket, end)
    });
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let begun = Instant::now();
    endpoint.connect(&address, Duration::from_secs(5)).expect_err("a liar");
    drop(endpoint);
    assert!(begun.elapsed() < AT_ONCE, "kept for {:?}", begun.elapsed());
    drop(liar.join().expect("the liar"));
    let _ = std::fs::remove_dir_all(folder);
}

/// Memory that nobody has touched costs its maker nothing: one pair of files, of the largest sizes, said to be that of
/// every caller. They get some of the victim's addresses, and leave enough for others.
#[test]
fn memory_for_nothing_leaves_addresses_to_others() {
    let largest =
        Sizes { staging_bytes: 1 << 30, pool_pages: 1 << 15, landing_pages: 1 << 15, page_bytes: 2 << 20, ..sizes() };
    let layout = largest.layout().expect("good sizes");
    let (out, landing) = (memory(layout.out_bytes, SEALED), memory(layout.landing_bytes, SEALED));
    let mut victim = Victim::open();
    let (mut liars, mut let_in) = (Vec::new(), 0);
    for _ in 0..200 {
        let before = victim.endpoint.counter(Counter::HellosRefused);
        let socket = reach(&victim);
        send(&socket, &hello(largest), &[out.as_fd(), landing.as_fd()]);
        liars.push(socket);
        let begun = Instant::now();
        while victim.endpoint.counter(Counter::HellosRefused) == before {
            if let Some(Event::Opened(_)) = victim.endpoint.poll() {
                let_in += 1;
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "neither let in nor refused");
        }
    }
    assert!((1..150).contains(&let_in), "{let_in} let in, of 129 GiB each");
    // It lacks addresses; nothing is wrong with that memory.
    let refused = answer(&mut victim, &hello(largest), &[out.as_fd(), landing.as_fd()]);
    assert_eq!(refused, Some(Refusal::Room));
    let address = victim.address.clone();
    let mut late = Endpoint::open(config()).expect("an endpoint");
    cutthrough_conform::join::connect(&mut late, &mut victim.endpoint, &address);
    victim.honest_channel_works(1);
}
