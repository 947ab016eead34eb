//! The pages against an embedded hub that asks who may do what.

mod cells;
mod submit;

use std::time::Duration;

use axum::{
    body::Body,
    http::{Request, header},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::hub::{Browser, Hub, JOBS, ODD, location, many};

const PAGES: [&str; 7] =
    ["/", "/queues", "/jobs", "/clusters", "/virtual-clusters", "/submit", "/administration"];

#[tokio::test]
async fn nobody_sees_anything_before_signing_in() {
    let hub = Hub::start().await;
    hub.job("a", "secret-job", "waits").await;
    for path in PAGES.iter().chain(&["/jobs/a/pytorchjobs.kubeflow.org/secret-job", "/jobs?text=x"]) {
        let answer = hub.get(&mut Browser::default(), path).await;
        assert_eq!(answer.status, 303, "{path}");
        assert!(location(&answer).starts_with("/sign-in"), "{path}");
        assert!(answer.body.is_empty());
    }
    assert_eq!(hub.get(&mut Browser::default(), "/live?page=/").await.status, 401);
    let invented =
        &mut Browser { cookies: vec![("fleet-session".into(), "x".repeat(64))], ..Browser::default() };
    assert_eq!(hub.get(invented, "/jobs").await.status, 303);
    // The address is kept for afterwards, but nobody is sent to another site.
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    let answer = hub.post(&mut browser, "/sign-in", "token=token-a&back=/jobs%3Ftext%3Dx").await;
    assert_eq!(location(&answer), "/jobs?text=x");
    let cookie = answer.headers[header::SET_COOKIE].to_str().expect("text");
    assert!(cookie.contains("HttpOnly; SameSite=Strict; Max-Age="), "{cookie}");
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    let answer = hub.post(&mut browser, "/sign-in", "token=token-a&back=//evil.example.com").await;
    assert_eq!(location(&answer), "/");
}

#[tokio::test]
async fn a_wrong_token_or_form_opens_nothing() {
    let hub = Hub::start().await;
    for token in ["nonsense", "", "a%20b", "%0d%0a"] {
        let mut browser = Browser::default();
        hub.get(&mut browser, "/sign-in").await;
        let answer = hub.post(&mut browser, "/sign-in", &format!("token={token}")).await;
        assert_eq!(answer.status, 401, "{token}");
        assert!(
            answer.body.contains("role=\"alert\"") && !browser.cookie().contains("fleet-session"),
            "{token}"
        );
    }
    // A form of another site does not have the cookie's key.
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    browser.form_key = "other".into();
    assert_eq!(hub.post(&mut browser, "/sign-in", "token=token-a").await.status, 403);
}

#[tokio::test]
async fn each_user_sees_and_stops_what_the_hub_lets_him() {
    let hub = Hub::start().await;
    hub.job("a", "of-alice", "waits in a").await;
    hub.job("b", "of-bob", "waits in b").await;
    let (mut alice, mut bob, mut root) =
        (hub.sign_in("token-a").await, hub.sign_in("token-b").await, hub.sign_in("token-r").await);
    for path in ["/", "/jobs", "/jobs?namespace=b", "/clusters", "/queues"] {
        let seen = hub.get(&mut alice, path).await.body;
        assert!(!seen.contains("of-bob") && !seen.contains("waits in b"), "{path}: {seen}");
    }
    let seen = hub.get(&mut alice, "/jobs").await.body;
    assert!(seen.contains("of-alice") && seen.contains("waits in a"), "{seen}");
    let seen = hub.get(&mut root, "/jobs").await.body;
    assert!(seen.contains("of-alice") && seen.contains("of-bob"));
    // For programs the same.
    let request = Request::get("/jobs").header(header::ACCEPT, "application/json");
    let answer = hub.send(&mut bob, request, "").await;
    let value: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!((value["total"].as_i64(), &value["rows"][0]["name"]), (Some(1), &json!("of-bob")));

    let of_bob = "/jobs/b/pytorchjobs.kubeflow.org/of-bob";
    assert_eq!(hub.get(&mut alice, of_bob).await.status, 404);
    assert_eq!(hub.get(&mut bob, of_bob).await.status, 200);
    assert!(hub.get(&mut root, "/clusters").await.body.contains("No clusters"));

    let stop = |job: &str| format!("job={}&back=/jobs", job.trim_start_matches("/jobs/"));
    let answer = hub.post(&mut alice, "/jobs/stop", &stop(of_bob)).await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    let job = format!("{}/of-bob", JOBS.replace("NS", "b"));
    let annotations = |job: &Value| job["metadata"]["annotations"]["fleet.dev/stop"].clone();
    assert_eq!(annotations(&hub.object(&job).await.expect("a job")), Value::Null);
    hub.get(&mut bob, of_bob).await;
    let answer = hub.post(&mut bob, "/jobs/stop", &stop(of_bob)).await;
    assert_eq!((answer.status, location(&answer)), (303, "/jobs"));
    assert_eq!(annotations(&hub.object(&job).await.expect("a job")), "true");
    assert!(hub.get(&mut bob, of_bob).await.body.contains("it is being stopped"));
}

/// A tenant has no right to list trees or clusters: he sees the queue of his namespace and the whole sentence of a wait, and
/// nothing of others.
#[tokio::test]
async fn a_tenant_sees_his_queue_and_why_he_waits() {
    let hub = Hub::start().await;
    let leaf = |name: &str, namespace: &str| json!({"name": name, "namespaces": [namespace], "max": {"nvidia.com/gpu": "8"}});
    let tree = json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"},
        "spec": {"root": {"name": "root", "children": [leaf("research", "a"), leaf("of-bob-alone", "b")]}}});
    hub.create("/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees", tree).await;
    hub.until(|known| known.tree().root.is_some()).await;
    let mut alice = hub.sign_in("token-a").await;
    // Before the first job of the namespace, too.
    for path in ["/queues", "/", "/queues/root", "/queues/root/research"] {
        let seen = hub.get(&mut alice, path).await;
        assert!(seen.status == 200 && seen.body.contains("research"), "{path}: {}", seen.body);
        assert!(!seen.body.contains("of-bob-alone"), "{path}: {}", seen.body);
    }
    assert!(hub.get(&mut alice, "/queues").await.body.contains("only queues of namespaces that you may see"));
    assert_eq!(hub.get(&mut alice, "/queues/root/of-bob-alone").await.status, 404);
    let whole = "0 of 2 clusters can hold the whole job now: east: 1 of 2 pods fits; west: not ready";
    hub.job("a", "x", whole).await;
    let page = "/jobs/a/pytorchjobs.kubeflow.org/x";
    let seen = hub.get(&mut alice, page).await.body;
    assert_eq!(seen.matches("east: 1 of 2 pods fits").count(), 1, "{seen}");
    // Who may list clusters has a table of them instead.
    let seen = hub.get(&mut hub.sign_in("token-r").await, page).await.body;
    assert!(seen.contains("0 of 2 clusters can hold") && !seen.contains("east: 1 of 2 pods fits"), "{seen}");
    let ask = async |path: &str| {
        let request = Request::get(path).header(header::AUTHORIZATION, "Bearer token-a");
        let answer = hub.send(&mut Browser::default(), request, "").await;
        (answer.status, answer.body)
    };
    let (status, body) = ask("/api/fleet/v1/queues").await;
    assert!(status == 200 && body.contains("root/research") && !body.contains("of-bob-alone"), "{body}");
    assert_eq!(ask("/api/fleet/v1/queues/root/of-bob-alone").await.0, 404);
}

