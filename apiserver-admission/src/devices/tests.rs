use super::*;
use serde_json::json;

fn on(term: Value) -> Value {
    json!({"status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": [term]}}}})
}

#[test]
fn who_runs_beside_the_devices() {
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let claim = on(json!({"matchFields": [field]}));
    assert_eq!(node_of(&claim), Some("n1"));
    let more = json!({"key": "a", "operator": "Exists"});
    assert_eq!(node_of(&on(json!({"matchFields": [field], "matchExpressions": [more]}))), None);
    assert_eq!(node_of(&json!({})), None);
    let mut user = User::new("system:serviceaccount:a:b", &[]);
    assert!(!runs_on(&user, "n1"));
    user.extra.insert(NODE_NAME.into(), vec!["n1".into()]);
    assert!(runs_on(&user, "n1") && !runs_on(&user, "n2"));
    user.name = "bob".into();
    assert!(!runs_on(&user, "n1"));
}

#[test]
fn drivers_whose_reports_change() {
    let claim = |devices: Value| json!({"status": {"devices": devices}});
    let one =
        |driver: &str, data: i64| json!({"driver": driver, "pool": "p", "device": "d", "data": {"n": data}});
    let old = claim(json!([one("a.b", 1), one("c.d", 1), one("e.f", 1)]));
    let new = claim(json!([one("a.b", 1), one("c.d", 2), one("g.h", 1)]));
    assert_eq!(Vec::from_iter(changed_drivers(&old, &new)), ["c.d", "e.f", "g.h"]);
}
