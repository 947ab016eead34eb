//! Cells over a restart, and runs that have lost theirs.

use super::*;

fn cell_nodes(stage: &Stage) -> Vec<Write> {
    stage.scheduler.keep_cell_nodes(&stage.world, "m")
}

/// Another process leads, and has looked at nothing yet.
fn begin_anew(stage: &mut Stage) {
    stage.scheduler = Scheduler::new(&Options::default());
    stage.configurations = Configurations::default();
    stage.world.take_dirty();
}

#[test]
fn nodes_stay_kept_for_cells_until_a_new_leader_knows_the_configuration() {
    let mut stage = Stage::new();
    begin_anew(&mut stage);
    // Clusters are looked at before the configuration; after a restore of the hub, long before.
    assert!(cell_nodes(&stage).is_empty(), "{:?}", cell_nodes(&stage));
    stage.configure();
    assert!(cell_nodes(&stage).is_empty(), "these nodes are asked for: {:?}", cell_nodes(&stage));

    let gone = stage.world.cell_configurations.values().next().expect("one").clone();
    stage.observe(Observation::CellConfiguration(Change::Delete(gone)));
    begin_anew(&mut stage);
    assert!(cell_nodes(&stage).is_empty());
    stage.configure();
    assert!(stage.world.take_dirty().contains(&Dirty::Cluster("m".to_string())), "it is looked at again");
    assert!(matches!(only(cell_nodes(&stage)).verb, Verb::Delete { .. }));
}

#[test]
fn without_a_valid_configuration_nodes_stay_kept_and_jobs_wait_for_their_cells() {
    let mut stage = Stage::new();
    let mut broken = stage.world.cell_configurations.values().next().expect("one").clone();
    let valid = broken.clone();
    let mut spec = json!(broken.spec);
    spec["virtualClusters"]["vc"]["virtualCells"][0]["cellNumber"] = json!(9);
    (broken.spec, broken.metadata.generation) = (read(spec), Some(2));
    stage.observe(Observation::CellConfiguration(Change::Apply(broken)));
    begin_anew(&mut stage);
    stage.world.recount.insert("m".to_string());
    stage.configure();
    assert!(cell_nodes(&stage).is_empty());
    stage.submit("first");
    assert!(stage.pass().is_empty());
    let told = stage.waiting("first");
    assert!(told.starts_with("InvalidCells: no CellConfiguration is in force: cells: spec."), "{told}");
    let mut plain = job("plain");
    plain["metadata"]["labels"] = json!({});
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    stage.submit_as("plain", plain);
    let placed = only(stage.pass());
    assert!(placed.name.starts_with(&key("plain").1), "{placed:?}");

    stage.observe(Observation::CellConfiguration(Change::Apply(valid)));
    stage.configure();
    let asked = stage.pass();
    let [Write { verb: Verb::Create(body), .. }] = &asked[..] else {
        panic!("{asked:?}: {}", stage.waiting("first"));
    };
    assert_eq!(body["spec"]["cells"][0]["places"][0]["node"], "n");
}

/// An answer is a member's own word: of nodes of which no member is known to be the owner, nobody is asked.
#[test]
fn cells_without_a_member_are_asked_of_nobody() {
    let mut stage = Stage::new();
    stage.observe(Observation::Cluster(Change::Apply(read(json!({
        "apiVersion": API, "kind": "Cluster", "metadata": {"name": "other", "uid": "other"}, "spec": {},
        "status": {"reservation": true, "reportSequence": 1, "nodeShapes": []}})))));
    let trees = json!([{"cellType": "NODE", "cellAddress": "n", "cluster": "m"},
        {"cellType": "NODE", "cellAddress": "of-nobody"}]);
    let mut hardware =
        stage.world.cell_configurations.values().next().expect("one").spec.physical_cluster.clone();
    hardware["physicalCells"] = trees;
    stage.reconfigure("physicalCluster", hardware);
    assert_eq!(stage.configurations.in_force().map(|known| known.generation), Some(2));
    for member in ["m", "other"] {
        let asked = stage.scheduler.keep_cell_nodes(&stage.world, member);
        assert!(asked.is_empty(), "{member}: {asked:?}");
    }
}

fn reconcile(stage: &Stage, name: &str) -> Vec<Write> {
    dispatch::plan(&stage.world, &stage.intents, &key(name), None, &Options::default(), stage.now).writes
}

