//! Builds the tree from its spec.

use std::collections::{BTreeMap, BTreeSet};

use fleet_resources::{ResourceName, quantity};

use crate::attributes::{
    GUARANTEE, LEND_LIMIT, MAX_BYPASS, MAX_CLAIM, MAX_LOSS, MIN_RUNTIME, RECLAIM, REQUIRE_QUEUE,
    SHARE_PREEMPTION, WEIGHT, WITHIN,
};
use crate::model::{
    JOBS, MAX_DEPTH, MAX_JOBS, MAX_NODES, NodeId, QuotaTree, Reclaim, TreeError, TreeNode, TreeWarning,
    UNLIMITED_FROM, Within,
};
use crate::spec::NodeSpec;
use crate::spec::{duration_ms, quantities_in};
use crate::submit::Submit;

const DEFAULT_MAX_BYPASS_MS: i64 = 5 * 60 * 1000;
const DEFAULT_MAX_CLAIM_MS: i64 = 30 * 60 * 1000;
const MAX_NAME: usize = 253;
/// Most errors that are found in one tree.
const MAX_ERRORS: usize = 20;

type Built = (QuotaTree, Vec<TreeWarning>);

pub(crate) fn build(root: &NodeSpec) -> Result<Built, TreeError> {
    let mut builder = Builder { names: resource_names(root), ..Builder::default() };
    builder.add_all(root);
    match builder.errors.len() {
        0 => Ok(builder.finish()),
        1 => Err(builder.errors.remove(0)),
        _ => Err(TreeError::Several(builder.errors)),
    }
}

/// Every resource that any node names; the number of jobs comes first.
fn resource_names(root: &NodeSpec) -> Vec<ResourceName> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut open = vec![root];
    while let Some(spec) = open.pop() {
        names.extend(spec.min.keys().chain(spec.max.keys()).map(String::as_str));
        open.extend(&spec.children);
    }
    names.remove(MAX_JOBS);
    std::iter::once(MAX_JOBS).chain(names).map(ResourceName::new).collect()
}

#[derive(Default)]
struct Builder {
    names: Vec<ResourceName>,
    nodes: Vec<TreeNode>,
    min: Vec<i64>,
    max: Vec<i64>,
    kept: Vec<i64>,
    by_namespace: BTreeMap<String, NodeId>,
    by_name: BTreeMap<String, NodeId>,
    by_path: BTreeMap<String, NodeId>,
    submit: Vec<Submit>,
    warnings: Vec<TreeWarning>,
    /// All that is wrong, so that it can be corrected at once.
    errors: Vec<TreeError>,
    by_share: bool,
    max_loss_milli: Option<i64>,
}

impl Builder {
    /// Breadth first and without recursion: a hostile tree may be deep.
    fn add_all(&mut self, root: &NodeSpec) {
        let mut open: std::collections::VecDeque<(&NodeSpec, Option<NodeId>, usize)> =
            [(root, None, 1)].into();
        while let Some((spec, parent, depth)) = open.pop_front() {
            if self.errors.len() >= MAX_ERRORS {
                return;
            }
            let path = match self.path_of(spec, parent) {
                Ok(path) => path,
                Err(error) => {
                    self.errors.push(error);
                    continue;
                }
            };
            if depth > MAX_DEPTH {
                self.errors.push(TreeError::TooDeep { path, depth });
                continue;
            }
            if self.nodes.len() >= MAX_NODES {
                return self.errors.push(TreeError::TooManyNodes);
            }
            let id = self.add(spec, parent, path);
            open.extend(spec.children.iter().map(|child| (child, Some(id), depth + 1)));
        }
    }

    /// The root is always called `root`.
    fn path_of(&self, spec: &NodeSpec, parent: Option<NodeId>) -> Result<String, TreeError> {
        let Some(parent) = parent else {
            return Ok("root".to_owned());
        };
        let parent_path = &self.nodes[parent.index()].path;
        let name = &spec.name;
        let bad = name.is_empty() || name.len() > MAX_NAME || name.contains(['/', ' ', '\t', '\n', '\r']);
        if bad {
            return Err(TreeError::BadName { parent: parent_path.clone(), name: name.clone() });
        }
        let path = format!("{parent_path}/{name}");
        if self.by_path.contains_key(&path) {
            return Err(TreeError::DuplicateName { parent: parent_path.clone(), name: name.clone() });
        }
        Ok(path)
    }

