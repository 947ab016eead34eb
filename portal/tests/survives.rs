//! What the portal withstands: many viewers and slow ones, nonsense of every kind, tokens that die, and markup in every text.

mod audience;

use std::{sync::Arc, time::Duration};

use axum::http::{Request, header};
use fleet_portal::{
    time::Time,
    web::{Web, router},
};
use fleet_views::{
    BindingFacts, ClaimFacts, ClusterFacts, Known, LeaseFacts, NodeGroup, PlaceFacts, QuotaFacts, Said,
    TaintFacts, TreeFacts, UnitFacts,
};
use serde_json::json;

use crate::hub::{self, Browser, Hub, many};

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % below as u64).expect("small")
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// Stands in every text of the fleet that is shown, and in what the fuzzer sends. Raw it would begin an element.
const MARK: &str = "<odd \"'&>";

const NONSENSE: [&str; 34] = [
    "",
    "x",
    "a",
    "0",
    "-1",
    "18446744073709551616",
    "NaN",
    "root/research",
    "root",
    "/",
    "//",
    "..",
    "../..",
    "%",
    "%00",
    "%2e%2e%2f",
    "%ff%fe",
    "\u{202e}",
    "ä€😀",
    "<odd \"'&>",
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    "' OR 1=1",
    "{{7*7}}",
    "${x}",
    "a&b=c",
    "a=b=c",
    "+",
    ";",
    "a/pytorchjobs.kubeflow.org/x",
    "Waiting",
    "\r\nset-cookie: a=b",
    "1e309",
    "\u{0}",
];
const NAMES: [&str; 45] = [
    "at",
    "before",
    "text",
    "state",
    "queue",
    "cluster",
    "namespace",
    "kind",
    "reason",
    "priority",
    "sort",
    "order",
    "after",
    "back",
    "page",
    "mode",
    "clone",
    "do",
    "name",
    "job",
    "yaml",
    "token",
    "form_key",
    "role0-name",
    "role0-replicas",
    "role0-gpus",
    "role0-cpu",
    "role0-memory",
    "role0-image",
    "role0-command",
    "role9999-name",
    "priorityClass",
    "odd",
    "",
    "labels",
    "role-1-name",
    "who",
    "limit",
    "dryRun",
    "join",
    "seen",
    "container",
    "previous",
    "virtual_cluster",
    "class",
];
const PATHS: [&str; 35] = [
    "/time",
    "/clusters/%3Codd%20%22'&%3E",
    "/virtual-clusters?at=1",
    "/",
    "/queues",
    "/queues/root/research",
    "/jobs",
    "/jobs/team-1/pytorchjobs.kubeflow.org/job-000001",
    "/jobs/stop",
    "/clusters",
    "/virtual-clusters",
    "/virtual-clusters/configuration",
    "/jobs/team-1/pytorchjobs.kubeflow.org/job-000001/logs/job-000001-master-0",
    "/submit",
    "/administration",
    "/api/fleet/v1",
    "/api/fleet/v1/jobs",
    "/api/fleet/v1/jobs/stop",
    "/api/fleet/v1/jobs/team-1/pytorchjobs.kubeflow.org/job-000001",
    "/api/fleet/v1/queues/root/research",
    "/api/fleet/v1/clusters/x",
    "/api/fleet/v1/openapi.json",
    "/sign-in",
    "/sign-out",
    "/assets/style.css",
    "/live",
    "/api/v2/info",
    "/api/v2/jobs",
    "/api/v2/virtual-clusters",
    "/v1/inspect",
    "/v1/inspect/clusterstatus",
    "/api/v2/users/a/jobs",
    "/api/v2/jobs/a~b/config",
    "/nothing",
    "/metrics",
];
const YAMLS: [&str; 8] = [
    "",
    "a: [",
    "a: &a [*a, *a]",
    "- - - - -",
    "kind: PyTorchJob",
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: <odd>}",
    "protocolVersion: 2\ntype: job\nname: x\ntaskRoles: {a: {instances: -1}}",
    "? !!binary x\n: !odd y",
];

