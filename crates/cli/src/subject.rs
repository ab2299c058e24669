//! What `farmem attach` is to manage: a process, or the control group that a path, a unit or a container
//! stands for. What can't be managed is refused before anything begins, in a sentence that says what to do.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use farmem::Failure;
use farmem_client::holder;
use farmem_machine::process::OWN_NAMES;
use farmem_supervisor::{Subject, group_members};
use procfs::process::{Process, StatFlags};

use crate::arguments::SubjectArguments;

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Hierarchies of the kernel's first interface, of which each has all groups that matter.
const HIERARCHIES: [&str; 4] = ["", "unified", "systemd", "memory"];
/// Folders below each other that are searched.
const DEEPEST: usize = 12;
/// Of an ID this much stands for one container.
const WHOLE: usize = 12;
/// What names of units end with, where it is left out.
const KINDS: [&str; 3] = ["", ".service", ".scope"];

/// What is managed, and the name of an application that was given none.
pub(crate) fn resolve(arguments: &SubjectArguments) -> Result<(Subject, String), Failure> {
    let (folder, name) = match arguments {
        SubjectArguments { process: Some(number), .. } => {
            let process = checked(*number)?;
            let name = process.stat().map_or_else(|_| number.to_string(), |stat| stat.comm);
            return Ok((Subject::Process(*number), shown(&name)));
        }
        SubjectArguments { cgroup: Some(path), .. } => group_at(path)?,
        SubjectArguments { unit: Some(name), .. } => (unit(name)?, name.clone()),
        SubjectArguments { container: Some(id), .. } => (container(id)?, id.clone()),
        // The command line takes none without one of them.
        SubjectArguments { .. } => {
            return Err(unusable("name a process, a control group, a unit or a container"));
        }
    };
    let members = group_members(&folder);
    if members.is_empty() {
        return Err(unusable(format!(
            "control group {} has no process; start something in it, and attach again",
            folder.display()
        )));
    }
    for &member in &members {
        free(member)?;
    }
    // One that has ended meanwhile is no reason.
    let checks = members.iter().map(|&member| permitted(member));
    if let Some(refused) = checks.filter_map(Result::err).next() {
        return Err(refused);
    }
    Ok((Subject::Group(folder), shown(&name)))
}

fn unusable(sentence: impl Into<String>) -> Failure {
    Failure::Unusable(sentence.into())
}

/// A name for people, whatever characters it had.
fn shown(name: &str) -> String {
    let name: String = name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    let short = KINDS[1..].iter().find_map(|kind| name.strip_suffix(kind)).unwrap_or(&name);
    if short.is_empty() { "attached".to_owned() } else { short.to_owned() }
}

/// The process of that number, if it can be managed.
pub(crate) fn checked(number: u32) -> Result<Process, Failure> {
    let unknown = || unusable(format!("no process has the number {number}; `ps -e` lists those that run"));
    let process = Process::new(number as i32).map_err(|_| unknown())?;
    let stat = process.stat().map_err(|_| unknown())?;
    if StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_KTHREAD) {
        return Err(unusable(format!(
            "process {number} ({}) is a thread of the kernel; name a program's process",
            shown(&stat.comm)
        )));
    }
    if stat.state == 'Z' && stat.num_threads <= 1 {
        return Err(unusable(format!("process {number} has ended; name one that runs")));
    }
    let file = fs::read_link(format!("/proc/{number}/exe"));
    let is_same =
        file.as_ref().is_ok_and(|file| fs::read_link("/proc/self/exe").is_ok_and(|own| own == *file));
    if is_same || OWN_NAMES.contains(&stat.comm.as_str()) {
        return Err(unusable(format!("process {number} is Farmem's own; name the process of a program")));
    }
    free(number)?;
    permitted(number)?;
    let tracer = process.status().map_or(0, |status| status.tracerpid);
    if tracer != 0 {
        let name = Process::new(tracer)
            .and_then(|tracer| tracer.stat())
            .map_or_else(|_| String::new(), |stat| format!(" ({})", shown(&stat.comm)));
        return Err(unusable(format!(
            "process {number} is traced by process {tracer}{name}; end that, and attach again"
        )));
    }
    if farmem_attach::is_narrow(number) {
        return Err(unusable(format!(
            "process {number} runs a 32-bit program; Farmem manages only 64-bit programs"
        )));
    }
    Ok(process)
}

/// Whether no application has the process.
fn free(number: u32) -> Result<(), Failure> {
    match holder(number) {
        None => Ok(()),
        Some(name) => Err(unusable(format!(
            "process {number} is managed already, by application {name}; change that with `farmem set {name}`, or run `farmem detach {name}` first"
        ))),
    }
}

