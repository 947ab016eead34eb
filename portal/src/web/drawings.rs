//! Drawings of a page as frames of the event stream, the same bytes for all who see the same.
//!
//! Who has the drawing before is sent what has changed since; who comes, or was too slow, is sent all of it.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;

use super::patch::patch;

/// What is shown, as frames of the event stream.
pub struct Drawing {
    /// No other text of this process has it.
    number: u64,
    text: String,
    /// Made for the first who needs it.
    whole: OnceLock<Bytes>,
    /// Number of the drawing before, and what has changed since.
    change: Option<(u64, Bytes)>,
}

/// Numbers drawings.
#[derive(Default)]
pub struct Numbers(AtomicU64);

impl Numbers {
    /// The drawing of a page that follows on another one; `None` where it is the same.
    pub fn next(&self, before: Option<&Drawing>, text: String) -> Option<Arc<Drawing>> {
        if before.is_some_and(|before| before.text == text) {
            return None;
        }
        let change = before.and_then(|before| {
            let patch = patch(&before.text, &text)?;
            Some((before.number, Bytes::from(format!("event: change\ndata: {patch}\n\n"))))
        });
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Arc::new(Drawing { number, text, whole: OnceLock::new(), change }))
    }
}

impl Drawing {
    /// What brings a browser up to date that has this drawing, or none; `None` where nothing has changed.
    pub fn frame(&self, has: Option<&Self>) -> Option<Bytes> {
        let has = has.map(|drawing| drawing.number);
        match &self.change {
            _ if has == Some(self.number) => None,
            Some((before, change)) if has == Some(*before) => Some(change.clone()),
            _ => Some(self.whole.get_or_init(|| frame(&self.text)).clone()),
        }
    }
}

/// As an event stream has it: each line of the text is a line of data.
fn frame(text: &str) -> Bytes {
    let mut frame = String::with_capacity(text.len() + 64);
    frame.push_str("event: page\n");
    // A carriage return would end a line of the stream, too; to a page it is white space.
    for line in text.split(['\n', '\r']) {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    Bytes::from(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_frame() {
        assert_eq!(frame("<p>a</p>"), "event: page\ndata: <p>a</p>\n\n");
        assert_eq!(
            frame("a\n\nevent: over\r\rid: 7"),
            "event: page\ndata: a\ndata: \ndata: event: over\ndata: \ndata: id: 7\n\n"
        );
    }

    #[test]
    fn each_browser_is_sent_what_it_lacks() {
        let numbers = Numbers::default();
        let rows = |last: &str| format!("<table>{}<tr><td>{last}</table>", "<tr><td>a row".repeat(20));
        let next = |before: Option<&Drawing>, text: &str| numbers.next(before, rows(text));
        let starts = |frame: Option<Bytes>| {
            frame.map(|frame| String::from_utf8_lossy(&frame).lines().next().unwrap_or("").to_owned())
        };
        let whole = Some("event: page".to_owned());
        let one = next(None, "1").expect("the first");
        assert!(next(Some(&one), "1").is_none());
        let two = next(Some(&one), "2").expect("another");
        let three = next(Some(&two), "3").expect("another");
        assert_eq!(starts(one.frame(None)), whole);
        assert_eq!(one.frame(Some(&one)), None);
        assert_eq!(starts(two.frame(Some(&one))), Some("event: change".to_owned()));
        assert_eq!(starts(three.frame(Some(&two))), Some("event: change".to_owned()));
        // Too slow, or of another page.
        assert_eq!(starts(three.frame(Some(&one))), whole);
        assert_eq!(starts(two.frame(next(None, "1").as_deref())), whole);
        let change = two.frame(Some(&one)).expect("a change");
        assert!(!change[..change.len() - 2].windows(2).any(|pair| pair == b"\n\n"), "{change:?}");
    }
}
