//! A program must not notice that it is managed: whoever it is, whatever limits it has, and whoever has
//! started it. Most are checks of `programs/unaware`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use farmem_tests::{Finished, Launcher, Program, Scratch, managed_runner};

use crate::caller::{farmem, farmem_with, said};
use crate::far_redis::{number, unique};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 12 * MIB;
/// What a program says that runs without a pager.
const UNMANAGED: &str = "runs without Farmem: ";

fn launcher() -> Launcher {
    Launcher::managed(BUDGET).option("--host").option("none").option("--pool").option("1G")
}

fn unaware(check: &str) -> Program {
    Program::new(env!("PROGRAM_UNAWARE")).arg(check)
}

/// Runs a program, which must find nothing wrong, and of which nothing is said that it hasn't said itself.
fn check(program: Program) -> Finished {
    let finished = launcher().run(program).success();
    assert!(finished.text().ends_with(": 0 wrong\n"), "{}", finished.text());
    finished
}

fn assert_managed(finished: &Finished) {
    assert_eq!(String::from_utf8_lossy(&finished.stderr), "");
    assert!(number(finished, "evicted") > 0.0, "it was managed");
}

macro_rules! managed {
    ($($name:ident: $check:literal,)*) => {
        $(#[test] fn $name() { if managed_runner() { assert_managed(&check(unaware($check))); } })*
    };
}

managed! {
    a_program_that_may_gain_no_privileges_is_managed: "no_new_privileges",
    a_filter_that_tells_of_calls_tells_of_none_of_a_pagers: "trapped_calls",
    a_worker_of_a_program_in_the_filter_of_a_container_is_managed: "refused_calls",
    a_worker_of_a_program_that_has_given_root_up_is_managed: "gives_root_up_and_forks",
    a_worker_of_a_program_that_gives_root_up_beside_its_pager_is_managed: "gives_root_up_when_attached",
    a_worker_of_a_program_that_is_not_to_be_read_is_managed: "is_not_to_be_read",
    every_thread_of_which_the_kernel_tells_answers_signals: "every_thread_answers",
    the_c_library_makes_all_threads_another_users: "all_threads_become_another_user",
    a_pager_comes_when_the_first_thread_has_ended: "first_thread_has_ended",
    what_a_program_forks_that_its_pager_has_met_as_another_one_has_one_pager: "becomes_others_that_fork",
    mappings_that_grow_downwards_stay_right: "mappings_that_grow_downwards",
    a_main_stack_far_deeper_than_the_budget_stays_right: "a_deep_main_stack_that_is_idle",
    faults_on_a_runtimes_own_guards_are_the_programs_own: "guards_on_memory_that_is_far",
    a_program_that_has_all_the_descriptors_it_may_have_is_managed: "all_descriptors",
    a_worker_of_a_program_that_may_have_three_descriptors_is_managed: "three_descriptors",
    the_size_of_files_is_limited_as_ever: "files_of_a_bounded_size",
    a_limited_address_space_has_room_for_all_but_a_pagers: "enough_address_space",
    memory_that_grows_slowly_takes_few_of_a_programs_mappings: "grows_slowly",
    limited_data_has_room_for_all_but_a_pagers: "enough_data",
    a_program_that_adopts_orphans_waits_for_its_own_alone: "adopts_orphans_and_waits",
    orphans_that_end_while_their_pagers_come_have_ended_well: "adopts_orphans_that_end_soon",
    a_sleep_goes_on_where_a_filter_forbids_what_continues_it: "sleeps_in_a_filter",
    a_sleep_in_such_a_filter_is_interrupted_by_the_programs_signals_alone: "is_signalled_in_a_filter",
    what_works_for_a_program_that_gives_way_does_not: "gives_way_and_has_little_time",
    a_thread_with_a_deadline_is_managed_and_keeps_it: "has_a_deadline",
    a_program_that_runs_code_of_32_bits_for_most_of_the_time_is_managed: "runs_narrow_code",
    a_program_that_serves_a_file_system_to_itself_is_managed: "serves_its_own_file",
    calls_of_a_file_system_in_user_space_are_not_interrupted: "waits_for_a_file_system",
    a_pager_that_comes_while_a_program_writes_to_a_pipe_cuts_nothing_short: "writes_to_a_pipe_at_once",
    a_pager_that_comes_while_a_program_writes_to_a_socket_cuts_nothing_short: "writes_to_a_socket_at_once",
    a_pager_that_comes_while_a_program_writes_parts_to_a_pipe_cuts_nothing_short: "writes_parts_to_a_pipe_at_once",
    a_pager_that_comes_while_a_program_sends_a_message_cuts_nothing_short: "sends_a_message_at_once",
    a_pager_that_comes_while_a_program_sends_a_file_cuts_nothing_short: "sends_a_file_at_once",
    a_pager_that_comes_while_a_program_receives_all_cuts_nothing_short: "receives_all_at_once",
    a_pager_that_comes_while_a_program_receives_a_message_cuts_nothing_short: "receives_a_message_at_once",
    a_pager_that_comes_while_a_program_reads_zeros_cuts_nothing_short: "reads_zeros_at_once",
    a_pager_that_comes_while_a_program_reads_random_numbers_cuts_nothing_short: "reads_random_numbers_at_once",
    a_pager_that_comes_while_a_program_asks_for_random_numbers_cuts_nothing_short: "asks_for_random_numbers_at_once",
    a_pager_that_comes_while_a_program_waits_for_requests_leaves_it_waiting: "hands_in_and_waits",
    a_program_whose_requests_the_kernel_looks_for_by_itself_is_managed: "is_polled_by_the_kernel",
    a_program_that_locks_all_memory_at_any_moment_goes_on: "locks_all_again_and_again",
    far_pages_count_as_swapped_out_and_not_as_written: "tells_of_each_page",
    what_is_present_or_swapped_is_all_that_a_guest_has_touched: "clears_what_is_present_or_swapped_beside_a_pager",
}

#[test]
fn a_pager_that_cannot_come_before_a_file_is_closed_is_awaited_and_that_is_said() {
    if !managed_runner() {
        return;
    }
    let finished = check(unaware("has_a_file_that_is_never_closed"));
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(said.contains(UNMANAGED) && said.contains("before its server answers"), "{said}");
    assert!(number(&finished, "evicted") > 0.0, "it was managed");
}

#[test]
fn a_program_that_forks_hundreds_at_once_goes_on() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(24 * MIB).option("--host").option("none").option("--pool").option("1G");
    let finished = launcher.run(unaware("forks_hundreds_at_once")).success();
    assert_eq!(finished.text(), "forks hundreds at once: 0 wrong\n");
    assert_managed(&finished);
}

