//! How large lists, maps and texts of the definitions may be.
//!
//! API servers reject CEL rules (`rules`) over unbounded values, because their estimated cost is too high.
//! Each bound is far above what real objects have, and low enough for the rules that use it: some visit every
//! pair of tasks, and what each task depends on.

use serde_json::Value;

/// Path of the bounded field from the root of the object (`*` steps into items, `{}` into values of a map),
/// the schema's keyword, and the bound.
type Bound = (&'static [&'static str], &'static str, u64);

/// A DNS label, as names of tasks are.
const LABEL: u64 = 63;
/// A DNS subdomain, as names of most objects are.
const NAME: u64 = 253;
/// A word of a fixed vocabulary; a longer one is refused by its rule or by this bound.
const WORD: u64 = 64;

const TASKS: u64 = 100;
/// Tasks that one task waits for.
const WAITS_FOR: u64 = 16;
const POLICIES: u64 = 16;
/// The number of events there are.
const EVENTS: u64 = 8;
/// Containers of a kind, or volumes, in one pod.
const OF_A_POD: u64 = 50;
/// Entries of a map of resources.
const RESOURCES: u64 = 64;

const VOLCANO_JOB: &[Bound] = &[
    (&["spec", "tasks"], "maxItems", TASKS),
    (&["spec", "tasks", "*", "name"], "maxLength", LABEL),
    (&["spec", "tasks", "*", "dependsOn", "name"], "maxItems", WAITS_FOR),
    (&["spec", "tasks", "*", "dependsOn", "name", "*"], "maxLength", LABEL),
    (&["spec", "tasks", "*", "policies"], "maxItems", POLICIES),
    (&["spec", "tasks", "*", "policies", "*", "action"], "maxLength", WORD),
    (&["spec", "tasks", "*", "policies", "*", "event"], "maxLength", WORD),
    (&["spec", "tasks", "*", "policies", "*", "events"], "maxItems", EVENTS),
    (&["spec", "tasks", "*", "policies", "*", "events", "*"], "maxLength", WORD),
    (&["spec", "policies"], "maxItems", POLICIES),
    (&["spec", "policies", "*", "action"], "maxLength", WORD),
    (&["spec", "policies", "*", "event"], "maxLength", WORD),
    (&["spec", "policies", "*", "events"], "maxItems", EVENTS),
    (&["spec", "policies", "*", "events", "*"], "maxLength", WORD),
    (&["spec", "tasks", "*", "policies", "*", "timeout"], "maxLength", WORD),
    (&["spec", "policies", "*", "timeout"], "maxLength", WORD),
    (&["spec", "tasks", "*", "template", "spec", "containers"], "maxItems", OF_A_POD),
    (&["spec", "tasks", "*", "template", "spec", "containers", "*", "name"], "maxLength", LABEL),
    (&["spec", "tasks", "*", "template", "spec", "initContainers"], "maxItems", OF_A_POD),
    (&["spec", "tasks", "*", "template", "spec", "initContainers", "*", "name"], "maxLength", LABEL),
    (&["spec", "tasks", "*", "template", "spec", "volumes"], "maxItems", OF_A_POD),
    (&["spec", "tasks", "*", "template", "spec", "volumes", "*", "name"], "maxLength", LABEL),
    (&["spec", "plugins"], "maxProperties", 32),
    (&["spec", "plugins", "{}"], "maxItems", 16),
    (&["spec", "plugins", "{}", "*"], "maxLength", 128),
    (&["spec", "volumes"], "maxItems", 64),
    (&["spec", "volumes", "*", "mountPath"], "maxLength", 512),
];

const VOLCANO_QUEUE: &[Bound] = &[
    (&["spec", "parent"], "maxLength", NAME),
    (&["spec", "dequeueStrategy"], "maxLength", WORD),
    (&["spec", "capability"], "maxProperties", RESOURCES),
    (&["spec", "deserved"], "maxProperties", RESOURCES),
    (&["spec", "guarantee", "resource"], "maxProperties", RESOURCES),
];

const POD_GROUP: &[Bound] = &[
    (&["spec", "minTaskMember"], "maxProperties", TASKS),
    (&["spec", "minResources"], "maxProperties", RESOURCES),
];

const HYPER_NODE: &[Bound] = &[
    (&["spec", "members"], "maxItems", 10_000),
    (&["spec", "members", "*", "type"], "maxLength", WORD),
    (&["spec", "members", "*", "selector", "exactMatch", "name"], "maxLength", NAME),
    (&["spec", "members", "*", "selector", "regexMatch", "pattern"], "maxLength", 256),
];

const JOB_FLOW: &[Bound] = &[
    (&["spec", "flows"], "maxItems", 64),
    (&["spec", "flows", "*", "name"], "maxLength", NAME),
    (&["spec", "flows", "*", "dependsOn", "targets"], "maxItems", WAITS_FOR),
    (&["spec", "flows", "*", "dependsOn", "targets", "*"], "maxLength", NAME),
];

/// Definitions with bounds, by name.
const BOUNDS: &[(&str, &[Bound])] = &[
    ("jobs.batch.volcano.sh", VOLCANO_JOB),
    ("queues.scheduling.volcano.sh", VOLCANO_QUEUE),
    ("podgroups.scheduling.volcano.sh", POD_GROUP),
    ("hypernodes.topology.volcano.sh", HYPER_NODE),
    ("jobflows.flow.volcano.sh", JOB_FLOW),
];

/// Adds the bounds of a definition to its schema (the schema of the whole object).
pub fn add(definition: &str, schema: &mut Value) {
    let bounds = BOUNDS.iter().filter(|(name, _)| *name == definition).flat_map(|(_, bounds)| *bounds);
    for (path, key, most) in bounds {
        let mut place = &mut *schema;
        for step in *path {
            place = match *step {
                "*" => &mut place["items"],
                "{}" => &mut place["additionalProperties"],
                name => &mut place["properties"][name],
            };
        }
        // A path that does not exist would add a field that no type has; a test checks for that.
        place[*key] = (*most).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crds::{self, Side};

    #[test]
    fn every_bound_stands_at_a_field_of_its_kind() {
        let all: Vec<Value> = [Side::Hub, Side::Member].into_iter().flat_map(crds::generate).collect();
        for (name, bounds) in BOUNDS {
            let definition = all.iter().find(|d| crds::name(d) == *name).expect("a definition");
            for (path, key, most) in *bounds {
                let mut place = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
                for step in *path {
                    place = match *step {
                        "*" => &place["items"],
                        "{}" => &place["additionalProperties"],
                        field => &place["properties"][field],
                    };
                }
                let kind = match *key {
                    "maxItems" => "array",
                    "maxProperties" => "object",
                    _ => "string",
                };
                assert_eq!(
                    (&place["type"], &place[*key]),
                    (&kind.into(), &(*most).into()),
                    "{name} {path:?}"
                );
            }
        }
    }
}
