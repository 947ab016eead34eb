//! ResourceQuotas. Amounts keep the names of quotas (`requests.cpu`, `limits.memory`, `count/pods`).

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::Resources;

/// Limits and use of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuota {
    pub hard: Resources,
    pub used: Resources,
}

/// By namespace and name.
pub type ResourceQuotas = BTreeMap<Arc<str>, BTreeMap<Arc<str>, ResourceQuota>>;

/// Admitted amounts of a namespace for which no pods exist yet, as far as a cycle has asked for them.
pub type Promised = BTreeMap<Arc<str>, Resources>;

/// The resource whose units a quota's name uses: the part after `requests.` or `limits.`.
pub fn resource_behind(name: &str) -> &str {
    name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name)
}