/// Programs that make code while they run have most of their memory that way, as those in Lisp have.
#[test]
fn memory_that_a_program_writes_and_runs_leaves_like_other_memory() {
    if !managed_runner() {
        return;
    }
    let finished = check(unaware("runs_what_it_writes"));
    assert_managed(&finished);
    // All of it leaves in each of six rounds, and a quarter of what is written is other memory.
    let evicted = number(&finished, "evicted");
    assert!(evicted > 100_000.0, "{evicted} pages evicted");
}

/// In what the kernel says about it, far pages count as neither present nor written: the next guest would
/// read what the last one had written.
mod a_program_that_clears_by_its_page_table_runs_without_a_pager {
    macro_rules! scans {
        ($($name:ident)*) => {
            $(#[test] fn $name() { if farmem_tests::managed_runner() { super::assert_unmanaged(stringify!($name), "has its page table open"); } })*
        };
    }
    scans! {
        clears_what_is_present_or_swapped
        clears_what_is_written_and_present
        clears_what_is_written
        clears_what_is_written_since_it_was_asked
    }
}

#[test]
fn a_program_whose_children_begin_in_another_namespace_runs_without_a_pager() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let finished = check(unaware("makes_children_elsewhere"));
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(
        said.is_empty() || said.contains(UNMANAGED) && said.contains("other PID or time namespaces"),
        "{said}"
    );
}

