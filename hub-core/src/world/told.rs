//! What has been told of kinds that are kept in another form than by key.

use fleet_mirror::Mirror;

#[derive(Default)]
pub(super) struct Told {
    pub policies: Mirror<()>,
    pub cluster_policies: Mirror<()>,
    pub overrides: Mirror<()>,
    pub cluster_overrides: Mirror<()>,
    pub clusters: Mirror<()>,
    pub leases: Mirror<()>,
    pub namespaces: Mirror<()>,
    pub priority_classes: Mirror<()>,
}
