//! A fleet to measure with: 100,000 jobs and 10,000 nodes.

use std::collections::BTreeMap;

use fleet_views::{
    BindingFacts, ClusterFacts, End, Known, NodeGroup, QuotaFacts, RunFacts, Said, TreeFacts, UnitFacts,
    amounts::GPU,
};

pub const JOBS: i64 = 100_000;
pub const CLUSTERS: i64 = 20;
pub const NODES: i64 = 10_000;
const LEAVES: i64 = 200;
const NAMESPACES: i64 = 500;

pub fn fleet() -> Known {
    let mut known = Known::default();
    let gpus = |amount: i64| BTreeMap::from([(GPU.to_owned(), amount)]);
    let leaf = |index: i64| QuotaFacts {
        name: format!("team-{index}"),
        namespaces: vec![format!("team-{index}")],
        min: gpus(300),
        max: gpus(2_000),
        used: gpus(index * 3),
        ..QuotaFacts::default()
    };
    let root = QuotaFacts {
        name: "root".to_owned(),
        max: gpus(NODES * 8),
        children: (0..LEAVES).map(leaf).collect(),
        ..QuotaFacts::default()
    };
    known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
    for index in 0..CLUSTERS {
        let group = |free: i64| NodeGroup {
            count: NODES / CLUSTERS / 9,
            gpus: 8,
            gpus_free: free,
            domain: format!("rack-{}", free % 4),
            ..NodeGroup::default()
        };
        let facts = ClusterFacts {
            ready: Some(true),
            nodes: NODES / CLUSTERS,
            nodes_ready: NODES / CLUSTERS,
            groups: (0..9).map(group).collect(),
            ..ClusterFacts::default()
        };
        known.set_cluster(&format!("cluster-{index}"), Some(facts));
    }
    (0..JOBS).for_each(|index| put(&mut known, index));
    known
}

/// A third waits, a third runs, a third has ended.
pub fn put(known: &mut Known, index: i64) {
    let namespace = format!("team-{}", index % NAMESPACES);
    let id = (namespace, format!("job-{index:06}-pytorchjob"));
    let cluster = format!("cluster-{}", index % CLUSTERS);
    let said = Said {
        reason: "InsufficientQuotaInParent".to_owned(),
        message: format!(
            "Insufficient quota({GPU}) in parent quota root: request 16, max 80000, used 79990; wait for running jobs to complete"
        ),
        since_s: index,
    };
    let mut binding = BindingFacts {
        api_version: "kubeflow.org/v1".to_owned(),
        kind: "PyTorchJob".to_owned(),
        resource: "pytorchjobs.kubeflow.org".to_owned(),
        name: format!("job-{index:06}"),
        is_job: true,
        user: format!("user-{}", index % 1_000),
        created_s: index,
        requests: BTreeMap::from([(GPU.to_owned(), 1 + index % 64)]),
        pods: 4,
        ..BindingFacts::default()
    };
    let unit = UnitFacts {
        queue: format!("root/team-{}", index % LEAVES),
        priority: (index % 7) as i32,
        created_s: index,
        waits: index % 3 == 0,
        runs: index % 3 == 1,
        said: (index % 3 == 0).then_some(said),
        ..UnitFacts::default()
    };
    match index % 3 {
        0 => {}
        1 => {
            binding.clusters = vec![cluster];
            binding.run = Some(RunFacts { started_s: Some(index), ..RunFacts::default() });
        }
        _ => {
            let end = End { is_success: index % 2 == 0, cluster, at_s: index + 60, ..End::default() };
            binding.end = Some(end);
        }
    }
    known.set_binding(id.clone(), Some(binding));
    known.set_unit(id, Some(unit).filter(|_| index % 3 < 2));
}
