//! The page of administration: what it does, and that it does nothing that the hub does not let its user do.

use std::time::Duration;

use axum::http::{Request, header};
use serde_json::{Value, json};

use crate::hub::{Browser, Hub, location};

const PATH: &str = "/administration";
const TREES: &str = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees";
const CELLS: &str = "/apis/fleet.dev/v1alpha1/cellconfigurations";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Sends a form of the page; `None`: it was done.
async fn refused(hub: &Hub, browser: &mut Browser, fields: &str) -> Option<String> {
    let answer = hub.post(browser, PATH, fields).await;
    match answer.status {
        303 => {
            assert_eq!(location(&answer), PATH);
            None
        }
        status => {
            assert_eq!(status, 422, "{fields}: {}", answer.body);
            assert!(answer.body.contains("role=\"alert\""), "{}", answer.body);
            Some(answer.body)
        }
    }
}

async fn tenants(hub: &Hub, namespace: &str) -> Vec<Value> {
    let listed = hub.object(&format!("{RBAC}/namespaces/{namespace}/rolebindings")).await.expect("a list");
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|binding| binding["roleRef"]["name"] == "fleet-tenant").collect()
}

async fn with_tree_and_cells() -> Hub {
    let hub = Hub::start().await;
    let tree = json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "tree"},
        "spec": {"root": {"name": "root", "min": {"nvidia.com/gpu": "8"}, "children": [
            {"name": "research", "namespaces": ["a"], "attributes": {"fleet.dev/weight": "3", "fleet.dev/submitters": "user:alice"}},
            {"name": "other", "namespaces": ["b"]}]}}});
    hub.create(TREES, tree).await;
    let config: Value =
        fleet_api::yaml::read(include_str!("../../examples/hived/two-virtual-clusters.yaml")).expect("YAML");
    let text = config["hivedscheduler"]["config"].as_str().expect("a configuration");
    let spec: Value = fleet_api::yaml::read(text).expect("YAML");
    let cells = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration", "metadata": {"name": "cells"}, "spec": spec});
    hub.create(CELLS, cells).await;
    hub
}

