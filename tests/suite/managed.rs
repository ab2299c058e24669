//! `farmem host --manage`: programs that nobody started under Farmem, managed as a file of rules says, as
//! they come and go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farmem_tests::{Host, Scratch, application, assert_refusal, farmem_binary, managed_runner, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::attach_command::{Group, Resident, assert_left};
use crate::far_redis::unique;

const MIB: u64 = 1 << 20;

/// A file of rules.
struct Rules {
    folder: Scratch,
}

impl Rules {
    fn new(text: &str) -> Self {
        let rules = Self { folder: Scratch::new() };
        rules.write(text);
        rules
    }

    fn path(&self) -> PathBuf {
        self.folder.file("rules.toml")
    }

    fn write(&self, text: &str) {
        let next = self.folder.file("next");
        fs::write(&next, text).expect("the folder is the test's own");
        fs::rename(next, self.path()).expect("the folder is the test's own");
    }

    fn host(&self) -> Host {
        Host::start(&["--pool", "128M", "--manage", &self.path().to_string_lossy()])
    }
}

fn rule(name: &str, wanted: &str, local: &str) -> String {
    format!("[[rule]]\nname = \"{name}\"\n{wanted}\nlocal = \"{local}\"\n")
}

/// A program whose file has that name.
fn called(name: &str, mebibytes: u64) -> Resident {
    let folder = Scratch::new();
    let file = folder.file(name);
    fs::copy(env!("PROGRAM_RESIDENT"), &file).expect("the folder is the test's own");
    let mut command = Command::new(&file);
    command.arg(folder.path()).args([mebibytes.to_string().as_str(), "20", "0"]);
    Resident::begin(command, folder)
}

/// Waits until there is an application of that name within that budget, and what it tells.
fn within(name: &str, budget: u64) -> Value {
    wait_for("an application within its budget", || {
        let figures = application(name)?;
        let number = |key: &str| figures[key].as_u64().unwrap_or_default();
        let is_within = number("budget_bytes") == budget
            && number("resident_bytes") <= budget + MIB
            && number("far_pages") > 0;
        is_within.then_some(figures)
    })
}

fn wait_until_gone(name: &str) {
    wait_for("the end of an application", || application(name).is_none().then_some(()));
}

fn wait_until_said(host: &Host, words: &str) {
    wait_for(words, || host.said().contains(words).then_some(()));
}

/// Has the host read its rules again, at once.
fn ask_again(host: &Host) {
    let number = i32::try_from(host.process()).expect("a process");
    kill_process(Pid::from_raw(number).expect("a process"), Signal::HUP).expect("it lives");
}

#[test]
fn groups_and_commands_are_managed_as_they_come_and_go_and_come_again() {
    if !managed_runner() {
        return;
    }
    let (group_rule, command_rule) = (unique("g"), unique("c"));
    let command = unique("managed-program");
    let rules = Rules::new(
        &(rule(&group_rule, &format!("cgroup = \"/{}*\"", unique("farmem-managed")), "24M")
            + &rule(&command_rule, &format!("command = \"{command}\""), "16M\"\npool = \"64M")),
    );
    let host = rules.host();
    let alone = called(&command, 32);
    let Some(group) = Group::new("farmem-managed") else { return };
    let name = format!("{group_rule}.{}", unique("farmem-managed"));
    for _ in 0..2 {
        // By its command it would be the other rule's.
        let member = called(&command, 40);
        group.add(member.child.id());
        let figures = within(&name, 24 * MIB);
        assert_eq!(figures["managed_by"]["rule"], group_rule.as_str(), "{figures}");
        assert_eq!(member.wrong(), 0);
        wait_until_gone(&name);
    }
    let name = format!("{command_rule}.{}", alone.child.id());
    let figures = within(&name, 16 * MIB);
    assert_eq!(figures["pool_limit_bytes"].as_u64(), Some(64 * MIB), "{figures}");
    assert_eq!(alone.wrong(), 0);
    wait_until_gone(&name);
    drop(host);
}

