//! The command blocks of README and docs: read from Markdown, and compared with what commands print.
//!
//! A block of the language `console` holds commands behind `$ ` (continued behind `> `) and, below each, what it
//! prints. In what is printed, a line `...` stands for any lines, and `...` within a line for any words or
//! characters; a word that ends with `...` at the end of a line, for the rest of the line. Ages and generated suffixes of
//! names match any other of their kind. A last line `^C` says that the reader interrupts the command there. Blocks
//! `console no-run` are not run; the suite lists why. Deliberately absent: running anything.

use std::path::Path;

use anyhow::{Context, bail};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::table::is_age;

/// Languages of blocks that hold no commands.
const OTHER_LANGUAGES: &[&str] = &["yaml", "text", "rust", "toml", "json"];
/// What stands for left-out text.
const ELIDED: &str = "...";
/// What a terminal shows when its user interrupts a command.
const INTERRUPT: &str = "^C";

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub page: String,
    /// Line of its first command.
    pub line: usize,
    /// `console no-run`.
    pub is_run: bool,
    pub steps: Vec<Step>,
}

/// One command and what it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    pub command: String,
    pub output: Vec<String>,
}

impl Step {
    /// What the command prints before its reader interrupts it; `None` if he lets it end.
    pub fn until_interrupt(&self) -> Option<&[String]> {
        let (last, before) = self.output.split_last()?;
        (last == INTERRUPT).then_some(before)
    }
}

/// The command blocks of a page, in order.
///
/// # Errors
/// A block without a language, of a language nobody knows, or with output before its first command.
pub fn blocks(page: &str, text: &str) -> anyhow::Result<Vec<Block>> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String, String)> = None;
    let options = Options::ENABLE_TABLES;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let line = text[..range.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                open = Some((line + 1, language.to_string(), String::new()));
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => {
                bail!("{page}:{line}: found an indented block; allowed: a fenced one with a language")
            }
            Event::Text(words) => {
                if let Some((_, _, body)) = &mut open {
                    body.push_str(&words);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                let Some((line, language, body)) = open.take() else { continue };
                let is_run = match language.as_str() {
                    "console" => true,
                    "console no-run" => false,
                    other if OTHER_LANGUAGES.contains(&other) => continue,
                    other => bail!(
                        "{page}:{line}: found a block of the language {other:?}; allowed: \"console\", \
                         \"console no-run\", {OTHER_LANGUAGES:?}"
                    ),
                };
                let steps = steps(line, &body).with_context(|| format!("{page}:{line}"))?;
                found.push(Block { page: page.to_string(), line, is_run, steps });
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Line and text of each piece of code within a sentence.
pub fn inline(text: &str) -> Vec<(usize, String)> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let code = events.filter_map(|(event, range)| match event {
        Event::Code(code) => Some((text[..range.start].matches('\n').count() + 1, code.to_string())),
        _ => None,
    });
    code.collect()
}

fn steps(first: usize, body: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, text) in body.lines().enumerate() {
        if let Some(command) = text.strip_prefix("$ ") {
            let (line, command) = (first + index, command.to_string());
            steps.push(Step { line, command, output: Vec::new() });
            continue;
        }
        let Some(step) = steps.last_mut() else {
            bail!("found {text:?} before the first command; allowed: a line that begins with \"$ \"")
        };
        match text.strip_prefix("> ") {
            Some(more) if step.output.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => step.output.push(text.to_string()),
        }
    }
    if steps.is_empty() {
        bail!("found no command; allowed: a line that begins with \"$ \"");
    }
    Ok(steps)
}

/// Whether a command printed what the page says. Empty lines at the end count for nothing.
pub fn matches(expected: &[String], printed: &str) -> bool {
    let printed: Vec<&str> = printed.trim_end().lines().collect();
    let end = expected.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    lines_match(&expected[..end], &printed)
}

fn lines_match(expected: &[String], printed: &[&str]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return printed.is_empty() };
    if first.trim() == ELIDED {
        return (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]));
    }
    match printed.split_first() {
        Some((line, others)) => line_matches(first, line) && lines_match(rest, others),
        None => false,
    }
}

fn line_matches(expected: &str, printed: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    expected.trim_end() == printed.trim_end() || words_match(&words(expected), &words(printed))
}

fn words_match(expected: &[String], printed: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return printed.is_empty() };
    if first == ELIDED {
        return (0..=printed.len()).any(|skipped| words_match(rest, &printed[skipped..]));
    }
    if rest.is_empty() && first.ends_with(ELIDED) {
        return elided_matches(first, &printed.join(" "));
    }
    match printed.split_first() {
        Some((word, others)) => word_matches(first, word) && words_match(rest, others),
        None => false,
    }
}

fn word_matches(expected: &str, printed: &str) -> bool {
    if expected == printed {
        return true;
    }
    if expected.contains(ELIDED) {
        return elided_matches(expected, printed);
    }
    // `2s)` and `(2s,` are ages, too.
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_string();
    (is_age(&bare(expected)) && is_age(&bare(printed))) || same_but_for_suffix(expected, printed)
}

