//! A server killed with SIGKILL at random moments under load: every write it acknowledged is there afterwards, and what it
//! did not acknowledge is there whole or not at all.
//!
//! The server is this test program once more. `FLEET_KILL_ROUNDS` (10) says how often it is killed.

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::api::Api;

/// Directory of the store, for the copy of this program that serves it.
const SERVE: &str = "FLEET_KILL_SERVE";
const WRITERS: u64 = 6;
/// Objects of each writer.
const OBJECTS: u64 = 8;
/// How long a server is left alone under load, in milliseconds.
const UNDER_LOAD_MS: std::ops::Range<u64> = 5..400;
/// How long one is left that is killed while it starts.
const STARTING_MS: std::ops::Range<u64> = 1..60;
/// Namespaces made in each life at most; each is several objects in one commit.
const NAMESPACES: u64 = 3;

fn random(range: std::ops::Range<u64>) -> u64 {
    range.start + uuid::Uuid::new_v4().as_u128() as u64 % (range.end - range.start)
}

/// Not a test of its own: the server that [`killed_at_random_it_keeps_what_it_acknowledged`] kills.
#[test]
fn server_to_be_killed() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config { data_dir: Some(dir.into()), access: Access::Rbac, ..Config::default() };
        let api = ApiServer::open(config).await.expect("opens after a kill");
        let served = api.serve(ServeOptions::default()).await.expect("listens");
        let door = json!([format!("https://{}", served.local_addr()), api.admin_token(), served.ca_pem()]);
        println!("\nREADY {door}");
        // Ends with its parent.
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.ok();
    });
}

struct Life(Child);

impl Life {
    fn begin(dir: &Path) -> Life {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "kill::server_to_be_killed", "--nocapture"]).env(SERVE, dir);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Life(child.expect("starts"))
    }

    fn ready(&mut self) -> Api {
        let lines = BufReader::new(self.0.stdout.as_mut().expect("piped")).lines();
        for line in lines.map_while(Result::ok) {
            if let Some(door) = line.strip_prefix("READY ") {
                let [url, token, ca]: [String; 3] = serde_json::from_str(door).expect("a door");
                return Api::at(&url, Some(token), Some(ca));
            }
        }
        panic!("the server ended before it was ready");
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("gone");
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is known of an object.
#[derive(Clone, Default)]
struct Known {
    /// Its acknowledged number; None when it is not there.
    acked: Option<u64>,
    /// What was asked for last and not answered.
    pending: Option<Option<u64>>,
    /// Newest number ever asked for.
    number: u64,
}

type Model = BTreeMap<String, Known>;

/// A map whose every part follows from its name and number.
fn map(name: &str, n: u64) -> Value {
    let pad = format!("{name}/{n} ").repeat(1 + (n * 7919 % 900) as usize);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"n": n.to_string()}},
        "data": {"n": n.to_string(), "pad": pad}})
}

/// Writes until the server is gone; returns what it knows then, and the greatest revision it was shown.
async fn write(api: Api, me: u64, mut model: Model) -> (Model, u64) {
    let mut newest = 0;
    loop {
        let name = format!("w{me}-{}", random(0..OBJECTS));
        let known = model.entry(name.clone()).or_default();
        let (path, item) = (api.core("configmaps"), format!("{}/{name}", api.core("configmaps")));
        let n = known.number + 1;
        let (ask, answer) = match (known.acked, random(0..8)) {
            (Some(_), 0) => {
                known.pending = Some(None);
                (None, api.attempt("DELETE", &item, "application/json", Value::Null).await)
            }
            (Some(_), 1..=3) => {
                known.pending = Some(Some(n));
                (Some(n), api.attempt("PUT", &item, "application/json", map(&name, n)).await)
            }
            (Some(_), _) => {
                known.pending = Some(Some(n));
                (Some(n), api.attempt("PATCH", &item, "application/merge-patch+json", map(&name, n)).await)
            }
            (None, _) => {
                known.pending = Some(Some(n));
                (Some(n), api.attempt("POST", &path, "application/json", map(&name, n)).await)
            }
        };
        known.number = ask.unwrap_or(known.number);
        let Some(answer) = answer else { return (model, newest) };
        if answer.code >= 300 {
            // A request that came in while the server was going away.
            assert!(answer.code == 503, "{}", answer.text);
            return (model, newest);
        }
        (known.acked, known.pending) = (ask, None);
        newest = newest.max(answer.rv().parse().unwrap_or(0));
    }
}

