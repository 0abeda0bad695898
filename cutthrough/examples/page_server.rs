//! Serves the pages of a file: `page_server FILE`.

use cutthrough::{Config, Endpoint, Event, Token};

const PAGE: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::fs::read(std::env::args().nth(1).ok_or("usage: page_server FILE")?)?;
    let mut endpoint = Endpoint::open(Config::default())?;
    endpoint.listen("shm:pages")?;
    println!("serving {} bytes as shm:pages", file.len());
    loop {
        let Event::Message(request) = endpoint.wait(None)? else { continue };
        // A request is the number of a page, and the token of the place where the page shall land.
        let Some((number, token)) = request.control().split_first_chunk() else { continue };
        let Ok(token) = token.try_into().map(Token::from_bytes) else { continue };
        let page = file.chunks(PAGE).nth(u32::from_le_bytes(*number) as usize).unwrap_or_default();
        let reply = endpoint.outgoing(request.channel());
        match reply.and_then(|reply| reply.attach_copy(page).to(token).send()) {
            Ok(receipt) => println!("{} bytes, path {}, copies {}", receipt.bytes, receipt.path, receipt.copies),
            Err(error) => eprintln!("not sent: {error}"),
        }
    }
}
