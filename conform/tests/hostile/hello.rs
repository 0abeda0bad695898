//! Lies before there is a channel: hellos, and the memory that comes with them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cutthrough::{Config, Counter, Endpoint, Event};
use cutthrough_node::shm::rendezvous;
use cutthrough_wire::hello::{HELLO_BYTES, Refusal, Word};
use cutthrough_wire::layout::Sizes;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::liar::{Liar, Victim, config, sizes};

/// A connection to the victim.
pub(crate) fn reach(victim: &Victim) -> OwnedFd {
    let path = rendezvous::socket_path(&victim.address).expect("a path");
    rendezvous::reach(&path).expect("the victim listens")
}

/// Sends bytes with files beside them.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
}

/// Whatever the victim answers, with files.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    bytes.truncate(received.bytes);
    (!bytes.is_empty()).then_some((bytes, files))
}

/// Polls until the victim has refused one more hello.
pub(crate) fn refused(victim: &mut Victim, before: u64) {
    let begun = Instant::now();
    while victim.endpoint.counter(Counter::HellosRefused) == before {
        if let Some(Event::Opened(channel)) = victim.endpoint.poll() {
            panic!("let in as {channel:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "neither let in nor refused");
    }
}

/// Says something instead of a good hello: the reason in the answer.
pub(crate) fn answer(victim: &mut Victim, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Option<Refusal> {
    let before = victim.endpoint.counter(Counter::HellosRefused);
    let socket = reach(victim);
    send(&socket, bytes, files);
    refused(victim, before);
    match Word::from_bytes(&receive(&socket)?.0) {
        Ok(Word::Refuse(reason)) => Some(reason),
        other => panic!("{other:?}"),
    }
}

/// A hello with these sizes.
pub(crate) fn hello(sizes: Sizes) -> [u8; HELLO_BYTES] {
    Word::Hello { generation: 1, sizes }.to_bytes()
}

/// The seals that memory needs.
pub(crate) const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::SEAL);

/// A memory file.
pub(crate) fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("liar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file");
    ftruncate(&file, bytes).expect("its size");
    fcntl_add_seals(&file, seals).expect("its seals");
    file
}

#[test]
fn garbage_is_refused() {
    let mut victim = Victim::open();
    let file = memory(4096, SEALED);
    let files = [file.as_fd(), file.as_fd(), file.as_fd(), file.as_fd()];
    let good = hello(sizes());
    for (round, len) in (0..).zip([1, 8, 63, 64, 65, 200]) {
        let noise = cutthrough_conform::bytes::pattern(round, len);
        assert_eq!(
            answer(&mut victim, &noise, &files[..usize::try_from(round % 5).unwrap_or(0)]),
            Some(Refusal::Malformed)
        );
    }
    assert_eq!(answer(&mut victim, &good, &[]), Some(Refusal::Malformed), "no files");
    assert_eq!(answer(&mut victim, &good, &files[..1]), Some(Refusal::Malformed), "one file");
    for place in 0..8 {
        let mut bytes = good;
        bytes[place] ^= 0x80;
        assert_eq!(answer(&mut victim, &bytes, &files[..2]), Some(Refusal::Malformed), "byte {place} of the magic");
    }
    victim.honest_channel_works(0);
}

#[test]
fn another_version_is_refused_by_name() {
    let mut victim = Victim::open();
    let file = memory(4096, SEALED);
    let mut bytes = hello(sizes());
    bytes[8] = 9;
    assert_eq!(answer(&mut victim, &bytes, &[file.as_fd(), file.as_fd()]), Some(Refusal::Version));
    victim.honest_channel_works(0);
}

#[test]
fn a_listener_of_another_version_is_named() {
    let folder = std::env::temp_dir().join(format!("cutthrough-version-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let address = format!("shm:{}", folder.join("old.sock").display());
    let listener = rendezvous::Listener::open(&address).expect("a free name");
    let old = std::thread::spawn(move || {
        let socket = loop {
            match rustix::net::accept(listener.socket()) {
                Ok(socket) => break socket,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let mut bytes = hello(sizes());
        bytes[8] = 7;
        send(&socket, &bytes, &[]);
        std::thread::sleep(Duration::from_millis(200));
    });
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let error = endpoint.connect(&address, Duration::from_secs(5)).expect_err("another version");
    assert!(error.to_string().contains('7') && error.to_string().contains("version"), "{error}");
    old.join().expect("the old listener");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn impossible_sizes_are_refused() {
    let mut victim = Victim::open();
    let file = memory(4096, SEALED);
    let good = sizes();
    for bad in [
        Sizes { slots: 0, ..good },
        Sizes { slots: 1000, ..good },
        Sizes { slots: u32::MAX, ..good },
        Sizes { page_bytes: 0, ..good },
        Sizes { page_bytes: 4 << 20, ..good },
        Sizes { staging_bytes: 1 << 31, ..good },
        Sizes { pool_pages: u32::MAX, ..good },
        Sizes { landing_pages: (1 << 20) + 1, ..good },
    ] {
        assert_eq!(answer(&mut victim, &hello(bad), &[file.as_fd(), file.as_fd()]), Some(Refusal::Sizes), "{bad:?}");
    }
    victim.honest_channel_works(0);
}

#[test]
fn memory_that_could_go_away_is_refused() {
    let mut victim = Victim::open();
    let layout = sizes().layout().expect("good sizes");
    let good = hello(sizes());
    let out = memory(layout.out_bytes, SEALED);
    let landing = memory(layout.landing_bytes, SEALED);
    let unsealed = memory(layout.out_bytes, SealFlags::GROW);
    let small = memory(layout.out_bytes - 1, SEALED);
    let frozen = memory(layout.landing_bytes, SEALED | SealFlags::WRITE);
    let freezing = memory(layout.landing_bytes, SEALED | SealFlags::FUTURE_WRITE);
    let unsettled = memory(layout.landing_bytes, SealFlags::SHRINK);
    let disk = std::fs::File::open("/proc/self/exe").expect("a file");
    let null = std::fs::File::open("/dev/null").expect("a file");
    for (name, files) in [
        ("unsealed", [unsealed.as_fd(), landing.as_fd()]),
        ("too small", [small.as_fd(), landing.as_fd()]),
        ("landing memory too small", [out.as_fd(), small_landing(&memory(4096, SEALED)).as_fd()]),
        ("landing memory that cannot be written", [out.as_fd(), frozen.as_fd()]),
        ("landing memory that cannot be written any more", [out.as_fd(), freezing.as_fd()]),
        ("landing memory that could be sealed further", [out.as_fd(), unsettled.as_fd()]),
        ("a file on disk", [disk.as_fd(), landing.as_fd()]),
        ("a device", [out.as_fd(), null.as_fd()]),
    ] {
        assert_eq!(answer(&mut victim, &good, &files), Some(Refusal::Memory), "{name}");
    }
    victim.honest_channel_works(0);
}

/// Whoever receives a file that nobody wants is the one that closes it, which may take as long as its sender likes.
#[test]
fn a_channel_takes_no_files() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    let file = memory(4096, SEALED);
    let (mut space, files) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [file.as_fd()]);
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    let sent = sendmsg(&liar.socket, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL);
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    if (numbers.next(), numbers.next()) < (Some(6_u32), Some(16_u32)) {
        return cutthrough_conform::skipped("sockets take files before Linux 6.16");
    }
    assert_eq!(sent, Err(Errno::PERM), "Linux {release}");
    victim.honest_channel_works(0);
}

#[test]
fn memory_of_huge_pages_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let layout = sizes().layout().expect("good sizes");
    let huge = memfd_create("liar", flags).and_then(|file| {
        ftruncate(&file, layout.out_bytes.next_multiple_of(2 << 20))?;
        fcntl_add_seals(&file, SEALED)?;
        Ok(file)
    });
    let Ok(huge) = huge else { return cutthrough_conform::skipped("no memory files of huge pages here") };
    let mut victim = Victim::open();
    let landing = memory(layout.landing_bytes, SEALED);
    assert_eq!(answer(&mut victim, &hello(sizes()), &[huge.as_fd(), landing.as_fd()]), Some(Refusal::Memory));
}

#[test]
fn the_victims_own_memory_cannot_be_written() {
    let mut victim = Victim::open();
    let layout = sizes().layout().expect("good sizes");
    let socket = reach(&victim);
    let (out, landing) = (memory(layout.out_bytes, SEALED), memory(layout.landing_bytes, SEALED));
    send(&socket, &hello(sizes()), &[out.as_fd(), landing.as_fd()]);
    while !matches!(victim.endpoint.wait(Some(Duration::from_secs(5))), Ok(Event::Opened(_))) {}
    let (_, files) = receive(&socket).expect("the victim's files");
    let out = &files[0];
    let again = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(out)));
    let again: Option<OwnedFd> = again.ok().map(Into::into);
    for file in std::iter::once(out).chain(&again) {
        // SAFETY: a mapping at an address of the kernel's choice touches nobody's memory; it is meant to fail.
        let mapped =
            unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) };
        assert_eq!(mapped.err(), Some(Errno::PERM), "mapped for writing");
        assert!(rustix::io::pwrite(file, b"lie", 0).is_err(), "written");
        assert!(ftruncate(file, 0).is_err() && ftruncate(file, 1 << 30).is_err(), "another size");
        assert!(fcntl_add_seals(file, SealFlags::WRITE).is_err(), "sealed against its owner");
    }
}

