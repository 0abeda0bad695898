//! A key-value store whose values travel as payloads: `kv serve [ADDRESS]`, `kv set KEY VALUE [ADDRESS]`,
//! `kv get KEY [ADDRESS]`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cutthrough::am::{Node, Service, Settings};
use cutthrough::rpc::{self, Client, Method};
use cutthrough::{Config, Endpoint};

/// Sets the value of a key: the one before.
const SET: Method<(String, Vec<u8>), Option<Vec<u8>>> = Method::new(1);
/// The value of a key. Asked twice, it says the same.
const GET: Method<String, Option<Vec<u8>>> = Method::new(2).idempotent();

const USAGE: &str = "usage: kv serve [ADDRESS] | kv set KEY VALUE [ADDRESS] | kv get KEY [ADDRESS]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    // Any value may look like an address: what stands behind the words of a command is one.
    let count = match words.first() {
        Some(&"serve") => 1,
        Some(&"set") => 3,
        _ => 2,
    };
    let (words, address) = match words.as_slice() {
        [words @ .., address] if words.len() == count => (words, *address),
        words => (words, "shm:kv"),
    };
    let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
    let client = |node| -> Result<Client, Box<dyn std::error::Error>> {
        let service = Service::spawn(node, |_| ())?;
        Ok(Client::connect(Arc::new(service), address, Duration::from_secs(1))?)
    };
    match words {
        ["serve"] => {
            // Both methods run on the one thread that polls, so the lock is never waited for.
            let store = Arc::new(std::sync::Mutex::new(HashMap::new()));
            let its = Arc::clone(&store);
            rpc::serve(&mut node, SET, move |(key, value)| Ok(its.lock().map_err(|_| "broken")?.insert(key, value)));
            rpc::serve(&mut node, GET, move |key| Ok(store.lock().map_err(|_| "broken")?.get(&key).cloned()));
            node.listen(address)?;
            println!("storing at {address}");
            loop {
                node.wait(None)?;
            }
        }
        ["set", key, value] => {
            let before = client(node)?.call(SET, &((*key).to_owned(), value.as_bytes().to_vec()))?;
            println!("{}", if before.is_some() { "replaced" } else { "stored" });
        }
        ["get", key] => match client(node)?.call(GET, &(*key).to_owned())? {
            Some(value) => println!("{}", String::from_utf8_lossy(&value)),
            None => return Err("no such key".into()),
        },
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