    fn add(&mut self, spec: &NodeSpec, parent: Option<NodeId>, path: String) -> NodeId {
        // MAX_NODES fits.
        let id = NodeId(self.nodes.len() as u32);
        let min = self.amounts(&spec.min, &path, "min");
        let max = self.amounts(&spec.max, &path, "max");
        let lent = self.lend_limit(spec);
        for r in 0..self.names.len() {
            let guaranteed = min[r].unwrap_or(0);
            let written = max[r].map(|amount| unlimited_above(self.names[r].as_str(), amount));
            let bound = match parent {
                Some(_) => written,
                // The root's capacity is its max, or else its min.
                None => written.or(min[r]),
            };
            self.min.push(guaranteed);
            self.max.push(bound.unwrap_or(i64::MAX));
            self.kept.push(lent[r].map_or(0, |lent| (guaranteed - lent).max(0)));
        }
        self.index_namespaces(spec, id, &path);
        self.submit.push(Submit::read(spec, &path, &mut self.warnings));
        let weight_milli = weight(spec);
        let max_bypass_ms = duration(spec, MAX_BYPASS, DEFAULT_MAX_BYPASS_MS);
        let max_claim_ms = duration(spec, MAX_CLAIM, DEFAULT_MAX_CLAIM_MS);
        let min_runtime_ms = duration(spec, MIN_RUNTIME, 0);
        let requires_queue = match spec.attributes.get(REQUIRE_QUEUE).map(String::as_str) {
            Some("true") => true,
            Some("false") => false,
            _ => parent.is_some_and(|parent| self.nodes[parent.index()].requires_queue),
        };
        let is = |name: &str, word: &str| spec.attributes.get(name).is_some_and(|text| text == word);
        if parent.is_none() {
            self.max_loss_milli = max_loss(spec);
            self.by_share = is(SHARE_PREEMPTION, "FairShare");
        }
        self.by_path.insert(path.clone(), id);
        let name = if parent.is_some() { spec.name.clone() } else { "root".to_owned() };
        if spec.children.is_empty()
            && let Some(earlier) = self.by_name.insert(name.clone(), id)
        {
            let other = self.nodes[earlier.index()].path.clone();
            self.warn(&path, "name", &name, &format!("a leaf name used once, but {other} has it too"));
        }
        if let Some(parent) = parent {
            self.nodes[parent.index()].children.push(id);
        }
        self.nodes.push(TreeNode {
            name,
            path,
            parent,
            children: Vec::new(),
            namespaces: spec.namespaces.clone(),
            attributes: spec.attributes.clone(),
            weight_milli,
            max_bypass_ms,
            max_claim_ms,
            min_runtime_ms,
            reclaim: Reclaim::of(spec.attributes.get(RECLAIM)),
            within: Within::of(spec.attributes.get(WITHIN)),
            lends_min: parent.is_some() && !spec.children.is_empty() && is(GUARANTEE, "Subtree"),
            requires_queue,
            draining: false,
        });
        id
    }

    fn amounts(
        &mut self,
        written: &BTreeMap<String, String>,
        path: &str,
        field: &'static str,
    ) -> Vec<Option<i64>> {
        let mut amounts = vec![None; self.names.len()];
        for (r, name) in self.names.iter().enumerate() {
            let Some(text) = written.get(name.as_str()) else {
                continue;
            };
            let path = path.to_owned();
            match quantity::parse(name.as_str(), text) {
                Ok(amount) if amount >= 0 => amounts[r] = Some(amount),
                Ok(_) => {
                    let (resource, found) = (name.to_string(), text.clone());
                    self.errors.push(TreeError::Negative { path, field, resource, found });
                }
                Err(source) => self.errors.push(TreeError::Quantity { path, field, source }),
            }
        }
        amounts
    }

    fn index_namespaces(&mut self, spec: &NodeSpec, id: NodeId, path: &str) {
        if !spec.children.is_empty() {
            if !spec.namespaces.is_empty() {
                let found = spec.namespaces.join(", ");
                self.warn(path, "namespaces", &found, "namespaces on leaves only; these are ignored");
            }
            return;
        }
        for namespace in &spec.namespaces {
            let earlier = self.by_namespace.insert(namespace.clone(), id);
            if let Some(earlier) = earlier.filter(|earlier| *earlier != id) {
                self.errors.push(TreeError::DuplicateNamespace {
                    namespace: namespace.clone(),
                    first: self.nodes[earlier.index()].path.clone(),
                    second: path.to_owned(),
                });
            }
        }
    }

