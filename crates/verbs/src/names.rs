//! Which device, port and address are wanted, as people write it.

use std::str::FromStr;

/// `NAME`, `NAME:PORT` or `NAME:PORT:GID`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The device's name, such as `mlx5_0`.
    pub device: String,
    /// Its port; the first one is 1.
    pub port: u8,
    /// Which of the port's addresses; without it, the one that the control connection has.
    pub gid: Option<u8>,
}

/// A text that names no device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not DEVICE, DEVICE:PORT or DEVICE:PORT:GID, such as mlx5_0:1:3")]
pub struct NoName;

impl FromStr for Wanted {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let mut parts = text.split(':');
        let device = parts.next().filter(|name| is_name(name)).ok_or(NoName)?.to_owned();
        let port = parts.next().map_or(Ok(1), str::parse).map_err(|_| NoName)?;
        let gid = parts.next().map(str::parse).transpose().map_err(|_| NoName)?;
        if port == 0 || parts.next().is_some() {
            return Err(NoName);
        }
        Ok(Self { device, port, gid })
    }
}

/// It becomes part of a path.
fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    !name.is_empty() && name.len() < 64 && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let read = |text: &str| text.parse::<Wanted>().map(|wanted| (wanted.device, wanted.port, wanted.gid));
        assert_eq!(read("rxe0"), Ok(("rxe0".to_owned(), 1, None)));
        assert_eq!(read("mlx5_0:2"), Ok(("mlx5_0".to_owned(), 2, None)));
        assert_eq!(read("mlx5_0:1:3"), Ok(("mlx5_0".to_owned(), 1, Some(3))));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", ":1", "a:0", "a:1:x", "a:1:2:3", "../x", "a b", "a:300"] {
            assert_eq!(text.parse::<Wanted>(), Err(NoName), "{text}");
        }
    }
}
