//! Names, lists and parameters as the kinds of this group have them.
//!
//! Inputs: fields under validation. Each thing that is wrong is told. Absent on purpose: what a field means.

use fleet_apiserver_pods::shown;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::go_text;
use fleet_apiserver_schema::names::{self, NameRule};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Longest name of a pool, in bytes: that of a node.
const LONGEST_POOL: usize = 253;
/// Longest domain of an attribute, and longest name without it, in bytes.
const LONGEST_DOMAIN: usize = 63;
const LONGEST_ID: usize = 32;
/// Bytes of a UUID in its normal form.
const UUID: usize = 36;

const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
    alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
    '[A-Za-z_][A-Za-z0-9_]*')";

/// A label of a domain name, which also an empty text is not.
pub fn label(at: &At) {
    at.any_name(NameRule::Label);
}

/// A label of a domain name, which has to be there.
pub fn needed_label(at: &At) {
    if at.text().is_empty() { at.required("") } else { label(at) }
}

/// The name of a pool: names of nodes with slashes between them.
pub fn pool(at: &At) {
    if at.text().is_empty() {
        return at.required("");
    }
    if at.text().len() > LONGEST_POOL {
        at.too_long(LONGEST_POOL);
    }
    at.text().split('/').for_each(|part| at.tell(part, &names::subdomain(part)));
}

/// The name of an attribute or capacity, with a domain or without one, told at this place. One with more slashes is let
/// through, as by the real server.
pub fn qualified(at: &At, name: &str) {
    let identifier = |id: &str| {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        if id.len() > LONGEST_ID {
            at.too_long(LONGEST_ID);
        }
        if !id.starts_with(letter) || !id.chars().all(|c| letter(c) || c.is_ascii_digit()) {
            at.tell(id, &[IDENTIFIER]);
        }
    };
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [id] => identifier(id),
        [domain, id] => {
            if domain.is_empty() {
                at.tell("", &["the domain must not be empty"]);
            } else {
                at.driver_name_as(domain);
            }
            if id.is_empty() {
                at.tell("", &["the name must not be empty"]);
            } else {
                identifier(id);
            }
        }
        _ => {}
    }
}

