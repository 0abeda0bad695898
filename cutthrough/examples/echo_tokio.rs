//! Sends every message back, in a tokio runtime: `echo_tokio [ADDRESS]`.

use cutthrough::{AsyncEndpoint, Config, Endpoint, Event};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "shm:echo-tokio".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut endpoint = AsyncEndpoint::new(Endpoint::open(Config::default())?)?;
        endpoint.listen(&address)?;
        println!("echoing at {address}");
        loop {
            match endpoint.next().await? {
                Event::Message(message) => {
                    if let Err(error) = endpoint.send(message.channel(), message.control()) {
                        eprintln!("not sent back: {error}");
                    }
                }
                Event::Opened(channel) => println!("channel {} opened", channel.index()),
                Event::Closed(channel, reason) => println!("channel {}: {reason}", channel.index()),
                Event::Connected(..) | Event::Completed(_) => {}
            }
        }
    })
}
