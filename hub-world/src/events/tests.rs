use fleet_api::binding::TargetComponent;

use super::*;

#[test]
fn the_message_is_the_one_the_walkthrough_prints() {
    let component = |name: &str, replicas| TargetComponent { name: name.to_string(), replicas };
    let gang = TargetCluster {
        name: "cfxxxxxx".to_string(),
        replicas: 0,
        components: vec![component("master", 1), component("worker", 2)],
    };
    assert_eq!(
        bound_message(&[gang]),
        "Binding has been scheduled successfully. Result: {cfxxxxxx:0,[{master 1} {worker 2}]}"
    );
    let plain = |name: &str, replicas| TargetCluster { name: name.to_string(), replicas, components: vec![] };
    assert_eq!(
        bound_message(&[plain("east", 2), plain("west", 1)]),
        "Binding has been scheduled successfully. Result: {east:2, west:1}"
    );
}
