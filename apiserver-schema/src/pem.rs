//! Blocks of PEM as the real server reads them: with headers, between lines of anything else.
//!
//! Inputs: texts. Absent on purpose: what a block is for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The label of a certificate.
pub const CERTIFICATE: &str = "CERTIFICATE";

const BEGIN: &str = "-----BEGIN ";
/// The end of a line before, and how the line at the end begins.
const END: &str = "\n-----END ";
const DASHES: &str = "-----";

/// One block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// What it says it is.
    pub label: String,
    /// Lines with a colon stand before the content.
    pub has_headers: bool,
    /// The content, as bytes.
    pub contents: Vec<u8>,
}

/// The first line of a text without the blanks at its end, and what follows it.
fn first_line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.trim_end_matches([' ', '\t', '\r']), rest)
}

/// The first block of a text, and what follows it. What only looks like one is passed over. An end belongs to the last beginning
/// before it, so that each part of a text is read once, whatever it repeats.
pub fn next_block(text: &str) -> Option<(Block, &str)> {
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once(END)?;
        rest = after;
        let begin = before.rfind(BEGIN).filter(|at| *at == 0 || before[..*at].ends_with('\n'));
        let Some(begin) = begin else { continue };
        let (line, mut body) = first_line(&before[begin + BEGIN.len()..]);
        let Some(label) = line.strip_suffix(DASHES) else { continue };
        let mut has_headers = false;
        loop {
            let (line, after) = first_line(body);
            if !line.contains(':') {
                break;
            }
            (body, has_headers) = (after, true);
        }
        // Behind headers there is a line of its own, be it an empty one.
        let is_open = has_headers && body.is_empty() && !before.ends_with('\n');
        let (last, after) = first_line(after);
        if is_open || last.strip_suffix(DASHES) != Some(label) {
            continue;
        }
        let bare: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if let Ok(contents) = STANDARD.decode(bare) {
            return Some((Block { label: label.to_string(), has_headers, contents }, after));
        }
    }
}

/// Why bytes are no certificate, or None.
pub fn certificate_problem(der: &[u8]) -> Option<&'static str> {
    X509Certificate::from_der(der).is_err().then_some("x509: malformed certificate")
}

#[cfg(test)]
mod tests;
