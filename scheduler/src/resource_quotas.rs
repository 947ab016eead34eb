//! Plugin resourcequota: a group is admitted only if the ResourceQuotas of its namespace can hold its minimum.
//!
//! Amounts keep the names of quotas (`requests.cpu`, `limits.memory`, `count/pods`). Admitted groups whose pods do
//! not exist yet count beside the use, so two groups are not admitted for the same capacity. Source: Volcano's
//! plugin of that name, which forgets its admissions between two cycles.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::{Resources, quantity};

use crate::cluster::Cluster;
use crate::group::{Group, GroupId, Phase};

/// Limits and use of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuota {
    pub hard: Resources,
    pub used: Resources,
}

/// By namespace and name.
pub(crate) type ResourceQuotas = BTreeMap<Arc<str>, BTreeMap<Arc<str>, ResourceQuota>>;

/// Admitted amounts of a namespace for which no pods exist yet, as far as a cycle has asked for them.
pub(crate) type Promised = BTreeMap<Arc<str>, Resources>;

/// The resource whose units a quota's name uses: the part after `requests.` or `limits.`.
pub fn resource_behind(name: &str) -> &str {
    name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name)
}

impl Cluster {
    /// `None`: the quota is gone.
    pub fn set_resource_quota(&mut self, namespace: &str, name: &str, quota: Option<ResourceQuota>) {
        match quota {
            Some(quota) => {
                self.resource_quotas.entry(namespace.into()).or_default().insert(name.into(), quota);
            }
            None => {
                if let Some(quotas) = self.resource_quotas.get_mut(namespace) {
                    quotas.remove(name);
                    if quotas.is_empty() {
                        self.resource_quotas.remove(namespace);
                    }
                }
            }
        }
    }

    /// Why the quotas of its namespace refuse the group, if so.
    pub(crate) fn over_resource_quota(&self, id: GroupId, promised: &mut Promised) -> Option<String> {
        if !self.policy.resource_quota {
            return None;
        }
        let group = self.group(id);
        let quotas = self.resource_quotas.get(&group.input.namespace)?;
        let minimum = group.input.min_resources.as_ref()?;
        let promised = promised
            .entry(group.input.namespace.clone())
            .or_insert_with(|| self.promised_in(&group.input.namespace));
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
    pub(crate) fn promise_of_quota(&self, id: GroupId, promised: &mut Promised) {
        let input = &self.group(id).input;
        if let (Some(sum), Some(minimum)) = (promised.get_mut(&input.namespace), &input.min_resources) {
            sum.add(minimum);
        }
    }

    fn promised_in(&self, namespace: &Arc<str>) -> Resources {
        let first = (namespace.clone(), Arc::from(""));
        let mut sum = Resources::new();
        for (_, id) in self.group_ids.range(first..).take_while(|((of, _), _)| of == namespace) {
            sum.add(&without_pods(self.group(*id)));
        }
        sum
    }
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
