//! Several applications side by side, which lease from one broker.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use farmem_tests::{
    Host, Launcher, Node, Program, Running, Scratch, SplitMix, application, assert_nothing_is_left,
    assert_refusal, farmem_binary, is_large, managed_runner, memory_file_bytes, refusal, set_limits,
    wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const MEBIBYTE: u64 = 1 << 20;

/// Fills so many MiB, half of each page random, and creates `filled`. Then reads all of it again and again,
/// until there is a file `end`. With a file `more` it first fills as much again.
pub(crate) const FILLER: &str = "import mmap, os, sys, time\n\
    def fill(mib):\n\
    \x20   data = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    \x20   noise = os.urandom(2048)\n\
    \x20   for page in range(0, len(data), 4096): data[page:page + 2048] = noise; data[page:page + 8] = page.to_bytes(8, 'little')\n\
    \x20   return data\n\
    def good(data): return all(data[page:page + 8] == page.to_bytes(8, 'little') for page in range(0, len(data), 4096))\n\
    mib, pause = int(sys.argv[1]), float(sys.argv[2])\n\
    parts = [fill(mib)]\n\
    open('filled', 'w').close()\n\
    same = True\n\
    while not os.path.exists('end'):\n\
    \x20   if len(parts) < 2 and os.path.exists('more'): parts.append(fill(mib)); open('refilled', 'w').close()\n\
    \x20   time.sleep(pause)\n\
    \x20   if pause < 1: same &= all(good(part) for part in parts)\n\
    print('same' if same and all(good(part) for part in parts) else 'different')\n\
    open('ended', 'w').close()\n";

/// One that reads all the time.
fn filler(mebibytes: u64) -> Program {
    Program::new("python3").args(["-c", FILLER, &mebibytes.to_string(), "0.1"])
}

/// One that does nothing but wait, for up to a second at a time.
fn idler(mebibytes: u64) -> Program {
    Program::new("python3").args(["-c", FILLER, &mebibytes.to_string(), "1"])
}

fn create(launcher: &Launcher, name: &str) {
    std::fs::write(launcher.file(name), "").expect("a file can be written");
}

pub(crate) fn filled<'a>(launcher: &'a Launcher, program: Program) -> Running<'a> {
    let mut running = launcher.start(program);
    running.until("a program with all its memory", || launcher.file("filled").exists().then_some(()));
    running
}

pub(crate) fn end(launcher: &Launcher, running: Running<'_>) {
    create(launcher, "end");
    assert_eq!(running.wait().success().text(), "same\n");
}

/// A disk that is none: how fast one is, is no matter here.
fn with_disk(launcher: Launcher) -> Launcher {
    launcher.option("--disk").option("/dev/shm:256M")
}

pub(crate) fn name(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

pub(crate) fn figures(name: &str) -> Value {
    wait_for("the application's figures", || application(name))
}

pub(crate) fn number(name: &str, key: &str) -> u64 {
    let figures = figures(name);
    figures[key].as_u64().unwrap_or_else(|| panic!("{key} is in {figures}"))
}

pub(crate) fn standing(name: &str) -> String {
    figures(name)["host"].as_str().expect("a word").to_owned()
}

#[test]
fn one_that_holds_the_whole_pool_gives_another_what_it_was_guaranteed() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "80M"]);
    let (greedy, promised) = (name("greedy"), name("promised"));
    let first = with_disk(host.launcher(&greedy, 12 * MEBIBYTE));
    let running_first = filled(&first, filler(120));
    wait_for("a lease of the pool", || (number(&greedy, "pool_leased_bytes") > 60 * MEBIBYTE).then_some(()));

    let second = host.launcher(&promised, 12 * MEBIBYTE).option("--pool").option("50M-80M");
    let running_second = filled(&second, filler(60));
    wait_for("what was guaranteed", || {
        let (leased, held) = (number(&promised, "pool_leased_bytes"), number(&promised, "pool_bytes"));
        (leased >= 30 * MEBIBYTE && held > 22 * MEBIBYTE).then_some(())
    });
    wait_for("the rest with the first", || {
        (number(&greedy, "pool_bytes") + number(&promised, "pool_bytes") <= 80 * MEBIBYTE).then_some(())
    });
    assert!(number(&greedy, "disk_bytes") > 0);

    // What the second had comes back to the first, and with it what went to disk.
    let (on_disk, raised) = (number(&greedy, "disk_bytes"), number(&greedy, "raised_bytes"));
    end(&second, running_second);
    wait_for("a lease of all the pool again", || {
        (number(&greedy, "pool_leased_bytes") > 60 * MEBIBYTE).then_some(())
    });
    wait_for("content back in the pool", || {
        let is_back = number(&greedy, "raised_bytes") > raised && number(&greedy, "disk_bytes") < on_disk;
        is_back.then_some(())
    });
    end(&first, running_first);
}

