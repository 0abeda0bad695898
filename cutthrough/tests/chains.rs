//! What an error has printed of its cause, it does not return as its source too: who prints a chain reads nothing
//! twice.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use cutthrough::am::{CallError, Ended, Failure, Malformed, RequestError, ServiceError};
use cutthrough::rpc::RpcError;
use cutthrough::{
    AddressError, Breach, CloseReason, ConnectError, Errno, HandshakeError, HelloRefusal, KeyError, KeyFault,
    KeyFileError, Keys, LeaseError, ListenError, MapError, NoChannel, NoMemory, OpenError, ReadError, Refused,
    RevokeError, RoomError, SealError, SendError, SizeError, UdpAddressError, UdpCallError, WaitError, XdpBroken,
    XdpError,
};

fn refused() -> io::Error {
    io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error())
}

fn path() -> PathBuf {
    PathBuf::from("/some/where")
}

fn of_addresses() -> Vec<Box<dyn Error>> {
    let address = || "127.0.0.1:7".parse().expect("an address");
    let host = || UdpAddressError::Host { host: "host:7".into(), error: refused() };
    let system = || AddressError::System { path: path(), error: refused() };
    let taken = || LeaseError::Taken(path());
    let fault: KeyError = Keys::from_text("\n\npsk:0").expect_err("a key has 64 digits");
    vec![
        Box::new(AddressError::Folder { path: path(), error: refused() }),
        Box::new(system()),
        Box::new(host()),
        Box::new(UdpAddressError::Peer { address: "udp:host:7".into(), fault: KeyFault::Kind }),
        Box::new(UdpAddressError::Lease(Box::new(taken()))),
        Box::new(UdpAddressError::Socket { address: address(), error: refused() }),
        Box::new(LeaseError::Malformed(host())),
        Box::new(LeaseError::Port { address: address(), error: refused() }),
        Box::new(LeaseError::Path { path: path(), errno: Errno::ACCESS }),
        Box::new(LeaseError::Ring(XdpError::Memory(MapError::Create(Errno::NOMEM)))),
        Box::new(XdpError::Unsupported { what: "a ring", errno: Errno::NOSYS }),
        Box::new(XdpError::Refused { what: "a ring", errno: Errno::ACCESS }),
        Box::new(XdpError::Broken(XdpBroken { ring: "fill", alleged: 9, capacity: 8 })),
        Box::new(KeyFileError::Unreadable { path: path(), error: refused() }),
        Box::new(KeyFileError::Wrong { path: path(), fault }),
        Box::new(ListenError::Address(system())),
        Box::new(ListenError::Net(host())),
        Box::new(ConnectError::Address(system())),
        Box::new(ConnectError::NetAddress(UdpAddressError::Lease(Box::new(taken())))),
        Box::new(ConnectError::Handshake(HandshakeError::NoChannel(NoChannel::Refused(HelloRefusal::Memory)))),
        Box::new(ConnectError::Handshake(HandshakeError::Memory(MapError::Create(Errno::NOMEM)))),
        Box::new(ConnectError::Net(UdpCallError::Peer(SealError::NoPeer))),
        Box::new(ConnectError::System(Errno::MFILE)),
    ]
}

fn of_channels() -> Vec<Box<dyn Error>> {
    let breach = CloseReason::Breach(Breach::Page);
    let ended = Ended::Closed(breach);
    let not_sent = RequestError::NoMemory(NoMemory::NoPages);
    vec![
        Box::new(OpenError::Sizes { which: SizeError::Slots, given: 3 }),
        Box::new(OpenError::Memory(MapError::Map { bytes: 9, errno: Errno::NOMEM })),
        Box::new(OpenError::System { what: "an eventfd", errno: Errno::MFILE }),
        Box::new(breach),
        Box::new(SendError::Closed(breach)),
        Box::new(NoMemory::Closed(breach)),
        Box::new(RevokeError::Closed(breach)),
        Box::new(RevokeError::Refused(Refused::Wrong)),
        Box::new(ReadError::Closed(breach)),
        Box::new(RoomError::Closed(breach)),
        Box::new(RoomError::System(Errno::NOMEM)),
        Box::new(WaitError::System(Errno::NOMEM)),
        Box::new(ended),
        Box::new(Ended::Broken(Malformed::Length)),
        Box::new(ServiceError::System(refused())),
        Box::new(not_sent),
        Box::new(CallError::Closed(ended)),
        Box::new(CallError::Failed(Failure::Busy)),
        Box::new(CallError::NotSent(not_sent)),
        Box::new(CallError::Payload(ReadError::Closed(breach))),
        Box::new(RpcError::Call(CallError::Closed(ended))),
    ]
}

/// Each text of a chain says something that the one before it has not said.
#[test]
fn no_chain_says_anything_twice() {
    for error in of_addresses().into_iter().chain(of_channels()) {
        let causes = std::iter::successors(Some(&*error), |error: &&dyn Error| (*error).source());
        let chain: Vec<_> = causes.map(ToString::to_string).collect();
        for pair in chain.windows(2) {
            assert!(!pair[0].contains(&pair[1]), "{chain:?}");
        }
    }
}
