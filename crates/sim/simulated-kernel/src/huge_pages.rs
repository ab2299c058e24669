//! Huge pages: there are none.

/// Does nothing.
pub fn turn_off(_is_off: bool) {}
