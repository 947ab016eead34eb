//! The watches of this crate: Works, pods, and the objects of the member that Fleet created.

use std::sync::Arc;

use fleet_agent_ground::{Backoff, Pod, Standing, follow, resource};
use fleet_api::Work;
use fleet_informer::{News, Selection};
use kube::{Api, api::DynamicObject, discovery::ApiResource};

use crate::{
    keys::{Key, KindId, ObjectId},
    marks::is_fenced_level,
    state::{State, owner_of},
    works::Works,
};

/// Kinds with a known plural. They are watched from the start, so leftovers of Works that were deleted while
/// the agent was away are found.
pub(crate) const KNOWN_KINDS: [(&str, &str, &str, &str); 12] = [
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org", "v1", "TFJob", "tfjobs"),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    ("batch", "v1", "Job", "jobs"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "Service", "services"),
];

impl Works {
    /// Reconciles Works once this agent speaks for the cluster and knows the closed epochs.
    pub async fn begin_with_hub(self: Arc<Self>) {
        let mut backoff = Backoff::new(&self.name("epochs"));
        loop {
            let loaded = async {
                self.handles.terms.load().await?;
                self.epochs.load().await
            };
            match loaded.await {
                Ok(epochs) => {
                    let mut state = self.state();
                    state.earlier_term = self.handles.terms.newest();
                    for (uid, epoch) in epochs {
                        state.see_epoch(&uid, epoch);
                    }
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the epochs kept in the member; retrying")
                }
            }
            backoff.wait().await;
        }
        self.handles.lease.renewed().await;
        self.handles.hub.source.begin().await;
        while let Err(error) = self.handles.terms.begin().await {
            tracing::warn!(%error, "cannot store the hub's incarnation in the member; retrying");
            backoff.wait().await;
        }
        self.watch_hub();
    }

    fn watch_hub(self: &Arc<Self>) {
        let works = self.clone();
        let feed = self.handles.hub.feed(self.hub.clone(), Selection::default(), "works/works");
        let following = follow(feed, self.shutdown.clone(), move |change| works.work_changed(change));
        self.watches().spawn(following);
    }

    pub fn watch_pods(self: &Arc<Self>) {
        let works = self.clone();
        let api: Api<Pod> =
            Api::all_with(self.handles.member.client.clone(), &resource("", "v1", "Pod", "pods"));
        let feed = self.handles.member.feed(api, Selection::default(), "works/pods");
        let following = follow(feed, self.shutdown.clone(), move |change| works.pod_changed(change));
        self.watches().spawn(following);
    }

    /// Starts the watch of the objects of a kind that Fleet created, once.
    pub fn watch_kind(self: &Arc<Self>, resource: ApiResource) {
        let kind = KindId::of(&resource);
        if !self.state().add_kind(kind.clone(), resource.clone()) {
            return;
        }
        let works = self.clone();
        let api: Api<DynamicObject> = Api::all_with(self.handles.member.client.clone(), &resource);
        let selection = Selection::labels(&format!("{}=true", fleet_api::names::MANAGED_LABEL));
        let name = format!("works/{}.{}", resource.plural, resource.group);
        let feed = self.handles.member.feed(api, selection, &name);
        let on_change = move |change| works.object_changed(&kind, change);
        self.watches().spawn(follow(feed, self.shutdown.clone(), on_change));
    }

    /// Reports to the hub, with the next lease renewal, once every run here has a Work.
    fn note_sorted(&self, state: &mut State) {
        if !state.is_sorted && state.is_sorted_out() {
            state.is_sorted = true;
            self.handles.sorted.note();
        }
    }

    fn work_changed(&self, news: News<Work>) {
        let News::Change(change) = news else { return };
        let keys = {
            let mut state = self.state();
            let epoch = state.epoch_of_works();
            let keys = state.take_works(change);
            if state.epoch_of_works() != epoch {
                self.handles.hub.source.went_back("a Work went back");
            }
            self.note_sorted(&mut state);
            keys
        };
        self.add(keys);
    }

    fn pod_changed(&self, news: News<Pod>) {
        let News::Change(change) = news else { return };
        let (is_listing, is_cut_off) =
            (change.is_listing(), self.handles.lease.standing() == Standing::CutOff);
        // Whoever deleted them, they are to end within the bound of this member.
        let longest_s = i64::try_from(self.settings.max_pod_grace.as_secs()).unwrap_or(i64::MAX);
        let outlasting = change.objects().iter().filter(|pod| pod.outlasts(longest_s)).filter_map(owner_of);
        let outlasting: Vec<ObjectId> = outlasting.collect();
        let keys = {
            let mut state = self.state();
            let (mut keys, owners) = state.take_pods(change);
            keys.extend(outlasting.iter().flat_map(|owner| state.works_of(owner)));
            for owner in owners {
                // Only a job that must not run, or that has ended, is reconciled because of its pods.
                if state.job_has_ended(&owner) {
                    keys.extend(state.interested(&owner));
                }
                keys.extend(is_cut_off.then_some(Key::Fence(owner)));
            }
            if is_listing {
                state.pods_synced = true;
                keys.extend(state.all_works());
                keys.extend(state.leftovers());
                keys.extend(state.fenced().into_iter().map(Key::Fence));
            }
            self.note_sorted(&mut state);
            keys
        };
        self.add(keys);
    }

    fn object_changed(&self, kind: &KindId, news: News<DynamicObject>) {
        let keys = {
            let mut state = self.state();
            let keys = match news {
                News::NotServed => {
                    state.set_unserved(kind);
                    Vec::new()
                }
                News::Change(change) => {
                    self.handles.owned.take(&kind.api_version, &kind.kind, &change);
                    let (mut keys, fresh) = state.take_objects(kind, change);
                    if self.handles.lease.standing() == Standing::CutOff {
                        let fenced = fresh.iter().filter(|object| is_fenced_level(object));
                        keys.extend(fenced.map(|object| Key::Fence(ObjectId::of_object(kind, object))));
                    }
                    keys
                }
            };
            self.note_sorted(&mut state);
            keys
        };
        self.add(keys);
    }
}
