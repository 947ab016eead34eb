//! Pods that a listing left in doubt: told of while it was on its way, and not named by it. They were made after it was
//! taken, or were gone before, which no watch will show; the API server is asked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use kube::Api;
use tokio::sync::Notify;

use super::{
    driver::Driver,
    objects::{Pod, resource},
};
use crate::{call, clock::Backoff, reconcile::ObjectKey};

/// Pods in doubt by key, each with the uid under which it is known.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    pods: Mutex<BTreeMap<ObjectKey, String>>,
    more: Notify,
}

impl Doubts {
    pub fn add(&self, pods: impl IntoIterator<Item = (ObjectKey, String)>) {
        let mut known = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.len();
        known.extend(pods);
        if known.len() > before {
            self.more.notify_one();
        }
    }

    async fn next(&self) -> (ObjectKey, String) {
        loop {
            let first = self.pods.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            match first {
                Some(doubt) => return doubt,
                None => self.more.notified().await,
            }
        }
    }
}

/// Asks for one after the other, for as long as it is not dropped.
pub(super) async fn settle(driver: &Driver) {
    let mut backoff = Backoff::new(&driver.watch_name("doubts"));
    loop {
        let (key, uid) = driver.doubts.next().await;
        let (namespace, name) = &key;
        let pods: Api<Pod> =
            Api::namespaced_with(driver.client.clone(), namespace, &resource("", "v1", "Pod", "pods"));
        match call(pods.get_opt(name)).await {
            Ok(found) => {
                backoff.reset();
                if found.is_none_or(|found| found.uid() != uid) {
                    driver.pod_is_gone(&key, &uid);
                }
            }
            Err(error) => {
                tracing::debug!(namespace, name, %error, "cannot ask for a pod");
                driver.doubts.add([(key, uid)]);
                backoff.wait().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc, time::Duration};

    use serde_json::json;

    use super::*;
    use crate::{clock::Clock, fixture::Fixture};

    #[tokio::test]
    async fn a_pod_that_went_while_a_listing_was_on_its_way_is_found_out() {
        let fixture = Fixture::new(&[]).await;
        fixture.create_pod("stands", "1", json!({})).await;
        let stands = fixture.of_member("pods").get("stands").await.unwrap().metadata.uid.unwrap();
        let driver = Driver::new(fixture.member.clone(), "east", Vec::new(), Clock::start(), None, None);
        let owner = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": "job",
            "controller": true});
        let pod = |name: &str, uid: &str| -> Arc<Pod> {
            let pod = json!({"metadata": {"namespace": "default", "name": name, "uid": uid, "ownerReferences": [owner]}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let key = |name: &str| ("default".to_owned(), name.to_owned());
        let listed = BTreeSet::from([key("listed")]);
        let doubtful = {
            let mut state = driver.state();
            // Known before the listing: that it is not named says enough.
            state.put_pod(pod("older", "1"));
            state.begin_listing_pods();
            state.put_pod(pod("listed", "2"));
            state.put_pod(pod("stands", &stands));
            state.put_pod(pod("went", "3"));
            state.doubtful_pods(&listed)
        };
        assert_eq!(doubtful, [(key("stands"), stands.clone()), (key("went"), "3".to_owned())]);
        driver.doubts.add(doubtful);
        let settled = tokio::time::timeout(Duration::from_secs(10), async {
            // Asked for in the order of their names.
            let asked = async {
                while driver.state().pod(&key("went"), "3").is_some() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = settle(&driver) => {}
                () = asked => {}
            }
        });
        settled.await.expect("the server was asked");
        assert!(driver.state().pod(&key("stands"), &stands).is_some());
    }
}
