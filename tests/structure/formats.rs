//! Pages of formats name the versions that the sources have.

use std::fs;

use super::workspace;

/// Each page, the source that has the version, and how its line begins.
const FORMATS: [(&str, &str, &str); 6] = [
    ("host", "crates/wire/src/host.rs", "const VERSION: u32 = "),
    ("mailbox", "crates/mailbox/src/lib.rs", "pub const VERSION: u64 = "),
    ("node", "crates/transport/src/request.rs", "pub const VERSION: u16 = "),
    ("pool", "crates/store/src/layout.rs", "pub(crate) const VERSION: u64 = "),
    ("trace", "crates/trace/src/file.rs", "pub(crate) const VERSION: u32 = "),
    ("wire", "crates/wire/src/lib.rs", "const VERSION: u32 = "),
];

#[test]
fn pages_of_formats_name_the_versions_of_the_sources() {
    for (page, source, definition) in FORMATS {
        let read = |path: &str| fs::read_to_string(workspace().join(path)).expect("text");
        let (text, source) = (read(&format!("docs/formats/{page}.md")), read(source));
        let version = source.lines().find_map(|line| line.strip_prefix(definition)?.strip_suffix(';'));
        let version = version.unwrap_or_else(|| panic!("{page}: there is no `{definition}`"));

        let heading = text.lines().next().unwrap_or_default();
        assert!(heading.ends_with(&format!(", version {version}")), "{heading}: the source says {version}");
        let cells = text.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once("version: "));
        for (row, named) in cells {
            assert_eq!(named, version, "docs/formats/{page}.md: {row}");
        }
    }
}