/// The attempt that ends the run, if one is recorded.
fn attempt(writes: &[Write]) -> Option<String> {
    writes.iter().filter(|write| write.target == Target::Binding).find_map(|write| {
        let (Verb::MergeStatus(body) | Verb::Merge(body)) = &write.verb else { return None };
        let attempt = body["status"]["attempts"].get(0)?;
        Some(format!("{}: {}", attempt["reason"].as_str()?, attempt["message"].as_str()?))
    })
}

/// Its Work came too late, or the member lost its holds: no pod of it is placed without cells, so it is placed again.
#[test]
fn a_run_whose_cells_are_not_held_any_more_ends() {
    for phase in ["Reserved", "Expired", "Refused", "gone"] {
        let mut stage = Stage::new();
        stage.submit("first");
        let asked = only(stage.pass());
        let (place, _) = stage.start("first", &asked);
        let mut bound = stage.world.bindings[&key("first")].object.clone();
        bound.spec.cells = Some(read(json!({"groups": []})));
        stage.observe(Observation::Binding(Change::Apply(bound)));
        let mut held = stage.world.reservations[&place].clone();
        held.status = Some(read(json!({"phase": phase.replace("gone", "Reserved"), "message": "too late"})));
        stage.observe(Observation::Reservation(match phase {
            "gone" => Change::Delete(held),
            _ => Change::Apply(held),
        }));
        let found = attempt(&reconcile(&stage, "first"));
        let says = |why: &str| {
            Some(format!("{}: m does not hold its cells any more: {why}", Reason::ReservationRefused))
        };
        match phase {
            "Reserved" => assert_eq!(found, None),
            "gone" => assert_eq!(found, says("their reservation is gone")),
            _ => assert_eq!(found, says("too late"), "{phase}"),
        }
    }
}

#[test]
fn pods_that_need_no_cells_find_other_places() {
    let mut stage = Stage::new();
    let mut plain = job("first");
    plain["metadata"]["labels"] = json!({});
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    stage.submit_as("first", plain.clone());
    let asked = only(stage.pass());
    let (place, mut work) = stage.start("first", &asked);
    work["spec"]["workload"]["manifests"][0] = plain;
    stage.observe(Observation::Work(Change::Apply(read(work))));
    let mut held = stage.world.reservations[&place].clone();
    held.status = Some(read(json!({"phase": "Expired", "message": "too late"})));
    stage.observe(Observation::Reservation(Change::Apply(held)));
    assert_eq!(attempt(&reconcile(&stage, "first")), None);
}

/// It may have begun: the job is not placed elsewhere before that is known.
#[test]
fn a_run_whose_work_was_sent_keeps_its_target_when_its_places_expire() {
    let is_cleared = |writes: &[Write]| {
        let mut of_binding = writes.iter().filter(|write| write.target == Target::Binding);
        of_binding.any(|write| matches!(&write.verb, Verb::Merge(body) if body["spec"].is_object()))
    };
    for sent in [false, true] {
        let mut stage = Stage::new();
        stage.submit("first");
        let asked = only(stage.pass());
        let (place, work) = stage.start("first", &asked);
        stage.observe(Observation::Work(Change::Delete(read(work))));
        let made = reconcile(&stage, "first").into_iter().find(|write| write.target == Target::Work);
        let made = made.expect("its Work");
        let Verb::Create(body) = &made.verb else { panic!("{made:?}") };
        let marks = &body["spec"]["workload"]["manifests"][0]["metadata"]["annotations"];
        assert_eq!(marks[names::ON_CELLS_ANNOTATION], "true", "the member knows it without the reservation");
        if sent {
            stage.intents.sent.note(&made);
        }
        let mut held = stage.world.reservations[&place].clone();
        held.status = Some(read(json!({"phase": "Expired"})));
        stage.observe(Observation::Reservation(Change::Apply(held)));
        assert_eq!(is_cleared(&reconcile(&stage, "first")), !sent);
    }
}

