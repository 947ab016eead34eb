//! Counts of answers.
//!
//! Inputs: each answer. Absent on purpose: how long they took.

use http::{Method, StatusCode, Uri};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// Names of resources that are told apart; a client that asks for more than there are does not fill the memory.
const RESOURCES: usize = 1024;

/// What a request asks of which resource, as far as its address says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked<'u> {
    group: &'u str,
    resource: &'u str,
    subresource: &'u str,
    is_one: bool,
}

impl<'u> Asked<'u> {
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
        parts.next()?;
        let first = parts.next().filter(|first| *first != "watch").or_else(|| parts.next())?;
        if first != "namespaces" {
            return Some(Self::below(group, first, parts));
        }
        let name = parts.next();
        match parts.next() {
            Some(own @ ("status" | "finalize")) if group.is_empty() => {
                Some(Self { group, resource: first, subresource: own, is_one: true })
            }
            Some(resource) => Some(Self::below(group, resource, parts)),
            None => Some(Self { group, resource: first, subresource: "", is_one: name.is_some() }),
        }
    }

    fn below(group: &'u str, resource: &'u str, mut rest: impl Iterator<Item = &'u str>) -> Self {
        let is_one = rest.next().is_some();
        Self { group, resource, subresource: rest.next().unwrap_or_default(), is_one }
    }
}

fn verb(method: &Method, uri: &Uri, asked: &Asked<'_>) -> &'static str {
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

/// By the labels that name the resource.
type Counts = BTreeMap<String, u64>;

/// Answers since the start: by verb and code, then by resource.
#[derive(Default)]
pub struct Answers(Mutex<BTreeMap<(&'static str, u16), Counts>>);

impl Answers {
    /// Counts an answer.
    pub fn count(&self, method: &Method, uri: &Uri, code: StatusCode) {
        let asked = Asked::of(uri);
        let verb = verb(method, uri, &asked);
        let Asked { group, resource, subresource, .. } = asked;
        let labels = format!("group=\"{group}\",resource=\"{resource}\",subresource=\"{subresource}\"");
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = counts.entry((verb, code.as_u16())).or_default();
        if let Some(count) = counts.get_mut(&labels) {
            *count += 1;
            return;
        }
        // What a client makes up may hold anything.
        let is_plain = labels.bytes().all(|b| b.is_ascii_alphanumeric() || b",=\"._-".contains(&b));
        let labels =
            if counts.len() < RESOURCES && is_plain && labels.len() < 256 { labels } else { other() };
        *counts.entry(labels).or_insert(0) += 1;
    }

    /// Writes the counts in the text format of Prometheus.
    pub fn write(&self, text: &mut String) {
        text.push_str(
            "# HELP apiserver_request_total Answers by verb, resource and code; a watch counts when it begins.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for ((verb, code), counts) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (labels, n) in counts {
                let _ =
                    writeln!(text, "apiserver_request_total{{code=\"{code}\",{labels},verb=\"{verb}\"}} {n}");
            }
        }
    }
}

fn other() -> String {
    "group=\"\",resource=\"\",subresource=\"\"".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, path: &str, want: &str) {
        let answers = Answers::default();
        answers.count(&method, &path.parse().expect("an address"), StatusCode::OK);
        let mut text = String::new();
        answers.write(&mut text);
        let found = text.lines().last().unwrap_or_default();
        assert_eq!(found, format!("apiserver_request_total{{code=\"200\",{want}}} 1"), "{path}");
    }

    #[test]
    fn each_request_counts_for_its_resource() {
        let pods = |sub: &str, verb: &str| {
            format!("group=\"\",resource=\"pods\",subresource=\"{sub}\",verb=\"{verb}\"")
        };
        check(Method::POST, "/api/v1/namespaces/a/pods", &pods("", "POST"));
        check(Method::PATCH, "/api/v1/namespaces/a/pods/p/status?x=y", &pods("status", "PATCH"));
        check(Method::POST, "/api/v1/namespaces/a/pods/p/binding", &pods("binding", "POST"));
        check(Method::GET, "/api/v1/pods?watch=true", &pods("", "WATCH"));
        check(Method::GET, "/api/v1/watch/pods?watch=1", &pods("", "WATCH"));
        check(Method::GET, "/api/v1/pods", &pods("", "LIST"));
        check(Method::GET, "/api/v1/namespaces/a/pods/p", &pods("", "GET"));
        check(Method::DELETE, "/api/v1/namespaces/a/pods", &pods("", "DELETECOLLECTION"));
        let jobs = "group=\"batch\",resource=\"jobs\",subresource=\"\",verb=\"DELETE\"";
        check(Method::DELETE, "/apis/batch/v1/namespaces/a/jobs/j", jobs);
        let own = "group=\"\",resource=\"namespaces\",subresource=\"finalize\",verb=\"PUT\"";
        check(Method::PUT, "/api/v1/namespaces/a/finalize", own);
        let none = "group=\"\",resource=\"\",subresource=\"\",verb=\"GET\"";
        check(Method::GET, "/healthz", none);
        check(Method::GET, "/api/v1", none);
    }

    #[test]
    fn made_up_names_are_not_told_apart() {
        let answers = Answers::default();
        for n in 0..2 * RESOURCES {
            let uri = format!("/api/v1/made-up-{n}/%22x").parse().expect("an address");
            answers.count(&Method::GET, &uri, StatusCode::NOT_FOUND);
        }
        let mut text = String::new();
        answers.write(&mut text);
        assert!(text.lines().count() <= RESOURCES + 3, "{}", text.lines().count());
    }
}
