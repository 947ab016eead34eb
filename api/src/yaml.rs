//! The only module that reads and writes YAML.
//!
//! Kubernetes reads YAML 1.1-like documents; strict booleans keep a bare `y` or `no` a string, as manifests
//! expect. Deliberately absent: files (callers read them and name them in their errors).

mod located;

use serde::{Serialize, de::DeserializeOwned};

pub use located::{Located, Node};

/// A document that could not be parsed: its position in the stream, and the parser's message.
#[derive(Debug, thiserror::Error)]
#[error("document {document}: {message}")]
pub struct YamlError {
    /// 1-based position of the document in the stream.
    pub document: usize,
    /// The parser's message, with line and column.
    pub message: String,
}

/// For a document of this length: its aliases may not expand to more than that.
fn options(text: &str) -> serde_saphyr::Options {
    let mut options = serde_saphyr::options! {
        strict_booleans: true,
        legacy_octal_numbers: true,
    };
    options.alias_limits.max_total_replayed_events = text.len();
    options
}

/// The library's sentence without its advice to programmers.
fn without_advice(sentence: &str) -> String {
    sentence.replace(", set DuplicateKeyPolicy in Options if acceptable", "")
}

/// Reads one document.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options(text))
        .map_err(|error| YamlError { document: 1, message: without_advice(&error.to_string()) })
}

/// Reads one document with the line of each value. A document may have any length, but its aliases may not
/// expand to more than its own length.
///
/// # Errors
/// The line, and one sentence with what was found there.
pub fn read_located(text: &str) -> Result<Located, (u64, String)> {
    let mut options = options(text);
    if let Some(budget) = options.budget.as_mut() {
        for bound in [&mut budget.max_events, &mut budget.max_nodes, &mut budget.max_total_scalar_bytes] {
            *bound = (*bound).max(text.len());
        }
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let rendered = without_advice(&error.without_snippet().to_string());
        let sentence = rendered.split_whitespace().collect::<Vec<_>>().join(" ");
        (line, sentence)
    })
}

/// Reads every document of a stream; empty documents are skipped.
pub fn read_all<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    let mut documents = Vec::new();
    for (index, document) in split(text).into_iter().enumerate() {
        let blank = document.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if blank {
            continue;
        }
        let parsed = serde_saphyr::from_str_with_options(&document, options(&document)).map_err(|error| {
            YamlError { document: index + 1, message: without_advice(&error.to_string()) }
        })?;
        documents.push(parsed);
    }
    Ok(documents)
}

/// Splits a stream at lines that are exactly a document marker.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    documents
}

/// Writes one document.
pub fn write<T: Serialize>(value: &T) -> Result<String, YamlError> {
    serde_saphyr::to_string(value)
        .map_err(|error| YamlError { document: 1, message: without_advice(&error.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_stay_strings_and_streams_are_split() {
        let documents: Vec<serde_json::Value> =
            read_all("# a comment\n---\na: y\nb: 0644\n---\nc: true\n").expect("reads");
        assert_eq!(documents, vec![serde_json::json!({"a": "y", "b": 420}), serde_json::json!({"c": true})]);
    }

    /// Nine levels of nine aliases each are 400 million values from 400 bytes.
    #[test]
    fn aliases_expand_to_no_more_than_the_document() {
        let mut text = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_string();
        for (name, above) in ('b'..='j').zip('a'..='i') {
            let nine = vec![format!("*{above}"); 9].join(",");
            text.push_str(&format!("{name}: &{name} [{nine}]\n"));
        }
        let error = read::<serde_json::Value>(&text).expect_err("refused");
        assert!(error.message.contains("alias"), "{}", error.message);
        let some: serde_json::Value =
            read("base: &b {x: 1, y: 2}\none: *b\ntwo: {<<: *b, z: 3}\n").expect("reads");
        assert_eq!(some["one"], serde_json::json!({"x": 1, "y": 2}));
        let deep = format!("{}{}", "[".repeat(1900), "]".repeat(1900));
        read::<serde_json::Value>(&deep).expect_err("refused");
    }

    #[test]
    fn an_unreadable_document_is_named() {
        let error = read_all::<serde_json::Value>("a: 1\n---\nb: [\n").expect_err("refused");
        assert_eq!(error.document, 2);
        let twice = read::<serde_json::Value>("a: 1\na: 2\n").expect_err("refused").to_string();
        assert!(twice.contains("duplicate mapping key: a") && !twice.contains("Options"), "{twice}");
        let (line, twice) = read_located("a: 1\na: 2\n").expect_err("refused");
        assert!(
            line == 2 && twice.contains("duplicate mapping key: a") && !twice.contains("Options"),
            "{twice}"
        );
    }
}
