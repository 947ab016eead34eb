//! A queue in amounts: tables of queues print them, and bars are drawn from them.

use std::collections::BTreeMap;

use crate::{
    amounts::{self, JOBS},
    facts::QuotaFacts,
    paths::{ROOT, holds, path_of},
};

type Amounts = BTreeMap<String, i64>;

/// A node of the quota tree, or a queue of a member. Amounts are base units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAmounts {
    /// Full path, `root/child-2`.
    pub path: String,
    pub name: String,
    pub depth: usize,
    /// By jobs that the queue has admitted.
    pub used: Amounts,
    /// By running jobs whose policy uses no queue.
    pub unqueued: Amounts,
    pub min: Amounts,
    pub max: Amounts,
    /// Used above min. The root borrows from nobody, and jobs have no min.
    pub borrowed: Amounts,
    pub waiting: usize,
    pub running: usize,
}

/// The same as texts; `-` for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTexts {
    pub used: String,
    pub unqueued: String,
    pub min: String,
    /// `unlimited` without a limit.
    pub max: String,
    pub borrowed: String,
}

impl QueueAmounts {
    /// `jobs`: how many wait and how many run, here and below.
    pub fn of(node: &QuotaFacts, path: String, depth: usize, jobs: (usize, usize)) -> Self {
        let over = |(name, used): (&String, &i64)| {
            let over = used - node.min.get(name).copied().unwrap_or(0);
            (over > 0 && name != JOBS).then(|| (name.clone(), over))
        };
        Self {
            name: node.name.clone(),
            depth,
            used: node.used.clone(),
            unqueued: node.unqueued.clone(),
            min: node.min.clone(),
            max: node.max.clone(),
            borrowed: if path == ROOT { Amounts::new() } else { node.used.iter().filter_map(over).collect() },
            waiting: jobs.0,
            running: jobs.1,
            path,
        }
    }

    /// Every node of a tree, parents first. `jobs`: by leaf, how many wait and how many run.
    pub fn of_tree(root: &QuotaFacts, jobs: &BTreeMap<String, (usize, usize)>) -> Vec<Self> {
        let mut all = Vec::new();
        add(&mut all, root, "", 0, jobs);
        all
    }

    pub fn texts(&self) -> QueueTexts {
        let max = Some(amounts::line_of(&self.max)).filter(|max| max != "-");
        QueueTexts {
            used: amounts::line_of(&self.used),
            unqueued: amounts::line_of(&self.unqueued),
            min: amounts::line_of(&self.min),
            max: max.unwrap_or_else(|| "unlimited".to_owned()),
            borrowed: amounts::line_of(&self.borrowed),
        }
    }

    /// Whether this is the queue at `path` or one above it.
    pub fn holds(&self, path: &str) -> bool {
        holds(&self.path, path)
    }
}

fn add(
    all: &mut Vec<QueueAmounts>,
    node: &QuotaFacts,
    parent: &str,
    depth: usize,
    jobs: &BTreeMap<String, (usize, usize)>,
) {
    let path = path_of(&node.name, parent);
    let here = jobs.iter().filter(|(leaf, _)| holds(&path, leaf));
    let counts = here.fold((0, 0), |(waiting, running), (_, more)| (waiting + more.0, running + more.1));
    all.push(QueueAmounts::of(node, path.clone(), depth, counts));
    for child in &node.children {
        add(all, child, &path, depth + 1, jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::GPU;

    #[test]
    fn a_tree_is_summed_and_said_in_short_texts() {
        let amounts = |all: &[(&str, i64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let team = QuotaFacts {
            name: "team".into(),
            min: amounts(&[(GPU, 2)]),
            max: amounts(&[(GPU, i64::from(i32::MAX)), (JOBS, 9)]),
            used: amounts(&[(GPU, 3), ("cpu", 1500), (JOBS, 1), ("memory", 0)]),
            ..QuotaFacts::default()
        };
        // The path of the root does not depend on its name.
        let root = QuotaFacts { name: "company".into(), used: team.used.clone(), ..QuotaFacts::default() };
        let root =
            QuotaFacts { children: vec![team.clone(), QuotaFacts { name: "te".into(), ..team }], ..root };
        let jobs = [("root/team".to_owned(), (2, 1)), ("root/te/gone".to_owned(), (1, 0))].into();
        let rows = QueueAmounts::of_tree(&root, &jobs);
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                let QueueTexts { used, min, max, borrowed, .. } = row.texts();
                format!(
                    "{} {} {}/{}: {used}; {min}; {max}; {borrowed}",
                    row.depth, row.path, row.waiting, row.running
                )
            })
            .collect();
        let used = "jobs=1 gpu=3 cpu=1.5";
        assert_eq!(
            found,
            [
                format!("0 root 3/1: {used}; -; unlimited; -"),
                format!("1 root/team 2/1: {used}; gpu=2; jobs=9; gpu=1 cpu=1.5"),
                format!("1 root/te 1/0: {used}; gpu=2; jobs=9; gpu=1 cpu=1.5"),
            ]
        );
        assert!(rows.iter().take(2).all(|row| row.holds("root/team")) && !rows[2].holds("root/team"));
    }
}
