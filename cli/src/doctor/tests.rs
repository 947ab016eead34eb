use std::collections::BTreeMap;

use serde_json::json;

use super::{
    super::{Level, print},
    *,
};
use fleet_console::terminal;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

fn lease(renewed: &str) -> Value {
    json!({"spec": {"holderIdentity": "host-1", "leaseDurationSeconds": 40, "renewTime": renewed}})
}

/// A fleet of one cluster in which nothing is wrong.
fn healthy() -> Facts {
    let east = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "east"}, "spec": {},
        "status": {"kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": 4, "readyNum": 4},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let tree = json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "teams", "namespace": "kube-system"}, "spec": {"root": {"name": "root"}}});
    let policy = json!({"metadata": {"name": "train", "namespace": "default"},
        "status": {"conditions": [{"type": "Effective", "status": "True"}]}});
    Facts {
        scope: Scope::Fleet,
        url: "https://hub:6443".to_string(),
        version: Ok("v1.36.0".to_string()),
        definitions: Ok((Vec::new(), Vec::new())),
        admission: Ok((Vec::new(), Vec::new())),
        rights: [("clusters.fleet.dev".to_string(), true)].into(),
        controller: Ok(lease("2026-01-01T00:09:50Z")),
        clusters: Ok(vec![serde_json::from_value(east).expect("a cluster")]),
        agents: [("east".to_string(), Ok(lease("2026-01-01T00:09:55Z")))].into(),
        trees: Ok(vec![serde_json::from_value(tree).expect("a tree")]),
        policies: Ok(vec![policy]),
    }
}

/// The findings that are not ok, of a fleet with one thing changed.
fn wrong(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = healthy();
    change(&mut facts);
    judge(&facts, now()).into_iter().filter(|finding| finding.level != Level::Ok).collect()
}

/// One finding, of this level, with these words in what was found and what to do.
fn check(change: impl FnOnce(&mut Facts), level: Level, about: &str, found: &str, fix: &str) {
    let findings = wrong(change);
    let [finding] = findings.as_slice() else { panic!("one finding: {findings:#?}") };
    assert_eq!((finding.level, finding.about.as_str()), (level, about));
    assert!(finding.found.contains(found), "{found} in {finding:?}");
    assert!(finding.fix.contains(fix), "{fix} in {finding:?}");
}

#[test]
fn a_healthy_fleet_has_no_findings() {
    insta::assert_snapshot!(print(&judge(&healthy(), now())), @r"
    ok       hub: https://hub:6443 answers, Kubernetes v1.36.0
    ok       definitions: same as in this program (0.1.0)
    ok       admission policies: those of agents, tenants and quota trees are in force
    ok       rights: this user may list clusters, bindings, units and trees
    ok       fleet-controller: host-1 leads
    ok       cluster east: its agent answers, 4 nodes are ready
    ok       quota tree: teams is in force
    ok       policies: 1 are in effect

    Nothing is wrong.
    ");
}

#[test]
fn no_kubeconfig_says_where_one_comes_from() {
    let text = print(&[no_hub("no kubeconfig: KUBECONFIG is not set")]);
    assert!(
        text.contains("ERROR    kubeconfig: no kubeconfig") && text.contains("-> start a fleet"),
        "{text}"
    );
    assert!(text.ends_with("\nErrors: 1, warnings: 0.\n"), "{text}");
}

#[test]
fn a_taken_port_is_named() {
    assert_eq!(ports(&[]), None);
    let finding = ports(&[6445, 6447]).expect("a finding");
    assert!(finding.found.contains("6445, 6447") && finding.fix.contains("--port"), "{finding:?}");
}

#[test]
fn a_hub_that_cannot_be_asked_is_the_one_finding() {
    let set = |version: Read<String>| move |facts: &mut Facts| facts.version = version;
    let message = || "no".to_string();
    check(set(Err(Missing::Other(message()))), Level::Error, "hub", "no", "fleet up");
    check(set(Err(Missing::Unknown(message()))), Level::Error, "hub", "no", "renew the credentials");
    check(set(Err(Missing::Forbidden(message()))), Level::Error, "hub", "no", "rights on the hub");
    check(
        set(Err(Missing::NotFound)),
        Level::Error,
        "hub",
        "serves no /version",
        "not a Kubernetes API server",
    );
    check(set(Ok("v1.29.4".into())), Level::Error, "hub", "v1.29.4", "1.30 or newer");
}

#[test]
fn version_skew_and_what_is_no_hub() {
    let set = |missing: &[&str], differ: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        let definitions = Ok((owned(missing), owned(differ)));
        move |facts: &mut Facts| facts.definitions = definitions
    };
    check(set(&["clusters.fleet.dev"], &[]), Level::Error, "definitions", "is not a hub", "fleet crds --hub");
    check(set(&["works.fleet.dev"], &[]), Level::Error, "definitions", "missing: works.fleet.dev", "--hub");
    check(
        set(&[], &["works.fleet.dev"]),
        Level::Warning,
        "definitions",
        "another version",
        "upgrade the hub",
    );
}

