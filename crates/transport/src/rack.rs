//! The name of what fails as a whole: machines of one rack, or whatever else shares power or a switch.

use std::fmt;
use std::str::FromStr;

/// The longest name: what is left in a welcome.
pub const MOST_RACK_BYTES: usize = 20;

/// A rack, by the name that its nodes give it. Nodes with equal names fail together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rack {
    /// Followed by zeros.
    name: [u8; MOST_RACK_BYTES],
}

/// What is not the name of a rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("write the name of a rack with 1 to {MOST_RACK_BYTES} letters, digits, or - _ . / :")]
pub struct NoRack;

const fn is_allowed(letter: u8) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_' | b'.' | b'/' | b':')
}

impl Rack {
    /// Its name.
    pub fn name(&self) -> &str {
        let length = self.name.iter().position(|letter| *letter == 0).unwrap_or(MOST_RACK_BYTES);
        // Nothing else is ever in there.
        str::from_utf8(&self.name[..length]).unwrap_or_default()
    }

    /// What stands for it in a message; zeros for none.
    pub(crate) fn encode(rack: Option<Self>) -> [u8; MOST_RACK_BYTES] {
        rack.map_or([0; MOST_RACK_BYTES], |rack| rack.name)
    }

    /// What such bytes stand for.
    ///
    /// # Errors
    /// They stand for nothing.
    pub(crate) fn decode(bytes: [u8; MOST_RACK_BYTES]) -> Result<Option<Self>, NoRack> {
        let length = bytes.iter().position(|letter| *letter == 0).unwrap_or(MOST_RACK_BYTES);
        let (name, rest) = bytes.split_at(length);
        if rest.iter().any(|byte| *byte != 0) || !name.iter().all(|letter| is_allowed(*letter)) {
            return Err(NoRack);
        }
        Ok((length > 0).then_some(Self { name: bytes }))
    }
}

impl FromStr for Rack {
    type Err = NoRack;

    fn from_str(text: &str) -> Result<Self, NoRack> {
        let mut name = [0; MOST_RACK_BYTES];
        name.get_mut(..text.len()).ok_or(NoRack)?.copy_from_slice(text.as_bytes());
        Self::decode(name)?.ok_or(NoRack)
    }
}

impl fmt::Display for Rack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Debug for Rack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rack({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in ["a", "row-3/rack_12", "12345678901234567890", "eu:1.b"] {
            let rack: Rack = text.parse().unwrap();
            assert_eq!(
                (rack.to_string(), Rack::decode(Rack::encode(Some(rack)))),
                (text.into(), Ok(Some(rack)))
            );
        }
        assert_eq!(Rack::decode(Rack::encode(None)), Ok(None));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", "two words", "123456789012345678901", "räck", "a\0b", "a\n"] {
            assert_eq!(text.parse::<Rack>(), Err(NoRack), "{text}");
        }
        let mut bytes = [0; MOST_RACK_BYTES];
        bytes[1] = b'a';
        assert_eq!(Rack::decode(bytes), Err(NoRack), "something follows the end");
        assert_eq!(Rack::decode([0xff; MOST_RACK_BYTES]), Err(NoRack));
    }
}
