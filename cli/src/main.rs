//! The program `cutthrough`; everything it does is in the library beside it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cutthrough_cli::main(std::env::args_os())
}
