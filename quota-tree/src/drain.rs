//! Deleted leaves that still have jobs.

use crate::model::{NodeId, QuotaTree, TreeNode};

impl QuotaTree {
    /// Where to count a job whose leaf was at `path` in an older tree: the leaf of that path; or the nearest
    /// ancestor, if that is a leaf now; or else a draining leaf below it, which is made if necessary.
    pub fn drain(&mut self, path: &str) -> NodeId {
        let (ancestor, rest) = self.nearest(path);
        if self.node(ancestor).is_leaf() && !self.node(ancestor).draining {
            return ancestor;
        }
        let mut name = if rest.is_empty() { "~".to_owned() } else { rest.replace('/', "~") };
        loop {
            let path = format!("{}/{name}", self.node(ancestor).path);
            match self.find(&path) {
                Some(known) if self.node(known).draining => return known,
                Some(_) => name.push('~'),
                None => return self.add_draining(ancestor, name, path),
            }
        }
    }

    /// The longest prefix of the path that exists, and the rest.
    fn nearest<'p>(&self, path: &'p str) -> (NodeId, &'p str) {
        let mut end = path.len();
        loop {
            let known = self.find(&path[..end]).filter(|id| !self.node(*id).draining);
            if let Some(known) = known {
                return (known, path[end..].trim_start_matches('/'));
            }
            match path[..end].rfind('/') {
                Some(at) => end = at,
                None => return (NodeId::ROOT, path),
            }
        }
    }

    fn add_draining(&mut self, parent: NodeId, name: String, path: String) -> NodeId {
        // Trees are bounded far below 2^32, and a draining leaf has a job.
        let id = NodeId(self.nodes.len() as u32);
        for r in 0..self.names.len() {
            self.min.push(0);
            self.max.push(i64::MAX);
            self.kept.push(0);
            self.effective_max.push(self.effective_max[self.cell(parent, r)]);
        }
        self.nodes[parent.index()].children.push(id);
        self.by_path.insert(path.clone(), id);
        let above = self.node(parent);
        self.nodes.push(TreeNode {
            name,
            path,
            parent: Some(parent),
            children: Vec::new(),
            namespaces: Vec::new(),
            attributes: Default::default(),
            weight_milli: above.weight_milli,
            max_bypass_ms: above.max_bypass_ms,
            max_claim_ms: above.max_claim_ms,
            min_runtime_ms: 0,
            reclaim: Default::default(),
            within: Default::default(),
            lends_min: false,
            requires_queue: above.requires_queue,
            draining: true,
        });
        id
    }
}
