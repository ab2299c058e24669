//! A virtual machine with one server in it, and nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dependency::dependency;
use crate::initial_file_system::InitialFileSystem;
use crate::launch::{Launcher, Program, Running};
use crate::redis::RedisClient;

/// The guest's server; the path is the same inside and outside.
const SERVER: &str = "/usr/bin/redis-server";

/// Emulated, which works on every machine, with little memory for translated code.
const ACCELERATOR: &str = "tcg,tb-size=32";

/// What the guest's console says once the server can be reached (`tests/programs/guest`).
const SERVES: &str = "the guest serves";

/// What the emulator has a guest's memory in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GuestMemory {
    /// Private anonymous memory.
    Private,
    /// A memory file that other processes could map.
    MemoryFile,
}

/// Starts a guest with so much memory and Redis in it, and connects with that. One to a launcher.
///
/// The guest has no network, no disk and no shell: a kernel, one program that starts the server, and the
/// server with its libraries. A virtual serial port connects the server with a Unix socket outside, for one
/// client in all. The emulator ends when the server does, with another status than 0 when the guest's kernel
/// panicked.
///
/// # Panics
/// When the server never answers, or something is missing that `scripts/setup` installs.
#[must_use]
pub fn start_guest(
    launcher: &Launcher,
    memory: GuestMemory,
    memory_mebibytes: u64,
) -> (Running<'_>, RedisClient) {
    let [files, socket, console] =
        ["guest.files", "guest.socket", "guest.console"].map(|name| launcher.file(name));
    std::fs::write(&files, initial_files()).expect("the directory of the run can be written");
    let program = emulator(memory_mebibytes, &files, &socket, &console);
    let mut running = launcher.start(match memory {
        GuestMemory::Private => program,
        GuestMemory::MemoryFile => program
            .arg("-object")
            .arg(format!("memory-backend-memfd,id=memory,share=on,size={memory_mebibytes}M"))
            .args(["-machine", "memory-backend=memory"]),
    });
    running.until("a guest that serves", || {
        std::fs::read_to_string(&console).is_ok_and(|said| said.contains(SERVES)).then_some(())
    });
    (running, RedisClient::connect(&socket).expect("the guest says that its server listens"))
}

/// Without a memory backend among its options, the guest's memory is private anonymous memory of the
/// emulator.
fn emulator(memory_mebibytes: u64, files: &Path, socket: &Path, console: &Path) -> Program {
    let option_with = |start: &str, path: &Path| {
        let mut option = OsString::from(start);
        option.push(path);
        option
    };
    let server_options = "--port 0 --unixsocket /server.socket --appendonly no --save";
    Program::new("qemu-system-x86_64")
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        .args(["-accel", ACCELERATOR, "-m", &format!("{memory_mebibytes}M")])
        .arg("-kernel")
        .arg(dependency("guest").join("vmlinuz"))
        .arg("-initrd")
        .arg(files)
        .args(["-append", &format!("console=ttyS0 panic=-1 quiet -- {SERVER} {server_options} \"\"")])
        .arg("-chardev")
        .arg(option_with("stdio,id=console,signal=off,logfile=", console))
        .args(["-serial", "chardev:console"])
        .arg("-chardev")
        .arg(option_with("socket,id=server,server=on,wait=off,path=", socket))
        .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=server"])
        // What the guest frees, the emulator discards.
        .args(["-device", "virtio-balloon-pci,free-page-reporting=on"])
}

fn initial_files() -> Vec<u8> {
    let mut files = InitialFileSystem::default();
    files.add("init", Path::new(env!("PROGRAM_GUEST")));
    for (number, module) in modules().iter().enumerate() {
        files.add(&format!("modules/{number}"), module);
    }
    files.add(SERVER, Path::new(SERVER));
    for library in libraries(SERVER) {
        files.add(&library, Path::new(&library));
    }
    files.finish()
}

/// The kernel's modules that a guest needs, in the order in which they are loaded.
fn modules() -> Vec<PathBuf> {
    let directory = dependency("guest").join("modules");
    let order = std::fs::read_to_string(directory.join("order"))
        .unwrap_or_else(|error| panic!("{}: {error}; run `scripts/setup`", directory.display()));
    order.lines().map(|module| directory.join(module)).collect()
}

/// The paths of all libraries that a program of this machine is linked with, the loader among them.
fn libraries(program: &str) -> Vec<String> {
    let output = Command::new("ldd").arg(program).stdin(Stdio::null()).output().expect("ldd can be started");
    assert!(output.status.success(), "ldd {program}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("paths of libraries are text");
    text.split_ascii_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}
