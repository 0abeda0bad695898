//! Active messages in their shortest form: `echo serve [ADDRESS [KEYS]]` sends words back, `echo [ADDRESS [KEYS]]` asks
//! for them, for example at `udp:127.0.0.1:7000`.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Node, Settings};
use cutthrough::{Config, Endpoint, read_keys};

const ECHO: u16 = 1;
const TIMEOUT: Duration = Duration::from_secs(1);

/// What `--help` says.
const HELP: &str = "Sends words back, and asks for them a thousand times: how long each takes.\n\n\
    usage: echo serve [ADDRESS [KEYS]]\n\
    \x20      echo [ADDRESS [KEYS]]\n\n\
    ADDRESS is shm:NAME on this machine, or udp:HOST:PORT [default: shm:echo].\n\
    KEYS is the file of a key, for udp; 'cutthrough key FILE' makes one.";

fn run() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|word| word == "--help") {
        println!("{HELP}");
        return Ok(());
    }
    let mut args = std::env::args().skip(1).peekable();
    let serve = args.next_if(|arg| arg == "serve").is_some();
    let address = args.next().unwrap_or_else(|| "shm:echo".into());
    // The file of a key, for an address of another machine.
    let keys = args.next().map(read_keys).transpose()?;
    let mut node = Node::new(Endpoint::open(Config { keys, ..Config::default() })?, Settings::default());
    if serve {
        node.short(ECHO, Args::Words(2), |request| {
            let words: [u32; 2] = request.words();
            request.reply(&words);
        });
        node.listen(&address)?;
        println!("echoing at {address}");
        loop {
            println!("{:?}", node.wait(None)?);
        }
    }
    let channel = node.connect(&address, TIMEOUT)?;
    let begun = Instant::now();
    for number in 0..1000 {
        let reply = node.call(channel, ECHO, &[number, 7], TIMEOUT)?;
        assert_eq!(reply.words(), [number, 7]);
    }
    println!("1000 round trips, {:?} each", begun.elapsed() / 1000);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}
