use super::*;

#[test]
fn colours_follow_the_terminal() {
    let check = |is_terminal: bool, set: &[(&str, &str)], expected: bool| {
        let variable =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        assert_eq!(wants_colours(is_terminal, variable), expected, "{is_terminal} {set:?}");
    };
    check(true, &[("TERM", "xterm")], true);
    check(false, &[("TERM", "xterm")], false);
    check(true, &[("TERM", "dumb")], false);
    check(true, &[], false);
    check(true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false);
    check(true, &[("TERM", "xterm"), ("NO_COLOR", "")], true);
}

#[test]
fn long_lines_hang_below_their_text() {
    let text = "Job:  short\n  Waits:      0 of 2 clusters can hold it\nsome words without a label here\n     indented words without a label\n\
                ok       \n    -> do this and do that\n  Key:  a-word-that-is-longer-than-the-line then";
    insta::assert_snapshot!(fold(text, Some(28)), @r"
    Job:  short
      Waits:      0 of 2
                  clusters can
                  hold it
    some words without a label
      here
         indented words without
         a label
    ok       
        -> do this and do that
      Key:  a-word-that-is-longer-than-the-line
            then
    ");
    assert_eq!(fold(text, None), text);
}

#[test]
fn states_are_painted_and_nothing_else() {
    assert_eq!(paint("a   Running   1s\n"), "a   \u{1b}[32mRunning\u{1b}[0m   1s\n");
    assert_eq!(paint("running-man\n"), "running-man\n");
    let mut painter = Painter::new(Vec::new());
    painter.write_all(b"x FAI").unwrap();
    painter.write_all(b"LED\ny").unwrap();
    painter.flush().unwrap();
    assert_eq!(String::from_utf8(painter.out).unwrap(), "x \u{1b}[31mFAILED\u{1b}[0m\ny");
}

#[test]
fn texts_of_others_are_plain() {
    let check = |text: &str, expected: &str| assert_eq!(plain(text), expected);
    check(
        "waits\n\tfor b\u{e9}b\u{e9} \u{1f469}\u{200d}\u{1f680}\n",
        "waits\n\tfor b\u{e9}b\u{e9} \u{1f469}\u{200d}\u{1f680}\n",
    );
    check("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m");
    check("over\rwritten\u{8}\u{0}", "over\\u{d}written\\u{8}\\u{0}");
    check(
        "\u{85}\u{9d}\u{2028}\u{2066}x\u{2069}\u{200f}\u{61c}",
        "\\u{85}\\u{9d}\\u{2028}\\u{2066}x\\u{2069}\\u{200f}\\u{61c}",
    );
    let mut painted = Vec::new();
    Painter::new(&mut painted).write_all(b"Running \x1b[2J\n").expect("it is written");
    assert_eq!(String::from_utf8_lossy(&painted), "\u{1b}[32mRunning\u{1b}[0m \\u{1b}[2J\n");
}
