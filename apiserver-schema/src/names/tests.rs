use super::*;

#[test]
fn a_name_may_break_several_rules() {
    let long = format!("{}.", "A".repeat(253));
    assert_eq!(of(NameRule::Subdomain, &long), ["must be no more than 253 characters", DNS_SUBDOMAIN]);
    let dotted = format!("a.{}", "b".repeat(63));
    assert_eq!(of(NameRule::Label, &dotted), ["must be no more than 63 characters", "must not contain dots"]);
    assert_eq!(of(NameRule::Path, "a/%"), ["may not contain '/'", "may not contain '%'"]);
    assert_eq!(of(NameRule::Path, ".."), ["may not be '..'"]);
    assert_eq!(label_1035(&"1".repeat(64)), ["must be no more than 63 characters", LABEL_1035]);
    assert!(of(NameRule::Subdomain, "a-b.c0").is_empty());
    let long = format!("{}.b", "a".repeat(63));
    assert_eq!(label(&long), ["must be no more than 63 characters", "must not contain dots"]);
    assert_eq!(label("A_"), [DNS_LABEL]);
    assert_eq!(subdomain(""), [DNS_SUBDOMAIN]);
    assert!(subdomain("a.b-c.0").is_empty());
}

#[test]
fn what_names_begin_with_may_end_in_a_dash() {
    assert!(base(NameRule::Subdomain, "job-").is_empty());
    assert_eq!(base(NameRule::Subdomain, "-"), [DNS_SUBDOMAIN]);
    assert!(base(NameRule::Label, "a_-").is_empty(), "the letter before the dash is not looked at");
    assert_eq!(base(NameRule::Label, "a.b-"), ["must not contain dots"]);
    assert_eq!(base(NameRule::Subdomain, "ä-"), [DNS_SUBDOMAIN]);
    assert!(base(NameRule::Path, "..").is_empty());
}

#[test]
fn keys_and_values_of_labels() {
    let key = |what: &str| format!("name part {what}");
    assert_eq!(qualified(""), [key("must be non-empty"), key(KEY)]);
    assert_eq!(
        qualified("/a_"),
        ["prefix part must be non-empty".to_string(), key(KEY)],
        "both parts are looked at"
    );
    assert_eq!(qualified("A/b"), [format!("prefix part {DNS_SUBDOMAIN}")]);
    assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist of"));
    assert_eq!(label_value(&"-".repeat(64)), ["must be no more than 63 bytes", LABEL_VALUE]);
    assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
    assert_eq!(qualified("A/-"), [format!("prefix part {DNS_SUBDOMAIN}"), key(KEY)]);
    assert_eq!(qualified(&"a".repeat(64)), [key("must be no more than 63 bytes")]);
    assert!(qualified("a.b/c").is_empty());
    assert!(label_value("").is_empty() && qualified("example.com/a").is_empty());
}
