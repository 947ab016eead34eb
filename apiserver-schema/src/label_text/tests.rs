use super::*;
use crate::validate;

#[test]
fn requirements_are_read() {
    let of = |text: &str| {
        let list = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let one = |r: &Requirement| format!("{} {:?} {}", r.key, r.operator, r.values.join("|"));
        list.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(of(""), "");
    assert_eq!(of("a=1,b == 2 , c!=3"), "a In 1; b In 2; c NotIn 3");
    assert_eq!(of("x in (foo,,baz),y,z notin ()"), "x In |baz|foo; y Exists ; z NotIn ");
    assert_eq!(of("!a,b>1,c < 2"), "a Missing ; b Greater 1; c Less 2");
    assert_eq!(of("in in (in, notin),a="), "in In in|notin; a In ");
}

#[test]
fn the_token_that_does_not_fit_is_named() {
    let pre = "unable to parse requirement: ";
    for (text, want) in [
        ("a b", format!("{pre}found 'b', expected: in, notin, =, ==, !=, gt, lt")),
        ("a===b", format!("{pre}found '=', expected: identifier")),
        ("a in", format!("{pre}found '' expected: '('")),
        ("a in (", format!("{pre}found '', expected: ',', ')' or identifier")),
        ("a in (b", format!("{pre}found '', expected: ',' or ')'")),
        ("!", format!("{pre}found '', expected: identifier")),
        ("((", "found '(', expected: !, identifier, or 'end of string'".into()),
        (",a", "found ',', expected: !, identifier, or 'end of string'".into()),
        ("a=b,", "found '', expected: identifier after ','".into()),
        ("a=b c", "found 'c', expected: ',' or 'end of string'".into()),
        (
            "a>x",
            format!(
                "{pre}values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        ("a=-", format!("{pre}values[0][a]: Invalid value: \"-\": {}", validate::LABEL_VALUE)),
        ("-=b", format!("{pre}<nil>: Invalid value: \"-\": {}", names::qualified("-").join(""))),
    ] {
        assert_eq!(parse(text).unwrap_err(), want, "{text}");
    }
}
