//! Numbers that look random, by position: the same ones whenever they are asked for, so that nothing has to
//! be remembered for a check.

/// The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), which is a permutation of the numbers of 64
/// bits.
pub(super) const fn mixed(position: u64) -> u64 {
    let word = position.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
