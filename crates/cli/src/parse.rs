//! Amounts and names, as options of both programs take them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;
use parse_size::Config;

/// Reads a size: a number, with a unit K, M, G or T (of 1024) or none for bytes.
///
/// # Errors
/// A sentence that says how a size is written.
pub fn parse_size(text: &str) -> Result<ByteCount, String> {
    let bytes = Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|_| "write a size as `512M`, `1.5G`, `4096K` or a number of bytes".to_owned())?;
    if bytes == 0 {
        return Err("a size must be more than zero".to_owned());
    }
    Ok(ByteCount::new(bytes))
}

/// Reads the name of one of these policies of prefetching.
pub fn parse_policy<const COUNT: usize>(
    policies: [PrefetchPolicy; COUNT],
) -> impl TypedValueParser<Value = PrefetchPolicy> {
    PossibleValuesParser::new(policies.map(PrefetchPolicy::name))
        .map(move |name| policies.into_iter().find(|policy| policy.name() == name).unwrap_or_default())
}
