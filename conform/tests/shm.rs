//! The behaviour suite over shared memory.

mod shared_memory;

use shared_memory::SharedMemory;

cutthrough_conform::suite!(SharedMemory::new());
