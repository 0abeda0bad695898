//! Sample sort: `sample_sort [small|bulk [KEYS]]`. The program is `space/src/programs/sample_sort.rs`.

mod common;

use common::{End, argument, bulk, helped, run};
use cutthrough_space::programs::Program;

fn main() -> End {
    if helped("Sorts random keys by samples, in small or bulk messages.", "sample_sort [small|bulk [KEYS]]") {
        return Ok(());
    }
    run(Program::SampleSort { bulk: bulk()?, keys: argument(2, "KEYS", 1 << 18)? })
}
