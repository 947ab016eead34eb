//! Creates that arrive after they were given up.

use std::sync::atomic::{AtomicUsize, Ordering};

use fleet_api::names::{BINDING_UID_LABEL, EPOCH_ANNOTATION, MANAGED_LABEL};
use fleet_informer::Source;
use kube::{Client, client::Body};

use super::*;

/// Long enough for an agent that would not wait.
pub(super) const A_WHILE: Duration = Duration::from_secs(1);

pub(super) const SENT: usize = 1;
const LET_GO: usize = 2;
const ARRIVED: usize = 3;

pub(super) async fn reach(stage: &AtomicUsize, wanted: usize) {
    let reached = async {
        while stage.load(Ordering::SeqCst) < wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.expect("the next stage");
}

/// A client whose first create of a job has no answer, and arrives when the test lets it go. Meanwhile the rival is made.
/// Later creates find the rival; without one they do not arrive at all.
fn with_a_late_create(client: Client, stage: Arc<AtomicUsize>, rival: Option<Value>) -> Client {
    let through = tower::service_fn(move |request: http::Request<Body>| {
        let (client, stage, rival) = (client.clone(), stage.clone(), rival.clone());
        async move {
            let is_create =
                request.method() == http::Method::POST && request.uri().path().ends_with("/pytorchjobs");
            if !is_create {
                return client.send(request).await;
            }
            let lost =
                kube::Error::Service(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
            if stage.compare_exchange(0, SENT, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                return if rival.is_some() { client.send(request).await } else { Err(lost) };
            }
            if let Some(rival) = rival {
                let resource =
                    fleet_agent_ground::resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
                let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
                let rival = serde_json::from_value(rival).expect("an object");
                jobs.create(&PostParams::default(), &rival).await.expect("created");
            }
            tokio::spawn(async move {
                reach(&stage, LET_GO).await;
                client.send(request).await.expect("an answer");
                stage.store(ARRIVED, Ordering::SeqCst);
            });
            Err(lost)
        }
    });
    Client::new(through, "default")
}

/// A room whose first create of a job arrives late, if ever.
pub(super) async fn start_with_a_late_create(rival: Option<Value>) -> (Bed, Arc<AtomicUsize>) {
    let fixture = Fixture::new(&[]).await;
    let stage = Arc::new(AtomicUsize::new(0));
    let client = with_a_late_create(fixture.member.clone(), stage.clone(), rival);
    let holds = run_over(&fixture, Link::new(client, Source::unasked("east"), "east"), Permits::default());
    (Bed { fixture, holds }, stage)
}

pub(super) async fn is_there(fixture: &Fixture, work: &str) -> bool {
    works(fixture).get_opt(work).await.unwrap().is_some()
}

/// Lets the create go: the job that it makes is removed.
pub(super) async fn arrives_and_is_removed(fixture: &Fixture, stage: &AtomicUsize) {
    stage.store(LET_GO, Ordering::SeqCst);
    reach(stage, ARRIVED).await;
    fixture.wait_gone("pytorchjobs", "a").await;
}

#[tokio::test]
async fn a_run_is_not_over_before_its_create_can_have_arrived() {
    let (fixture, stage) = start_with_a_late_create(None).await;
    submit(&fixture, work("w", 1, vec![job()])).await;
    reach(&stage, SENT).await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert!(is_there(&fixture, "w").await, "its job may still arrive");
    arrives_and_is_removed(&fixture, &stage).await;
}

/// The job `a`, made by somebody else while our create is on its way; it stays until the test takes its finalizer.
fn rival(labels: Value, annotations: Value) -> Value {
    let mut rival = job();
    rival["metadata"]["labels"] = labels;
    rival["metadata"]["annotations"] = annotations;
    rival["metadata"]["finalizers"] = json!(["test/stays"]);
    rival
}

/// The run ends while the rival has its name, and then the rival goes: our create may still arrive.
async fn shows_nothing(rival: Value, reason: &str) {
    let (fixture, stage) = start_with_a_late_create(Some(rival)).await;
    submit(&fixture, work("w", 2, vec![job()])).await;
    wait_applied(&fixture, "w", "False", reason).await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert!(is_there(&fixture, "w").await, "its job may still arrive");
    let jobs = fixture.of_member("pytorchjobs");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    jobs.patch("a", &PatchParams::default(), &free).await.unwrap();
    // Somebody may have deleted it before.
    let _ = jobs.delete("a", &DeleteParams::background()).await;
    fixture.wait_gone("pytorchjobs", "a").await;
    tokio::time::sleep(A_WHILE).await;
    assert!(is_there(&fixture, "w").await, "its job may still arrive when the name is free");
    arrives_and_is_removed(&fixture, &stage).await;
    // Its own object shows that the create has arrived.
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
}

#[tokio::test]
async fn an_object_of_somebody_else_does_not_show_that_our_create_has_arrived() {
    shows_nothing(rival(json!({}), json!({})), "NameTaken").await;
}

#[tokio::test]
async fn an_object_of_another_binding_does_not_show_that_our_create_has_arrived() {
    let labels = json!({MANAGED_LABEL: "true", BINDING_UID_LABEL: "uid-other"});
    shows_nothing(rival(labels, json!({EPOCH_ANNOTATION: "2"})), "WaitingForCleanup").await;
}

#[tokio::test]
async fn an_object_of_an_earlier_epoch_does_not_show_that_our_create_has_arrived() {
    let labels = json!({MANAGED_LABEL: "true", BINDING_UID_LABEL: "uid-w"});
    shows_nothing(rival(labels, json!({EPOCH_ANNOTATION: "1"})), "WaitingForCleanup").await;
}