#[test]
fn a_flood_of_callers_keeps_nobody_out_for_long() {
    let mut victim = Victim::open();
    let mut silent = Vec::new();
    for _ in 0..300 {
        let path = rendezvous::socket_path(&victim.address).expect("a path");
        silent.extend(rendezvous::reach(&path));
        let _ = victim.endpoint.poll();
    }
    victim.honest_channel_works(1);
    // Those who say nothing are forgotten after a second; meanwhile others are refused by name.
    let mut late = Endpoint::open(Config { channels: 4, ..config() }).expect("an endpoint");
    let begun = Instant::now();
    let address = victim.address.clone();
    let joined = std::thread::spawn(move || {
        while begun.elapsed() < Duration::from_secs(8) {
            match late.connect(&address, Duration::from_secs(5)) {
                Ok(_) => return true,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        false
    });
    while !joined.is_finished() {
        let _ = victim.endpoint.wait(Some(Duration::from_millis(10)));
    }
    assert!(joined.join().expect("the late caller"), "kept out");
    drop(silent);
    victim.honest_channel_works(2);
}

/// So many callers who have said nonsense: their sockets.
fn crowd(address: &str, callers: u64) -> Vec<OwnedFd> {
    let path = rendezvous::socket_path(address).expect("a path");
    let callers = (0..callers).map(|_| {
        let socket = rendezvous::reach(&path).expect("the victim listens");
        send(&socket, b"nonsense", &[]);
        socket
    });
    callers.collect()
}

/// However many come at a time, a poll looks at some of them only; and the next one goes on.
#[test]
fn a_crowd_of_callers_keeps_nobody_in_one_poll() {
    const CROWD: u64 = 100;
    let mut victim = Victim::open();
    let crowd = crowd(&victim.address, CROWD);
    let refused = |victim: &Victim| victim.endpoint.counter(Counter::HellosRefused);
    let (begun, mut before) = (Instant::now(), refused(&victim));
    let last = before + CROWD;
    while before < last {
        assert!(victim.endpoint.poll().is_none());
        let now = refused(&victim);
        assert!(now - before < CROWD, "{} at once", now - before);
        before = now;
        assert!(begun.elapsed() < Duration::from_secs(5), "{before} of {last}");
    }
    drop(crowd);
    victim.honest_channel_works(0);
}

/// Who is woken once by a crowd hears all of it, though no single look does.
#[test]
fn a_task_hears_a_whole_crowd_of_callers() {
    const CROWD: u64 = 100;
    let Victim { endpoint, address, .. } = Victim::open();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut endpoint = cutthrough::AsyncEndpoint::new(endpoint).expect("registered");
        // The honest peer has gone.
        let told = tokio::time::timeout(Duration::from_secs(5), endpoint.next()).await;
        assert!(matches!(told, Ok(Ok(Event::Closed(..)))), "{told:?}");
        let before = endpoint.counter(Counter::HellosRefused);
        let nothing = tokio::time::timeout(Duration::from_millis(20), endpoint.next()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        let crowd = crowd(&address, CROWD);
        let nothing = tokio::time::timeout(Duration::from_millis(500), endpoint.next()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        assert_eq!(endpoint.counter(Counter::HellosRefused), before + CROWD);
        drop(crowd);
    });
}

/// Names a file that is too small to be landing memory.
const fn small_landing(file: &OwnedFd) -> &OwnedFd {
    file
}
