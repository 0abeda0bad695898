//! The behaviour suite over UDP, on loopback, sealed.

mod loopback;

use std::sync::Arc;

use cutthrough::{Adapter, ConnectError, Endpoint, Keys, PrivateKey, SealError, SharedKey, UdpCallError};
use cutthrough_conform::bytes::pattern;
use cutthrough_conform::join::PATIENCE;
use cutthrough_conform::suite::paths::{a_stream_is_placed, forged_and_unplaced};
use cutthrough_conform::{Join, Pair, Side, join, suite};

use loopback::Loopback;

/// Sealed by a key that both sides share.
fn shared() -> Loopback {
    Loopback(Some(Arc::new(Keys::Shared(SharedKey::from_bytes([42; 32])))))
}

suite!(shared());

/// What is sealed is opened where it lies: a seal costs no copy.
#[test]
fn messages_that_share_trains_land_where_they_belong() {
    assert!(a_stream_is_placed(&shared(), 8192));
}

/// Whatever lands where it does not belong, nothing is taken for forged, or has to come again.
#[test]
fn what_lands_elsewhere_comes_once() {
    for (join, posted) in [(Loopback(None), true), (Loopback(None), false), (shared(), true), (shared(), false)] {
        assert_eq!(forged_and_unplaced(&join, posted), [0, 0], "posted: {posted}, {join:?}");
    }
}

/// Messages and payloads in both directions, whose receipts say that they were sealed, also where there is no payload.
fn talk(pair: &mut Pair) {
    assert!(pair.a.endpoint.is_sealed() && pair.b.endpoint.is_sealed());
    for from_a in [true, false] {
        let (from, to): (&mut Side, &mut Side) =
            if from_a { (&mut pair.a, &mut pair.b) } else { (&mut pair.b, &mut pair.a) };
        for (number, len) in (0..).zip([1, 100, 5000, 300_000]) {
            let sent = from.endpoint.outgoing(from.channel).expect("room").write(b"first").send().expect("sent");
            assert_eq!((sent.adapter, sent.sealed), (Adapter::Udp, true), "{sent:?}");
            from.send_copy(b"payload", &pattern(number, len), None);
            let first = to.message();
            assert_eq!(first.control(), b"first");
            let came = first.receipt();
            assert_eq!((came.adapter, came.sealed, came.bytes), (Adapter::Udp, true, 0), "{came:?}");
            let mut message = to.message();
            let receipt = to.read_checked(&mut message, number);
            assert!(receipt.sealed, "{receipt:?}");
        }
    }
}

#[test]
fn a_shared_key_seals_both_ways() {
    talk(&mut shared().pair(suite::config(), suite::config()));
}

#[test]
fn static_keys_seal_both_ways() {
    let [ours, theirs] = [1, 2].map(|number| PrivateKey::from_bytes([number; 32]));
    let public = [ours.public(), theirs.public()];
    let [near, far] = [(ours, public[1]), (theirs, public[0])]
        .map(|(own, peer)| Loopback(Some(Arc::new(Keys::Static { own, peers: vec![peer] }))));
    let address = near.address();
    let mut b = far.listening(suite::config(), &address);
    let mut a = near.listening(suite::config(), &near.address());
    let (at_a, at_b) = join::connect(&mut a, &mut b, &address);
    let (a, b) = (Side { endpoint: a, channel: at_a }, Side { endpoint: b, channel: at_b });
    talk(&mut Pair { a, b, way: address.clone(), address, wire: true });
}

/// Three parties, each of which knows the public keys of both others: a call says which of them it is for, and both
/// sides learn whom they have.
#[test]
fn each_of_several_peers_is_called_by_its_key() {
    let own = [1, 2, 3].map(|number| PrivateKey::from_bytes([number; 32]));
    let public: Vec<_> = own.iter().map(PrivateKey::public).collect();
    let parties = own.map(|own| {
        let peers = public.iter().copied().filter(|peer| *peer != own.public()).collect();
        Loopback(Some(Arc::new(Keys::Static { own, peers })))
    });
    let open = |party: &Loopback| {
        let address = party.address();
        (party.listening(suite::config(), &address), address)
    };
    let [mut a, mut b, mut c] = parties.each_ref().map(open);
    let refusal = |from: &mut Endpoint, address: &str| match from.connect(address, PATIENCE) {
        Err(ConnectError::Net(UdpCallError::Peer(why))) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(&mut a.0, &b.1), SealError::WhichPeer);
    let stranger = PrivateKey::from_bytes([4; 32]).public();
    assert_eq!(refusal(&mut a.0, &format!("{}#{stranger}", b.1)), SealError::Unknown(stranger));
    for (to, number) in [(&mut b, 1), (&mut c, 2)] {
        let (at_a, at_to) = join::connect(&mut a.0, &mut to.0, &format!("{}#{}", to.1, public[number]));
        assert_eq!(a.0.peer(at_a).and_then(|peer| peer.key), Some(*public[number].bytes()));
        assert_eq!(to.0.peer(at_to).and_then(|peer| peer.key), Some(*public[0].bytes()));
    }
    // Who answers at that address, but has another key, is not believed.
    let error = a.0.connect(&format!("{}#{}", b.1, public[2]), PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Net(UdpCallError::Key)), "{error}");
}