fn assert_unmanaged(name: &str, reason: &str) {
    let finished = check(unaware(name));
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(said.lines().count() <= 1, "{said}");
    // It is tried for two seconds.
    assert!(said.is_empty() || said.contains(UNMANAGED) && said.contains(reason), "{said}");
    assert_eq!(number(&finished, "evicted"), 0.0);
}

/// What moves pages would be refused, or ended: nothing would leave, and nobody would know why.
#[test]
fn a_filter_that_forbids_what_moves_pages_leaves_its_program_unmanaged_and_that_is_said() {
    if !managed_runner() {
        return;
    }
    for name in ["forbids_ioctl", "forbids_madvise"] {
        let finished = check(unaware(name));
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        assert!(
            said.contains(UNMANAGED) && said.contains("forbids futex, ioctl or madvise"),
            "{name}: {said}"
        );
        assert_eq!(number(&finished, "evicted"), 0.0);
    }
}

/// What the guide's limits say of it.
#[test]
fn a_program_that_looks_closely_sees_its_pager() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let finished = check(unaware("sees_its_pager"));
    let expected = "a child: counted\npages: absent\ncollapse: Invalid argument\n\
                    time namespace: Too many users\nsees its pager: 0 wrong\n";
    assert_eq!(finished.text(), expected);
    assert_managed(&finished);
}

/// Its program forbids nothing yet when its pager comes, and is managed.
#[test]
fn a_worker_whose_filter_ends_what_moves_its_pages_goes_on_and_that_is_said_and_counted() {
    if !managed_runner() {
        return;
    }
    let finished = check(unaware("worker_forbids_ioctl"));
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(said.contains("nothing more of process") && said.lines().count() == 1, "{said}");
    assert_eq!(number(&finished, "stuck"), 1.0);
}

#[test]
fn a_program_with_as_many_threads_as_it_may_have_is_managed_where_that_is_permitted() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    // Whether it is depends on what this machine's root may do.
    check(unaware("as_many_threads_as_allowed"));
}

/// The first process of a container adopts whatever there is. Its own puppet is none that it would wait for.
#[test]
fn the_first_process_of_a_namespace_waits_for_its_own_alone() {
    if managed_runner() && rustix::process::geteuid().is_root() {
        assert_managed(&check(unaware("is_first_of_a_namespace_and_waits")));
    }
}

/// What a pager has the program make belongs to the program's user.
#[test]
fn a_puppet_is_one_of_the_processes_that_its_user_may_have() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let finished = check(unaware("as_many_threads_as_allowed_beside_a_pager"));
    // Natively 39, in addition to the first thread.
    assert!(finished.text().starts_with("38 threads, "), "{}", finished.text());
    assert_managed(&finished);
}

#[test]
fn a_program_without_room_for_a_pager_has_what_it_had() {
    if managed_runner() {
        check(unaware("little_address_space"));
        check(unaware("little_data"));
    }
}

/// Addresses from the bottom up, where they always were, and where nothing is by chance.
#[test]
fn a_program_is_managed_however_its_addresses_are_laid_out() {
    if !managed_runner() {
        return;
    }
    for prefix in [
        "ulimit -s unlimited; exec",
        "ulimit -s 128; exec",
        "exec setarch -R",
        "exec setarch -L",
        "exec setarch -X",
        "exec setarch -B --3gb",
    ] {
        let program = Program::new("sh").args(["-c", &format!("{prefix} \"$0\" works")]);
        assert_managed(&check(program.arg(env!("PROGRAM_UNAWARE"))));
    }
}

