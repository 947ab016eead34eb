//! A job that is edited while it waits.

use super::*;

#[test]
fn the_unit_of_a_waiting_job_follows_its_edits() {
    let mut hub = Hub::new(batch(), &[]);
    let waiting = Waiting::new(Reason::InsufficientQuota, "root/a has no more");
    hub.settle(Some(&waiting));
    hub.settle(Some(&waiting));
    let unit = |hub: &Hub| json!(hub.world.units.values().next().expect("a unit"));
    assert_eq!(unit(&hub)["metadata"]["annotations"], Value::Null, "it has the place of its creation");
    let component = json!([{"name": "worker", "replicas": 3, "request": {"cpu": "2"}}]);
    hub.change_binding(&json!({"spec": {"priority": 7, "components": component,
        "queuePlace": {"since": "2026-01-01T10:00:00Z"}}}));
    hub.settle(Some(&waiting));
    let edited = unit(&hub);
    assert_eq!(edited["metadata"]["annotations"][names::QUEUE_PLACE_ANNOTATION], "2026-01-01T10:00:00Z");
    let spec = &edited["spec"];
    let asked = json!({"cpu": "6"});
    assert_eq!((&spec["priority"], &spec["podSet"]), (&json!(7), &json!([{"name": "worker", "count": 3}])));
    assert_eq!((&spec["request"], &spec["resource"]), (&asked, &asked));
    assert!(hub.settle(Some(&waiting)).is_empty(), "once");
    // What it waits with no longer holds.
    hub.change_binding(&json!({"spec": {"priority": 0, "queuePlace": {"since": null}}}));
    hub.settle(Some(&waiting));
    assert_eq!(unit(&hub)["metadata"]["annotations"][names::QUEUE_PLACE_ANNOTATION], Value::Null);
    assert_eq!(unit(&hub)["spec"]["priority"], 0);
    assert!(hub.settle(Some(&waiting)).is_empty(), "once");
}
