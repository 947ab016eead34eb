use fleet_api::{Cluster, VirtualCluster, cells::status::JobCounts};

use super::{uses::VcUse, *};
use crate::observation::{Change, Observation};

/// One pool of nodes `a-0`, `a-1` in a member, and a virtual cluster `vc` with `promised` of them.
fn object(name: &str, generation: i64, promised: i64, status: Value) -> CellConfiguration {
    let value = json!({
        "apiVersion": API, "kind": "CellConfiguration",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": generation,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", name.len())},
        "spec": {
            "physicalCluster": {
                "skuTypes": {"GPU": {"gpu": 1, "cpu": 4, "memory": "8Gi"}},
                "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": 2, "isNodeLevel": true},
                    "POOL": {"childCellType": "NODE", "childCellNumber": 2}},
                "physicalCells": [{"cellType": "POOL", "cellChildren": [{"cellAddress": "a-0"}, {"cellAddress": "a-1"}]}],
            },
            "virtualClusters": {"VC": {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": promised}]}},
        },
        "status": status,
    });
    serde_json::from_value(value).expect("a configuration")
}

#[derive(Default)]
struct Stage {
    world: World,
    configurations: Configurations,
}

impl Stage {
    fn apply(&mut self, object: CellConfiguration) -> Option<Option<i64>> {
        self.world.observe(Observation::CellConfiguration(Change::Apply(object)));
        self.read()
    }

    fn join(&mut self, name: &str, nodes: &[&str]) -> Option<Option<i64>> {
        let value = json!({"apiVersion": API, "kind": "Cluster", "metadata": {"name": name, "uid": name}, "spec": {},
            "status": {"nodeSummary": {"totalNum": nodes.len(), "readyNum": nodes.len()},
                "nodeShapes": [{"count": nodes.len(), "allocatable": {}, "free": {}, "nodes": nodes}]}});
        self.world.observe(Observation::Cluster(Change::Apply(
            serde_json::from_value::<Cluster>(value).expect("a member"),
        )));
        self.read()
    }

    /// What `VC` is promised by the configuration that comes into force; `None` where nothing changes.
    fn read(&mut self) -> Option<Option<i64>> {
        let change = self.configurations.read(&self.world)?;
        Some(change.map(|valid| valid.config.virtual_clusters["VC"].virtual_cells[0].cell_number))
    }

    fn cluster(&self) -> String {
        let known = self.configurations.in_force().expect("one is in force");
        known.valid.config.physical_cluster.physical_cells[0].cluster.clone()
    }

    fn written(&self) -> BTreeMap<String, Value> {
        let writes = self.configurations.plan_conditions(&self.world, Timestamp::UNIX_EPOCH);
        let status = |write: Write| match write.verb {
            Verb::MergeStatus(body) => {
                let mut status = body["status"].clone();
                status["events"] = json!(write.then.len());
                Some((write.name, status))
            }
            _ => None,
        };
        writes.into_iter().filter_map(status).collect()
    }

    fn message(&self, name: &str) -> String {
        let written = self.written();
        written[name]["conditions"][0]["message"].as_str().unwrap_or_default().to_string()
    }

    /// What is done to the VirtualClusters; each write also reaches the world.
    fn follow(&mut self) -> Vec<String> {
        let writes = plan_objects(&self.world, self.configurations.in_force());
        let mut told = Vec::new();
        for write in writes {
            let key = (String::new(), write.name.clone());
            let mut value = self.world.virtual_clusters.get(&key).map_or(Value::Null, |known| json!(known));
            told.push(match &write.verb {
                Verb::Create(body) => {
                    value = body.clone();
                    value["metadata"]["uid"] = json!(format!("uid-{}", write.name));
                    format!("create {}", write.name)
                }
                Verb::Merge(body) => {
                    merge(&mut value, body);
                    format!("patch {} {}", write.name, body["spec"])
                }
                Verb::Delete { uid } => format!("delete {} {uid}", write.name),
                other => panic!("{other:?}"),
            });
            let object: VirtualCluster = serde_json::from_value(value).expect("a VirtualCluster");
            let change = match write.verb {
                Verb::Delete { .. } => Change::Delete(object),
                _ => Change::Apply(object),
            };
            self.world.observe(Observation::VirtualCluster(change));
        }
        told
    }
}

