//! Probes of a flow's dependencies (`dependsOn.probe`): with them a target need not complete before the next job starts.
//!
//! Phases of tasks are read from the job's status. HTTP and TCP checks go to pods of the target's job alone, at the
//! addresses that their kubelets report, with the kubelet's timeout and period; redirects are not followed, and answers
//! are not read. Deliberately absent: pods on the host's network, whose ports are those of the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use fleet_agent_ground::{CallError, Object, call, controller_of, resource};
use futures::{StreamExt, stream};
use kube::{Api, api::ListParams};
use serde_json::Value;

/// Of one check of one pod, as the kubelet's default.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Between two rounds of checks.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// Most pods of a task that a check asks; of a larger task, these suffice.
const MOST_PODS: usize = 64;
/// Most concurrent requests of one flow.
const AT_ONCE: usize = 16;

/// One entry of a probe; it concerns the targets that have its task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    Phase { task: String, phase: String },
    Tcp { task: String, port: u16 },
    Http { task: String, port: u16, path: String, header: Option<(String, String)> },
}

impl Check {
    fn task(&self) -> &str {
        match self {
            Self::Phase { task, .. } | Self::Tcp { task, .. } | Self::Http { task, .. } => task,
        }
    }
}

/// Checks that hold, by uid of the job.
pub(crate) type Answers = BTreeSet<(String, Check)>;

/// Checks of one probe: they are asked one after the other.
const CHECKS_MAX: usize = 16;
/// How long one look asks pods; what has not been asked by then does not hold.
const ASKS_FOR: Duration = Duration::from_secs(10);

/// Reads a probe.
///
/// # Errors
/// Field, value found and values allowed, in one sentence; `path` is the probe's.
pub(crate) fn read(probe: &Value, path: &str) -> Result<Vec<Check>, String> {
    let mut found = Vec::new();
    for list in ["taskStatusList", "tcpSocketList", "httpGetList"] {
        for (at, entry) in probe[list].as_array().into_iter().flatten().enumerate() {
            let wrong = |field: &str, allowed: &str| {
                format!("field {path}.{list}[{at}].{field}: found {}; allowed: {allowed}", entry[field])
            };
            let text = |field: &str| entry[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let task = text("taskName").ok_or_else(|| wrong("taskName", "the name of a task"))?;
            let port = || {
                let port = entry["port"].as_u64().and_then(|port| u16::try_from(port).ok());
                port.filter(|port| *port > 0).ok_or_else(|| wrong("port", "a number from 1 to 65535"))
            };
            found.push(match list {
                "taskStatusList" => {
                    const PHASES: [&str; 3] = ["Running", "Succeeded", "Failed"];
                    let phase = text("phase").filter(|phase| PHASES.contains(&phase.as_str()));
                    Check::Phase { task, phase: phase.ok_or_else(|| wrong("phase", &PHASES.join(", ")))? }
                }
                "tcpSocketList" => Check::Tcp { task, port: port()? },
                _ => {
                    let path = text("path").unwrap_or_else(|| "/".to_owned());
                    if !path.starts_with('/') {
                        return Err(wrong("path", "a path that begins with /"));
                    }
                    let part = |name: &str| entry["httpHeader"][name].as_str().unwrap_or_default().to_owned();
                    let header = Some((part("name"), part("value"))).filter(|(name, _)| !name.is_empty());
                    Check::Http { task, port: port()?, path, header }
                }
            });
        }
    }
    if found.len() > CHECKS_MAX {
        return Err(format!("field {path}: found {} checks; allowed: {CHECKS_MAX}", found.len()));
    }
    Ok(found)
}

/// The checks that concern the job.
fn of<'c>(job: &Object, checks: &'c [Check]) -> Vec<&'c Check> {
    checks.iter().filter(|check| needed(job, check.task()).is_some()).collect()
}

/// Pods of a task that must pass: its minimum.
fn needed(job: &Object, task: &str) -> Option<i64> {
    let tasks = job.spec["tasks"].as_array().into_iter().flatten();
    let task = tasks.into_iter().find(|known| known["name"] == task)?;
    Some(task["minAvailable"].as_i64().or_else(|| task["replicas"].as_i64()).unwrap_or(1).max(1))
}

/// Whether all checks that concern the job hold; false if none does.
pub(crate) fn holds(job: &Object, checks: &[Check], answers: &Answers) -> bool {
    let own = of(job, checks);
    !own.is_empty()
        && own.into_iter().all(|check| match check {
            Check::Phase { task, phase } => {
                let count = job.status["taskStatusCount"][task]["phase"][phase].as_i64().unwrap_or(0);
                needed(job, task).is_some_and(|needed| count >= needed)
            }
            network => answers.contains(&(job.uid().to_owned(), network.clone())),
        })
}

