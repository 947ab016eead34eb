use super::*;
use serde_json::json;

#[test]
fn label_forms() {
    let o = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
    let check = |s: &str| Labels::parse(s).unwrap().matches(&o);
    assert!(check("a=1,b in (x, y)"));
    assert!(check("a==1,!c,b!=z,b notin (q),a>0,a<2,b"));
    assert!(!check("c"));
    assert!(!check("b notin (x)"));
    assert!(Labels::parse("a in x").is_err());
    assert!(Labels::parse("a b").is_err());
}

#[test]
fn field_forms() {
    let pods = crate::builtins::find("", "pods");
    let o = json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}});
    let check = |s: &str| Fields::parse(s, pods).unwrap().matches(&o);
    assert!(check("metadata.name=p,status.phase!=Failed,spec.nodeName="));
    assert!(!check("status.phase!=Running"));
    assert!(Fields::parse("spec.bogus=1", pods).is_err());
}