#[test]
fn a_rule_that_changes_changes_budgets_and_one_that_goes_leaves_its_programs() {
    if !managed_runner() {
        return;
    }
    let (name, command) = (unique("r"), unique("changed"));
    let wanted = format!("command = \"{command}\"");
    let rules = Rules::new(&rule(&name, &wanted, "24M"));
    let resident = called(&command, 40);
    let host = rules.host();
    let application = format!("{name}.{}", resident.child.id());
    within(&application, 24 * MIB);

    rules.write(&rule(&name, &wanted, "16M"));
    within(&application, 16 * MIB);

    // A bad file changes nothing, and is said once.
    rules.write("[[rule]]\nname = 5\n");
    wait_until_said(&host, "line 2: name is a text");
    rules.write(&rule(&name, &wanted, "20M"));
    ask_again(&host);
    within(&application, 20 * MIB);
    assert_eq!(host.said().matches("line 2: name is a text").count(), 1, "{}", host.said());

    rules.write("rule = []\n");
    wait_until_gone(&application);
    assert_left(resident.child.id());
    assert!(host.said().contains("is no longer managed, as the rules say now"), "{}", host.said());
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn programs_outlive_the_host_and_the_next_one_knows_them() {
    if !managed_runner() {
        return;
    }
    let (name, command) = (unique("k"), unique("outliving"));
    let rules = Rules::new(&rule(&name, &format!("command = \"{command}\""), "24M"));
    let resident = called(&command, 40);
    let mut host = rules.host();
    let application = format!("{name}.{}", resident.child.id());
    within(&application, 24 * MIB);
    let before = within(&application, 24 * MIB)["wall_seconds"].as_f64();

    host.kill();
    assert!(within(&application, 24 * MIB)["wall_seconds"].as_f64() >= before);
    rules.write(&rule(&name, &format!("command = \"{command}\""), "16M"));
    host.restart();

    // It has found the one that there is, and none began.
    assert!(within(&application, 16 * MIB)["wall_seconds"].as_f64() >= before);
    assert!(!host.said().contains("is managed from now on"), "{}", host.said());

    // What a person detaches, a host leaves alone.
    let output = Command::new(farmem_binary())
        .args(["detach", &application])
        .stdin(Stdio::null())
        .output()
        .expect("farmem starts");
    assert!(output.status.success(), "{output:?}");
    wait_until_said(&host, "is no longer managed");
    assert_left(resident.child.id());
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn what_somebody_manages_already_is_left_alone_and_said_once() {
    if !managed_runner() {
        return;
    }
    let (name, command) = (unique("m"), unique("taken"));
    let resident = called(&command, 40);
    let output = Command::new(farmem_binary())
        .args(["attach", "--host", "none", "--pool", "64M", "--local", "24M", "--name", &command])
        .arg(resident.child.id().to_string())
        .stdin(Stdio::null())
        .output()
        .expect("farmem starts");
    assert!(output.status.success(), "{output:?}");
    let rules = Rules::new(&rule(&name, &format!("command = \"{command}\""), "16M"));
    let host = rules.host();
    let said = format!("is managed already, by application {command}");
    wait_until_said(&host, &said);
    // The next attempt is at least five seconds later.
    let began = std::time::Instant::now();
    wait_for("time for another attempt", || (began.elapsed().as_secs() >= 7).then_some(()));
    assert_eq!(host.said().matches(&said).count(), 1, "{}", host.said());
    within(&command, 24 * MIB);
    assert_eq!(resident.wrong(), 0);
}

/// An ID as engines make them.
fn id() -> String {
    format!("{:0>64x}", u64::from(std::process::id()) << 20)
}

#[test]
fn units_are_found_by_their_name_and_containers_by_their_label() {
    if !managed_runner() {
        return;
    }
    let (unit_rule, label_rule, engine) = (unique("u"), unique("l"), Scratch::new());
    let containers = engine.file("containers");
    fs::create_dir_all(containers.join(id())).expect("the folder is the test's own");
    fs::write(
        containers.join(id()).join("config.v2.json"),
        r#"{"ID": "x", "Config": {"Labels": {"farmem.local": "yes"}}}"#,
    )
    .expect("the folder is the test's own");
    let unit = unique("farmem-unit");
    let rules = Rules::new(
        &(format!("containers = [{:?}]\n", containers.to_string_lossy())
            + &rule(&unit_rule, &format!("unit = \"{unit}\""), "16M")
            + &rule(&label_rule, "container-label = \"farmem.local=y*\"", "20M")),
    );
    let host = rules.host();
    let (Some(service), Some(container), Some(other)) = (
        Group::called(&format!("{unit}.service")),
        Group::called(&format!("docker-{}.scope", id())),
        Group::called(&format!("docker-{}.scope", id().replace('0', "a"))),
    ) else {
        return;
    };
    let residents = [Resident::start(32, 20, 0), Resident::start(40, 20, 0), Resident::start(40, 20, 0)];
    service.add(residents[0].child.id());
    container.add(residents[1].child.id());
    other.add(residents[2].child.id());

    within(&unit_rule, 16 * MIB);
    within(&format!("{label_rule}.{}", &id()[..12]), 20 * MIB);
    wait_for("word of both", || (host.said().matches("is managed from now on").count() == 2).then_some(()));
    for resident in residents {
        assert_eq!(resident.wrong(), 0);
    }
}

#[test]
fn a_bad_file_is_refused_with_its_line_and_nothing_begins() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let socket = folder.file("host.socket");
    let host = |file: &Path| {
        // Should it begin, it isn't waited for without bound.
        let mut command = Command::new("timeout");
        command.args(["--preserve-status", "60"]).arg(farmem_binary());
        command.args(["host", "--pool", "64M", "--socket"]).arg(&socket).arg("--manage").arg(file);
        command
    };
    for (text, says) in [
        ("[[rule]]\nname = \"a\"\nunit = \"b\"\nlocal = \"much\"\n", "line 4: "),
        ("[[rule]]\nname = \"a\"\nunit = \"b\"\nlocal = \"1K\"\n", "is too small for any program"),
        ("[[rule\n", "line 1: "),
        ("", "begin one with a line [[rule]]"),
    ] {
        let rules = Rules::new(text);
        let said = assert_refusal(2, &mut host(&rules.path()));
        assert!(said.contains(says), "{said}");
    }
    let said = assert_refusal(2, &mut host(&folder.file("none")));
    assert!(said.contains("cannot read"), "{said}");
    assert!(!socket.exists());
}

#[test]
fn what_can_not_be_managed_is_said_with_the_reason_and_managed_when_that_has_gone() {
    if !managed_runner() {
        return;
    }
    let (name, command) = (unique("t"), unique("traced"));
    let resident = called(&command, 16);
    // It is traced, as by a debugger.
    let tracer = Command::new("strace")
        .args(["-qq", "-e", "trace=none", "-o", "/dev/null", "-p", &resident.child.id().to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut tracer) = tracer else {
        eprintln!("skipped: there is no strace");
        return;
    };
    let rules = Rules::new(&rule(&name, &format!("command = \"{command}\""), "8M"));
    let host = rules.host();
    wait_until_said(&host, "is left alone for now");
    assert!(host.said().contains("is traced by process"), "{}", host.said());
    tracer.kill().expect("it is a child");
    tracer.wait().expect("it ends");
    // It is waited for.
    within(&format!("{name}.{}", resident.child.id()), 8 * MIB);
    assert_eq!(resident.wrong(), 0);
    drop(host);
}
