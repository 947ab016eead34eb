use super::*;

fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    let p = Pattern::new(pattern);
    for t in yes {
        assert!(p.is_match(t), "{pattern} should match {t}");
    }
    for t in no {
        assert!(!p.is_match(t), "{pattern} should not match {t}");
    }
}

#[test]
fn usual_patterns() {
    check("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", &["a", "a-b"], &["", "-a", "a-", "A"]);
    check(r"^\d{2,3}$", &["12", "123"], &["1", "1234", "١٢"]);
    check("^(foo|ba[rz])+$", &["foo", "barbaz"], &["fo", ""]);
    check("b", &["abc"], &["ac"]);
    check(r"^(([0-9]+(\.[0-9]+)?(s|m|h))+|0)$", &["10s", "1h30m", "0", "1.5h"], &["10", "s"]);
    check("^(a*)*$", &["aaaa", ""], &["aaab"]);
    check("(?i)a", &["A", "a"], &["b"]);
    check("(", &["what is no pattern", ""], &[]);
}

#[test]
fn one_text_is_compiled_once() {
    let (a, b) = (Pattern::new("^once$"), Pattern::new("^once$"));
    assert!(a.is_match("once") && Arc::ptr_eq(&a.0, &b.0) && b.0.compiled.get().is_some());
    assert_eq!(a.text(), "^once$");
    for n in 0..2 * MOST_KNOWN {
        Pattern::new(&format!("^{n}$"));
    }
    let known = KNOWN.lock().expect("the patterns");
    assert!(known.len() <= MOST_KNOWN && known.contains_key("^once$"), "{}", known.len());
}
