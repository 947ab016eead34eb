//! Cycles of dependencies between names.

use std::collections::{BTreeMap, BTreeSet};

/// A cycle of dependencies, from a name back to itself; unknown names are ignored.
pub(crate) fn find<'n>(needs: &BTreeMap<&'n str, Vec<&'n str>>) -> Option<Vec<&'n str>> {
    // Names without open dependencies are removed; the rest is on a cycle or depends on one.
    let mut left: BTreeSet<&str> = needs.keys().copied().collect();
    let waits = |name: &str, left: &BTreeSet<&str>| -> Option<&'n str> {
        needs.get(name)?.iter().copied().find(|need| left.contains(need))
    };
    while let Some(free) = left.iter().copied().find(|name| waits(name, &left).is_none()) {
        left.remove(free);
    }
    let mut path = vec![*left.first()?];
    loop {
        let next = waits(path.last()?, &left)?;
        if let Some(at) = path.iter().position(|name| *name == next) {
            let mut cycle = path.split_off(at);
            cycle.push(next);
            return Some(cycle);
        }
        path.push(next);
    }
}

/// The cycle as a sentence.
pub(crate) fn sentence(cycle: &[&str]) -> String {
    format!("found the cycle {}; allowed: dependsOn without a cycle", cycle.join(" -> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_any_length_are_found_and_nothing_else() {
        let check = |needs: &[(&'static str, &[&'static str])], wanted: &str| {
            let needs = needs.iter().map(|(name, needs)| (*name, needs.to_vec())).collect();
            assert_eq!(find(&needs).map(|cycle| cycle.join(" ")).unwrap_or_default(), wanted);
        };
        check(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b", "nobody"])], "");
        check(&[("a", &["a"])], "a a");
        check(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"])], "a c b a");
        // Behind a chain, and with others waiting behind it.
        check(
            &[("a", &["b"]), ("b", &["x", "c"]), ("c", &["d"]), ("d", &["e"]), ("e", &["b"]), ("x", &[])],
            "b c d e b",
        );
    }
}
