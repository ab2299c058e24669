//! Huge pages: there are none.

/// Always.
pub fn are_off() -> bool {
    true
}

/// Does nothing.
pub fn turn_off(_is_off: bool) {}
