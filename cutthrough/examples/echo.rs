//! Active messages in their shortest form: `echo serve [ADDRESS]` sends words back, `echo [ADDRESS]` asks for them.

use std::time::{Duration, Instant};

use cutthrough::am::{Args, Node, Settings};
use cutthrough::{Config, Endpoint};

const ECHO: u16 = 1;
const TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let serve = args.next_if(|arg| arg == "serve").is_some();
    let address = args.next().unwrap_or_else(|| "shm:echo".into());
    let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
    if serve {
        node.short(ECHO, Args::Words(2), |request| {
            let words = [request.word(0), request.word(1)];
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
        assert_eq!((reply.word(0), reply.word(1)), (number, 7));
    }
    println!("1000 round trips, {:?} each", begun.elapsed() / 1000);
    Ok(())
}