#[test]
fn an_admission_policy_that_is_not_in_force_is_named() {
    let set = |refuse: &[&str], warn: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        let admission = Ok((owned(refuse), owned(warn)));
        move |facts: &mut Facts| facts.admission = admission
    };
    let about = "admission policies";
    check(set(&["fleet-agent-works"], &[]), Level::Error, about, "fleet-agent-works", "admission.yaml");
    check(set(&[], &["fleet-quota-tree"]), Level::Warning, about, "quota trees", "quota-tree-warnings.yaml");
    let unknown = |facts: &mut Facts| facts.admission = Err(Missing::Forbidden("no".into()));
    check(unknown, Level::Warning, about, "not checked: no", "right to list");
}

#[test]
fn the_hub_alone_is_judged_without_those_who_use_it() {
    let alone = |change: fn(&mut Facts)| {
        wrong(|facts| {
            facts.scope = Scope::Hub;
            (facts.rights, facts.clusters) = (BTreeMap::new(), Err(Missing::NotFound));
            (facts.trees, facts.policies) = (Err(Missing::NotFound), Err(Missing::NotFound));
            change(facts);
        })
    };
    assert_eq!(alone(|_| {}), []);
    let led = alone(|facts| facts.controller = Ok(lease("2026-01-01T00:05:00Z")));
    assert!(led.len() == 1 && led[0].found.starts_with("none leads"), "{led:?}");
    let led = alone(|facts| facts.controller = Err(Missing::NotFound));
    assert!(led.len() == 1 && led[0].found == "none has ever led", "{led:?}");
}

#[test]
fn a_right_that_is_missing_is_named_with_its_command() {
    check(
        |facts| facts.rights = [("queueunits.scheduling.x-k8s.io".to_string(), false)].into(),
        Level::Warning,
        "rights",
        "may not list queueunits.scheduling.x-k8s.io in all namespaces, which `fleet queue` needs",
        "ClusterRole",
    );
    let refused = || Err(Missing::Forbidden("forbidden: no".to_string()));
    check(|facts| facts.trees = refused(), Level::Warning, "quota tree", "not checked", "right to list");
    check(|facts| facts.policies = Err(Missing::Other("x".into())), Level::Warning, "policies", "x", "again");
}

#[test]
fn a_silent_controller_or_agent_is_an_error() {
    let start = "fleet-controller --kubeconfig HUB";
    let about = "fleet-controller";
    let old = || Ok(lease("2026-01-01T00:05:00Z"));
    let never = |facts: &mut Facts| facts.controller = Err(Missing::NotFound);
    assert_eq!(wrong(never), [], "without leader election there is no lease");
    let silent = wrong(|facts| {
        never(facts);
        facts.clusters = Ok(Vec::new());
    });
    assert!(
        silent.iter().any(|f| f.about == about && f.found == "none has ever led" && f.fix.contains(start))
    );
    check(|facts| facts.controller = old(), Level::Error, about, "renewed 5m ago", start);
    let given_back = json!({"spec": {"holderIdentity": "", "renewTime": "2026-01-01T00:09:59Z"}});
    check(|facts| facts.controller = Ok(given_back), Level::Error, about, "none leads", start);

    let agent =
        |lease: Read<Value>| move |facts: &mut Facts| facts.agents = BTreeMap::from([("east".into(), lease)]);
    let about = "cluster east";
    check(agent(old()), Level::Error, about, "silent for 5m", "credential for namespace fleet-east");
    check(agent(Err(Missing::NotFound)), Level::Error, about, "never answered", "log");
    check(|facts| facts.clusters = Ok(Vec::new()), Level::Error, "clusters", "none has joined", "fleet join");
}

