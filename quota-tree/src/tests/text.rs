//! Trees as short texts, for the tests of this room and of the planner.

use std::sync::Arc;

use super::{MAX_JOBS, NodeSpec, QuotaTree};

/// `root cpu 40; a cpu 20-40; a/1 cpu 10-20 ns1; ...`: per node a path below the
/// root, `min-max` or `max` in cpu, then `jobs=N`, `w=N`, `lend=N`, `@attribute=value`, namespaces.
pub fn tree_spec(text: &str) -> NodeSpec {
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
            } else if let Some((key, value)) = word.strip_prefix("@").and_then(|pair| pair.split_once('=')) {
                node.attributes.insert(format!("fleet.dev/{key}"), value.to_owned());
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

pub fn tree(text: &str) -> Arc<QuotaTree> {
    Arc::new(QuotaTree::build(&tree_spec(text)).unwrap().0)
}
