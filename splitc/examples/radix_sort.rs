//! Radix sort: `radix_sort [small|bulk [KEYS]]`, keys of 24 bits. The program is `space/src/programs/radix_sort.rs`.

mod common;

use common::{End, argument, bulk, helped, run};
use cutthrough_space::programs::Program;

fn main() -> End {
    if helped(
        "Sorts random keys of 24 bits by their digits, in small or bulk messages.",
        "radix_sort [small|bulk [KEYS]]",
    ) {
        return Ok(());
    }
    run(Program::RadixSort { bulk: bulk()?, keys: argument(2, "KEYS", 1 << 18)? })
}
