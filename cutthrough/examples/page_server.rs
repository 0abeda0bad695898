//! Serves the pages of a file: `page_server FILE [ADDRESS [KEYS]]`, for example at `udp:127.0.0.1:7000`.

use std::error::Error;
use std::process::ExitCode;

use cutthrough::{Config, Endpoint, Event, Token, read_keys};

const PAGE: usize = 4096;

const HELP: &str = "Serves the pages of a file until it is ended.\nusage: page_server FILE [ADDRESS [KEYS]]";

fn run() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: page_server FILE [ADDRESS [KEYS]]")?;
    let file = std::fs::read(&name).map_err(|error| format!("{name}: {error}"))?;
    let address = args.next().unwrap_or_else(|| "shm:pages".into());
    // The file of a key, for an address of another machine.
    let keys = args.next().map(read_keys).transpose()?;
    let mut endpoint = Endpoint::open(Config { keys, ..Config::default() })?;
    endpoint.listen(&address)?;
    println!("serving {} bytes as {address}", file.len());
    loop {
        let Event::Message(request) = endpoint.wait(None)? else { continue };
        // A request is the number of a page, and the token of the place where the page shall land.
        let Some((number, token)) = request.control().split_first_chunk() else { continue };
        let Ok(token) = token.try_into().map(Token::from_bytes) else { continue };
        let reply = endpoint.outgoing(request.channel());
        let sent = match file.chunks(PAGE).nth(u32::from_le_bytes(*number) as usize) {
            Some(page) => reply.and_then(|reply| reply.attach_copy(page).to(token).send()),
            // An answer without a page says that there is none of this number.
            None => reply.and_then(|reply| reply.send()),
        };
        match sent {
            Ok(receipt) => println!("{} bytes, path {}, copies {}", receipt.bytes, receipt.path, receipt.copies),
            Err(error) => eprintln!("not sent: {error}"),
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("page_server: {error}");
            ExitCode::FAILURE
        }
    }
}