/// Limits hold for what works for the program as well, unless that gives them up. These may be given up by
/// whoever has set them.
#[test]
fn limits_of_whoever_calls_hold_for_the_program_and_not_for_its_pager() {
    if !managed_runner() {
        return;
    }
    for limit in ["-v 400000", "-d 100000", "-t 60", "-f 100", "-s unlimited", "-s 80", "-l 0", "-n 32"] {
        let name = unique("limited");
        let option = limit.split(' ').next().expect("an option");
        let script = format!("ulimit -S {limit}; exec \"$@\"");
        let within = format!("ulimit -S {option}; exec \"$0\" works");
        for (is_child, options) in [(false, &[][..]), (true, &["--stats", "/dev/null"])] {
            let run = farmem_with(&name, options);
            let mut command = Command::new("bash");
            command.args(["-c", &script, "bash"]).arg(run.get_program()).args(run.get_args());
            command.args(["bash", "-c", &within, env!("PROGRAM_UNAWARE")]).stdin(Stdio::null());
            let (output, errors, status) = said(command);
            let expected = format!("{}\nworks: 0 wrong\n", limit.split(' ').nth(1).expect("a number"));
            assert!(status.success(), "{limit}, child: {is_child}: {output}{errors}");
            assert_eq!((output, errors), (expected, String::new()), "{limit}, child: {is_child}");
        }
    }
}

