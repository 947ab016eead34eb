use super::*;
use crate::selector::LabelSelector;

fn policy(name: &str, scope: PolicyScope, by: ImplicitPriority, priority: i32) -> PolicyRule {
    let selector = ResourceSelector {
        api_version: "kubeflow.org/v1".into(),
        kind: "PyTorchJob".into(),
        name: if by == ImplicitPriority::Name { "job".into() } else { String::new() },
        label_selector: (by == ImplicitPriority::LabelSelector).then(LabelSelector::default),
        ..ResourceSelector::default()
    };
    PolicyRule {
        scope,
        namespace: if scope == PolicyScope::Namespaced { "team".into() } else { String::new() },
        name: name.into(),
        uid: format!("uid-{name}"),
        priority,
        preemption: PreemptionRule::Never,
        deleting: false,
        selectors: vec![selector],
    }
}

fn always(mut policy: PolicyRule) -> PolicyRule {
    policy.preemption = PreemptionRule::Always;
    policy
}

fn claim(policy: &PolicyRule) -> ClaimRef {
    ClaimRef {
        scope: policy.scope,
        namespace: policy.namespace.clone(),
        name: policy.name.clone(),
        uid: policy.uid.clone(),
    }
}

#[test]
fn no_policy_governs_a_binding() {
    let mut policy = policy("all", PolicyScope::Namespaced, ImplicitPriority::All, 0);
    for (api_version, kind, is_governed) in
        [("fleet.dev/v1alpha1", "ResourceBinding", false), ("v1", "Event", false), ("batch/v1", "Job", true)]
    {
        policy.selectors[0].api_version = api_version.into();
        policy.selectors[0].kind = kind.into();
        let object = ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: "team".into(),
            name: "job".into(),
            labels: BTreeMap::new(),
        };
        assert_eq!(choose(&object, None, [&policy]).is_some(), is_governed, "{kind}");
        assert_eq!(choose(&object, Some(&claim(&policy)), [&policy]).is_some(), is_governed, "{kind}");
    }
}

/// `holder` is the index of the policy that already governs the object.
fn check(policies: &[PolicyRule], holder: Option<usize>, expected: Option<&str>) {
    let object = ObjectRef {
        api_version: "kubeflow.org/v1".into(),
        kind: "PyTorchJob".into(),
        namespace: "team".into(),
        name: "job".into(),
        labels: BTreeMap::new(),
    };
    let claimed = holder.map(|at| claim(&policies[at]));
    let chosen =
        |policies: &[PolicyRule]| choose(&object, claimed.as_ref(), policies).map(|p| p.name.clone());
    assert_eq!(chosen(policies).as_deref(), expected);
    let reversed: Vec<PolicyRule> = policies.iter().rev().cloned().collect();
    assert_eq!(chosen(&reversed).as_deref(), expected, "order must not matter");
}

use ImplicitPriority::{All, LabelSelector as Label, Name};
use PolicyScope::{Cluster, Namespaced};

#[test]
fn ties_and_priorities() {
    check(&[policy("abc", Namespaced, All, 0), policy("ab", Namespaced, All, 0)], None, Some("ab"));
    let by_all = policy("a", Namespaced, All, 1);
    let by_label = policy("b", Namespaced, Label, 1);
    let by_name = policy("c", Namespaced, Name, 1);
    check(&[by_all.clone(), by_label.clone()], None, Some("b"));
    check(&[by_all, by_label, by_name.clone()], None, Some("c"));
    check(&[by_name, policy("d", Namespaced, Label, 2)], None, Some("d"));
}

#[test]
fn a_namespaced_policy_goes_before_a_cluster_one() {
    check(&[policy("a", Cluster, Name, 9), policy("b", Namespaced, All, 0)], None, Some("b"));
    check(&[policy("a", Cluster, Name, 9)], None, Some("a"));
}

#[test]
fn a_claim_is_sticky_until_preempted() {
    let low = policy("low", Namespaced, All, 0);
    let high = policy("high", Namespaced, Name, 5);
    check(&[low.clone(), high.clone()], Some(0), Some("low"));
    check(&[low.clone(), always(high.clone())], Some(0), Some("high"));
    check(&[high.clone(), always(low.clone())], Some(0), Some("high"));
    let wide = policy("wide", Cluster, All, 9);
    check(&[wide.clone(), always(low.clone())], Some(0), Some("low"));
    check(&[low.clone(), always(wide.clone())], Some(0), Some("low"));
    check(&[policy("other", Cluster, All, 0), always(wide)], Some(0), Some("wide"));
    let equal = always(policy("aaa", Namespaced, Name, 0));
    check(&[low, equal], Some(0), Some("low"));
}

#[test]
fn a_policy_that_goes_away_gives_its_objects_up() {
    let mut gone = policy("gone", Namespaced, All, 9);
    gone.deleting = true;
    check(&[gone.clone(), policy("next", Namespaced, All, 0)], Some(0), Some("next"));
    check(&[gone], Some(0), None);
}

#[test]
fn system_namespaces_are_left_alone() {
    let everything = [policy("all", Cluster, All, 0)];
    let object = |namespace: &str| ObjectRef {
        api_version: "kubeflow.org/v1".into(),
        kind: "PyTorchJob".into(),
        namespace: namespace.into(),
        ..ObjectRef::default()
    };
    for skipped in ["kube-system", "kube-queue", "fleet-east", "fleet-system"] {
        assert_eq!(choose(&object(skipped), None, &everything), None);
    }
    assert!(choose(&object("default"), None, &everything).is_some());
}
