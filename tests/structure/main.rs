//! What ARCHITECTURE.md says of the crates is true: which crate uses which, which contain `unsafe`, and which
//! do without the standard library. Its tables are the rules; a new dependency is written there first. What
//! documents point at is there, and pages of formats name the versions of the sources.

mod english;
mod formats;
mod links;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

type Names = BTreeSet<String>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn architecture() -> String {
    std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("it is next to Cargo.toml")
}

/// A crate of the workspace, by the name of its folder.
struct Crate {
    uses: Names,
    /// The files that its library, its programs and what belongs to them begin with.
    roots: Vec<PathBuf>,
}

/// Whether the manifest compiles another crate's sources once more: what holds of them is said where they
/// are.
fn is_second_build(package: &Value) -> bool {
    let sources = package["targets"].as_array().expect("a list").iter();
    let mut sources = sources.map(|target| Path::new(target["src_path"].as_str().expect("a path")));
    sources.all(|source| source.components().any(|part| part == Component::ParentDir))
}

/// What cargo says.
fn crates() -> BTreeMap<String, Crate> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    packages.iter().filter(|package| !is_second_build(package)).map(described).collect()
}

fn described(package: &Value) -> (String, Crate) {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let folder = |manifest: &Path| {
        let folder = manifest.file_name().expect("a folder has a name");
        folder.to_str().expect("names are text").to_owned()
    };
    // Development may use what it likes: tests of lower crates run higher ones.
    let uses = list(&package["dependencies"])
        .iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["path"].as_str())
        .map(|path| folder(Path::new(path)))
        .collect();
    let is_shipped = |target: &&Value| {
        list(&target["kind"]).iter().any(|kind| kind == "lib" || kind == "cdylib" || kind == "bin")
    };
    let roots = list(&package["targets"])
        .iter()
        .filter(is_shipped)
        .map(|target| target["src_path"].as_str().expect("a path").into())
        .collect();
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    (folder(manifest.parent().expect("a manifest lies in a folder")), Crate { uses, roots })
}

/// The table `| crate | uses |`: each crate with what it may use.
fn allowed() -> BTreeMap<String, Names> {
    let text = architecture();
    let mut rows = text.lines().skip_while(|line| *line != "| crate | uses |").skip(2);
    let mut allowed = BTreeMap::new();
    while let Some([crates, uses]) = rows.next().and_then(cells) {
        let uses: Names = names(&uses).into_iter().filter(|name| name != "nothing").collect();
        for name in names(&crates) {
            assert!(allowed.insert(name.clone(), uses.clone()).is_none(), "{name} has two rows");
        }
    }
    allowed
}

/// The cells of a row of two; `None` after the table's end.
fn cells(row: &str) -> Option<[String; 2]> {
    let (left, right) = row.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
    Some([left.to_owned(), right.to_owned()])
}

fn names(cell: &str) -> Vec<String> {
    cell.split(", ").map(str::to_owned).collect()
}

/// The crates that the picture of the tree marks with a word such as `no_std` or `unsafe`.
fn marked(wanted: impl Fn(&str) -> bool) -> Names {
    architecture()
        .lines()
        .filter(|line| wanted(line))
        .filter_map(|line| line.strip_prefix("crates/")?.split_whitespace().next())
        .filter_map(|path| path.rsplit('/').next().map(str::to_owned))
        .collect()
}

fn begins_with(name: &str, of: &Crate, attribute: &str) -> bool {
    assert!(!of.roots.is_empty(), "{name} has neither library nor program");
    of.roots.iter().all(|root| {
        let text = std::fs::read_to_string(root).expect("cargo names files that are there");
        text.lines().any(|line| line.trim() == attribute)
    })
}

#[test]
fn every_crate_uses_what_the_table_says_and_nothing_else() {
    let (crates, allowed) = (crates(), allowed());

    let listed: Names = allowed.keys().cloned().collect();
    assert_eq!(crates.keys().cloned().collect::<Names>(), listed, "crates, and rows of the table");
    for (name, found) in &crates {
        assert_eq!(found.uses, allowed[name], "{name} uses, and may use by ARCHITECTURE.md");
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_the_fences() {
    let fences =
        marked(|line| line.trim_end().ends_with("unsafe") && !line.trim_end().ends_with("no unsafe"));
    assert_eq!(fences, Names::from(["sys", "hints", "verbs", "simulated-kernel"].map(str::to_owned)));

    for (name, found) in crates().iter().filter(|(name, _)| *name != "tests") {
        let is_forbidden = begins_with(name, found, "#![forbid(unsafe_code)]");
        assert_eq!(is_forbidden, !fences.contains(name), "{name} forbids unsafe code");
    }
}

#[test]
fn what_only_measures_is_in_a_program_of_its_own() {
    let mut sources = Vec::new();
    links::files(&workspace().join("crates/cli/src"), "rs", true, &mut sources);
    let (of_bench, others): (Vec<PathBuf>, Vec<PathBuf>) = sources
        .into_iter()
        .partition(|path| path.components().any(|part| part.as_os_str() == "farmem-bench"));
    let uses = |path: &PathBuf| std::fs::read_to_string(path).expect("text").contains("farmem_bench");

    assert_eq!(others.iter().find(|path| uses(path)), None, "each start of farmem would load it");
    assert!(of_bench.iter().any(uses) && others.len() > 30, "{of_bench:?}");
}

#[test]
fn what_runs_inside_programs_does_without_the_standard_library() {
    let inside = marked(|line| line.contains(" no_std"));

    for (name, found) in &crates() {
        assert_eq!(begins_with(name, found, "#![no_std]"), inside.contains(name), "{name} is no_std");
        if inside.contains(name) {
            assert!(found.uses.is_subset(&inside), "{name} uses only what can be inside a program");
        }
    }
}
