//! The one place where YAML is read and written.
//!
//! Kubernetes reads YAML 1.1-like documents; strict booleans keep a bare `y` or `no` a string, as
//! manifests mean it. Deliberately absent: files (callers read them and name them in their errors).

mod located;

use serde::{Serialize, de::DeserializeOwned};

pub use located::{Located, Node};

/// A document that could not be read: which one of the stream, and what the reader found.
#[derive(Debug, thiserror::Error)]
#[error("document {document}: {message}")]
pub struct YamlError {
    /// 1-based position of the document in the stream.
    pub document: usize,
    /// What the reader found, with line and column.
    pub message: String,
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        legacy_octal_numbers: true,
    }
}

/// Reads one document.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| YamlError { document: 1, message: error.to_string() })
}

/// Reads one document with the line of each value. It may be as long as it is; what its aliases repeat may not be
/// longer than itself.
///
/// # Errors
/// The line, and in one sentence what the reader found there.
pub fn read_located(text: &str) -> Result<Located, (u64, String)> {
    let mut options = options();
    if let Some(budget) = options.budget.as_mut() {
        for bound in [&mut budget.max_events, &mut budget.max_nodes, &mut budget.max_total_scalar_bytes] {
            *bound = (*bound).max(text.len());
        }
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let rendered = error.without_snippet().to_string();
        let sentence = rendered.split_whitespace().collect::<Vec<_>>().join(" ");
        (line, sentence)
    })
}

/// Reads every document of a stream; empty ones are passed over.
pub fn read_all<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    let mut documents = Vec::new();
    for (index, document) in split(text).into_iter().enumerate() {
        let blank = document.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if blank {
            continue;
        }
        let parsed = serde_saphyr::from_str_with_options(&document, options())
            .map_err(|error| YamlError { document: index + 1, message: error.to_string() })?;
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
    serde_saphyr::to_string(value).map_err(|error| YamlError { document: 1, message: error.to_string() })
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

    #[test]
    fn an_unreadable_document_is_named() {
        let error = read_all::<serde_json::Value>("a: 1\n---\nb: [\n").expect_err("refused");
        assert_eq!(error.document, 2);
    }
}
