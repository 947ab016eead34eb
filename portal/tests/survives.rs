//! What the portal withstands: many viewers and slow ones, nonsense of every kind, tokens that die, and markup in every text.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{Request, header};
use fleet_metrics::Exposed;
use fleet_portal::{
    time::Time,
    web::{Web, router, serve},
};
use fleet_views::{
    BindingFacts, ClaimFacts, ClusterFacts, Known, LeaseFacts, NodeGroup, PlaceFacts, QuotaFacts, Said,
    TaintFacts, TreeFacts, UnitFacts,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use crate::hub::{self, Browser, Hub, many};

/// Processor time of a thread, in milliseconds.
fn cpu_ms(thread: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).expect("a thread");
    let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds");
    ns / 1e6
}

/// A portal on a socket, in a thread of its own, whose jobs change all the time.
struct Served {
    address: std::net::SocketAddr,
    thread: String,
    web: Arc<fleet_portal::web::Web>,
    cookies: Vec<String>,
    ends: Arc<AtomicBool>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

const CHANGES: Duration = Duration::from_millis(50);

async fn served(jobs: usize, sessions: usize) -> Served {
    let (send, receive) = oneshot::channel();
    let ends = Arc::new(AtomicBool::new(false));
    let over = ends.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let hub = Hub::that_knows(many(jobs)).await;
            let mut cookies = Vec::new();
            for _ in 0..sessions {
                cookies.push(hub.sign_in("token-r").await.cookie());
            }
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let link = std::fs::read_link("/proc/thread-self").expect("a thread");
            let told = Served {
                address: listener.local_addr().expect("an address"),
                thread: link.display().to_string(),
                web: hub.web.clone(),
                cookies,
                ends: over.clone(),
            };
            send.send(told).ok().expect("somebody waits");
            tokio::spawn(serve(listener, hub.web.clone(), std::future::pending()));
            let mut at = 1_000_000;
            while !over.load(Ordering::Relaxed) {
                // The newest job, which stands first in the list.
                hub.board.change(|known| {
                    let id = (format!("team-{}", (jobs - 1) % 50), format!("job-{:06}-pytorchjob", jobs - 1));
                    let mut binding = known.job(&id).expect("a job").binding.clone();
                    at += 1;
                    binding.created_s = at;
                    known.set_binding(id, Some(binding));
                });
                tokio::time::sleep(CHANGES).await;
            }
        });
    });
    receive.await.expect("a portal")
}

impl Served {
    async fn view(&self, number: usize, page: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let cookie = &self.cookies[number % self.cookies.len()];
        let request = format!("GET /live?page={page} HTTP/1.1\r\nhost: portal\r\ncookie: {cookie}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        stream
    }

    fn count(&self, name: &str) -> f64 {
        let mut text = String::new();
        self.web.metrics.write(&mut text);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} in {text}"))
    }
}

