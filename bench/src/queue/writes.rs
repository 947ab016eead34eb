//! The API servers' own counts of a job's writes, by object.

use std::collections::BTreeMap;

use fleet_kubesim::{LocalFleet, Requests};
use serde::Serialize;

/// Writes of one object per job.
#[derive(Debug, Serialize)]
pub(super) struct ObjectWrites {
    server: &'static str,
    object: String,
    a_job: f64,
    /// By verb, and `verb subresource`.
    verbs: BTreeMap<String, f64>,
    /// Those of them that were answered with an error, by HTTP status.
    refused: BTreeMap<u16, f64>,
}

/// Counts of hub and member.
pub(super) struct Counted([Requests; 2]);

impl Counted {
    pub(super) async fn read(fleet: &LocalFleet) -> anyhow::Result<Self> {
        let member = fleet.members().first().and_then(|name| fleet.member(name));
        let of_member = match member {
            Some(member) => Requests::read(&member).await?,
            None => Requests::default(),
        };
        Ok(Self([Requests::read(&fleet.hub()).await?, of_member]))
    }

    /// Writes since `earlier`, most of them first, leases and summaries included.
    pub(super) fn since(&self, earlier: &Self, jobs: usize) -> Vec<ObjectWrites> {
        let mut rows = Vec::new();
        for (server, (now, before)) in ["hub", "member"].into_iter().zip(self.0.iter().zip(&earlier.0)) {
            let mut objects: BTreeMap<String, ObjectWrites> = BTreeMap::new();
            for (asked, count) in now.since(before).0 {
                if !asked.is_write() {
                    continue;
                }
                let count = count as f64 / jobs as f64;
                let object = asked.object().to_string();
                let row = objects.entry(object.clone()).or_insert_with(|| ObjectWrites {
                    server,
                    object,
                    a_job: 0.0,
                    verbs: BTreeMap::new(),
                    refused: BTreeMap::new(),
                });
                let verb = match asked.resource.split_once('/') {
                    Some((_, subresource)) => format!("{} {subresource}", asked.verb),
                    None => asked.verb.clone(),
                };
                *row.verbs.entry(verb).or_default() += count;
                row.a_job += count;
                if asked.code >= 400 {
                    *row.refused.entry(asked.code).or_default() += count;
                }
            }
            let mut objects: Vec<ObjectWrites> = objects.into_values().collect();
            objects.sort_by(|a, b| b.a_job.total_cmp(&a.a_job));
            rows.extend(objects);
        }
        rows
    }
}

/// Of one server.
pub(super) fn total(rows: &[ObjectWrites], server: &str) -> f64 {
    rows.iter().filter(|row| row.server == server).map(|row| row.a_job).sum()
}

impl ObjectWrites {
    /// False for less than one write per hundred jobs.
    pub(super) fn counts(&self) -> bool {
        self.a_job >= 0.01
    }

    pub(super) fn what(&self) -> String {
        format!("  {} {}", self.server, self.object)
    }

    pub(super) fn found(&self) -> String {
        let verbs = self.verbs.iter().map(|(verb, count)| format!("{verb} {count:.2}"));
        let refused = self.refused.iter().filter(|(_, count)| **count >= 0.005);
        let refused: String =
            refused.map(|(code, count)| format!("; refused with {code}: {count:.2}")).collect();
        format!("{:.2} ({}{refused})", self.a_job, verbs.collect::<Vec<_>>().join(", "))
    }
}
