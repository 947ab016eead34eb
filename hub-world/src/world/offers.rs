//! Which resources the nodes of the fleet offer. A quota tree warns of those that it bounds and that no node has, so it
//! is looked at when the first cluster offers one of them or the last one does no longer. What else a member names, and
//! how often it names something else, is no reason.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::Cluster;
use fleet_quota_tree::QuotaTree;

/// What all clusters offer.
#[derive(Default)]
pub(super) struct Offers {
    of_cluster: BTreeMap<String, BTreeSet<String>>,
    /// Number of clusters that offer each.
    clusters: BTreeMap<String, usize>,
}

impl Offers {
    /// Records what a cluster offers, nothing if it is gone. Whether a warning of the tree may come or go with it.
    pub fn set(&mut self, name: &str, cluster: Option<&Cluster>, tree: Option<&QuotaTree>) -> bool {
        let now = offered(cluster);
        let before = self.of_cluster.remove(name).unwrap_or_default();
        let was_empty = self.clusters.is_empty();
        let mut turned = false;
        for resource in before.difference(&now) {
            let left = self.clusters.get(resource).map_or(0, |clusters| clusters.saturating_sub(1));
            if left > 0 {
                self.clusters.insert(resource.clone(), left);
            } else {
                self.clusters.remove(resource);
                turned |= bounds(tree, resource);
            }
        }
        for resource in now.difference(&before) {
            let clusters = self.clusters.entry(resource.clone()).or_default();
            *clusters += 1;
            turned |= *clusters == 1 && bounds(tree, resource);
        }
        if !now.is_empty() {
            self.of_cluster.insert(name.to_owned(), now);
        }
        // While no resource is known, the tree warns of none.
        turned || was_empty != self.clusters.is_empty() && tree.is_some()
    }
}

fn offered(cluster: Option<&Cluster>) -> BTreeSet<String> {
    let shapes = cluster.and_then(|cluster| cluster.status.as_ref()).into_iter();
    let shapes = shapes.flat_map(|status| &status.node_shapes);
    shapes.flat_map(|shape| shape.allocatable.keys().cloned()).collect()
}

fn bounds(tree: Option<&QuotaTree>, resource: &str) -> bool {
    // The number of jobs comes first, the others by name.
    let named = tree.and_then(|tree| tree.resources().get(1..)).unwrap_or_default();
    named.binary_search_by(|known| known.as_str().cmp(resource)).is_ok()
}
