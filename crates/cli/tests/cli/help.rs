use super::{farmem, text};

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
        "bench isolation --help",
        "bench prefetch --help",
        "bench nodes --help",
        "bench cleanup --help",
        "workload --help",
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

#[test]
fn version_is_printed() {
    let output = farmem(["--version"]);

    assert_eq!(text(&output.stdout).trim(), format!("farmem {}", env!("CARGO_PKG_VERSION")));
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
        "farmem-bench-faults.1",
    ] {
        assert!(folder.join(page).is_file(), "{page}");
    }
}

#[test]
fn completions_know_the_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&farmem(["completions", shell]).stdout);

        assert!(script.contains("summary"), "{shell}");
    }
}
