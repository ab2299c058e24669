//! Programs that mean harm to their pager, and a neighbour below the same supervisor; each is a check of
//! `programs/hostile`. What is promised is in `docs/security.md`.

use farmem_tests::{Launcher, Program, managed_runner};

use crate::far_redis::number;

const BUDGET: u64 = 16 << 20;

fn check(name: &str) {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let launcher = ["--host", "none", "--pool", "1G"]
        .into_iter()
        .fold(Launcher::managed(BUDGET), |launcher, option| launcher.option(option));
    let program = Program::new(env!("PROGRAM_HOSTILE")).arg(name).arg(launcher.directory());
    let finished = launcher.run(program).success();
    assert!(finished.text().ends_with(": 0 wrong\n"), "{}", finished.text());
    assert!(number(&finished, "evicted") > 0.0, "somebody was managed");
}

macro_rules! checks {
    ($($name:ident: $check:literal,)*) => {
        $(#[test] fn $name() { check($check); })*
    };
}

/// The neighbour's bytes are right, and the supervisor holds no more than before, with an attacker that …
mod the_neighbour_and_the_supervisor_go_on_beside_one_that {
    use super::check;

    checks! {
        writes_over_all_memory_of_its_puppet: "scribbles",
        writes_over_the_code_of_its_puppet: "changes-code",
        unmaps_what_its_puppet_has_mapped: "unmaps",
        kills_its_puppet: "kills",
        stops_its_puppet: "stops",
        writes_over_its_mailbox: "garbles-mailbox",
        forks_two_thousand_times: "forks",
        closes_all_descriptors: "closes-descriptors",
        hides_from_others_and_gives_up_root: "hides",
        runs_other_programs_while_its_pager_comes: "runs-others",
        plays_a_java_virtual_machine: "plays-vm",
    }
}

checks! {
    nobody_traces_a_puppet_but_its_pager: "traces",
    a_puppet_does_nothing_that_its_program_may_not_do_any_more: "wants-rights-back",
    whatever_a_program_calls_itself_a_pager_comes_to_it: "changes-name",
}