/// RFC 7386, for what these tests patch.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *value = patch.clone();
        return;
    };
    for (name, patch) in fields {
        match patch {
            Value::Null => drop(value.as_object_mut().map(|map| map.remove(name))),
            patch => merge(&mut value[name], patch),
        }
    }
}

#[test]
fn the_last_valid_configuration_stays_in_force_over_an_edit_and_a_restart() {
    let mut stage = Stage::default();
    assert_eq!(stage.apply(object("a", 1, 2, Value::Null)), Some(Some(2)));
    let first = stage.written()["a"].clone();
    assert_eq!(
        (&first["virtualClusters"], &first["nodes"], &first["events"]),
        (&json!(1), &json!(2), &json!(0))
    );
    let kept = first["inForce"].clone();
    assert_eq!(kept["generation"], 1);
    let broken = object("a", 2, 3, json!({"inForce": kept, "virtualClusters": 1, "nodes": 2}));
    assert_eq!(stage.apply(broken.clone()), None);
    let message = stage.message("a");
    assert!(message.starts_with("spec.virtualClusters: found 3 cells of type NODE"), "{message}");
    assert!(
        message.contains("found")
            && message.contains("allowed")
            && message.ends_with("generation 1 of it stays in force"),
        "{message}"
    );
    assert_eq!(stage.written()["a"]["events"], 1);
    // Another process finds only the objects.
    let mut restarted = Stage::default();
    assert_eq!(restarted.apply(broken), Some(Some(2)));
    assert_eq!(restarted.message("a"), message);
    assert!(restarted.written()["a"]["inForce"].is_null(), "it stands there already");
    assert_eq!(restarted.apply(object("a", 3, 1, json!({"inForce": kept}))), Some(Some(1)));
}

#[test]
fn the_oldest_of_two_valid_configurations_is_in_force_and_a_broken_one_is_none() {
    let mut stage = Stage::default();
    assert_eq!(stage.apply(object("a", 1, 9, Value::Null)), None);
    assert!(stage.configurations.trouble().is_some_and(|text| text.starts_with("a: spec.")));
    assert!(stage.message("a").ends_with("no configuration is in force"));
    assert_eq!(stage.apply(object("bb", 1, 2, Value::Null)), Some(Some(2)));
    assert!(stage.message("a").ends_with("bb is in force"));
    assert_eq!(stage.apply(object("ccc", 1, 1, Value::Null)), None);
    let message = stage.message("ccc");
    assert_eq!(message, "metadata.name: found ccc; allowed: one configuration; bb is in force");
    for name in ["bb", "ccc", "a"] {
        stage.world.observe(Observation::CellConfiguration(Change::Delete(object(name, 1, 1, Value::Null))));
    }
    assert_eq!(stage.read(), Some(None));
}

#[test]
fn trees_find_their_member_and_keep_it() {
    let mut stage = Stage::default();
    assert_eq!(stage.apply(object("a", 1, 2, Value::Null)), Some(Some(2)));
    assert_eq!(stage.cluster(), "", "nobody has joined");
    assert_eq!(stage.join("west", &[]), Some(Some(2)));
    assert_eq!(stage.cluster(), "west", "there is one member");
    assert_eq!(stage.join("east", &["a-0"]), None);
    assert_eq!(stage.cluster(), "west", "what was decided stays");
    let mut other = Stage::default();
    assert_eq!(other.join("west", &[]), None);
    assert_eq!(other.join("east", &[]), None);
    assert_eq!(other.apply(object("a", 1, 2, Value::Null)), Some(Some(2)));
    let message = other.message("a");
    let told = "bad until a member reports their nodes: spec.physicalCluster.physicalCells[0].cluster: found nothing";
    assert!(message.contains(told), "{message}");
    assert_eq!(other.join("east", &["a-1"]), Some(Some(2)));
    assert_eq!(
        (other.cluster().as_str(), other.message("a").as_str()),
        ("east", "the configuration is in force")
    );
    let mut named = object("a", 2, 2, Value::Null);
    named.spec.physical_cluster["physicalCells"][0]["cluster"] = json!("south");
    assert_eq!(other.apply(named), Some(Some(2)));
    assert!(other.message("a").ends_with("its cells are bad because these members have not joined: south"));
}

