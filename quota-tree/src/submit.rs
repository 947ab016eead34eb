//! Who may submit to a leaf: its attributes, and those of the nodes above it.
//!
//! Namespaces are checked here. Subjects are only parsed: the tree never learns who created a job, so the API
//! server has to check them at submission. [`QuotaTree::submitters`] is the list it gets.

use std::collections::BTreeSet;

use crate::model::{NodeId, QuotaTree, TreeWarning};
use crate::spec::NodeSpec;

/// Namespaces whose jobs may name a leaf below this node, in addition to those that the leaf itself lists:
/// `team-a,team-b`.
pub const SUBMITTER_NAMESPACES: &str = "fleet.dev/submitter-namespaces";
/// Who may submit to a leaf below this node: `user:NAME`, `group:NAME` and `serviceaccount:NAMESPACE/NAME`.
pub const SUBMITTERS: &str = "fleet.dev/submitters";

/// The rules of one node; `None` admits everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Submit {
    namespaces: Option<BTreeSet<String>>,
    subjects: Option<BTreeSet<String>>,
}

impl Submit {
    /// Parses a node's attributes. An invalid entry admits nobody, and is a warning.
    pub fn read(spec: &NodeSpec, path: &str, warnings: &mut Vec<TreeWarning>) -> Self {
        let mut warn = |field: &str, found: &str, allowed: &str| {
            warnings.push(TreeWarning::new(path, &format!("attributes[{field}]"), found, allowed));
        };
        let namespaces = spec.attributes.get(SUBMITTER_NAMESPACES).map(|text| {
            let mut read = BTreeSet::new();
            for entry in entries(text) {
                match is_namespace(entry) {
                    true => drop(read.insert(entry.to_owned())),
                    false => warn(SUBMITTER_NAMESPACES, entry, "names of namespaces; this entry admits none"),
                }
            }
            read
        });
        let subjects = spec.attributes.get(SUBMITTERS).map(|text| {
            let mut read = BTreeSet::new();
            for entry in entries(text) {
                match subject(entry) {
                    Some(subject) => drop(read.insert(subject)),
                    None => warn(
                        SUBMITTERS,
                        entry,
                        "user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; this entry admits nobody",
                    ),
                }
            }
            read
        });
        Self { namespaces, subjects }
    }
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// The subject as an API server names it: a service account is a user. None: it is no subject.
pub fn subject(entry: &str) -> Option<String> {
    let (kind, name) = entry.split_once(':')?;
    // A queue's list uses both as separators.
    if name.is_empty() || name.contains([';', ',']) {
        return None;
    }
    match kind {
        "user" | "group" => Some(entry.to_owned()),
        "serviceaccount" => {
            let (namespace, name) = name.split_once('/')?;
            let plain = is_namespace(namespace) && !name.is_empty() && !name.contains([':', '/']);
            plain.then(|| format!("user:system:serviceaccount:{namespace}:{name}"))
        }
        _ => None,
    }
}

/// Whether the text can be the name of a namespace.
pub fn is_namespace(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner)
}

impl QuotaTree {
    /// Whether jobs of the namespace may go to the leaf: the leaf lists the namespace, or every node from it to the
    /// root admits it.
    pub fn admits(&self, leaf: NodeId, namespace: &str) -> bool {
        self.by_namespace.get(namespace) == Some(&leaf)
            || self.path_to_root(leaf).all(|node| {
                self.submit
                    .get(node.index())
                    .and_then(|submit| submit.namespaces.as_ref())
                    .is_none_or(|namespaces| namespaces.contains(namespace))
            })
    }

    /// Who may submit to the leaf; `None` if everybody may. There is one list for each node from the leaf to the
    /// root that has one. Lists are separated by `;`, entries by `,`. A submitter must be in each list, as
    /// `user:NAME`, or as `group:NAME` through a group.
    pub fn submitters(&self, leaf: NodeId) -> Option<String> {
        let lists: Vec<String> = self
            .path_to_root(leaf)
            .filter_map(|node| self.submit.get(node.index())?.subjects.as_ref())
            .map(|subjects| subjects.iter().map(String::as_str).collect::<Vec<_>>().join(","))
            .collect();
        (!lists.is_empty()).then(|| lists.join(";"))
    }

    /// The namespaces that the first restricting node from the leaf to the root admits, for a message.
    pub(crate) fn allowed_namespaces(&self, leaf: NodeId) -> String {
        let own = self.node(leaf).namespaces.iter().cloned();
        let listed = self
            .path_to_root(leaf)
            .find_map(|node| self.submit.get(node.index())?.namespaces.as_ref())
            .into_iter()
            .flatten()
            .cloned();
        let all: BTreeSet<String> = own.chain(listed).collect();
        match all.is_empty() {
            true => "none".to_owned(),
            false => all.into_iter().collect::<Vec<_>>().join(", "),
        }
    }
}
