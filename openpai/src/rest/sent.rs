//! A job with all of its tasks as a body that is made while it is sent: that of the largest job has tens of megabytes, and
//! as a whole its tasks take ten times as much.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::jobs::{Notes, Run, Shown};

/// Bytes after which what is made is sent.
const PIECE: usize = 64 * 1024;
/// Pieces that wait for the network.
const PIECES: usize = 2;

/// An attempt of a job, which is there.
pub fn job(runs: Vec<Run>, number: Option<usize>, notes: Notes) -> Response {
    let (sender, mut receiver) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        // It ends early when nobody receives it any more.
        send(&runs, number, &notes, &sender).await;
    });
    let pieces = futures::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|piece| piece.map(Ok::<Bytes, Infallible>))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}

/// What is made and not sent yet.
struct Piece<'s> {
    text: Vec<u8>,
    sender: &'s mpsc::Sender<Bytes>,
}

impl Piece<'_> {
    fn add(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn add_value(&mut self, value: &Value) -> Option<()> {
        serde_json::to_writer(&mut self.text, value).ok()
    }

    /// Sends it if there is as much; `None` if nobody receives it.
    async fn send(&mut self, at_least: usize) -> Option<()> {
        if self.text.len() < at_least {
            return Some(());
        }
        self.sender.send(std::mem::take(&mut self.text).into()).await.ok()
    }
}

async fn send(
    runs: &[Run],
    number: Option<usize>,
    notes: &Notes,
    sender: &mpsc::Sender<Bytes>,
) -> Option<()> {
    let shown = Shown::of(runs, number).ok()?;
    let mut piece = Piece { text: Vec::new(), sender };
    let mut job = shown.job();
    notes.add_to_job(&mut job);
    piece.add("{");
    for (name, value) in job.as_object()?.iter().filter(|(name, _)| *name != "taskRoles") {
        piece.add_value(&json!(name))?;
        piece.add(":");
        piece.add_value(value)?;
        piece.add(",");
    }
    piece.add("\"taskRoles\":{");
    for (place, (role, rule)) in shown.roles().into_iter().enumerate() {
        piece.add(if place > 0 { "," } else { "" });
        piece.add_value(&json!(role))?;
        piece.add(":{\"taskRoleStatus\":");
        piece.add_value(&json!({"name": role}))?;
        piece.add(",\"taskStatuses\":[");
        for (index, mut task) in shown.tasks(rule) {
            notes.add_to_task(&rule.task, index, &mut task);
            piece.add(if index > 0 { "," } else { "" });
            piece.add_value(&task)?;
            piece.send(PIECE).await?;
        }
        piece.add("]}");
    }
    piece.add("}}");
    piece.send(0).await
}

#[cfg(test)]
mod tests {
    use fleet_pai::names;
    use http_body_util::BodyExt;

    use super::*;
    use crate::jobs;

    fn run(roles: &[(&str, i64)]) -> Run {
        let role = |(role, instances): &(&str, i64)| {
            json!({"role": role, "task": role, "instances": instances, "minFailed": 1, "minSucceeded": 1,
                "taskRetry": {"fancy": true, "max": 0}})
        };
        let rules = json!({"roles": roles.iter().map(role).collect::<Vec<_>>(),
            "jobRetry": {"fancy": true, "max": 0}});
        let object = json!({"metadata": {"name": "alice-j", "namespace": "ns",
                "annotations": {names::ID_ANNOTATION: "alice~j", names::RULES_ANNOTATION: rules.to_string()}},
            "status": {"state": {"phase": "Running"}, "taskStatusCount": {"a": {"phase": {"Running": 2}}}}});
        Run::of(object, Some(json!({"spec": {"clusters": [{"name": "east"}]}}))).expect("a job")
    }

    #[tokio::test]
    async fn a_job_is_sent_as_it_would_be_made_as_a_whole() {
        let none: &[(&str, i64)] = &[];
        for roles in [none, &[("a", 3)][..], &[("b", 0), ("a", 3), ("c", 1)][..], &[("a", 1_000)][..]] {
            let run = run(roles);
            let whole = jobs::detail(&run, jobs::tasks_of_counts(&run));
            let answer = job(vec![run], None, Notes::default());
            assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(serde_json::from_slice::<Value>(&body).expect("JSON"), whole, "{roles:?}");
        }
    }

    /// The tasks of the largest job are never in memory at once, however slowly they are received.
    #[tokio::test]
    async fn the_largest_job_is_made_piece_by_piece() {
        const TASKS: i64 = 100_000;
        let run = run(&[("a", TASKS)]);
        let (sender, mut receiver) = mpsc::channel::<Bytes>(PIECES);
        let (runs, notes) = ([run], Notes::default());
        let received = async {
            let (mut bytes, mut largest, mut waiting) = (0, 0, 0);
            while let Some(piece) = receiver.recv().await {
                bytes += piece.len();
                largest = largest.max(piece.len());
                waiting = waiting.max(receiver.len());
                tokio::task::yield_now().await;
            }
            (bytes, largest, waiting)
        };
        let sending = async {
            let sent = send(&runs, None, &notes, &sender).await;
            drop(sender);
            sent
        };
        let ((bytes, largest, waiting), sent) = tokio::join!(received, sending);
        assert!(sent.is_some() && bytes > 100 * TASKS as usize, "{bytes} bytes");
        assert!(largest < PIECE + 4096 && waiting <= PIECES, "{largest} bytes, {waiting} pieces");
    }
}
