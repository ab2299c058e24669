//! Options, as the command line and the JSON have them: their names, and what was chosen of their values.

use clap::ValueEnum;

/// The name of a value of an option.
pub(crate) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|possible| possible.get_name().to_owned()).unwrap_or_default()
}

/// The values that were named, each once and in the order of the option; where none was, the usual ones.
pub(crate) fn chosen<T: ValueEnum + Clone + PartialEq>(named: &[T], usual: &[T]) -> Vec<T> {
    if named.is_empty() {
        return usual.to_vec();
    }
    T::value_variants().iter().filter(|value| named.contains(value)).cloned().collect()
}

/// Whether a value was chosen, where all are usual.
pub(crate) fn is_chosen<T: PartialEq>(named: &[T], value: &T) -> bool {
    named.is_empty() || named.contains(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Peer;

    #[test]
    fn those_that_were_named_are_chosen_in_their_own_order_once() {
        let usual = [Peer::ZswapNoReadahead, Peer::Farmem];

        assert_eq!(chosen(&[Peer::Zswap, Peer::Farmem, Peer::Zswap], &usual), [Peer::Farmem, Peer::Zswap]);
        assert_eq!(chosen(&[], &usual), usual);
        assert!(is_chosen(&[], &Peer::Zram) && is_chosen(&[Peer::Zram], &Peer::Zram));
        assert!(!is_chosen(&[Peer::Zram], &Peer::Farmem));
    }
}
