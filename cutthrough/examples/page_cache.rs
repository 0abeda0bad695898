//! Stands between page servers' clients and a page server, and keeps the pages that it has fetched: `page_cache ADDRESS
//! SERVER [KEYS]`, for example at `shm:cache` before `udp:127.0.0.1:7000`. It is a server to `page_client`, and sends
//! on what it has received, from the pages where that has landed.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cutthrough::{Channel, Config, Endpoint, Event, Landed, Landing, Payload, Token, read_keys};

const PAGE: usize = 4096;
/// Pages that are kept. The landing memory has room for more.
const KEPT: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(1);

/// What `--help` says.
const HELP: &str = "Stands before a page server, as one to page_client, and keeps the pages.\n\n\
    usage: page_cache ADDRESS SERVER [KEYS]\n\n\
    ADDRESS and SERVER, which it asks, are shm:NAME or udp:HOST:PORT.\n\
    KEYS is the file of a key, for udp; 'cutthrough key FILE' makes one.";

/// Who wants which page, and where.
struct Wanted {
    number: u32,
    by: Channel,
    at: Token,
}

/// Answers with a page, or without one if there is none of this number.
fn answer(endpoint: &mut Endpoint, wanted: &Wanted, page: Option<&Arc<Landed>>, from: &str) {
    let reply = endpoint.outgoing(wanted.by);
    let sent = reply.and_then(|reply| match page {
        Some(page) => reply.attach_landed(Arc::clone(page)).to(wanted.at).send(),
        None => reply.send(),
    });
    match sent {
        Ok(receipt) => {
            println!("page {} from {from}: {} bytes, copies {}", wanted.number, receipt.bytes, receipt.copies);
        }
        Err(error) => eprintln!("not sent: {error}"),
    }
}

/// Asks the server for a page: by which token it will land.
fn ask(endpoint: &mut Endpoint, server: Channel, number: [u8; 4]) -> Result<Token, Box<dyn Error>> {
    let token = endpoint.grant(server, Landing::Pages(PAGE))?;
    let sent = endpoint.send(server, &[&number[..], &token.to_bytes()].concat());
    if sent.is_err() {
        endpoint.revoke(server, token)?;
    }
    sent?;
    Ok(token)
}

fn run() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let (address, server) = args.next().zip(args.next()).ok_or("usage: page_cache ADDRESS SERVER [KEYS]")?;
    let keys = args.next().map(read_keys).transpose()?;
    let mut endpoint = Endpoint::open(Config { keys, ..Config::default() })?;
    // Over a network it calls from where it listens.
    endpoint.listen(&address)?;
    let server = endpoint.connect(&server, TIMEOUT)?;
    println!("keeping pages at {address}");
    let mut pages: BTreeMap<u32, Arc<Landed>> = BTreeMap::new();
    // The server answers in the order in which it was asked.
    let mut asked: VecDeque<(Wanted, Token)> = VecDeque::new();
    loop {
        match endpoint.wait(None)? {
            Event::Message(mut reply) if reply.channel() == server => {
                let (wanted, token) = asked.pop_front().ok_or("the server answers what nobody asked")?;
                let page = match reply.take_payload() {
                    Payload::Landed(page) if !page.is_empty() => Some(Arc::new(page)),
                    _ => {
                        // No page has used it up.
                        let _ = endpoint.revoke(server, token);
                        None
                    }
                };
                answer(&mut endpoint, &wanted, page.as_ref(), "the server");
                if pages.len() == KEPT {
                    // Its pages are free as soon as nobody needs it any more to whom it goes.
                    pages.pop_first();
                }
                pages.extend(page.map(|page| (wanted.number, page)));
            }
            Event::Message(request) => {
                let Some((number, token)) = request.control().split_first_chunk() else { continue };
                let Ok(at) = token.try_into().map(Token::from_bytes) else { continue };
                let wanted = Wanted { number: u32::from_le_bytes(*number), by: request.channel(), at };
                if let Some(page) = pages.get(&wanted.number) {
                    answer(&mut endpoint, &wanted, Some(page), "here");
                    continue;
                }
                match ask(&mut endpoint, server, *number) {
                    Ok(token) => asked.push_back((wanted, token)),
                    Err(error) => {
                        eprintln!("not asked: {error}");
                        answer(&mut endpoint, &wanted, None, "nowhere");
                    }
                }
            }
            Event::Closed(channel, reason) if channel == server => return Err(reason.into()),
            _ => {}
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("page_cache: {error}");
            ExitCode::FAILURE
        }
    }
}
