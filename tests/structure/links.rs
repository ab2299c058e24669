//! What documents point at is there: the files that they link to, the headings in these, and the tests that
//! results name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// The folders with documents. Those below them count as well, except below the workspace itself.
const FOLDERS: [&str; 3] = ["", "docs", "hw/doc"];

/// All files in a folder whose names end so.
pub(crate) fn files(folder: &Path, ending: &str, into_folders: bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() && into_folders && path.file_name().is_some_and(|name| name != "target") {
            files(&path, ending, true, found);
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
}

pub(crate) fn documents() -> Vec<PathBuf> {
    let mut found = vec![workspace().join("hw/README.md")];
    for folder in FOLDERS {
        files(&workspace().join(folder), "md", !folder.is_empty(), &mut found);
    }
    found
}

/// A document without its fenced blocks.
pub(crate) fn prose(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let mut outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_inside ^= is_fence;
        !is_inside && !is_fence
    };
    text.lines().filter(|line| outside(line)).collect()
}

/// A line without its code, in which brackets mean something else.
pub(crate) fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// What a document's links lead to, those to other sites left out.
fn targets(text: &str) -> Vec<String> {
    let lines = prose(text).into_iter().map(without_code);
    let targets = lines.flat_map(|line| {
        let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        links.map(|(target, _)| target.to_owned()).collect::<Vec<_>>()
    });
    targets.filter(|target| !target.contains("://")).collect()
}

/// By which names the headings of a document are found, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            let anchor: String =
                words.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
            let before = times.entry(anchor.clone()).or_default();
            *before += 1;
            if *before == 1 { anchor } else { format!("{anchor}-{}", *before - 1) }
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let mut broken = Vec::new();
    let mut followed = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("text");
        for target in targets(&text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match path {
                "" => document.clone(),
                path => document.parent().expect("a folder").join(path),
            };
            let leads = file.exists()
                && (anchor.is_empty()
                    || fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor)));
            if !leads {
                broken.push(format!("{}: {target}", document.display()));
            }
            followed += 1;
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(followed > 200, "{followed} links");
}

#[test]
fn tests_that_results_name_are_there() {
    let (mut sources, mut pages) = (Vec::new(), Vec::new());
    files(&workspace().join("crates"), "rs", true, &mut sources);
    files(&workspace().join("tests"), "rs", true, &mut sources);
    files(&workspace().join("docs/results"), "md", true, &mut pages);
    let sources: String = sources.iter().map(|path| fs::read_to_string(path).expect("text")).collect();
    let read = |path: &PathBuf| fs::read_to_string(path).expect("text");
    let pages: String = pages.iter().map(read).collect();
    // Names of figures have fewer words.
    let is_test = |span: &&str| {
        span.matches('_').count() > 2 && span.chars().all(|letter| letter == '_' || letter.is_alphanumeric())
    };
    let named: BTreeSet<&str> = pages.split('`').filter(is_test).collect();

    let is_there = |name: &str| ["(", "<"].iter().any(|end| sources.contains(&format!("fn {name}{end}")));
    let missing: Vec<&&str> = named.iter().filter(|name| !is_there(name)).collect();

    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named.len() > 15, "{} tests", named.len());
}

#[test]
fn links_and_anchors_are_read_as_github_reads_them() {
    let text = "# A page, and *more*\n## C2's `code`\n## C2's `code`\n[x](../a.md#b-c), `[y](no)` and [z](https://e.org)\n```\n[n](o)\n```\n[w](#v)\n";

    assert_eq!(targets(text), ["../a.md#b-c", "#v"]);
    let expected = ["a-page-and-more", "c2s-code", "c2s-code-1"];
    assert_eq!(anchors(text), BTreeSet::from(expected.map(str::to_owned)));
}