#[test]
fn a_cluster_says_why_it_takes_no_jobs() {
    let about = "cluster east";
    let change = |at: &'static str, value: Value| {
        move |facts: &mut Facts| {
            let mut east = json!(facts.clusters.as_ref().expect("clusters")[0]);
            *east.pointer_mut(at).expect("a field") = value;
            facts.clusters = Ok(vec![serde_json::from_value(east).expect("a cluster")]);
        }
    };
    let unknown = json!([{"type": "Ready", "status": "Unknown", "reason": "ClusterNotReady", "message": "silent",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    check(
        change("/status/conditions", unknown),
        Level::Error,
        about,
        "not ready: ClusterNotReady: silent",
        "agent",
    );
    check(change("/status/kubernetesVersion", json!("v1.28.1")), Level::Warning, about, "v1.28.1", "1.30");
    check(change("/status/nodeSummary/readyNum", json!(3)), Level::Warning, about, "3 of 4 nodes", "nodes");
    let cordoned = json!({"taints": [{"key": "cluster.fleet.dev/unschedulable", "effect": "NoSchedule"}]});
    check(change("/spec", cordoned), Level::Warning, about, "no new work", "fleet uncordon east");
}

#[test]
fn a_tree_that_is_not_in_force_is_an_error() {
    let about = "quota tree";
    let set = |conditions: Value| {
        move |facts: &mut Facts| {
            let mut tree = json!(facts.trees.as_ref().expect("trees")[0]);
            tree["status"] = json!({"conditions": conditions});
            facts.trees = Ok(vec![serde_json::from_value(tree).expect("a tree")]);
        }
    };
    let condition = |kind: &str, message: &str| {
        json!([{"type": kind, "status": "False", "reason": "x", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    check(
        set(condition("Valid", "root/a, max: found x")),
        Level::Error,
        about,
        "teams is not in force: root/a, max: found x. In force: no tree",
        "kubectl edit elasticquotatree teams",
    );
    let many = "quota root, max: a; quota root/b, min: c; quota root/d, min: e";
    check(set(condition("RulesKept", many)), Level::Warning, about, "max: a; and 2 more", "fleet describe");
    check(|facts| facts.trees = Ok(Vec::new()), Level::Warning, about, "there is none", "ElasticQuotaTree");
}

#[test]
fn a_policy_for_a_whole_kind_may_select_nothing() {
    let findings = |selector: serde_json::Value| {
        let condition =
            json!({"type": "Effective", "status": "False", "reason": "SelectsNothing", "message": "why"});
        let listed = vec![json!({"metadata": {"name": "train", "namespace": "default"},
            "spec": {"resourceSelectors": [selector]}, "status": {"conditions": [condition]}})];
        policies(&Ok(listed)).iter().filter(|found| found.level == Level::Warning).count()
    };
    assert_eq!(findings(json!({"apiVersion": "batch/v1", "kind": "Job"})), 0);
    assert_eq!(findings(json!({"apiVersion": "batch/v1", "kind": "Job", "name": "tarin"})), 1);
    assert_eq!(findings(json!({"apiVersion": "batch/v1", "kind": "Job", "labelSelector": {}})), 1);
}

#[test]
fn a_policy_without_effect_is_named() {
    let set = |reason: &'static str| {
        move |facts: &mut Facts| {
            facts.policies = Ok(vec![json!({"metadata": {"name": "train", "namespace": "default"},
                "status": {"conditions": [{"type": "Effective", "status": "False", "reason": reason,
                    "message": "why"}]}})]);
        }
    };
    let about = "policy default/train";
    check(set("SelectsNothing"), Level::Warning, about, "SelectsNothing: why", "resourceSelectors");
    check(set("KindNotServed"), Level::Error, about, "KindNotServed", "install the definition");
    check(set("UnknownCluster"), Level::Error, about, "UnknownCluster", "fleet clusters");
    check(set("PolicyInvalid"), Level::Error, about, "PolicyInvalid", "correct the field");
    check(
        |facts| facts.policies = Ok(Vec::new()),
        Level::Warning,
        "policies",
        "there is none",
        "PropagationPolicy",
    );
}

#[test]
fn findings_fit_80_columns() {
    let findings = wrong(|facts| {
        facts.agents = BTreeMap::from([("east".into(), Err(Missing::NotFound))]);
        facts.rights = [("queueunits.scheduling.x-k8s.io".to_string(), false)].into();
    });
    insta::assert_snapshot!(terminal::fold(&print(&findings), Some(80)), @r"
    warning  rights: this user may not list queueunits.scheduling.x-k8s.io in all
             namespaces, which `fleet queue` needs
             -> tenants: name your namespace with -n; operators: ask for a
                ClusterRole with that right
    ERROR    cluster east: its agent has never answered
             -> check the agent's process and log, and its credential for namespace
                fleet-east of the hub

    Errors: 1, warnings: 1.
    ");
}
