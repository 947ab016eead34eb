//! The priority of a job, and whether its namespace may name the class that gives it.

use fleet_api::policy::PropagationSpec;
use fleet_policies::{
    choice::{PolicyRule, PolicyScope},
    priority,
    reason::Reason,
    workload,
};
use serde_json::Value;

use crate::{planner::Waiting, world::World};

/// The policy's class takes precedence; otherwise the highest existing class of the pods.
pub(crate) fn of_job(world: &World, spec: &PropagationSpec, components: &[workload::Component]) -> i32 {
    let value = |name: &str| world.priority_classes.get(name).map(|class| class.value);
    named_by(spec).and_then(value).unwrap_or_else(|| {
        let of_pods = components.iter().filter_map(|c| value(c.pod_spec.priority_class_name.as_deref()?));
        of_pods.max().unwrap_or(0)
    })
}

fn named_by(spec: &PropagationSpec) -> Option<&str> {
    spec.schedule_priority.as_ref().and_then(|priority| priority.priority_class_name.as_deref())
}

/// Whether an object, under its policy, names only classes that its namespace may use.
///
/// # Errors
/// Field, class and what is allowed.
pub(crate) fn check(
    world: &World,
    namespace: &str,
    manifest: &Value,
    (rule, spec): (&PolicyRule, &PropagationSpec),
) -> Result<(), Waiting> {
    let classes = &world.priority_classes;
    priority::check(classes, namespace, manifest)
        .map_err(|why| Waiting::new(Reason::InvalidWorkload, why))?;
    // Only administrators write policies of all namespaces.
    let refused = named_by(spec).filter(|_| rule.scope == PolicyScope::Namespaced);
    let Some(why) = refused.and_then(|name| priority::refusal(classes, namespace, name)) else {
        return Ok(());
    };
    let message = format!(
        "PropagationPolicy {}/{}, which selects it: spec.schedulePriority.priorityClassName: {why}",
        rule.namespace, rule.name
    );
    Err(Waiting::new(Reason::PolicyInvalid, message))
}
