use super::*;

#[test]
fn the_byte_that_is_wrong_is_named() {
    for (text, want) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("{\"a\":", "unexpected end of JSON input"),
        ("\"a", "unexpected end of JSON input"),
        ("tru", "invalid character ' ' in literal true (expecting 'e')"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{a", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1", "invalid character '1' after object key"),
        ("{\"a\":1 \"b\"", "invalid character '\"' after object key:value pair"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("\"\\u00g\"", "invalid character 'g' in \\u hexadecimal character escape"),
        ("tralse", "invalid character 'a' in literal true (expecting 'u')"),
        ("01", "invalid character '1' after top-level value"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
    ] {
        assert_eq!(problem(text.as_bytes()).as_deref(), Some(want), "{text}");
    }
    for text in ["{}", "[]", " {\"a\": [1, -0.5e3, true, null, {\"b\": {}}]} ", "1", "\"\\u00e4\"", "[[],{}]"]
    {
        assert_eq!(problem(text.as_bytes()), None, "{text}");
    }
    assert_eq!(problem(b"\xff").as_deref(), Some("invalid character 'ÿ' looking for beginning of value"));
}

#[test]
fn bodies_are_shown_by_their_start() {
    assert_eq!(summary(b""), "<empty>");
    assert_eq!(summary(b"{x"), "{x");
    assert_eq!(summary(b"[]"), "5b5d");
    assert_eq!(summary(&[b'{'; 40]), format!("{} ...", "{".repeat(30)));
}
