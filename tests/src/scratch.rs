//! A directory for one run of one scenario.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory of its own for one run; removed when dropped, unless `FARMEM_TEST_KEEP` is set.
///
/// Its path is short, because Unix sockets live in it, and every user may enter it, because some servers
/// refuse to run as root.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a new, empty directory.
    ///
    /// # Panics
    /// When the temporary directory can't be written.
    #[must_use]
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let base = std::env::temp_dir();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("farmem-test-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))
                        .expect("the owner may change a directory's mode");
                    return Self { path };
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{} can't be created: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("FARMEM_TEST_KEEP").is_none() {
            // A process that is just being ended may still write here; what stays behind is in the temporary
            // directory.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
