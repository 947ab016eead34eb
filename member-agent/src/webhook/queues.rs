//! The queues of the member, as far as reviews need them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use fleet_scheduler::{
    Cluster, Config, Policy, QueueInput, QueueState,
    queue::{DEFAULT_QUEUE, Queue, ROOT_QUEUE},
};
use kube::Client;

use fleet_agent_ground::{CallError, Object, Shown, requests as writes, volcano::queues};
use fleet_member_scheduler::read_queue;

/// Most queues read to answer one review.
const MOST_ASKED: usize = 16;

/// A reason to refuse, and the queue that causes it.
struct Objection {
    by: String,
    why: String,
}

pub(super) struct Queues {
    client: Client,
    /// Only queues; the scheduler's own rules validate them.
    seen: Mutex<Cluster>,
}

impl Queues {
    pub fn new(client: Client) -> Self {
        // The built-in configuration has no invalid argument.
        let policy = Policy::compile(&Config::default()).unwrap_or_else(|error| unreachable!("{error}"));
        Self { client, seen: Mutex::new(Cluster::new(policy)) }
    }

    fn seen(&self) -> MutexGuard<'_, Cluster> {
        // No code that can panic runs under the lock, so the state is consistent even then.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change(&self, change: Shown<Object>) {
        match change {
            Shown::Applied(queue) => self.seen().put_queue(read_queue(&queue)),
            Shown::Deleted(queue) => self.seen().remove_queue(queue.name()),
            Shown::Synced => {}
        }
    }

    /// Validates the queue that a new object names: what was found and what is allowed; `None` if it is
    /// valid.
    ///
    /// # Errors
    /// The member's API server did not answer.
    pub async fn refuse_work(&self, name: &str) -> Result<Option<String>, CallError> {
        if name == ROOT_QUEUE {
            return Ok(Some(format!("found {ROOT_QUEUE}; allowed: a queue below it")));
        }
        self.ask_before_refusing(|seen| {
            let against = |by: &str, why: String| Some(Objection { by: by.to_owned(), why });
            let Some(queue) = known(seen, name) else {
                // The agent creates it in every member.
                let always_stands = name == DEFAULT_QUEUE;
                let why = format!("found {name}, which does not exist; allowed: a queue that is Open");
                return against(name, why).filter(|_| !always_stands);
            };
            if let Some(child) = child(seen, name) {
                let why = format!(
                    "found {name}, which has queues below it ({child}); allowed: a queue without any"
                );
                return against(child, why);
            }
            let state = queue.input.state;
            let why = format!("found {name}, which is {}; allowed: a queue that is Open", state.as_str());
            against(name, why).filter(|_| state != QueueState::Open)
        })
        .await
    }

    /// Validates the place of a queue in the tree: the mistake with its field.
    ///
    /// # Errors
    /// The member's API server did not answer.
    pub async fn refuse_queue(&self, queue: &Object) -> Result<Option<String>, CallError> {
        let wanted = read_queue(queue);
        let above = wanted.parent.as_deref().unwrap_or(ROOT_QUEUE).to_owned();
        self.ask_before_refusing(|seen| {
            let before = known(seen, &wanted.name).map(|queue| queue.input.clone());
            let wrong_before = problems_below(seen, &wanted.name);
            seen.put_queue(wanted.clone());
            let own = seen.find_queue(&wanted.name).and_then(|id| seen.queue_problem(id));
            let own = own.map(|why| Objection { by: above.clone(), why });
            // A smaller queue may leave too little for those below it.
            let mut below = problems_below(seen, &wanted.name).into_iter();
            let problem = own.or_else(|| {
                let (by, why) = below.find(|(name, _)| !wrong_before.contains_key(name))?;
                let why = format!("with it queue {by}, {why}");
                Some(Objection { by, why })
            });
            match before {
                Some(before) => seen.put_queue(before),
                None => {
                    // Its place among the others is removed, too.
                    seen.put_queue(QueueInput::named(&wanted.name));
                    seen.remove_queue(&wanted.name);
                }
            }
            problem
        })
        .await
    }

    /// Why a queue must not be deleted.
    ///
    /// # Errors
    /// The member's API server did not answer.
    pub async fn refuse_end(&self, name: &str) -> Result<Option<String>, CallError> {
        if name == ROOT_QUEUE || name == DEFAULT_QUEUE {
            return Ok(Some(format!(
                "it always exists; allowed: to delete other queues than {DEFAULT_QUEUE} and {ROOT_QUEUE}"
            )));
        }
        self.ask_before_refusing(|seen| {
            let child = child(seen, name)?;
            let why = format!("found the queue {child} below it; allowed: to delete a queue without any");
            Some(Objection { by: child.to_owned(), why })
        })
        .await
    }

    /// Judges by the cached queues. Objects that were changed a moment ago, for example by the same file, may
    /// not be in the cache yet, so the queue that causes an objection is read before a request is refused.
    async fn ask_before_refusing(
        &self,
        judge: impl Fn(&mut Cluster) -> Option<Objection>,
    ) -> Result<Option<String>, CallError> {
        let mut asked: BTreeSet<String> = BTreeSet::new();
        loop {
            let Some(Objection { by, why }) = judge(&mut self.seen()) else { return Ok(None) };
            if asked.len() == MOST_ASKED || !asked.insert(by.clone()) {
                return Ok(Some(why));
            }
            match writes::get::<Object>(&self.client, &queues(), "", &by).await? {
                Some(queue) => self.seen().put_queue(read_queue(&queue)),
                None => self.seen().remove_queue(&by),
            }
        }
    }
}

fn known<'c>(seen: &'c Cluster, name: &str) -> Option<&'c Queue> {
    seen.find_queue(name).map(|id| seen.queue(id)).filter(|queue| queue.known)
}

/// Invalid queues below the named one, by name.
fn problems_below(seen: &Cluster, name: &str) -> BTreeMap<String, String> {
    let Some(id) = seen.find_queue(name) else { return BTreeMap::new() };
    let below = seen.queue_ids().filter(|other| seen.queue(*other).ancestors.contains(&id));
    let known = below.filter(|other| seen.queue(*other).known);
    known
        .filter_map(|other| Some((seen.queue(other).input.name.to_string(), seen.queue_problem(other)?)))
        .collect()
}

/// A queue directly below the named one.
fn child<'c>(seen: &'c Cluster, name: &str) -> Option<&'c str> {
    let mut below = known(seen, name)?.children.iter().map(|id| seen.queue(*id));
    below.find(|child| child.known).map(|child| &*child.input.name)
}
