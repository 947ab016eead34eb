//! Plugin resourcequota: a group is admitted only if the ResourceQuotas of its namespace can hold its minimum.
//!
//! Admitted groups whose pods do not exist yet count beside the use, so two groups are not admitted for the same
//! capacity. Source: Volcano's plugin of that name, which forgets its admissions between two cycles.

use std::sync::Arc;

use fleet_resources::{Resources, quantity};

use super::rules::Rules;
use crate::group::{Group, Phase};
use crate::ids::GroupId;
use crate::resource_quotas::{Promised, resource_behind};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceQuota;

impl Rules for ResourceQuota {
    const NAME: &'static str = "resourcequota";
    const HOOKS: &'static [Hook] = &[Hook::JobEnqueued];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }
}

/// Why the quotas of its namespace refuse the group, if so.
pub(crate) fn refused_by_quota(state: &State, id: GroupId, promised: &mut Promised) -> Option<String> {
    let group = state.group(id);
    let quotas = state.resource_quotas.get(&group.input.namespace)?;
    let minimum = group.input.min_resources.as_ref()?;
    let promised = promised
        .entry(group.input.namespace.clone())
        .or_insert_with(|| promised_in(state, &group.input.namespace));
    for (name, quota) in quotas {
        for (resource, hard) in quota.hard.iter() {
            let resource = resource.as_str();
            let asked = minimum.get(resource);
            let held = quota.used.get(resource).saturating_add(promised.get(resource));
            if asked > 0 && held.saturating_add(asked) > hard {
                let text = |amount: i64| quantity::format(resource_behind(resource), amount);
                return Some(format!(
                    "resource quota {name} of namespace {}: {} of {} {resource} are used or promised, {} are asked for",
                    group.input.namespace,
                    text(held),
                    text(hard),
                    text(asked)
                ));
            }
        }
    }
    None
}

/// The group was admitted.
pub(crate) fn promise(state: &State, id: GroupId, promised: &mut Promised) {
    let input = &state.group(id).input;
    if let (Some(sum), Some(minimum)) = (promised.get_mut(&input.namespace), &input.min_resources) {
        sum.add(minimum);
    }
}

fn promised_in(state: &State, namespace: &Arc<str>) -> Resources {
    let first = (namespace.clone(), Arc::from(""));
    let mut sum = Resources::new();
    for (_, id) in state.group_ids.range(first..).take_while(|((of, _), _)| of == namespace) {
        sum.add(&without_pods(state.group(*id)));
    }
    sum
}

/// The part of the group's minimum for which no pod exists, rounded up.
fn without_pods(group: &Group) -> Resources {
    let missing = group.min() - group.pods.len() as i64;
    let waits = matches!(group.phase, Phase::Inqueue | Phase::Unknown) && !group.input.no_gate && missing > 0;
    let Some(minimum) = group.input.min_resources.as_ref().filter(|_| waits) else { return Resources::new() };
    let min = i128::from(group.min());
    let part = |amount: i64| {
        let part = (i128::from(amount) * i128::from(missing) + min - 1) / min;
        i64::try_from(part).unwrap_or(i64::MAX)
    };
    minimum.iter().map(|(name, amount)| (name.clone(), part(amount))).collect()
}
