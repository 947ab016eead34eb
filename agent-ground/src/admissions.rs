//! Admission of Volcano Jobs to their queues: the scheduler decides, the job controller reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// Admitted, or why not.
pub type AdmissionVerdict = Result<(), String>;

#[derive(Clone, Debug, Default)]
pub struct Admissions {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    verdicts: Mutex<(BTreeMap<String, AdmissionVerdict>, BTreeSet<String>)>,
    changed: Notify,
}

impl Admissions {
    /// Sets the scheduler's verdict on the job with this uid; `None` removes it.
    pub fn set(&self, job: &str, verdict: Option<AdmissionVerdict>) {
        // Nothing under the lock can panic.
        let mut inner = self.inner.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let (verdicts, changed) = &mut *inner;
        if verdicts.get(job) == verdict.as_ref() {
            return;
        }
        match verdict {
            Some(verdict) => drop(verdicts.insert(job.to_owned(), verdict)),
            None => drop(verdicts.remove(job)),
        }
        changed.insert(job.to_owned());
        self.inner.changed.notify_one();
    }

    /// The current verdict; `None` before the first.
    pub fn get(&self, job: &str) -> Option<AdmissionVerdict> {
        self.inner.verdicts.lock().unwrap_or_else(PoisonError::into_inner).0.get(job).cloned()
    }

    /// Waits for changes and returns the jobs concerned.
    pub async fn changed(&self) -> BTreeSet<String> {
        loop {
            let news =
                std::mem::take(&mut self.inner.verdicts.lock().unwrap_or_else(PoisonError::into_inner).1);
            if !news.is_empty() {
                return news;
            }
            self.inner.changed.notified().await;
        }
    }
}
