//! The fast mode against the whole one: the same scenario gives every job the same life of runs, because both ask
//! `fleet_runs`. Times may differ by what messages take in the whole mode.

use fleet_simulator::scenario::{
    Scenario,
    log::{Ending, Kept, What},
};

/// What the two modes may be apart in telling the same step: leases are renewed and looked at in periods.
const APART_MS: i64 = 12_000;

/// One step of a job's life, as both modes must tell it.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Bound { cluster: String, epoch: i64 },
    Evicted { cluster: String, epoch: i64, reason: String },
    Finished { cluster: String, epoch: i64, succeeded: bool, attempts: i64 },
}

type Life = Vec<(i64, String, Step)>;

fn life(kept: Kept) -> Life {
    let step = |what: &What| match what {
        What::Bound { cluster, epoch, .. } => {
            Some(Step::Bound { cluster: cluster.to_string(), epoch: *epoch })
        }
        What::Evicted { cluster, epoch, reason } => {
            Some(Step::Evicted { cluster: cluster.to_string(), epoch: *epoch, reason: reason.clone() })
        }
        What::Finished { cluster, epoch, result, attempts } => Some(Step::Finished {
            cluster: cluster.to_string(),
            epoch: *epoch,
            succeeded: *result == Ending::Succeeded,
            attempts: *attempts,
        }),
        _ => None,
    };
    let records = kept.records.iter();
    let mut life: Life = records.filter_map(|r| Some((r.at_ms, r.job.to_string(), step(&r.what)?))).collect();
    life.sort_by(|one, other| one.1.cmp(&other.1));
    life
}