/// Whether a text has what is left of another one, in its order.
fn elided_matches(expected: &str, printed: &str) -> bool {
    let pieces: Vec<&str> = expected.split(ELIDED).collect();
    let [first, between @ .., last] = pieces.as_slice() else { return expected == printed };
    let Some(mut rest) = printed.strip_prefix(*first) else { return false };
    for piece in between {
        let Some((_, after)) = rest.split_once(*piece) else { return false };
        rest = after;
    }
    rest.ends_with(*last)
}

/// Whether both are one name with a suffix of five characters that an API server drew. It draws no vowels.
fn same_but_for_suffix(expected: &str, printed: &str) -> bool {
    const DRAWN: &str = "bcdfghjklmnpqrstvwxz2456789";
    let drawn = |suffix: &str| suffix.len() == 5 && suffix.chars().all(|c| DRAWN.contains(c));
    match (expected.rsplit_once('-'), printed.rsplit_once('-')) {
        (Some((name, one)), Some((same, other))) => name == same && drawn(one) && drawn(other),
        _ => false,
    }
}

/// Every Markdown page with commands for people, in the order in which they are read: README, the pages of the book
/// in the order of its summary, the others.
///
/// # Errors
/// A page cannot be read.
pub fn pages(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    const OTHERS: &[&str] = &[
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "examples/README.md",
        "examples/scenarios/README.md",
        "charts/README.md",
        "tests/README.md",
        "watchdog/README.md",
    ];
    let read = |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| file.to_string());
    let mut names = vec!["README.md".to_string()];
    for (event, _) in Parser::new(&read("docs/SUMMARY.md")?).into_offset_iter() {
        if let Event::Start(Tag::Link { dest_url, .. }) = event {
            names.push(format!("docs/{dest_url}"));
        }
    }
    names.extend(OTHERS.iter().map(|name| (*name).to_string()));
    names.into_iter().map(|name| Ok((name.clone(), read(&name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_string).collect()
    }

    #[test]
    fn blocks_are_read_with_their_output() {
        let text = "# T\n\n```console\n$ a b \\\n> c\nout\n$ d\n```\n\n```yaml\nx: 1\n```\n\n```console no-run\n$ e\n```\n";
        let found = blocks("p.md", text).expect("readable");
        assert_eq!(found.len(), 2);
        let steps = &found[0].steps;
        assert_eq!((steps[0].line, steps[0].command.as_str()), (4, "a b \\\nc"));
        assert_eq!((steps[0].output.as_slice(), steps[1].command.as_str()), (lines("out").as_slice(), "d"));
        assert_eq!([found[0].is_run, found[1].is_run], [true, false]);
    }

    #[test]
    fn code_within_a_sentence_is_read() {
        let found = inline("# T\n\nSee `fleet up`, and\n`a b`.\n\n```console\n$ c\n```\n");
        assert_eq!(found, [(3, "fleet up".to_string()), (4, "a b".to_string())]);
    }

    #[test]
    fn a_command_that_its_reader_interrupts_is_known() {
        let step = |output: &str| Step { line: 1, command: "fleet up".to_string(), output: lines(output) };
        assert_eq!(step("ready\n^C").until_interrupt(), Some(lines("ready").as_slice()));
        assert_eq!(step("ready").until_interrupt(), None);
        assert_eq!(step("").until_interrupt(), None);
    }

    #[test]
    fn a_block_that_no_test_would_run_is_refused() {
        for (text, says) in [
            ("```\n$ a\n```\n", "p.md:2: found a block of the language \"\""),
            ("```sh\na\n```\n", "the language \"sh\""),
            ("x\n\n    $ a\n", "p.md:3: found an indented block"),
            ("```console\nout\n```\n", "before the first command"),
            ("```console\n```\n", "found no command"),
        ] {
            let error = format!("{:#}", blocks("p.md", text).expect_err("refused"));
            assert!(error.contains(says), "{says} in {error}");
        }
    }

    #[test]
    fn what_is_printed_is_compared() {
        let check = |expected: &str, printed: &str, fits: bool| {
            assert_eq!(matches(&lines(expected), printed), fits, "{expected:?} and {printed:?}");
        };
        check("NAME   AGE\na      5s", "NAME     AGE\na        1m10s\n", true);
        check("NAME   AGE\na      5s", "NAME     AGE\na        soon\n", false);
        check("a\n...\nz", "a\nb\nc\nz\n", true);
        check("a\n...\nz", "a\nb\n", false);
        check("...", "", true);
        check("", "", true);
        check("", "something\n", false);
        check("x ... z", "x y y z", true);
        check("(... ms to ready).", "(41 ms to ready).", true);
        check("root-child-2-6qmlf", "root-child-2-bcd24", true);
        check("root-child-2-6qmlf", "root-child-3-bcd24", false);
        check("pytorch-tests", "pytorch-other", false);
        check("job-...-qu", "job-abc-qu", true);
        check("{...\"b\":...", "{\"a\":1,\"b\": [2, 3]}", true);
        check("{...\"b\":...", "{\"code\": 401}", false);
        check("a...b...c", "a1b2c", true);
        check("a...b...c", "a1c2b", false);
        check("aa...a", "aa", false);
        check("see a... b", "see abc c", false);
        check("since 5s.", "since 12s.", true);
        check("a", "a\nb", false);
    }
}
