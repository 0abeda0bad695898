//! What ranks say, line by line, each with its rank before it.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::fs::{Stat, fstat};
use serde::Serialize;

use super::lines::Lines;
use super::plan::{STARTED, UNSTARTED};
use crate::output::Output;

/// One of a rank's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// As many bytes as a pipe holds at most, where nobody has raised that.
const PIPE: usize = 1 << 20;

/// A stream of a rank that is being forwarded.
#[derive(Debug)]
pub(super) struct Forward {
    thread: JoinHandle<()>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// It has read a line, and not written all of it yet.
    has_some: AtomicBool,
    /// The rank has ended.
    ended: AtomicBool,
}

impl Forward {
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Whether a line was read that is not written yet: its reader is slow.
    pub(super) fn has_some(&self) -> bool {
        self.state.has_some.load(Ordering::Relaxed)
    }

    /// The rank has ended: what it has said is in the pipe, and what comes behind that was said by others.
    pub(super) fn rank_has_ended(&self) {
        self.state.ended.store(true, Ordering::Release);
    }
}

/// What is known of a rank by what it says.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The far side has said that it has started.
    pub(super) started: AtomicBool,
    /// What was to become it has said that it cannot.
    pub(super) unstarted: AtomicBool,
    /// Why what it says cannot be written any more.
    pub(super) unwritten: OnceLock<io::Error>,
}

#[derive(Serialize)]
struct Line<'a> {
    rank: u32,
    stream: &'static str,
    line: &'a str,
}

/// Forwards a stream of a rank until it ends; when the rank has ended, no more than that may have said.
pub(super) fn forward(
    rank: u32,
    stream: Stream,
    from: impl Read + AsFd + Send + 'static,
    heard: &Arc<Heard>,
    output: Output,
) -> io::Result<Forward> {
    let heard = Arc::clone(heard);
    let state = Arc::<State>::default();
    let shown = Arc::clone(&state);
    let thread = Builder::new().name("forward".into()).spawn(move || {
        let mut lines = Lines::new(from);
        let mut behind = 0;
        while behind <= PIPE {
            shown.has_some.store(false, Ordering::Relaxed);
            let Some(mut line) = lines.next(&shown.ended) else { return };
            shown.has_some.store(true, Ordering::Relaxed);
            if shown.ended.load(Ordering::Relaxed) {
                behind += line.len();
            }
            if stream == Stream::Out
                && let Some(before) = line.strip_suffix(STARTED).map(<[u8]>::len)
            {
                heard.started.store(true, Ordering::Relaxed);
                // What the host has said itself need not end with a line's end.
                line.truncate(before);
                if line.is_empty() {
                    continue;
                }
            }
            if stream == Stream::Err && line == UNSTARTED {
                heard.unstarted.store(true, Ordering::Relaxed);
                continue;
            }
            if let Err(error) = tell(rank, stream, &line, output) {
                // The first is the reason. The rank is read on, so that it is not held up until it is ended.
                let _ = heard.unwritten.set(error);
            }
        }
    })?;
    Ok(Forward { thread, state })
}

/// Held while a line is written, where standard output and standard error are one pipe or terminal: what does not fit
/// into it at once goes in several parts. Where they are two, one may be read to its end before the other.
static ONE: LazyLock<Option<Mutex<()>>> = LazyLock::new(|| {
    let place = |stream: &dyn Fn() -> rustix::io::Result<Stat>| stream().ok().map(|stat| (stat.st_dev, stat.st_ino));
    let [out, err] = [place(&|| fstat(io::stdout())), place(&|| fstat(io::stderr()))];
    (out.is_some() && out == err).then(Mutex::default)
});

/// Writes a line at once, so that lines of different ranks do not mix.
fn tell(rank: u32, stream: Stream, line: &[u8], output: Output) -> io::Result<()> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let _one = ONE.as_ref().map(|one| one.lock().unwrap_or_else(PoisonError::into_inner));
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
