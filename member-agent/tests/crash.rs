//! The agent is killed between any two of its writes, over the life of a job: it is reserved, sent, run, recorded and
//! removed all the same, and no pod of it exists twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use fleet_api::{Reservation, Work, names, reservation::ReservationPhase};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use member_agent::{JobController, Options};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::bed::{Bed, Moment, create, options, until, work};

/// More writes than any of these lives has.
const MOST_WRITES: usize = 200;

/// Uids of pods by name, as a kubelet has seen them.
type Seen = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Plays the kubelet: what is bound runs, and succeeds when `may_end` says so; what is to go is gone at once.
fn kubelet(bed: &Bed, seen: Seen, may_end: Arc<Mutex<bool>>) -> JoinHandle<()> {
    let pods = bed.pods();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let Ok(list) = pods.list(&ListParams::default()).await else { return };
            for pod in list.items {
                let name = pod.name_any();
                seen.lock().unwrap().entry(name.clone()).or_default().insert(pod.uid().unwrap_or_default());
                if pod.metadata.deletion_timestamp.is_some() {
                    let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
                    continue;
                }
                let bound = pod.spec.is_some_and(|spec| spec.node_name.is_some());
                let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
                let next = match (bound, phase.as_str()) {
                    (true, "Running") if *may_end.lock().unwrap() => {
                        json!({"phase": "Succeeded", "containerStatuses": [
                        {"name": "pytorch", "ready": false, "restartCount": 0, "image": "i", "imageID": "i",
                            "state": {"terminated": {"exitCode": 0}}}]})
                    }
                    (true, "Pending" | "") => json!({"phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True"}]}),
                    _ => continue,
                };
                let patch = Patch::Merge(json!({"status": next}));
                let _ = pods.patch_status(&name, &PatchParams::default(), &patch).await;
            }
        }
    })
}

impl Bed {
    /// Waits for the job's last reported condition.
    async fn wait_reported(&self, name: &str, state: &str) {
        let works = self.works();
        until(&works, name, state, |work: Option<&Work>| {
            let status = work.and_then(|work| work.status.as_ref()?.manifest_statuses.first());
            let last = status.and_then(|one| one.status["conditions"].as_array()?.last());
            last.is_some_and(|condition| condition["type"] == state)
        })
        .await;
    }

    /// The hub's side of a job's life.
    async fn live(&self, name: &str, may_end: &Mutex<bool>) {
        self.ask(name, &[("master", 1, 1), ("worker", 1, 1)], 60).await;
        self.phase(name, ReservationPhase::Reserved).await;
        create(&self.works(), work(name, 1, json!({"reservation": name, "fenced": true, "term": 1}))).await;
        self.wait_reported(name, "Running").await;
        *may_end.lock().unwrap() = true;
        self.wait_reported(name, "Succeeded").await;
        let recorded = json!({"metadata": {"annotations": {names::RESULT_RECORDED_ANNOTATION: "true"}}});
        self.works().patch(name, &PatchParams::default(), &Patch::Merge(recorded)).await.unwrap();
        self.asked().delete(name, &DeleteParams::default()).await.unwrap();
        self.works().delete(name, &DeleteParams::default()).await.unwrap();
        let works = self.works();
        until(&works, name, "gone", |work: Option<&Work>| work.is_none()).await;
        let copies = self.copies();
        until(&copies, name, "given back", |copy: Option<&Reservation>| copy.is_none()).await;
        assert!(self.jobs().get_opt(name).await.unwrap().is_none());
        assert!(self.pods().list(&ListParams::default()).await.unwrap().items.is_empty());
    }
}

fn agent() -> Options {
    Options {
        lease_duration: Duration::from_secs(40),
        controllers: [JobController::PyTorchJob].into(),
        scheduler_names: ["fleet".to_owned()].into(),
        ..options()
    }
}

async fn survives_every_write(moment: Moment) {
    let bed = Bed::new(&["n1 8"]).await;
    for write in 1.. {
        assert!(write < MOST_WRITES, "a life has no end of writes");
        let name = format!("j{write}");
        let (seen, may_end) = (Seen::default(), Arc::new(Mutex::new(false)));
        let kubelet = kubelet(&bed, seen.clone(), may_end.clone());
        let mut running = bed.start(agent());
        let fuse = bed.fuse(write, moment);
        let life = bed.live(&name, &may_end);
        let mut life = std::pin::pin!(life);
        let blown = tokio::select! {
            biased;
            () = fuse.blown() => true,
            () = &mut life => false,
        };
        if blown {
            running.kill().await;
            bed.disarm();
            running = bed.start(agent());
            life.await;
        }
        bed.disarm();
        running.stop().await;
        kubelet.abort();
        for (pod, uids) in seen.lock().unwrap().iter() {
            assert_eq!(uids.len(), 1, "killed at write {write}: {pod} existed more than once");
        }
        if !blown {
            println!("{} writes in a life", write - 1);
            assert!(write > 15, "the life was shorter than it can be");
            return;
        }
    }
}

#[tokio::test]
async fn killed_before_any_write() {
    survives_every_write(Moment::Before).await;
}

#[tokio::test]
async fn killed_after_any_write_before_its_answer() {
    survives_every_write(Moment::After).await;
}

/// Killed between the writes by which a job is stopped, and started without a hub: the next agent finishes it.
#[tokio::test]
async fn killed_while_it_stops_a_fenced_job() {
    let bed = Bed::new(&["n1 8"]).await;
    let quick = || Options {
        lease_duration: Duration::from_secs(1),
        lease_renew: Duration::from_millis(100),
        fence_grace: Duration::from_secs(1),
        ..agent()
    };
    for write in 1..=3 {
        let name = format!("f{write}");
        let (seen, may_end) = (Seen::default(), Arc::new(Mutex::new(false)));
        let kubelet = kubelet(&bed, seen.clone(), may_end.clone());
        let running = bed.start(quick());
        create(&bed.works(), work(&name, 1, json!({"fenced": true, "term": 1}))).await;
        bed.wait_reported(&name, "Running").await;
        let fuse = bed.fuse(write, Moment::After);
        bed.link.cut();
        fuse.blown().await;
        running.kill().await;
        bed.disarm();
        let running = bed.start(quick());
        let pods = bed.pods();
        for role in ["master", "worker"] {
            let pod = format!("{name}-{role}-0");
            until(&pods, &pod, "stopped", |pod: Option<&Pod>| pod.is_none()).await;
        }
        bed.link.join();
        *may_end.lock().unwrap() = true;
        bed.wait_reported(&name, "Succeeded").await;
        bed.works().delete(&name, &DeleteParams::default()).await.unwrap();
        let works = bed.works();
        until(&works, &name, "gone", |work: Option<&Work>| work.is_none()).await;
        running.stop().await;
        kubelet.abort();
    }
}