/// As a client sends it that does not encode what it should: whatever a request line can hold.
fn written(dice: &mut Dice, text: &str) -> String {
    let encoded = |c: char| -> String { c.to_string().bytes().map(|b| format!("%{b:02X}")).collect() };
    let keeps = dice.roll(2) == 0;
    let fits =
        |c: char| c.is_ascii_graphic() && (keeps || c.is_ascii_alphanumeric()) && !"<>\"{}|\\^`#".contains(c);
    text.chars().map(|c| if fits(c) { c.to_string() } else { encoded(c) }).collect()
}

fn pairs(dice: &mut Dice) -> String {
    let count = dice.roll(6);
    let pair = |dice: &mut Dice| {
        let (name, value) = (dice.one(&NAMES), dice.one(&NONSENSE));
        let value =
            if dice.roll(40) == 0 { value.repeat(1 + 9000 / value.len().max(1)) } else { value.to_owned() };
        format!("{}={}", written(dice, name), written(dice, &value))
    };
    (0..count).map(|_| pair(dice)).collect::<Vec<_>>().join("&")
}

fn path(dice: &mut Dice) -> String {
    let mut path = dice.one(&PATHS).to_owned();
    for _ in 0..dice.roll(6).saturating_sub(3) {
        let more = dice.one(&NONSENSE);
        path = format!("{path}/{}", written(dice, more));
    }
    let query = pairs(dice);
    let mark = if path.contains('?') { '&' } else { '?' };
    if query.is_empty() { path } else { format!("{path}{mark}{query}") }
}

fn form(dice: &mut Dice, key: &str) -> String {
    let mut form = pairs(dice);
    if dice.roll(4) > 0 {
        form = format!("form_key={key}&{form}");
    }
    if dice.roll(4) == 0 {
        let text = dice.one(&YAMLS);
        form = format!("{form}&mode=yaml&yaml={}", written(dice, text));
    }
    form
}

fn headers(dice: &mut Dice, mut request: axum::http::request::Builder) -> axum::http::request::Builder {
    const HEADERS: [(&str, &[&str]); 9] = [
        ("accept", &["application/json", "*/*", "", "application/json;q=odd", "text/html"]),
        ("origin", &["http://portal.example.com", "null", "http://evil.example.com", "odd"]),
        ("sec-fetch-site", &["same-origin", "cross-site", "odd"]),
        (
            "content-type",
            &[
                "application/json",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "odd",
            ],
        ),
        ("authorization", &["Bearer token-r", "Bearer odd", "Basic YTpi", "odd"]),
        ("x-forwarded-proto", &["https", "odd"]),
        ("range", &["bytes=0-1", "bytes=9-1"]),
        ("if-none-match", &["*", "\"x\""]),
        ("content-length", &["3"]),
    ];
    for (name, values) in &HEADERS[..8] {
        if dice.roll(6) == 0 {
            request = request.header(*name, dice.one(values));
        }
    }
    request
}

/// A fleet in which every text holds markup.
fn odd_fleet() -> Known {
    let mut known = many(200);
    let leaf = QuotaFacts { name: "research".into(), namespaces: vec![MARK.into()], ..QuotaFacts::default() };
    let other = QuotaFacts { name: MARK.into(), min: [(MARK.to_owned(), 7)].into(), ..QuotaFacts::default() };
    let root = QuotaFacts { name: "root".into(), children: vec![leaf, other], ..QuotaFacts::default() };
    known.set_tree(TreeFacts { root: Some(root), problems: vec![MARK.into()] });
    let said = Said { reason: MARK.into(), message: MARK.into(), since_s: 7 };
    for number in 0..20 {
        let id = (MARK.to_owned(), format!("{MARK}{number}"));
        let binding = BindingFacts {
            api_version: MARK.into(),
            kind: MARK.into(),
            resource: MARK.into(),
            name: format!("{MARK}{number}"),
            is_job: true,
            clusters: if number % 2 == 0 { vec![MARK.into()] } else { Vec::new() },
            requests: [(MARK.to_owned(), 3)].into(),
            unscheduled: Some(said.clone()),
            created_s: 2_000_000_000 + number,
            user: MARK.into(),
            virtual_cluster: MARK.into(),
            ..BindingFacts::default()
        };
        let claim = ClaimFacts { cluster: MARK.into(), ..ClaimFacts::default() };
        let places = PlaceFacts { cluster: MARK.into(), id: id.clone(), nodes: [MARK.to_owned()].into() };
        known.set_places(id.clone(), Some(places));
        known.set_binding(id.clone(), Some(binding));
        let queue = format!("root/{MARK}");
        let unit = UnitFacts {
            queue,
            waits: number % 2 == 1,
            said: Some(said.clone()),
            claim: Some(claim.clone()),
            ..UnitFacts::default()
        };
        known.set_unit(id, Some(unit));
    }
    let group = NodeGroup {
        count: 2,
        gpus: 8,
        gpus_free: 1,
        names: vec![MARK.into()],
        taints: vec![MARK.into()],
        domain: MARK.into(),
        unusable: MARK.into(),
        ..NodeGroup::default()
    };
    let cluster = ClusterFacts {
        version: MARK.into(),
        region: MARK.into(),
        provider: MARK.into(),
        ready: Some(false),
        ready_said: said,
        taints: vec![TaintFacts { key: MARK.into(), value: MARK.into(), effect: MARK.into() }],
        nodes: 2,
        allocatable: [(MARK.to_owned(), 9)].into(),
        groups: vec![group],
        ..ClusterFacts::default()
    };
    known.set_cluster(MARK, Some(cluster));
    known.set_lease(MARK, Some(LeaseFacts { declared_lost: true, ..LeaseFacts::default() }));
    known
}

