//! How etcd is reached: by TLS or not, and as whom.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use farmem_transport::{ServerTrust, read_secret};

/// What was given for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EtcdFiles {
    /// Certificates of the authorities by whom etcd's members have theirs; PEM.
    pub authority: Option<PathBuf>,
    /// Our own certificate, where etcd asks for one; PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key; PEM.
    pub key: Option<PathBuf>,
    /// A line `USER:PASSWORD`.
    pub login: Option<PathBuf>,
}

impl EtcdFiles {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How etcd is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    trust: Option<ServerTrust>,
    shows_certificate: bool,
    login: Option<Arc<Login>>,
}

/// The user that asks. etcd gives a token for it, which is shown with each question until etcd doesn't know
/// it any more.
pub(crate) struct Login {
    pub(super) user: String,
    pub(super) password: String,
    token: Mutex<Option<String>>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    pub(super) fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_token(&self, token: Option<String>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let (user, password) = line.strip_suffix('\r').unwrap_or(line).split_once(':')?;
        let is_whole = !user.is_empty() && !password.is_empty() && !password.contains('\n');
        is_whole.then(|| Self {
            user: user.to_owned(),
            password: password.to_owned(),
            token: Mutex::new(None),
        })
    }
}

impl Access {
    /// From these files. `is_secure` says whether TLS was asked for, `is_local` whether what is said stays on
    /// this machine.
    ///
    /// # Errors
    /// One of them can't be used, or is missing; a sentence.
    pub(crate) fn load(files: &EtcdFiles, is_secure: bool, is_local: bool) -> Result<Self, String> {
        let of_tls = [&files.authority, &files.certificate, &files.key];
        if !is_secure && of_tls.iter().any(|file| file.is_some()) {
            return Err("certificates are for etcds://, which is etcd by TLS".to_owned());
        }
        let trust = match (&files.authority, &files.certificate, &files.key) {
            (Some(authority), certificate, key) => {
                let own = certificate.as_deref().zip(key.as_deref());
                Some(ServerTrust::load(authority, own).map_err(|error| error.to_string())?)
            }
            (None, ..) if is_secure => {
                return Err("give --cluster-ca FILE, the authority of etcd's certificate".to_owned());
            }
            (None, ..) => None,
        };
        let login = match &files.login {
            None => None,
            Some(_) if !is_secure && !is_local => {
                return Err("a password would be readable on the way; use etcds://".to_owned());
            }
            Some(path) => {
                let text = read_secret(path).map_err(|error| error.to_string())?;
                let login = Login::parse(&text)
                    .ok_or_else(|| format!("{} has no line USER:PASSWORD", path.display()))?;
                Some(Arc::new(login))
            }
        };
        Ok(Self { trust, shows_certificate: files.certificate.is_some(), login })
    }

    pub(super) fn trust(&self) -> Option<&ServerTrust> {
        self.trust.as_ref()
    }

    /// Whether a member that asks for a certificate gets one.
    pub(super) fn shows_certificate(&self) -> bool {
        self.shows_certificate
    }

    pub(super) fn login(&self) -> Option<&Login> {
        self.login.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_one_line_and_its_password_may_have_colons() {
        let login = Login::parse("farmem:a:b c\n").unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("farmem", "a:b c"));
        assert!(!format!("{login:?}").contains("a:b"));
        for text in ["", "farmem", ":secret", "farmem:", "one:two\nthree:four\n"] {
            assert!(Login::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn what_would_not_be_protected_is_refused() {
        let files = |authority: Option<&str>, login: Option<&str>| EtcdFiles {
            authority: authority.map(Into::into),
            login: login.map(Into::into),
            ..EtcdFiles::default()
        };
        let refusal = |files, is_secure, is_local| Access::load(&files, is_secure, is_local).unwrap_err();
        assert!(refusal(files(Some("ca.pem"), None), false, true).contains("etcds://"));
        assert!(refusal(files(None, None), true, true).contains("--cluster-ca"));
        assert!(refusal(files(None, Some("login")), false, false).contains("readable on the way"));
        assert!(refusal(files(None, Some("/nowhere/login")), false, true).contains("/nowhere/login"));
        assert!(Access::load(&files(None, None), false, false).is_ok());
    }
}
