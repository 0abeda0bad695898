//! What ranks say, line by line, each with its rank before it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde::Serialize;

use super::plan::STARTED;
use crate::output::Output;

/// Longest line that is forwarded as one; the rest is taken for another.
const LINE: u64 = 64 << 10;

/// One of a rank's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// What is known of a rank by what it says.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The far side has said that it has started.
    pub(super) started: AtomicBool,
    /// What it says cannot be written any more.
    pub(super) deaf: AtomicBool,
}

#[derive(Serialize)]
struct Line<'a> {
    rank: u32,
    stream: &'static str,
    line: &'a str,
}

/// Forwards a stream of a rank until it ends.
pub(super) fn forward(
    rank: u32,
    stream: Stream,
    from: impl Read + Send + 'static,
    heard: &Arc<Heard>,
    output: Output,
) -> JoinHandle<()> {
    let heard = Arc::clone(heard);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut from).take(LINE).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            if line == STARTED && stream == Stream::Out {
                heard.started.store(true, Ordering::Relaxed);
                continue;
            }
            if tell(rank, stream, &line, output).is_err() {
                heard.deaf.store(true, Ordering::Relaxed);
            }
        }
    })
}

/// Writes a line at once, so that lines of different ranks do not mix.
fn tell(rank: u32, stream: Stream, line: &[u8], output: Output) -> io::Result<()> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    if output.is_json() {
        let stream = if stream == Stream::Out { "stdout" } else { "stderr" };
        let line = serde_json::to_string(&Line { rank, stream, line: &String::from_utf8_lossy(text) })?;
        return writeln!(io::stdout(), "{line}");
    }
    let whole = [format!("[{rank}] ").as_bytes(), text, b"\n"].concat();
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(&whole)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(&whole),
    }
}
