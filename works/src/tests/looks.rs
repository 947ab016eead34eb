//! What one look at a Work does, without the queue: what may start, what is reported when, and what is counted.

use fleet_agent_ground::Next;
use fleet_metrics::Exposed;
use fleet_mirror::Change;

use super::*;
use crate::{
    keys::{Key, KindId},
    works::Works,
};

struct Desk {
    fixture: Fixture,
    works: Arc<Works>,
    metrics: AgentMetrics,
    _holds: mpsc::Receiver<HoldRequest>,
}

impl Desk {
    async fn new(lease: LeaseClock) -> Self {
        let (fixture, metrics) = (Fixture::new(&[]).await, AgentMetrics::default());
        let (handles, _holds) = handles(&fixture, fixture.member_link(), lease, &metrics);
        let kinds = Permits::default().kinds.into_iter().chain(["Odd.odd.dev".to_owned()]).collect();
        let settings = settings(Permits { kinds, ..Permits::default() });
        let works = Arc::new(Works::new(handles, settings, fixture.shutdown.clone()));
        let resource = fleet_agent_ground::resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
        {
            let mut state = works.state();
            state.pods_synced = true;
            state.add_kind(KindId::of(&resource), resource);
        }
        Self { fixture, works, metrics, _holds }
    }

    /// The hub sends a Work, and the agent looks at it.
    async fn submit(&self, work: Work) -> Next {
        let made = works(&self.fixture).create(&PostParams::default(), &work).await.expect("created");
        let name = made.name_any();
        self.works.state().take_works(Change::Apply(made));
        self.look(&name).await
    }

    async fn look(&self, name: &str) -> Next {
        self.works.look_at_work(name).await.expect("a look")
    }

    /// Looks when a report that waits is due.
    async fn look_later(&self, name: &str) -> Next {
        tokio::time::sleep(Duration::from_millis(400)).await;
        self.look(name).await
    }

    /// Its controller writes the status of the job `a`, and the watch shows it.
    async fn say(&self, condition: &str) {
        set_status(&self.fixture, condition).await;
        let job = self.fixture.of_member("pytorchjobs").get("a").await.unwrap();
        let kind = KindId { api_version: "kubeflow.org/v1".to_owned(), kind: "PyTorchJob".to_owned() };
        self.works.state().take_objects(&kind, Change::Apply(job));
    }

    /// This many Works wait for a look.
    fn load(&self, works: usize) {
        self.works.add((0..works).map(|number| Key::Work(format!("other-{number}"))));
    }

    /// What the hub knows of the Work: whether it is applied, and the first condition of its job.
    async fn reported(&self, name: &str) -> String {
        let Some(status) = works(&self.fixture).get(name).await.unwrap().status else {
            return "nothing".to_owned();
        };
        let applied = status.conditions.first().map_or("unknown", |one| one.reason.as_str());
        let job = status.manifest_statuses.first().map(|one| one.status["conditions"][0]["type"].clone());
        format!("{applied} {}", job.as_ref().and_then(Value::as_str).unwrap_or("silent"))
    }

    async fn has_job(&self, name: &str) -> bool {
        self.fixture.of_member("pytorchjobs").get_opt(name).await.unwrap().is_some()
    }

    fn counted(&self, outcome: &str) -> bool {
        let mut text = String::new();
        self.metrics.write(&mut text);
        let ones = text
            .lines()
            .filter(|line| line.starts_with("fleet_agent_work_reconciles_total") && line.ends_with("} 1"));
        ones.collect::<Vec<_>>().join("\n").contains(&format!("outcome=\"{outcome}\""))
    }
}

fn is_soon(next: Next) -> bool {
    matches!(next, Next::After(left) if left <= Duration::from_millis(300))
}

fn fenced(name: &str) -> Work {
    let mut work = named(name);
    work.spec.fenced = true;
    work
}

fn named(name: &str) -> Work {
    let mut manifest = job();
    manifest["metadata"]["name"] = name.into();
    work(name, 1, vec![manifest])
}

