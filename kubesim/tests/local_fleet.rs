//! A whole fleet in this process: the walkthrough's job from the queue to its end, and a restart.

use std::{future::Future, path::Path, time::Duration};

use fleet_kubesim::{FleetSpec, Listen, LocalFleet, MemberSpec, RunTime};
use fleet_quota_tree::{On, Values};
use http::Request;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
    client::Body,
};

const WITHIN: Duration = Duration::from_secs(30);
const TREE: &str = include_str!("../../examples/walkthrough/elasticquotatree.yaml");
const POLICY: &str = include_str!("../../examples/walkthrough/propagationpolicy-gang-queued.yaml");
const JOB: &str = include_str!("../../examples/walkthrough/pytorchjob.yaml");

async fn start(data_dir: Option<&Path>, run_time: Duration) -> LocalFleet {
    let spec = FleetSpec {
        members: MemberSpec::many(2, 2, 8, "64", "512Gi"),
        data_dir: data_dir.map(Path::to_path_buf),
        default_run_time: RunTime::For(run_time),
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await.expect("starts");
    fleet.ready(WITHIN).await.expect("ready");
    fleet
}

async fn create(client: &Client, manifest: &str) {
    let object: DynamicObject = fleet_api::yaml::read(manifest).expect("a manifest");
    let types = object.types.clone().expect("types");
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).expect("a kind"));
    let namespace = object.metadata.namespace.clone().unwrap_or_else(|| "default".to_string());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    api.create(&PostParams::default(), &object).await.expect("created");
}

async fn state(client: &Client, name: &str) -> String {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let job = api.get(name).await.expect("there");
    let last = job.data["status"]["conditions"].as_array().and_then(|all| all.last().cloned());
    last.and_then(|condition| condition["type"].as_str().map(str::to_string)).unwrap_or_default()
}

async fn wait<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let looking = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| panic!("waited for {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_runs_and_succeeds() {
    // Long enough to be seen on a busy machine.
    let fleet = start(None, Duration::from_secs(6)).await;
    let hub = fleet.hub();
    for manifest in [TREE, POLICY, JOB] {
        create(&hub, manifest).await;
    }
    // Of jobs of one second any may be first.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    create(&hub, &JOB.replacen("pytorch-test", "pytorch-test-2", 1)).await;
    wait("one running, one queuing", || async {
        state(&hub, "pytorch-test").await == "Running" && state(&hub, "pytorch-test-2").await == "Queuing"
    })
    .await;
    wait("the second to succeed", || async { state(&hub, "pytorch-test-2").await == "Succeeded" }).await;
    assert_eq!(state(&hub, "pytorch-test").await, "Succeeded");
    fleet.shutdown().await;
}

/// Creates a tree that is not stored.
fn dry_run(root: &serde_json::Value) -> Request<Vec<u8>> {
    let path = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees?dryRun=All";
    let tree = serde_json::json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"}, "spec": {"root": root}});
    let request = Request::post(path).header("content-type", "application/json");
    request.body(tree.to_string().into_bytes()).expect("a request")
}

/// Warnings in the answer to a tree that is not stored.
async fn warnings(hub: &Client, root: &serde_json::Value) -> Vec<String> {
    let answer = hub.send(dry_run(root).map(Body::from)).await.expect("an answer");
    assert!(answer.status().is_success(), "{answer:?}");
    let warnings = answer.headers().get_all("warning").iter();
    warnings.map(|warning| warning.to_str().expect("text").to_owned()).collect()
}

/// What the hub does not say, or says wrongly, of amounts and unknown attributes of a leaf below an inner node.
async fn wrong_of_amounts(hub: &Client) -> Vec<String> {
    use serde_json::json;
    let tree = |mut leaf: serde_json::Value| {
        leaf["name"] = "leaf".into();
        let inner = json!({"name": "inner", "children": [leaf]});
        json!({"name": "root", "min": {"cpu": "8"}, "max": {"cpu": "8"}, "children": [inner]})
    };
    let at = "quota root/inner/leaf, ";
    let mut wrong = Vec::new();
    for (leaf, says) in [
        (json!({"min": {"cpu": "2", "memory": "1Gi"}, "max": {"cpu": "2000m", "memory": "1024Mi"}}), ""),
        (json!({"max": {"kube-queue/max-jobs": 3}, "attributes": {"example.com/team": "blue"}}), ""),
        (
            json!({"min": {"cpu": "3", "memory": "1Gi"}, "max": {"cpu": "2500m", "memory": "2Gi"}}),
            "min[cpu]: found 3; allowed: at most the max, here 2500m",
        ),
        (
            json!({"min": {"cpu": 3}, "max": {"cpu": 2}}),
            "min[cpu]: found 3; allowed: at most the max, here 2",
        ),
        (
            json!({"max": {"kube-queue/max-jobs": "2.5"}}),
            "max[kube-queue/max-jobs]: found 2.5; allowed: a whole number",
        ),
        (
            json!({"attributes": {"fleet.dev/wieght": "2"}}),
            "attributes[fleet.dev/wieght]: found 2; allowed: the attributes fleet.dev/weight, ",
        ),
    ] {
        let told = warnings(hub, &tree(leaf)).await;
        let right = match says {
            "" => told.is_empty(),
            says => told.len() == 1 && told[0].contains(&format!("{at}{says}")),
        };
        if !right {
            wrong.push(format!("{says:?}: {told:?}"));
        }
    }
    // What is no amount is refused with its field.
    for (field, amount) in [("min", "3x"), ("max", "banana")] {
        let refused = hub.request_text(dry_run(&tree(json!({field: {"cpu": amount}})))).await;
        let told = refused.map_err(|error| error.to_string());
        let place = format!("spec.root.children[0].children[0].{field}");
        if !told.as_ref().is_err_and(|text| text.contains(&place) && text.contains(amount)) {
            wrong.push(format!("{field} {amount}: {told:?}"));
        }
    }
    wrong
}

