//! Commands for queues (`bus.volcano.sh`): open or close a queue with the queues below it.
//!
//! A Command is deleted once its effect is written, so a restart in between repeats it; it is idempotent. A
//! Command that cannot be carried out is reported by an event on the queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fleet_scheduler::{Cluster, QueueId, QueueState, queue::ROOT_QUEUE};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    context::Context,
    notices::{Notice, Notices},
};
use fleet_agent_ground::{
    CallError, Event, Object, requests as writes,
    volcano::{commands, is_for_queue, queues},
};
use fleet_member_state::MemberState;

/// Annotation on queues that were closed together with a parent.
pub(crate) const CLOSED_BY_PARENT: &str = "volcano.sh/closed-by-parent";
/// Back-off after a Command could not be carried out.
const AGAIN: Duration = Duration::from_secs(1);
/// Most Commands carried out concurrently.
const AT_ONCE: usize = 4;

type Key = (String, String);

/// Waiting Commands.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    waiting: BTreeMap<Key, Arc<Object>>,
    busy: BTreeSet<Key>,
    /// Earliest time.
    at: Option<Instant>,
    /// Queues that were closed together with a parent.
    pub closed_by_parent: BTreeSet<String>,
}

/// One Command and its writes.
pub(crate) struct CommandWrite {
    command: Arc<Object>,
    steps: Result<Vec<Step>, String>,
}

#[derive(Debug)]
pub(crate) struct Done {
    key: Key,
    carried_out: bool,
}

/// A queue's new state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    queue: String,
    state: QueueState,
    /// New value of the queue's annotation about its parent, if it changes.
    by_parent: Option<bool>,
}

impl Commands {
    pub fn change(&mut self, told: Event<Object>) {
        match told {
            Event::Apply(command) if is_for_queue(&command) && !command.is_deleting() => {
                self.waiting.insert(key(&command), Arc::new(command));
            }
            Event::Apply(_) => {}
            Event::Gone(key) => drop(self.waiting.remove(&key)),
            Event::Listed => {}
        }
    }

    pub fn next_look(&self) -> Option<Instant> {
        self.at
    }

    /// Commands whose writes may start now.
    pub fn due(&mut self, state: &MemberState, now: Instant) -> Vec<CommandWrite> {
        if self.at.is_some_and(|at| at > now) {
            return Vec::new();
        }
        self.at = None;
        let free = AT_ONCE.saturating_sub(self.busy.len());
        let ready: Vec<(Key, Arc<Object>)> = self
            .waiting
            .iter()
            .filter(|(key, _)| !self.busy.contains(*key))
            .take(free)
            .map(|(key, command)| (key.clone(), command.clone()))
            .collect();
        ready
            .into_iter()
            .map(|(key, command)| {
                self.busy.insert(key);
                let queue = command.rest["target"]["name"].as_str().unwrap_or_default();
                let action = command.rest["action"].as_str().unwrap_or_default();
                let steps = steps(&state.cluster, queue, action, &self.closed_by_parent);
                CommandWrite { command, steps }
            })
            .collect()
    }

    pub fn done(&mut self, done: Done, now: Instant) {
        self.busy.remove(&done.key);
        if done.carried_out {
            self.waiting.remove(&done.key);
        } else {
            self.at = Some(now + AGAIN);
        }
    }
}

fn key(command: &Object) -> Key {
    (command.namespace().to_owned(), command.name().to_owned())
}

/// The new states of an action, or why it cannot be carried out.
fn steps(
    cluster: &Cluster,
    queue: &str,
    action: &str,
    closed_by_parent: &BTreeSet<String>,
) -> Result<Vec<Step>, String> {
    let id = cluster.find_queue(queue).filter(|id| cluster.queue(*id).known);
    let id = id.ok_or_else(|| format!("queue {queue} does not exist"))?;
    let below = cluster
        .queue_ids()
        .filter(|other| cluster.queue(*other).known && cluster.queue(*other).ancestors.contains(&id));
    let name = |id: QueueId| cluster.queue(id).input.name.to_string();
    match action {
        "CloseQueue" if queue == ROOT_QUEUE => {
            Err(format!("queue {ROOT_QUEUE} cannot be closed; allowed: the queues below it"))
        }
        "CloseQueue" => {
            let closed = |id: QueueId| {
                let empty =
                    cluster.queue(id).groups.iter().all(|group| cluster.group(*group).pods.is_empty());
                if empty { QueueState::Closed } else { QueueState::Closing }
            };
            let open = below.filter(|id| cluster.queue(*id).input.state == QueueState::Open);
            let own = (cluster.queue(id).input.state == QueueState::Open).then(|| Step {
                queue: queue.to_owned(),
                state: closed(id),
                by_parent: None,
            });
            let others = open.map(|id| Step { queue: name(id), state: closed(id), by_parent: Some(true) });
            Ok(own.into_iter().chain(others).collect())
        }
        "OpenQueue" => {
            if let Some(parent) = cluster.queue(id).parent
                && cluster.queue(parent).input.state != QueueState::Open
            {
                return Err(format!(
                    "queue {queue} cannot be opened: queue {} above it is {}; allowed: below queues that are Open",
                    name(parent),
                    cluster.queue(parent).input.state.as_str()
                ));
            }
            let step = |queue: String| Step {
                by_parent: closed_by_parent.contains(&queue).then_some(false),
                queue,
                state: QueueState::Open,
            };
            let marked = below.map(name).filter(|name| closed_by_parent.contains(name));
            Ok(std::iter::once(queue.to_owned()).chain(marked).map(step).collect())
        }
        other => Err(format!("action: found {other:?} for queue {queue}; allowed: OpenQueue, CloseQueue")),
    }
}

