//! What a ring needs: a way to the other end, a right, an interface, a kernel.

use super::*;

#[test]
fn the_way_is_found() {
    let Some(wire) = wire(1400) else { return };
    let ends = (SocketAddrV4::new(NEAR, 5), SocketAddrV4::new(FAR, 6));
    wire.near.within(|| {
        let mut routes = Routes::open().unwrap();
        let error = routes.hop(ends.0, ends.1).unwrap_err();
        assert!(matches!(error, RouteError::Unresolved(FAR)), "{error}");
        let route = routes.route(None, FAR).unwrap();
        assert_eq!((route.source, route.next, route.interface.mtu), (NEAR, FAR, 1400));
        assert_eq!(route.interface.name, "near");
        let own = routes.route(None, NEAR).unwrap_err();
        assert!(matches!(own, RouteError::Loopback(NEAR)), "{own}");
        let nowhere = routes.route(None, [192, 0, 2, 1].into()).unwrap_err();
        assert!(matches!(nowhere, RouteError::NoRoute(_)), "{nowhere}");
        let all = routes.route(None, [10, 74, 0, 3].into()).unwrap_err();
        assert!(matches!(all, RouteError::Many(_)), "{all}");
        let (socket, local) = socket(NEAR);
        let (interface, way) = hop(&socket, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local.port()), ends.1);
        assert_eq!((interface, way.local(), way.remote()), (route.interface.clone(), local, ends.1));
        // The hardware addresses are those that the other side knows.
        let head = Envelope::write(&way, 0);
        assert_eq!(head[6..12], route.interface.mac);
        let theirs = wire.far.within(|| Routes::open().unwrap().route(None, NEAR)).unwrap().interface;
        assert_eq!((head[..6].to_vec(), theirs.name.as_str()), (theirs.mac.to_vec(), "far"));
    });
    // Through a router: the frame goes to the router's hardware address.
    wire.near.ip(&format!("route add 198.51.100.0/24 via {FAR}"));
    wire.near.within(|| {
        let mut routes = Routes::open().unwrap();
        let distant = SocketAddrV4::new([198, 51, 100, 7].into(), 8);
        let (_, direct) = routes.hop(ends.0, ends.1).unwrap();
        let (_, way) = routes.hop(ends.0, distant).unwrap();
        assert_eq!(Envelope::write(&way, 0)[..14], Envelope::write(&direct, 0)[..14]);
        assert_eq!(way.remote(), distant);
    });
}

#[test]
fn who_may_not_is_told_which_right_is_missing() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let loopback = Interface { index: 1, name: "lo".into(), mac: [0; 6], mtu: 1500 };
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            // The rights of this thread alone.
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
            let (socket, local) = socket(Ipv4Addr::LOCALHOST);
            PacketRing::open(vec![again(&socket)], local, &loopback).unwrap_err()
        });
        let error = refused.join().unwrap();
        assert!(matches!(error, PacketError::Right) && error.to_string().contains("CAP_NET_RAW"), "{error}");
    });
}

#[test]
fn an_interface_that_is_gone_or_down_is_named() {
    let Some(wire) = wire(1500) else { return };
    wire.near.within(|| {
        let (socket, local) = socket(NEAR);
        let mut interface = Routes::open().unwrap().route(None, FAR).unwrap().interface;
        let open = |interface: &Interface| PacketRing::open(vec![again(&socket)], local, interface);
        wire.near.ip("link set near down");
        let error = open(&interface).unwrap_err();
        assert!(matches!(&error, PacketError::Interface(name) if name == "near"), "{error}");
        wire.near.ip("link set near up");
        let ring = open(&interface).unwrap();
        interface.index = 999;
        let error = open(&interface).unwrap_err();
        assert!(matches!(error, PacketError::Interface(_)), "{error}");
        let anywhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local.port());
        let error = PacketRing::open(vec![again(&socket)], anywhere, &interface).unwrap_err();
        assert!(matches!(error, PacketError::Anywhere(_)), "{error}");
        drop(ring);
    });
}

#[test]
fn releases_are_read() {
    for (release, expected) in [
        ("6.18.5", Some((6, 18))),
        ("6.2-rc1", Some((6, 2))),
        ("5.15.0-101-generic", Some((5, 15))),
        ("7", None),
        ("", None),
        ("x.y", None),
    ] {
        assert_eq!(version(release), expected, "{release}");
    }
}
