//! Observed state of kinds that are not cached by key.

use fleet_mirror::Mirror;

#[derive(Default)]
pub(super) struct Mirrors {
    pub policies: Mirror<()>,
    pub cluster_policies: Mirror<()>,
    pub overrides: Mirror<()>,
    pub cluster_overrides: Mirror<()>,
    pub clusters: Mirror<()>,
    pub leases: Mirror<()>,
    pub namespaces: Mirror<()>,
    pub priority_classes: Mirror<()>,
}
