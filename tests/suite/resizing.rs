//! `farmem shrink` and `farmem grow`: applications that are made small while nobody uses them, and get their
//! memory again.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use farmem_tests::{
    Host, Launcher, Program, Running, application, assert_refusal, farmem_binary, managed_runner, refusal,
    set_limits, wait_for,
};
use serde_json::Value;

use crate::attach_command::{Resident, attached, detach};
use crate::far_redis::{figure, unique};

const MIB: u64 = 1 << 20;

/// A notebook with a table, of which each row is known: it waits for `ask`, then looks at each row, and says
/// whether it is right.
const NOTEBOOK: &str = r#"
import hashlib, os, time
def row(nth): return "row %d of %s" % (nth, hashlib.md5(b"%d" % nth).hexdigest() * 8)
rows = [row(nth) for nth in range(150_000)]
good = True
open("ready", "w").close()
while not os.path.exists("end"):
    time.sleep(0.1)
    if os.path.exists("ask"):
        good &= all(found == row(nth) for nth, found in enumerate(rows))
        rows[0] = row(0)
        os.unlink("ask")
print("same" if good else "different")
"#;

/// What fills a fresh pool as it is: pages that don't compress.
const NOISE: &str = r#"
import hashlib, os, time
noise = os.urandom(1 << 20)
parts = [noise[nth:] + noise[:nth] for nth in range(60)]
open("ready", "w").close()
while not os.path.exists("end"): time.sleep(0.1)
print("same" if all(part == noise[nth:] + noise[:nth] for nth, part in enumerate(parts)) else "different")
"#;

fn start<'a>(launcher: &'a Launcher, source: &str) -> Running<'a> {
    let mut running = launcher.start(Program::new("python3").args(["-c", source]));
    running.until("a program with all its memory", || launcher.file("ready").exists().then_some(()));
    running
}

/// It looks at all that it has.
fn ask(launcher: &Launcher) {
    fs::write(launcher.file("ask"), "").expect("the test's own folder");
    wait_for("an answer", || (!launcher.file("ask").exists()).then_some(()));
}

fn end(launcher: &Launcher, running: Running<'_>) {
    fs::write(launcher.file("end"), "").expect("the test's own folder");
    assert_eq!(running.wait().success().text(), "same\n");
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(farmem_binary());
    command.args(words).stdin(Stdio::null());
    command
}

fn output(words: &[&str]) -> Output {
    command(words).output().expect("farmem starts")
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("an object: {output:?}"))
}

/// What is printed by a command that does what it should.
fn done(words: &[&str]) -> Value {
    let output = output(&[words, &["--json"]].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let object = object(&output);
    assert_eq!(object["is_done"], true, "{object}");
    object
}

fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} in {object}"))
}

/// What the kernel says of a process's memory that belongs to no file.
fn anonymous(process: u64) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// How long a process has used processors.
fn ran(process: u64) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).expect("it runs");
    let ran = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(ran.expect("the kernel says so"))
}

/// Waits until the process does nothing, and its supervisor has noticed how much it has.
fn await_idle(name: &str, process: u64) {
    const LOOK: Duration = Duration::from_millis(200);
    wait_for("a process that does nothing", || {
        let before = ran(process);
        std::thread::sleep(LOOK);
        let is_known = figure(name, "resident_bytes") + MIB > anonymous(process);
        (is_known && ran(process) - before < LOOK / 20).then_some(())
    });
}

