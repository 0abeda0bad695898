//! Who gets a ring, what is said on the way, and that it works on the other side. Processes of other users: the tests
//! of the program.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::raw::Ring as _;
use crate::raw::packet::PacketRing;
use crate::raw::veth::{self, FAR, NEAR};

const PORT: u16 = 7100;
const LOCAL: SocketAddrV4 = SocketAddrV4::new(NEAR, PORT);

/// A path that nobody has; what lies there goes with the test.
struct Meeting(PathBuf);

impl Meeting {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cutthrough-lease-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A ring in the near namespace; none, with the reason said, if this process may open none.
fn lease(wire: &veth::Wire, path: &Path) -> Option<Lease> {
    let begun = Instant::now();
    loop {
        match wire.near.within(|| Lease::open(&format!("xdp:{LOCAL}"), 0, None, path)) {
            Ok(lease) => return Some(lease),
            Err(error @ LeaseError::Ring(XdpError::Privilege { .. } | XdpError::Unsupported { .. })) => {
                crate::skipped(error);
                return None;
            }
            // A program that another test begins has all that is open for a moment, and so what the round before has
            // just closed.
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(2), "a ring: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Who asks for another address does not get it, and is in nobody's way. Who gets it sends and receives, and the helper
/// has nothing of it any more. When it is dropped the next one is there at once.
#[test]
fn a_ring_goes_to_who_wants_its_address_and_works_there() {
    let Some(wire) = veth::wire(1500) else { return };
    let meeting = Meeting::new();
    let far = wire.far.within(|| UdpSocket::bind((FAR, PORT)).expect("a port"));
    far.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for round in 0..2 {
        let Some(lease) = lease(&wire, &meeting.0) else { return };
        let helper = thread::spawn(move || lease.pass(me(), |_| panic!("nobody else is there")));
        let other = SocketAddrV4::new(NEAR, PORT + 1);
        let elsewhere = wire.near.within(|| take(&meeting.0, other.into())).expect_err("it is for another port");
        assert!(matches!(elsewhere, LeaseError::Elsewhere { leased: LOCAL, .. }), "{elsewhere}");
        // Who only connects takes any port.
        let wanted = SocketAddrV4::new(NEAR, if round == 0 { PORT } else { 0 });
        let (socket, mut ring) = wire.near.within(|| take(&meeting.0, wanted.into())).expect("the ring");
        let tenant = helper.join().expect("no panic").expect("it was passed");
        assert_eq!(tenant, Tenant { process: std::process::id(), user: me() });
        assert!(!meeting.0.exists(), "the helper leaves its socket");

        let (_, hop) = wire.near.within(|| veth::hop(&socket, LOCAL, SocketAddrV4::new(FAR, PORT)));
        // What comes by the ring was sent by one.
        let (mut back, way) = wire.far.within(|| {
            let (socket, local) = veth::socket(FAR);
            let (interface, way) = veth::hop(&socket, local, LOCAL);
            (PacketRing::open(vec![veth::again(&socket)], local, &interface).expect("a ring"), way)
        });
        for number in 0..100_u8 {
            while !ring.send(&hop, &[IoSlice::new(&[number; 100])], 100).expect("a ring") {}
            let mut room = [0; 200];
            assert_eq!(far.recv(&mut room).expect("a datagram"), 100);
            assert_eq!(room[..100], [number; 100]);
            assert!(back.send(&way, &[IoSlice::new(&[!number; 64])], 64).expect("a ring"));
            let begun = Instant::now();
            while ring.receive(1, &mut |_, body| assert_eq!(*body, [!number; 64])) == 0 {
                assert!(begun.elapsed() < PATIENCE, "nothing comes by the ring");
            }
        }
    }
}

#[test]
fn what_a_killed_helper_has_left_is_replaced_and_nothing_else() {
    let meeting = Meeting::new();
    let nobody = take(&meeting.0, LOCAL.into()).expect_err("nobody is there");
    assert!(matches!(nobody, LeaseError::Nobody(_)), "{nobody}");
    let _first = Place::open(&meeting.0).expect("a free path");
    let taken = Place::open(&meeting.0).expect_err("it is taken");
    assert!(matches!(taken, LeaseError::Taken(_)), "{taken}");
    // A process that is killed leaves the file.
    let dead = Meeting::new();
    leave_dead(&dead.0);
    assert!(take(&dead.0, LOCAL.into()).is_err_and(|error| matches!(error, LeaseError::Nobody(_))));
    drop(Place::open(&dead.0).expect("the path of the dead"));
    std::fs::write(&dead.0, b"precious").expect("a file");
    assert!(Place::open(&dead.0).is_err_and(|error| matches!(error, LeaseError::Taken(_))));
    assert_eq!(std::fs::read(&dead.0).expect("a file"), b"precious");
}

/// A socket of which nobody has the other end, as a killed helper leaves it.
fn leave_dead(path: &Path) {
    let name = SocketAddrUnix::new(path).expect("a name");
    bind(unix(SocketType::SEQPACKET, SocketFlags::empty()).expect("a socket"), &name).expect("a free path");
    // A process that another test starts has it, too, until it runs its program.
    while !is_dead(path, &name) {
        thread::yield_now();
    }
}

/// However many begin at once where a killed helper was, one of them has its place, and is reached there.
#[test]
fn one_alone_takes_the_place_of_a_killed_helper() {
    let meeting = Meeting::new();
    for round in 0..300 {
        leave_dead(&meeting.0);
        let begin = std::sync::Barrier::new(4);
        let places: Vec<_> = thread::scope(|scope| {
            let open = || {
                begin.wait();
                Place::open(&meeting.0)
            };
            let all = [(); 4].map(|()| scope.spawn(open));
            all.map(|one| one.join().expect("no panic")).into_iter().collect()
        });
        assert_eq!(places.iter().filter(|place| place.is_ok()).count(), 1, "{round}: {places:?}");
        reach(&meeting.0).expect("it listens");
    }
}

#[test]
fn what_a_killed_helper_has_left_is_swept_and_nothing_else() {
    let meeting = Meeting::new();
    assert!(!Lease::sweep(&meeting.0), "there is nothing");
    leave_dead(&meeting.0);
    assert!(Lease::sweep(&meeting.0) && !meeting.0.exists());
    std::fs::write(&meeting.0, b"precious").expect("a file");
    assert!(!Lease::sweep(&meeting.0) && meeting.0.exists());
    std::fs::remove_file(&meeting.0).expect("a file");
    let place = Place::open(&meeting.0).expect("a free path");
    assert!(!Lease::sweep(&meeting.0), "somebody listens there");
    reach(&meeting.0).expect("it listens");
    drop(place);
    // Where another one is just beginning, as far as can be seen, nothing is removed.
    let folder = std::env::temp_dir().join(format!("cutthrough-lease-locked-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let path = folder.join("socket");
    leave_dead(&path);
    let begins = alone_beside(&path).expect("nobody else is there");
    assert!(!Lease::sweep(&path) && path.exists());
    // It keeps nobody from beginning, either.
    drop(Place::open(&path).expect("the path of the dead"));
    drop(begins);
    leave_dead(&path);
    assert!(Lease::sweep(&path) && !path.exists());
    std::fs::remove_dir(&folder).expect("nothing is left in it");
}

/// A helper that says `words`, and passes `files` of nothing when it hears yes: what the process says to that.
fn heard(words: &[u8], files: usize) -> LeaseError {
    let meeting = Meeting::new();
    let place = Place::open(&meeting.0).expect("a free path");
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = place.accept().expect("a process");
            say(&socket, words, &[]).expect("it listens");
            if hear(&socket).is_some() {
                let nothing = std::fs::File::open("/dev/null").expect("nothing");
                say(&socket, &MAGIC, &vec![nothing.as_fd(); files]).expect("it listens");
            }
        });
        take(&meeting.0, LOCAL.into()).map(drop).expect_err("there is no ring")
    })
}

#[test]
fn a_helper_that_is_none_is_no_more_than_an_error() {
    let terms = Terms { local: LOCAL, interface: 1, queue: 0, mtu: 1500, mode: Mode::Generic, scatter: true };
    assert!(
        matches!(heard(b"the ring is for somebody else; ask", 0), LeaseError::Refused(text) if text.contains("; ask"))
    );
    assert!(matches!(heard(b"two\nlines", 0), LeaseError::Strange { .. }));
    assert!(matches!(heard(&[0xff; 100], 0), LeaseError::Strange { .. }));
    assert!(matches!(heard(&terms.to_bytes(), 0), LeaseError::Strange { .. }));
    assert!(matches!(heard(&terms.to_bytes(), 3), LeaseError::Strange { .. }));
    assert!(matches!(heard(&terms.to_bytes(), FILES), LeaseError::Strange { .. }));
    assert!(matches!(heard(b"", 0), LeaseError::Silent(_)));
}

/// The helper would close them, for as long as their sender likes.
#[test]
fn a_helper_takes_no_files() {
    let meeting = Meeting::new();
    let place = Place::open(&meeting.0).expect("a free path");
    let nothing = std::fs::File::open("/dev/null").expect("nothing");
    let caller = reach(&meeting.0).expect("it listens");
    let socket = place.accept().expect("a process");
    match say(&caller, &MAGIC, &[nothing.as_fd()]) {
        // Linux 6.16 and later.
        Err(errno) => assert_eq!(errno, Errno::PERM),
        Ok(()) => assert!(strangers::brings_files(&socket)),
    }
    let flags = SocketFlags::CLOEXEC;
    let (from, to) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    say(&from, &MAGIC, &[nothing.as_fd()]).expect("it listens");
    say(&from, &MAGIC, &[]).expect("it listens");
    for files in [1, 0] {
        assert_eq!(strangers::brings_files(&to), files > 0);
        let (words, came) = hear(&to).expect("a record");
        assert_eq!((&words[..], came.len()), (&MAGIC[..], files));
    }
}

/// Anybody may call, so there may be more callers than the kernel keeps.
#[test]
fn who_comes_while_a_crowd_stands_outside_waits_for_its_turn() {
    let meeting = Meeting::new();
    let place = Place::open(&meeting.0).expect("a free path");
    let name = SocketAddrUnix::new(&meeting.0).expect("a name");
    let crowd: Vec<_> = std::iter::repeat_with(|| {
        let socket = unix(SocketType::SEQPACKET, SocketFlags::NONBLOCK).expect("a socket");
        connect(&socket, &name).map(|()| socket)
    })
    .map_while(Result::ok)
    .collect();
    assert!(crowd.len() > 1);
    thread::scope(|scope| {
        let comes = scope.spawn(|| reach(&meeting.0));
        thread::sleep(CROWDED * 50);
        let inside: Vec<_> = crowd.iter().map(|_| place.accept().expect("one of the crowd")).collect();
        comes.join().expect("no panic").expect("there is room now");
        assert_eq!(inside.len(), crowd.len());
    });
}

/// Hardware that writes the ring's memory itself writes there what is for others, too.
#[test]
fn a_lease_is_in_zero_copy_mode_only_if_that_is_asked_for() {
    use super::super::{Way, modes};
    for (is_virtual, expected) in [(false, &[Mode::Native, Mode::Generic][..]), (true, &[Mode::Generic])] {
        assert_eq!(modes(None, is_virtual, Way::Lent), expected);
    }
    assert_eq!(modes(Some(Mode::ZeroCopy), false, Way::Lent), [Mode::ZeroCopy]);
    assert_eq!(modes(None, false, Way::Copy).first(), Some(&Mode::ZeroCopy));
}

#[test]
fn what_cannot_be_leased_is_said_in_one_line() {
    for (address, what) in [
        ("udp:127.0.0.1:7000", "cannot be leased"),
        ("xdp:[::1]:7000", "cannot be leased"),
        ("xdp:", "is no address"),
        ("xdp:127.0.0.1:7000", "loopback"),
        ("xdp:192.0.2.1:7000", "is no address of this machine"),
    ] {
        let error = Lease::open(address, 0, None, &Meeting::new().0).expect_err(address).to_string();
        assert!(error.contains(what) && !error.contains('\n') && error.len() < 200, "{address}: {error}");
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    (any::<(u32, u16, u32, u32, bool)>(), 1..=MTU_MAX, 0..MODES.len()).prop_map(|(any, mtu, mode)| {
        let (ip, port, interface, queue, scatter) = any;
        let local = SocketAddrV4::new(ip.into(), port);
        Terms { local, interface, queue, mtu, mode: MODES[mode], scatter }
    })
}

proptest! {
    #[test]
    fn terms_are_heard_as_they_were_said(terms in terms()) {
        prop_assert_eq!(Terms::from_bytes(&terms.to_bytes()), Some(terms));
    }

    /// Bytes that are changed are other terms, which would be said like that, or none.
    #[test]
    fn no_two_records_are_the_same_terms(terms in terms(), at in 0..TERMS_BYTES, to: u8, cut in 0..TERMS_BYTES) {
        let mut bytes = terms.to_bytes();
        prop_assert_eq!(Terms::from_bytes(&bytes[..cut]), None);
        bytes[at] = to;
        if let Some(heard) = Terms::from_bytes(&bytes) {
            prop_assert_eq!(heard.to_bytes(), bytes);
        }
    }
}

/// Whoever owns the folder may put a link there instead of the socket: the mode of what it names stays.
#[test]
fn what_is_put_in_the_place_of_the_socket_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("cutthrough-lease-link-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (secret, link, socket) = (folder.join("secret"), folder.join("link"), folder.join("socket"));
    std::fs::write(&secret, b"").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert!(super::open_to_all(&link).is_err() && super::open_to_all(&secret).is_err());
    assert_eq!(mode(&secret), 0o600);
    let _place = super::Place::open(&socket).unwrap();
    assert_eq!(mode(&socket), 0o666);
    std::fs::remove_dir_all(&folder).unwrap();
}
