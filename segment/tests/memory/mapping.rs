//! What a peer can and cannot do with the files that it is given, and with those that it gives.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough_segment::bell::ROOM;
use cutthrough_segment::copy::Copying;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::{Array, MapError, Mapping, Writers};
use cutthrough_wire::layout::{Line, Sizes};
use cutthrough_wire::token::Place;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Maps a file as a peer would that wants to write.
fn map_to_write(file: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: a fresh mapping at an address of the kernel's choice; nobody reads or writes it.
    unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }
        .map(|_| ())
}

/// The seals that a peer's file needs.
const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::SEAL);

/// A memory file as a hostile peer makes it.
fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

#[test]
fn a_peer_reads_what_the_maker_writes() {
    let (own, file) = Mapping::create("own", 5000, 4096, Writers::Maker).unwrap();
    let peer = Mapping::open(file.as_fd(), 5000, 4096, false).unwrap();
    own.copy_in(4990, b"0123456789", Copying::Pieces);
    let mut bytes = [0; 10];
    peer.copy_out(4990, &mut bytes, Copying::Pieces);
    assert_eq!(&bytes, b"0123456789");
}

/// However the two lie to each other within their pages, and however many pieces that makes.
#[test]
fn copies_are_whole_wherever_the_two_lie() {
    const ROOM: usize = 4 * 4096;
    let (own, _file) = Mapping::create("own", ROOM as u64, 4096, Writers::Maker).unwrap();
    let (other, _file) = Mapping::create("other", ROOM as u64, 4096, Writers::Maker).unwrap();
    let pattern: Vec<u8> = (0..=250).cycle().take(ROOM).collect();
    own.copy_in(0, &pattern, Copying::Pieces);
    // A page of its own for what is copied out, so that its place within the page is known.
    let mut room = vec![0; ROOM + 4096];
    let first = room.as_ptr().align_offset(4096);
    let both = [Copying::Pieces, Copying::String];
    for (copying, from) in both.into_iter().flat_map(|copying| [0, 1, 64, 2047].map(|from| (copying, from))) {
        for apart in [0, 1, 16, 31, 32, 127, 128, 4095] {
            for bytes in [0, 1, 255, 256, 257, 2047, 2048, 2049, 6001, 8192] {
                let to = (from + apart) % 4096;
                room.fill(0xee);
                own.copy_out(from as u64, &mut room[first + to..first + to + bytes], copying);
                let whole = |got: &[u8]| {
                    got[to..to + bytes] == pattern[from..from + bytes]
                        && got[..to].iter().chain(&got[to + bytes..]).all(|&byte| byte == 0xee)
                };
                assert!(whole(&room[first..first + ROOM]), "{copying:?} out from {from} to {to}, {bytes}");

                other.copy_in(0, &[0xee; ROOM], copying);
                other.copy_in(to as u64, &pattern[from..from + bytes], copying);
                other.copy_out(0, &mut room[first..first + ROOM], Copying::Pieces);
                assert!(whole(&room[first..first + ROOM]), "{copying:?} in from {from} to {to}, {bytes} bytes");

                other.copy_in(0, &[0xee; ROOM], Copying::Pieces);
                Mapping::copy_across(&own, from as u64, &other, to as u64, bytes);
                other.copy_out(0, &mut room[first..first + ROOM], Copying::Pieces);
                assert!(whole(&room[first..first + ROOM]), "across from {from} to {to}, {bytes} bytes");
            }
        }
    }
    // Within one mapping, each over the other's end.
    for (from, to) in [(0, 16), (16, 0), (0, 4096), (8192, 16)] {
        own.copy_in(0, &pattern, Copying::Pieces);
        Mapping::copy_across(&own, from as u64, &own, to as u64, 8000);
        let mut wanted = pattern.clone();
        wanted.copy_within(from..from + 8000, to);
        own.copy_out(0, &mut room[..ROOM], Copying::Pieces);
        assert!(room[..ROOM] == wanted, "within, from {from} to {to}");
    }
}

#[test]
fn a_peer_cannot_write_what_only_the_maker_writes() {
    let (own, file) = Mapping::create("own", 4096, 4096, Writers::Maker).unwrap();
    assert_eq!(map_to_write(&file), Err(Errno::PERM));
    assert_eq!(pwrite(&file, b"x", 0), Err(Errno::PERM));
    assert!(matches!(Mapping::open(file.as_fd(), 4096, 4096, true), Err(MapError::NotWritable)));
    // Opening the file anew through /proc gives no more rights than its seals leave.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = OwnedFd::from(File::options().read(true).write(true).open(path).unwrap());
    assert_eq!(map_to_write(&again), Err(Errno::PERM));
    own.copy_in(0, b"the maker still can", Copying::Pieces);
}

#[test]
fn a_peer_can_write_where_both_may() {
    let (own, file) = Mapping::create("both", 4096, 4096, Writers::Both).unwrap();
    let peer = Mapping::open(file.as_fd(), 4096, 4096, true).unwrap();
    peer.copy_in(7, b"landed", Copying::Pieces);
    let mut bytes = [0; 6];
    own.copy_out(7, &mut bytes, Copying::Pieces);
    assert_eq!(&bytes, b"landed");
}