/// Where core files go, when that is a file in the current folder.
fn core_in(folder: &Path) -> Option<fs::DirEntry> {
    let is_core = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("core");
    fs::read_dir(folder).expect("the test's own folder").flatten().find(is_core)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What a core file has of that address on.
fn in_core(core: &[u8], address: u64, bytes: usize) -> &[u8] {
    const LOAD: u64 = 1;
    let (table, size, count) = (word(core, 32), word(core, 54) & 0xffff, word(core, 56) & 0xffff);
    let headers = (0..count).map(|nth| &core[(table + nth * size) as usize..]);
    headers
        .filter(|header| word(header, 0) & 0xffff_ffff == LOAD)
        .find_map(|header| {
            let (offset, start, length) = (word(header, 8), word(header, 16), word(header, 32));
            (start..start + length).contains(&address).then(|| &core[(offset + address - start) as usize..])
        })
        .map(|content| &content[..bytes])
        .expect("it is in the core file")
}

#[test]
fn a_core_file_is_as_long_as_ever_and_has_zeros_for_what_was_far() {
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    const DATA: usize = 64 << 20;
    if !managed_runner() {
        return;
    }
    let pattern = fs::read_to_string(PATTERN).unwrap_or_default();
    if !pattern.starts_with("core") {
        eprintln!("skipped: core files go elsewhere ({})", pattern.trim());
        return;
    }
    let mut lengths = Vec::new();
    for launcher in [
        Launcher::native(),
        Launcher::managed(16 * MIB).option("--host").option("none").option("--pool").option("200M"),
    ] {
        // Natively nothing ever is.
        let check = if launcher.is_managed() { "aborts_when_far" } else { "aborts" };
        let finished = launcher.run(unaware(check));
        let Some(core) = core_in(launcher.directory()) else {
            eprintln!("skipped: no core file is written here: {finished}");
            return;
        };
        let core = fs::read(core.path()).expect("the test's own file");
        lengths.push(core.len());
        if !launcher.is_managed() {
            continue;
        }
        let (address, found) = finished.text().trim().split_once(": ").expect("an address");
        assert_eq!(found, "0 wrong");
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address");
        let content = in_core(&core, address, DATA);
        // As `programs/memory.h` writes them.
        let expected =
            |page: usize, nth: u64| (page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(nth);
        let (mut there, mut zeros) = (0, 0);
        for (page, bytes) in content.chunks(4096).enumerate() {
            if bytes.iter().all(|&byte| byte == 0) {
                zeros += 1;
            } else {
                let is_right = (0..512).all(|nth| word(bytes, nth * 8) == expected(page, nth as u64));
                assert!(is_right, "page {page} is another one");
                there += 1;
            }
        }
        assert!(there > 0 && zeros >= (32 << 20) / 4096, "{there} pages are there, {zeros} are zeros");
        assert!(number(&finished, "pool_bytes") < (DATA * 2) as f64, "{finished}");
    }
    assert!(lengths[1] <= lengths[0] + (1 << 20), "{lengths:?}");
}

#[test]
fn a_program_of_32_bits_runs_unharmed_as_a_child() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let program = folder.file("narrow");
    let built = Command::new("cc")
        .args(["-m32", "-O1", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie"])
        .args(["-fno-stack-protector", "-o"])
        .arg(&program)
        .arg(crate::program_source("narrow.c"))
        .output()
        .expect("`scripts/setup` installs a compiler");
    let runs = built.status.success() && Command::new(&program).output().is_ok();
    if !runs {
        eprintln!("skipped: programs of 32 bits can't be compiled, or don't run here");
        return;
    }
    let mut command = farmem(&unique("narrow"));
    command.args(["bash", "-c", "\"$0\"; echo $?"]).arg(&program);
    let (output, errors, _) = said(command);
    assert_eq!(output, "right\n7\n");
    assert!(errors.is_empty() || errors.lines().count() == 1 && errors.contains(UNMANAGED), "{errors}");
}

#[test]
fn a_static_program_of_musl_is_managed_as_a_child() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let program = folder.file("musl");
    let source = crate::program_source("unaware");
    let sources = fs::read_dir(&source).expect("it is there").flatten().map(|entry| entry.path());
    let built = Command::new("musl-gcc")
        .args(["-std=gnu11", "-O1", "-static", "-pthread", "-idirafter", "/usr/include"])
        .args(["-idirafter", "/usr/include/x86_64-linux-gnu", "-o"])
        .arg(&program)
        .args(sources.filter(|path| path.extension().is_some_and(|extension| extension == "c")))
        .output();
    match built {
        Err(_) => {
            eprintln!("skipped: there is no musl-gcc (musl-tools)");
            return;
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
    for check in ["works", "every_thread_answers", "guards_on_memory_that_is_far"] {
        let shell = Program::new("bash").args(["-c", "\"$0\" \"$1\"; exit $?"]).arg(&program).arg(check);
        assert_managed(&self::check(shell));
    }
}

#[test]
fn a_service_gets_its_socket_and_its_manager_hears_of_it() {
    if !managed_runner() {
        return;
    }
    let name = unique("activated");
    let service = crate::program_source("activated.py");
    let activate = |command: &Command| {
        let folder = Scratch::new();
        let mut manager = Command::new("/usr/bin/python3");
        manager.arg(crate::program_source("activates.py")).arg(folder.path());
        manager.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        said(manager)
    };
    let mut plain = Command::new("/usr/bin/python3");
    plain.arg(&service);
    let mut within = farmem(&name);
    within.arg("/usr/bin/python3").arg(&service);

    let (expected, _, _) = activate(&plain);
    let (output, errors, status) = activate(&within);

    assert_eq!((output.as_str(), errors.as_str()), ("12288 pages, 0 wrong\nstatus 0\n", ""));
    assert_eq!(output, expected);
    assert!(status.success());
}

/// Hundreds of short programs, of which each says or ends with something else.
const SHORT: &str = r#"
for number in $(seq 1 100); do
  /bin/true && ! /bin/false || echo wrong
  value=$(/bin/echo "$number" | cat); [ "$value" = "$number" ] || echo "wrong $number"
  sh -c "exit $number"; [ $? = "$number" ] || echo "wrong status of $number"
done
{ sh -c 'kill -USR1 $$'; } 2>/dev/null; echo $?
/bin/nonexistent; echo $?
(exit 3) | (exit 4); echo "${PIPESTATUS[*]}"
echo said >&2
text=$(head -c 20000000 /dev/zero | tr '\0' x); echo "${#text}"
for number in $(seq 1 100); do (exit "$number"); [ $? = "$number" ] || echo "wrong status of $number"; done
exit 5
"#;

#[test]
fn a_script_of_short_commands_says_what_it_says_and_ends_as_it_ends() {
    if !managed_runner() {
        return;
    }
    let script = ["bash", "-c", SHORT];
    let mut plain = Command::new(script[0]);
    plain.args(&script[1..]).stdin(Stdio::null());
    let mut within = farmem(&unique("short"));
    within.args(script);
    assert_eq!(said(within), said(plain));
}

/// strace, which follows all of a run, or is itself run.
#[test]
fn strace_around_a_run_and_within_it_changes_nothing_that_a_program_does() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let log = folder.file("log");
    let forks = [env!("PROGRAM_ATTACHED"), "forks", "."];
    let run = farmem(&unique("traced"));
    let mut around = Command::new("strace");
    around.args(["-f", "-qq", "-o"]).arg(&log).arg(run.get_program()).args(run.get_args()).args(forks);
    around.stdin(Stdio::null());
    let mut within = farmem(&unique("tracing"));
    within.args(["strace", "-f", "-qq", "-o"]).arg(&log).args(forks);
    for command in [around, within] {
        let (output, errors, status) = said(command);
        assert!(status.success() && output == "forks: 0 wrong\n", "{output}{errors}");
        // Nobody else can come to what is traced.
        assert!(errors.is_empty() || errors.lines().count() == 1 && errors.contains("traced by"), "{errors}");
        let text = fs::read_to_string(&log).expect("strace has written it");
        assert!(text.contains("exit_group"), "{text}");
    }
}

/// A debugger seldom leaves before the program's end, so nobody waits until no further attempt is made.
#[test]
fn a_program_that_is_traced_for_a_second_or_two_is_said_to_run_without_farmem() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let script = "text=$(head -c 30000000 /dev/zero | tr '\\0' x); sleep 1.7; echo ${#text}";
    let mut within = farmem(&unique("traced"));
    within.args(["strace", "-qq", "-e", "trace=exit_group", "-o"]).arg(folder.file("log"));
    within.args(["bash", "-c", script]);
    let (output, errors, status) = said(within);
    assert!(status.success() && output == "30000000\n", "{output}{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("traced by"), "{errors}");
}

/// What keeps a pager away for longer than the first attempts take need not do so for ever.
#[test]
fn a_program_is_managed_when_a_debugger_has_left_it_after_seconds() {
    const SCRIPT: &str = "strace -qq -o log -p $$ & strace=$!
until ! grep -q 'TracerPid:.0$' /proc/$$/status; do sleep 0.01; done
text=$(head -c 40000000 /dev/zero | tr '\\0' x)
sleep 4
kill $strace; wait $strace 2>/dev/null
sleep 6
echo ${#text}";
    if !managed_runner() {
        return;
    }
    let finished = launcher().run(Program::new("bash").args(["-c", SCRIPT])).success();
    assert_eq!(finished.text(), "40000000\n");
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(said.lines().count() == 1 && said.contains("traced by"), "{said}");
    assert!(number(&finished, "evicted") > 0.0, "it was managed in the end: {finished}");
}

const PAGE: &str = "<html><body><script>
const entries = Array.from({ length: 200000 }, (_, number) => ({ number, text: 'x' + number * 7919 }));
let sum = 0;
for (let turn = 0; turn < 3; turn++) for (const entry of entries) sum += entry.text.length + entry.number % 7;
document.body.textContent = 'sum ' + sum;
</script></body></html>";

#[test]
fn a_browser_without_a_screen_starts_and_shows_a_page() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let page = folder.file("page.html");
    fs::write(&page, PAGE).expect("the folder is the test's own");
    let browser = |profile: &str| {
        vec![
            "chromium".to_owned(),
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            format!("--user-data-dir={}", folder.file(profile).display()),
            "--dump-dom".to_owned(),
            format!("file://{}", page.display()),
        ]
    };
    let native = browser("native");
    let mut plain = Command::new(&native[0]);
    plain.args(&native[1..]).stdin(Stdio::null());
    let (expected, _, _) = said(plain);
    let launcher = Launcher::managed(160 * MIB).option("--host").option("none").option("--pool").option("1G");
    let within = browser("within");
    let finished = launcher.run(Program::new(&within[0]).args(&within[1..])).success();
    assert!(expected.contains("sum "), "{expected}");
    assert_eq!(finished.text(), expected);
    assert!(number(&finished, "evicted") > 0.0, "it was managed");
}