#[tokio::test]
async fn a_right_given_or_taken_shows() {
    let hub = Hub::start().await;
    hub.job("b", "of-bob", "waits in b").await;
    let mut alice = hub.sign_in("token-a").await;
    assert!(!hub.get(&mut alice, "/jobs").await.body.contains("of-bob"));
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings";
    hub.create(
        path,
        json!({"metadata": {"name": "guest"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]}),
    )
    .await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert!(hub.get(&mut alice, "/jobs").await.body.contains("of-bob"));
}

#[tokio::test]
async fn writes_of_other_sites_are_refused() {
    let hub = Hub::start().await;
    hub.job("a", "x", "waits").await;
    let mut alice = hub.sign_in("token-a").await;
    let body = format!("form_key={}&job=a/pytorchjobs.kubeflow.org/x", alice.form_key);
    for path in ["/jobs/stop", "/submit", "/virtual-clusters/configuration", "/sign-out", "/sign-in"] {
        for (name, value) in
            [("origin", "http://evil.example.com"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            let request = Request::post(path).header(name, value);
            assert_eq!(hub.send(&mut alice, request, &body).await.status, 403, "{path} {name}");
        }
        if path != "/sign-in" {
            for key in ["form_key=", "form_key=x&", ""] {
                let request = Request::post(path).header(header::ORIGIN, "http://portal.example.com");
                let answer =
                    hub.send(&mut alice, request, &format!("{key}&job=a/pytorchjobs.kubeflow.org/x")).await;
                assert_eq!(answer.status, 403, "{path} {key}");
            }
        }
    }
    let job = hub.object(&format!("{}/x", JOBS.replace("NS", "a"))).await.expect("a job");
    assert_eq!(job["metadata"]["annotations"], Value::Null);
    // Still signed in; signing out ends the session, not only the cookie.
    assert_eq!(hub.get(&mut alice, "/").await.status, 200);
    let kept = alice.clone();
    assert_eq!(hub.post(&mut alice, "/sign-out", "").await.status, 303);
    assert_eq!(hub.get(&mut kept.clone(), "/").await.status, 303);
}

#[tokio::test]
async fn markup_in_what_others_write_is_text() {
    let hub = Hub::start().await;
    let message = format!("\"'{ODD}<img src=x onerror=alert(2)>");
    hub.job("a", "x", &message).await;
    hub.create("/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees", json!({
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"}, "spec": {"root": {"name": "root", "children": [{"name": ODD, "namespaces": ["a"]}]}}})).await;
    hub.until(|known| known.tree().root.is_some()).await;
    let mut root = hub.sign_in("token-r").await;
    let odd = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let mut paths: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    paths.push("/jobs/a/pytorchjobs.kubeflow.org/x".into());
    for name in ["text", "queue", "cluster", "namespace", "kind", "reason", "sort", "after", "state"] {
        paths.push(format!("/jobs?{name}={odd}"));
    }
    paths.extend([
        format!("/queues/root/{odd}"),
        format!("/{odd}"),
        format!("/jobs/a/b/{odd}"),
        format!("/submit?clone={odd}"),
    ]);
    for path in &paths {
        let answer = hub.get(&mut root, path).await;
        assert!(!answer.body.contains(ODD) && !answer.body.contains("<img"), "{path}: {}", answer.body);
        assert!(!answer.body.contains(" style=") && !answer.body.contains("<style"), "{path}");
        assert_eq!(answer.body.matches("<script").count(), 1, "{path}");
        let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
    assert!(hub.get(&mut root, "/jobs").await.body.contains("&lt;script&gt;alert(1)"));
    assert!(hub.get(&mut root, "/queues").await.body.contains("&lt;script&gt;alert(1)"));
    let mut browser = Browser::default();
    let answer = hub.get(&mut browser, &format!("/sign-in?back=/{odd}%22")).await;
    assert!(!answer.body.contains(ODD) && answer.body.contains("&quot;"), "{}", answer.body);
}

/// A log is of a job that its reader may see; of another one nothing is said, not even that it is there.
#[tokio::test]
async fn logs_of_others_are_not_read() {
    let hub = Hub::start().await;
    hub.job("b", "of-bob", "waits in b").await;
    let (mut alice, mut bob) = (hub.sign_in("token-a").await, hub.sign_in("token-b").await);
    let log = "/jobs/b/pytorchjobs.kubeflow.org/of-bob/logs/of-bob-master-0";
    for browser in [&mut alice, &mut bob] {
        let answer = hub.get(browser, log).await;
        assert!(
            answer.status == 404 && answer.body.contains("There is no such job that you may see"),
            "{}",
            answer.body
        );
    }
    for odd in ["..", "A", "a%2Fb", "a%3Fcontainer=x"] {
        let path = format!("/jobs/b/pytorchjobs.kubeflow.org/of-bob/logs/{odd}");
        let answer = hub.get(&mut bob, &path).await;
        assert!(answer.status == 404 && !answer.body.contains("Log of"), "{path}: {}", answer.body);
    }
    let answer = hub.get(&mut Browser::default(), log).await;
    assert_eq!(answer.status, 303);
}

/// Tools are answered, not sent to the sign-in page.
#[tokio::test]
async fn the_apis_stand_beside_the_pages() {
    let hub = Hub::start().await;
    for (path, wanted) in [
        ("/api/v2/info", 200),
        ("/api/v2/virtual-clusters", 401),
        ("/v1/inspect", 200),
        ("/v1/inspect/", 200),
        ("/v1/inspect/clusterstatus", 401),
        ("/api/v2/jobs/a~b", 401),
        ("/api/v2/jobs/a~b/config", 401),
        ("/api/v2/jobs/a~b/nothing", 404),
    ] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = hub.pages.clone().oneshot(request).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), wanted, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json", "{path}");
    }
}

#[tokio::test]
async fn a_page_follows_its_job_and_ends_with_the_session() {
    let hub = Hub::start().await;
    hub.job("a", "x", "the first sentence").await;
    let mut alice = hub.sign_in("token-a").await;
    let request = Request::get("/live?page=/jobs").header(header::COOKIE, alice.cookie());
    let answer =
        hub.pages.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut events = answer.into_body();
    let mut read = async |wanted: &str| {
        let mut seen = String::new();
        let reading = tokio::time::timeout(Duration::from_secs(20), async {
            while !seen.contains(wanted) {
                let frame = events.frame().await.expect("a frame").expect("no error");
                seen.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
            }
        });
        reading.await.unwrap_or_else(|_| panic!("{wanted:?} in {seen}"));
        seen
    };
    let first = read("the first sentence").await;
    assert!(first.starts_with("event: page"), "{first}");
    hub.job("b", "of-bob", "nothing of alice's").await;
    hub.job("a", "y", "the second sentence").await;
    let second = read("the second sentence").await;
    assert!(!second.contains("of-bob"), "{second}");
    // A page on which nothing changes: the connection is used all the same, or a proxy would close it.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(16)).await;
    tokio::time::resume();
    let quiet = read(":\n\n").await;
    assert!(!quiet.contains("event: over"), "{quiet}");
    hub.post(&mut alice, "/sign-out", "").await;
    // At once, and not when the page changes or the connection is used next.
    tokio::time::timeout(Duration::from_secs(5), read("event: over")).await.expect("the page ends");
}

/// Processor time of this thread, which serves the page, in milliseconds.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a thread");
    let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds");
    ns / 1e6
}

/// Where a page says that the next one is.
fn next_page(body: &str) -> Option<String> {
    let rest = body.split("rel=\"next\" href=\"").nth(1)?;
    Some(rest.split('"').next()?.replace("&amp;", "&"))
}

/// A page of a queue costs by its rows, not by those who wait: with a tenth of them the same rows at about the same cost.
#[tokio::test]
async fn a_page_of_a_queue_costs_by_its_rows() {
    const ROWS: usize = 200;
    let mut costs = Vec::new();
    for jobs in [5_000, 50_000] {
        let hub = Hub::that_knows(many(jobs)).await;
        let mut root = hub.sign_in("token-r").await;
        let mut path = "/queues/root/research".to_owned();
        let mut found = Vec::new();
        for page in 0..5 {
            let (began, clock) = (cpu_ms(), std::time::Instant::now());
            let answer = hub.get(&mut root, &path).await;
            let (cpu, wall) = (cpu_ms() - began, clock.elapsed());
            let (bytes, rows) = (answer.body.len(), answer.body.matches("<tr>").count() - 1);
            println!(
                "{jobs} wait, page {page}: {rows} rows, {bytes} bytes, {cpu:.0} ms of processor time, answered in {wall:?}"
            );
            assert_eq!((answer.status, rows), (200, ROWS), "{path}");
            assert!(bytes < 300_000, "{path}: {bytes} bytes");
            found.push(cpu);
            path = next_page(&answer.body).expect("a next page");
        }
        found.sort_by(f64::total_cmp);
        costs.push(found[0]);
    }
    // The whole page, not its first byte alone, and not optimised.
    assert!(costs[1] < 100.0, "{costs:?}");
    assert!(costs[1] < 3.0 * costs[0] + 5.0, "ten times as many wait: {costs:?}");
}

#[tokio::test]
async fn a_line_of_50000_jobs_is_read_page_by_page() {
    let hub = Hub::that_knows(many(50_000)).await;
    let mut root = hub.sign_in("token-r").await;
    let mut pages = vec![
        "/queues/root/research".to_owned(),
        "/jobs".to_owned(),
        "/jobs?text=job-0499".to_owned(),
        "/".to_owned(),
    ];
    let mut positions = 0;
    while let Some(path) = pages.pop() {
        let began = std::time::Instant::now();
        let answer = hub.get(&mut root, &path).await;
        println!("{path}: {} KiB in {:?}", answer.body.len() / 1024, began.elapsed());
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() < 300_000, "{path}: {} bytes", answer.body.len());
        if path.starts_with("/queues/") {
            positions += answer.body.matches("<td class=\"number\">").count() / 2;
            if positions < 1000 {
                pages.push(next_page(&answer.body).expect("a next page"));
            }
        }
    }
    assert_eq!(positions, 1000);
}

/// Pages say it and show what was known, programs are told, and all goes on by itself when the hub is back.
#[tokio::test]
async fn a_hub_that_goes_away_comes_back() {
    let hub = Hub::start().await;
    hub.job("a", "before", "waits").await;
    let mut alice = hub.sign_in("token-a").await;
    let me = async |hub: &Hub, token: &str| {
        let request = Request::get("/api/fleet/v1").header(header::AUTHORIZATION, format!("Bearer {token}"));
        let answer = hub.send(&mut Browser::default(), request, "").await;
        (answer.status, serde_json::from_str::<serde_json::Value>(&answer.body).expect("JSON"))
    };
    assert_eq!(me(&hub, "token-a").await.1["hub"]["isUp"], true);
    let mut until = async |hub: &Hub, is_away: bool| {
        let seen = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                let page = hub.get(&mut alice, "/jobs").await;
                if page.status == 200 && page.body.contains("The hub has not answered for") == is_away {
                    return page.body;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("a page that says away: {is_away}"))
    };
    hub.set_away(true);
    assert!(until(&hub, true).await.contains("before"));
    let (status, told) = me(&hub, "token-a").await;
    assert_eq!((status, &told["hub"]["isUp"]), (200, &json!(false)), "{told}");
    assert!(told["hub"]["awaySinceS"].is_i64(), "{told}");
    // Whom it has not heard of it cannot ask about.
    let (status, told) = me(&hub, "token-b").await;
    assert_eq!((status, &told["reason"]), (503, &json!("Unavailable")), "{told}");
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    assert_eq!(hub.post(&mut browser, "/sign-in", "token=token-b").await.status, 503);
    hub.set_away(false);
    until(&hub, false).await;
    hub.job("a", "after", "waits").await;
    assert!(until(&hub, false).await.contains("after"));
    assert_eq!(me(&hub, "token-b").await.0, 200);
}
