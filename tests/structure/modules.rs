//! What ARCHITECTURE.md says of the modules inside a crate is true: each has a row, and uses none of a row
//! below its own.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Names, architecture, cells, names, workspace};

/// The table of a crate's modules: the number of each one's row.
fn rows(of: &str) -> BTreeMap<String, usize> {
    let text = architecture();
    let heading = format!("| row | modules of `crates/{of}` |");
    let lines = text.lines().skip_while(|line| *line != heading).skip(2).map_while(cells);
    let mut rows = BTreeMap::new();
    for (row, [_, modules]) in lines.enumerate() {
        for module in names(&modules) {
            assert!(rows.insert(module.clone(), row).is_none(), "{module} has two rows");
        }
    }
    assert!(!rows.is_empty(), "there is no table `{heading}`");
    rows
}

/// The modules of a crate, by their paths without `.rs` and `/mod.rs`, each with those that its `use` lines
/// name. Tests may use what they like.
fn modules(of: &str) -> BTreeMap<String, Names> {
    let root = workspace().join("crates").join(of).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    let known: Names = files.iter().map(|file| name_of(&root, file)).collect();
    let uses = |file: &Path| {
        let text = std::fs::read_to_string(file).expect("it was listed");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        code.split("crate::").skip(1).filter_map(|path| module_in(path, &known)).collect()
    };
    files.iter().map(|file| (name_of(&root, file), uses(file))).collect()
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn name_of(root: &Path, file: &Path) -> String {
    let name = file.strip_prefix(root).expect("it lies below").with_extension("");
    let name = name.to_str().expect("names are text");
    name.strip_suffix("/mod").unwrap_or(name).to_owned()
}

/// The longest module that a path such as `a::b::Type` begins with; `None` where it begins with none, as an
/// item of the crate itself.
fn module_in(path: &str, known: &Names) -> Option<String> {
    let end =
        path.find(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter))).unwrap_or(path.len());
    let mut parts: Vec<&str> = path[..end].split("::").collect();
    while !parts.is_empty() {
        let module = parts.join("/");
        if known.contains(&module) {
            return Some(module);
        }
        parts.pop();
    }
    None
}

#[test]
fn a_module_of_the_pager_uses_its_own_row_and_those_above_it() {
    let (rows, modules) = (rows("pager"), modules("pager"));
    let listed: Names = rows.keys().cloned().collect();
    let there: Names = modules.keys().cloned().collect();
    assert_eq!(listed, there, "ARCHITECTURE.md has a row for each module, and for no other");
    for (module, uses) in &modules {
        let below: Vec<&String> = uses.iter().filter(|used| rows[*used] > rows[module]).collect();
        assert!(below.is_empty(), "{module} uses {below:?}, of a row below its own");
    }
}
