//! Pages that a server answers with, or gets: how they came, and that those which are kept may go again and again.

mod two;

use std::sync::Arc;

use cutthrough::am::{Body, Service, Settings};
use cutthrough::rpc::{self, Client, Raw};
use cutthrough::{Config, Frozen, Path, Payload};
use two::{Over, PATIENCE};

over_both! {
    a_frozen_page_answers_every_call, a_server_knows_how_a_payload_came,
}

fn service() -> Arc<Service> {
    Arc::new(Service::spawn(Over::node(Config::default(), Settings::default()), |_| ()).expect("a thread"))
}

/// A page that is answered again and again is written once, though callers keep what they got.
fn a_frozen_page_answers_every_call(over: Over) {
    const VALUE: u16 = 78;
    let (server, _, _) = over.serve(|node| {
        let mut value: Option<Frozen> = None;
        rpc::serve_raw(node, VALUE, move |mut request| {
            let value = value.get_or_insert_with(|| {
                let mut page = request.page(4096).expect("a page");
                page.fill(0x77);
                page.freeze()
            });
            request.reply_with(&[], (&*value).into());
        });
    });
    let client = Client::connect(service(), &server.address, PATIENCE);
    let client = client.expect("a channel");
    let mut kept = Vec::new();
    for _ in 0..300 {
        let reply = client.call_raw(Raw::new(VALUE)).expect("a reply");
        match reply.payload() {
            Payload::Landed(landed) => assert!(landed.to_vec() == [0x77; 4096]),
            other => panic!("{other:?}"),
        }
        if over == Over::Shm {
            assert_eq!((reply.receipt().path, reply.receipt().copies), (Path::Reference, 0));
        }
        kept.push(reply);
    }
}

/// Whoever serves had no way to tell whether a page of the caller's had come without a copy.
fn a_server_knows_how_a_payload_came(over: Over) {
    const TELLS: u16 = 77;
    let (server, _, _) = over.serve(|node| {
        rpc::serve_raw(node, TELLS, |request| {
            let receipt = request.receipt();
            let by_reference = receipt.path == Path::Reference;
            request.reply(&[u32::from(by_reference), receipt.copies, u32::try_from(receipt.bytes).unwrap_or(u32::MAX)]);
        });
    });
    let client = Client::connect(service(), &server.address, PATIENCE);
    let client = client.expect("a channel");
    let mut page = client.page(9000).expect("a page");
    page.fill(7);
    let reply = client.call_raw(Raw::new(TELLS).body(Body::Page(page))).expect("a reply");
    let [by_reference, copies, bytes] = reply.words();
    assert_eq!(bytes, 9000);
    if over == Over::Shm {
        assert_eq!((by_reference, copies), (1, 0));
    }
    assert_eq!(client.call_raw(Raw::new(TELLS)).expect("a reply").words(), [0, 0, 0]);
}
