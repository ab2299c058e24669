//! The file on disk that slabs of the pool move to. It has no name, so that nothing stays behind when the
//! application ends, however it ends.

use crate::{AsFd, BorrowedFd, Errno, OwnedFd};
use core::ffi::CStr;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, ftruncate, open, stat, unlinkat};
use rustix::io::{pread, pwrite};

/// An unnamed file of fixed size. Safe to use from any number of threads and processes.
pub struct DiskFile {
    file: OwnedFd,
}

/// Why a disk file doesn't do what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// No space, or no more of what a quota or limit allows.
    Full,
    /// Something that would be overwritten is there already.
    Exists,
    /// The file ends before the range that was to be read.
    Short,
    /// The kernel refused for another reason.
    Kernel(Errno),
}

impl core::fmt::Display for DiskError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Full => f.write_str("no space is left on the disk"),
            Self::Exists => f.write_str("the file exists already and would be overwritten"),
            Self::Short => f.write_str("the file is shorter than it should be"),
            Self::Kernel(errno) => write!(f, "the disk failed: {errno}"),
        }
    }
}

impl core::error::Error for DiskError {}

impl From<Errno> for DiskError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full,
            Errno::EXIST => Self::Exists,
            errno => Self::Kernel(errno),
        }
    }
}

impl DiskFile {
    /// Makes a file of `length_bytes` bytes that takes no space until it is written. `path` is a directory,
    /// or a name that nothing has yet; the name is gone when this returns. The page cache is bypassed where
    /// the file system allows it: what leaves memory must not come back into it by another door.
    pub fn create(path: &CStr, length_bytes: u64) -> Result<Self, DiskError> {
        let is_directory =
            stat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
        let kind = if is_directory { OFlags::TMPFILE } else { OFlags::CREATE | OFlags::EXCL };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | kind;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match open(path, flags | OFlags::DIRECT, mode) {
            // What says no to direct access may have made the name before it did.
            Err(Errno::INVAL) if is_directory => open(path, flags, mode)?,
            Err(Errno::INVAL) => open(path, flags - OFlags::EXCL, mode)?,
            opened => opened?,
        };
        if !is_directory {
            unlinkat(CWD, path, AtFlags::empty())?;
        }
        ftruncate(&file, length_bytes)?;
        Ok(Self { file })
    }

    /// The file that another process made and handed over.
    pub fn attach(file: OwnedFd) -> Self {
        Self { file }
    }

    /// The file, to be handed to another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes of disk that the file takes at present.
    pub fn allocated_bytes(&self) -> Result<u64, DiskError> {
        const STAT_BLOCK_BYTES: u64 = 512;
        Ok(fstat(&self.file)?.st_blocks.cast_unsigned() * STAT_BLOCK_BYTES)
    }

    /// Fills `out` from `offset_bytes` on. Offset, length and address must be multiples of 4096.
    pub fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), DiskError> {
        let mut done = 0;
        while done < out.len() {
            match pread(&self.file, &mut out[done..], offset_bytes + done as u64) {
                Ok(0) => return Err(DiskError::Short),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Writes `bytes` at `offset_bytes`. Offset, length and address must be multiples of 4096.
    pub fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut done = 0;
        while done < bytes.len() {
            match pwrite(&self.file, &bytes[done..], offset_bytes + done as u64) {
                Ok(0) => return Err(DiskError::Full),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;

    #[repr(C, align(4096))]
    struct Block([u8; 8192]);

    fn path(name: &str) -> std::ffi::CString {
        let path = std::env::temp_dir().join(format!("farmem-disk-{}-{name}", std::process::id()));
        std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_no_name_stays() {
        let path = path("named");
        let disk = DiskFile::create(&path, 1 << 20).unwrap();
        disk.write_at(4096, &Block([7; 8192]).0).unwrap();
        let mut out = Block([0; 8192]);
        disk.read_at(8192, &mut out.0).unwrap();
        assert!(out.0[..4096] == [7; 4096] && out.0[4096..] == [0; 4096]);
        assert!(stat(&*path).is_err());
    }

    #[test]
    fn a_directory_takes_a_file_without_a_name() {
        let directory =
            std::ffi::CString::new(std::env::temp_dir().into_os_string().into_encoded_bytes()).unwrap();
        let disk = DiskFile::create(&directory, 1 << 20).unwrap();
        assert_eq!(disk.allocated_bytes(), Ok(0));
    }

    #[test]
    fn an_existing_file_is_never_overwritten() {
        let path = path("existing");
        let file = std::path::Path::new(path.to_str().unwrap());
        std::fs::write(file, b"precious").unwrap();
        let refused = DiskFile::create(&path, 1 << 20).err();
        let kept = std::fs::read(file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert_eq!(refused, Some(DiskError::Exists));
        assert_eq!(kept, b"precious");
    }

    #[test]
    fn a_read_past_the_end_is_an_error_not_zeros() {
        let disk = DiskFile::create(&path("short"), 4096).unwrap();
        assert_eq!(disk.read_at(0, &mut Block([0; 8192]).0), Err(DiskError::Short));
    }
}