/// Makes namespaces until the server is gone.
async fn make_namespaces(api: Api, round: u64) -> Vec<String> {
    let mut acked = Vec::new();
    for n in 0..NAMESPACES {
        let name = format!("n{round}-{n}");
        let body = json!({"metadata": {"name": name}});
        let Some(answer) = api.attempt("POST", "/api/v1/namespaces", "application/json", body).await else {
            break;
        };
        if answer.code == 201 {
            acked.push(name);
        }
    }
    acked
}

/// Compares the server with what is known, and takes over what it says about unanswered writes.
async fn check(api: &Api, models: &mut [Model], namespaces: &[String], newest: u64) {
    let list = api.get(&api.core("configmaps")).await.expect(200).body;
    let at: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(at >= newest, "the server is at {at} and had shown {newest}");
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for object in list["items"].as_array().unwrap() {
        let name = object["metadata"]["name"].as_str().unwrap();
        if name == "kube-root-ca.crt" {
            continue;
        }
        let n: u64 = object["data"]["n"].as_str().unwrap().parse().unwrap();
        let whole = map(name, n);
        let parts = (&object["data"], &object["metadata"]["labels"]);
        assert_eq!(
            parts,
            (&whole["data"], &whole["metadata"]["labels"]),
            "{name} is half one write, half another"
        );
        found.insert(name.to_string(), n);
    }
    for (name, known) in models.iter_mut().flatten() {
        let there = found.remove(name);
        let right = there == known.acked || known.pending == Some(there);
        assert!(
            right,
            "{name} is {there:?}; acknowledged: {:?}, asked for: {:?}",
            known.acked, known.pending
        );
        (known.acked, known.pending) = (there, None);
    }
    assert!(found.is_empty(), "nobody wrote {found:?}");
    let list = api.get("/api/v1/namespaces").await.expect(200).body;
    let there: BTreeSet<&str> =
        list["items"].as_array().unwrap().iter().filter_map(|n| n["metadata"]["name"].as_str()).collect();
    for name in namespaces {
        assert!(there.contains(name.as_str()), "acknowledged namespace {name} is gone");
    }
    // A namespace comes with both in one commit.
    for (plural, companion) in [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")] {
        let path = format!("/api/v1/{plural}?fieldSelector=metadata.name%3D{companion}");
        let list = api.get(&path).await.expect(200).body;
        let all = list["items"].as_array().unwrap().iter();
        let has: BTreeSet<&str> = all.filter_map(|o| o["metadata"]["namespace"].as_str()).collect();
        for name in &there {
            assert!(has.contains(name), "namespace {name} came without its {companion}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_it_keeps_what_it_acknowledged() {
    let rounds = std::env::var("FLEET_KILL_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(10u64);
    let dir = tempfile::tempdir().unwrap();
    let mut models = vec![Model::new(); WRITERS as usize];
    let (mut newest, mut namespaces, mut writes) = (0, Vec::new(), 0);
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    for round in 0..rounds {
        if round % 4 == 3 {
            // Killed while it starts, perhaps while it repairs what the last kill left.
            let life = Life::begin(dir.path());
            tokio::time::sleep(Duration::from_millis(random(STARTING_MS))).await;
            life.kill();
        }
        let begun = Instant::now();
        let mut life = Life::begin(dir.path());
        let api = life.ready();
        slowest = slowest.max(begun.elapsed());
        check(&api, &mut models, &namespaces, newest).await;
        let writers: Vec<_> =
            (0..).zip(&models).map(|(me, m)| tokio::spawn(write(api.clone(), me, m.clone()))).collect();
        let maker = tokio::spawn(make_namespaces(api, round));
        tokio::time::sleep(Duration::from_millis(random(UNDER_LOAD_MS))).await;
        life.kill();
        let before: u64 = models.iter().flatten().map(|(_, k)| k.number).sum();
        for (model, writer) in models.iter_mut().zip(writers) {
            let (known, shown) = writer.await.expect("a writer saw nothing wrong");
            (*model, newest) = (known, newest.max(shown));
        }
        writes += models.iter().flatten().map(|(_, k)| k.number).sum::<u64>() - before;
        namespaces.extend(maker.await.expect("namespaces"));
    }
    let mut life = Life::begin(dir.path());
    check(&life.ready(), &mut models, &namespaces, newest).await;
    let took = start.elapsed();
    println!(
        "{rounds} kills in {took:.1?}, {writes} writes, {} namespaces, slowest start {slowest:.0?}",
        namespaces.len()
    );
    assert!(writes > rounds, "nothing was written");
}