/// A cluster that was asked before and let the places go says nothing about the run in another one.
#[test]
fn a_run_has_the_places_and_cells_of_its_own_cluster_only() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let (place, work) = stage.start("first", &asked);
    stage.observe(Observation::Work(Change::Delete(read(work))));
    let mut other = stage.world.reservations[&place].clone();
    other.metadata.namespace = Some("fleet-a".to_string());
    other.status = Some(read(json!({"phase": "Expired"})));
    other.spec.cells = Vec::new();
    stage.observe(Observation::Reservation(Change::Apply(other)));
    let writes = reconcile(&stage, "first");
    let sent = writes.iter().find(|write| write.target == Target::Work);
    assert_eq!(sent.map(|write| write.namespace.as_str()), Some("fleet-m"), "{writes:?}");
    assert!(writes.iter().all(|write| write.target != Target::Reservation || write.namespace != "fleet-m"));
    stage.restart();
    stage.pass();
    assert!(!stage.scheduler.planner.cell_groups(&job_id(&key("first"))).is_empty());
}

#[test]
fn the_mark_of_cells_is_the_hubs_and_stays_for_the_whole_run() {
    let mut stage = Stage::new();
    let mut written = job("first");
    written["metadata"]["annotations"] = json!({names::ON_CELLS_ANNOTATION: "written by its owner"});
    stage.submit_as("first", written);
    let asked = only(stage.pass());
    let (_, mut work) = stage.start("first", &asked);
    let entry = &stage.world.bindings[&key("first")];
    let object = stage.world.bound_object(entry).expect("its job");
    let mut mark = |sent: Option<&str>| {
        work["spec"]["workload"]["manifests"][0] = job("first");
        if let Some(sent) = sent {
            work["spec"]["workload"]["manifests"][0]["metadata"]["annotations"] =
                json!({names::ON_CELLS_ANNOTATION: sent});
        }
        let work = sent.map(|_| read(work.clone()));
        let built = crate::manifests::build(
            &stage.world,
            entry,
            object,
            "m",
            0,
            work.as_ref(),
            &mut Default::default(),
        );
        let built = built.expect("a Work").manifests;
        built[0]["metadata"]["annotations"][names::ON_CELLS_ANNOTATION].clone()
    };
    assert_eq!(mark(None), "true");
    assert_eq!(mark(Some("true")), "true");
    assert_eq!(mark(Some("")), Value::Null, "a run of an earlier release stays as it was sent");
}

/// One tenant's wrong node selector keeps nobody from the node.
#[test]
fn a_refusal_for_what_a_job_asks_makes_no_node_bad() {
    let answer = |stage: &mut Stage, status: Value| {
        let asked = only(stage.pass());
        let place = stage.reserved(&asked);
        let mut refused = stage.world.reservations[&place].clone();
        refused.status = Some(read(status));
        stage.observe(Observation::Reservation(Change::Apply(refused)));
        stage.scheduler.asked(&mut stage.world, &stage.intents, &key("first"), stage.now);
        let writes = stage.scheduler.answers(&stage.world, &key("first"), stage.now);
        assert!(matches!(only(writes).verb, Verb::Delete { .. }));
        let gone = stage.world.reservations[&place].clone();
        stage.observe(Observation::Reservation(Change::Delete(gone)));
    };
    for (status, is_bad) in [
        (json!({"phase": "Refused", "message": "no", "badNodes": ["n"]}), true),
        (json!({"phase": "Refused", "message": "no", "excludedNodes": {"job": ["n"], "Job": ["n"]}}), false),
    ] {
        let mut stage = Stage::new();
        stage.submit("first");
        answer(&mut stage, status);
        stage.submit("second");
        let asked = stage.pass();
        assert_eq!(asked.len(), usize::from(!is_bad), "{asked:?}: {}", stage.waiting("second"));
        let first = stage.waiting("first");
        assert_eq!(first.contains("with node m/n, which does not take its pods"), !is_bad, "{first}");
    }
}

/// Without them the run of a job whose pods start one by one would be sent as a gang, which never starts.
#[test]
fn a_controller_that_starts_binds_with_the_cells_that_its_predecessor_has_reserved() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    stage.reserved(&asked);
    begin_anew(&mut stage);
    stage.look("first");
    let answers = |stage: &mut Stage| stage.scheduler.answers(&stage.world, &key("first"), stage.now);
    assert!(answers(&mut stage).is_empty(), "the configuration is not read yet");
    stage.world.recount.insert("m".to_string());
    stage.configure();
    stage.look("first");
    let bind = only(answers(&mut stage));
    let told = format!("{:?}", bind.verb);
    assert!(told.contains("/spec/clusters") && told.contains("/spec/cells"), "{told}");
}
