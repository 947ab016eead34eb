//! Circles in a graph of modules.

use std::collections::{BTreeMap, BTreeSet};

/// By module those it uses.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// Sets of modules each of which reaches each other one; alone standing modules are left out.
pub fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let mut search = Search { uses, next: 0, state: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for module in uses.keys() {
        if !search.state.contains_key(module.as_str()) {
            search.visit(module);
        }
    }
    search.found.retain(|circle| circle.len() > 1);
    search.found
}

/// Tarjan's search for strongly connected parts.
struct Search<'a> {
    uses: &'a Uses,
    next: usize,
    /// Number, lowest number reached, whether on the stack.
    state: BTreeMap<&'a str, (usize, usize, bool)>,
    stack: Vec<&'a str>,
    found: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, module: &'a str) {
        let number = self.next;
        self.next += 1;
        self.state.insert(module, (number, number, true));
        self.stack.push(module);
        for to in self.uses.get(module).into_iter().flatten() {
            let reached = match self.state.get(to.as_str()) {
                None => {
                    self.visit(to);
                    self.state[to.as_str()].1
                }
                Some((number, _, true)) => *number,
                Some(_) => continue,
            };
            if let Some((_, lowest, _)) = self.state.get_mut(module) {
                *lowest = (*lowest).min(reached);
            }
        }
        if self.state[module].1 != number {
            return;
        }
        let mut circle = BTreeSet::new();
        while let Some(top) = self.stack.pop() {
            if let Some(state) = self.state.get_mut(top) {
                state.2 = false;
            }
            circle.insert(top.to_string());
            if top == module {
                break;
            }
        }
        self.found.push(circle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_and_a_diamond_is_none() {
        let graph = |edges: &[(&str, &str)]| {
            let mut uses = Uses::new();
            for (from, to) in edges {
                uses.entry(from.to_string()).or_default().insert(to.to_string());
                uses.entry(to.to_string()).or_default();
            }
            circles(&uses)
        };
        assert!(graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]).is_empty());
        let found = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]);
        let sizes: Vec<usize> = found.iter().map(BTreeSet::len).collect();
        assert_eq!(sizes, [2, 3]);
    }
}