impl CommandWrite {
    pub async fn perform(self, context: Arc<Context>, notices: Notices) -> Done {
        let key = key(&self.command);
        let carried_out = match self.carry_out(&context, &notices).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(command = key.1, %error, "a command for a queue could not be carried out; retrying");
                false
            }
        };
        Done { key, carried_out }
    }

    async fn carry_out(&self, context: &Context, notices: &Notices) -> Result<(), CallError> {
        let target = &self.command.rest["target"];
        let uid = target["uid"].as_str().unwrap_or_default();
        match &self.steps {
            Ok(steps) => {
                for step in steps {
                    set(context, step).await?;
                }
            }
            Err(why) => {
                let queue = target["name"].as_str().unwrap_or_default();
                notices.send(Notice::queue(queue, uid, why));
            }
        }
        let (namespace, name) = (self.command.namespace(), self.command.name());
        writes::delete(&context.member.client, &commands(), namespace, name, self.command.uid()).await
    }
}

async fn set(context: &Context, step: &Step) -> Result<(), CallError> {
    let queues = queues();
    let mut queue = Object::default();
    queue.metadata.name = Some(step.queue.clone());
    if let Some(marked) = step.by_parent {
        let mark = marked.then_some("true");
        let patch = json!({"metadata": {"annotations": {CLOSED_BY_PARENT: mark}}});
        writes::patch(&context.member.client, &queues, &queue, None, &patch).await?;
    }
    let patch = json!({"status": {"state": step.state.as_str()}});
    writes::patch(&context.member.client, &queues, &queue, Some("status"), &patch).await.map(drop)
}

#[cfg(test)]
mod tests {
    use fleet_scheduler::{Config, Policy, QueueInput};

    use super::*;

    /// `name parent state`
    fn cluster(queues: &[&str]) -> Cluster {
        let mut cluster = Cluster::new(Policy::compile(&Config::default()).expect("a policy"));
        for text in queues {
            let words: Vec<&str> = text.split(' ').collect();
            let mut queue = QueueInput::named(words[0]);
            queue.parent = Some(words[1]).filter(|parent| *parent != "-").map(Into::into);
            queue.state = QueueState::read(words[2]);
            cluster.put_queue(queue);
        }
        cluster
    }

    fn said(cluster: &Cluster, queue: &str, action: &str, marked: &[&str]) -> String {
        let marked = marked.iter().map(ToString::to_string).collect();
        match steps(cluster, queue, action, &marked) {
            Err(why) => why,
            Ok(steps) => steps
                .iter()
                .map(|step| {
                    let mark = step.by_parent.map_or("", |marked| if marked { "+" } else { "-" });
                    format!("{}={}{mark}", step.queue, step.state.as_str())
                })
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    #[test]
    fn a_queue_closes_with_what_is_below_it_and_opens_what_it_closed() {
        let open = cluster(&["eng - Open", "dev eng Open", "old eng Closed"]);
        assert_eq!(said(&open, "eng", "CloseQueue", &[]), "eng=Closed dev=Closed+");
        assert_eq!(said(&open, "dev", "CloseQueue", &[]), "dev=Closed");
        let closed = cluster(&["eng - Closed", "dev eng Closed", "old eng Closed"]);
        assert_eq!(said(&closed, "eng", "CloseQueue", &[]), "");
        assert_eq!(said(&closed, "eng", "OpenQueue", &["dev"]), "eng=Open dev=Open-");
        assert!(said(&closed, "dev", "OpenQueue", &["dev"]).contains("queue eng above it is Closed"));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let queues = cluster(&["root - Open"]);
        assert!(said(&queues, "root", "CloseQueue", &[]).contains("root cannot be closed"));
        assert_eq!(said(&queues, "nobody", "CloseQueue", &[]), "queue nobody does not exist");
        assert!(said(&queues, "root", "AbortJob", &[]).contains("allowed: OpenQueue, CloseQueue"));
    }
}
