use super::*;
use crate::field::Causes;

#[test]
fn urls_are_told_wrong_by_their_parts() {
    for (url, says) in [
        ("https://h.example.com:8443/x", ""),
        ("https://[::1]:8443", ""),
        ("http://h", "Invalid value: \"http\": 'https' is the only allowed URL scheme; desired"),
        ("https:///x", "Invalid value: \"\": host must be specified"),
        ("https://u:p@h", "Invalid value: \"u:p\": user information is not permitted"),
        ("https://h?a=b", "Invalid value: \"a=b\": query parameters are not"),
        ("https://h#f", "Invalid value: \"f\": fragments are not"),
        (
            "https://h:x",
            "Required value: url must be a valid URL: parse \"https://h:x\": invalid port \":x\" after host",
        ),
        ("://h", "Required value: url must be a valid URL: parse \"://h\": missing protocol scheme"),
    ] {
        let causes = Causes::default();
        let value = json!({"url": url});
        check(&At::root(&value, &causes));
        let found = causes.into_inner();
        let first = found.first().map(|cause| cause.message.as_str()).unwrap_or_default();
        assert!(first.starts_with(says) && first.is_empty() == says.is_empty(), "{url}: {found:?}");
    }
}
