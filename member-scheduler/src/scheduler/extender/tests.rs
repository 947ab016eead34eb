use std::sync::Mutex;

use axum::{Json, Router, extract::Path, http::StatusCode, routing::post};

use fleet_agent_fixture::Fixture;
use fleet_agent_ground::JobController;

use super::*;

type Says = fn(&Value) -> Value;

/// An extender that says what it is told to say, and remembers what it was asked.
#[derive(Default)]
struct Server {
    /// By verb; a verb that is not named is an error of the server.
    says: Mutex<BTreeMap<&'static str, Says>>,
    asked: Mutex<Vec<(String, Value)>>,
}

impl Server {
    fn say(&self, verb: &'static str, answer: Says) {
        self.says.lock().unwrap().insert(verb, answer);
    }

    fn answer(&self, verb: String, body: Value) -> Result<Json<Value>, StatusCode> {
        let says = self.says.lock().unwrap().get(verb.as_str()).copied();
        let answer = says.map(|says| says(&body));
        self.asked.lock().unwrap().push((verb, body));
        answer.map(Json).ok_or(StatusCode::SERVICE_UNAVAILABLE)
    }

    fn asked(&self, verb: &str) -> Option<Value> {
        self.asked.lock().unwrap().iter().find(|(of, _)| of == verb).map(|(_, body)| body.clone())
    }
}

async fn serve() -> (Arc<Server>, std::net::SocketAddr) {
    let server = Arc::new(Server::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = server.clone();
    let verb = post(move |Path(verb): Path<String>, Json(body): Json<Value>| {
        std::future::ready(answering.answer(verb, body))
    });
    let router = Router::new().route("/v1/{verb}", verb);
    tokio::spawn(axum::serve(listener, router).into_future());
    (server, address)
}

/// A member with two nodes, an agent that asks for the named verbs, and the server it asks.
async fn play(arguments: &str) -> (Fixture, Arc<Server>) {
    play_with(&[], arguments).await
}

/// The member serves the kinds of these controllers, too.
async fn play_with(controllers: &[JobController], arguments: &str) -> (Fixture, Arc<Server>) {
    let fixture = Fixture::new(controllers).await;
    fixture.create_node("n1").await;
    fixture.create_node("n2").await;
    let (server, address) = serve().await;
    crate::fixture::run(
        &fixture,
        &format!(
            "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: extender\n    \
         arguments:\n      extender.urlPrefix: http://{address}/v1/\n{arguments}"
        ),
    );
    (fixture, server)
}

#[tokio::test]
async fn a_pod_goes_where_the_extender_lets_it() {
    let (fixture, server) = play("      extender.predicateVerb: predicate\n").await;
    server.say("predicate", |body| match body["node"]["Name"].as_str() {
        Some("n1") => json!({"status": "no licence", "code": 2}),
        _ => json!({"status": ""}),
    });
    fixture.create_pod("p", "1", json!({"team": "a"})).await;
    fixture.wait_bound("p", "n2").await;
    let asked = server.asked("predicate").unwrap();
    assert_eq!(asked["task"]["Resreq"]["MilliCPU"], 1_000);
    assert_eq!(asked["task"]["Pod"]["metadata"]["annotations"]["team"], "a");
    assert_eq!(asked["node"]["Idle"]["MilliCPU"], 16_000, "the pod itself is not counted there: {asked}");
    server.say("predicate", |_| json!({"status": "closed", "code": 2}));
    fixture.create_pod("q", "1", json!({})).await;
    let why = "0/2 nodes are unavailable: 2 node(s) were refused by the extender (closed).";
    fixture.wait_told("q", why).await;
}

#[tokio::test]
async fn a_pod_waits_for_the_scores_of_the_extender() {
    let (fixture, server) = play("      extender.prioritizeVerb: prioritize\n").await;
    fixture.create_pod("p", "1", json!({})).await;
    let why = "the extender does not answer: it answered 503 Service Unavailable";
    fixture.wait_told("p", why).await;
    server.say("prioritize", |_| json!({"nodeScore": {"n2": 10.0, "n1": 1.5}}));
    fixture.wait_bound("p", "n2").await;
    let asked = server.asked("prioritize").unwrap();
    let nodes: Vec<&str> =
        asked["nodes"].as_array().unwrap().iter().filter_map(|node| node["Name"].as_str()).collect();
    assert_eq!(nodes, ["n1", "n2"]);
}

#[tokio::test]
async fn a_queue_must_not_be_overused_and_a_job_must_be_ready() {
    let verbs = "      extender.queueOverusedVerb: queueOverused\n      extender.jobReadyVerb: jobReady\n";
    let (fixture, server) = play(verbs).await;
    server.say("queueOverused", |_| json!({"overused": true}));
    server.say("jobReady", |_| json!({"status": false}));
    fixture.create_pod("p", "1", json!({})).await;
    fixture.wait_told("p", "the extender reports its queue as overused").await;
    assert_eq!(server.asked("queueOverused").unwrap()["queue"]["Name"], "default");
    server.say("queueOverused", |_| json!({"overused": false}));
    fixture.wait_told("p", "the extender reports the job as not ready").await;
    assert_eq!(server.asked("jobReady").unwrap()["job"]["MinAvailable"], 1);
    server.say("jobReady", |_| json!({"status": true}));
    fixture.wait_bound("p", "n1").await;
}

#[tokio::test]
async fn a_cycle_is_told_of_and_waits_for_nobody() {
    let verbs = "      extender.onSessionOpenVerb: open\n      extender.onSessionCloseVerb: close\n";
    let (fixture, server) = play(verbs).await;
    // The server answers with errors: pods are bound all the same.
    fixture.create_pod("p", "1", json!({})).await;
    fixture.wait_bound("p", "n1").await;
    server.say("open", |_| json!("any answer"));
    server.say("close", |_| json!(null));
    fixture.create_pod("q", "1", json!({})).await;
    let knows = |body: &Value| body["Jobs"].as_object().is_some_and(|jobs| jobs.len() >= 2);
    let told = || {
        let asked = server.asked.lock().unwrap();
        let at = asked.iter().position(|(verb, body)| verb == "open" && knows(body))?;
        let ends = asked[at..].iter().any(|(verb, body)| verb == "close" && *body == json!({}));
        // Each end is that of the last beginning.
        let verbs: Vec<&str> = asked.iter().map(|(verb, _)| verb.as_str()).collect();
        assert!(verbs.chunks(2).all(|pair| pair[0] == "open" && pair.len() < 2 || pair == ["open", "close"]));
        ends.then(|| asked[at].1.clone())
    };
    let mut body = None;
    for number in 0..100 {
        body = told();
        if body.is_some() {
            break;
        }
        // A cycle comes when something changes.
        fixture.create_pod(&format!("r{number}"), "1m", json!({})).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let body = body.expect("the extender was told of a cycle with both jobs");
    let named = |field: &str| body[field].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(named("Nodes"), ["n1", "n2"]);
    assert!(named("Queues").contains(&"default".to_owned()), "{body}");
    assert_eq!(body["Nodes"]["n2"]["Allocatable"]["MilliCPU"], 16_000);
}

#[tokio::test]
async fn a_group_enters_its_queue_when_the_extender_lets_it() {
    let verb = "      extender.jobEnqueueableVerb: jobEnqueueable\n";
    let (fixture, server) = play_with(&[JobController::VolcanoJob], verb).await;
    server.say("jobEnqueueable", |_| json!({"status": -1}));
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 1, "queue": "default", "minResources": {"cpu": "1"}}});
    fixture.create(&fixture.member, "scheduling.volcano.sh", "v1beta1", "podgroups", group).await;
    for _ in 0..500 {
        if server.asked("jobEnqueueable").is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = server.asked("jobEnqueueable").expect("the extender was asked");
    assert_eq!((&asked["job"]["Name"], &asked["job"]["MinAvailable"]), (&json!("g"), &json!(1)));
    fixture.create_pod("p", "1", json!({"scheduling.k8s.io/group-name": "g"})).await;
    fixture.wait_told("p", "refused by the extender").await;
    server.say("jobEnqueueable", |_| json!({"status": 1}));
    fixture.wait_bound("p", "n1").await;
}

