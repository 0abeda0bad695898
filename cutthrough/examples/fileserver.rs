//! Serves the blocks of a file, and fetches all of them: `fileserver serve FILE [ADDRESS [KEYS]]`,
//! `fileserver [ADDRESS [KEYS]] >COPY`. Many requests are under way; each block lands straight in pages of the client.

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use cutthrough::am::{Args, Body, Event, Node, RequestError, Settings, Unanswered};
use cutthrough::{Config, Endpoint, Landing, Payload, read_keys};

/// Says how many bytes the file has.
const LENGTH: u16 = 1;
/// Sends a block: its number is the argument.
const BLOCK: u16 = 2;
const BLOCK_BYTES: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(1);

/// What `--help` says.
const HELP: &str = "Serves the blocks of a file, and writes all of them to standard output.\n\n\
    usage: fileserver serve FILE [ADDRESS [KEYS]]\n\
    \x20      fileserver [ADDRESS [KEYS]] >COPY\n\n\
    ADDRESS is shm:NAME on this machine, or udp:HOST:PORT [default: shm:files].\n\
    KEYS is the file of a key, for udp; 'cutthrough key FILE' makes one.";

fn run() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1).peekable();
    let file = match args.next_if(|arg| arg == "serve") {
        Some(_) => {
            let name = args.next().ok_or("usage: fileserver serve FILE [ADDRESS [KEYS]]")?;
            Some(std::fs::read(&name).map_err(|error| format!("{name}: {error}"))?)
        }
        None => None,
    };
    let address = args.next().unwrap_or_else(|| "shm:files".into());
    // The file of a key, for an address of another machine.
    let keys = args.next().map(read_keys).transpose()?;
    let mut node = Node::new(Endpoint::open(Config { keys, ..Config::default() })?, Settings::default());
    if let Some(file) = file {
        let length = file.len() as u64;
        node.short(LENGTH, Args::Words(0), move |request| request.reply_bytes(&length.to_le_bytes()));
        node.short(BLOCK, Args::Words(1), move |request| {
            let block = file.chunks(BLOCK_BYTES).nth(request.word(0) as usize);
            match block {
                Some(block) => request.reply_with(&[], Body::Copy(block)),
                None => request.refuse(b"the file has no such block"),
            }
        });
        node.listen(&address)?;
        println!("serving {length} bytes at {address}");
        loop {
            node.wait(None)?;
        }
    }
    let server = node.connect(&address, TIMEOUT)?;
    let length = node.call(server, LENGTH, &[], TIMEOUT)?;
    let length = u64::from(length.word(0)) | u64::from(length.word(1)) << 32;
    let blocks = u32::try_from(length.div_ceil(BLOCK_BYTES as u64))?;
    let mut out = std::io::stdout().lock();
    let (mut next, mut written) = (0, 0);
    while written < blocks {
        // As many as there is room for; replies come in the order of the requests.
        while next < blocks && next - written < 32 {
            let number = next.to_le_bytes();
            let ask = node.ask(server, BLOCK).args(&number).reply_into(Landing::Pages(BLOCK_BYTES));
            match ask.within(TIMEOUT).send() {
                Ok(_) => next += 1,
                Err(RequestError::Full | RequestError::NoMemory(_)) if next > written => break,
                Err(error) => return Err(error.into()),
            }
        }
        match node.wait(Some(TIMEOUT))? {
            Event::Replied(mut reply) => match reply.take_payload() {
                Payload::Landed(block) => {
                    match out.write_all(&block.to_vec()) {
                        // Whoever reads has enough, as in `fileserver | head`.
                        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                        done => done?,
                    }
                    written += 1;
                }
                other => return Err(format!("no block: {other:?}").into()),
            },
            Event::Failed(failed) => return Err(Unanswered::from(failed).into()),
            _ => {}
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fileserver: {error}");
            ExitCode::FAILURE
        }
    }
}