/// Checks that only pods can answer; none while a check of the status does not hold.
pub(crate) fn open<'c>(job: &Object, checks: &'c [Check]) -> Vec<&'c Check> {
    let of_status: Vec<Check> =
        checks.iter().filter(|check| matches!(check, Check::Phase { .. })).cloned().collect();
    if !of(job, &of_status).is_empty() && !holds(job, &of_status, &Answers::new()) {
        return Vec::new();
    }
    of(job, checks).into_iter().filter(|check| !matches!(check, Check::Phase { .. })).collect()
}

/// Asks the pods of the jobs.
///
/// # Errors
/// The API server does not list them.
pub(super) async fn ask(
    client: &kube::Client,
    jobs: &[(&Object, Vec<&Check>)],
) -> Result<Answers, CallError> {
    let mut answers = Answers::new();
    let until = Instant::now() + ASKS_FOR;
    for (job, checks) in jobs {
        if Instant::now() >= until {
            break;
        }
        let pods: Api<Object> =
            Api::namespaced_with(client.clone(), job.namespace(), &resource("", "v1", "Pod", "pods"));
        let own = ListParams::default().labels(&format!("volcano.sh/job-name={}", job.name()));
        let pods = call(pods.list(&own)).await?.items;
        for check in checks {
            if Instant::now() < until && pass(job, &pods, check, is_address_of_a_pod).await {
                answers.insert((job.uid().to_owned(), (*check).clone()));
            }
        }
    }
    Ok(answers)
}