#[tokio::test]
async fn a_namespace_is_given_and_taken_away() {
    let hub = Hub::start().await;
    hub.create("/api/v1/namespaces", json!({"metadata": {"name": "kube-queue"}})).await;
    let mut root = hub.sign_in("token-r").await;
    for (who, subject) in [
        ("user:carol", json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"})),
        ("group:ml", json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ml"})),
        ("serviceaccount:b/ci", json!({"kind": "ServiceAccount", "name": "ci", "namespace": "b"})),
    ] {
        let fields = format!("do=grant&who={}&namespace=a", who.replace(':', "%3A").replace('/', "%2F"));
        assert_eq!(refused(&hub, &mut root, &fields).await, None, "{who}");
        // Twice is once.
        assert_eq!(refused(&hub, &mut root, &fields).await, None, "{who}");
        let found = tenants(&hub, "a").await;
        let bindings: Vec<&Value> =
            found.iter().filter(|binding| binding["subjects"][0]["name"] == subject["name"]).collect();
        assert_eq!(bindings.len(), 1, "{who}: {found:?}");
        for (key, value) in subject.as_object().expect("fields") {
            assert_eq!(&bindings[0]["subjects"][0][key], value, "{who}");
        }
        let page = hub.get(&mut root, PATH).await.body;
        assert!(page.contains(who), "{who}: {page}");
    }
    let queues = hub.object(&format!("{RBAC}/namespaces/kube-queue/rolebindings")).await.expect("a list");
    assert_eq!(queues["items"].as_array().map(Vec::len), Some(3), "{queues}");
    for (fields, says) in [
        ("do=grant&who=carol&namespace=a", "Who: found &quot;carol&quot;; allowed: user:NAME"),
        ("do=grant&who=user%3Acarol&namespace=A%2F..", "Namespace: found &quot;A/..&quot;; allowed"),
        ("do=grant&who=user%3Acarol&namespace=none", "none"),
        ("do=odd", "do: found &quot;odd&quot;; allowed"),
        (
            "do=revoke&namespace=a&binding=alice",
            "found one of role &quot;tenant&quot;; allowed: one of fleet-tenant, fleet-quota",
        ),
        (
            "do=revoke&namespace=&binding=cluster-admin",
            "found one of role &quot;cluster-admin&quot;; allowed",
        ),
        ("do=revoke&namespace=a&binding=..%2Fx", "RoleBinding: found &quot;../x&quot;; allowed"),
    ] {
        let said = refused(&hub, &mut root, fields).await;
        assert!(said.as_ref().is_some_and(|said| said.contains(says)), "{fields}: {said:?}");
    }
    let name = tenants(&hub, "a").await[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    assert_eq!(refused(&hub, &mut root, &format!("do=revoke&namespace=a&binding={name}")).await, None);
    assert_eq!(tenants(&hub, "a").await.len(), 2);
}

/// What a tenant may see beside his own is given where the form says so, and taken away.
#[tokio::test]
async fn more_sight_is_given_and_taken_away() {
    let hub = Hub::start().await;
    let mut root = hub.sign_in("token-r").await;
    let more = "quota=yes&clusters=yes";
    assert_eq!(
        refused(&hub, &mut root, &format!("do=grant&who=user%3Acarol&namespace=a&{more}")).await,
        None
    );
    let named = |listed: &Value, role: &str| {
        let items = listed["items"].as_array().into_iter().flatten();
        let of_role = items.filter(|binding| binding["roleRef"]["name"] == role);
        of_role.filter_map(|one| one["metadata"]["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let in_system = format!("{RBAC}/namespaces/kube-system/rolebindings");
    let of_all = format!("{RBAC}/clusterrolebindings");
    let quota = named(&hub.object(&in_system).await.expect("a list"), "fleet-quota-reader");
    let listed = hub.object(&of_all).await.expect("a list");
    let clusters = named(&listed, "fleet-cluster-reader");
    assert_eq!((quota.len(), clusters.len()), (1, 1));
    assert!(named(&listed, "fleet-virtual-cluster-reader").is_empty(), "it was not chosen");
    let page = hub.get(&mut root, PATH).await.body;
    assert!(page.contains("fleet-quota-reader</td>") && page.contains("fleet-cluster-reader</td>"), "{page}");
    let fields = format!("do=revoke&namespace=&binding={}", clusters[0]);
    assert_eq!(refused(&hub, &mut root, &fields).await, None);
    let fields = format!("do=revoke&namespace=kube-system&binding={}", quota[0]);
    assert_eq!(refused(&hub, &mut root, &fields).await, None);
    assert!(named(&hub.object(&of_all).await.expect("a list"), "fleet-cluster-reader").is_empty());
    assert_eq!(tenants(&hub, "a").await.len(), 1, "the namespace stays hers");
    // Who may not give it is told, and what he may give stands.
    hub.allow(
        "a",
        "alice",
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["*"]}),
    )
    .await;
    hub.allow(
        "a",
        "alice",
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]}),
    )
    .await;
    let mut alice = hub.sign_in("token-a").await;
    hub.get(&mut alice, PATH).await;
    let said = refused(&hub, &mut alice, "do=grant&who=user%3Adan&namespace=a&clusters=yes").await;
    assert!(said.is_some_and(|said| said.contains("fleet-cluster-reader was not given")));
    assert_eq!(tenants(&hub, "a").await.len(), 2);
}

#[tokio::test]
async fn an_account_gets_a_token_that_is_shown_once() {
    let hub = Hub::start().await;
    let mut root = hub.sign_in("token-r").await;
    assert_eq!(refused(&hub, &mut root, "do=account&namespace=a&name=robot").await, None);
    let said = refused(&hub, &mut root, "do=account&namespace=a&name=robot").await;
    assert!(said.is_some_and(|said| said.contains("already exists")));
    for (hours, says) in [("0", "Hours: found"), ("x", "Hours: found"), ("99999", "Hours: found")] {
        let said = refused(&hub, &mut root, &format!("do=token&namespace=a&name=robot&hours={hours}")).await;
        assert!(said.is_some_and(|said| said.contains(says)), "{hours}");
    }
    let answer = hub.post(&mut root, PATH, "do=token&namespace=a&name=robot&hours=2").await;
    assert_eq!(
        (answer.status, &answer.headers[header::CACHE_CONTROL]),
        (200, &"no-store".parse().expect("a value"))
    );
    let token = answer.body.split("<pre tabindex=\"0\">").nth(1).and_then(|rest| rest.split('<').next());
    let token = token.expect("a token").to_owned();
    assert!(!hub.get(&mut root, PATH).await.body.contains(&token));
    let mut robot = hub.sign_in(&token).await;
    assert!(hub.get(&mut robot, "/").await.body.contains("system:serviceaccount:a:robot"));
    assert_eq!(refused(&hub, &mut root, "do=dismiss&namespace=a&name=robot").await, None);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!(hub.get(&mut robot, "/").await.status, 303);
}

#[tokio::test]
async fn queues_and_virtual_clusters_are_opened_and_closed() {
    let hub = with_tree_and_cells().await;
    let mut root = hub.sign_in("token-r").await;
    let page = hub.get(&mut root, PATH).await.body;
    assert!(page.contains("root/research") && page.contains("value=\"user:alice\""), "{page}");
    let leaf = "do=queue&tree=tree&path=root%2Fresearch";
    let fields = format!("{leaf}&namespaces=a,+team-c&submitter-namespaces=a&submitters=*");
    assert_eq!(refused(&hub, &mut root, &fields).await, None);
    let tree = hub.object(&format!("{TREES}/tree")).await.expect("a tree");
    let node = &tree["spec"]["root"]["children"][0];
    assert_eq!(node["namespaces"], json!(["a", "team-c"]));
    assert_eq!(node["attributes"], json!({"fleet.dev/weight": "3", "fleet.dev/submitter-namespaces": "a"}));
    assert_eq!(tree["spec"]["root"]["min"], json!({"nvidia.com/gpu": "8"}));
    // Nobody is not everybody.
    let fields = format!("{leaf}&namespaces=a&submitter-namespaces=*&submitters=");
    assert_eq!(refused(&hub, &mut root, &fields).await, None);
    let tree = hub.object(&format!("{TREES}/tree")).await.expect("a tree");
    let node = &tree["spec"]["root"]["children"][0];
    assert_eq!(node["attributes"], json!({"fleet.dev/weight": "3", "fleet.dev/submitters": ""}));
    for (fields, says) in [
        (format!("{leaf}&namespaces=*&submitter-namespaces=*&submitters=*"), "namespaces: found *"),
        (
            format!("{leaf}&namespaces=a&submitter-namespaces=A!&submitters=*"),
            "submitter-namespaces: found &quot;A!&quot;",
        ),
        (
            format!("{leaf}&namespaces=a&submitter-namespaces=*&submitters=alice"),
            "submitters: found &quot;alice&quot;; allowed: user:NAME",
        ),
        (
            "do=queue&tree=tree&path=root%2Fnone&submitters=*&submitter-namespaces=*".to_owned(),
            "queue: found &quot;root/none&quot;",
        ),
        ("do=queue&tree=none&path=root&submitters=*&submitter-namespaces=*".to_owned(), "none"),
    ] {
        let said = refused(&hub, &mut root, &fields).await;
        assert!(said.as_ref().is_some_and(|said| said.contains(says)), "{fields}: {said:?}");
    }
    let object = hub.object(&format!("{CELLS}/cells")).await.expect("cells");
    let vc =
        object["spec"]["virtualClusters"].as_object().and_then(|all| all.keys().next()).expect("one").clone();
    let fields = format!(
        "do=virtual-cluster&configuration=cells&name={vc}&submitters=serviceaccount%3Aa%2Fci&submitter-namespaces=a,b&guaranteed-namespaces=*"
    );
    assert_eq!(refused(&hub, &mut root, &fields).await, None);
    let object = hub.object(&format!("{CELLS}/cells")).await.expect("cells");
    let rules = json!({"submitters": ["serviceaccount:a/ci"], "submitterNamespaces": ["a", "b"]});
    assert_eq!(object["spec"]["access"][&vc], rules);
    let said = refused(&hub, &mut root, "do=virtual-cluster&configuration=cells&name=none&submitters=*&submitter-namespaces=*&guaranteed-namespaces=*").await;
    assert!(said.is_some_and(|said| said.contains("virtual cluster: found &quot;none&quot;")));
    let page = hub.get(&mut root, PATH).await.body;
    assert!(page.contains("value=\"serviceaccount:a/ci\"") && page.contains("value=\"a, b\""), "{page}");
}

#[tokio::test]
async fn a_cluster_is_joined_by_a_command_to_paste() {
    let hub = Hub::start().await;
    let mut root = hub.sign_in("token-r").await;
    let page = hub.get(&mut root, &format!("{PATH}?join=east")).await;
    assert!(page.status == 200 && page.body.contains(">fleet join east</pre>"), "{}", page.body);
    assert!(page.body.contains("fleet join east --print &gt; east.yaml"), "{}", page.body);
    for odd in ["East", "a%3Brm", "%24(x)", "hub"] {
        let page = hub.get(&mut root, &format!("{PATH}?join={odd}")).await;
        assert!(page.status == 422 && !page.body.contains("fleet join"), "{odd}: {}", page.body);
        assert!(page.body.contains("Cluster: found"), "{odd}");
    }
    hub.create(
        "/apis/fleet.dev/v1alpha1/clusters",
        json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "west"}, "spec": {"syncMode": "Pull"}}),
    )
    .await;
    hub.until(|known| known.clusters().contains_key("west")).await;
    let page = hub.get(&mut root, PATH).await.body;
    assert!(page.contains("Never heard of") && page.contains("fleet status west"), "{page}");
}

