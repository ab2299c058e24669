//! How the two ends of a connection know each other, and keep others from listening: TLS 1.3, in which both
//! prove who they are, by a key that they share or by certificates.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::tls::Identity;

/// What a connection is protected by. A Unix socket never is: the kernel says who is at its other end.
#[derive(Clone, Debug)]
pub enum Security {
    /// Nothing: what is said can be read and changed on the way, and anybody can say it. For this machine,
    /// and for networks that belong to the cluster alone.
    Plain,
    /// TLS 1.3.
    Tls(Identity),
}

/// Key material can't be had.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file can't be read, or not be made.
    #[error("cannot use {}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file that must be secret can be read by others.
    #[error("{} can be read by other users; `chmod 600` it, and make another key if they may have", .0.display())]
    Open(PathBuf),
    /// A file doesn't hold what it should.
    #[error("{} holds no {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The certificates don't fit their key, or each other.
    #[error("the certificates cannot be used: {0}")]
    Unusable(String),
}

/// What a file with a shared key begins with.
const KEY_PREFIX: &str = "farmem-node-key-1:";
const KEY_BYTES: usize = 32;

/// A secret that all nodes and clients of a cluster have: random, so that nobody can try all of them.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey([u8; KEY_BYTES]);

impl SharedKey {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        match getrandom(&mut bytes, GetRandomFlags::empty())? {
            KEY_BYTES => Ok(Self(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// From a file that [`SharedKey::save`] made.
    ///
    /// # Errors
    /// There is no such key, or others can read it.
    pub fn load(path: &Path) -> Result<Self, SecurityError> {
        let text = read_secret(path)?;
        Self::parse(text.trim()).ok_or_else(|| SecurityError::Content {
            path: path.to_owned(),
            what: "key; `farmem node keygen` makes one",
        })
    }

    /// Writes it to a new file that only this user can read.
    ///
    /// # Errors
    /// There is a file already, or none can be made.
    pub fn save(&self, path: &Path) -> Result<(), SecurityError> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        save_secret(path, &format!("{KEY_PREFIX}{digits}\n"))
    }

    /// The secret itself.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(KEY_PREFIX)?;
        let mut bytes = [0; KEY_BYTES];
        if digits.len() != 2 * KEY_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

/// The files of one who proves by a certificate who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// Their certificate, and those that lead from it to an authority; PEM.
    pub certificate: PathBuf,
    /// Their private key; PEM.
    pub key: PathBuf,
    /// The certificates of the authorities by which the others have theirs; PEM.
    pub authority: PathBuf,
}

/// Reads a file that others must not be able to read.
///
/// # Errors
/// Others can read it, or it can't be read.
pub fn read_secret(path: &Path) -> Result<String, SecurityError> {
    let unusable = |error| SecurityError::File { path: path.to_owned(), error };
    let mode = std::fs::metadata(path).map_err(unusable)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(SecurityError::Open(path.to_owned()));
    }
    std::fs::read_to_string(path).map_err(unusable)
}

/// Writes a new file that only this user can read.
///
/// # Errors
/// There is a file already, or none can be made.
pub fn save_secret(path: &Path, text: &str) -> Result<(), SecurityError> {
    let save = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    save().map_err(|error| SecurityError::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = SharedKey::generate().unwrap();
        key.save(&path).unwrap();
        assert!(SharedKey::load(&path).unwrap() == key);
        assert!(matches!(key.save(&path), Err(SecurityError::File { .. })), "a key is not overwritten");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        SharedKey::generate().unwrap().save(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SharedKey::load(&path), Err(SecurityError::Open(_))));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(matches!(SharedKey::load(&path), Err(SecurityError::File { .. })));
        save_secret(&path, "farmem-node-key-1:00ff\n").unwrap();
        assert!(matches!(SharedKey::load(&path), Err(SecurityError::Content { .. })));
        assert!(SharedKey::parse(&format!("{KEY_PREFIX}{}", "é".repeat(32))).is_none());
    }
}
