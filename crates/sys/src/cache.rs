//! Hints to the processor's cache.

/// Bytes of a cache line: the unit of a hint. A wrong guess costs time only.
const LINE_BYTES: usize = 64;

/// Asks for `length` bytes to be brought near, and goes on without waiting. Never faults, whatever is there.
#[inline]
pub(crate) fn prefetch(start: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..length).step_by(LINE_BYTES) {
        // SAFETY: a prefetch changes nothing and faults nowhere, so any address will do.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                start.wrapping_add(offset).cast(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, length, LINE_BYTES);
}
