//! The requests to an API server, by its own count.
//!
//! Inputs: `apiserver_request_total` of `/metrics`, which the embedded server and a real one both have.

use std::collections::BTreeMap;

use anyhow::Context;
use kube::Client;

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// `pods`, `pods/status`, `queueunits.scheduling.x-k8s.io/status`.
    pub resource: String,
    /// As the metric names it: POST, PATCH, LIST, ...
    pub verb: String,
    pub code: u16,
}

impl RequestKind {
    /// Whether it changes something, or would have.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION")
    }

    /// The resource without its subresource.
    pub fn object(&self) -> &str {
        self.resource.split('/').next().unwrap_or_default()
    }
}

/// Counts of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<RequestKind, u64>);

impl Requests {
    /// The requests that the server has counted since it started.
    ///
    /// # Errors
    /// No answer, or one without the count.
    pub async fn read(server: &Client) -> anyhow::Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = server.request_text(request).await.context("the server's metrics")?;
        let counts: BTreeMap<RequestKind, u64> =
            text.lines().filter_map(read_line).fold(BTreeMap::new(), |mut counts, (asked, count)| {
                *counts.entry(asked).or_default() += count;
                counts
            });
        anyhow::ensure!(!counts.is_empty(), "/metrics: found no apiserver_request_total");
        Ok(Self(counts))
    }

    /// The requests since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |(asked, count): (&RequestKind, &u64)| {
            let before = earlier.0.get(asked).copied().unwrap_or(0);
            (*count > before).then(|| (asked.clone(), *count - before))
        };
        Self(self.0.iter().filter_map(less).collect())
    }

    /// The number of requests that match `wanted`.
    pub fn count(&self, wanted: impl Fn(&RequestKind) -> bool) -> u64 {
        self.0.iter().filter(|(asked, _)| wanted(asked)).map(|(_, count)| count).sum()
    }
}

fn read_line(line: &str) -> Option<(RequestKind, u64)> {
    let (labels, count) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
    let label = |name: &str| {
        let pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.trim_end_matches('"'))
    };
    let mut resource = label("resource")?.to_string();
    for (separator, part) in [('.', label("group")), ('/', label("subresource"))] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            resource.push(separator);
            resource.push_str(part);
        }
    }
    // A real server counts in floating point.
    let count = count.parse::<f64>().ok()? as u64;
    Some((
        RequestKind { resource, verb: label("verb")?.to_string(), code: label("code")?.parse().ok()? },
        count,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_embedded_and_of_a_real_server_are_read() {
        let check = |line: &str, expected: Option<(&str, &str, u16, u64)>| {
            let found = read_line(line);
            let found = found
                .as_ref()
                .map(|(asked, n)| (asked.resource.as_str(), asked.verb.as_str(), asked.code, *n));
            assert_eq!(found, expected, "{line}");
        };
        check(
            "apiserver_request_total{code=\"200\",group=\"batch\",resource=\"jobs\",subresource=\"status\",verb=\"PATCH\"} 7",
            Some(("jobs.batch/status", "PATCH", 200, 7)),
        );
        check(
            "apiserver_request_total{code=\"201\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",\
             scope=\"resource\",subresource=\"\",verb=\"POST\",version=\"v1\"} 1.2e+03",
            Some(("pods", "POST", 201, 1200)),
        );
        check("apiserver_storage_objects{resource=\"pods\"} 3", None);
    }
}
