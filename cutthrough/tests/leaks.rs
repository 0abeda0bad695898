//! Whatever a public function, field or error mentions can be named, for a match, a field or an argument.

use std::time::Duration;

use cutthrough::{
    AddressError, Config, ConnectError, Endpoint, Errno, HandshakeError, HelloRefusal, LIST_MAX, LeaseError, MapError,
    NoChannel, OpenError, Policy, PolicyError, RoomError, SendError, SizeError, TOKENS, WaitError, XdpBroken, XdpError,
};

/// The number of the system, if it has said one.
fn errno_of(error: &ConnectError) -> Option<Errno> {
    match error {
        ConnectError::Handshake(HandshakeError::Socket(errno)) | ConnectError::System(errno) => Some(*errno),
        ConnectError::Handshake(HandshakeError::Memory(MapError::Create(errno) | MapError::Map { errno, .. })) => {
            Some(*errno)
        }
        ConnectError::Address(AddressError::System { error, .. }) => Errno::from_io_error(error),
        _ => None,
    }
}

#[test]
fn settings_say_what_is_wrong_with_them() {
    let sizes: Result<_, SizeError> = Config { slots: 3, ..Config::default() }.sizes();
    assert_eq!(sizes.err(), Some(SizeError::Slots));
    let which: fn(OpenError) -> Option<SizeError> = |error| match error {
        OpenError::Sizes { which, .. } => Some(which),
        _ => None,
    };
    assert_eq!(which(OpenError::Sizes { which: SizeError::Page, given: 5 }), Some(SizeError::Page));
    assert_eq!("sometimes".parse::<Policy>(), Err(PolicyError::Unknown));
}

/// Another crate of the same program may ask for a feature that this one does not know of.
#[test]
fn settings_are_the_same_with_a_feature_and_without() {
    let host: Option<cutthrough::simulated::Host> = Config::default().host;
    assert!(host.is_none());
    assert!(Endpoint::open(Config { host, ..Config::default() }).is_ok());
}

#[test]
fn a_handshake_says_why_there_is_no_channel() {
    let why: fn(&HandshakeError) -> Option<NoChannel> = |error| match error {
        HandshakeError::NoChannel(why) => Some(*why),
        _ => None,
    };
    let refused = NoChannel::Refused(HelloRefusal::Channels);
    assert_eq!(why(&HandshakeError::NoChannel(refused)), Some(refused));
}

#[test]
fn what_the_system_says_is_an_errno() {
    assert_eq!(errno_of(&ConnectError::System(Errno::MFILE)), Some(Errno::MFILE));
    assert_eq!(errno_of(&ConnectError::Timeout(Duration::ZERO)), None);
    assert_eq!(RoomError::from(WaitError::System(Errno::NOMEM)), RoomError::System(Errno::NOMEM));
    assert_eq!(std::io::Error::from(Errno::ACCESS).kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_ring_says_why_there_is_none() {
    let broken = XdpBroken { ring: "fill", alleged: 9, capacity: 8 };
    let LeaseError::Ring(XdpError::Broken(found)) = LeaseError::from(XdpError::from(broken)) else { panic!("lost") };
    assert_eq!(found, broken);
}

#[test]
fn limits_have_names() {
    assert!(SendError::ListTooLong.to_string().contains(&LIST_MAX.to_string()));
    assert!(cutthrough::NoMemory::NoTokens.to_string().contains(&TOKENS.to_string()));
}