#[test]
fn an_idle_notebook_is_shrunk_goes_on_in_little_memory_and_has_every_row_when_it_has_grown() {
    if !managed_runner() {
        return;
    }
    let name = unique("notebook");
    let launcher = Launcher::managed(400 * MIB).option("--name").option(&name);
    let running = start(&launcher, NOTEBOOK);
    let process = number(&application(&name).expect("it runs"), "process");
    await_idle(&name, process);
    let before = anonymous(process);
    assert!(before > 48 * MIB, "{before}");

    let shrunk = done(&["shrink", &name]);

    let after = anonymous(process);
    assert!(after <= 5 * MIB, "{after} of {before} bytes are left");
    assert!(number(&shrunk, "left_bytes") > before - 8 * MIB, "{shrunk}");
    assert!(number(&shrunk, "freed_bytes") > before / 4, "{shrunk}");
    assert_eq!((number(&shrunk, "budget_bytes"), number(&shrunk, "shrunk_from_bytes")), (4 * MIB, 400 * MIB));
    assert!(number(&shrunk, "far_bytes") > before - 8 * MIB && number(&shrunk, "pool_bytes") > 0, "{shrunk}");
    assert!(String::from_utf8_lossy(&output(&["stat", &name]).stdout).contains("shrunk from 400.0 MiB"));
    // It works all the same, if slowly.
    ask(&launcher);
    assert!(anonymous(process) <= 10 * MIB);

    // A second time: to less, and then to what it has.
    assert_eq!(number(&done(&["shrink", &name, "--to", "3M"]), "budget_bytes"), 3 * MIB);
    assert_eq!(number(&done(&["shrink", &name, "--to", "3M"]), "shrunk_from_bytes"), 400 * MIB);
    let grown = done(&["grow", &name, "--fetch"]);

    assert_eq!((number(&grown, "budget_bytes"), number(&grown, "shrunk_from_bytes")), (400 * MIB, 0));
    assert!(
        number(&grown, "returned_bytes") > before - 16 * MIB && anonymous(process) > before - 16 * MIB,
        "{grown}"
    );
    let faults = figure(&name, "fetches");
    ask(&launcher);
    assert!(figure(&name, "fetches") - faults < 1000, "all was there");
    end(&launcher, running);
}

#[test]
fn by_parts_an_application_grows_to_what_it_had_and_no_further_without_a_size() {
    if !managed_runner() {
        return;
    }
    let name = unique("parts");
    let launcher = Launcher::managed(200 * MIB).option("--name").option(&name);
    let running = start(&launcher, NOTEBOOK);

    assert!(refusal(2, &output(&["grow", &name])).contains("was not shrunk"));
    assert!(
        refusal(2, &output(&["grow", &name, "--to", "100M"])).contains("200.0 MiB already, which is more")
    );
    assert!(
        refusal(2, &output(&["shrink", &name, "--to", "300M"])).contains("200.0 MiB already, which is less")
    );
    done(&["shrink", &name, "--to", "16M"]);
    let part = done(&["grow", &name, "--to", "40M"]);
    assert_eq!((number(&part, "budget_bytes"), number(&part, "shrunk_from_bytes")), (40 * MIB, 200 * MIB));
    assert_eq!(number(&done(&["grow", &name]), "budget_bytes"), 200 * MIB);
    let larger = done(&["grow", &name, "--to", "240M"]);
    assert_eq!((number(&larger, "budget_bytes"), number(&larger, "shrunk_from_bytes")), (240 * MIB, 0));
    // Whoever sets the budget while it is shrunk has the last word.
    done(&["shrink", &name]);
    assert!(set_limits(&name, &["local=100M"]).status.success());
    assert!(refusal(2, &output(&["grow", &name])).contains("was not shrunk"));
    assert_eq!(figure(&name, "budget_bytes"), 100 * MIB);
    ask(&launcher);
    end(&launcher, running);
}

#[test]
fn an_attached_program_is_shrunk_by_its_name_and_grows_by_its_number() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(64, 5, 0), unique("attached"));
    let number_of_it = resident.child.id().to_string();
    let process = u64::from(resident.child.id());
    attached(&name, "200M", &[&number_of_it]);

    done(&["shrink", &name, "--to", "24M"]);

    assert!(anonymous(process) <= 26 * MIB);
    done(&["grow", &number_of_it, "--fetch"]);
    assert!(anonymous(process) > 60 * MIB);
    done(&["shrink", &name]);
    detach(&name, &[resident.child.id()]);
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn a_full_pool_keeps_what_has_no_room_and_the_program_lives() {
    if !managed_runner() {
        return;
    }
    let name = unique("full");
    let launcher =
        ["--name", &name, "--pool", "16M"].into_iter().fold(Launcher::managed(200 * MIB), Launcher::option);
    let running = start(&launcher, NOISE);
    let process = number(&application(&name).expect("it runs"), "process");

    let failed = output(&["shrink", &name, "--to", "8M"]);

    let sentence = refusal(1, &failed);
    assert!(
        sentence.contains("is not within 8.0 MiB") && sentence.contains("its pool of 16.0 MiB is full"),
        "{sentence}"
    );
    // Without a size what can leave is what was asked for.
    let shrunk = done(&["shrink", &name]);
    assert!(shrunk["reason"].as_str().is_some_and(|reason| reason.contains("is full")), "{shrunk}");
    let left = anonymous(process);
    assert!(left > 40 * MIB && left <= number(&shrunk, "budget_bytes"), "{left}: {shrunk}");
    // Longer than a program with nowhere to go would live.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        assert!(application(&name).is_some(), "it was ended");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(set_limits(&name, &["pool=100M"]).status.success());
    assert_eq!(number(&done(&["shrink", &name, "--to", "8M"]), "budget_bytes"), 8 * MIB);
    done(&["grow", &name]);
    end(&launcher, running);
}

