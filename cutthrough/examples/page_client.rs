//! Fetches one page from the server, and writes it to standard output: `page_client NUMBER`.

use std::io::Write;
use std::time::Duration;

use cutthrough::{Config, Endpoint, Event, Landing, Payload};

const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number: u32 = std::env::args().nth(1).ok_or("usage: page_client NUMBER")?.parse()?;
    let mut endpoint = Endpoint::open(Config::default())?;
    let server = endpoint.connect("shm:pages", TIMEOUT)?;
    // Grants one page of this process's memory to one payload. The server writes straight into it.
    let token = endpoint.grant(server, Landing::Pages(PAGE))?;
    endpoint.send(server, &[&number.to_le_bytes()[..], &token.to_bytes()].concat())?;
    loop {
        match endpoint.wait(Some(TIMEOUT))? {
            Event::Message(reply) => match reply.payload() {
                Payload::Landed(page) => return Ok(std::io::stdout().write_all(&page.to_vec())?),
                other => return Err(format!("no page: {other:?}").into()),
            },
            Event::Closed(_, reason) => return Err(reason.into()),
            Event::Opened(_) | Event::Completed(_) => {}
        }
    }
}