fn is_address_of_a_pod(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// Whether enough pods of the task pass.
async fn pass(job: &Object, pods: &[Object], check: &Check, may_ask: fn(&IpAddr) -> bool) -> bool {
    let Some(needed) = needed(job, check.task()) else { return false };
    let address = |pod: &Object| pod.status["podIP"].as_str()?.parse::<IpAddr>().ok().filter(may_ask);
    let is_own = |pod: &Object| {
        let labels = pod.metadata.labels.as_ref();
        let task = labels.and_then(|labels| labels.get("volcano.sh/task-spec"));
        controller_of(&pod.metadata).is_some_and(|owner| owner.uid == job.uid())
            && task.is_some_and(|task| task == check.task())
            && pod.status["phase"] == "Running"
            && pod.spec["hostNetwork"] != true
            && !pod.is_deleting()
    };
    let needed = usize::try_from(needed).unwrap_or(MOST_PODS).min(MOST_PODS);
    let addresses: BTreeMap<&str, IpAddr> =
        pods.iter().filter(|pod| is_own(pod)).filter_map(|pod| Some((pod.name(), address(pod)?))).collect();
    let asked = addresses.into_values().take(MOST_PODS).map(|address| answers(address, check));
    let passed = stream::iter(asked).buffer_unordered(AT_ONCE).filter(|passed| std::future::ready(*passed));
    passed.take(needed).count().await >= needed
}

async fn answers(address: IpAddr, check: &Check) -> bool {
    let asked = async {
        match check {
            Check::Phase { .. } => false,
            Check::Tcp { port, .. } => {
                tokio::net::TcpStream::connect(SocketAddr::new(address, *port)).await.is_ok()
            }
            Check::Http { port, path, header, .. } => {
                let url = format!("http://{}{path}", SocketAddr::new(address, *port));
                get(&url, header.as_ref()).await.unwrap_or(false)
            }
        }
    };
    tokio::time::timeout(TIMEOUT, asked).await.unwrap_or(false)
}

/// Whether the answer is a success or a redirect, as a kubelet sees it.
async fn get(url: &str, header: Option<&(String, String)>) -> Result<bool, reqwest::Error> {
    // The library uses the process's TLS provider; the first one installed is kept.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let mut request = client.timeout(TIMEOUT).build()?.get(url);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let status = request.send().await?.status();
    Ok(status.is_success() || status.is_redirection())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_probe_has_a_bounded_number_of_checks() {
        let probe =
            |checks: usize| json!({"tcpSocketList": vec![json!({"taskName": "t", "port": 1}); checks]});
        assert_eq!(read(&probe(CHECKS_MAX), "p").map(|found| found.len()), Ok(CHECKS_MAX));
        assert_eq!(
            read(&probe(CHECKS_MAX + 1), "p"),
            Err("field p: found 17 checks; allowed: 16".to_owned())
        );
    }

    fn object(value: Value) -> Object {
        serde_json::from_value(value).expect("an object")
    }

    fn job(tasks: Value, counts: Value) -> Object {
        object(
            json!({"metadata": {"name": "f-a", "namespace": "default", "uid": "j"}, "spec": {"tasks": tasks},
            "status": {"state": {"phase": "Running"}, "taskStatusCount": counts}}),
        )
    }

    fn pod(name: &str, task: &str, owner: &str, more: Value) -> Object {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"volcano.sh/task-spec": task},
                "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "f-a",
                    "uid": owner, "controller": true}]},
            "spec": {}, "status": {"phase": "Running", "podIP": "127.0.0.1"}});
        crate::flows::plan::merge(&mut pod, &more);
        object(pod)
    }

    #[test]
    fn tasks_have_the_phases_that_were_asked_for() {
        let check = |task: &str, phase: &str| Check::Phase { task: task.into(), phase: phase.into() };
        let tasks = json!([{"name": "ps", "replicas": 2}, {"name": "w", "replicas": 9, "minAvailable": 3}]);
        let counts = json!({"ps": {"phase": {"Running": 1, "Pending": 1}}, "w": {"phase": {"Running": 3}}});
        let job = job(tasks, counts);
        let holds = |checks: &[Check]| holds(&job, checks, &Answers::new());
        assert!(holds(&[check("w", "Running")]), "its minimum runs");
        assert!(!holds(&[check("ps", "Running")]), "one of two");
        assert!(!holds(&[check("w", "Running"), check("ps", "Running")]), "all must hold");
        assert!(!holds(&[check("w", "Succeeded")]));
        // A check of another target's task does not concern this one; a probe that does not, says nothing.
        assert!(holds(&[check("w", "Running"), check("elsewhere", "Running")]));
        assert!(!holds(&[check("elsewhere", "Running")]) && !holds(&[]));
        let port = Check::Tcp { task: "w".into(), port: 80 };
        let asks = |checks: &[Check]| open(&job, checks).len();
        assert_eq!(asks(&[port.clone(), check("w", "Running")]), 1);
        assert_eq!(asks(&[port, check("ps", "Running")]), 0, "no pod is asked before");
    }

    #[test]
    fn mistakes_of_probes_are_named() {
        let said = |probe: Value| read(&probe, "p").expect_err("a mistake");
        let wrong = said(json!({"tcpSocketList": [{"taskName": "a", "port": 70_000}]}));
        assert_eq!(wrong, "field p.tcpSocketList[0].port: found 70000; allowed: a number from 1 to 65535");
        assert!(said(json!({"httpGetList": [{"port": 80}]})).contains("httpGetList[0].taskName: found null"));
        let path = json!({"httpGetList": [{"taskName": "a", "port": 80, "path": "@evil/"}]});
        assert!(said(path).contains("path: found \"@evil/\"; allowed: a path that begins with /"));
        let phase = json!({"taskStatusList": [{"taskName": "a", "phase": "Up"}]});
        assert!(said(phase).contains("allowed: Running, Succeeded, Failed"));
        assert_eq!(read(&Value::Null, "p"), Ok(Vec::new()));
    }

    /// A server that answers each request with this status, and a port on which nobody listens.
    async fn serve(status: &'static str) -> (u16, u16) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = |listener: &tokio::net::TcpListener| listener.local_addr().expect("an address").port();
        let found = (port(&listener), port(&closed));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let asked = String::from_utf8_lossy(&request[..read]).to_string();
                let status = if asked.contains("x-fail: yes") { "500 Broken" } else { status };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: http://127.0.0.1:1/\r\n\r\n"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        found
    }

    #[tokio::test]
    async fn only_pods_of_the_job_are_asked_and_enough_must_answer() {
        let (port, closed) = serve("200 OK").await;
        let job = job(json!([{"name": "w", "replicas": 2}]), Value::Null);
        let tcp = |port: u16| Check::Tcp { task: "w".into(), port };
        let http = |port: u16, header: Option<(&str, &str)>| Check::Http {
            task: "w".into(),
            port,
            path: "/ready".into(),
            header: header.map(|(name, value)| (name.to_owned(), value.to_owned())),
        };
        let all = |_: &IpAddr| true;
        let two = [pod("a", "w", "j", json!({})), pod("b", "w", "j", json!({}))];
        assert!(pass(&job, &two, &tcp(port), all).await);
        assert!(pass(&job, &two, &http(port, None), all).await);
        assert!(!pass(&job, &two, &http(port, Some(("x-fail", "yes"))), all).await, "500");
        assert!(!pass(&job, &two, &tcp(closed), all).await);
        assert!(!pass(&job, &two[..1], &tcp(port), all).await, "one of two");
        for strange in [
            pod("b", "w", "another", json!({})),
            pod("b", "other", "j", json!({})),
            pod("b", "w", "j", json!({"spec": {"hostNetwork": true}})),
            pod("b", "w", "j", json!({"status": {"phase": "Pending"}})),
            pod("b", "w", "j", json!({"status": {"podIP": "localhost"}})),
        ] {
            assert!(!pass(&job, &[two[0].clone(), strange.clone()], &tcp(port), all).await, "{strange:?}");
        }
        assert!(!pass(&job, &two, &tcp(port), is_address_of_a_pod).await, "the agent's own machine");
        // A redirect is an answer, and is not followed.
        let (moved, _) = serve("302 Found").await;
        assert!(pass(&job, &two, &http(moved, None), all).await);
    }

    #[test]
    fn addresses_that_no_pod_has_are_not_asked() {
        for address in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1"] {
            assert!(!is_address_of_a_pod(&address.parse().expect("an address")), "{address}");
        }
        assert!(is_address_of_a_pod(&"10.1.2.3".parse().expect("an address")));
    }
}
