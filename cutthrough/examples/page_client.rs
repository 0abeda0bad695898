//! Fetches one page from the server, and writes it to standard output: `page_client NUMBER [ADDRESS [KEYS]]`.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use cutthrough::{Config, Endpoint, Event, Landing, Payload, read_keys};

const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(1);

const HELP: &str =
    "Fetches one page from the server, and writes it to standard output.\nusage: page_client NUMBER [ADDRESS [KEYS]]";

fn run() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let number: Option<u32> = args.next().and_then(|number| number.parse().ok());
    let number = number.ok_or("usage: page_client NUMBER [ADDRESS [KEYS]]")?;
    let address = args.next().unwrap_or_else(|| "shm:pages".into());
    let keys = args.next().map(read_keys).transpose()?;
    let mut endpoint = Endpoint::open(Config { keys, ..Config::default() })?;
    let server = endpoint.connect(&address, TIMEOUT)?;
    // Grants one page of this process's memory to one payload. It lands straight in it.
    let token = endpoint.grant(server, Landing::Pages(PAGE))?;
    endpoint.send(server, &[&number.to_le_bytes()[..], &token.to_bytes()].concat())?;
    loop {
        match endpoint.wait(Some(TIMEOUT))? {
            Event::Message(reply) => match reply.payload() {
                Payload::Landed(page) if !page.is_empty() => return Ok(std::io::stdout().write_all(&page.to_vec())?),
                Payload::None | Payload::Landed(_) => return Err(format!("the server has no page {number}").into()),
                other => return Err(format!("no page: {other:?}").into()),
            },
            Event::Closed(_, reason) => return Err(reason.into()),
            _ => {}
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("page_client: {error}");
            ExitCode::FAILURE
        }
    }
}
