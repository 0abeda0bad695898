//! Blocked matrix multiply: `matmul [BLOCKS [SIDE]]`, BLOCKS x BLOCKS blocks of SIDE x SIDE doubles (U-Net's were 4 and
//! 128). The program is `space/src/programs/matmul.rs`.

mod common;

use common::{End, argument, helped, run};
use cutthrough_space::programs::Program;

fn main() -> End {
    if helped("Multiplies matrices of BLOCKS x BLOCKS blocks of SIDE x SIDE doubles.", "matmul [BLOCKS [SIDE]]") {
        return Ok(());
    }
    run(Program::Matmul { blocks: argument(1, "BLOCKS", 4)?, side: argument(2, "SIDE", 128)? })
}
