//! The hollow form of the watchdog container: one watch of the member's lease for all hollow pods with the side
//! container, judged by the same rules as the real one.
//!
//! A pod with a watchdog starts once a renewal of the lease was observed, and is stopped when the lease
//! lapses. It has then failed, like a pod whose containers are killed.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet_watchdog::{
    ANSWER_TIMEOUT, CONTAINER, LEASE_NAME, LEASE_NAMESPACE, PERIOD,
    judge::{Judge, LeaseVerdict, Renewal},
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::Instant;

use super::pod::Pod;

/// Whether a pod has the side container.
pub fn is_watched(pod: &Pod) -> bool {
    pod.spec.init_containers.iter().any(|container| container.name == CONTAINER)
}

/// Survives a restart of the kubelet: the side containers keep running and remember what they have seen.
#[derive(Clone, Debug, Default)]
pub struct Containers(Arc<Mutex<Option<Seen>>>);

#[derive(Clone, Debug)]
struct Seen {
    started: Instant,
    judge: Judge,
}

impl Containers {
    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        // No code that can panic runs under the lock, so what it guards is whole even then.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Watchdog {
    leases: Api<Lease>,
    containers: Containers,
    seen: Seen,
    /// There is a verdict from before the kubelet's restart that the new one has not handled.
    is_untold: bool,
    ask_at: Instant,
    asking: Option<BoxFuture<'static, (Duration, Option<Renewal>)>>,
}

impl Watchdog {
    /// Continues with the running containers, or starts with the first.
    pub fn new(client: &Client, containers: &Containers) -> Self {
        let now = Instant::now();
        let running = containers.seen().clone();
        let is_untold = running.is_some();
        let seen = running.unwrap_or_else(|| Seen { started: now, judge: Judge::new(Duration::ZERO) });
        Self {
            leases: Api::namespaced(client.clone(), LEASE_NAMESPACE),
            containers: containers.clone(),
            seen,
            is_untold,
            ask_at: now,
            asking: None,
        }
    }

    pub fn verdict(&mut self) -> LeaseVerdict {
        let verdict = self.seen.judge.verdict(self.seen.started.elapsed());
        *self.containers.seen() = Some(self.seen.clone());
        verdict
    }

    /// The last container has ended.
    pub fn end(self) {
        *self.containers.seen() = None;
    }

    /// Waits for the next answer, or until the verdict may change by itself. Cancel-safe.
    /// it is dropped.
    pub async fn next(&mut self) {
        if std::mem::take(&mut self.is_untold) {
            return;
        }
        let change = self.seen.judge.next_change();
        let change_at = self.seen.started.checked_add(change).filter(|at| *at > Instant::now());
        let asking = match &mut self.asking {
            Some(asking) => asking,
            None => {
                let waiting = change_at.map_or(self.ask_at, |change| change.min(self.ask_at));
                tokio::time::sleep_until(waiting).await;
                if Instant::now() < self.ask_at {
                    return;
                }
                self.ask_at = Instant::now() + PERIOD;
                self.asking.insert(ask(self.leases.clone(), self.seen.started.elapsed()))
            }
        };
        let lapse = async {
            match change_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => futures::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (asked, renewal) = asking => {
                self.asking = None;
                if let Some(renewal) = renewal {
                    self.seen.judge.read(asked, renewal);
                }
            }
            () = lapse => {}
        }
    }
}

fn ask(leases: Api<Lease>, asked: Duration) -> BoxFuture<'static, (Duration, Option<Renewal>)> {
    async move {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, leases.get(LEASE_NAME)).await;
        (asked, answer.ok().and_then(Result::ok).and_then(|lease| renewal(&lease)))
    }
    .boxed()
}

fn renewal(lease: &Lease) -> Option<Renewal> {
    let spec = lease.spec.as_ref()?;
    let seconds = u64::try_from(spec.lease_duration_seconds?).ok()?;
    Some(Renewal { mark: spec.renew_time.as_ref()?.0.to_string(), duration: Duration::from_secs(seconds) })
}
