//! A process that has no file descriptors left. This test is alone in its process.

mod two;

use std::sync::mpsc;
use std::time::Duration;

use cutthrough::am::{Args, Service, Settings};
use two::{Over, PATIENCE, small};

#[test]
fn a_service_goes_on_without_file_descriptors() {
    let (_server, node, channel) = Over::Shm.serve_with(small(), Settings::default(), |node| {
        node.short(1, Args::Any, |request| request.reply(&[1]));
    });
    let service = Service::spawn(node, |_| ()).expect("a thread");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let none = rustix::process::Rlimit { current: Some(0), maximum: limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, none).expect("a lower limit");
    for round in 0..3 {
        let (tell, told) = mpsc::channel();
        let asked = service.with(|node| {
            node.ask(channel, 1).send_then(move |_, reply| {
                let _ = tell.send(reply.is_ok());
            })
        });
        asked.expect("room");
        assert_eq!(told.recv_timeout(PATIENCE / 4), Ok(true), "round {round}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
