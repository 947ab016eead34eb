use super::*;

fn blocks(text: &str) -> (Vec<(String, bool, String)>, String) {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((block, after)) = next_block(rest) {
        let contents = String::from_utf8(block.contents).unwrap_or_default();
        found.push((block.label, block.has_headers, contents));
        rest = after;
    }
    (found, rest.to_string())
}

#[test]
fn blocks_stand_between_other_lines() {
    let text = "junk -----BEGIN X-----\n-----BEGIN A B-----\naGVs\nbG8=\n-----END A B-----\nmore\n\
        -----BEGIN C-----\r\nKey: value\n\naGk=\r\n-----END C-----";
    let (found, rest) = blocks(text);
    let of = |label: &str, headers, contents: &str| (label.to_string(), headers, contents.to_string());
    assert_eq!(found, [of("A B", false, "hello"), of("C", true, "hi")]);
    assert_eq!(rest, "");
}

#[test]
fn what_only_looks_like_a_block_is_passed_over() {
    for text in [
        "",
        "-----BEGIN A-----",
        "-----BEGIN A-----\naGk=\n-----END B-----\n",
        "-----BEGIN A\naGk=\n-----END A-----\n",
        "-----BEGIN A-----\n%%\n-----END A-----\n",
        "-----BEGIN A-----\nKey: value\n-----END A-----\n",
        "-----BEGIN A-----\naGk=\n-----END A-----x\n",
        "-----BEGIN A-----\naGk=\nx-----BEGIN A-----\n-----END A-----\n",
    ] {
        assert!(blocks(text).0.is_empty(), "{text}");
    }
    let (found, rest) = blocks("-----BEGIN A-----\n-----END A-----\nxx");
    assert_eq!((found, rest.as_str()), (vec![("A".to_string(), false, String::new())], "xx"));
}

/// With each beginning followed to the end of the text it takes minutes.
#[test]
fn a_text_of_beginnings_is_read_once() {
    const LINES: usize = 200_000;
    let begin = "-----BEGIN A-----\n";
    let open = begin.repeat(LINES);
    assert_eq!(next_block(&open), None);
    let (found, rest) = blocks(&format!("{open}aGk=\n-----END A-----\n"));
    assert_eq!((found, rest.as_str()), (vec![("A".to_string(), false, "hi".to_string())], ""));
    assert_eq!(next_block(&"-----BEGIN A-----\n-----END B-----\n".repeat(LINES)), None);
}
