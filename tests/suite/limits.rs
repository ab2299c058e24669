//! Limits that are changed while a program runs.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use farmem_tests::{
    Launcher, Program, RedisClient, Running, application, farmem_binary, managed_runner, refusal, set_limits,
    wait_for,
};
use serde_json::Value;

use crate::redis::{connect, load, server, verify};

const MEBIBYTE: u64 = 1 << 20;
const KEYS: u64 = 30_000;
/// A user who owns nothing.
const NOBODY: u32 = 65534;

fn figures(name: &str) -> Value {
    application(name).expect("the application runs")
}

fn number(figures: &Value, key: &str) -> u64 {
    figures[key].as_u64().unwrap_or_else(|| panic!("{key} is in {figures}"))
}

fn assert_set(name: &str, limits: &[&str]) {
    let output = set_limits(name, limits);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A Redis with about four times its budget, every key of version 1.
fn starved<'a>(launcher: &'a Launcher) -> (Running<'a>, RedisClient) {
    let mut running = launcher.start(server("none"));
    let mut client = connect(&mut running, &launcher.file("redis.socket"));
    load(&mut client, 0..KEYS, 1);
    (running, client)
}

fn name(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

#[test]
fn a_starved_server_gets_its_pages_back_and_gives_them_up_again() {
    if !managed_runner() {
        return;
    }
    let name = name("starved");
    let launcher = Launcher::managed(20 * MEBIBYTE).option("--name").option(&name);
    let (running, mut client) = starved(&launcher);
    let far_pages = number(&figures(&name), "far_pages");
    assert!(far_pages > 5000, "the server has room enough: {far_pages}");

    assert_set(&name, &["local=512M"]);
    wait_for("the return of the server's pages", || {
        (number(&figures(&name), "far_pages") < far_pages / 50).then_some(())
    });
    let before = figures(&name);
    assert!(number(&before, "swapped_in") > far_pages / 2, "pages came back on demand: {before}");
    verify(&mut client, 0..KEYS, |_| 1);
    let fetched = number(&figures(&name), "fetches") - number(&before, "fetches");
    assert!(fetched < far_pages / 50, "{fetched} pages had to be waited for");

    assert_set(&name, &["local=20M"]);
    wait_for("the new budget", || (number(&figures(&name), "resident_bytes") < 24 * MEBIBYTE).then_some(()));
    load(&mut client, 0..KEYS / 2, 2);
    verify(&mut client, 0..KEYS, |number| if number < KEYS / 2 { 2 } else { 1 });
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}

/// The program frees memory and touches none: what it has left comes back by itself.
#[test]
fn pages_come_back_when_the_program_frees_memory() {
    if !managed_runner() {
        return;
    }
    let name = name("freeing");
    let launcher = Launcher::managed(48 * MEBIBYTE).option("--name").option(&name);
    // Slowly, so that the pager is there before there is too much: what was written first is to leave first,
    // also on a machine that is busy.
    let source = "import mmap, os, time\n\
                  kept = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  for page in range(0, len(kept), 4096): kept[page:page + 8] = page.to_bytes(8, 'little')\n\
                  freed = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  for page in range(0, len(freed), 4096):\n\
                  \x20   freed[page] = 1\n\
                  \x20   if page % (1 << 20) == 0: time.sleep(0.01)\n\
                  freed.close()\n\
                  open('freed', 'w').close()\n\
                  while not os.path.exists('go'): time.sleep(0.01)\n\
                  assert all(kept[page:page + 8] == page.to_bytes(8, 'little') for page in range(0, len(kept), 4096))\n\
                  print('same')\n";
    let mut running = launcher.start(Program::new("python3").args(["-c", source]));
    running.until("the moment at which memory is free", || launcher.file("freed").exists().then_some(()));
    let far_pages = wait_for("figures", || application(&name).map(|figures| number(&figures, "far_pages")));
    wait_for("the return of the program's pages", || {
        let figures = figures(&name);
        (number(&figures, "swapped_in") > 1000 && number(&figures, "far_pages") < far_pages.max(1000) / 2)
            .then_some(())
    });
    std::fs::write(launcher.file("go"), "").expect("a file can be written");
    assert_eq!(running.wait().success().text(), "same\n");
}

#[test]
fn a_pool_takes_more_once_its_limit_is_raised_and_never_shrinks_below_what_it_holds() {
    if !managed_runner() {
        return;
    }
    let name = name("pool");
    let launcher =
        Launcher::managed(20 * MEBIBYTE).option("--name").option(&name).option("--pool").option("400M");
    let launcher = launcher.option("--partition").option("300M");
    let (running, mut client) = starved(&launcher);
    let said = refusal(2, &set_limits(&name, &["local=64M", "pool=4M"]));
    assert!(said.contains("its pool holds"), "{said}");
    let said = refusal(2, &set_limits(&name, &["local=64M", "partition=4M"]));
    assert!(said.contains("its pool, nodes and disk hold"), "{said}");
    let after = figures(&name);
    assert_eq!(number(&after, "budget_bytes"), 20 * MEBIBYTE, "half of what was asked was done");
    assert_eq!(number(&after, "pool_limit_bytes"), 400 * MEBIBYTE);
    assert_eq!(number(&after, "partition_bytes"), 300 * MEBIBYTE);

    assert_set(&name, &["pool=600M", "partition=500M"]);
    let after = figures(&name);
    assert_eq!(number(&after, "pool_limit_bytes"), 600 * MEBIBYTE);
    assert_eq!(number(&after, "partition_bytes"), 500 * MEBIBYTE);
    let said = refusal(2, &set_limits(&name, &["pool=1000T"]));
    assert!(said.contains("at most"), "{said}");
    verify(&mut client, 0..KEYS, |_| 1);
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}

/// A walk over all memory, again and again: most of it would come before it is asked for.
#[test]
fn without_a_swap_cache_nothing_is_fetched_ahead_and_with_one_it_is() {
    if !managed_runner() {
        return;
    }
    let name = name("cache");
    let launcher = ["--name", &name, "--cache", "0"]
        .into_iter()
        .fold(Launcher::managed(16 * MEBIBYTE), Launcher::option);
    let source = "import mmap, os\n\
                  data = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  for page in range(0, len(data), 4096): data[page:page + 8] = (page + 1).to_bytes(8, 'little')\n\
                  walks, same = 0, True\n\
                  while not os.path.exists('end'):\n\
                  \x20   same &= all(data[page:page + 8] == (page + 1).to_bytes(8, 'little') for page in range(0, len(data), 4096))\n\
                  \x20   walks += 1\n\
                  \x20   if walks == 2: open('walked', 'w').close()\n\
                  print('same' if same else 'different')\n";
    let mut running = launcher.start(Program::new("python3").args(["-c", source]));
    running.until("two walks", || launcher.file("walked").exists().then_some(()));
    let before = figures(&name);
    assert_eq!((number(&before, "cache_limit_bytes"), number(&before, "prefetched")), (0, 0));
    assert!(number(&before, "fetches") > 10_000);

    assert_set(&name, &["cache=32M"]);
    wait_for("pages that come ahead", || {
        let figures = figures(&name);
        let held = number(&figures, "cache_bytes");
        assert!(held <= 16 * MEBIBYTE / 4, "{held} bytes are more than a quarter of the budget");
        (held > 0 && number(&figures, "prefetched") > 10_000).then_some(())
    });
    assert_set(&name, &["cache=0"]);
    wait_for("pages that come ahead no more", || {
        let prefetched = || number(&figures(&name), "prefetched");
        let (before, fetched) = (prefetched(), number(&figures(&name), "fetches"));
        wait_for("pages on demand", || (number(&figures(&name), "fetches") > fetched + 1000).then_some(()));
        (prefetched() == before).then_some(())
    });
    assert_eq!(number(&figures(&name), "cache_bytes"), 0);
    std::fs::write(launcher.file("end"), "").expect("a file can be written");
    assert_eq!(running.wait().success().text(), "same\n");
}

/// The program does nothing: what is on disk comes back by itself.
#[test]
fn a_pool_that_is_given_room_takes_back_what_nobody_reads_from_disk() {
    if !managed_runner() {
        return;
    }
    let name = name("unread");
    let launcher = ["--name", &name, "--pool", "16M", "--disk", "/dev/shm:256M"]
        .into_iter()
        .fold(Launcher::managed(12 * MEBIBYTE), Launcher::option);
    let source = "import mmap, os, time\n\
                  data = mmap.mmap(-1, 80 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  noise = os.urandom(2048)\n\
                  for page in range(0, len(data), 4096): data[page:page + 2048] = noise; data[page:page + 8] = page.to_bytes(8, 'little')\n\
                  open('filled', 'w').close()\n\
                  while not os.path.exists('go'): time.sleep(0.1)\n\
                  assert all(data[page:page + 8] == page.to_bytes(8, 'little') for page in range(0, len(data), 4096))\n\
                  print('same')\n";
    let mut running = launcher.start(Program::new("python3").args(["-c", source]));
    running.until("a program with all its memory", || launcher.file("filled").exists().then_some(()));
    assert!(number(&figures(&name), "disk_bytes") > 8 * MEBIBYTE);

    assert_set(&name, &["pool=200M"]);
    wait_for("an empty disk", || (number(&figures(&name), "disk_bytes") == 0).then_some(()));
    let raised = number(&figures(&name), "raised_bytes");
    assert!(raised > 8 * MEBIBYTE);
    std::fs::write(launcher.file("go"), "").expect("a file can be written");
    let finished = running.wait().success();
    assert_eq!(finished.text(), "same\n");
    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");
    assert!(
        statistics.number("raised_bytes") >= raised as f64,
        "what came back after most was stored is counted"
    );
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    if !managed_runner() {
        return;
    }
    let name = name("sense");
    let launcher = Launcher::managed(20 * MEBIBYTE).option("--name").option(&name);
    let mut running = launcher.start(server("none"));
    let client = connect(&mut running, &launcher.file("redis.socket"));
    for limits in [
        &["local"][..],
        &["local=much"],
        &["local=auto"],
        &["speed=9"],
        &["local=64M", "local=32M"],
        &["local=64K"],
        &["partition=64K"],
        &["partition=20M", "partition=30M"],
        &[],
    ] {
        let _ = refusal(2, &set_limits(&name, limits));
    }
    assert!(refusal(2, &set_limits("nobody-has-this-name", &["local=64M"])).contains("no application named"));

    // The tests' directory may be closed to others, their own copy is not.
    let copy = std::env::temp_dir().join(format!("farmem-{name}"));
    std::fs::copy(farmem_binary(), &copy).expect("farmem can be copied");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("own file");
    let stranger = Command::new(&copy)
        .args(["set", &name, "local=64M"])
        .uid(NOBODY)
        .current_dir("/")
        .stdin(Stdio::null())
        .output();
    std::fs::remove_file(&copy).expect("own file");
    assert!(refusal(2, &stranger.expect("farmem can be started")).contains("another user"));
    assert_eq!(number(&figures(&name), "budget_bytes"), 20 * MEBIBYTE);
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}

/// 24 MiB in use all the time next to 72 MiB that were used once; then all of it is used.
#[test]
fn a_budget_that_follows_the_program_falls_to_what_it_uses_and_rises_again() {
    if !managed_runner() {
        return;
    }
    let name = name("following");
    let launcher = ["--name", &name, "--local", "auto:8M-400M", "--stall", "5%"]
        .into_iter()
        .fold(Launcher::managed(400 * MEBIBYTE), Launcher::option);
    let source = "import mmap, os\n\
                  data = mmap.mmap(-1, 96 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  for page in range(0, len(data), 4096): data[page:page + 8] = page.to_bytes(8, 'little')\n\
                  def use(length): return all(data[page:page + 8] == page.to_bytes(8, 'little') for page in range(0, length, 4096))\n\
                  good = True\n\
                  open('filled', 'w').close()\n\
                  while not os.path.exists('more'): good &= use(24 << 20)\n\
                  while not os.path.exists('end'): good &= use(96 << 20)\n\
                  print('same' if good else 'different')\n";
    let mut running = launcher.start(Program::new("python3").args(["-c", source]));
    running.until("a program with all its memory", || launcher.file("filled").exists().then_some(()));
    let budget_until = |what: &str, is_enough: fn(u64) -> bool| {
        wait_for(what, || is_enough(number(&figures(&name), "budget_bytes")).then_some(()));
    };
    budget_until("a budget of what is in use", |bytes| bytes < 64 * MEBIBYTE);
    std::fs::write(launcher.file("more"), "").expect("a file can be written");
    budget_until("a budget of what is in use now", |bytes| bytes > 80 * MEBIBYTE);

    assert_set(&name, &["local=40M"]);
    std::fs::write(launcher.file("end"), "").expect("a file can be written");
    assert_eq!(running.wait().success().text(), "same\n");
}

#[test]
fn a_screen_shows_each_application_with_its_rates() {
    if !managed_runner() {
        return;
    }
    let name = name("shown");
    let launcher = Launcher::managed(20 * MEBIBYTE).option("--name").option(&name);
    let (running, mut client) = starved(&launcher);

    let screen = wait_for("the screen with the application's faults", || {
        verify(&mut client, 0..KEYS / 10, |_| 1);
        let output = Command::new(farmem_binary())
            .args(["top", "--once", "--interval", "200ms"])
            .stdin(Stdio::null())
            .output()
            .expect("farmem can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let screen = String::from_utf8(output.stdout).expect("text");
        screen.contains(&name).then_some(screen)
    });

    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("20.0M"), "{screen}");
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}
