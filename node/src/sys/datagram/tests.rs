use std::time::{Duration, Instant};

use super::*;
use crate::sys::packet::{attach, detach};

fn pair(at: &str) -> (Datagrams, Datagrams) {
    let bind = || Datagrams::bind(at.parse().unwrap()).unwrap();
    (bind(), bind())
}

/// Waits for what has been sent; loopback delivers at once, but on a busy machine not to a busy core.
fn receive(at: &Datagrams, parts: &mut [IoSliceMut<'_>]) -> Received {
    let begun = Instant::now();
    loop {
        match at.receive(parts) {
            Err(Errno::AGAIN) => assert!(begun.elapsed() < Duration::from_secs(10), "nothing came"),
            other => return other.unwrap(),
        }
    }
}

fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

const FAMILIES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

#[test]
fn a_datagram_comes_as_it_went_and_says_from_whom() {
    for at in FAMILIES {
        let (a, b) = pair(at);
        let to = Some(b.local().unwrap());
        assert_eq!(b.receive(&mut []), Err(Errno::AGAIN));
        for bytes in [1, 64, 1400, 9000, 65_000] {
            let sent: Vec<u8> = (0..bytes).map(low_byte).collect();
            assert_eq!(a.send(to, &[IoSlice::new(&sent[..1]), IoSlice::new(&sent[1..])], None), Ok(sent.len()));
            let mut room = vec![0; TRAIN_BYTES];
            let received = receive(&b, &mut [IoSliceMut::new(&mut room)]);
            let segment = u16::try_from(bytes).unwrap();
            let from = a.local().unwrap();
            assert_eq!(received, Received { bytes: sent.len(), segment, from, local: None, truncated: false });
            assert!(room[..sent.len()] == sent);
        }
    }
}

/// Headers of a train go aside and its slices land at their places, whatever the lengths are.
#[test]
fn a_train_is_placed_by_the_scatter_list() {
    const HEADER: usize = 32;
    for at in FAMILIES {
        let (a, b) = pair(at);
        let to = Some(b.local().unwrap());
        for (payload_bytes, slice) in [(8192, 1440), (65_000 - 46 * HEADER, 1440), (8192, 8192), (10, 3), (1, 1)] {
            let payload: Vec<u8> = (0..payload_bytes).map(|at| low_byte(at * 7 / 8)).collect();
            let headers: Vec<[u8; HEADER]> =
                (0..payload_bytes.div_ceil(slice)).map(|number| [low_byte(number + 1); HEADER]).collect();
            let parts: Vec<IoSlice<'_>> = headers
                .iter()
                .zip(payload.chunks(slice))
                .flat_map(|(header, slice)| [IoSlice::new(header), IoSlice::new(slice)])
                .collect();
            let segment = u16::try_from(HEADER + slice).unwrap();
            let bytes = payload_bytes + headers.len() * HEADER;
            assert_eq!(a.send(to, &parts, Some(segment)), Ok(bytes));

            let mut aside = vec![[0; HEADER]; headers.len()];
            let mut landed = vec![0; payload_bytes];
            let mut places: Vec<IoSliceMut<'_>> = aside
                .iter_mut()
                .zip(landed.chunks_mut(slice))
                .flat_map(|(header, slice)| [IoSliceMut::new(header), IoSliceMut::new(slice)])
                .collect();
            let received = receive(&b, &mut places);
            assert_eq!((received.bytes, received.truncated), (bytes, false));
            let whole = u16::try_from(bytes).unwrap();
            assert_eq!(received.segment, if headers.len() == 1 { whole } else { segment });
            assert!(aside == headers && landed == payload, "{payload_bytes} by {slice}");
        }
    }
}

/// Who is bound to all addresses hears to which one a train has come, and answers from there.
#[test]
fn a_train_comes_from_the_address_that_is_named() {
    for (all, host) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")] {
        let host: IpAddr = host.parse().unwrap();
        let [a, b] = [SocketAddr::new(host, 0), all.parse().unwrap()].map(|at| Datagrams::bind(at).unwrap());
        assert_eq!((a.tell_local().unwrap(), b.tell_local().unwrap()), (false, true));
        let called = SocketAddr::new(host, b.local().unwrap().port());
        assert_eq!(a.send(Some(called), &[IoSlice::new(&[7; 100])], Some(40)), Ok(100));
        let mut room = [0; 200];
        let received = receive(&b, &mut [IoSliceMut::new(&mut room)]);
        assert_eq!((received.bytes, received.segment, received.local), (100, 40, Some(host)));
        let back = (Some(host), Some(received.from));
        assert_eq!(b.send_from(back.0, back.1, &[IoSlice::new(&[8; 90])], Some(40)), Ok(90));
        let received = receive(&a, &mut [IoSliceMut::new(&mut room)]);
        assert_eq!((received.bytes, received.segment, received.from), (90, 40, called));
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let (a, b) = pair(FAMILIES[0]);
    a.send(Some(b.local().unwrap()), &[IoSlice::new(&[7; 100])], Some(40)).unwrap();
    let mut room = [0; 50];
    let received = receive(&b, &mut [IoSliceMut::new(&mut room)]);
    assert_eq!((received.bytes, received.segment, received.truncated), (100, 40, true));
    assert_eq!(room, [7; 50]);
    assert_eq!(a.send(Some(b.local().unwrap()), &[IoSlice::new(&vec![0; TRAIN_BYTES + 1])], None), {
        Err(Errno::MSGSIZE)
    });
}

#[test]
fn one_that_is_joined_hears_only_its_peer() {
    for at in FAMILIES {
        let (a, b) = pair(at);
        let stranger = Datagrams::bind(at.parse().unwrap()).unwrap();
        a.connect(b.local().unwrap()).unwrap();
        b.connect(a.local().unwrap()).unwrap();
        stranger.send(Some(b.local().unwrap()), &[IoSlice::new(b"who")], None).unwrap();
        assert_eq!(a.send(None, &[IoSlice::new(b"me")], None), Ok(2));
        let mut room = [0; 10];
        let received = receive(&b, &mut [IoSliceMut::new(&mut room)]);
        assert_eq!((received.bytes, received.from), (2, a.local().unwrap()));
        assert_eq!(b.receive(&mut [IoSliceMut::new(&mut room)]), Err(Errno::AGAIN));
    }
}

#[test]
fn a_peer_that_is_not_there_is_refused_only_where_it_was_joined() {
    let (a, b) = pair(FAMILIES[0]);
    let to = b.local().unwrap();
    drop(b);
    assert_eq!(a.send(Some(to), &[IoSlice::new(b"x")], None), Ok(1));
    assert_eq!(a.receive(&mut []), Err(Errno::AGAIN));
    a.connect(to).unwrap();
    a.send(None, &[IoSlice::new(b"x")], None).unwrap();
    let begun = Instant::now();
    while a.receive(&mut []) != Err(Errno::CONNREFUSED) {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn the_way_to_this_machine_is_known() {
    let loopback = Datagrams::route_mtu("127.0.0.1:9".parse().unwrap()).unwrap();
    assert!(loopback >= 1280);
    assert!(Datagrams::route_mtu("[::1]:9".parse().unwrap()).unwrap() >= 1280);
    assert!(Datagrams::route_mtu("[::1]:0".parse().unwrap()).is_ok());
}

#[test]
fn it_has_room_for_a_few_trains_and_refuses_a_taken_port() {
    let (a, _) = pair(FAMILIES[0]);
    assert!(a.receive_bytes() >= 2 * TRAIN_BYTES, "{}", a.receive_bytes());
    let error = Datagrams::bind(a.local().unwrap()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn two_share_a_port_and_no_third_has_it() {
    for at in FAMILIES {
        let (main, peer) = pair(at);
        let other = Datagrams::bind(at.parse().unwrap()).unwrap();
        let address = main.local().unwrap();
        let beside = Datagrams::unbound(address).unwrap();
        beside.bind_beside(&main, address).unwrap();
        beside.connect(peer.local().unwrap()).unwrap();
        let third = Datagrams::unbound(address).unwrap();
        sockopt::set_socket_reuseport(&third, true).unwrap();
        assert_eq!(rustix::net::bind(&third, &address), Err(Errno::ADDRINUSE));
        // What the peer sends comes to the one that is joined to it, what others send to the other one.
        peer.send(Some(address), &[IoSlice::new(b"peer")], None).unwrap();
        other.send(Some(address), &[IoSlice::new(b"others")], None).unwrap();
        let mut room = [0; 8];
        assert_eq!(receive(&beside, &mut [IoSliceMut::new(&mut room)]).bytes, 4);
        assert_eq!(receive(&main, &mut [IoSliceMut::new(&mut room)]).bytes, 6);
        // And what both send comes from one address.
        beside.send(None, &[IoSlice::new(b"one")], None).unwrap();
        assert_eq!(receive(&peer, &mut [IoSliceMut::new(&mut room)]).from, address);
    }
}

/// Control messages for which there was no room are cut short, and say so.
#[test]
fn what_was_cut_short_is_not_read() {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let ipi6_addr = libc::in6_addr { s6_addr: address.octets() };
    let (mut control, mut message) = (Control::default(), empty());
    control.add(&mut message, (libc::SOL_UDP, libc::UDP_GRO), 1400 as c_int);
    let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 1 };
    control.add(&mut message, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
    assert_eq!(Control::told(&message), (Some(1400), Some(address.into())));
    // SAFETY: the room holds both messages; of the second only the length is changed, to what is there of it.
    unsafe {
        let second = libc::CMSG_NXTHDR(&raw const message, libc::CMSG_FIRSTHDR(&raw const message));
        (*second).cmsg_len = libc::CMSG_LEN(8) as usize;
        message.msg_controllen = (libc::CMSG_SPACE(4) + libc::CMSG_SPACE(8)) as usize;
    }
    assert_eq!(Control::told(&message), (Some(1400), None));
}

/// What the socket cannot take is counted one by one; what a filter leaves out is not to be told from that.
#[test]
fn what_was_dropped_is_counted() {
    for at in FAMILIES {
        let (a, b) = pair(at);
        assert_eq!(b.dropped(), Some(0));
        sockopt::set_socket_recv_buffer_size(&b, 4096).unwrap();
        // Each is one that the kernel joins with no other: it takes no trains.
        b.set_trains(false).unwrap();
        for _ in 0..100 {
            a.send(Some(b.local().unwrap()), &[IoSlice::new(&[7; 1000])], None).unwrap();
        }
        let (begun, mut came, mut room) = (Instant::now(), 0, [0; 1000]);
        while came + b.dropped().unwrap() < 100 {
            came += u32::from(b.receive(&mut [IoSliceMut::new(&mut room)]).is_ok());
            assert!(begun.elapsed() < Duration::from_secs(10), "{came} and {:?}", b.dropped());
        }
        assert!(came > 0 && came < 100, "{came} came");
        assert_eq!((came + b.dropped().unwrap(), a.dropped()), (100, Some(0)));
        let none = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
        attach(b.as_fd(), &[none]).unwrap();
        assert_eq!(b.dropped(), None);
        detach(b.as_fd()).unwrap();
        assert!(b.dropped().is_some());
    }
}