/// A pod that takes the places of two others, whose extender has this verb: its group, and the two.
fn preempting(address: std::net::SocketAddr, verb: &str) -> (MemberState, GroupId, Vec<PodKey>) {
    use fleet_scheduler::{Config, Limits, Plugin, PluginName, Policy};

    use fleet_member_state::testing;

    let extender = Plugin::new(PluginName::Extender)
        .argument("extender.urlPrefix", &format!("http://{address}/v1"))
        .argument(&format!("extender.{verb}Verb"), verb);
    let tier = [PluginName::Priority, PluginName::Gang, PluginName::Predicates].map(Plugin::new);
    let config = Config {
        actions: vec![Action::Allocate, Action::Preempt],
        tiers: vec![tier.into_iter().chain([extender]).collect()],
        ..Config::default()
    };
    let mut state = testing::state(&["n1 8"]);
    state.cluster.set_policy(Policy::compile(&config).unwrap());
    for name in ["a", "b"] {
        state.apply_pod(&testing::pod(&format!("{name}: gpu=4 node=n1 phase=Running")));
    }
    state.apply_pod(&testing::pod("high: gpu=8 priority=9"));
    let outcome = state.cluster.cycle(0, &Limits::default());
    let taker = outcome.evicted[0].taker.unwrap();
    let victims: Vec<PodKey> = outcome.evicted.iter().filter_map(|one| state.key_of(one.pod)).collect();
    assert_eq!(victims.len(), 2);
    (state, taker, victims)
}

#[tokio::test]
async fn victims_leave_when_the_extender_lets_them() {
    let (server, address) = serve().await;
    for (verb, action, other) in
        [("preemptable", Action::Preempt, Action::Reclaim), ("reclaimable", Action::Reclaim, Action::Preempt)]
    {
        let (state, taker, victims) = preempting(address, verb);
        assert!(may_leave(&state, taker, other, &victims).is_none(), "nobody wants to be asked");
        let leave = may_leave(&state, taker, action, &victims).unwrap();
        assert!(allowed(&leave).await.is_empty(), "who does not answer keeps all");
        server.say(verb, |body| json!({"status": 1, "victims": [body["evictees"][1]]}));
        assert_eq!(allowed(&leave).await, ["uid-b".to_owned()].into(), "{verb}");
        let asked = server.asked(verb).unwrap();
        assert_eq!(asked["evictor"]["Name"], "high");
        server.say(verb, |_| json!({"status": 0}));
        assert_eq!(allowed(&leave).await.len(), 2, "it has nothing to say");
    }
}

#[tokio::test]
async fn an_extender_that_may_be_ignored_holds_nobody() {
    let ignorable = "      extender.prioritizeVerb: prioritize\n      extender.predicateVerb: predicate\n      \
                     extender.ignorable: true\n";
    let (fixture, server) = play(ignorable).await;
    fixture.create_pod("p", "1", json!({})).await;
    fixture.wait_bound("p", "n1").await;
    assert!(server.asked("prioritize").is_some() && server.asked("predicate").is_some());
}
