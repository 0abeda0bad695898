//! Conjugate gradients for the five-point matrix of a square grid: `gradient [SIDE [ITERATIONS]]`. The program is
//! `space/src/programs/gradient.rs`.

mod common;

use common::{End, argument, helped, run};
use cutthrough_space::programs::Program;

fn main() -> End {
    if helped("Solves a grid of SIDE x SIDE points by conjugate gradients.", "gradient [SIDE [ITERATIONS]]") {
        return Ok(());
    }
    run(Program::Gradient { side: argument(1, "SIDE", 256)?, iterations: argument(2, "ITERATIONS", 50)? })
}
