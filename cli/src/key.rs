//! `key`: makes a key file that nobody else can read.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use cutthrough::{PrivateKey, SharedKey};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

/// Options of `key`.
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// The key file; there may be none of this name
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Make a key pair instead of a key that is shared: the file gets the private key, and the public one is printed
    #[arg(long = "static")]
    pub pair: bool,
}

/// A key file that was made.
#[derive(Debug, Serialize)]
struct Made {
    key: &'static str,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<String>,
}

/// Makes a key, writes it, and says what to do with it. No file is left where that cannot be said.
///
/// # Errors
/// If the file is there already, or cannot be written.
pub fn run(args: &KeyArgs, output: Output) -> Result<(), Failure> {
    let name = args.file.display();
    let mut entropy = [0; 32];
    // The kernel gives as many as this at once.
    rustix::rand::getrandom(&mut entropy[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::new(format!("no random key: {error}"), "make it on another machine"))?;
    let (line, public) = if args.pair {
        let own = PrivateKey::generate(entropy);
        (own.line(), Some(own.public()))
    } else {
        (SharedKey::generate(entropy).line(), None)
    };
    write(&args.file, &line).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::new(format!("{name} exists"), "name another file, because no key is overwritten")
        }
        _ => Failure::new(format!("{name}: {error}"), "name a file that this user can write"),
    })?;
    let made = Made {
        key: if args.pair { "private" } else { "psk" },
        file: name.to_string(),
        public: public.map(|key| key.to_hex()),
    };
    let said = output.line(&made).and_then(|()| {
        output.say(&match public {
            // For the key files of peers, as it is.
            Some(public) => public.line(),
            None => format!("{name}: give a copy to the other side, and both ends --key FILE"),
        })
    });
    // Nothing tells a public key a second time: whoever has not heard it shall be able to try again.
    said.inspect_err(|_| {
        let _ = std::fs::remove_file(&args.file);
    })
}

/// Makes a file of one line. Where it cannot be written, none is left.
fn write(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{line}").inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}
