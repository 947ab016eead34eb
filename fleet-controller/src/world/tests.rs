use fleet_api::QueueUnit;
use serde_json::json;

use super::*;
use crate::gather::{Change, Observation};

fn unit(version: &str) -> QueueUnit {
    let value = json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit",
        "metadata": {"namespace": "team", "name": "job-qu", "uid": "u", "resourceVersion": version},
        "spec": {}});
    serde_json::from_value(value).expect("a unit")
}

#[test]
fn a_unit_that_an_older_listing_does_not_name_is_taken_in_again() {
    let mut world = World::default();
    for change in [
        Change::reset(Vec::new()),
        Change::Apply(unit("5")),
        Change::reset(Vec::new()),
        Change::Apply(unit("5")),
    ] {
        world.observe(Observation::Unit(change));
    }
    assert_eq!(world.units.len(), 1);
}