#[test]
fn nobody_can_change_the_size_or_the_seals() {
    for writers in [Writers::Maker, Writers::Both] {
        let (_own, file) = Mapping::create("own", 8192, 4096, writers).unwrap();
        assert_eq!(ftruncate(&file, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(&file, 16384), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM));
        let seals = fcntl_get_seals(&file).unwrap();
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
        assert_eq!(seals.contains(SealFlags::FUTURE_WRITE), writers == Writers::Maker);
    }
}

#[test]
fn a_file_that_could_shrink_is_refused() {
    let open = |file: &OwnedFd| Mapping::open(file.as_fd(), 4096, 4096, false).map(|_| ());
    assert!(matches!(open(&file(4096, SealFlags::GROW)), Err(MapError::NotSealed)));
    assert!(matches!(open(&file(4096, SealFlags::SHRINK)), Err(MapError::NotSealed)), "it could be sealed further");
    assert!(open(&file(4096, SEALED)).is_ok());
    let plain = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    assert!(matches!(open(&plain), Err(MapError::NotSealed)));
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    assert!(matches!(open(&pipe), Err(MapError::NotSealed)));
}

/// It is refused before it is mapped: older kernels take away what lies where a file cannot be mapped.
#[test]
fn a_file_that_cannot_be_written_is_not_mapped_for_writing() {
    let open = |file: &OwnedFd| Mapping::open(file.as_fd(), 4096, 4096, true).map(|_| ());
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        assert!(matches!(open(&file(4096, SEALED | seal)), Err(MapError::NotWritable)), "{seal:?}");
    }
    let good = file(4096, SEALED);
    let path = format!("/proc/self/fd/{}", good.as_raw_fd());
    let to_read = OwnedFd::from(File::open(path).unwrap());
    assert!(matches!(open(&to_read), Err(MapError::NotWritable)));
    assert!(open(&good).is_ok());
}

/// It costs its sender nothing, and would cost its receiver addresses each time: what was reserved for a file that then
/// cannot be mapped is not given back.
#[test]
fn a_file_that_cannot_be_read_takes_no_addresses() {
    const BYTES: u64 = 16 << 30;
    let pages = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let good = file(BYTES, SEALED);
    let path = format!("/proc/self/fd/{}", good.as_raw_fd());
    let to_write = OwnedFd::from(File::options().write(true).open(path).unwrap());
    let before = pages();
    for _ in 0..64 {
        for writable in [false, true] {
            let refused = Mapping::open(to_write.as_fd(), BYTES, 4096, writable);
            assert!(matches!(refused, Err(MapError::NotReadable)), "{refused:?}");
        }
    }
    // Other tests map something meanwhile, and far less.
    let taken = pages().saturating_sub(before) * 4096;
    assert!(taken < BYTES, "{taken} bytes of addresses are gone");
}

#[test]
fn a_file_that_is_too_small_is_refused() {
    let short = file(4095, SEALED);
    let refused = Mapping::open(short.as_fd(), 4096, 4096, false).unwrap_err();
    assert!(matches!(refused, MapError::TooSmall { have: 4095, need: 4096 }));
    assert!(refused.to_string().contains("4095"));
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    assert!(matches!(Mapping::create("huge", 1 << 62, 4096, Writers::Maker), Err(MapError::Map { .. })));
    assert!(matches!(Mapping::create("huger", u64::MAX, 4096, Writers::Maker), Err(MapError::Create(_))));
}

#[test]
fn a_mapping_is_aligned_as_asked() {
    for align in [4096_u64, 64 << 10, 2 << 20] {
        let (mapping, file) = Mapping::create("aligned", align, align, Writers::Both).unwrap();
        let peer = Mapping::open(file.as_fd(), align, align, true).unwrap();
        for mapping in [&mapping, &peer] {
            assert_eq!(mapping.address(0, 1).addr() as u64 % align, 0);
        }
    }
}

#[test]
fn a_dropped_mapping_is_unmapped() {
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:dropped-here");
    let (mapping, file) = Mapping::create("dropped-here", 3 << 20, 2 << 20, Writers::Maker).unwrap();
    let peer = Mapping::open(file.as_fd(), 3 << 20, 4096, false).unwrap();
    drop(mapping);
    assert!(mapped());
    drop(peer);
    assert!(!mapped());
}

#[test]
fn an_empty_mapping_has_no_bytes() {
    let (mapping, file) = Mapping::create("empty", 0, 4096, Writers::Both).unwrap();
    let peer = Mapping::open(file.as_fd(), 0, 4096, true).unwrap();
    peer.copy_in(0, b"", Copying::Pieces);
    mapping.copy_out(0, &mut [], Copying::Pieces);
}