    /// Written as a flat JSON object of quantities, such as `{"cpu": 4}`.
    fn lend_limit(&self, spec: &NodeSpec) -> Vec<Option<i64>> {
        let mut limits = vec![None; self.names.len()];
        let pairs = spec.attributes.get(LEND_LIMIT).and_then(|text| quantities_in(text));
        for (r, name) in self.names.iter().enumerate().filter(|(r, _)| *r != JOBS) {
            let text = pairs.as_ref().and_then(|pairs| pairs.get(name.as_str()));
            limits[r] =
                text.and_then(|text| quantity::parse(name.as_str(), text).ok()).filter(|amount| *amount >= 0);
        }
        limits
    }

    fn warn(&mut self, path: &str, field: &str, found: &str, allowed: &str) {
        self.warnings.push(TreeWarning::new(path, field, found, allowed));
    }

    fn finish(self) -> Built {
        let width = self.names.len();
        let mut effective_max = self.max.clone();
        // Parents come before children.
        for (i, node) in self.nodes.iter().enumerate() {
            let Some(parent) = node.parent else { continue };
            for r in 0..width {
                effective_max[i * width + r] =
                    effective_max[i * width + r].min(effective_max[parent.index() * width + r]);
            }
        }
        let tree = QuotaTree {
            nodes: self.nodes,
            names: self.names,
            min: self.min,
            max: self.max,
            effective_max,
            keeps: self.kept.iter().any(|kept| *kept > 0),
            by_share: self.by_share,
            max_loss_milli: self.max_loss_milli,
            kept: self.kept,
            by_namespace: self.by_namespace,
            by_name: self.by_name,
            by_path: self.by_path,
            submit: self.submit,
        };
        (tree, self.warnings)
    }
}

/// A plain decimal, in thousandths. An invalid weight counts as 1.
fn weight(spec: &NodeSpec) -> i64 {
    let written = spec.attributes.get(WEIGHT).and_then(|text| quantity::parse(ResourceName::CPU, text).ok());
    written.filter(|weight| *weight >= 0).unwrap_or(1000)
}

/// A duration in milliseconds; an invalid one counts as absent.
fn duration(spec: &NodeSpec, name: &str, default_ms: i64) -> i64 {
    spec.attributes.get(name).and_then(|text| duration_ms(text)).unwrap_or(default_ms)
}

/// In thousandths; an invalid one counts as absent.
fn max_loss(spec: &NodeSpec) -> Option<i64> {
    let limit = quantity::parse(ResourceName::CPU, spec.attributes.get(MAX_LOSS)?).ok()?;
    Some(limit).filter(|limit| *limit >= 0)
}

impl TreeWarning {
    /// A documented rule that is broken.
    pub(crate) fn advice(path: &str, field: &str, found: &str, allowed: &str) -> Self {
        Self { is_mistake: false, ..Self::new(path, field, found, allowed) }
    }

    /// A value that is ignored.
    pub(crate) fn new(path: &str, field: &str, found: &str, allowed: &str) -> Self {
        let found = if found.is_empty() { "\"\"" } else { found };
        Self {
            path: path.to_owned(),
            field: field.to_owned(),
            found: found.to_owned(),
            allowed: allowed.to_owned(),
            is_mistake: true,
            sentence: format!("quota {path}, {field}: found {found}; allowed: {allowed}"),
        }
    }
}

/// Amounts of 2^31-1 units and more are unlimited. Bytes come in far larger numbers: of them only that exact number
/// (a common way to write "unlimited") and the largest representable one are unlimited.
fn unlimited_above(name: &str, amount: i64) -> i64 {
    let unlimited = if quantity::is_bytes(name) {
        amount == UNLIMITED_FROM || amount == i64::MAX
    } else if name == ResourceName::CPU {
        amount >= UNLIMITED_FROM * 1000
    } else {
        amount >= UNLIMITED_FROM
    };
    if unlimited { i64::MAX } else { amount }
}