/// Reads and forgets, and counts changes of the page.
async fn read(mut stream: TcpStream, changes: Arc<AtomicUsize>) {
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let frames = buffer[..count].windows(7).filter(|window| window == b"event: ").count();
        changes.fetch_add(frames, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Cost {
    ms: f64,
    drawings: f64,
    sent: f64,
    seen: usize,
}

/// What `viewers` cost in so many seconds.
async fn cost(served: &Served, viewers: usize, page: &str, lasts: Duration) -> Cost {
    let seen = Arc::new(AtomicUsize::new(0));
    let mut reading = tokio::task::JoinSet::new();
    for number in 0..viewers {
        reading.spawn(read(served.view(number, page).await, seen.clone()));
    }
    let first = tokio::time::timeout(Duration::from_secs(60), async {
        // Twice: the whole page, which has been read then, and a change of it.
        while seen.load(Ordering::Relaxed) < 2 * viewers {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    first.await.expect("each viewer sees the page");
    let counts =
        || (served.count("fleet_portal_drawings_total"), served.count("fleet_portal_fragments_total"));
    let (before, began, at) = (counts(), cpu_ms(&served.thread), seen.load(Ordering::Relaxed));
    tokio::time::sleep(lasts).await;
    let (after, ended) = (counts(), cpu_ms(&served.thread));
    Cost {
        ms: ended - began,
        drawings: after.0 - before.0,
        sent: after.1 - before.1,
        seen: seen.load(Ordering::Relaxed) - at,
    }
}

/// The aim is 2, and 1.4 to 1.8 were measured. Unoptimized, the layers of 200 connections weigh more beside a page.
const MOST_TIMES: f64 = if cfg!(debug_assertions) { 2.5 } else { 2.0 };

/// How many times as much processor time the many cost as the one, measured again where it seems too much.
async fn cheapest(served: &Served, page: &str, (one, many): (&Cost, &Cost), lasts: Duration) -> f64 {
    let mut lowest = many.ms / one.ms;
    for _ in 0..2 {
        if lowest < MOST_TIMES {
            break;
        }
        let one = cost(served, 1, page, lasts).await;
        let many = cost(served, 200, page, lasts).await;
        lowest = lowest.min(many.ms / one.ms);
    }
    lowest
}

/// What is made and sent is counted, and the processor time of it compared and printed as a table.
#[tokio::test]
async fn what_200_viewers_see_is_made_once() {
    const LASTS: Duration = Duration::from_secs(5);
    // A page a second, and one that began before.
    let most = LASTS.as_secs_f64() + 1.0;
    let served = served(20_000, 200).await;
    for page in ["/", "/jobs", "/jobs?state=Waiting"] {
        let nobody = cost(&served, 0, page, LASTS).await;
        let one = cost(&served, 1, page, LASTS).await;
        let many = cost(&served, 200, page, LASTS).await;
        let ratio = cheapest(&served, page, (&one, &many), LASTS).await;
        println!(
            "| `{page}` | {:.0} ms | {:.0} ms | {:.0} ms | {:.1} | pages made {}, {} and {}; sent {} and {}",
            nobody.ms,
            one.ms,
            many.ms,
            ratio,
            nobody.drawings,
            one.drawings,
            many.drawings,
            one.sent,
            many.sent
        );
        assert!(one.drawings >= 3.0 && one.drawings <= most, "{one:?}");
        assert!(many.drawings >= 3.0 && many.drawings <= most, "as many as for one viewer: {one:?} {many:?}");
        assert!(many.sent >= 100.0 * one.sent && many.seen >= 100, "{one:?} {many:?}");
        // Of processor time, and the lowest of three: what else runs here costs the caches of both.
        assert!(ratio < MOST_TIMES, "{page}: 200 viewers cost {ratio} times as much as one");
        // Its last viewer may still be there when the count begins.
        assert!(nobody.drawings <= 1.0, "what nobody looks at is not drawn: {nobody:?}");
    }
}

/// A browser that takes in nothing costs a connection, and nobody else waits for it.
#[tokio::test]
async fn a_viewer_that_never_reads_holds_up_nobody() {
    let served = served(5_000, 3).await;
    let mut slow = Vec::new();
    for number in 0..50 {
        slow.push(served.view(number, "/jobs").await);
    }
    let one = cost(&served, 1, "/jobs", Duration::from_secs(4)).await;
    assert!(one.seen >= 3, "a viewer that reads goes on: {one:?}");
    // What nobody takes in is not made either: the system's buffers are full, and nothing is kept for later.
    let before = served.count("fleet_portal_fragments_total");
    let second = cost(&served, 0, "/jobs", Duration::from_secs(4)).await;
    let after = served.count("fleet_portal_fragments_total");
    println!("50 viewers that read nothing: {:.0} ms in 4 s; sent meanwhile {}", second.ms, after - before);
    assert!(served.count("fleet_portal_viewers") >= 50.0);
    drop(slow);
    let gone = tokio::time::timeout(Duration::from_secs(40), async {
        while served.count("fleet_portal_viewers") > 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    gone.await.expect("viewers that have gone cost nothing any more");
}

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
