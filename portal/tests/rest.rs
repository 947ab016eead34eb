//! The REST API against an embedded hub that asks who may do what.

mod attempts;
mod cells;

use std::collections::BTreeMap;

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use fleet_api::crds::{self, Side, definitions};
use fleet_apiserver::{Access, ApiServer, Config};
use fleet_openpai::rest::{Portal, router};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tower::ServiceExt;

const LAB: &str = include_str!("../../examples/hived/jobs/job-config-6.yaml");

struct Hub {
    _server: ApiServer,
    admin: Client,
    rest: Router,
}

impl Hub {
    /// alice may do with jobs what she likes in `default`, bob nothing, root everything.
    async fn start() -> Self {
        let wanted = [
            "jobs.batch.volcano.sh",
            "resourcebindings.fleet.dev",
            "clusters.fleet.dev",
            "cellconfigurations.fleet.dev",
            "virtualclusters.fleet.dev",
        ];
        let all = definitions(Side::Hub);
        let crds = all.into_iter().filter(|one| wanted.contains(&crds::name(one))).collect();
        let config = Config { crds, access: Access::Rbac, ..Config::default() };
        let server = ApiServer::open(config).await.expect("a server in memory");
        for (token, user, groups) in
            [("a1", "alice", &[][..]), ("b1", "bob", &[]), ("r1", "root", &["system:masters"])]
        {
            server.add_token(token, user, groups);
        }
        let admin = Client::new(server.router(), "default");
        let portal =
            Portal { hub: admin.clone(), url: "the hub".into(), namespace: "default".into(), users: None };
        let hub = Self { _server: server, rest: router(portal), admin };
        let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
        hub.create(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            json!({
            "metadata": {"name": "trainer"},
            "rules": [rule("batch.volcano.sh", &["jobs"]), rule("", &["secrets", "events"]),
                rule("fleet.dev", &["resourcebindings"])]}),
        )
        .await;
        hub.create(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({
            "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trainer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]}),
        )
        .await;
        hub
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())
            .expect("a request");
        self.admin.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn object(&self, path: &str) -> Value {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        self.admin.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn set_status(&self, job: &str, status: Value) {
        let request = Request::patch(format!("{JOBS}/{job}/status"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(json!({"status": status}).to_string().into_bytes())
            .expect("a request");
        let _: Value = self.admin.request(request).await.expect("a status");
    }

    /// Status and body of an answer; a body that is no JSON as a text.
    async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(format!("/api/v2{path}"));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        self.send(request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let answer = self.rest.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, Some("a1"), "").await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn submit(&self, text: &str) -> (u16, Value) {
        self.ask("POST", "/jobs", Some("a1"), text).await
    }

    /// A refusal has that status, that code, and a message with these words.
    async fn refused(&self, ask: (&str, &str, Option<&str>, &str), wanted: (u16, &str, &str)) {
        let (method, path, token, body) = ask;
        let (status, answer) = self.ask(method, path, token, body).await;
        assert_eq!((status, answer["code"].as_str()), (wanted.0, Some(wanted.1)), "{ask:?}: {answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(wanted.2), "{ask:?}: {message}");
        assert_eq!(answer.as_object().map(|fields| fields.len()), Some(2), "{answer}");
    }
}

const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";

#[tokio::test]
async fn who_is_not_known_is_told_so() {
    let hub = Hub::start().await;
    let routes = [
        ("GET", "/jobs", ""),
        ("POST", "/jobs", LAB),
        ("GET", "/jobs/alice~a", ""),
        ("GET", "/jobs/alice~a/config", ""),
        ("GET", "/jobs/alice~a/events", ""),
        ("GET", "/jobs/alice~a/job-attempts", ""),
        ("PUT", "/jobs/alice~a/executionType", r#"{"value": "STOP"}"#),
        ("PUT", "/jobs/alice~a/tag", r#"{"value": "x"}"#),
        ("DELETE", "/jobs/alice~a/tag", r#"{"value": "x"}"#),
    ];
    for (method, path, body) in routes {
        hub.refused((method, path, None, body), (401, "UnauthorizedUserError", "found no credential")).await;
        hub.refused((method, path, Some("nonsense"), body), (401, "UnauthorizedUserError", "")).await;
    }
    let basic = Request::get("/api/v2/jobs").header(header::AUTHORIZATION, "Basic YTpi").body(Body::empty());
    let (status, answer) = hub.send(basic.expect("a request")).await;
    assert_eq!((status, &answer["code"]), (401, &json!("UnauthorizedUserError")));
    // Nothing came through.
    assert_eq!(hub.object(JOBS).await["items"], json!([]));
}

#[tokio::test]
async fn a_job_is_submitted_listed_and_looked_at() {
    let hub = Hub::start().await;
    let (status, answer) = hub.submit(LAB).await;
    assert_eq!((status, &answer["status"]), (202, &json!(202)), "{answer}");
    assert_eq!(answer["message"], "Update job job-config-6 for user alice successfully.");
    let list = hub.get("/jobs").await;
    let [item] = list.as_array().expect("a list").as_slice() else { panic!("{list}") };
    for (field, value) in [
        ("name", json!("job-config-6")),
        ("username", json!("alice")),
        ("state", json!("WAITING")),
        ("subState", json!("AttemptCreationPending")),
        ("executionType", json!("START")),
        ("virtualCluster", json!("default")),
        ("jobPriority", json!("prod")),
        ("totalGpuNumber", json!(2)),
        ("totalTaskNumber", json!(2)),
        ("totalTaskRoleNumber", json!(1)),
        ("retries", json!(0)),
        ("retryDetails", json!({"user": 0, "platform": 0, "resource": 0})),
        ("appExitCode", json!(null)),
        ("tags", json!([])),
    ] {
        assert_eq!(item[field], value, "{field} in {item}");
    }
    assert!(item["submissionTime"].as_i64().is_some_and(|time| time > 1_600_000_000_000));
    let detail = hub.get("/jobs/alice~job-config-6").await;
    assert_eq!(detail["jobStatus"]["state"], "WAITING");
    let tasks = detail["taskRoles"]["train"]["taskStatuses"].as_array().expect("tasks");
    assert_eq!((tasks.len(), &tasks[1]["taskState"]), (2, &json!("WAITING")));
    let config = hub.get("/jobs/alice~job-config-6/config").await;
    assert!(
        config.as_str().is_some_and(|text| text.contains("job-config-6") && text.contains("gangAllocation"))
    );
    hub.set_status(
        "alice-job-config-6",
        json!({"state": {"phase": "Failed", "reason": "Stopped", "message": "m",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}}),
    )
    .await;
    let detail = hub.get("/jobs/alice~job-config-6").await;
    assert_eq!(
        (&detail["jobStatus"]["state"], &detail["jobStatus"]["appExitCode"]),
        (&json!("STOPPED"), &json!(-210))
    );
    assert_eq!(detail["jobStatus"]["appExitType"], "USER_STOP");
    assert_eq!(detail["jobStatus"]["appExitSpec"]["phrase"], "StopFrameworkRequested");
    assert_eq!(detail["jobStatus"]["completedTime"], 1_767_323_045_000_i64);
}

#[tokio::test]
async fn what_is_wrong_is_refused_in_openpais_shape() {
    let hub = Hub::start().await;
    assert_eq!(hub.submit(LAB).await.0, 202);
    let id = "/jobs/alice~job-config-6";
    let execute = format!("{id}/executionType");
    let a1 = Some("a1");
    for (ask, wanted) in [
        (("POST", "/jobs", a1, LAB), (409, "ConflictJobError", "alice-job-config-6 in namespace default")),
        (("POST", "/jobs", a1, "a: ["), (400, "InvalidProtocolError", "allowed: one YAML document")),
        (("POST", "/jobs", a1, "name: x"), (400, "InvalidProtocolError", "taskRoles: found nothing")),
        (("POST", "/jobs", Some("b1"), LAB), (403, "ForbiddenUserError", "bob")),
        (("GET", "/jobs", Some("b1"), ""), (403, "ForbiddenUserError", "bob")),
        (("GET", id, Some("b1"), ""), (403, "ForbiddenUserError", "bob")),
        (("PUT", execute.as_str(), Some("b1"), r#"{"value": "STOP"}"#), (403, "ForbiddenUserError", "bob")),
        (
            ("PUT", execute.as_str(), a1, r#"{"value": "KILL"}"#),
            (400, "InvalidParametersError", "STOP or START"),
        ),
        (("PUT", execute.as_str(), a1, "STOP"), (400, "InvalidParametersError", "the body")),
        (("GET", "/jobs/alice~other", a1, ""), (404, "NoJobError", "alice~other")),
        (("GET", "/jobs/other", a1, ""), (404, "NoJobError", "USER~NAME")),
        (("GET", "/jobs/alice~job-config-6/attempts/1", a1, ""), (404, "NoJobAttemptError", "0 to 0")),
        (
            ("GET", "/jobs/alice~job-config-6/events?type=Bad", a1, ""),
            (400, "InvalidParametersError", "Normal or Warning"),
        ),
        (("GET", "/jobs?limit=50001", a1, ""), (400, "InvalidParametersError", "at most 50000")),
        (("GET", "/jobs?offset=-1", a1, ""), (400, "InvalidParametersError", "offset")),
        (("GET", "/jobs?state=DONE", a1, ""), (400, "InvalidParametersError", "WAITING")),
        (("GET", "/jobs?order=age,ASC", a1, ""), (400, "InvalidParametersError", "submissionTime")),
        (("GET", "/nothing", a1, ""), (404, "NoApiError", "/nothing")),
        (("PATCH", "/jobs", a1, ""), (405, "NoApiError", "PATCH")),
        (("DELETE", "/jobs/alice~job-config-6/tag", a1, r#"{"value": "x"}"#), (404, "NoTagError", "\"x\"")),
        (
            ("PUT", "/jobs/alice~job-config-6/tag", a1, r#"{"value": "a,b"}"#),
            (400, "InvalidParametersError", "comma"),
        ),
    ] {
        hub.refused(ask, wanted).await;
    }
}

/// The lab's job under another name, in another place.
fn variant(name: &str, cluster: &str, class: &str, instances: i64) -> String {
    LAB.replace("name: job-config-6", &format!("name: {name}"))
        .replace("virtualCluster: default", &format!("virtualCluster: {cluster}"))
        .replace(
            "jobPriorityClass: prod",
            &match class {
                "" => "lazyPreemptionEnable: false".to_owned(),
                class => format!("jobPriorityClass: {class}"),
            },
        )
        .replace("instances: 2", &format!("instances: {instances}"))
}

#[tokio::test]
async fn lists_are_narrowed_ordered_and_cut() {
    let hub = Hub::start().await;
    for (name, cluster, class, instances) in
        [("one", "vc1", "prod", 3), ("two", "vc2", "oppo", 1), ("three", "vc1", "", 2)]
    {
        assert_eq!(hub.submit(&variant(name, cluster, class, instances)).await.0, 202);
    }
    hub.set_status("alice-two", json!({"state": {"phase": "Running"}})).await;
    let (status, _) = hub.ask("PUT", "/jobs/alice~one/tag", Some("a1"), r#"{"value": "blue"}"#).await;
    assert_eq!(status, 200);
    let rows = BTreeMap::from([
        ("order=jobName,ASC", "one three two"),
        ("order=jobName,DESC", "two three one"),
        ("order=totalTaskNumber,ASC", "two three one"),
        ("order=jobPriority,DESC", "one three two"),
        ("order=jobName,ASC&limit=1&offset=1", "three"),
        ("vc=vc1&order=jobName,ASC", "one three"),
        ("vc=vc1,vc2&order=vc,DESC&limit=1", "two"),
        ("username=bob", ""),
        ("username=alice,bob&order=jobName,ASC&limit=1", "one"),
        ("state=RUNNING", "two"),
        ("state=WAITING,RUNNING&order=jobName,ASC", "one three two"),
        ("jobPriority=oppo,prod&order=jobName,ASC", "one two"),
        ("jobPriority=default", "three"),
        ("jobPriority=test", ""),
        ("keyword=hre", "three"),
        ("keyword=vc2", "two"),
        ("tagsContain=blue", "one"),
        ("tagsNotContain=blue&order=jobName,ASC", "three two"),
    ]);
    for (query, names) in rows {
        let list = hub.get(&format!("/jobs?{query}")).await;
        let found: Vec<&str> =
            list.as_array().expect("a list").iter().filter_map(|item| item["name"].as_str()).collect();
        assert_eq!(found.join(" "), names, "{query}");
    }
    let counted = hub.get("/jobs?withTotalCount=true&limit=2").await;
    assert_eq!((&counted["totalCount"], counted["data"].as_array().map(Vec::len)), (&json!(3), Some(2)));
    let (status, _) = hub.ask("DELETE", "/jobs/alice~one/tag", Some("a1"), r#"{"value": "blue"}"#).await;
    assert_eq!((status, hub.get("/jobs?tagsContain=blue").await), (200, json!([])));
}

#[tokio::test]
async fn a_job_that_no_policy_selects_says_so_and_can_be_stopped() {
    let hub = Hub::start().await;
    hub.submit(LAB).await;
    let state = json!({"phase": "Pending", "reason": "NoPolicy", "message": "no policy selects it"});
    hub.set_status("alice-job-config-6", json!({"state": state})).await;
    let detail = hub.get("/jobs/alice~job-config-6").await;
    let status = &detail["jobStatus"];
    assert_eq!(
        (&status["state"], &status["waitingReason"]),
        (&json!("WAITING"), &json!("NoPolicy: no policy selects it"))
    );
    let execute = "/jobs/alice~job-config-6/executionType";
    hub.ask("PUT", execute, Some("a1"), r#"{"value": "STOP"}"#).await;
    let item = &hub.get("/jobs").await[0];
    assert_eq!((&item["state"], &item["appExitCode"]), (&json!("STOPPED"), &json!(-210)));
}

#[tokio::test]
async fn an_id_in_two_namespaces_is_that_of_the_portals_own() {
    let hub = Hub::start().await;
    hub.submit(LAB).await;
    let mut other = hub.object(&format!("{JOBS}/alice-job-config-6")).await;
    hub.create("/api/v1/namespaces", json!({"metadata": {"name": "another"}})).await;
    other["metadata"] = json!({"name": "alice-job-config-6", "namespace": "another",
        "labels": other["metadata"]["labels"], "annotations": other["metadata"]["annotations"]});
    other["metadata"]["labels"]["pai.fleet.dev/run"] = json!("7");
    hub.create(&JOBS.replace("default", "another"), other).await;
    let (status, list) = hub.ask("GET", "/jobs", Some("r1"), "").await;
    assert_eq!((status, list.as_array().map(Vec::len)), (200, Some(2)));
    let (_, attempts) = hub.ask("GET", "/jobs/alice~job-config-6/job-attempts", Some("r1"), "").await;
    assert_eq!((attempts.as_array().map(Vec::len), &attempts[0]["attemptIndex"]), (Some(1), &json!(0)));
}

#[tokio::test]
async fn secrets_are_nowhere_but_in_their_secret() {
    let hub = Hub::start().await;
    let text = LAB
        .replace("defaults:", "secrets: {token: s3cret}\n\ndefaults:")
        .replace("    commands:\n", "    commands:\n    - login <% $secrets.token %>\n");
    let (status, answer) = hub.submit(&text).await;
    assert_eq!(status, 202, "{answer}");
    let job = hub.object(&format!("{JOBS}/alice-job-config-6")).await;
    assert!(!job.to_string().contains("s3cret"));
    let secret = hub.object("/api/v1/namespaces/default/secrets/alice-job-config-6-scripts").await;
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
    let config = hub.get("/jobs/alice~job-config-6/config").await;
    assert!(config.as_str().is_some_and(|text| text.contains("******") && !text.contains("s3cret")));
}

#[tokio::test]
async fn events_say_what_was_told_and_why_it_waits() {
    let hub = Hub::start().await;
    hub.submit(LAB).await;
    let job = hub.object(&format!("{JOBS}/alice-job-config-6")).await;
    let uid = job["metadata"]["uid"].clone();
    let event = |name: &str, kind: &str, reason: &str| {
        json!({"metadata": {"name": name, "namespace": "default"}, "type": kind, "reason": reason, "message": "m",
            "count": 2, "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:06Z",
            "source": {"component": "c"},
            "involvedObject": {"kind": "Job", "name": "alice-job-config-6", "namespace": "default", "uid": uid}})
    };
    for one in [event("a", "Normal", "Queued"), event("b", "Warning", "ScheduleBindingFailed")] {
        hub.create("/api/v1/namespaces/default/events", one).await;
    }
    let binding = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": "alice-job-config-6-vcjob", "namespace": "default"},
        "spec": {"policy": {"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy", "name": "p"},
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "default",
            "name": "alice-job-config-6", "uid": uid}}});
    hub.create("/apis/fleet.dev/v1alpha1/namespaces/default/resourcebindings", binding).await;
    let request = Request::patch(
        "/apis/fleet.dev/v1alpha1/namespaces/default/resourcebindings/alice-job-config-6-vcjob/status",
    )
    .header(header::CONTENT_TYPE, "application/merge-patch+json")
    .body(
        json!({"status": {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoClusterFits",
            "message": "no room", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}})
        .to_string()
        .into_bytes(),
    );
    let _: Value = hub.admin.request(request.expect("a request")).await.expect("a status");
    let all = hub.get("/jobs/alice~job-config-6/events").await;
    let reasons: Vec<&str> =
        all["data"].as_array().expect("events").iter().filter_map(|e| e["reason"].as_str()).collect();
    assert_eq!(
        (&all["totalCount"], reasons.join(" ")),
        (&json!(3), "Queued ScheduleBindingFailed NoClusterFits".into())
    );
    let first = &all["data"][0];
    assert_eq!((&first["count"], &first["firstTimestamp"]), (&json!(2), &json!(1_767_323_045_000_i64)));
    let warnings = hub.get("/jobs/alice~job-config-6/events?type=Warning").await;
    assert_eq!(warnings["totalCount"], 2);
    let detail = hub.get("/jobs/alice~job-config-6").await;
    assert_eq!(detail["jobStatus"]["waitingReason"], "NoClusterFits: no room");
}