/// Reports are the members' own words: the first that decides stays, over edits and restarts, until an administrator says
/// otherwise.
#[test]
fn a_member_claims_no_cells_that_another_one_has() {
    let mut stage = Stage::default();
    stage.join("east", &["a-0", "a-1"]);
    stage.join("west", &["b-0"]);
    assert_eq!(stage.apply(object("a", 1, 2, Value::Null)), Some(Some(2)));
    assert_eq!(stage.cluster(), "east");
    let kept = json!({"inForce": stage.written()["a"]["inForce"]});
    assert_eq!(stage.join("west", &["b-0", "a-0", "a-1"]), None, "the configuration is the same");
    let told = "spec.physicalCluster.physicalCells[0].cluster: found nothing, and east had its nodes first; west reports \
                nodes of such names too (a-0, a-1), which changes nothing; allowed: the member that has them";
    assert!(stage.message("a").ends_with(told), "{}", stage.message("a"));
    stage.apply(object("a", 2, 1, kept.clone()));
    assert_eq!(stage.cluster(), "east", "after an edit");

    // Another process finds only the objects, and the owner has not reported yet.
    for nodes in [&["a-0", "a-1"][..], &[]] {
        let mut restarted = Stage::default();
        restarted.join("west", &["b-0", "a-0", "a-1"]);
        restarted.join("east", nodes);
        restarted.apply(object("a", 3, 2, kept.clone()));
        assert_eq!(restarted.cluster(), "east", "after a restart");
    }
    let mut alone = Stage::default();
    alone.join("west", &["a-0", "a-1"]);
    alone.apply(object("a", 3, 2, kept.clone()));
    assert_eq!(alone.cluster(), "east", "its Cluster is gone, and nobody has said who has its nodes now");
    assert!(alone.message("a").contains("its cells are bad because these members have not joined: east"));

    let mut named = object("a", 4, 2, kept);
    named.spec.physical_cluster["physicalCells"][0]["cluster"] = json!("west");
    stage.apply(named);
    assert_eq!(stage.cluster(), "west", "an administrator has said so");
    assert_eq!(stage.message("a"), "the configuration is in force");
}

/// Before every member has named its nodes, the first claim may be that of a liar.
#[test]
fn nobody_gets_cells_before_all_have_reported() {
    let mut stage = Stage::default();
    let silent = json!({"apiVersion": API, "kind": "Cluster", "metadata": {"name": "east", "uid": "east"}, "spec": {}});
    stage
        .world
        .observe(Observation::Cluster(Change::Apply(serde_json::from_value(silent).expect("a member"))));
    stage.join("west", &["a-0", "a-1"]);
    stage.apply(object("a", 1, 2, Value::Null));
    assert_eq!(stage.cluster(), "");
    let told = "found nothing, and nodes of these names in west, but not yet the names of all nodes of east; allowed: east, west";
    assert!(stage.message("a").ends_with(told), "{}", stage.message("a"));
    assert_eq!(stage.join("east", &["a-0", "a-1"]), None);
    assert_eq!(stage.cluster(), "", "two claim them");
    assert_eq!(stage.join("west", &["b-0"]), Some(Some(2)));
    assert_eq!(stage.cluster(), "east");
}