/// Nobody's lease grows before the slabs it is made of have been given back to the kernel, which hands out
/// nothing but zeros. So all pools together never take more than there is, but for a little.
#[test]
fn slabs_that_are_taken_back_are_the_kernels_before_another_space_fills_them() {
    if !managed_runner() {
        return;
    }
    /// What each may have besides: tables, and slabs that its threads were claiming while they learned that
    /// they mustn't.
    const BESIDES: u64 = 4 * MEBIBYTE;
    const POOL: u64 = 80 * MEBIBYTE;
    let host = Host::start(&["--pool", "80M"]);
    let (giver, taker) = (name("giver"), name("taker"));
    let first = with_disk(host.launcher(&giver, 12 * MEBIBYTE));
    let running_first = filled(&first, idler(120));
    let taken = |supervisor| memory_file_bytes(supervisor, "farmem-pool").unwrap_or(0);
    let giver = running_first.process_id();
    assert!(taken(giver) > POOL / 2);

    let second = host.launcher(&taker, 12 * MEBIBYTE).option("--pool").option("60M-80M");
    let mut running_second = second.start(filler(90));
    let taker = running_second.process_id();
    running_second.until("a program with all its memory", || {
        // What grows is looked at first: together it was no less at the second look.
        let (new, old) = (taken(taker), taken(giver));
        assert!(old + new <= POOL + 2 * BESIDES, "{old} and {new}");
        second.file("filled").exists().then_some(())
    });
    assert!(taken(taker) > POOL / 3);
    end(&second, running_second);
    end(&first, running_first);
}

#[test]
fn a_guarantee_that_is_changed_while_both_run_takes_slabs_back_and_lets_them_go() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "80M"]);
    let names = [name("changed"), name("bystander")];
    let launchers = [0, 1].map(|at: usize| with_disk(host.launcher(&names[at], 12 * MEBIBYTE)));
    let running = [0, 1].map(|at: usize| filled(&launchers[at], filler(100)));
    let leased = |at: usize| number(&names[at], "pool_leased_bytes");
    wait_for("equal shares", || (leased(0).abs_diff(leased(1)) < 8 * MEBIBYTE).then_some(()));

    assert!(set_limits(&names[0], &["pool=60M-80M"]).status.success());
    wait_for("what is guaranteed now", || (leased(0) >= 60 * MEBIBYTE).then_some(()));
    wait_for("the other one's slabs", || (number(&names[1], "pool_bytes") <= 20 * MEBIBYTE).then_some(()));
    assert!(set_limits(&names[0], &["pool=2M-80M"]).status.success());
    wait_for("equal shares again", || (leased(1) > 30 * MEBIBYTE).then_some(()));
    for (launcher, running) in launchers.iter().zip(running) {
        end(launcher, running);
    }
}

#[test]
fn what_nobody_could_guarantee_is_refused_before_anything_starts() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "64M", "--local", "100M"]);
    let refused = |socket: &Path, options: &[&str]| {
        let mut command = Command::new(farmem_binary());
        command.args(["run", "--host"]).arg(socket).args(options).args(["--", "touch", "started"]);
        assert_refusal(2, &mut command)
    };
    assert!(refused(&host.socket(), &["--local", "20M", "--pool", "65M-80M"]).contains("64 MiB"));
    assert!(refused(&host.socket(), &["--local", "101M"]).contains("100 MiB"));
    assert!(refused(Path::new("/nowhere/host.socket"), &[]).contains("no broker listens"));
}

