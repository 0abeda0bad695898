//! A request, a call, and memory of another: one server, and a client that uses it in all three ways.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cutthrough::am::{Args, Node, Service, Settings};
use cutthrough::rma::{Key, Owner, Region, Remote};
use cutthrough::rpc::{self, Client, Method};
use cutthrough::{Config, Endpoint};

const TIMEOUT: Duration = Duration::from_secs(1);
const ADD: u16 = 1;
const LENGTH: Method<String, u64> = Method::new(2).idempotent();

fn serve(address: &str) -> Result<(Service, Key), Box<dyn Error>> {
    let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
    // Active messages: a request of up to 16 words runs a handler, which replies once.
    node.short(ADD, Args::Words(2), |request| {
        let sum = request.word(0) + request.word(1);
        request.reply(&[sum]);
    });
    // Calls: a method has types.
    rpc::serve(&mut node, LENGTH, |text| Ok(text.len() as u64));
    // Memory: who knows the key may read and write this region.
    let key = Owner::new(&mut node).register(&Region::new(1 << 20, 4096));
    node.listen(address)?;
    Ok((Service::spawn(node, |_| ())?, key))
}

fn run() -> Result<(), Box<dyn Error>> {
    let address = format!("shm:layers-{}", std::process::id());
    let (_server, key) = serve(&address)?;

    let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
    let channel = node.connect(&address, TIMEOUT)?;
    let reply = node.call(channel, ADD, &[20, 22], TIMEOUT)?;
    println!("20 + 22 = {}", reply.word(0));

    let mut remote = Remote::new(&mut node, channel, key, TIMEOUT);
    remote.put(4096, b"hello")?;
    let mut back = [0; 5];
    remote.get(4096, &mut back)?;
    println!("read back: {}; counter was {}", String::from_utf8_lossy(&back), remote.fetch_add(0, 1)?);

    let service = Arc::new(Service::spawn(node, |_| ())?);
    let client = Client::connect(service, &address, TIMEOUT)?;
    println!("length: {}", client.call(LENGTH, &"hello".to_owned())?);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("layers: {error}");
            ExitCode::FAILURE
        }
    }
}
