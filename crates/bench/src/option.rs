//! Names of options, as the command line and the JSON have them.

use clap::ValueEnum;

/// The name of a value of an option.
pub(crate) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|possible| possible.get_name().to_owned()).unwrap_or_default()
}
