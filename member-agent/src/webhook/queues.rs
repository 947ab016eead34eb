//! The queues of the member, as far as a refusal needs them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_scheduler::{
    Cluster, Config, Policy, QueueInput, QueueState,
    queue::{DEFAULT_QUEUE, ROOT_QUEUE},
};
use kube::Client;

use crate::{
    CallError,
    core_groups::{queues, read_queue},
    jobs::{Object, writes},
    reconcile::Change,
};

pub(super) struct Queues {
    client: Client,
    /// Queues alone; the scheduler's own rules say what is wrong with one.
    seen: Mutex<Cluster>,
}

impl Queues {
    pub fn new(client: Client) -> Self {
        // The built-in configuration has no argument that could be wrong.
        let policy = Policy::compile(&Config::default()).unwrap_or_else(|error| unreachable!("{error}"));
        Self { client, seen: Mutex::new(Cluster::new(policy)) }
    }

    fn seen(&self) -> MutexGuard<'_, Cluster> {
        // No code that can panic runs under the lock, so the state is whole even then.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change(&self, change: Change<Object>) {
        match change {
            Change::Applied(queue) => self.seen().put_queue(read_queue(&queue)),
            Change::Deleted(queue) => self.seen().remove_queue(queue.name()),
            Change::Listing | Change::Synced(_) => {}
        }
    }

    /// What was found where the name of a queue for new work stands, and what is allowed; `None` when it will do.
    ///
    /// # Errors
    /// The member's API server did not say whether the queue is there.
    pub async fn refuse_work(&self, name: &str) -> Result<Option<String>, CallError> {
        if name == ROOT_QUEUE {
            return Ok(Some(format!("found {ROOT_QUEUE}; allowed: a queue below it")));
        }
        let (state, above) = {
            let seen = self.seen();
            let queue = seen.find_queue(name).map(|id| seen.queue(id)).filter(|queue| queue.known);
            let has_known = |id: &u32| seen.queue(*id).known;
            (
                queue.map(|queue| queue.input.state),
                queue
                    .and_then(|queue| queue.children.iter().copied().find(has_known))
                    .map(|id| seen.queue(id).input.name.clone()),
            )
        };
        if let Some(child) = above {
            return Ok(Some(format!(
                "found {name}, which has queues below it ({child}); allowed: a queue without any"
            )));
        }
        // Made or opened a moment ago, it may not have been seen so yet.
        let state = match state {
            Some(QueueState::Open) => return Ok(None),
            _ => {
                let found: Option<Object> = writes::get(&self.client, &queues(), "", name).await?;
                found.map(|queue| read_queue(&queue).state)
            }
        };
        Ok(match state {
            Some(QueueState::Open) => None,
            // The agent makes it in every member.
            None if name == DEFAULT_QUEUE => None,
            Some(state) => {
                Some(format!("found {name}, which is {}; allowed: a queue that is Open", state.as_str()))
            }
            None => Some(format!("found {name}, which does not exist; allowed: a queue that is Open")),
        })
    }

    /// What is wrong with a queue where it is to stand, with its field.
    pub fn refuse_queue(&self, queue: &Object) -> Option<String> {
        let mut seen = self.seen();
        let known = seen.find_queue(queue.name()).map(|id| seen.queue(id));
        let before = known.filter(|queue| queue.known).map(|queue| queue.input.clone());
        seen.put_queue(read_queue(queue));
        let problem = seen.find_queue(queue.name()).and_then(|id| seen.queue_problem(id));
        match before {
            Some(before) => seen.put_queue(before),
            None => {
                // Its place among the others is forgotten, too.
                seen.put_queue(QueueInput::named(queue.name()));
                seen.remove_queue(queue.name());
            }
        }
        problem
    }

    /// Why a queue may not go.
    pub fn refuse_end(&self, name: &str) -> Option<String> {
        if name == ROOT_QUEUE || name == DEFAULT_QUEUE {
            return Some(format!(
                "it always stands; allowed: to delete other queues than {DEFAULT_QUEUE} and {ROOT_QUEUE}"
            ));
        }
        let seen = self.seen();
        let queue = seen.queue(seen.find_queue(name)?);
        let child = queue.children.iter().map(|id| seen.queue(*id)).find(|child| child.known)?;
        Some(format!("found the queue {} below it; allowed: to delete a queue without any", child.input.name))
    }
}