#[test]
fn time_that_is_too_short_is_told_and_what_was_begun_goes_on() {
    if !managed_runner() {
        return;
    }
    let name = unique("short");
    let launcher = Launcher::managed(600 * MIB).option("--name").option(&name);
    let source = NOTEBOOK.replace("150_000", "900_000");
    let running = start(&launcher, &source);

    let failed = output(&["shrink", &name, "--timeout", "100ms", "--json"]);

    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("is not within 4.0 MiB after 0 s") && said.lines().count() == 1, "{said}");
    assert_eq!(object(&failed)["is_done"], false);
    wait_for("the rest to leave", || (figure(&name, "resident_bytes") < 6 * MIB).then_some(()));
    let progress = output(&["grow", &name, "--fetch", "--progress"]);
    assert!(progress.status.success(), "{progress:?}");
    assert!(String::from_utf8_lossy(&progress.stderr).contains(&format!("{name}: local ")), "{progress:?}");
    end(&launcher, running);
}

#[test]
fn a_budget_that_follows_the_program_does_so_again_when_it_has_grown() {
    if !managed_runner() {
        return;
    }
    let name = unique("followed");
    let launcher = ["--name", &name, "--local", "auto:16M-300M"]
        .into_iter()
        .fold(Launcher::managed(300 * MIB), Launcher::option);
    let running = start(&launcher, NOTEBOOK);

    assert_eq!(number(&done(&["shrink", &name, "--to", "8M"]), "budget_bytes"), 8 * MIB);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(figure(&name, "budget_bytes"), 8 * MIB, "nothing raises it meanwhile");
    let grown = done(&["grow", &name]);
    let budget = number(&grown, "budget_bytes");
    assert!(budget >= 16 * MIB, "{grown}");
    wait_for("a budget that follows the program", || {
        ask(&launcher);
        (figure(&name, "budget_bytes") != budget).then_some(())
    });
    end(&launcher, running);
}

#[test]
fn a_shrunk_application_of_a_host_borrows_nothing_and_has_its_own_again() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "256M", "--local", "600M"]);
    let name = unique("guest");
    let launcher = host.launcher(&name, 200 * MIB);
    let running = start(&launcher, NOTEBOOK);

    assert_eq!(number(&done(&["shrink", &name, "--to", "8M"]), "budget_bytes"), 8 * MIB);
    ask(&launcher);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(figure(&name, "budget_bytes"), 8 * MIB, "the host has more, and it has missed all");
    done(&["grow", &name]);
    wait_for("its own", || (figure(&name, "local_bytes") == 200 * MIB).then_some(()));
    ask(&launcher);
    end(&launcher, running);
}

#[test]
fn what_can_not_be_shrunk_is_refused() {
    for words in [
        &["shrink"][..],
        &["shrink", "nobody-has-this-name"],
        &["grow", "nobody-has-this-name"],
        &["shrink", "nobody-has-this-name", "--to", "64K"],
        &["shrink", "nobody-has-this-name", "--to", "25%"],
        &["shrink", "nobody-has-this-name", "--timeout", "2h"],
        &["grow", "nobody-has-this-name", "--to", "much"],
        &["grow", "nobody-has-this-name", "--to", "999T"],
    ] {
        let _ = assert_refusal(2, &mut command(words));
    }
    let sentence = assert_refusal(2, &mut command(&["shrink", "nobody-has-this-name"]));
    assert!(sentence.contains("no application named nobody-has-this-name runs under Farmem"), "{sentence}");
}