/// The name of an attribute with its domain.
pub fn fully_qualified(at: &At) {
    qualified(at, at.text());
    if !at.text().contains('/') {
        at.invalid("a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// The identity of a share of a device.
pub fn uid(at: &At) {
    let text = at.text();
    if let Some(why) = uuid_problem(text) {
        at.invalid(&format!("error validating uid: {why}"));
    } else if text.len() != UUID || text != text.to_lowercase() {
        let form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        at.invalid(&format!("uid must be in RFC 4122 normalized form, {form}"));
    }
}

/// Why a text is no UUID in any of its forms.
fn uuid_problem(text: &str) -> Option<String> {
    const URN: &str = "urn:uuid:";
    let bytes = text.as_bytes();
    let bare = match bytes.len() {
        UUID => bytes,
        45 => match bytes.split_at(URN.len()) {
            (start, rest) if start.eq_ignore_ascii_case(URN.as_bytes()) => rest,
            (start, _) => return Some(format!("invalid urn prefix: {:?}", String::from_utf8_lossy(start))),
        },
        38 => match bytes {
            [b'{', inner @ .., b'}'] => inner,
            _ => return Some("invalid bracketed UUID format".into()),
        },
        32 => bytes,
        n => return Some(format!("invalid UUID length: {n}")),
    };
    let dash = |i: usize| bare.len() == UUID && matches!(i, 8 | 13 | 18 | 23);
    let fine = bare.iter().enumerate().all(|(i, b)| if dash(i) { *b == b'-' } else { b.is_ascii_hexdigit() });
    (!fine).then(|| "invalid UUID format".into())
}

/// True if a list has no more items than this; if it has, nothing else is told of it.
pub fn fits(list: &At, most: usize) -> bool {
    if list.len() > most {
        list.too_many(most);
    }
    list.len() <= most
}

/// Checks the items of a list that has no two alike, and no more than this; `shown` tells them apart.
pub fn set(list: &At, most: usize, mut check: impl FnMut(&At), shown: impl Fn(&At) -> String) {
    if !fits(list, most) {
        return;
    }
    list.items().for_each(|item| check(&item));
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let shown = shown(&item);
        if seen.contains(&shown) {
            item.note(Cause::new("FieldValueDuplicate", item.path(), format!("Duplicate value: {shown}")));
        } else {
            seen.insert(shown);
        }
    }
}

/// The text of a field of an item, as it is shown.
pub fn text_of(item: &At, field: &str) -> String {
    go_text::quoted(item.at(field).text())
}

/// The name of an attribute or capacity as places show it: one that is too long, without its middle.
pub fn shown_key(name: &str) -> Cow<'_, str> {
    const MARK: &str = "...";
    const LONGEST: usize = LONGEST_DOMAIN + 1 + LONGEST_ID;
    if name.len() <= LONGEST {
        return name.into();
    }
    let left = LONGEST - MARK.len();
    let start = name.floor_char_boundary(left.div_ceil(2));
    let end = name.ceil_char_boundary(name.len() - left / 2);
    format!("{}{MARK}{}", &name[..start], &name[end..]).into()
}

/// An object that only a driver reads.
pub fn object(at: &At, most: usize) {
    if !at.is_set() {
        at.required("");
    } else if at.value().to_string().len() > most {
        at.too_long(most);
    } else if !at.value().is_object() {
        at.tell("<value omitted>", &["must be a valid JSON object"]);
    }
}

/// A part of an object stays what it was; it is shown as the real server has it.
pub fn lasting(new: &At, old: &At, kind: &str) {
    if !same(new.value(), old.value()) {
        let found = go_text::cut(shown::line(kind, new.value()));
        new.wrong(&format!("{found}: field is immutable"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::json;

    fn told(text: &str, check: impl Fn(&At)) -> Vec<String> {
        let (value, causes) = (json!(text), Causes::default());
        check(&At::root(&value, &causes));
        causes.into_inner().into_iter().map(|cause| cause.message).collect()
    }

    #[test]
    fn names_of_attributes() {
        let found = |text: &str| told(text, fully_qualified);
        let invalid = |text: &str, why: &str| format!("Invalid value: {text:?}: {why}");
        assert!(found("A.b/c_1").is_empty());
        assert!(found("a/b/c").is_empty(), "as by the real server");
        assert_eq!(found("/b"), [invalid("", "the domain must not be empty")]);
        assert_eq!(found("a/"), [invalid("", "the name must not be empty")]);
        assert_eq!(found(&format!("a/{}", "x".repeat(33))), ["Too long: may not be more than 32 bytes"]);
        let lone = "a fully qualified name must be a domain and a name separated by a slash";
        assert_eq!(found("1b"), [invalid("1b", IDENTIFIER), invalid("1b", lone)]);
    }

    #[test]
    fn a_long_key_is_shown_without_its_middle() {
        assert_eq!(shown_key("a.b/c"), "a.b/c");
        let long = format!("{}{}", "a".repeat(100), "b".repeat(100));
        assert_eq!(shown_key(&long), format!("{}...{}", "a".repeat(47), "b".repeat(46)));
        assert_eq!(shown_key(&"\u{e4}".repeat(100)).chars().count(), 23 + 3 + 23);
    }

    #[test]
    fn names_of_pools() {
        assert!(told("a.b/c", pool).is_empty());
        assert_eq!(told("", pool), ["Required value"]);
        let found = told("A_//b", pool);
        assert!(
            found[0].starts_with("Invalid value: \"A_\": ") && found[1].starts_with("Invalid value: \"\": ")
        );
        assert_eq!(found.len(), 2);
        assert_eq!(told(&"a".repeat(254), pool)[0], "Too long: may not be more than 253 bytes");
    }

    #[test]
    fn identities_have_one_form() {
        let normal = "123e4567-e89b-12d3-a456-426614174000";
        assert!(told(normal, uid).is_empty());
        let form = |text: &str| {
            format!(
                "Invalid value: {text:?}: uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
            )
        };
        for text in [
            normal.to_uppercase(),
            normal.replace('-', ""),
            format!("{{{normal}}}"),
            format!("urn:uuid:{normal}"),
        ] {
            assert_eq!(told(&text, uid), [form(&text)]);
        }
        for (text, why) in [
            ("x".to_string(), "invalid UUID length: 1"),
            (normal.replace('1', "x"), "invalid UUID format"),
            (format!("({normal})"), "invalid bracketed UUID format"),
            (format!("urn:guid:{normal}"), "invalid urn prefix: \"urn:guid:\""),
        ] {
            assert_eq!(told(&text, uid), [format!("Invalid value: {text:?}: error validating uid: {why}")]);
        }
    }
}
