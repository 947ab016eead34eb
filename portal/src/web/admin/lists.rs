//! Lists of who may do something, as one writes them in a field.

/// Stands for no rule at all; an empty field for a rule that admits nobody.
pub const EVERYBODY: &str = "*";

/// A list as a field shows it.
pub fn shown(list: Option<&Vec<String>>) -> String {
    list.map_or_else(|| EVERYBODY.to_owned(), |list| list.join(", "))
}

/// The entries of a field; none where it says everybody.
pub fn read(text: &str) -> Option<Vec<String>> {
    let entries = text.split([',', ' ', '\n', '\r']).map(str::trim).filter(|entry| !entry.is_empty());
    let entries: Vec<String> = entries.map(str::to_owned).collect();
    (entries != [EVERYBODY]).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_not_nobody() {
        assert_eq!(read(" * "), None);
        assert_eq!(read(""), Some(Vec::new()));
        let list = Some(vec!["user:alice".to_owned(), "group:ml".to_owned()]);
        assert_eq!(read("user:alice,group:ml"), list);
        assert_eq!(read(&shown(list.as_ref())), list);
        assert_eq!(read(&shown(None)), None);
    }
}
