//! Sends messages back until a line comes on standard input, or that ends; then stops in good order: `stop [ADDRESS]`.

use std::time::{Duration, Instant};

use cutthrough::{Config, Endpoint, Event, WaitError};

/// How long peers have to end what they have begun.
const GRACE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "shm:stop".into());
    let mut endpoint = Endpoint::open(Config::default())?;
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
        eprintln!("not sent back: {error}");
    }
}
