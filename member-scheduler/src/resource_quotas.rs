//! ResourceQuotas: the limits of namespaces, for the scheduler's plugin resourcequota.
//!
//! A quota with scopes counts only some pods, which a PodGroup's minimum does not distinguish; the API server
//! enforces it.

use fleet_member_state::amounts;
use fleet_scheduler::resource_quotas::ResourceQuota;

use fleet_agent_ground::{Event, Object};
use fleet_member_state::MemberState;

/// Applies an event to the scheduler.
pub(crate) fn take(told: Event<Object>, state: &mut MemberState) {
    match told {
        Event::Apply(object) => {
            let quota = read(&object);
            state.cluster.set_resource_quota(object.namespace(), object.name(), quota);
        }
        Event::Gone((namespace, name)) => state.cluster.set_resource_quota(&namespace, &name, None),
        Event::Listed => {}
    }
}

/// `None`: the quota does not apply to all pods of a namespace.
fn read(object: &Object) -> Option<ResourceQuota> {
    let scoped = object.spec["scopes"].as_array().is_some_and(|scopes| !scopes.is_empty())
        || object.spec["scopeSelector"].is_object();
    // The status has the enforced limits; before the first status, the spec counts.
    let status = &object.status;
    let hard = if status["hard"].is_object() { &status["hard"] } else { &object.spec["hard"] };
    (!scoped).then(|| ResourceQuota { hard: amounts(hard), used: amounts(&status["used"]) })
}

#[cfg(test)]
mod tests {
    use fleet_resources::Resources;
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: Value, status: Value) -> Object {
        serde_json::from_value(
            json!({"metadata": {"name": "q", "namespace": "team"}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn a_quota_is_read_in_the_units_of_its_resources() {
        let hard = json!({"requests.cpu": "1500m", "limits.memory": "1Gi", "pods": 3, "broken": "many"});
        let quota = read(&object(json!({"hard": hard}), json!({"used": {"requests.cpu": "1"}}))).unwrap();
        let hard = Resources::from_pairs([("requests.cpu", 1_500), ("limits.memory", 1 << 30), ("pods", 3)]);
        assert_eq!(quota, ResourceQuota { hard, used: Resources::from_pairs([("requests.cpu", 1_000)]) });
        let scoped = json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]});
        assert_eq!(read(&object(scoped, Value::Null)), None);
    }
}
