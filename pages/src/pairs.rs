//! Names and values of queries and forms, in their order; a name may come more than once.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Names and values as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

impl Pairs {
    /// Reads `a=b&c=d`, with `+` for a space.
    pub fn read(text: &str) -> Self {
        let decode = |part: &str| {
            let spaced = part.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    /// The first value of that name; empty without one.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.as_str())
    }

    pub fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// As one part of a path or a query.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// `path?a=b&c=d`, without the pairs that have no value.
pub fn link(path: &str, pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let odd = "a b&c=d/<ä>+%";
        let text = link("/jobs", &[("text", odd), ("empty", ""), ("state", "Waiting")]);
        let (path, query) = text.split_once('?').expect("a query");
        let pairs = Pairs::read(query);
        assert_eq!(
            (path, pairs.get("text"), pairs.get("state"), pairs.get("none")),
            ("/jobs", odd, "Waiting", "")
        );
        assert_eq!(Pairs::read("a=1&a=2&&b").all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(Pairs::read("a+b=%zz").0, [("a b".to_owned(), "%zz".to_owned())]);
    }
}
