//! Many jobs in one leaf: what a portal of a large fleet knows. The end-to-end tests take in this file, too.

use fleet_views::{BindingFacts, Known, QuotaFacts, TreeFacts, UnitFacts};

/// Jobs that wait in one leaf.
pub fn many(jobs: usize) -> Known {
    let mut known = Known::default();
    let leaf = QuotaFacts { name: "research".into(), ..QuotaFacts::default() };
    let root = QuotaFacts { name: "root".into(), children: vec![leaf], ..QuotaFacts::default() };
    known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
    for index in 0..jobs {
        let id = (format!("team-{}", index % 50), format!("job-{index:06}-pytorchjob"));
        let name = format!("job-{index:06}");
        let binding = BindingFacts {
            api_version: "kubeflow.org/v1".into(),
            kind: "PyTorchJob".into(),
            resource: "pytorchjobs.kubeflow.org".into(),
            name,
            is_job: true,
            created_s: index as i64,
            pods: 4,
            ..BindingFacts::default()
        };
        known.set_binding(id.clone(), Some(binding));
        let unit = UnitFacts {
            queue: "root/research".into(),
            priority: (index % 7) as i32,
            created_s: index as i64,
            waits: true,
            ..UnitFacts::default()
        };
        known.set_unit(id, Some(unit));
    }
    known
}
