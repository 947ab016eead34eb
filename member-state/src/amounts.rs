//! Resource lists of namespaces and groups.

use fleet_resources::{ResourceName, Resources, quantity};
use fleet_scheduler::resource_quotas::resource_behind;
use serde_json::Value;

/// Amounts in the units of the resource after the prefix `requests.` or `limits.`; an invalid quantity is
/// ignored.
pub fn amounts(list: &Value) -> Resources {
    let amount = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((ResourceName::new(name), quantity::parse(resource_behind(name), &text).ok()?))
    };
    list.as_object().into_iter().flatten().filter_map(amount).collect()
}
