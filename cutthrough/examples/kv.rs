//! A key-value store: `kv serve [ADDRESS [KEYS]]`, `kv set KEY VALUE [ADDRESS [KEYS]]`, `kv get KEY [ADDRESS [KEYS]]`.
//! The value `-` is read from standard input. KEYS is the file of a key, for an address of another machine.
//!
//! Keys travel in the control message. A value goes in pages that the client fills, from which the server copies it. It
//! comes straight from where the server has it into pages of the client.

use std::collections::HashMap;
use std::error::Error;
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cutthrough::am::{Args, Body, Failure, Node, Service, Settings};
use cutthrough::rpc::{self, Client, Raw, RpcError};
use cutthrough::{Config, Endpoint, Landing, Payload, read_keys};

/// Sets the value of a key: whether there was one before.
const SET: u16 = 1;
/// The value of a key. Asked twice, it says the same.
const GET: u16 = 2;
/// Most bytes of a key.
const KEY_MOST: usize = 64;
/// Most bytes of a value.
const VALUE_MOST: usize = 1 << 20;

/// What `--help` says.
const HELP: &str = "A key-value store. The value - is read from standard input.\n\n\
    usage: kv serve [ADDRESS [KEYS]]\n\
    \x20      kv set KEY VALUE|- [ADDRESS [KEYS]]\n\
    \x20      kv get KEY [ADDRESS [KEYS]]\n\n\
    ADDRESS is shm:NAME on this machine, or udp:HOST:PORT [default: shm:kv].\n\
    KEYS is the file of a key, for udp; 'cutthrough key FILE' makes one.";

const USAGE: &str =
    "usage: kv serve [ADDRESS [KEYS]] | kv set KEY VALUE|- [ADDRESS [KEYS]] | kv get KEY [ADDRESS [KEYS]]";

/// A node that has the keys of this file, if one is given.
fn open(keys: Option<&str>) -> Result<Node, Box<dyn Error>> {
    let keys = keys.map(read_keys).transpose()?;
    Ok(Node::new(Endpoint::open(Config { keys, ..Config::default() })?, Settings::default()))
}

fn serve(address: &str, keys: Option<&str>) -> Result<(), Box<dyn Error>> {
    let mut node = open(keys)?;
    // Both methods run on the one thread that polls, so the lock is never waited for.
    let store = Arc::new(Mutex::new(HashMap::<Vec<u8>, Vec<u8>>::new()));
    let its = Arc::clone(&store);
    // As `rpc::serve_raw`, but a longer value is refused before it comes.
    node.whole(SET, Args::Any, VALUE_MOST, move |mut request| {
        // The client still sees its pages, and may write there: what is kept is a copy.
        let mut value = vec![0; request.payload_len()];
        if request.read(&mut value).is_err() {
            return request.fail(Failure::Abandoned);
        }
        let mut store = its.lock().unwrap_or_else(PoisonError::into_inner);
        let before = store.insert(request.args().to_vec(), value);
        request.reply(&[u32::from(before.is_some())]);
    });
    rpc::serve_raw(&mut node, GET, move |request| {
        let store = store.lock().unwrap_or_else(PoisonError::into_inner);
        match store.get(request.args()) {
            Some(value) => request.reply_with(&[], Body::Copy(value)),
            None => request.refuse(b"no such key"),
        }
    });
    node.listen(address)?;
    println!("storing at {address}");
    loop {
        node.wait(None)?;
    }
}

fn connect(address: &str, keys: Option<&str>) -> Result<Client, Box<dyn Error>> {
    // A thread of its own takes in what comes while nobody calls.
    let service = Service::spawn(open(keys)?, |_| ())?;
    Ok(Client::connect(Arc::new(service), address, Duration::from_secs(1))?)
}

fn set(client: &Client, key: &str, value: &[u8]) -> Result<bool, Box<dyn Error>> {
    if value.len() > VALUE_MOST {
        return Err(format!("the value is too long: it may have {VALUE_MOST} bytes").into());
    }
    let mut page = client.page(value.len())?;
    page.copy_from_slice(value);
    let raw = Raw::new(SET).args(key.as_bytes()).body(Body::Page(page));
    let reply = client.call_raw(raw).map_err(RpcError::from)?;
    Ok(reply.word(0) > 0)
}

fn get(client: &Client, key: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let raw = Raw::new(GET).idempotent().args(key.as_bytes()).reply_into(Landing::Pages(VALUE_MOST));
    // What a server refuses it says in words, which are those of the error then.
    let mut reply = client.call_raw(raw).map_err(RpcError::from)?;
    let receipt = reply.receipt();
    eprintln!("{} bytes, path {}, copies {}", receipt.bytes, receipt.path, receipt.copies);
    match reply.take_payload() {
        Payload::None => Ok(Vec::new()),
        Payload::Landed(value) => Ok(value.to_vec()),
        other => Err(format!("the value came elsewhere: {other:?}").into()),
    }
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    if words == ["--help"] {
        println!("{HELP}");
        return Ok(());
    }
    // Any value may look like an address: what stands behind the words of a command is one.
    let count = match words.first() {
        Some(&"serve") => 1,
        Some(&"set") => 3,
        _ => 2,
    };
    let (words, rest) = words.split_at(count.min(words.len()));
    let (address, keys) = match rest {
        [] => ("shm:kv", None),
        [address] => (*address, None),
        [address, keys] => (*address, Some(*keys)),
        _ => return Err(USAGE.into()),
    };
    if let ["set" | "get", key, ..] = words
        && key.len() > KEY_MOST
    {
        return Err(format!("the key is too long: it may have {KEY_MOST} bytes").into());
    }
    match words {
        ["serve"] => serve(address, keys)?,
        ["set", key, value] => {
            let mut bytes = value.as_bytes().to_vec();
            if *value == "-" {
                bytes.clear();
                std::io::stdin().read_to_end(&mut bytes)?;
            }
            let replaced = set(&connect(address, keys)?, key, &bytes)?;
            println!("{}", if replaced { "replaced" } else { "stored" });
        }
        ["get", key] => {
            let value = get(&connect(address, keys)?, key)?;
            let mut out = std::io::stdout().lock();
            out.write_all(&value)?;
            if out.is_terminal() {
                out.write_all(b"\n")?;
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv: {error}");
            ExitCode::FAILURE
        }
    }
}