#[test]
fn virtual_clusters_follow_the_configuration() {
    let mut stage = Stage::default();
    stage.apply(object("a", 1, 2, Value::Null));
    assert_eq!(stage.follow(), ["create vc"]);
    assert_eq!(stage.follow(), [""; 0], "nothing is left to do");
    stage.apply(object("a", 2, 1, Value::Null));
    assert_eq!(stage.follow(), [r#"patch vc {"virtualCells":[{"cellNumber":1,"cellType":"POOL.NODE"}]}"#]);
    let mut renamed = object("a", 3, 1, Value::Null);
    renamed.spec.virtual_clusters = json!({"VC": {}, "team": {}});
    let mut vc = renamed.clone();
    vc.spec.virtual_clusters = json!({"team": {}});
    vc.metadata.generation = Some(4);
    stage.world.observe(Observation::CellConfiguration(Change::Apply(renamed)));
    stage.configurations.read(&stage.world);
    assert_eq!(stage.follow(), [r#"patch vc {"virtualCells":null}"#, "create team"]);
    stage.world.observe(Observation::CellConfiguration(Change::Apply(vc)));
    stage.configurations.read(&stage.world);
    assert_eq!(stage.follow(), ["delete vc uid-vc"]);
}

#[test]
fn nodes_that_a_member_does_not_let_the_hub_keep_are_told() {
    let mut stage = Stage::default();
    let answer = |stage: &mut Stage, refused: &[&str]| {
        let value = json!({"apiVersion": API, "kind": "Reservation",
            "metadata": {"name": "cell-nodes-1", "namespace": "fleet-east", "uid": "u"},
            "spec": {"binding": {"namespace": "", "name": "", "uid": ""}, "epoch": 0, "components": [],
                "ttlSeconds": 0, "cellNodes": ["a-0", "a-1"]},
            "status": {"phase": "Reserved", "badNodes": refused, "notPermittedNodes": refused}});
        let reservation = serde_json::from_value(value).expect("a reservation");
        stage.world.observe(Observation::Reservation(Change::Apply(reservation)));
    };
    stage.join("east", &["a-0", "a-1"]);
    stage.apply(object("a", 1, 2, Value::Null));
    answer(&mut stage, &[]);
    assert_eq!(
        stage.written()["a"]["conditions"].as_array().map(Vec::len),
        Some(1),
        "nobody was refused one"
    );
    answer(&mut stage, &["a-1"]);
    let told = stage.written()["a"].clone();
    let condition = &told["conditions"][1];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("NodesPermitted"), &json!("False"), &json!("NotPermitted"))
    );
    assert!(condition["message"].as_str().is_some_and(|text| text.ends_with(": east/a-1")), "{condition}");
    let mut status = told;
    status.as_object_mut().expect("a status").remove("events");
    stage.apply(object("a", 1, 2, status));
    assert!(stage.written().is_empty(), "it stands there");
    answer(&mut stage, &[]);
    assert_eq!(stage.written()["a"]["conditions"][1]["status"], "True");
}

#[test]
fn who_may_use_a_virtual_cluster_is_in_force_and_kept_with_it() {
    let with = |generation: i64, access: Value, status: Value| {
        let mut object = object("a", generation, 2, status);
        object.spec.access = serde_json::from_value(access).expect("rules");
        object
    };
    let mut stage = Stage::default();
    stage.apply(object("a", 1, 2, Value::Null));
    assert_eq!(stage.follow(), ["create vc"]);
    let rules = json!({"VC": {"submitterNamespaces": ["team-a"], "submitters": ["user:alice", "serviceaccount:b/ci"]}});
    assert_eq!(stage.apply(with(2, rules.clone(), Value::Null)), Some(Some(2)), "rules alone are a change");
    let known = |stage: &Stage| stage.configurations.in_force().map(|known| json!(known.valid.access));
    assert_eq!(known(&stage), Some(rules.clone()));
    assert_eq!(stage.follow().len(), 1);
    let vc = stage.world.virtual_clusters.get(&(String::new(), "vc".to_string())).expect("made").clone();
    assert_eq!(json!(vc.spec.access), rules["VC"]);
    assert_eq!(vc.labels()["fleet.dev/restricted"], "true");
    assert_eq!(vc.annotations()["fleet.dev/submitters"], "user:alice,user:system:serviceaccount:b:ci");
    assert_eq!(stage.follow(), [""; 0], "nothing is left to do");

    // Rules of a virtual cluster that has another name now would leave it open: the last valid ones stay, over a restart.
    let kept = stage.written()["a"]["inForce"].clone();
    assert_eq!(kept["access"], rules);
    let renamed = with(3, json!({"vc2": rules["VC"]}), json!({"inForce": kept}));
    assert_eq!(stage.apply(renamed.clone()), None);
    let message = stage.message("a");
    assert!(message.starts_with("spec.access.vc2: found rules of no virtual cluster; allowed:"), "{message}");
    assert!(message.ends_with("generation 2 of it stays in force"), "{message}");
    let mut restarted = Stage::default();
    assert_eq!(restarted.apply(renamed), Some(Some(2)));
    assert_eq!(known(&restarted), Some(rules));

    // Made anew it is closed from its first moment; opened, nothing is left of it.
    let mut other = Stage::default();
    other.apply(with(1, json!({"VC": {"submitters": []}}), Value::Null));
    assert_eq!(other.follow(), ["create vc"]);
    let vc = other.world.virtual_clusters.get(&(String::new(), "vc".to_string())).expect("made").clone();
    assert_eq!(
        (vc.labels()["fleet.dev/restricted"].as_str(), vc.annotations()["fleet.dev/submitters"].as_str()),
        ("true", "")
    );
    other.apply(with(2, json!({}), Value::Null));
    other.follow();
    let vc = other.world.virtual_clusters.get(&(String::new(), "vc".to_string())).expect("made").clone();
    assert!(vc.labels().is_empty() && vc.annotations().is_empty() && vc.spec.access.is_none(), "{vc:?}");
}

#[test]
fn statuses_say_what_is_promised_until_the_planner_tells_more() {
    let mut stage = Stage::default();
    stage.apply(object("a", 1, 2, Value::Null));
    stage.follow();
    let told = |stage: &Stage, uses: Option<&uses::Uses>| {
        let writes = plan_statuses(&stage.world, stage.configurations.in_force(), uses);
        writes
            .into_iter()
            .map(|write| match write.verb {
                Verb::MergeStatus(body) => body["status"].clone(),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let idle = told(&stage, None);
    assert_eq!(
        (&idle[0]["gpu"], &idle[0]["guaranteed"], &idle[0]["allocation"]),
        (&json!("0/4"), &json!(4), &json!("0%"))
    );
    let mut cells = stage.configurations.in_force().expect("in force").idle()["VC"].clone();
    cells.leaves.get_mut("GPU").expect("its leaves").used = 3;
    let jobs = BTreeMap::from([(100, JobCounts { waiting: 1, running: 2 })]);
    let uses = uses::Uses {
        virtual_clusters: BTreeMap::from([("VC".to_string(), VcUse { cells, jobs, first: Vec::new() })]),
        bad_nodes: BTreeSet::from([fleet_cells::NodeName::new("east", "a-1")]),
    };
    let mut busy = told(&stage, Some(&uses));
    assert_eq!(busy.remove(0), json!({"badNodes": ["east/a-1"]}));
    assert_eq!(
        (&busy[0]["gpu"], &busy[0]["memory"], &busy[0]["allocation"]),
        (&json!("3/4"), &json!("24Gi/32Gi"), &json!("75%"))
    );
    assert_eq!(busy[0]["jobs"], json!([{"class": "prod", "waiting": 1, "running": 2}]));
}

/// What is done to Queues; each write also reaches the world.
fn seen(stage: &mut Stage, writes: Vec<Write>) -> Vec<String> {
    let mut told = Vec::new();
    for write in writes {
        assert_eq!(write.namespace, "kube-queue");
        let key = (write.namespace.clone(), write.name.clone());
        let mut value = stage.world.queues.get(&key).map_or(Value::Null, |known| json!(known));
        let change = match &write.verb {
            Verb::Create(body) => {
                told.push(format!("create {} {}", write.name, body["metadata"]["labels"]));
                value = body.clone();
                value["metadata"]["uid"] = json!("uid");
                Change::Apply
            }
            Verb::Merge(body) | Verb::MergeStatus(body) => {
                told.push(format!("patch {} {body}", write.name));
                merge(&mut value, body);
                Change::Apply
            }
            Verb::Delete { .. } => {
                told.push(format!("delete {}", write.name));
                Change::Delete
            }
            other => panic!("{other:?}"),
        };
        let queue: fleet_api::Queue = serde_json::from_value(value).expect("a Queue");
        stage.world.observe(Observation::Queue(change(queue)));
    }
    told
}

#[test]
fn each_virtual_cluster_has_a_queue_with_its_waiting_jobs_in_their_order() {
    let mut stage = Stage::default();
    stage.apply(object("a", 1, 2, Value::Null));
    let plan = |stage: &Stage| plan_queues(&stage.world, stage.configurations.in_force());
    assert!(plan(&stage).is_empty(), "there is no namespace yet");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-queue", "uid": "n"}});
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    stage.world.observe(Observation::Namespace(Change::Apply(namespace)));
    let writes = plan(&stage);
    assert_eq!(seen(&mut stage, writes), [r#"create vc {"fleet.dev/virtual-cluster":"VC"}"#]);
    assert!(plan(&stage).is_empty());

    let job = |name: &str| fleet_quota::JobId::new(&format!("team/{name}"));
    let jobs = BTreeMap::from([
        (100, JobCounts { waiting: 1, running: 2 }),
        (-1, JobCounts { waiting: 1, running: 1 }),
    ]);
    let cells = stage.configurations.in_force().expect("in force").idle()["VC"].clone();
    let first = vec![(job("old"), 100), (job("borrower"), -1)];
    let uses = uses::Uses {
        virtual_clusters: BTreeMap::from([("VC".to_string(), VcUse { cells, jobs, first })]),
        bad_nodes: BTreeSet::new(),
    };
    let writes = plan_queue_statuses(&stage.world, Some(&uses));
    let told = seen(&mut stage, writes);
    assert!(told[0].contains(r#""admitted":3"#) && told[0].contains(r#""waiting":2"#), "{told:?}");
    let queue = stage.world.queues.values().next().expect("the queue").status.clone().expect("a status");
    let line: Vec<_> = queue.queue_item_details["active"]
        .iter()
        .map(|item| (item.position, item.namespace.as_str(), item.name.as_str(), item.priority))
        .collect();
    assert_eq!(line, [(1, "team", "old", 100), (2, "team", "borrower", -1)]);
    assert!(plan_queue_statuses(&stage.world, Some(&uses)).is_empty(), "it stands there");

    // Its order is not chosen by users, a Queue of the quota tree is not its own, and it goes with its virtual cluster.
    let change = |stage: &mut Stage, name: &str, labels: Value, policy: &str| {
        let queue = json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "Queue",
            "metadata": {"name": name, "namespace": "kube-queue", "uid": name, "labels": labels},
            "spec": {"queuePolicy": policy}});
        stage
            .world
            .observe(Observation::Queue(Change::Apply(serde_json::from_value(queue).expect("a Queue"))));
    };
    change(&mut stage, "vc", json!({"fleet.dev/virtual-cluster": "VC"}), "Block");
    change(
        &mut stage,
        "root-x",
        json!({"create-by-kubequeue": "true", "fleet.dev/virtual-cluster": "VC"}),
        "Block",
    );
    let writes = plan(&stage);
    assert_eq!(seen(&mut stage, writes), [r#"patch vc {"spec":{"queuePolicy":"Priority"}}"#]);
    let mut none = object("a", 2, 2, Value::Null);
    none.spec.virtual_clusters = json!({});
    stage.world.observe(Observation::CellConfiguration(Change::Apply(none)));
    stage.configurations.read(&stage.world);
    let writes = plan(&stage);
    assert_eq!(seen(&mut stage, writes), ["delete vc"]);
}

#[test]
fn a_node_that_its_member_does_not_have_is_named_with_those_that_may_be_meant() {
    let mut stage = Stage::default();
    let answer = |stage: &mut Stage, unknown: &[&str]| {
        let value = json!({"apiVersion": API, "kind": "Reservation",
            "metadata": {"name": "cell-nodes-1", "namespace": "fleet-east", "uid": "u"},
            "spec": {"binding": {"namespace": "", "name": "", "uid": ""}, "epoch": 0, "components": [],
                "ttlSeconds": 0, "cellNodes": ["a-0", "a-1"]},
            "status": {"phase": "Reserved", "badNodes": unknown, "unknownNodes": unknown}});
        let reservation = serde_json::from_value(value).expect("a reservation");
        stage.world.observe(Observation::Reservation(Change::Apply(reservation)));
    };
    stage.join("east", &["a-0", "a-11", "b-7"]);
    stage.apply(object("a", 1, 2, Value::Null));
    answer(&mut stage, &["a-1", "of-an-older-configuration"]);
    assert_eq!(
        stage.message("a"),
        "the configuration is in force; bad, because their member has no such node: found east/a-1; allowed: nodes \
         of east, of which these are no cells: a-11, b-7"
    );
    answer(&mut stage, &[]);
    assert_eq!(stage.message("a"), "the configuration is in force");
}
