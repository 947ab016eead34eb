//! Counts of answers, and how long they took.
//!
//! Inputs: each answer. Absent on purpose: how long a watch goes on.

use http::{Method, StatusCode, Uri};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Names of resources that are told apart; a client that asks for more than there are does not fill the memory.
const RESOURCES: usize = 1024;

/// What a request asks of which resource, as far as its address says.
#[derive(Debug, Default, PartialEq, Eq)]
struct RequestInfo<'u> {
    group: &'u str,
    version: &'u str,
    resource: &'u str,
    subresource: &'u str,
    /// "cluster", "namespace" or "resource".
    scope: &'static str,
    is_one: bool,
}

impl<'u> RequestInfo<'u> {
    fn of(uri: &'u Uri) -> Self {
        Self::read(uri.path()).unwrap_or_default()
    }

    fn read(path: &'u str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let first = parts.next().filter(|first| *first != "watch").or_else(|| parts.next())?;
        let known = Self { group, version, ..Self::default() };
        if first != "namespaces" {
            return Some(known.below(first, "cluster", parts));
        }
        let name = parts.next();
        match parts.next() {
            Some(own @ ("status" | "finalize")) if group.is_empty() => {
                Some(Self { resource: first, subresource: own, scope: "resource", is_one: true, ..known })
            }
            Some(resource) => Some(known.below(resource, "namespace", parts)),
            None => {
                let scope = if name.is_some() { "resource" } else { "cluster" };
                Some(Self { resource: first, scope, is_one: name.is_some(), ..known })
            }
        }
    }

    fn below(self, resource: &'u str, all: &'static str, mut rest: impl Iterator<Item = &'u str>) -> Self {
        let is_one = rest.next().is_some();
        let scope = if is_one { "resource" } else { all };
        Self { resource, scope, is_one, subresource: rest.next().unwrap_or_default(), ..self }
    }
}

fn verb(method: &Method, uri: &Uri, asked: &RequestInfo<'_>) -> &'static str {
    let watches =
        || uri.query().is_some_and(|query| query.contains("watch=") && !query.contains("watch=false"));
    match *method {
        Method::GET if asked.resource.is_empty() || asked.is_one => "GET",
        Method::GET if watches() => "WATCH",
        Method::GET => "LIST",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE if asked.is_one => "DELETE",
        Method::DELETE => "DELETECOLLECTION",
        _ => "OTHER",
    }
}

/// Upper ends of the times that are told apart, in seconds.
const ENDS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 60.0,
];

/// Answers of one kind.
#[derive(Default)]
struct Count {
    by_code: BTreeMap<u16, u64>,
    /// How many took no longer than each end, and longer than the one before.
    times: [u64; ENDS.len()],
    sum: Duration,
    timed: u64,
}

/// By the labels that name the resource.
type Counts = BTreeMap<String, Count>;

/// Answers since the start: by verb, then by resource.
#[derive(Default)]
pub struct Answers(Mutex<BTreeMap<&'static str, Counts>>);

impl Answers {
    /// Counts an answer, and how long it took; a watch has only begun.
    pub fn count(&self, method: &Method, uri: &Uri, code: StatusCode, took: Duration) {
        let asked = RequestInfo::of(uri);
        let verb = verb(method, uri, &asked);
        let dry = if uri.query().is_some_and(|query| query.contains("dryRun=All")) { "All" } else { "" };
        let labels = asked.labels(dry);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = all.entry(verb).or_default();
        // What a client makes up may hold anything.
        let is_plain = |labels: &str| {
            labels.len() < 300 && labels.bytes().all(|b| b.is_ascii_alphanumeric() || b",=\"._-".contains(&b))
        };
        let known = counts.contains_key(&labels) || (counts.len() < RESOURCES && is_plain(&labels));
        let labels = if known { labels } else { RequestInfo::default().labels("") };
        let count = counts.entry(labels).or_default();
        *count.by_code.entry(code.as_u16()).or_insert(0) += 1;
        if verb != "WATCH" {
            let seconds = took.as_secs_f64();
            if let Some(place) = ENDS.iter().position(|end| seconds <= *end) {
                count.times[place] += 1;
            }
            count.sum += took;
            count.timed += 1;
        }
    }

    /// Writes the counts in the text format of Prometheus.
    pub fn write(&self, text: &mut String) {
        text.push_str(
            "# HELP apiserver_request_total Answers by verb, resource and code; a watch counts when it begins.\n\
             # TYPE apiserver_request_total counter\n",
        );
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = || all.iter().flat_map(|(verb, counts)| counts.iter().map(move |(of, n)| (verb, of, n)));
        for (verb, labels, count) in each() {
            for (code, n) in &count.by_code {
                let _ =
                    writeln!(text, "apiserver_request_total{{code=\"{code}\",{labels},verb=\"{verb}\"}} {n}");
            }
        }
        text.push_str(
            "# HELP apiserver_request_duration_seconds Time from a request to its answer; watches are left out.\n\
             # TYPE apiserver_request_duration_seconds histogram\n",
        );
        const NAME: &str = "apiserver_request_duration_seconds";
        for (verb, labels, count) in each().filter(|(.., count)| count.timed > 0) {
            let labels = format!("{labels},verb=\"{verb}\"");
            let mut sum = 0;
            for (end, n) in ENDS.iter().zip(count.times) {
                sum += n;
                let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"{end}\"}} {sum}");
            }
            let (all, took) = (count.timed, count.sum.as_secs_f64());
            let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {all}");
            let _ = writeln!(text, "{NAME}_sum{{{labels}}} {took}");
            let _ = writeln!(text, "{NAME}_count{{{labels}}} {all}");
        }
    }
}

