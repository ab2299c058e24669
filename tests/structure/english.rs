//! Comments and documents are in plain English, and no comment is longer than a line of code.

use std::fs;
use std::path::{Path, PathBuf};

use crate::links::{documents, files, prose, without_code};
use crate::workspace;

/// The longest line of a comment, as rustfmt.toml has it for code.
const COLUMNS: usize = 110;

/// Words that a reader today doesn't use, and what to write instead.
const BANNED: [(&str, &str); 9] = [
    ("anew", "again, rebuild, restart"),
    ("beside", "next to, along with, apart from, compared with, while"),
    ("dear", "expensive"),
    ("dearer", "more expensive"),
    ("mend", "repair, fix"),
    ("mended", "repaired, fixed"),
    ("mending", "repair"),
    ("mends", "repairs, fixes"),
    ("tells of", "says about, reports, describes"),
];

/// Words after which *who* stands for *whoever*, or for *the thread that*.
const BEFORE_WHO: [&str; 12] =
    ["after", "at", "before", "but", "by", "for", "from", "of", "than", "to", "under", "with"];

/// The folders with sources in Rust.
const FOLDERS: [&str; 3] = ["crates", "tests", "fuzz/fuzz_targets"];

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        files(&workspace().join(folder), "rs", true, &mut found);
    }
    assert!(found.len() > 400, "{} sources", found.len());
    found.into_iter().map(with_text).collect()
}

fn with_text(path: PathBuf) -> (PathBuf, String) {
    let text = fs::read_to_string(&path).expect("text");
    (path, text)
}

/// What a line says when it is nothing but a comment, and how the comment begins.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    ["///", "//!", "//"].into_iter().find_map(|mark| Some((mark, line.strip_prefix(mark)?.trim())))
}

/// The comments of a source, each as one text with the number of its first line. Code in them is left out.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut last, mut is_code) = (0, false);
    for (number, line) in (1..).zip(text.lines()) {
        let Some((_, said)) = comment(line) else { continue };
        is_code ^= said.starts_with("```");
        let said = if is_code || said.starts_with("```") { String::new() } else { said.to_owned() };
        match found.last_mut().filter(|_| number == last + 1 && !said.is_empty()) {
            Some((_, whole)) => *whole = format!("{whole} {said}"),
            None => found.push((number, said)),
        }
        last = number;
    }
    found.into_iter().map(|(number, said)| (number, without_code(&said))).collect()
}

/// A document's paragraphs, without code, link targets, remarks of HTML, and tables that a command writes.
fn paragraphs(text: &str) -> Vec<String> {
    let mut is_written = false;
    let lines = prose(text).into_iter().filter(|line| {
        is_written |= line.contains("-table begin -->") || line.contains("-programs begin -->");
        let is_told = !is_written && !line.trim_start().starts_with("<!--");
        is_written &= !(line.contains("-table end -->") || line.contains("-programs end -->"));
        is_told
    });
    let joined = lines.map(str::trim).collect::<Vec<_>>().join("\n");
    let paragraphs = joined.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.map(|paragraph| without_targets(&without_code(&paragraph))).collect()
}

fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "] " + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// What is wrong with a text, if anything.
fn fault(text: &str) -> Option<String> {
    // CONTRIBUTING.md names the words in italics.
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.starts_with('*')).collect();
    let letters = |word: &str| {
        word.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '-').to_lowercase()
    };
    let plain: Vec<String> = words.iter().map(|word| letters(word)).collect();
    for (banned, instead) in BANNED {
        let parts: Vec<&str> = banned.split(' ').collect();
        if plain.windows(parts.len()).any(|window| window == parts) {
            return Some(format!("*{banned}* (better: {instead})"));
        }
    }
    let ends = |word: &str| word.ends_with(['.', ':', '!', '?']);
    let is_new = |at: usize| at == 0 || ends(words[at - 1]);
    for (at, word) in words.iter().enumerate().filter(|(_, word)| letters(word) == "who") {
        let is_question = words[at..].iter().find(|word| ends(word)).is_some_and(|word| word.ends_with('?'));
        if word.starts_with('W') && is_new(at) && !is_question {
            return Some("a sentence begins with *Who* (better: whoever, the thread that)".to_owned());
        }
        if at > 0 && BEFORE_WHO.contains(&words[at - 1].to_lowercase().as_str()) {
            return Some(format!("*{} who* (better: whoever, the thread that)", words[at - 1]));
        }
    }
    None
}

fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

#[test]
fn no_line_of_a_comment_is_longer_than_one_of_code() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| line.trim_start().starts_with("//"));
        let too_long = lines.filter(|(_, line)| line.chars().count() > COLUMNS);
        long.extend(too_long.map(|(number, _)| format!("{}:{number}", shown(&path))));
    }
    assert!(long.is_empty(), "longer than {COLUMNS} columns: {long:#?}");
}

#[test]
fn no_comment_of_an_item_ends_in_the_middle_of_a_sentence() {
    let mut unfinished = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((mark, said)) = comment(line) else { continue };
            let goes_on = lines.get(at + 1).and_then(|next| comment(next));
            let is_last = goes_on.is_none_or(|(next, said)| next != mark || said.is_empty());
            if mark != "//" && is_last && said.ends_with([',', ';']) {
                unfinished.push(format!("{}:{}: {said}", shown(&path), at + 1));
            }
        }
    }
    assert!(unfinished.is_empty(), "a reader of one item doesn't see the next: {unfinished:#?}");
}

#[test]
fn comments_and_documents_have_no_word_that_nobody_uses_so() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let faults = comments(&text).into_iter().filter_map(|(number, said)| Some((number, fault(&said)?)));
        found.extend(faults.map(|(number, fault)| format!("{}:{number}: {fault}", shown(&path))));
    }
    for (path, text) in documents().into_iter().map(with_text) {
        // Documents of the hardware have terms of their own.
        if path.strip_prefix(workspace()).is_ok_and(|path| path.starts_with("hw")) {
            continue;
        }
        let wrong = paragraphs(&text).into_iter().filter_map(|said| Some((fault(&said)?, said)));
        found.extend(wrong.map(|(fault, said)| format!("{}: {fault}: {said}", shown(&path))));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn words_are_found_where_they_mean_what_is_banned() {
    for wrong in
        ["It is made anew.", "Who waits is woken.", "It ends; nobody but who asks.", "What it tells\nof."]
    {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
    for right in
        ["Who waits?", "Those who wait.", "It is amended.", "Whoever waits is woken.", "*anew* is old"]
    {
        assert_eq!(fault(right), None, "{right}");
    }
    let text = "/// Made `anew`.\n/// ```\n/// anew\n/// ```\n/// So\n/// long.\nfn anew() {}\n";
    assert!(comments(text).iter().all(|(_, said)| fault(said).is_none()));
    assert!(comments(text).iter().any(|(_, said)| said.contains("So long.")));
    assert_eq!(paragraphs("[a](beside.md) b\n\n`anew`"), ["[a]  b", ""]);
}