#[test]
fn every_access_stays_within() {
    let (mapping, _) = Mapping::create("within", 100, 4096, Writers::Both).unwrap();
    let attempts: [&dyn Fn(); 8] = [
        &|| mapping.copy_in(99, b"ab", Copying::Pieces),
        &|| mapping.copy_in(u64::MAX, b"a", Copying::Pieces),
        &|| mapping.copy_out(100, &mut [0], Copying::Pieces),
        &|| assert!(!mapping.address(0, 101).is_null()),
        &|| assert_eq!(mapping.word(96).load(Ordering::Relaxed), 0),
        &|| assert_eq!(mapping.word(3).load(Ordering::Relaxed), 0),
        &|| assert_eq!(Array::<AtomicU64>::new(&mapping, 0, 13).load_acquire(12), 0),
        // One word, if the number of bytes went round.
        &|| assert_eq!(Array::<AtomicU64>::new(&mapping, 0, (1 << 61) + 1).load_acquire(0), 0),
    ];
    for attempt in attempts {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt));
        assert!(caught.is_err());
    }
}

#[test]
#[should_panic = "reading only"]
fn a_mapping_for_reading_is_not_written() {
    let (_own, file) = Mapping::create("read", 4096, 4096, Writers::Maker).unwrap();
    Mapping::open(file.as_fd(), 4096, 4096, false).unwrap().copy_in(0, b"x", Copying::Pieces);
}

#[test]
#[should_panic = "reading only"]
fn no_word_of_a_mapping_for_reading_can_be_stored() {
    let (own, file) = Mapping::create("read", 4096, 4096, Writers::Maker).unwrap();
    let peer = Mapping::open(file.as_fd(), 4096, 4096, false).unwrap();
    own.word(8).store(7, Ordering::Relaxed);
    assert_eq!(peer.load(8, Ordering::Relaxed), 7);
    peer.word(8).store(8, Ordering::Relaxed);
}

#[test]
fn the_halves_of_a_channel_see_each_other() {
    let sizes = Sizes { slots: 16, page_bytes: 4096, staging_bytes: 64 << 10, pool_pages: 2, landing_pages: 2 };
    let layout = sizes.layout().unwrap();
    let (own, files) = Own::create(&sizes, layout).unwrap();
    let peer = Peer::open(files.out.as_fd(), files.landing.as_fd(), &sizes, layout).unwrap();

    own.set(Line::Staged, 77);
    assert_eq!((peer.get(Line::Staged), peer.armed()), (77, false));
    own.set_minpulse(4321);
    assert_eq!(peer.minpulse(), 4321);
    // It is rung once for each time that it arms, and without a number each time; what has not gone out is repeated.
    assert!(!peer.wake(|| true));
    for _ in 0..2 {
        own.arm();
        assert!(peer.armed() && !peer.wake(|| false));
        assert!(peer.wake(|| true) && !peer.wake(|| true));
    }
    // For room only if it waits for that, and once for both.
    assert!(!peer.wake_for_room(|| true));
    own.arm_for_room();
    assert!(peer.armed() && peer.wake_for_room(|| true) && !peer.wake_for_room(|| true) && !peer.wake(|| true));
    own.arm_for_room();
    assert!(peer.wake(|| true) && !peer.wake_for_room(|| true));
    own.disarm();
    assert!(!peer.armed() && !peer.wake(|| true) && !peer.wake_for_room(|| true));
    own.set(Line::Armed, 1);
    assert!(peer.wake(|| true) && peer.wake(|| true));
    own.set(Line::Armed, 1 | ROOM);
    assert!(peer.wake(|| true) && peer.wake_for_room(|| true) && peer.wake_for_room(|| true));

    let place = Place::Pages { first: 1, count: 1 };
    own.set_token(9, 55, place);
    assert_eq!(peer.token(9, 55), Some(place));
    assert_eq!((peer.token(9, 54), peer.token(10, 55), peer.token(10, 0)), (None, None, None));
    own.clear_token(9);
    assert_eq!(peer.token(9, 55), None);
    own.set_claim(3, 8);
    assert_eq!((peer.claim(3), peer.claim(4)), (8, 0));

    peer.landing().copy_in(4096, b"page", Copying::Pieces);
    let mut bytes = [0; 4];
    own.landing().copy_out(4096, &mut bytes, Copying::Pieces);
    assert_eq!(&bytes, b"page");

    // Slots and pages are had as plain bytes: not by two at a time.
    assert_eq!((own.slots().len(), own.pages(Arc::default()).take(2 * 4096).map(|page| page.len())), (16, Some(8192)));
    let again: [&dyn Fn(); 3] = [&|| drop(own.slots()), &|| drop(own.pages(Arc::default())), &|| drop(own.lawless())];
    assert!(again.iter().all(|again| std::panic::catch_unwind(std::panic::AssertUnwindSafe(again)).is_err()));

    let cut = Sizes { landing_pages: 3, ..sizes };
    let refused = Peer::open(files.out.as_fd(), files.landing.as_fd(), &cut, cut.layout().unwrap());
    assert!(matches!(refused, Err(MapError::TooSmall { .. })));
}
