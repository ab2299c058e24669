//! Containers of Podman's, with an image that is made here: managed from outside without any change to them,
//! and with Farmem inside.
//!
//! Each test has an engine with storage of its own, so that none sees another's containers or images.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use farmem_tests::{
    Host, Scratch, application, assert_refusal, dependency, farmem_binary, managed_runner, wait_for,
};
use serde_json::Value;

use crate::attach_command::{Group, assert_left, assert_within, attach, attached, detach};
use crate::far_redis::{figure, unique};

const MIB: u64 = 1 << 20;
const IMAGE: &str = "localhost/farmem-test";
/// A user without ranges of numbers for namespaces.
const NOBODY: u32 = 65534;

/// Podman, with folders of its own.
struct Engine {
    folder: Scratch,
    user: Option<u32>,
}

impl Engine {
    /// With an image in which there is one static program, and room for the machine's own ones. `None` where
    /// no container can be made.
    fn new(user: Option<u32>) -> Option<Self> {
        if !managed_runner() || !rustix::process::geteuid().is_root() {
            return None;
        }
        let engine = Self { folder: Scratch::new(), user };
        let tree = engine.folder.file("tree");
        for name in ["usr", "proc", "dev", "sys", "tmp", "shared", "opt"] {
            fs::create_dir_all(tree.join(name)).expect("the folder is the test's own");
        }
        for name in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{name}"), tree.join(name))
                .expect("the folder is the test's own");
        }
        fs::copy(env!("PROGRAM_RESIDENT"), tree.join("resident")).expect("the folder is the test's own");
        for name in ["home", "shared"] {
            fs::create_dir(engine.folder.file(name)).expect("the folder is the test's own");
            std::os::unix::fs::chown(engine.folder.file(name), user, user).expect("root gives files away");
        }
        let archive = engine.folder.file("image.tar");
        let tar = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".").status();
        assert!(tar.is_ok_and(|status| status.success()), "no image can be packed");
        let imported = engine.podman(&["import", &archive.to_string_lossy(), IMAGE]);
        assert!(imported.status.success(), "{imported:?}; `scripts/setup` installs podman");
        let tried = engine.run(&["--rm"], &["/resident"]);
        // The program's own word: it wants four arguments.
        if tried.status.code() == Some(2) {
            return Some(engine);
        }
        eprintln!("skipped: no container can be made here: {}", String::from_utf8_lossy(&tried.stderr));
        None
    }

    fn command(&self) -> Command {
        let (home, storage, state) =
            (self.folder.file("home"), self.folder.file("home/storage"), self.folder.file("home/state"));
        let mut command = Command::new("podman");
        command.arg("--root").arg(&storage).arg("--runroot").arg(&state);
        // Nothing that only one system has: neither systemd nor a file system in layers.
        command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]);
        if let Some(user) = self.user {
            command.args(["--storage-opt", "vfs.ignore_chown_errors=true"]).uid(user).gid(user);
        }
        command.env("HOME", &home).env("XDG_RUNTIME_DIR", &home).current_dir(&home).stdin(Stdio::null());
        command
    }

    fn podman(&self, words: &[&str]) -> Output {
        self.command().args(words).output().expect("podman starts; `scripts/setup` installs it")
    }

    /// `podman run`.
    fn run(&self, options: &[&str], words: &[&str]) -> Output {
        let shared = format!("{}:/shared", self.folder.file("shared").display());
        let mut command = self.command();
        // The default limits are above what root may have on some machines.
        command.args([
            "run",
            "--network",
            "none",
            "--ulimit",
            "nofile=1200:1200",
            "--ulimit",
            "nproc=1000:1000",
        ]);
        command.args(["--volume", &shared]).args(options).arg(IMAGE).args(words);
        command.output().expect("podman starts")
    }

    /// The ID of a container in which a program has so many mebibytes, and that nobody has changed for
    /// Farmem.
    fn start(&self, options: &[&str], mebibytes: u64) -> String {
        let options = [&["--detach", "--rm"], options].concat();
        let output = self.run(&options, &["/resident", "/shared", &mebibytes.to_string(), "60", "0"]);
        assert!(output.status.success(), "{output:?}");
        let ready = self.folder.file("shared/ready");
        wait_for("the program's memory", || ready.exists().then_some(()));
        String::from_utf8(output.stdout).expect("an ID is text").trim().to_owned()
    }

    /// The number that the container's program has outside of it.
    fn process(&self, id: &str) -> u32 {
        let output = self.podman(&["inspect", "--format", "{{.State.Pid}}", id]);
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    }

    /// Ends the program, which looks at all that it has. Words that were wrong.
    fn wrong(&self) -> u64 {
        fs::write(self.folder.file("shared/end"), "").expect("the folder is the test's own");
        let result = self.folder.file("shared/result");
        wait_for("the program's end", || fs::read_to_string(&result).ok()).trim().parse().expect("a number")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.podman(&["rm", "--all", "--force", "--time", "0"]);
        if self.user.is_some() {
            // It ends the process that keeps the user's namespace.
            self.podman(&["system", "migrate"]);
        }
    }
}

