//! What Rust needs in a library without std: nothing may be allocated, and a panic ends the process in a way that the
//! supervisor can explain. Unwinding into the program is impossible, going on without a pager too.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

use crate::program;

/// Refuses: the runtime has no heap.
struct NoHeap;

// SAFETY: null is the allowed answer of an allocator that has no memory.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _pointer: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static NO_HEAP: NoHeap = NoHeap;

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    program::panicked()
}