#[test]
fn spaces_go_on_without_a_broker_and_come_to_the_next_one() {
    if !managed_runner() {
        return;
    }
    let mut host = Host::start(&["--pool", "100M"]);
    let (old, new) = (name("old"), name("new"));
    let first = with_disk(host.launcher(&old, 12 * MEBIBYTE));
    let running_first = filled(&first, filler(60));

    host.kill();
    wait_for("news of the broker's end", || (standing(&old) == "lost").then_some(()));
    let leased = number(&old, "pool_leased_bytes");
    create(&first, "more");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(1);
    while std::time::Instant::now() < deadline {
        assert_eq!(standing(&old), "lost");
        assert_eq!(number(&old, "pool_leased_bytes"), leased, "what it held it holds");
    }
    assert!(leased >= 20 * MEBIBYTE, "{leased}");
    host.restart();
    wait_for("the broker's next", || (standing(&old) == "attached").then_some(()));

    let second = with_disk(host.launcher(&new, 12 * MEBIBYTE));
    let running_second = filled(&second, filler(60));
    wait_for("the program's second part", || first.file("refilled").exists().then_some(()));
    wait_for("no more in pools than there is", || {
        (number(&old, "pool_bytes") + number(&new, "pool_bytes") <= 100 * MEBIBYTE).then_some(())
    });
    end(&first, running_first);
    end(&second, running_second);
    assert!(!host.said().contains("dropped"), "{}", host.said());
}

#[test]
fn a_space_that_is_killed_while_it_swaps_leaves_its_slabs_to_the_others() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "80M"]);
    let (killed, heir) = (name("killed"), name("heir"));
    let first = host.launcher(&killed, 12 * MEBIBYTE).option("--pool").option("70M-80M");
    let mut running_first = first.start(filler(110));
    running_first.until("a program that swaps", || {
        application(&killed)
            .and_then(|figures| (figures["pool_bytes"].as_u64()? > 20 * MEBIBYTE).then_some(()))
    });
    let program = running_first.program_process_id().expect("the program runs");
    let holders = [program, running_first.process_id()];
    let program = Pid::from_raw(i32::try_from(program).expect("a process number")).expect("a process number");
    kill_process(program, Signal::KILL).expect("own process");
    running_first.wait();
    // Nobody else ever had the file that its pages lay in: with them it is gone, and the kernel clears what
    // it gives to others.
    for process in holders {
        assert_eq!(memory_file_bytes(process, "farmem-pool"), None);
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }

    let second = host.launcher(&heir, 12 * MEBIBYTE).option("--pool").option("70M-80M");
    let running_second = filled(&second, filler(100));
    assert!(number(&heir, "pool_leased_bytes") > 40 * MEBIBYTE);
    end(&second, running_second);
}

/// What its supervisor was leased is free as soon as the kernel has closed its connection.
#[test]
fn a_space_whose_supervisor_is_killed_leaves_its_slabs_to_the_others() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "80M"]);
    let (killed, heir) = (name("orphan"), name("successor"));
    let first = host.launcher(&killed, 12 * MEBIBYTE).option("--pool").option("70M-80M");
    let running_first = filled(&first, filler(60));
    let second = host.launcher(&heir, 12 * MEBIBYTE).option("--pool").option("70M-80M");
    assert!(number(&killed, "pool_guaranteed_bytes") == 70 * MEBIBYTE);
    let supervisor = i32::try_from(running_first.process_id()).ok().and_then(Pid::from_raw);
    kill_process(supervisor.expect("a process number"), Signal::KILL).expect("own process");
    running_first.wait();

    let running_second = filled(&second, filler(100));
    assert!(number(&heir, "pool_leased_bytes") > 40 * MEBIBYTE);
    end(&second, running_second);
    assert!(!host.said().contains("dropped"), "{}", host.said());
    // The program pages by itself, and goes on.
    create(&first, "end");
    wait_for("the end of what was left", || first.file("ended").exists().then_some(()));
}

/// What it has filled it could never give back, so it gets nothing of what somebody else may still call on.
#[test]
fn one_without_a_disk_gets_nothing_of_what_another_was_guaranteed() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "80M"]);
    let (promised, firm) = (name("later"), name("firm"));
    let first = host.launcher(&promised, 12 * MEBIBYTE).option("--pool").option("40M-80M");
    let running_first = filled(&first, filler(25));
    let second = host.launcher(&firm, 12 * MEBIBYTE);
    let running_second = filled(&second, filler(50));
    assert!(number(&firm, "pool_leased_bytes") <= 40 * MEBIBYTE);

    create(&first, "more");
    wait_for("the program's second part", || first.file("refilled").exists().then_some(()));
    assert!(number(&promised, "pool_leased_bytes") >= number(&promised, "pool_bytes"));
    assert!(number(&firm, "pool_leased_bytes") <= 40 * MEBIBYTE);
    end(&second, running_second);
    end(&first, running_first);
}

