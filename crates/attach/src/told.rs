//! What the kernel says about a process, in the words of [`procfs`].

use std::fs;
use std::io::Read;

use farmem_page::{PageRange, VirtAddr};
use procfs::FromBufRead;
use procfs::process::{MemoryMap, MemoryMaps, Status};
use rustix::fs::{PROC_SUPER_MAGIC, statfs};

/// One of the kernel's files about a process.
pub(crate) fn text(process: i32, name: &str) -> Option<String> {
    farmem_machine::process::text(format!("/proc/{process}/{name}"))
}

pub(crate) fn status(process: i32) -> Option<Status> {
    Status::from_buf_read(text(process, "status")?.as_bytes()).ok()
}

/// What the kernel reports of a process's memory under that name.
pub(crate) fn of_memory(process: i32, name: &str) -> Option<String> {
    let own = text(process, name).filter(|text| !text.is_empty());
    own.or_else(|| text(process, &format!("{}/{name}", teller(process)?)))
}

pub(crate) fn maps(process: i32) -> Option<Vec<MemoryMap>> {
    Some(MemoryMaps::from_buf_read(of_memory(process, "maps")?.as_bytes()).ok()?.0)
}

/// Where in the folder of a process the kernel reports its memory and its files: there or, when the first
/// thread has ended, in the folder of another one. `None` when all have ended.
pub(crate) fn teller(process: i32) -> Option<String> {
    let has_memory = |place: &String| {
        text(process, &format!("{place}/statm")).is_some_and(|pages| !pages.starts_with("0 "))
    };
    let itself = ".".to_owned();
    if has_memory(&itself) {
        return Some(itself);
    }
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let places = threads.flatten().map(|thread| format!("task/{}", thread.file_name().to_string_lossy()));
    places.into_iter().find(has_memory)
}

/// The pages of a mapping.
pub(crate) fn range_of(map: &MemoryMap) -> PageRange {
    let (start, end) = map.address;
    PageRange::new(VirtAddr::new(start).page(), VirtAddr::new(end).page())
}

/// Whether the kernel writes its core file. All others that share its memory have been ended by then.
pub(crate) fn is_dumped(process: i32) -> bool {
    status(process).is_some_and(|status| status.core_dumping == Some(true))
}

/// Whether its file is a program of 32 bits.
pub fn is_narrow(process: u32) -> bool {
    const NARROW: [u8; 5] = [0x7f, b'E', b'L', b'F', 1];
    let mut head = [0; NARROW.len()];
    let file = fs::File::open(format!("/proc/{process}/exe"));
    file.and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == NARROW
}

/// Whether what that thread makes begins in other namespaces than its own, as after `unshare`: what it made
/// first would be the first process of a PID namespace, which ends with it; and the kernel makes none that
/// shares its memory in another time namespace.
pub(crate) fn has_other_namespaces_for_children(process: i32, thread: u32) -> bool {
    let name = |of: &str| fs::read_link(format!("/proc/{process}/task/{thread}/ns/{of}")).ok();
    [("pid", "pid_for_children"), ("time", "time_for_children")]
        .iter()
        .any(|(own, childrens)| name(own) != name(childrens))
}

/// Whether a thread waits for a file system in user space. When it is stopped, that is told of an
/// interruption, and may give the call up.
pub(crate) fn waits_for_user_space(process: i32, thread: i32) -> bool {
    text(process, &format!("task/{thread}/wchan")).is_some_and(|place| place == "request_wait_answer")
}

/// Whether the process has a page table open, which hardly is another one's than its own.
pub fn has_page_table_open(process: i32) -> bool {
    let is_one = |descriptor: &fs::DirEntry| {
        let path = descriptor.path();
        fs::read_link(&path).is_ok_and(|of| of.ends_with("pagemap"))
            && statfs(&path).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
    };
    let Some(teller) = teller(process) else { return false };
    let descriptors = fs::read_dir(format!("/proc/{process}/{teller}/fd"));
    descriptors.is_ok_and(|descriptors| descriptors.flatten().any(|descriptor| is_one(&descriptor)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn of_a_process_with_names_that_are_no_text_all_is_told() {
        let folder = std::env::temp_dir().join(format!("farmem-told-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join(OsStr::from_bytes(b"\xff\xfe"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let number = child.id() as i32;

        let (maps, status) = (maps(number), status(number));
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();

        assert!(!maps.unwrap().is_empty());
        assert_eq!(status.unwrap().pid, number);
    }

    #[test]
    fn a_page_table_is_told_from_other_files_of_that_name() {
        let own = std::process::id() as i32;
        let name = std::env::temp_dir().join(format!("farmem-told-{own}-other")).join("pagemap");
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        let other = fs::File::create(&name).unwrap();
        let has_other = has_page_table_open(own);
        drop(other);
        fs::remove_dir_all(name.parent().unwrap()).unwrap();
        let table = fs::File::open("/proc/self/pagemap").unwrap();
        let has_table = has_page_table_open(own);
        drop(table);

        assert!(!has_other && has_table && !has_page_table_open(own));
    }
}