/// Attaches to what is named, compares, and detaches.
fn is_attached_and_left(engine: &Engine, id: &str, subject: &[&str]) {
    let (name, process) = (unique("container"), engine.process(id));
    assert_within(&attached(&name, "16M", subject), 16 * MIB, 1);
    let faults = figure(&name, "faults");
    wait_for("pages that come back", || (figure(&name, "faults") > faults).then_some(()));
    detach(&name, &[process]);
    assert_eq!(engine.wrong(), 0);
}

#[test]
fn one_is_managed_from_outside_by_its_id_and_left() {
    let Some(engine) = Engine::new(None) else { return };
    let id = engine.start(&[], 40);
    is_attached_and_left(&engine, &id, &["--container", &id[..12]]);
}

#[test]
fn one_that_no_root_has_made_is_managed_from_outside() {
    let Some(engine) = Engine::new(Some(NOBODY)) else { return };
    let id = engine.start(&[], 40);
    let process = engine.process(&id);
    let text = fs::read_to_string(format!("/proc/{process}/cgroup")).expect("it runs");
    if text.contains(&id) {
        is_attached_and_left(&engine, &id, &["--container", &id[..12]]);
        return;
    }
    // Without a manager, or with control groups of the first version, it has none of its own.
    let refused = assert_refusal(2, &mut attach("none", "16M", &["--container", &id[..12]]));
    assert!(refused.contains("name its process instead"), "{refused}");
    is_attached_and_left(&engine, &id, &[&process.to_string()]);
}

#[test]
fn one_is_managed_by_a_rule_about_its_annotation_and_another_is_left_alone() {
    let (Some(engine), Some(other)) = (Engine::new(None), Engine::new(None)) else { return };
    let (rules, name) = (Scratch::new(), unique("r"));
    let file = rules.file("rules.toml");
    let folders = [&engine, &other].map(|engine| engine.folder.file("home/storage/vfs-containers"));
    fs::write(
        &file,
        format!("containers = {folders:?}\n[[rule]]\nname = \"{name}\"\ncontainer-label = \"tier=cold\"\nlocal = \"16M\"\n"),
    )
    .expect("the folder is the test's own");
    let host = Host::start(&["--pool", "128M", "--manage", &file.to_string_lossy()]);
    other.start(&["--annotation", "tier=hot"], 40);
    let id = engine.start(&["--annotation", "tier=cold"], 40);

    let application = wait_for("an application within its budget", || {
        let figures = application(&format!("{name}.{}", &id[..12]))?;
        let is_within =
            figures["far_pages"].as_u64() > Some(0) && figures["resident_bytes"].as_u64() <= Some(17 * MIB);
        is_within.then_some(figures)
    });

    assert_eq!(application["managed_by"]["rule"], name.as_str(), "{application}");
    wait_for("word of it", || host.said().contains("is managed from now on").then_some(()));
    assert_eq!(host.said().matches("is managed from now on").count(), 1, "{}", host.said());
    assert_eq!(engine.wrong(), 0);
    assert_eq!(other.wrong(), 0);
}