/// A program that runs as the broker's own user can reach its socket. It says garbage, and lies about what it
/// holds.
#[test]
fn a_program_that_talks_nonsense_to_the_broker_is_dropped_and_nobody_else() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "80M"]);
    let (good, bad) = (name("honest"), name("liar"));
    let first = host.launcher(&good, 12 * MEBIBYTE);
    let running_first = filled(&first, filler(40));
    // Packets as `docs/formats/host.md` has them.
    let source = "import os, socket, struct, sys\n\
                  def link():\n\
                  \x20   to = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                  \x20   to.connect(sys.argv[1])\n\
                  \x20   to.settimeout(60)\n\
                  \x20   return to\n\
                  def packet(kind, *arguments): return struct.pack('<II15Q', kind, 3, *arguments, *[0] * (15 - len(arguments)))\n\
                  def is_dropped(to, packets):\n\
                  \x20   try:\n\
                  \x20       for each in packets: to.send(each)\n\
                  \x20       while to.recv(200): pass\n\
                  \x20   except (BrokenPipeError, ConnectionResetError): pass\n\
                  \x20   return True\n\
                  attach = packet(1, 1, 0, 1000, 100, 0, 0, 0, int.from_bytes(b'liar', 'little'))\n\
                  greedy = packet(3, 0, 9, 1 << 20, 5, 5, 1 << 20)\n\
                  early = packet(3, 99, 9)\n\
                  for packets in [[os.urandom(128)], [b'x'], [early], [attach, attach], [attach, early], [attach, greedy], [attach, os.urandom(128)]]:\n\
                  \x20   assert is_dropped(link(), packets)\n\
                  print('dropped')\n";
    let second = host.launcher(&bad, 12 * MEBIBYTE);
    let socket = host.socket();
    let program = Program::new("python3").args(["-c".into(), source.into(), socket.into_os_string()]);
    assert_eq!(second.run(program).success().text(), "dropped\n");

    let said = host.said();
    for reason in ["invalid message", "no place", "never given", "may hold"] {
        assert!(said.contains(reason), "{reason} is in {said}");
    }
    assert_eq!(standing(&good), "attached");
    end(&first, running_first);
}

/// The program writes garbage all over what it shares with its supervisor. It may end as it likes; nobody
/// else notices.
#[test]
fn a_space_that_writes_garbage_into_its_own_pool_harms_itself_alone() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "100M"]);
    let (bad, good) = (name("bad"), name("good"));
    let first = host.launcher(&good, 12 * MEBIBYTE);
    let running_first = filled(&first, filler(50));
    let second = host.launcher(&bad, 12 * MEBIBYTE);
    let source = "import ctypes, mmap, os, time\n\
                  data = mmap.mmap(-1, 40 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  for page in range(0, len(data), 4096): data[page:page + 99] = os.urandom(99)\n\
                  for line in open('/proc/self/maps').readlines():\n\
                  \x20   if '/memfd:farmem' in line:\n\
                  \x20       start, end = (int(word, 16) for word in line.split()[0].split('-'))\n\
                  \x20       ctypes.memset(start, 0xff, min(end - start, 8 << 20))\n\
                  time.sleep(1)\n\
                  print(sum(data[page] for page in range(0, len(data), 4096)))\n";
    second.start(Program::new("python3").args(["-c", source])).wait();

    assert_eq!(standing(&good), "attached");
    create(&first, "more");
    wait_for("the program's second part", || first.file("refilled").exists().then_some(()));
    end(&first, running_first);
}

#[test]
fn local_memory_that_is_not_used_is_lent_and_given_back() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "200M"]);
    let (owner, borrower, alone) = (name("owner"), name("borrower"), name("alone"));
    let first = host.launcher(&owner, 100 * MEBIBYTE);
    let running_first = filled(&first, idler(30));
    let second = host.launcher(&borrower, 16 * MEBIBYTE);
    let running_second = filled(&second, filler(60));
    let third = host.launcher(&alone, 16 * MEBIBYTE).option("--no-borrow");
    let running_third = filled(&third, filler(30));
    wait_for("the loan", || (number(&borrower, "resident_bytes") > 40 * MEBIBYTE).then_some(()));
    assert_eq!(number(&alone, "budget_bytes"), 16 * MEBIBYTE);
    assert!(number(&owner, "budget_bytes") < 90 * MEBIBYTE);
    let budgets = || [&owner, &borrower, &alone].iter().map(|name| number(name, "budget_bytes")).sum::<u64>();
    assert!(budgets() <= 132 * MEBIBYTE, "more than all of them own");

    create(&first, "more");
    wait_for("the owner's second part", || first.file("refilled").exists().then_some(()));
    create(&first, "end");
    let is_back = || {
        let borrowed = application(&borrower).expect("the borrower runs")["budget_bytes"].as_u64()?;
        (borrowed < 60 * MEBIBYTE).then_some(())
    };
    wait_for("the loan's end", is_back);
    assert_eq!(running_first.wait().success().text(), "same\n");
    end(&second, running_second);
    end(&third, running_third);
}

