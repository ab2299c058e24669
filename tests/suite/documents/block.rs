//! Fenced blocks of Markdown, and what comments above them say about the test.

/// What becomes of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    /// It holds commands, which are run.
    Run {
        /// Commands before it.
        before: Vec<String>,
        /// Words that stand for others.
        replaced: Vec<(String, String)>,
    },
    /// It holds commands, which are not.
    NotRun { reason: String },
    /// It holds something else.
    Shown,
}

/// A fenced block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// Of its opening fence, from 1.
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
    pub(super) treatment: Treatment,
}

/// All blocks of a document. Comments count for the block that follows with nothing but empty lines between.
pub(super) fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut comments: Vec<&str> = Vec::new();
    let mut lines = (1..).zip(document.lines());
    while let Some((line, text)) = lines.next() {
        let text = text.trim();
        if let Some(comment) = text.strip_prefix("<!--").and_then(|text| text.strip_suffix("-->")) {
            comments.push(comment.trim());
        } else if let Some(language) = text.strip_prefix("```") {
            let body: Vec<&str> =
                lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim() != "```").collect();
            found.push(Block {
                line,
                language: language.to_owned(),
                text: body.join("\n") + "\n",
                treatment: treatment(language, &comments),
            });
            comments.clear();
        } else if !text.is_empty() {
            comments.clear();
        }
    }
    found
}

fn treatment(language: &str, comments: &[&str]) -> Treatment {
    if language != "sh" {
        return Treatment::Shown;
    }
    let of = |key: &'static str| {
        comments.iter().filter_map(move |comment| comment.strip_prefix(key)).map(str::trim)
    };
    if let Some(reason) = of("not run:").next() {
        return Treatment::NotRun { reason: reason.to_owned() };
    }
    let replaced = of("in the test:").flat_map(|comment| comment.split("; ")).map(|pair| {
        let (words, other) =
            pair.split_once(" is ").unwrap_or_else(|| panic!("{pair}: write WORDS is OTHER WORDS"));
        (words.to_owned(), other.to_owned())
    });
    Treatment::Run {
        before: of("before, in the test:").map(str::to_owned).collect(),
        replaced: replaced.collect(),
    }
}

#[test]
fn comments_count_for_the_block_below_them() {
    let document = "<!-- not run: another machine is needed -->\n```sh\nshutdown\n```\ntext\n<!-- in the test: 8G is 8M; a is b -->\n\n\
                    <!-- before, in the test: first -->\n```sh\nls 8G\n```\n<!-- not run: lost -->\nmore\n```sh\ntrue\n```\n```text\nx\n```\n";
    let found = blocks(document);
    let treatments: Vec<&Treatment> = found.iter().map(|block| &block.treatment).collect();
    let pair = |words: &str, other: &str| (words.to_owned(), other.to_owned());
    assert_eq!(*treatments[0], Treatment::NotRun { reason: "another machine is needed".to_owned() });
    assert_eq!(
        *treatments[1],
        Treatment::Run { before: vec!["first".to_owned()], replaced: vec![pair("8G", "8M"), pair("a", "b")] }
    );
    assert_eq!(*treatments[2], Treatment::Run { before: Vec::new(), replaced: Vec::new() });
    assert_eq!(*treatments[3], Treatment::Shown);
    assert_eq!((found[1].line, found[1].text.as_str()), (9, "ls 8G\n"));
}