/// As the manifests for Kubernetes do it: a host in a container that sees the machine's processes.
#[test]
fn a_host_in_one_manages_another_until_it_is_told_to_detach_all() {
    let Some(engine) = Engine::new(None) else { return };
    let (name, folders) = (unique("r"), engine.folder.file("home/storage/vfs-containers"));
    let rules = format!(
        "containers = [{folders:?}]\n[[rule]]\nname = \"{name}\"\ncontainer-label = \"tier=cold\"\nlocal = \"16M\"\n"
    );
    fs::write(engine.folder.file("shared/rules.toml"), rules).expect("the folder is the test's own");
    let farmem = format!("{}:/opt/farmem:ro", farmem_binary().display());
    let containers = format!("{folders}:{folders}:ro", folders = folders.display());
    let options =
        ["--detach", "--rm", "--privileged", "--pid", "host", "--volume", "/usr:/usr:ro", "--volume"];
    let groups = "/sys/fs/cgroup:/sys/fs/cgroup:ro";
    let options = [&options[..], &[&farmem, "--volume", &containers, "--volume", groups]].concat();
    let words = ["/opt/farmem", "host", "--pool", "128M", "--socket", "/shared/host", "--manage"];
    let started = engine.run(&options, &[&words[..], &["/shared/rules.toml"]].concat());
    assert!(started.status.success(), "{started:?}");
    let host = String::from_utf8(started.stdout).expect("an ID is text").trim().to_owned();
    let ask = |words: &[&str]| -> Value {
        let output = engine.podman(&[&["exec", &host, "/opt/farmem"], words].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let id = engine.start(&["--annotation", "tier=cold"], 40);
    let named = format!("{name}.{}", &id[..12]);
    wait_for("an application within its budget", || {
        let all = ask(&["stat", "--json"]);
        let application = all.as_array()?.iter().find(|application| application["name"] == named.as_str())?;
        let is_within = application["resident_bytes"].as_u64() <= Some(17 * MIB);
        (application["far_pages"].as_u64() > Some(0) && is_within).then_some(())
    });

    let detached = ask(&["detach", "--all", "--json"]);

    assert_eq!(detached.as_array().map(Vec::len), Some(1), "{detached}");
    assert_eq!(detached[0]["name"], named.as_str(), "{detached}");
    assert!(detached[0]["returned_bytes"].as_u64() > Some(0), "{detached}");
    assert_left(engine.process(&id));
    assert_eq!(ask(&["detach", "--all", "--json"]), serde_json::json!([]), "nobody is left to be detached");
    let ended = engine.podman(&["stop", &host]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(engine.wrong(), 0);
}

#[test]
fn the_manifests_for_kubernetes_are_as_its_schemas_say() {
    if !managed_runner() {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/kubernetes");
    let manifests = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("a file").path());
    let check = dependency("venv/bin/kubernetes-validate");
    let output = Command::new(check).args(["--strict", "-k", "1.33", "-k", "1.37"]).args(manifests).output();
    let output = output.expect("`scripts/setup` installs kubernetes-validate");
    assert!(output.status.success(), "{output:?}");
}

/// `farmem run` in a container with the machine's programs, and with these options.
fn run_inside(engine: &Engine, options: &[&str]) -> Output {
    let farmem = format!("{}:/opt/farmem:ro", farmem_binary().display());
    let options = [&["--rm", "--volume", "/usr:/usr:ro", "--volume", &farmem], options].concat();
    let words = ["/opt/farmem", "run", "--host", "none", "--local", "16M", "--pool", "256M", "--stats"];
    let program = ["/shared/stats", "--", "/resident", "/shared", "40", "100", "0"];
    let (running, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || end_when_ready(engine, &ended));
        let output = engine.run(&options, &[&words[..], &program].concat());
        drop(running);
        output
    })
}

/// Ends the program some time after it has its memory: a short one may be over before its pager comes.
fn end_when_ready(engine: &Engine, ended: &mpsc::Receiver<()>) {
    let is_running = |patience| matches!(ended.recv_timeout(patience), Err(mpsc::RecvTimeoutError::Timeout));
    while !engine.folder.file("shared/ready").exists() {
        if !is_running(Duration::from_millis(10)) {
            return;
        }
    }
    let _ = is_running(Duration::from_secs(1));
    fs::write(engine.folder.file("shared/end"), "").expect("the folder is the test's own");
}

fn assert_run(engine: &Engine, output: &Output) {
    assert!(output.status.success(), "{output:?}");
    let stats = fs::read_to_string(engine.folder.file("shared/stats")).expect("statistics");
    let stats: Value = serde_json::from_str(&stats).expect("an object");
    assert!(stats["evicted"].as_u64() > Some(0), "{stats}");
    assert_eq!(engine.wrong(), 0);
}

#[test]
fn farmem_runs_inside_of_one_without_a_filter() {
    let Some(engine) = Engine::new(None) else { return };
    let options = ["--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined"];
    assert_run(&engine, &run_inside(&engine, &options));
}

#[test]
fn farmem_runs_inside_of_one_whose_filter_is_that_of_the_packages() {
    let Some(engine) = Engine::new(None) else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/seccomp-profile");
    let profile = Command::new(script).output().expect("it starts");
    assert!(profile.status.success(), "{profile:?}");
    let file = engine.folder.file("profile.json");
    fs::write(&file, &profile.stdout).expect("the folder is the test's own");
    let filter = format!("seccomp={}", file.display());
    assert_run(&engine, &run_inside(&engine, &["--cap-add", "SYS_PTRACE", "--security-opt", &filter]));
}

#[test]
fn farmem_says_inside_of_one_that_nobody_has_prepared_what_is_missing() {
    let Some(engine) = Engine::new(None) else { return };
    for (options, missing) in [
        (&[][..], "needs CAP_SYS_PTRACE; run as root"),
        (&["--cap-add", "SYS_PTRACE"], "refuses userfaultfd; allow it in the container's seccomp profile"),
    ] {
        let output = run_inside(&engine, options);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(missing) && said.lines().count() == 1, "{said}");
    }
    assert!(!Path::new(&engine.folder.file("shared/ready")).exists(), "the program began");
}

#[test]
fn an_id_that_two_of_them_begin_with_is_refused() {
    if !managed_runner() {
        return;
    }
    // Engines call control groups so.
    let (begins, rest) = (format!("{:08x}", std::process::id()), "0123456789abcdef".repeat(3));
    let ids = ["aaaaaaaa", "bbbbbbbb"].map(|middle| format!("{begins}{middle}{rest}"));
    let groups = ids.each_ref().map(|id| Group::called(&format!("libpod-{id}")));
    if groups.iter().any(Option::is_none) {
        return;
    }
    let refused = assert_refusal(2, &mut attach("none", "16M", &["--container", &begins]));
    assert!(
        refused.contains(&format!("2 containers have {begins} in their ID; give 12 letters of it or more")),
        "{refused}"
    );
    // As much of it as tells them apart names an empty group.
    let refused = assert_refusal(2, &mut attach("none", "16M", &["--container", &ids[0][..12]]));
    assert!(refused.contains("has no process"), "{refused}");
}
