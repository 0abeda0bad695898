//! iceoryx2's part of the comparison: publish/subscribe between two processes that poll.
//!
//! ```text
//! iceoryx2-peer server DIR TOUCH CELL_MS SIZE...
//! iceoryx2-peer client DIR TOUCH CELL_MS SIZE...     (measures and prints)
//! ```
//!
//! `DIR` is an empty directory of this run; its last name also begins the names of all shared memory, so that a run
//! which was killed can be cleaned up. `TOUCH` is `copied` (the sender fills every sample from private memory, the
//! receiver reads it into private memory), `written` (only filled) or `untouched` (handed over as it is). The client
//! prints, for every size, one JSON object with half a round trip and one with the rate at which a stream of messages
//! reached the server.

mod link;
mod measure;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use iceoryx2::prelude::*;

use crate::link::{Link, Side, Touch};

const USAGE: &str = "usage: iceoryx2-peer server|client DIR copied|written|untouched CELL_MS SIZE...";

struct Options {
    side: Side,
    directory: PathBuf,
    touch: Touch,
    cell: Duration,
    sizes: Vec<usize>,
}

fn parse(arguments: &[String]) -> Option<Options> {
    let [side, directory, touch, cell_ms, sizes @ ..] = arguments else {
        return None;
    };
    Some(Options {
        side: match side.as_str() {
            "server" => Side::Server,
            "client" => Side::Client,
            _ => return None,
        },
        directory: PathBuf::from(directory),
        touch: match touch.as_str() {
            "copied" => Touch::Copied,
            "written" => Touch::Written,
            "untouched" => Touch::Untouched,
            _ => return None,
        },
        cell: Duration::from_millis(cell_ms.parse().ok()?),
        sizes: sizes.iter().map(|size| size.parse().ok()).collect::<Option<_>>()?,
    })
}

/// A configuration whose files all lie in `directory` or are named after it.
fn config_within(directory: &Path) -> Result<Config, Box<dyn Error>> {
    let root = directory.to_str().ok_or("the directory's name is not UTF-8")?;
    let last = directory.file_name().and_then(|name| name.to_str()).ok_or("the directory has no name")?;
    let mut config = Config::default();
    config.global.set_root_path(&root.try_into()?);
    config.global.prefix = last.try_into()?;
    Ok(config)
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let node = NodeBuilder::new().config(&config_within(&options.directory)?).create::<ipc::Service>()?;
    let mut links = Vec::new();
    for &size in &options.sizes {
        links.push(Link::open(&node, options.side, size, options.touch)?);
    }
    for link in &mut links {
        match options.side {
            Side::Server => measure::answer(link)?,
            Side::Client => measure::one_size(link, options.cell)?,
        }
    }
    if matches!(options.side, Side::Server) {
        links.iter().for_each(Link::await_peer_gone);
    }
    Ok(())
}

fn main() -> ExitCode {
    set_log_level(LogLevel::Error);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iceoryx2-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
