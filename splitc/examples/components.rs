//! Connected components of a square mesh of which some edges are missing: `components [SIDE [PERCENT]]`. The program is
//! `space/src/programs/components.rs`.

mod common;

use common::{End, argument, helped, run};
use cutthrough_space::programs::Program;

fn main() -> End {
    if helped("Finds the connected parts of a mesh that has PERCENT of its edges.", "components [SIDE [PERCENT]]") {
        return Ok(());
    }
    run(Program::Components { side: argument(1, "SIDE", 512)?, percent: argument(2, "PERCENT", 60)? })
}
