//! How much data the programs get.

/// True when `FARMEM_TEST_SCALE=large` asks for data of a real size.
#[must_use]
pub fn is_large() -> bool {
    std::env::var_os("FARMEM_TEST_SCALE").is_some_and(|scale| scale == "large")
}

/// The `small` count, or ten times as much at the large scale.
#[must_use]
pub fn scaled(small: u64) -> u64 {
    if is_large() { small * 10 } else { small }
}