/// Who may change nothing sees no form, and a form of somebody else's does nothing for him.
#[tokio::test]
async fn nobody_does_more_than_the_hub_lets_him() {
    let hub = with_tree_and_cells().await;
    let mut root = hub.sign_in("token-r").await;
    assert_eq!(refused(&hub, &mut root, "do=account&namespace=a&name=robot").await, None);
    assert_eq!(refused(&hub, &mut root, "do=grant&who=user%3Acarol&namespace=a").await, None);
    let binding = tenants(&hub, "a").await[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    let before = hub.object(&format!("{TREES}/tree")).await.expect("a tree");
    let mut alice = hub.sign_in("token-a").await;
    let page = hub.get(&mut alice, PATH).await.body;
    assert!(page.contains("change nothing") && page.contains("Not shown: "), "{page}");
    for hidden in ["root/research", "carol", "robot", "VC1", "name=\"do\""] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
    let vc = "do=virtual-cluster&configuration=cells&name=VC1&submitters=*&submitter-namespaces=*&guaranteed-namespaces=*";
    for fields in [
        "do=grant&who=user%3Aalice&namespace=b",
        "do=grant&who=user%3Aalice&namespace=a",
        &format!("do=revoke&namespace=a&binding={binding}"),
        "do=account&namespace=a&name=mine",
        "do=dismiss&namespace=a&name=robot",
        "do=token&namespace=a&name=robot&hours=1",
        "do=queue&tree=tree&path=root%2Fresearch&namespaces=a&submitter-namespaces=*&submitters=*",
        vc,
    ] {
        let said = refused(&hub, &mut alice, fields).await.expect("refused");
        assert!(said.contains("alice") && said.contains("cannot"), "{fields}: {said}");
    }
    assert_eq!(hub.object(&format!("{TREES}/tree")).await.expect("a tree"), before);
    assert_eq!(tenants(&hub, "a").await.len(), 1);
    assert!(hub.object("/api/v1/namespaces/a/serviceaccounts/robot").await.is_ok());
    // One who may give rights in his namespace gives them there.
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let role = json!({"metadata": {"name": "head"}, "rules": [rule("rbac.authorization.k8s.io", &["rolebindings"]),
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["fleet-tenant"], "verbs": ["bind"]}]});
    hub.create(&format!("{RBAC}/clusterroles"), role).await;
    let of_alice = json!({"metadata": {"name": "head"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "head"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    hub.create(&format!("{RBAC}/namespaces/a/rolebindings"), of_alice).await;
    hub.job("a", "of-alice", "waits").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let page = hub.get(&mut alice, PATH).await.body;
    assert!(
        page.contains("user:carol")
            && page.contains("value=\"grant\"")
            && !page.contains("value=\"account\""),
        "{page}"
    );
    assert_eq!(refused(&hub, &mut alice, "do=grant&who=group%3Aml&namespace=a").await, None);
    assert!(refused(&hub, &mut alice, "do=grant&who=group%3Aml&namespace=b").await.is_some());
    assert_eq!(tenants(&hub, "a").await.len(), 2);
}

#[tokio::test]
async fn forms_of_other_sites_do_nothing() {
    let hub = Hub::start().await;
    let mut root = hub.sign_in("token-r").await;
    let good = format!("form_key={}&do=account&namespace=a&name=robot", root.form_key);
    for (name, value, body) in [
        ("origin", "http://evil.example.com", good.as_str()),
        ("origin", "null", &good),
        ("sec-fetch-site", "cross-site", &good),
        ("origin", "http://portal.example.com", "do=account&namespace=a&name=robot"),
        ("origin", "http://portal.example.com", "form_key=x&do=account&namespace=a&name=robot"),
    ] {
        let request = Request::post(PATH).header(name, value);
        assert_eq!(hub.send(&mut root, request, body).await.status, 403, "{name}: {value}");
    }
    assert!(hub.object("/api/v1/namespaces/a/serviceaccounts/robot").await.is_err());
    let answer = hub.post(&mut Browser::default(), PATH, "do=account&namespace=a&name=robot").await;
    assert!(location(&answer).starts_with("/sign-in"));
}