impl RequestInfo<'_> {
    fn labels(&self, dry: &str) -> String {
        let RequestInfo { group, version, resource, subresource, scope, .. } = self;
        format!(
            "component=\"apiserver\",dry_run=\"{dry}\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",\
             subresource=\"{subresource}\",version=\"{version}\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(answers: &Answers) -> Vec<String> {
        let mut text = String::new();
        answers.write(&mut text);
        text.lines().map(str::to_string).collect()
    }

    fn check(method: Method, path: &str, want: &str) {
        let answers = Answers::default();
        answers.count(&method, &path.parse().expect("an address"), StatusCode::OK, Duration::from_millis(30));
        let found = lines(&answers);
        let one = found.iter().find(|line| line.starts_with("apiserver_request_total{")).cloned();
        assert_eq!(one, Some(format!("apiserver_request_total{{code=\"200\",{want}}} 1")), "{path}");
    }

    /// Labels in the order of the text: group, resource, scope, subresource, version, verb.
    fn labels(of: [&str; 6]) -> String {
        let [group, resource, scope, subresource, version, verb] = of;
        format!(
            "component=\"apiserver\",dry_run=\"\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",\
             subresource=\"{subresource}\",version=\"{version}\",verb=\"{verb}\""
        )
    }

    #[test]
    fn each_request_counts_for_its_resource() {
        let pods = |sub: &str, scope: &str, verb: &str| labels(["", "pods", scope, sub, "v1", verb]);
        check(Method::POST, "/api/v1/namespaces/a/pods", &pods("", "namespace", "POST"));
        check(Method::PATCH, "/api/v1/namespaces/a/pods/p/status?x=y", &pods("status", "resource", "PATCH"));
        check(Method::POST, "/api/v1/namespaces/a/pods/p/binding", &pods("binding", "resource", "POST"));
        check(Method::GET, "/api/v1/pods?watch=true", &pods("", "cluster", "WATCH"));
        check(Method::GET, "/api/v1/watch/pods?watch=1", &pods("", "cluster", "WATCH"));
        check(Method::GET, "/api/v1/pods", &pods("", "cluster", "LIST"));
        check(Method::GET, "/api/v1/namespaces/a/pods/p", &pods("", "resource", "GET"));
        check(Method::DELETE, "/api/v1/namespaces/a/pods", &pods("", "namespace", "DELETECOLLECTION"));
        let jobs = labels(["batch", "jobs", "resource", "", "v1", "DELETE"]);
        check(Method::DELETE, "/apis/batch/v1/namespaces/a/jobs/j", &jobs);
        let own = labels(["", "namespaces", "resource", "finalize", "v1", "PUT"]);
        check(Method::PUT, "/api/v1/namespaces/a/finalize", &own);
        check(Method::GET, "/healthz", &labels(["", "", "", "", "", "GET"]));
        check(Method::GET, "/api/v1", &labels(["", "", "", "", "", "GET"]));
    }

    #[test]
    fn times_are_counted() {
        let answers = Answers::default();
        let uri: Uri = "/api/v1/pods".parse().expect("an address");
        for millis in [3, 30, 300, 70_000] {
            answers.count(&Method::GET, &uri, StatusCode::OK, Duration::from_millis(millis));
        }
        let watch = "/api/v1/pods?watch=1".parse().expect("an address");
        answers.count(&Method::GET, &watch, StatusCode::OK, Duration::from_secs(9));
        let found = lines(&answers);
        let value = |end: &str| {
            let line = found.iter().find(|line| line.contains(end) && line.contains("\"LIST\"")).expect(end);
            line.rsplit(' ').next().unwrap_or_default().to_string()
        };
        assert_eq!(
            ["0.005", "0.025", "0.05", "0.4", "60", "+Inf"].map(|end| value(&format!("le=\"{end}\""))),
            ["1", "1", "2", "3", "3", "4"]
        );
        assert_eq!((value("seconds_sum"), value("seconds_count")), ("70.333".into(), "4".into()));
        assert!(!found.iter().any(|line| line.contains("duration") && line.contains("WATCH")));
    }

    #[test]
    fn made_up_names_are_not_told_apart() {
        let answers = Answers::default();
        for n in 0..2 * RESOURCES {
            let uri = format!("/api/v1/made-up-{n}/%22x").parse().expect("an address");
            answers.count(&Method::GET, &uri, StatusCode::NOT_FOUND, Duration::ZERO);
        }
        let total =
            lines(&answers).iter().filter(|line| line.starts_with("apiserver_request_total{")).count();
        assert!(total <= RESOURCES + 1, "{total}");
    }
}