#[test]
fn the_heavier_of_two_gets_more_of_a_pool_that_is_short() {
    if !managed_runner() {
        return;
    }
    let host = Host::start(&["--pool", "64M"]);
    let names = [name("heavy"), name("light")];
    let launchers = [0, 1].map(|at: usize| with_disk(host.launcher(&names[at], 12 * MEBIBYTE)));
    let running = [0, 1].map(|at: usize| filled(&launchers[at], filler(100)));
    assert!(set_limits(&names[0], &["weight=3"]).status.success());
    assert_eq!(number(&names[0], "weight"), 3);
    wait_for("shares by weight", || {
        let [heavy, light] = [0, 1].map(|at: usize| number(&names[at], "pool_leased_bytes"));
        (heavy > 2 * light && heavy + light <= 64 * MEBIBYTE).then_some(())
    });
    // A guarantee that can't be kept.
    let _ = refusal(2, &set_limits(&names[0], &["local=12M", "pool=80M-90M"]));
    for (launcher, running) in launchers.iter().zip(running) {
        end(launcher, running);
    }
}

/// Ends programs, all at the same time, some of them by a kill.
fn finish(leaving: Vec<(&Launcher, Running<'_>, bool)>) {
    for (launcher, running, is_killed) in &leaving {
        let pid = running.program_process_id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let (true, Some(pid)) = (is_killed, pid) {
            // It may have ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
        // One to be killed may not have begun yet: then it is told to end.
        create(launcher, "end");
    }
    for (_, running, is_killed) in leaving {
        let finished = running.wait();
        if !is_killed {
            assert_eq!(finished.success().text(), "same\n");
        }
    }
}

/// Spaces come and go, some of them killed, under a pool that is too small for all of them; nobody's bytes
/// are wrong.
#[test]
fn spaces_that_come_and_go_at_random_leave_nothing_behind() {
    if !managed_runner() {
        return;
    }
    // Each is promised 2 MiB of the pool.
    let (pool, at_a_time, rounds) = if is_large() { ("160M", 64, 128) } else { ("96M", 4, 12) };
    // More that work all the time would be a test of the machine's processors.
    let working = 4;
    let host = Host::start(&["--pool", pool]);
    let mut random = SplitMix::new(0xb20c);
    let launchers: Vec<Launcher> = (0..rounds)
        .map(|round| with_disk(host.launcher(&name(&format!("one-of-many-{round}")), 8 * MEBIBYTE)))
        .collect();
    let mut running: Vec<(&Launcher, Running<'_>, bool)> = Vec::new();
    for (round, launcher) in launchers.iter().enumerate() {
        if running.len() == at_a_time {
            let leaving = (0..at_a_time / 4)
                .map(|_| running.swap_remove(random.below(running.len() as u64) as usize))
                .collect();
            finish(leaving);
        }
        let mebibytes = 10 + random.below(14);
        let program = if round % at_a_time < working { filler(mebibytes) } else { idler(mebibytes) };
        running.push((launcher, launcher.start(program), random.below(4) == 0));
    }
    finish(running);
    assert!(!host.said().contains("dropped"), "{}", host.said());
    drop(host);
    assert_nothing_is_left();
}

#[test]
fn a_broker_in_a_container_of_its_own_leases_to_programs_outside_of_it() {
    if !managed_runner() {
        return;
    }
    let host = Host::start_apart(&["--pool", "64M"]);
    let name = name("outside");
    let launcher = host.launcher(&name, 8 * MEBIBYTE);
    let running = filled(&launcher, Program::new("python3").args(["-c", FILLER, "32", "0"]));
    assert_eq!(standing(&name), "attached");
    assert!(number(&name, "pool_leased_bytes") > 0, "{}", host.said());
    end(&launcher, running);
}

/// A program that has begun; what its run says of nodes in its figures.
fn nodes_of(launcher: &Launcher, name: &str) -> (u64, String) {
    let running = launcher.start(Program::new("sleep").args(["1000"]));
    let figures = figures(name);
    let nodes = figures["nodes"].as_u64().unwrap_or(0);
    let redundancy = figures["redundancy"].as_str().unwrap_or_default().to_owned();
    drop(running);
    (nodes, redundancy)
}

#[test]
fn programs_use_the_nodes_that_their_host_names_if_they_are_not_told_otherwise() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let key = scratch.file("node.key");
    let made = Command::new(farmem_binary()).args(["node", "keygen"]).arg(&key).status();
    assert!(made.expect("farmem can be started").success());
    let with_key = [OsStr::new("--key"), key.as_os_str()];
    let mut nodes = [Node::start_with("16M", &with_key), Node::start_with("16M", &with_key)];
    let other = Node::start("16M");
    let config = scratch.file("host.toml");
    let [one, two] = nodes.each_ref().map(|node| format!("{:?}", node.address()));
    let text =
        format!("pool = \"64M\"\n[nodes]\nnode = [{one}, {two}]\nkey = {key:?}\nredundancy = \"mirror\"\n");
    std::fs::write(&config, text).expect("the test's own folder");
    let host = Host::start(&["--config", config.to_str().expect("own name")]);
    let with = |of: &str, options: &[&str]| {
        let (launcher, name) = (host.launcher(&name(of), 32 * MEBIBYTE), name(of));
        let launcher = options.iter().fold(launcher, |launcher, option| launcher.option(*option));
        nodes_of(&launcher, &name)
    };

    let of = |nodes, redundancy: &str| (nodes, redundancy.to_owned());
    assert_eq!(with("as-the-host-says", &[]), of(2, "mirror"));
    assert_eq!(with("another-redundancy", &["--redundancy", "none"]), of(2, "none"));
    assert_eq!(with("none", &["--node", "none"]).0, 0);
    // Neither the key nor the redundancy is for a node that the host doesn't name.
    assert_eq!(with("its-own", &["--node", other.address()]), of(1, "none"));

    let refused = |options: &[&str]| {
        let mut command = Command::new(farmem_binary());
        command.args(["run", "--host"]).arg(host.socket()).args(options).args(["--", "true"]);
        assert_refusal(2, &mut command)
    };
    let named = "`--node none` does without";
    let stranger = scratch.file("other.key");
    let made = Command::new(farmem_binary()).args(["node", "keygen"]).arg(&stranger).status();
    assert!(made.expect("farmem can be started").success());
    let said = refused(&["--key", stranger.to_str().expect("own name")]);
    assert!(said.contains("it has another key") && said.contains(named), "{said}");
    let said = refused(&["--redundancy", "4+2"]);
    assert!(said.contains("needs 6 nodes") && said.contains(named), "{said}");
    nodes.iter_mut().for_each(Node::kill);
    let said = refused(&[]);
    assert!(said.contains("cannot use node") && said.contains(named), "{said}");
    std::fs::remove_file(&key).expect("own file");
    let said = refused(&[]);
    assert!(said.contains("node.key: No such file") && said.contains(named), "{said}");
}

#[test]
fn nodes_of_another_users_broker_are_refused() {
    const NOBODY: u32 = 65534;
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let socket = scratch.file("host.socket");
    let host = |options: &[&str]| {
        let mut command = Command::new(farmem_binary());
        command.args(["host", "--pool", "64M", "--socket"]).arg(&socket).args(options);
        let mut broker =
            command.uid(NOBODY).gid(NOBODY).stderr(Stdio::null()).spawn().expect("farmem can be started");
        wait_for("a broker that listens", || {
            assert!(broker.try_wait().expect("own child").is_none(), "the broker has ended");
            socket.exists().then_some(())
        });
        broker
    };
    let run = || {
        let mut command = Command::new(farmem_binary());
        command.args(["run", "--local", "32M", "--host"]).arg(&socket);
        command
    };
    let end = |mut broker: Child| {
        broker.kill().expect("own child");
        broker.wait().expect("own child");
        std::fs::remove_file(&socket).expect("root may");
    };

    let broker = host(&["--node", "unix:/nowhere/node.socket"]);
    let said = assert_refusal(2, run().args(["--", "true"]));
    assert!(said.contains("another user's, and names memory nodes"), "{said}");
    assert!(run().args(["--node", "none", "--", "true"]).status().expect("farmem can be started").success());
    end(broker);
    // One that names none may lease all the same.
    let broker = host(&[]);
    assert!(run().args(["--", "true"]).status().expect("farmem can be started").success());
    end(broker);
}