#[tokio::test]
async fn without_the_lease_no_fenced_job_starts_and_any_other_does() {
    let desk = Desk::new(LeaseClock::default()).await;
    assert_eq!(desk.submit(fenced("fenced")).await, Next::Wait);
    desk.submit(named("plain")).await;
    assert_eq!((desk.has_job("fenced").await, desk.has_job("plain").await), (false, true));
    let desk = Desk::new(LeaseClock::held()).await;
    desk.submit(fenced("fenced")).await;
    desk.submit(named("plain")).await;
    assert_eq!((desk.has_job("fenced").await, desk.has_job("plain").await), (true, true));
}

#[tokio::test]
async fn what_becomes_of_a_work_is_counted_by_its_outcome() {
    let desk = Desk::new(LeaseClock::held()).await;
    desk.submit(named("a")).await;
    assert!(desk.counted("applied") && !desk.counted("refused") && !desk.counted("failed"));
    let mut deep = named("deep");
    deep.spec.workload.manifests[0]["spec"]["deep"] = nested(63);
    assert!(matches!(desk.submit(deep).await, Next::After(_)), "its administrator may come to permit it");
    assert!(desk.counted("applied") && desk.counted("refused") && !desk.counted("failed"));
    let odd =
        json!({"apiVersion": "odd.dev/v1", "kind": "Odd", "metadata": {"name": "o", "namespace": "default"}});
    assert_eq!(desk.submit(work("odd", 1, vec![odd])).await, Next::Retry);
    assert!(desk.counted("applied") && desk.counted("refused") && desk.counted("failed"));
}

#[tokio::test]
async fn the_first_report_of_a_job_waits_a_moment_for_its_status() {
    let desk = Desk::new(LeaseClock::held()).await;
    assert!(is_soon(desk.submit(work("w", 1, vec![job()])).await));
    assert_eq!(desk.reported("w").await, "nothing");
    desk.say("Created").await;
    assert_eq!(desk.look("w").await, Next::Wait);
    assert_eq!(desk.reported("w").await, "AppliedSuccessful Created");
}

#[tokio::test]
async fn a_job_without_a_status_is_reported_after_a_moment_and_waits_no_more() {
    let desk = Desk::new(LeaseClock::held()).await;
    assert!(is_soon(desk.submit(work("w", 1, vec![job()])).await));
    assert_eq!(desk.look_later("w").await, Next::Wait);
    assert_eq!(desk.reported("w").await, "AppliedSuccessful silent");
    assert_eq!(desk.look("w").await, Next::Wait, "it is no first report");
}

#[tokio::test]
async fn a_refusal_is_reported_at_once() {
    let desk = Desk::new(LeaseClock::held()).await;
    desk.load(20);
    let mut deep = work("w", 1, vec![job()]);
    deep.spec.workload.manifests[0]["spec"]["deep"] = nested(63);
    desk.submit(deep).await;
    assert_eq!(desk.reported("w").await, "NotPermitted silent");
}

/// A running job that is reported, while this many Works wait.
async fn running(load: usize) -> Desk {
    let desk = Desk::new(LeaseClock::held()).await;
    desk.submit(work("w", 1, vec![job()])).await;
    desk.say("Created").await;
    desk.look("w").await;
    desk.load(load);
    desk
}

#[tokio::test]
async fn news_of_a_running_job_is_collected_while_the_agent_is_busy() {
    let desk = running(9).await;
    assert_eq!(desk.look("w").await, Next::Wait, "there are none");
    desk.say("Running").await;
    assert!(is_soon(desk.look("w").await));
    assert_eq!(desk.reported("w").await, "AppliedSuccessful Created");
    assert_eq!(desk.look_later("w").await, Next::Wait);
    assert_eq!(desk.reported("w").await, "AppliedSuccessful Running");
}

#[tokio::test]
async fn news_of_a_running_job_is_reported_at_once_while_the_agent_is_not_busy() {
    let desk = running(8).await;
    desk.say("Running").await;
    assert_eq!(desk.look("w").await, Next::Wait);
    assert_eq!(desk.reported("w").await, "AppliedSuccessful Running");
}

#[tokio::test]
async fn the_end_of_a_job_is_reported_at_once_however_busy_the_agent_is() {
    let desk = running(20).await;
    desk.say("Succeeded").await;
    desk.look("w").await;
    assert_eq!(desk.reported("w").await, "AppliedSuccessful Succeeded");
}
