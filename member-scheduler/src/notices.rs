//! Events about pods and queues: low priority, and dropped under load.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::api::{PostParams, Request};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};

use crate::context::Context;
use crate::scheduler::binding::Binding;
use fleet_agent_ground::{CallError, call};
use fleet_member_state::PodKey;

/// Most events that wait; more are dropped.
const CAPACITY: usize = 256;
/// Most concurrent event writes; few, so that they do not compete with bindings.
const AT_ONCE: usize = 2;

/// An event waits while more bindings than this are in flight, but not for long.
const URGENT_BESIDE: usize = 8;
const PATIENCE: Duration = Duration::from_millis(500);

const POD: (&str, &str) = ("v1", "Pod");
const QUEUE: (&str, &str) = ("scheduling.volcano.sh/v1beta1", "Queue");

/// An event to write.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// `apiVersion` and kind of its object.
    object: (&'static str, &'static str),
    /// For a cluster-scoped object: the namespace of its events.
    pod: PodKey,
    uid: String,
    source: String,
    kind: &'static str,
    reason: &'static str,
    message: String,
}

impl Notice {
    pub fn scheduled(binding: &Binding) -> Self {
        let PodKey { namespace, name } = &binding.pod;
        Self {
            object: POD,
            pod: binding.pod.clone(),
            uid: binding.uid.clone(),
            source: binding.scheduler_name.clone(),
            kind: "Normal",
            reason: "Scheduled",
            message: format!("Successfully assigned {namespace}/{name} to {}", binding.node),
        }
    }

    pub fn failed_scheduling(pod: &PodKey, uid: &str, source: &str, message: &str) -> Self {
        Self {
            object: POD,
            pod: pod.clone(),
            uid: uid.to_owned(),
            source: source.to_owned(),
            kind: "Warning",
            reason: "FailedScheduling",
            message: message.to_owned(),
        }
    }

    /// An event about a Command that cannot be carried out on a queue.
    pub fn queue(name: &str, uid: &str, message: &str) -> Self {
        Self {
            object: QUEUE,
            pod: PodKey { namespace: "default".to_owned(), name: name.to_owned() },
            uid: uid.to_owned(),
            source: "fleet".to_owned(),
            kind: "Warning",
            reason: "CommandRefused",
            message: message.to_owned(),
        }
    }

    fn body(&self, now: Timestamp, number: u64) -> Value {
        let seconds = format!("{now:.0}");
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                // Names as client-go builds them: the object's name and an increasing number.
                "name": format!("{}.{:x}{number:x}", self.pod.name, now.as_microsecond()),
                "namespace": self.pod.namespace,
            },
            "involvedObject": {
                "apiVersion": self.object.0,
                "kind": self.object.1,
                "name": self.pod.name,
                "namespace": if self.object == POD { self.pod.namespace.as_str() } else { "" },
                "uid": self.uid,
            },
            "type": self.kind,
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.source},
            "reportingComponent": self.source,
            "reportingInstance": "",
            "firstTimestamp": seconds,
            "lastTimestamp": seconds,
            "count": 1,
        })
    }
}

/// Handle for sending events.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    sender: mpsc::Sender<Notice>,
}

impl Notices {
    pub fn new() -> (Self, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender }, receiver)
    }

    /// Never blocks.
    pub fn send(&self, notice: Notice) {
        let _ = self.sender.try_send(notice);
    }
}

/// Writes events to the member until the agent stops.
pub(crate) async fn run(context: Arc<Context>, mut notices: mpsc::Receiver<Notice>) {
    let mut writes = JoinSet::new();
    let mut number = 0_u64;
    while let Some(Some(notice)) = context.shutdown.run_until_cancelled(notices.recv()).await {
        context.urgent.let_pass(URGENT_BESIDE, PATIENCE).await;
        if writes.len() >= AT_ONCE {
            writes.join_next().await;
        }
        number += 1;
        let context = context.clone();
        writes.spawn(async move {
            if let Err(error) = write(&context, &notice, number).await {
                tracing::debug!(pod = %notice.pod.name, reason = notice.reason, %error, "event not written");
            }
        });
    }
}

async fn write(context: &Context, notice: &Notice, number: u64) -> Result<(), CallError> {
    let body = notice.body(context.clock.now(), number).to_string().into_bytes();
    let path = format!("/api/v1/namespaces/{}/events", notice.pod.namespace);
    let request =
        Request::new(path).create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
    call(context.member.client.request_text(request)).await.map(drop)
}