/// Whether this user may manage the process. One that has ended is none of the user's business.
fn permitted(number: u32) -> Result<(), Failure> {
    match OpenOptions::new().read(true).write(true).open(format!("/proc/{number}/mem")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let hint = match rustix::process::geteuid().is_root() {
                true => "run `farmem attach` outside of this container, or name another process",
                false => "run `farmem attach` as root",
            };
            Err(unusable(format!("this user may not manage process {number}; {hint}")))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Where a control group may be, of which the path below a hierarchy is known.
fn places(path: &Path) -> impl Iterator<Item = PathBuf> {
    let below = path.strip_prefix("/").unwrap_or(path).to_owned();
    HIERARCHIES.into_iter().map(move |hierarchy| Path::new(ROOT).join(hierarchy).join(&below))
}

fn is_group(folder: &Path) -> bool {
    folder.join("cgroup.procs").is_file()
}

fn group_at(path: &Path) -> Result<(PathBuf, String), Failure> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = std::iter::once(absolute.clone()).chain(places(path)).find(|folder| is_group(folder));
    let folder = found.ok_or_else(|| {
        let what = if absolute.exists() { "is not a control group" } else { "doesn't exist" };
        unusable(format!(
            "{} {what}; name the folder of one, such as {ROOT}/system.slice/redis.service",
            path.display()
        ))
    })?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((folder, name))
}

/// The control group of a unit: as systemd says, or by its name.
fn unit(name: &str) -> Result<PathBuf, Failure> {
    if let Some(folder) = unit_by_manager(name) {
        return Ok(folder);
    }
    let wanted: Vec<String> = KINDS.iter().map(|kind| format!("{name}{kind}")).collect();
    let found = search(|folder| wanted.iter().any(|wanted| wanted == folder));
    prefer(found).ok_or_else(|| {
        unusable(format!("no unit named {name} runs; `systemctl list-units` lists those that do"))
    })
}

fn unit_by_manager(name: &str) -> Option<PathBuf> {
    let output =
        Command::new("systemctl").args(["show", "--property=ControlGroup", "--value", "--", name]).output();
    let path = String::from_utf8(output.ok()?.stdout).ok()?;
    let path = path.trim();
    places(Path::new(path)).find(|folder| !path.is_empty() && is_group(folder))
}

/// The control group of a container, which is called after its ID.
fn container(id: &str) -> Result<PathBuf, Failure> {
    let found = search(|folder| is_of_container(folder, id));
    let names: BTreeSet<_> = found.iter().filter_map(|folder| folder.file_name()).collect();
    if names.len() > 1 && id.len() < WHOLE {
        return Err(unusable(format!(
            "{} containers have {id} in their ID; give {WHOLE} letters of it or more",
            names.len()
        )));
    }
    prefer(found).ok_or_else(|| {
        unusable(format!(
            "no container with the ID {id} has a control group here; `docker ps`, `podman ps` or `crictl ps` lists those that run: of one without a group of its own name its process instead"
        ))
    })
}

/// Whether a group of that name is that container's: engines put words before and behind the ID.
fn is_of_container(folder: &str, id: &str) -> bool {
    let at = folder.find(id);
    at.is_some_and(|at| at == 0 || folder.as_bytes()[at - 1] == b'-' || id.len() >= WHOLE)
}

/// One with a process, if there is one.
fn prefer(found: Vec<PathBuf>) -> Option<PathBuf> {
    let with_process = found.iter().find(|folder| !group_members(folder).is_empty()).cloned();
    with_process.or_else(|| found.into_iter().next())
}

/// The control groups whose folders are so called, without those inside of them.
fn search(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(PathBuf::from(ROOT), DEEPEST)];
    while let Some((folder, left)) = open.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = entry.path();
            if is_wanted(&entry.file_name().to_string_lossy()) && is_group(&path) {
                found.push(path);
            } else if left > 0 {
                open.push((path, left - 1));
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_the_beginning_of_its_id_or_by_much_of_it() {
        let folder = "docker-3f4e5d6c7b8a9f0e.scope";
        assert!(is_of_container(folder, "3f4e"));
        assert!(is_of_container("3f4e5d6c7b8a9f0e", "3f4e5d"));
        assert!(is_of_container(folder, "4e5d6c7b8a9f"));
        assert!(!is_of_container(folder, "4e5d"));
        assert!(!is_of_container(folder, "aaaa"));
    }

    #[test]
    fn names_of_applications_have_no_controls_and_no_kind_of_unit() {
        assert_eq!(shown("redis.service"), "redis");
        assert_eq!(shown("a\x1bb"), "a?b");
        assert_eq!(shown(".scope"), "attached");
    }

    #[test]
    fn what_is_no_process_is_refused() {
        let refusal = checked(u32::from(u16::MAX) * 4).expect_err("numbers end before").to_string();
        assert!(refusal.contains("no process has the number"), "{refusal}");
        let refusal = checked(std::process::id()).expect_err("it is this program").to_string();
        assert!(refusal.contains("Farmem's own"), "{refusal}");
    }
}
