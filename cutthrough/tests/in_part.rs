//! A long payload moves while its request is served already. If the channel ends meanwhile, nobody knows what has
//! become of the call, and it is not made again unless it may be.

mod two;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutthrough::Config;
use cutthrough::am::{Args, Body, RequestError, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use two::{Over, PATIENCE, small};

over_both! { a_call_that_was_sent_in_part_is_not_made_again }

fn a_call_that_was_sent_in_part_is_not_made_again(over: Over) {
    let tight = || Config { pool_bytes: 64 << 10, deadline: Duration::from_millis(200), ..small() };
    // Over a network this server is held by the payload that was given up, longer than the other side waits.
    for idempotent in [false, true].into_iter().take(if over == Over::Shm { 2 } else { 1 }) {
        let (mut node, address) = over.listening(small(), Settings::default());
        let runs = Arc::new(Mutex::new(0));
        let its = Arc::clone(&runs);
        node.long(20, Args::Any, 32 << 20, move |mut request| {
            let run = {
                let mut runs = its.lock().expect("no panic");
                *runs += 1;
                *runs
            };
            if run == 1 {
                // Longer than the other side waits.
                std::thread::sleep(Duration::from_millis(600));
                return request.refuse(b"late");
            }
            // Those that were given up, too.
            let mut bytes = vec![0; request.payload_len()];
            match request.read(&mut bytes) {
                Ok(_) => request.reply(&[u32::try_from(bytes.len()).expect("few")]),
                Err(_) => request.refuse(b"gone"),
            }
        });
        let _server = Service::spawn(node, |_| ()).expect("a thread");
        let service = Arc::new(Service::spawn(Over::node(tight(), Settings::default()), |_| ()).expect("a thread"));
        let client = Client::connect(service, &address, PATIENCE).expect("a channel");
        let long = vec![1; 24 << 20];
        let raw = Raw::new(20).body(Body::Copy(&long));
        let raw = if idempotent { raw.idempotent() } else { raw };
        let outcome = client.within(PATIENCE).call_raw(raw);
        if idempotent {
            assert_eq!(outcome.expect("a reply").word(0), 24 << 20);
            assert!(*runs.lock().expect("no panic") > 1);
        } else {
            assert_eq!(outcome.expect_err("no reply").error, RequestError::Lost.into());
            std::thread::sleep(Duration::from_millis(600));
            assert_eq!(*runs.lock().expect("no panic"), 1, "it was made again");
        }
    }
}