/// Both modes' lives of the jobs of a scenario, which must be the same.
fn both(text: &str) -> Life {
    let scenario = Scenario::read("oracle.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (mut fast, mut whole) = (Kept::default(), Kept::default());
    let summary = fleet_simulator::fast::run(&scenario, &mut fast).expect("the fast mode runs");
    assert_eq!(summary.violations, Vec::new());
    let summary = fleet_fault_simulation::run(&scenario, &mut whole).expect("the whole mode runs");
    assert_eq!(summary.violations, Vec::new());
    let (fast, whole) = (life(fast), life(whole));
    let steps =
        |life: &Life| life.iter().map(|(_, job, step)| (job.clone(), step.clone())).collect::<Vec<_>>();
    assert_eq!(steps(&fast), steps(&whole), "fast (left) and whole (right) tell different lives");
    for ((fast_ms, job, step), (whole_ms, ..)) in fast.iter().zip(&whole) {
        let apart = fast_ms.abs_diff(*whole_ms);
        assert!(apart <= APART_MS as u64, "{job} {step:?}: {fast_ms} and {whole_ms} ms");
    }
    fast
}

fn reasons(life: &Life) -> Vec<String> {
    let reason = |(_, _, step): &'_ (i64, String, Step)| match step {
        Step::Evicted { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    life.iter().filter_map(reason).collect()
}

/// A cluster `east` that is preferred by its room, a smaller `west`, and a policy with this failover.
fn two_clusters(failover: &str, events: &str) -> String {
    format!(
        "until: 40m\nclusters:\n  - {{name: east, nodePools: [{{name: n, count: 4, allocatable: {{cpu: 8}}}}]}}\n  - {{name: \
         west, nodePools: [{{name: n, count: 1, allocatable: {{cpu: 8}}}}]}}\nobjects:\n  - apiVersion: \
         policy.one.alibabacloud.com/v1alpha1\n    kind: ClusterPropagationPolicy\n    metadata: {{name: p}}\n    spec: \
         {{resourceSelectors: [{{apiVersion: kubeflow.org/v1, kind: PyTorchJob}}], propagateDeps: true, suspension: {{scheduling: true}}, \
         placement: {{clusterAffinities: [{{affinityName: first, clusterNames: [east, west]}}], replicaScheduling: \
         {{replicaSchedulingType: Divided, customSchedulingType: Gang}}}}{failover}}}\nevents:\n{events}"
    )
}

fn job(more: &str) -> String {
    format!(
        "  - {{at: 0s, job: {{name: j, components: [{{name: worker, requests: {{cpu: 4}}}}], runtime: 60s{more}}}}}\n"
    )
}

const APPLICATION: &str = ", failover: {application: {purgeMode: Directly, backoffLimit: 2, decisionConditions: \
    {tolerationSeconds: 5}}}";

#[test]
fn a_failure_in_one_cluster_runs_elsewhere_and_a_failure_everywhere_ends_the_job() {
    let life = both(&two_clusters(APPLICATION, &job(", failOn: [east, west]")));
    assert_eq!(reasons(&life), ["ApplicationFailure"]);
    let last = &life.last().expect("steps").2;
    assert!(matches!(last, Step::Finished { succeeded: false, attempts: 2, .. }), "{last:?}");
    let first = match &life[0].2 {
        Step::Bound { cluster, .. } => cluster.clone(),
        other => panic!("{other:?}"),
    };
    let life = both(&two_clusters(APPLICATION, &job(&format!(", failOn: [{first}]"))));
    assert_eq!(reasons(&life), ["ApplicationFailure"]);
    let elsewhere =
        |step: &Step| matches!(step, Step::Finished { cluster, succeeded: true, .. } if *cluster != first);
    assert!(elsewhere(&life.last().expect("steps").2), "{life:?}");
}

#[test]
fn a_failure_without_a_policy_is_the_end() {
    let life = both(&two_clusters("", &job(", result: fail")));
    assert_eq!(reasons(&life), Vec::<String>::new());
    assert!(matches!(life.last().expect("steps").2, Step::Finished { succeeded: false, attempts: 1, .. }));
}

#[test]
fn a_lost_cluster_is_left_when_the_policy_moves_and_kept_when_it_does_not() {
    let moves = ", failover: {cluster: {purgeMode: Directly, fencing: Lease, tolerationSeconds: 20}}";
    let long = ", runtime: 300s".to_string();
    let text = |failover: &str, cluster: &str| {
        let events = job(&long).replace("runtime: 60s, ", "");
        let cut = format!(
            "  - {{at: 30s, partition: {{cluster: {cluster}}}}}\n  - {{at: 400s, heal: {{cluster: {cluster}}}}}\n"
        );
        two_clusters(failover, &(events + &cut))
    };
    let home = match &both(&two_clusters("", &job("")))[0].2 {
        Step::Bound { cluster, .. } => cluster.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reasons(&both(&text(moves, &home))), ["ClusterLost"]);
    assert_eq!(reasons(&both(&text("", &home))), Vec::<String>::new());
}

#[test]
fn an_old_run_that_is_left_alone_keeps_its_cluster_until_the_next_one_starts() {
    let graceful = ", failover: {allowTwoRuns: true, application: {purgeMode: Gracefully, gracePeriodSeconds: 100, \
        decisionConditions: {tolerationSeconds: 5}}}";
    // Two pods of 8 cpu fit one cluster only, where the run fails: the next one has to wait until the grace of the old
    // one is over.
    let text = two_clusters(
        graceful,
        "  - {at: 0s, job: {name: j, failOn: [east], components: [{name: worker, replicas: 2, requests: {cpu: 8}}], runtime: \
         20s}}\n",
    );
    let life = both(&text);
    assert_eq!(reasons(&life), ["ApplicationFailure", "ApplicationFailure"]);
    let bound: Vec<i64> = life
        .iter()
        .filter(|(_, _, step)| matches!(step, Step::Bound { .. }))
        .map(|(at_ms, ..)| *at_ms)
        .collect();
    assert_eq!(bound.len(), 3, "the third failure is the end");
    assert!(bound[1] >= 125_000, "the second run began at {} ms", bound[1]);
}

#[test]
fn a_name_that_is_taken_everywhere_is_tried_again_when_that_has_faded() {
    let own = |cluster: &str| {
        format!(
            "  - {{at: 0s, cluster: {cluster}, apply: {{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: j, \
             namespace: default}}, spec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 1, template: {{spec: {{containers: \
             [{{name: pytorch, image: x, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}}}}}}}}}\n"
        )
    };
    let gone = |cluster: &str| {
        format!(
            "  - {{at: 100s, cluster: {cluster}, delete: {{kind: PyTorchJob, namespace: default, name: j}}}}\n"
        )
    };
    let events =
        own("east") + &own("west") + &job("").replace("at: 0s", "at: 5s") + &gone("east") + &gone("west");
    let life = both(&two_clusters("", &events));
    assert_eq!(reasons(&life), ["NameTaken", "NameTaken"]);
    let (at_ms, _, last) = life.last().expect("steps");
    assert!(matches!(last, Step::Finished { succeeded: true, epoch: 3, .. }), "{last:?}");
    assert!((660_000..690_000).contains(at_ms), "ended at {at_ms} ms");
}
