//! The events of a job's runs, and why it waits.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{JobError, Run, item::milliseconds, tasks::waiting_tasks, text};
use crate::server::{Selectors, Server};

/// In OpenPAI's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub uid: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub message: String,
    pub count: i64,
    /// Milliseconds since 1970.
    pub first_timestamp: Option<i64>,
    pub last_timestamp: Option<i64>,
    pub task_name: String,
    pub source_component: String,
    pub source_host: String,
}

/// The events of a run, oldest first. If the run waits, the last event gives the reason; so it does for each of its tasks
/// that waits while others run.
///
/// # Errors
/// The hub does not answer, or refuses.
pub async fn events(server: &Server, run: &Run) -> Result<Vec<Event>, JobError> {
    let mut events: Vec<Event> = listed(server, run).await?.iter().map(event).collect();
    events.sort_by_key(|event| event.last_timestamp);
    let waits = run.state() == fleet_pai::state::State::Waiting;
    let own = run.waiting().filter(|_| waits).map(|(reason, message)| waiting(run, "", reason, message));
    let tasks = waiting_tasks(server, run).await;
    let tasks = tasks.iter().map(|pod| waiting(run, &pod.pod, &pod.reason, &pod.message));
    add_told(&mut events, own.into_iter().chain(tasks));
    Ok(events)
}

/// Adds what no event says yet.
fn add_told(events: &mut Vec<Event>, told: impl Iterator<Item = Event>) {
    let said = |event: &Event| (event.reason.clone(), event.message.clone(), event.task_name.clone());
    let mut known: BTreeSet<_> = events.iter().map(said).collect();
    events.extend(told.filter(|event| known.insert(said(event))));
}

/// Events of a run as the hub has them.
pub(super) async fn listed(server: &Server, run: &Run) -> Result<Vec<Value>, JobError> {
    let uid = run.uid();
    let selectors = Selectors { fields: Some(format!("involvedObject.uid={uid}")), ..Selectors::default() };
    let path = format!("/api/v1/namespaces/{}/events", run.namespace());
    let mut listed = server.list(&path, &selectors, "application/json").await?;
    let mut listed = listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    listed.retain(|event| event["involvedObject"]["uid"] == uid);
    Ok(listed)
}

/// Why a job waits, or one of its tasks.
fn waiting(run: &Run, task: &str, reason: &str, message: &str) -> Event {
    Event {
        uid: run.uid().to_owned(),
        kind: "Warning".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        count: 1,
        first_timestamp: None,
        last_timestamp: None,
        task_name: task.to_owned(),
        source_component: "fleet-controller".to_owned(),
        source_host: String::new(),
    }
}

fn event(event: &Value) -> Event {
    let first = milliseconds(&event["firstTimestamp"]).or_else(|| milliseconds(&event["eventTime"]));
    let component = text(&event["source"]["component"], text(&event["reportingComponent"], ""));
    Event {
        uid: text(&event["metadata"]["uid"], "").to_owned(),
        kind: text(&event["type"], "Normal").to_owned(),
        reason: text(&event["reason"], "").to_owned(),
        message: text(&event["message"], "").to_owned(),
        count: event["count"].as_i64().unwrap_or(1),
        first_timestamp: first,
        last_timestamp: milliseconds(&event["lastTimestamp"]).or(first),
        task_name: match text(&event["involvedObject"]["kind"], "") {
            "Pod" => text(&event["involvedObject"]["name"], "").to_owned(),
            _ => String::new(),
        },
        source_component: component.to_owned(),
        source_host: text(&event["source"]["host"], "").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_events_say_already_is_not_added() {
        let run =
            Run::of(serde_json::json!({"metadata": {"annotations": {"pai.fleet.dev/id": "alice~j"}}}), None);
        let run = run.expect("a job");
        let told = |task: usize| waiting(&run, &format!("train-{task}"), "Queuing", "m");
        let mut events: Vec<Event> = (0..20_000).map(told).collect();
        let began = std::time::Instant::now();
        add_told(&mut events, (10_000..30_000).chain(29_000..30_000).map(told));
        assert_eq!(events, (0..30_000).map(told).collect::<Vec<_>>());
        // Each compared with each takes minutes.
        assert!(began.elapsed().as_secs() < 30);
    }
}
