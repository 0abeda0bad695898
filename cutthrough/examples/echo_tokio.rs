//! Sends what the control message of every message says back, without its payload, in a tokio runtime:
//! `echo_tokio [ADDRESS [KEYS]]`. Whoever takes so few of them in that there is no room for more is left.

use std::error::Error;
use std::process::ExitCode;

use cutthrough::{AsyncEndpoint, Config, Endpoint, Event, read_keys};

/// What `--help` says.
const HELP: &str = "Sends control messages back, in a tokio runtime, until it is ended.\n\n\
    usage: echo_tokio [ADDRESS [KEYS]]\n\n\
    ADDRESS is shm:NAME on this machine, or udp:HOST:PORT [default: shm:echo-tokio].\n\
    KEYS is the file of a key, for udp; 'cutthrough key FILE' makes one.";

fn run() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "shm:echo-tokio".to_owned());
    // The file of a key, for an address of another machine.
    let keys = args.next().map(read_keys).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut endpoint = AsyncEndpoint::new(Endpoint::open(Config { keys, ..Config::default() })?)?;
        endpoint.listen(&address)?;
        println!("echoing at {address}");
        loop {
            match endpoint.next().await? {
                Event::Message(message) => {
                    let channel = message.channel();
                    if let Err(error) = endpoint.send(channel, message.control()) {
                        // To wait for room would hold up all others, and to go on would leave an echo out.
                        eprintln!("channel {} is left, not sent back: {error}", channel.index());
                        endpoint.close(channel);
                    }
                }
                Event::Opened(channel) => println!("channel {} opened", channel.index()),
                Event::Closed(channel, reason) => println!("channel {}: {reason}", channel.index()),
                _ => {}
            }
        }
    })
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo_tokio: {error}");
            ExitCode::FAILURE
        }
    }
}