/// Values of an attribute: allowed ones, and wrong ones.
fn values_of(allowed: Values) -> (Vec<&'static str>, Vec<&'static str>) {
    match allowed {
        Values::Words(words) => (words.to_vec(), vec!["banana", ""]),
        Values::Number => (vec!["0", "2.5", "500m", "1k", "+3"], vec!["-3", "x", ""]),
        Values::Duration => (vec!["90s", "1h30m", "250ms", "2d", " 5m "], vec!["90", "5 m", "1w", ""]),
        Values::Quantities => {
            let right = vec!["{}", " { } ", "{\"cpu\": \"2\"}", "{\"cpu\":1, \"memory\": \"2Gi\" }"];
            (right, vec!["", "{cpu: 2}", "{\"cpu\"}", "{\"cpu\": {\"a\": 1}}", "{\"cpu\": \"1\",}"])
        }
        Values::Namespaces => (vec!["", "a", "team-a, team-b,"], vec!["Team", "a b", "a;b"]),
        Values::Subjects => {
            let right = vec!["", "user:alice", " group:ml , serviceaccount:team-a/ci", "user:a:b c"];
            (right, vec!["alice", "user:", "user:a;b", "serviceaccount:ci", "robot:x", "serviceaccount:A/b"])
        }
        Values::Name => (vec!["training", "a"], vec![""]),
    }
}

/// The root, an inner node and a leaf at each level, for one attribute.
fn with_attribute(name: &str, value: &str, inner_levels: usize, on: On) -> serde_json::Value {
    use serde_json::json;
    let amounts = json!({"cpu": "4", "memory": "8Gi"});
    let mut node = json!({"name": "leaf", "namespaces": ["default"], "min": amounts, "max": amounts});
    if on != On::Root && on != On::Inner {
        node["attributes"][name] = value.into();
    }
    for level in 0..=inner_levels {
        let own = if level == inner_levels { "root".to_owned() } else { format!("inner{level}") };
        let is_root = level == inner_levels;
        node = json!({"name": own, "min": amounts, "max": amounts, "children": [node]});
        if on == On::Any || on == if is_root { On::Root } else { On::Inner } {
            node["attributes"][name] = value.into();
        }
    }
    node
}

/// The hub warns in the answer, before the controller has seen the tree, and of nothing that the controller would not say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_odd_tree_is_warned_of_at_once() {
    let fleet = start(None, Duration::from_secs(1)).await;
    let mut wrong = wrong_of_amounts(&fleet.hub()).await;
    for fleet_quota_tree::Attribute(name, on, values, ..) in fleet_quota_tree::ATTRIBUTES.iter().copied() {
        let (right, odd) = values_of(values);
        let all = right.iter().map(|value| (*value, true)).chain(odd.iter().map(|value| (*value, false)));
        for (value, is_right) in all {
            // The deepest level that the policy looks at.
            let root = with_attribute(name, value, fleet_api::advice::LEVELS - 2, on);
            let spec = serde_json::from_value(root.clone()).expect("a tree");
            let (_, said) = fleet_quota_tree::QuotaTree::build(&spec).expect("a valid tree");
            let told = warnings(&fleet.hub(), &root).await;
            let names = |text: &str| text.contains(name);
            let by_hub = told.iter().any(|warning| names(warning));
            let by_controller = said.iter().any(|warning| names(&warning.to_string()));
            if by_hub == is_right || by_controller == is_right || (is_right && !told.is_empty()) {
                wrong.push(format!("{}: {value:?}: hub {told:?}, controller {said:?}", name));
            }
        }
        // Elsewhere it has no effect.
        let elsewhere = match on {
            On::Any => continue,
            On::Root | On::Inner => On::Leaf,
            On::Leaf => On::Root,
        };
        let told = warnings(&fleet.hub(), &with_attribute(name, right[0], 1, elsewhere)).await;
        if !told.iter().any(|warning| warning.contains(on.describe())) {
            wrong.push(format!("{} on {elsewhere:?}: {told:?}", name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    fleet.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_with_the_job() {
    let directory = tempfile::tempdir().expect("a directory");
    let fleet = start(Some(directory.path()), Duration::from_secs(3)).await;
    for manifest in [TREE, POLICY, JOB] {
        create(&fleet.hub(), manifest).await;
    }
    let hub = fleet.hub();
    wait("the job to run", || async { state(&hub, "pytorch-test").await == "Running" }).await;
    fleet.shutdown().await;
    let fleet = start(Some(directory.path()), Duration::from_secs(3)).await;
    let hub = fleet.hub();
    wait("the job to succeed", || async { state(&hub, "pytorch-test").await == "Succeeded" }).await;
    fleet.shutdown().await;
}

fn batch_job(name: &str, run_time: &str) -> String {
    serde_json::json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": {"sim.fleet.dev/runtime": run_time}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main",
            "image": "registry.example.com/train:v1", "resources": {"requests": {"cpu": "4"}}}]}}}})
    .to_string()
}

