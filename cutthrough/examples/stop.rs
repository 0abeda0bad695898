//! Sends messages back until a line comes on standard input, or that ends; then stops in good order: `stop [ADDRESS
//! [KEYS]]`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cutthrough::{Config, Endpoint, Event, WaitError, read_keys};

/// How long peers have to end what they have begun.
const GRACE: Duration = Duration::from_secs(1);

/// What `--help` says.
const HELP: &str = "Sends messages back until a line comes on standard input, then stops in good\n\
    order.\n\n\
    usage: stop [ADDRESS [KEYS]]\n\n\
    ADDRESS is shm:NAME on this machine, or udp:HOST:PORT [default: shm:stop].\n\
    KEYS is the file of a key, for udp; 'cutthrough key FILE' makes one.";

fn run() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "shm:stop".into());
    // The file of a key, for an address of another machine.
    let keys = args.next().map(read_keys).transpose()?;
    let mut endpoint = Endpoint::open(Config { keys, ..Config::default() })?;
    endpoint.listen(&address)?;
    println!("serving at {address}");
    let waker = endpoint.waker();
    // A thread that waits for signals would do the same.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        waker.wake();
    });
    loop {
        match endpoint.wait(None) {
            Ok(event) => heed(&mut endpoint, &event),
            Err(WaitError::Woken) => break,
            Err(error) => return Err(error.into()),
        }
    }
    endpoint.stop_listening();
    println!("nobody else comes in");
    let until = Instant::now() + GRACE;
    while endpoint.channels().next().is_some() {
        match endpoint.wait(Some(until.saturating_duration_since(Instant::now()))) {
            Ok(event) => heed(&mut endpoint, &event),
            Err(WaitError::TimedOut) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // The endpoint is dropped: that closes the channels which are left, and delivers what was sent.
    println!("over");
    Ok(())
}

fn heed(endpoint: &mut Endpoint, event: &Event) {
    if let Event::Message(message) = event
        && let Err(error) = endpoint.send(message.channel(), message.control())
    {
        // Who takes nothing in is left: one that misses an echo would not know.
        eprintln!("channel {} is left, not sent back: {error}", message.channel().index());
        endpoint.close(message.channel());
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stop: {error}");
            ExitCode::FAILURE
        }
    }
}
