//! Kinds, clusters and objects that a valid policy names and that do not exist.

use fleet_policies::{
    choice::{PolicyRule, PolicyScope, is_skipped_namespace},
    reason::Reason,
    selector::{self, ResourceSelector},
};

use crate::{
    kinds::KindRef,
    world::{Key, Object, PolicyEntry, World},
};

/// Most things that one condition names.
const MAX_SENTENCES: usize = 10;

/// The first thing that limits the policy's effect; the sentence has the first [`MAX_SENTENCES`] of them.
pub(super) fn lacking(
    world: &World,
    is_unserved: &dyn Fn(&(String, String)) -> bool,
    entry: &PolicyEntry,
) -> Option<(Reason, String)> {
    if !entry.violations.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for (i, wanted) in entry.rule.selectors.iter().enumerate() {
        if is_unserved(&(wanted.api_version.clone(), wanted.kind.clone())) {
            found.push((
                Reason::KindNotServed,
                format!(
                    "spec.resourceSelectors[{i}]: found {} {}; allowed: a namespaced kind that the hub serves",
                    wanted.api_version, wanted.kind
                ),
            ));
        }
    }
    let joined: Vec<&str> = world.clusters.keys().map(String::as_str).collect();
    for (field, name) in entry.spec.named_clusters() {
        if !world.clusters.contains_key(&name) {
            let allowed = if joined.is_empty() { "none has joined".to_string() } else { joined.join(", ") };
            found.push((Reason::UnknownCluster, format!("{field}: found {name}; allowed: {allowed}")));
        }
    }
    if found.is_empty() && selects_nothing(world, &entry.rule) {
        let scope = match entry.rule.scope {
            PolicyScope::Namespaced => format!(" in namespace {}", entry.rule.namespace),
            PolicyScope::Cluster => String::new(),
        };
        found.push((Reason::SelectsNothing, format!("no object{scope} is selected now")));
    }
    let first = found.first()?.0;
    let more = found.len().saturating_sub(MAX_SENTENCES);
    let mut sentences: Vec<String> =
        found.into_iter().take(MAX_SENTENCES).map(|(_, sentence)| sentence).collect();
    if more > 0 {
        sentences.push(format!("and {more} more"));
    }
    Some((first, sentences.join("; ")))
}

/// Whether none of the known objects is selected. A kind that is not listed yet may have one.
fn selects_nothing(world: &World, rule: &PolicyRule) -> bool {
    rule.selectors.iter().all(|wanted| {
        let of_kind = |kind: &&KindRef| kind.api_version == wanted.api_version && kind.kind == wanted.kind;
        let Some((kind, objects)) = world.objects.iter().find(|(kind, _)| of_kind(kind)) else {
            return false;
        };
        // A selector with a name is a lookup; a namespace is a range of keys.
        if !wanted.name.is_empty() && !wanted.namespace.is_empty() {
            let key = (wanted.namespace.clone(), wanted.name.clone());
            return !objects.get(&key).is_some_and(|object| matches(rule, wanted, kind, &key, object));
        }
        let first: Key = (wanted.namespace.clone(), String::new());
        let here = objects
            .range(first..)
            .take_while(|((namespace, _), _)| wanted.namespace.is_empty() || *namespace == wanted.namespace);
        !here.into_iter().any(|(key, object)| matches(rule, wanted, kind, key, object))
    })
}

fn matches(rule: &PolicyRule, wanted: &ResourceSelector, kind: &KindRef, key: &Key, object: &Object) -> bool {
    let reference = object.reference(kind, key);
    let reaches = rule.scope == PolicyScope::Cluster || rule.namespace == key.0;
    reaches
        && !object.deleting
        && !is_skipped_namespace(&key.0)
        && selector::match_selector(wanted, &reference).is_some()
}
