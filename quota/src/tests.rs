//! The facts file's examples, the tree of the walkthrough, and laws.

mod clusters;
mod ledger;
mod order;
mod tree;

use std::sync::Arc;

use fleet_resources::Resources;

use crate::*;
use clusters::Clusters;

/// `root cpu 40; a cpu 20-40; a/1 cpu 10-20 ns1; ...`: per node a path below the
/// root, `min-max` or `max` in cpu, then `jobs=N`, `w=N`, namespaces.
fn tree_spec(text: &str) -> NodeSpec {
    let mut root = NodeSpec::default();
    for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let path = words.next().unwrap();
        let mut node = &mut root;
        if path != "root" {
            for name in path.split('/') {
                let at = node.children.iter().position(|child| child.name == name).unwrap_or_else(|| {
                    node.children.push(NodeSpec { name: name.to_owned(), ..NodeSpec::default() });
                    node.children.len() - 1
                });
                node = &mut node.children[at];
            }
        }
        for word in words {
            if let Some(jobs) = word.strip_prefix("jobs=") {
                node.max.insert(MAX_JOBS.to_owned(), jobs.to_owned());
            } else if let Some(weight) = word.strip_prefix("w=") {
                node.attributes.insert("fleet.dev/weight".to_owned(), weight.to_owned());
            } else if let Some(limit) = word.strip_prefix("lend=") {
                let text = format!("{{\"cpu\": \"{limit}\"}}");
                node.attributes.insert("alibabacloud.com/lendlimit".to_owned(), text);
            } else if word.starts_with(|c: char| c.is_ascii_digit()) {
                let (min, max) = word.split_once('-').map_or((None, word), |(min, max)| (Some(min), max));
                node.max.insert("cpu".to_owned(), max.to_owned());
                node.min.extend(min.map(|min| ("cpu".to_owned(), min.to_owned())));
            } else {
                node.namespaces.push(word.to_owned());
            }
        }
    }
    root
}

fn tree(text: &str) -> Arc<QuotaTree> {
    Arc::new(QuotaTree::build(&tree_spec(text)).unwrap().0)
}

fn cpu(cores: i64) -> Resources {
    Resources::from_pairs([("cpu", cores * 1000)])
}

fn leaf(tree: &QuotaTree, path: &str) -> NodeId {
    tree.find(&format!("root/{path}")).unwrap()
}

fn run(ledger: &mut Ledger, id: &str, path: &str, cores: i64) {
    let leaf = leaf(ledger.tree(), path);
    ledger.admit(AdmittedJob {
        id: JobId::new(id),
        leaf,
        request: cpu(cores),
        preemptible: true,
        priority: 0,
        admitted_at_ms: 0,
    });
}

fn waiting(tree: &QuotaTree, id: &str, path: &str, cores: i64, priority: i64, age: i64) -> WaitingJob {
    WaitingJob {
        id: JobId::new(id),
        name: id.into(),
        run_time_ms: None,
        leaf: leaf(tree, path),
        request: cpu(cores),
        preemptible: true,
        priority,
        enqueued_at_ms: age,
        not_before_ms: 0,
        shape: 0,
    }
}