#[tokio::test]
async fn markup_in_every_name_and_message_is_text() {
    let hub = Hub::that_knows(odd_fleet()).await;
    let mut root = hub.sign_in("token-r").await;
    let odd = "%3Codd%20%22%27%26%3E";
    let mut seen = 0;
    for path in [
        "/",
        "/queues",
        &format!("/queues/root/{odd}"),
        "/jobs",
        &format!("/jobs?text={odd}&queue={odd}"),
        "/clusters",
    ] {
        let answer = hub.get(&mut root, path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.contains("<odd"), "{path}: {}", answer.body);
        // Neither does it end an attribute.
        assert!(!answer.body.contains("&lt;odd \""), "{path}: {}", answer.body);
        seen += answer.body.matches("&lt;odd ").count();
    }
    assert!(seen > 100, "the marks are on the pages: {seen}");
}

/// A log in which every text holds markup.
fn odd_log() -> tempfile::NamedTempFile {
    let name = format!("{MARK}/{MARK}");
    let lines = [
        json!({"t": 0, "event": "Cluster", "cluster": MARK, "facts": {"ready": true, "region": MARK, "nodes": 1,
            "groups": [{"count": 1, "gpus": 8, "gpus_free": 8, "names": [MARK], "domain": MARK, "taints": [MARK]}]}}),
        json!({"t": 0, "event": "Tree", "root": {"name": "root", "children": [{"name": MARK, "namespaces": [MARK]}]}, "problems": [MARK]}),
        json!({"t": 0, "event": "VirtualCluster", "virtual_cluster": MARK, "facts": {"name": MARK, "gpu": MARK, "guaranteed": 8}}),
        json!({"t": 1, "event": "Submitted", "job": name, "kind": MARK, "gpus": 8, "components": {MARK: 1}, "priority": 0}),
        json!({"t": 1, "event": "Queued", "job": name, "queue": format!("root/{MARK}"), "reason": MARK, "message": MARK}),
        json!({"t": 2, "event": "Bound", "job": name, "cluster": MARK, "epoch": 1}),
        json!({"t": 2, "event": "Started", "job": name, "cluster": MARK, "epoch": 1, "nodes": {MARK: [MARK]}}),
        json!({"t": 3, "event": "Evicted", "job": name, "cluster": MARK, "epoch": 1, "reason": MARK, "message": MARK}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("a log");
    file
}

/// 10,000 requests that nobody would write: none fells the portal, none is answered with an error of the server's own, and
/// none has its markup back as markup.
#[tokio::test]
async fn no_request_fells_it() {
    const REQUESTS: usize = 10_000;
    let mut hub = Hub::that_knows(odd_fleet()).await;
    let log = odd_log();
    let web = Web::new(hub.board.clone(), hub.web.hub.clone(), "the hub".into(), "a".into());
    hub.web = Arc::new(web.recorded_by(Arc::new(Time::open(log.path()).expect("a log"))));
    hub.pages = router(hub.web.clone());
    let mut signed_in = hub.sign_in("token-r").await;
    let mut dice = Dice(7);
    let mut by_status = std::collections::BTreeMap::<u16, usize>::new();
    let (mut number, mut recorded, mut streams) = (0, 0, 0);
    // What no request line can say is not sent, and does not count.
    while streams + by_status.values().sum::<usize>() < REQUESTS {
        number += 1;
        if number % 100 == 1 {
            // A fuzzer signs out, too.
            signed_in = hub.sign_in("token-r").await;
        }
        let method =
            ["GET", "GET", "GET", "GET", "GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "ODD"]
                [dice.roll(12)];
        let path = path(&mut dice);
        let body = if method == "POST" { form(&mut dice, &signed_in.form_key) } else { String::new() };
        let builder = headers(&mut dice, Request::builder().method(method).uri(&path));
        let told = format!("{number}: {method} {path} {body:?}");
        let mut browser = if dice.roll(8) == 0 { Browser::default() } else { signed_in.clone() };
        if path.starts_with("/live") {
            // An answer that does not end; its beginning is enough.
            let request = builder.header(header::COOKIE, browser.cookie()).body(axum::body::Body::empty());
            let Ok(request) = request else { continue };
            let answer = tower::ServiceExt::oneshot(hub.pages.clone(), request).await.expect("an answer");
            assert!(answer.status().as_u16() < 500, "{told}: {}", answer.status());
            streams += 1;
            continue;
        }
        let Ok(builder) = builder.body(()).map(|request| request.into_parts().0) else {
            // No request line can say this.
            continue;
        };
        let mut request = Request::builder().method(builder.method).uri(builder.uri);
        for (name, value) in &builder.headers {
            request = request.header(name, value);
        }
        let answer = hub.send(&mut browser, request, &body).await;
        *by_status.entry(answer.status).or_default() += 1;
        recorded += usize::from(answer.body.contains("<b>Recording</b>"));
        assert!(answer.status < 500, "{told}: {} {}", answer.status, answer.body);
        let kind =
            answer.headers.get(header::CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or_default());
        if kind.starts_with("text/html") {
            assert!(
                !answer.body.contains("<odd") && !answer.body.contains("<script>"),
                "{told}: {}",
                answer.body
            );
            assert!(answer.headers.contains_key(header::CONTENT_SECURITY_POLICY), "{told}");
        }
        assert!(!answer.headers.get_all(header::SET_COOKIE).iter().any(|cookie| cookie == "a=b"), "{told}");
        if let Some(place) = answer.headers.get(header::LOCATION).and_then(|place| place.to_str().ok()) {
            assert!(place.starts_with('/') && !place.starts_with("//"), "{told}: sent to {place}");
        }
    }
    println!(
        "answers by status: {by_status:?}, {recorded} of them from the log; {streams} streams; {number} tried"
    );
    assert!(recorded > 100, "{recorded}");
    assert!(by_status.get(&200).is_some_and(|count| *count > 1_000), "{by_status:?}");
    assert!(by_status.keys().any(|status| (400..500).contains(status)), "{by_status:?}");
}

/// A token that dies while its session lasts ends the session; what has been shown is not shown again.
#[tokio::test]
async fn a_token_that_dies_ends_its_session() {
    let hub = Hub::that_knows(many(3)).await;
    hub.create("/api/v1/namespaces", json!({"metadata": {"name": "a"}})).await;
    hub.create("/api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = hub.create("/api/v1/namespaces/a/serviceaccounts/robot/token", asked).await;
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    let mut robot = hub.sign_in(&token).await;
    assert_eq!(hub.get(&mut robot, "/jobs").await.status, 200);
    let request =
        Request::delete("/api/v1/namespaces/a/serviceaccounts/robot").body(Vec::new()).expect("a request");
    let _: serde_json::Value = hub.admin.request(request).await.expect("a deletion");
    // What the hub said of rights is believed for 30 s.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let answer = hub.get(&mut robot, "/jobs").await;
    assert_eq!((answer.status, hub::location(&answer)), (303, "/sign-in?back=%2Fjobs"));
    // It cannot be had back by signing in with it.
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    let answer = hub.post(&mut browser, "/sign-in", &format!("token={token}")).await;
    assert_eq!(answer.status, 401);
    for forged in ["x.y.z", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.", &token.replace('.', "..")] {
        hub.get(&mut browser, "/sign-in").await;
        let answer = hub.post(&mut browser, "/sign-in", &format!("token={forged}")).await;
        assert_eq!(answer.status, 401, "{forged}");
    }
}
