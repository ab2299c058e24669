//! Labels of containers, from the files in which engines keep what they know of them: no engine is asked. Of
//! Docker these are labels; of the others, annotations.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Where engines have a folder for each container that is called after its ID.
const FOLDERS: [&str; 3] = [
    "/var/lib/docker/containers",
    "/var/lib/containers/storage/overlay-containers",
    "/run/containers/storage/overlay-containers",
];
/// Where containerd has such folders, in a folder for each of its namespaces.
const NAMESPACES: &str = "/run/containerd/io.containerd.runtime.v2.task";
/// Files in such a folder.
const FILES: [&str; 3] = ["config.v2.json", "userdata/config.json", "config.json"];
/// Longest file that is read.
const MOST_BYTES: u64 = 8 << 20;
/// CRI-O keeps labels in an annotation.
const LABELS_WITHIN: &str = "io.kubernetes.cri-o.Labels";

pub(super) type Labels = BTreeMap<String, String>;

/// The labels of the container with that ID, if an engine knows it.
pub(super) fn labels(id: &str, further: &[PathBuf]) -> Option<Labels> {
    let namespaces = fs::read_dir(NAMESPACES).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = further.iter().cloned().chain(FOLDERS.map(PathBuf::from)).chain(namespaces);
    let files = folders.flat_map(|folder| FILES.map(|file| folder.join(id).join(file)));
    files.filter_map(|file| labels_in(&text(&file)?)).next()
}

fn text(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// What a file says, of any engine.
fn labels_in(text: &str) -> Option<Labels> {
    let file: Value = serde_json::from_str(text).ok()?;
    if let Some(labels) = file.pointer("/Config/Labels") {
        return Some(labels.as_object().map(texts).unwrap_or_default());
    }
    let mut labels = file.get("annotations")?.as_object().map(texts).unwrap_or_default();
    let within = labels.get(LABELS_WITHIN).and_then(|text| serde_json::from_str(text).ok());
    labels.extend(within.as_ref().and_then(Value::as_object).map(texts).unwrap_or_default());
    Some(labels)
}

fn texts(fields: &Map<String, Value>) -> Labels {
    fields.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str, key: &str) -> Option<String> {
        labels_in(text)?.remove(key)
    }

    #[test]
    fn labels_are_found_in_the_files_of_each_engine() {
        let docker = r#"{"ID": "x", "Config": {"Labels": {"tier": "cold", "number": 5}}}"#;
        assert_eq!(label(docker, "tier").as_deref(), Some("cold"));
        assert_eq!(label(docker, "number"), None);
        assert_eq!(labels_in(r#"{"Config": {"Labels": null}}"#), Some(Labels::new()));
        assert_eq!(label(r#"{"annotations": {"tier": "cold"}}"#, "tier").as_deref(), Some("cold"));
        let crio = r#"{"annotations": {"io.kubernetes.cri-o.Labels": "{\"app\": \"web\"}"}}"#;
        assert_eq!(label(crio, "app").as_deref(), Some("web"));
        assert_eq!(labels_in("{}"), None);
        assert_eq!(labels_in("no file"), None);
    }

    #[test]
    fn further_folders_are_looked_into_first() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("abc")).unwrap();
        fs::write(folder.path().join("abc/config.v2.json"), r#"{"Config": {"Labels": {"a": "b"}}}"#).unwrap();
        let further = [folder.path().to_owned()];
        assert_eq!(labels("abc", &further), Some(Labels::from([("a".to_owned(), "b".to_owned())])));
        assert_eq!(labels("abd", &further), None);
    }
}
