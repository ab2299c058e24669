//! Nasty things that a program can do with its address space; each is a check of `programs/address_space`.

use farmem_tests::{Launcher, Program, Share, same_at};

/// Checks whose processes, far below the budget, become several that fill all of it, or a program that does,
/// in less time than a pager takes to come.
const FILL_AT_ONCE: [&str; 3] = ["fork_siblings", "fork_and_exec", "vfork_and_exec"];

fn check(launcher: &Launcher, name: &str) -> String {
    let arena_mebibytes = farmem_tests::scaled(40).to_string();
    let program = Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg(name).env("ARENA_MIB", arena_mebibytes);
    // For checks of hints: a pager comes to the program some time after it has begun.
    let program = if launcher.is_managed() { program.env("HINTS_HAVE_A_PAGER", "1") } else { program };
    if FILL_AT_ONCE.contains(&name) {
        launcher.let_overshoot();
    }
    let finished = launcher.run(program).success();
    finished.text().to_owned()
}

macro_rules! checks {
    ($($name:ident)*) => {
        /// With half of the program's peak as budget.
        mod at_half {
            $(#[test] fn $name() { super::same_at(super::Share::Half, |launcher| super::check(launcher, stringify!($name))); })*
        }

        /// With a quarter of the program's peak as budget.
        mod at_quarter {
            $(#[test] fn $name() { super::same_at(super::Share::Quarter, |launcher| super::check(launcher, stringify!($name))); })*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

checks! {
    brk_grow_shrink
    mmap_churn
    mmap_churn_threads
    map_fixed_threads
    map_fixed_over_itself
    mprotect_cycle
    mremap_grow
    mremap_move
    mremap_swap_places
    mremap_dontunmap
    madvise_dontneed
    madvise_dontneed_raw
    madvise_dontneed_threads
    madvise_free
    madvise_guard
    madvise_hugepage
    madvise_dontfork
    madvise_wipeonfork
    wipeonfork_moves_with_mappings
    wipeonfork_many
    madvise_hints
    map_populate
    many_small_mappings
    sparse_noreserve
    read_only_zero_pages
    zeros_read_before_written
    same_filled_pages
    shared_and_file_mappings
    mlock_evicted
    mlockall_future
    limited_address_space
    memory_seen_from_outside
    own_userfaultfd
    fork_writes_both_sides
    fork_writes_one_side
    fork_and_exec
    fork_grandchildren
    fork_siblings
    fork_many_short
    fork_while_child_lives_on
    parent_exits_first
    vfork_and_exec
    spawn_and_friends
    raw_clone_thread
    raw_clone_cleared_word
    execve_from_thread
    huge_pages_after_exec
    end_while_faulting
    threads_fault_same_pages
    threads_write_same_pages
    threads_touch_cold_pages
    thousands_of_threads
    detached_threads
    thread_stacks_evicted
    join_after_eviction
    thread_ends_while_far
    locks_evicted
    priority_locks_evicted
    robust_lock_evicted
    thread_local_storage
    cancelled_threads
    deep_recursion
    deep_recursion_in_thread
    first_thread_ends
    restartable_sequences_stay
    pipe_evicted
    socket_evicted
    datagrams_evicted
    file_evicted
    direct_file_evicted
    results_evicted
    vmsplice_evicted
    io_uring_evicted
    close_every_descriptor
    segv_write_barrier
    segv_read_barrier
    segv_barrier_threads
    segv_handler_jumps
    sigbus_handler
    fatal_signals
    timer_signals
    signals_blocked_and_reset
    signal_descriptor_evicted
    hint_prefetch
    hint_prefetcher
    hint_prefetch_scattered
    hint_pin
    hint_pin_untouched
    hint_pin_too_much
    hint_pin_moves_and_ends
    hint_pin_and_fork
    hint_cold
    hint_anywhere
    hint_threads
    hint_of_memory_that_goes
    ends_thread_by_thread
    ends_in_strict_mode
    ends_by_a_filter
    enters_mount_namespace
    exec_on_small_stack
    exec_with_many_arguments
}

/// Checks that need more than a comparison of what was printed; their tests stand below, or with the command
/// line.
const SPECIAL: &[&str] = &[
    "hot_set_beside_a_scan",
    "freed_while_full",
    "fork_writes_everything",
    "fork_writes_scattered",
    "fork_from_threads",
    "child_outlives",
    "fork_alone",
    "clone_alone",
    "raw_clone_process",
    "mlockall_current",
    "mremap_new_and_old",
    "drop_privileges",
    "signals_on_evicted_stacks",
    "few_descriptors_allowed",
    "fork_changes_early",
    "fork_ends_early",
    "fork_within_a_fork",
    "kept_grandchildren",
    "bare_children_clone",
    "changes_beside_a_fork",
    "changes_before_a_fork",
    "many_bare_children",
    "bare_child_forks",
    "first_thread_ends_at_once",
    "enters_user_namespace",
];

#[test]
fn every_check_of_the_program_has_a_test() {
    let finished = Launcher::native().run(Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg("list")).success();
    let listed: Vec<&str> = finished.text().lines().collect();

    for name in &listed {
        assert!(NAMES.contains(name) || SPECIAL.contains(name), "{name} has no test");
    }
    assert_eq!(listed.len(), NAMES.len() + SPECIAL.len());
}

/// Data of four times the budget, written by both processes after a fork: the kernel copies every page.
#[test]
fn a_fork_keeps_to_the_budget_while_both_sides_write_everything() {
    const DATA_BYTES: u64 = 64 << 20;
    let run = || {
        let launcher = farmem_tests::second_launcher(DATA_BYTES / 4);
        assert_eq!(check(&launcher, "fork_writes_everything"), "ok fork_writes_everything\n");
        farmem_tests::past_budget(&launcher, DATA_BYTES)
    };
    farmem_tests::assert_in_one_of_three(run, Vec::is_empty);
}

#[test]
fn siblings_keep_to_the_budget_while_all_write_here_and_there() {
    const DATA_BYTES: u64 = 36 << 20;
    let run = || {
        let launcher = farmem_tests::second_launcher(DATA_BYTES / 3);
        assert_eq!(check(&launcher, "fork_writes_scattered"), "ok fork_writes_scattered\n");
        farmem_tests::past_budget(&launcher, DATA_BYTES)
    };
    farmem_tests::assert_in_one_of_three(run, Vec::is_empty);
}

/// A fork next to a thread that writes all the time passes a small budget for a while, so only the bytes
/// count here.
#[test]
fn new_and_old_mappings_that_change_places_keep_every_byte() {
    let launcher = farmem_tests::second_launcher(12 << 20);
    assert_eq!(check(&launcher, "mremap_new_and_old"), "ok mremap_new_and_old\n");
}

/// Processes that the C library hears nothing of have no pager and no limit, so only the bytes count here.
#[test]
fn processes_of_a_bare_clone_keep_every_byte() {
    let launcher = farmem_tests::second_launcher(24 << 20);
    assert_eq!(check(&launcher, "raw_clone_process"), "ok raw_clone_process\n");
}

/// Locked memory stays resident whatever the budget says, so only the bytes count here.
#[test]
fn locking_everything_keeps_every_byte() {
    let launcher = farmem_tests::second_launcher(24 << 20);
    assert_eq!(check(&launcher, "mlockall_current"), "ok mlockall_current\n");
}

/// Ten processes that write all they share at once pass a small budget for a while, so only the bytes count
/// here.
#[test]
fn forks_from_several_threads_keep_every_byte() {
    let launcher = farmem_tests::second_launcher(48 << 20);
    assert_eq!(check(&launcher, "fork_from_threads"), "ok fork_from_threads\n");
}

/// The kernel writes a signal's frame to the thread's stack, and waits for that page whatever else is
/// pending. Small, so that the stacks are far at every signal.
#[test]
fn signals_on_evicted_stacks_keep_every_byte() {
    let launcher = farmem_tests::second_launcher(12 << 20);
    assert_eq!(check(&launcher, "signals_on_evicted_stacks"), "ok signals_on_evicted_stacks\n");
}

/// A fork's event brings a descriptor, and the limit is the process's. The child can't open what a pager
/// needs; its parent keeps it, so only the bytes count here.
#[test]
fn a_limit_of_few_descriptors_keeps_every_byte() {
    let launcher = farmem_tests::second_launcher(24 << 20);
    assert_eq!(check(&launcher, "few_descriptors_allowed"), "ok few_descriptors_allowed\n");
}

macro_rules! checks_of_served_children {
    ($($name:ident)*) => {
        /// Children that their parent serves have no pager of their own, and no limit, so only the bytes
        /// count here.
        mod served_children {
            $(#[test] fn $name() {
                let launcher = farmem_tests::second_launcher(24 << 20);
                assert_eq!(super::check(&launcher, stringify!($name)), concat!("ok ", stringify!($name), "\n"));
            })*
        }
    };
}

checks_of_served_children! {
    fork_changes_early
    fork_within_a_fork
    kept_grandchildren
    bare_children_clone
    changes_beside_a_fork
    changes_before_a_fork
    many_bare_children
    bare_child_forks
}

/// With room for everything: a program that is managed already can't enter a user namespace.
#[test]
fn a_program_that_is_not_managed_yet_enters_a_user_namespace() {
    let launcher = farmem_tests::second_launcher(1 << 30);
    assert_eq!(check(&launcher, "enters_user_namespace"), "ok enters_user_namespace\n");
}

/// What the kernel says about a process is what it knows of its first thread, and of one that has ended it
/// knows nothing.
#[test]
fn a_program_keeps_to_its_budget_when_its_first_thread_has_ended() {
    const BUDGET_BYTES: u64 = 16 << 20;
    let launcher = farmem_tests::second_launcher(BUDGET_BYTES);

    let resident_bytes: u64 = check(&launcher, "first_thread_ends_at_once").trim().parse().expect("a number");

    assert!(
        !launcher.is_managed() || resident_bytes < 2 * BUDGET_BYTES,
        "{resident_bytes} bytes are resident"
    );
}

/// The program ends up in an empty root as another user: nothing can be opened any more.
#[test]
fn a_program_that_drops_its_privileges_keeps_every_byte() {
    let launcher = farmem_tests::second_launcher(24 << 20);
    assert_eq!(check(&launcher, "drop_privileges"), "ok drop_privileges\n");
}

/// The first process is gone, with its exit status, while a child of it still works on far memory.
#[test]
fn a_child_that_outlives_its_parent_keeps_every_byte() {
    let launcher = farmem_tests::second_launcher(24 << 20);

    assert_eq!(check(&launcher, "child_outlives"), "ok child_outlives\n");

    let outcome = launcher.file("outlived");
    farmem_tests::wait_for("the child's file", || std::fs::read_to_string(&outcome).ok());
}