/// Objects of a kind, by name.
async fn names_of(client: &Client, (group, version, kind): (&str, &str, &str)) -> Vec<String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let listed = api.list(&ListParams::default()).await.expect("a list");
    listed.items.into_iter().map(|object| object.name_any()).collect()
}

async fn batch_state(hub: &Client, name: &str) -> Option<serde_json::Value> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), "default", &resource);
    let job = api.get(name).await.expect("there");
    let conditions = job.data["status"]["conditions"].as_array()?.clone();
    conditions.into_iter().find(|is| is["type"] == "Complete" && is["status"] == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_ends_only_jobs_queue_and_end_and_nothing_runs() {
    let spec = FleetSpec {
        members: MemberSpec::many(1, 20, 0, "120", "512Gi"),
        default_run_time: RunTime::Forever,
        ends_only: true,
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await.expect("starts");
    fleet.ready(WITHIN).await.expect("ready");
    let hub = fleet.hub();
    // Room for one of them at a time.
    let tree = r#"{"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "min": {"cpu": 4}, "max": {"cpu": 4}, "children": [
            {"name": "team", "namespaces": ["default"], "min": {"cpu": 4}, "max": {"cpu": 4}}]}}}"#;
    create(&hub, tree).await;
    create(&hub, &POLICY.replace("kubeflow.org/v1", "batch/v1").replace("PyTorchJob", "Job")).await;
    let began = std::time::Instant::now();
    let jobs = ["one", "two", "three"];
    for name in jobs {
        create(&hub, &batch_job(name, "400ms")).await;
    }
    for name in jobs {
        wait(name, || async { batch_state(&hub, name).await.is_some() }).await;
    }
    assert!(
        began.elapsed() >= Duration::from_millis(1200),
        "the quota holds one at a time: {:?}",
        began.elapsed()
    );
    create(&hub, &batch_job("endless", "forever")).await;
    let works = || names_of(&hub, ("fleet.dev", "v1alpha1", "Work"));
    let sent = |works: &[String]| works.iter().any(|name| name.starts_with("endless-"));
    wait("a Work", || async { sent(&works().await) }).await;
    let member = fleet.member("east").expect("a member");
    assert_eq!(names_of(&member, ("batch", "v1", "Job")).await, [""; 0]);
    assert_eq!(names_of(&member, ("", "v1", "Pod")).await, [""; 0]);
    // A run that is taken back is let go of, and its quota is free for the next.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), "default", &resource);
    api.delete("endless", &DeleteParams::background()).await.expect("deleted");
    wait("no Work", || async { !sent(&works().await) }).await;
    create(&hub, &batch_job("last", "1ms")).await;
    wait("the last", || async { batch_state(&hub, "last").await.is_some() }).await;
    fleet.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_and_members_ask_for_credentials_and_their_kubeconfigs_carry_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let spec = FleetSpec {
        members: MemberSpec::many(1, 1, 0, "8", "16Gi"),
        data_dir: Some(directory.path().to_path_buf()),
        listen: Listen::Ephemeral,
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await.expect("starts");
    fleet.ready(WITHIN).await.expect("ready");
    for file in ["kubeconfig", "members/east.kubeconfig"] {
        let path = directory.path().join(file);
        let named = kube::config::Kubeconfig::read_from(&path).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(named, &Default::default()).await.expect("a server");
        let pods = |config: kube::Config| async move {
            let client = Client::try_from(config).expect("a client");
            let nodes: Api<DynamicObject> =
                Api::all_with(client, &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret")));
            nodes.list(&Default::default()).await
        };
        pods(config.clone()).await.expect("the token is good");
        let mut nobody = config;
        nobody.auth_info = Default::default();
        match pods(nobody).await.expect_err("refused") {
            kube::Error::Api(status) => assert!(matches!(status.code, 401 | 403), "{file}: {status:?}"),
            other => panic!("{file}: {other}"),
        }
    }
    fleet.shutdown().await;
    let open = open_to_others(directory.path());
    assert!(open.is_empty(), "others may read {open:?}");
}

/// What others than the owner may read or do, below a directory.
fn open_to_others(directory: &Path) -> Vec<std::path::PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let meta = std::fs::symlink_metadata(&path).expect("there");
        if !meta.is_symlink() && meta.mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if meta.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}
