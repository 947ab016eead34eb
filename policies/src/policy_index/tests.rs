use super::*;
use crate::{
    choice::{ClaimRef, PreemptionRule, choose},
    selector::LabelSelector,
};

fn labels(pairs: &[(&str, usize)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn selector(kind: &str, label: Option<usize>) -> ResourceSelector {
    let label_selector =
        label.map(|of| LabelSelector { match_labels: labels(&[("p", of)]), ..LabelSelector::default() });
    ResourceSelector {
        api_version: "v1".into(),
        kind: kind.into(),
        label_selector,
        ..ResourceSelector::default()
    }
}

fn policy(namespace: &str, name: &str, selectors: Vec<ResourceSelector>) -> PolicyRule {
    let scope = if namespace.is_empty() { PolicyScope::Cluster } else { PolicyScope::Namespaced };
    PolicyRule {
        scope,
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{namespace}-{name}"),
        priority: 0,
        preemption: PreemptionRule::Never,
        deleting: false,
        selectors,
    }
}

fn object(namespace: &str, kind: &str, name: &str, label: usize) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        labels: labels(&[("p", label), ("q", 0)]),
    }
}

/// One tenant's 1,500 policies of 50 selectors each: 75,000 comparisons for each object of anybody, without the index.
#[test]
fn policies_of_one_tenant_cost_the_objects_of_others_nothing() {
    let mut index = PolicyIndex::default();
    for n in 0..1_500 {
        let selectors = (0..50).map(|_| selector("ConfigMap", Some(n))).collect();
        index.insert(policy("a", &format!("pp{n}"), selectors));
    }
    index.insert(policy("b", "own", vec![selector("Job", None)]));
    let compared = |of: &ObjectRef| index.candidates(of).map(|rule| rule.selectors.len()).sum::<usize>();
    assert_eq!(compared(&object("b", "Job", "j", 0)), 1);
    assert_eq!(compared(&object("b", "ConfigMap", "c", 7)), 0);
    assert_eq!(compared(&object("a", "ConfigMap", "c", 7)), 50, "its own policy");
    assert_eq!(compared(&object("a", "Job", "j", 7)), 0);
}

/// The index leaves out no policy that a comparison with all of them would choose.
#[test]
fn the_choice_is_that_of_a_comparison_with_all() {
    // A small generator; its numbers only have to differ.
    let mut seed = 7_u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((seed >> 33) % limit).unwrap()
    };
    let (spaces, kinds) = (["a", "b"], ["Job", "ConfigMap"]);
    for _ in 0..300 {
        let mut index = PolicyIndex::default();
        let mut all: Vec<PolicyRule> = Vec::new();
        for _ in 0..12 {
            let mut selectors = Vec::new();
            for _ in 0..below(3) + 1 {
                let label = (below(3) == 0).then(|| below(3));
                let mut one = selector(kinds[below(2)], label);
                if below(3) == 0 {
                    one.name = format!("o{}", below(3));
                }
                if below(3) == 0 {
                    one.namespace = spaces[below(2)].into();
                }
                selectors.push(one);
            }
            let name = format!("p{}", below(6));
            let mut rule = policy(["a", "b", ""][below(3)], &name, selectors);
            rule.priority = i32::try_from(below(2)).unwrap();
            rule.deleting = below(8) == 0;
            if below(4) == 0 {
                rule.preemption = PreemptionRule::Always;
            }
            all.retain(|known| id_of(known) != id_of(&rule));
            if below(5) == 0 {
                index.remove(rule.scope, &rule.namespace, &rule.name);
            } else {
                index.insert(rule.clone());
                all.push(rule);
            }
        }
        for _ in 0..10 {
            let object = object(spaces[below(2)], kinds[below(2)], &format!("o{}", below(3)), below(3));
            let claim = all.get(below(16)).map(|rule| ClaimRef {
                scope: rule.scope,
                namespace: rule.namespace.clone(),
                name: rule.name.clone(),
                uid: rule.uid.clone(),
            });
            let chosen = choose(&object, claim.as_ref(), index.candidates(&object));
            assert_eq!(chosen, choose(&object, claim.as_ref(), &all), "{object:?} {claim:?} {all:#?}");
        }
        for rule in &all {
            index.remove(rule.scope, &rule.namespace, &rule.name);
        }
        assert!(index.rules.is_empty() && index.shelves.is_empty());
    }
}
