use std::process::Command;

use super::{FARMEM, FARMEM_BENCH, farmem, text};

#[test]
fn every_help_shows_an_example() {
    for words in [
        "--help",
        "run --help",
        "explain --help",
        "stat --help",
        "top --help",
        "web --help",
        "set --help",
        "host --help",
        "node --help",
        "node keygen --help",
        "node stat --help",
        "trace record --help",
        "trace show --help",
        "trace replay --help",
        "doctor --help",
        "bench --help",
        "bench faults --help",
        "bench programs --help",
        "bench isolation --help",
        "bench prefetch --help",
        "bench nodes --help",
        "bench cleanup --help",
        "workload --help",
        "readers --help",
        "man --help",
        "completions --help",
    ] {
        let output = farmem(words.split(' '));

        assert_eq!(output.status.code(), Some(0), "{words}");
        assert!(text(&output.stdout).contains("Example"), "{words}");
        assert!(output.stderr.is_empty(), "{words}");
    }
}

#[test]
fn help_of_run_says_what_percentages_are_of() {
    let help = text(&farmem(["run", "--help"]).stdout);

    assert!(help.contains("Percentages are of what this user may use"), "{help}");
    assert!(help.contains("[default: 50%]"), "{help}");
}

/// The options of a help text, each with the heading that it stands below.
fn options(help: &str) -> Vec<(&str, &str)> {
    let (mut options, mut heading) = (Vec::new(), "");
    for line in help.lines() {
        if let Some(words) = line.strip_suffix(':').filter(|words| !words.starts_with(' ')) {
            heading = words;
        }
        let word = line.split_whitespace().find(|word| !word.ends_with(','));
        if line.starts_with("  ") && line.trim_start().starts_with('-') {
            options.extend(word.filter(|word| word.starts_with("--")).map(|option| (heading, option)));
        }
    }
    options
}

#[test]
fn every_option_of_the_long_commands_stands_below_a_heading() {
    for (command, count) in [("run", 40), ("host", 23), ("node", 20)] {
        let help = text(&farmem([command, "--help"]).stdout);
        let options = options(&help);

        let without: Vec<&str> =
            options.iter().filter(|(heading, _)| *heading == "Options").map(|(_, option)| *option).collect();
        assert_eq!(without, ["--help"], "{command}");
        assert!(options.len() >= count, "{command}: {options:?}");
    }
}

#[test]
fn short_help_of_run_fits_a_screen_and_leaves_out_what_few_need() {
    let short = text(&farmem(["run", "-h"]).stdout);
    let (long, hidden) = (text(&farmem(["run", "--help"]).stdout), ["Tuning", "Cluster in etcd"]);

    assert!(short.lines().count() <= 64, "{} lines", short.lines().count());
    assert!(options(&short).iter().all(|(heading, _)| !hidden.contains(heading)), "{short}");
    for option in ["--local", "--pool", "--disk", "--summary", "--node", "--key"] {
        assert!(options(&short).iter().any(|(_, shown)| *shown == option), "{option}: {short}");
    }
    for heading in hidden {
        assert!(options(&long).iter().any(|(shown, _)| *shown == heading), "{heading}: {long}");
    }
}

#[test]
fn version_is_printed_with_the_commit_where_the_build_named_one() {
    let output = farmem(["--version"]);

    let commit = option_env!("FARMEM_COMMIT").filter(|commit| !commit.is_empty());
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    assert_eq!(text(&output.stdout).trim(), format!("farmem {}{commit}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("new");

    let output = farmem(["man".as_ref(), folder.as_os_str()]);

    assert!(output.status.success());
    for page in [
        "farmem.1",
        "farmem-run.1",
        "farmem-explain.1",
        "farmem-stat.1",
        "farmem-top.1",
        "farmem-web.1",
        "farmem-set.1",
        "farmem-host.1",
        "farmem-node.1",
        "farmem-doctor.1",
        "farmem-trace-replay.1",
    ] {
        assert!(folder.join(page).is_file(), "{page}");
    }
    // Its own program describes it.
    assert!(!folder.join("farmem-bench.1").exists());
    // Below the headings of the help, and with the texts of options that `-h` leaves out.
    let page = std::fs::read_to_string(folder.join("farmem-run.1")).unwrap();
    for words in [".SH MEMORY\n", ".SH TUNING\n", "Most bytes per second, read and written together"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn manual_pages_of_benchmarks_are_written_by_their_program_and_name_the_command_that_is_called() {
    let folder = tempfile::tempdir().unwrap();

    let output = Command::new(FARMEM_BENCH).arg("man").arg(folder.path()).output().unwrap();

    assert!(output.status.success());
    for (page, called) in [
        ("farmem-bench.1", "farmem bench"),
        ("farmem-bench-faults.1", "farmem bench faults"),
        ("farmem-bench-programs.1", "farmem bench programs"),
    ] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap().replace("\\-", "-");
        assert!(text.contains(called), "{page}: {text}");
    }
}

#[test]
fn completions_know_the_options() {
    for (program, options) in
        [(FARMEM, ["summary", "rebuild-rate"]), (FARMEM_BENCH, ["swap-folder", "compressibility"])]
    {
        for shell in ["bash", "zsh", "fish"] {
            let output = Command::new(program).args(["completions", shell]).output().unwrap();

            let script = text(&output.stdout);
            for option in options {
                assert!(script.contains(option), "{program} {shell}: {option}");
            }
        }
    }
}
