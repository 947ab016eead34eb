//! Watches and writes of Volcano's jobs besides jobs and pods: PodGroups, Queues, Commands and
//! PriorityClasses.

use std::sync::Arc;

use fleet_agent_ground::volcano::{commands, is_for_queue, pod_groups, queues};
use fleet_agent_ground::{CallError, Object, Pod, Shown, controller_of, requests as writes, resource, show};
use kube::Api;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    driver::Driver,
    plan::{JobPlan, volcano},
    state::Snapshot,
};

const ROOT_QUEUE: &str = "root";
/// Queues that exist in every member with Volcano's jobs.
const BUILT_IN_QUEUES: [&str; 2] = [ROOT_QUEUE, "default"];

impl Driver {
    /// Starts the watches and creates the built-in queues.
    pub(crate) fn follow_volcano(self: &Arc<Self>, watches: &mut JoinSet<()>, shutdown: &CancellationToken) {
        let driver = self;
        let all = |resource: &kube::discovery::ApiResource| {
            Api::<Object>::all_with(driver.client.clone(), resource)
        };
        let (on_change, feed) = (driver.clone(), driver.feed(all(&pod_groups()), "podgroups"));
        watches.spawn(show(feed, shutdown.clone(), move |change| on_change.pod_group_changed(change)));
        let (on_change, feed) = (driver.clone(), driver.feed(all(&queues()), "queues"));
        watches.spawn(show(feed, shutdown.clone(), move |change| on_change.queue_changed(change)));
        let (on_change, feed) = (driver.clone(), driver.feed(all(&commands()), "commands"));
        watches.spawn(show(feed, shutdown.clone(), move |change| on_change.command_changed(change)));
        let classes = resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
        let (on_change, feed) = (driver.clone(), driver.feed(all(&classes), "priorityclasses"));
        watches.spawn(show(feed, shutdown.clone(), move |change| {
            let (Shown::Applied(class) | Shown::Deleted(class)) = &change else { return };
            let name = class.name().to_owned();
            let mut state = on_change.state();
            if matches!(change, Shown::Applied(_)) {
                let value = class.rest["value"].as_i64().unwrap_or(0);
                state.volcano.priorities.insert(name, value);
            } else {
                state.volcano.priorities.remove(&name);
            }
        }));
    }

    fn pod_group_changed(&self, change: Shown<Object>) {
        let mut uids = Vec::new();
        {
            let mut state = self.state();
            match change {
                Shown::Applied(group) => {
                    let Some(owner) = controller_of(&group.metadata).map(|owner| owner.uid.clone()) else {
                        return;
                    };
                    state.volcano.put_group(&owner, group);
                    uids.push(owner);
                }
                Shown::Deleted(group) => {
                    let Some(owner) = controller_of(&group.metadata).map(|owner| owner.uid.clone()) else {
                        return;
                    };
                    let known = state.volcano.groups.get(&owner);
                    if known.is_some_and(|known| known.uid() == group.uid()) {
                        state.volcano.groups.remove(&owner);
                    }
                    uids.push(owner);
                }
                Shown::Synced => uids = state.uids(),
            }
        }
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn queue_changed(&self, change: Shown<Object>) {
        let mut state = self.state();
        match change {
            Shown::Applied(queue) => {
                state.volcano.queues.insert(queue.name().to_owned());
                let parent = queue.spec["parent"].as_str().unwrap_or_default();
                if parent.is_empty() && queue.name() != ROOT_QUEUE && !queue.is_deleting() {
                    tokio::spawn(write_parent(self.client.clone(), queue));
                }
            }
            Shown::Deleted(queue) => drop(state.volcano.queues.remove(queue.name())),
            Shown::Synced => {
                let known = &state.volcano.queues;
                let missing: Vec<&str> =
                    BUILT_IN_QUEUES.into_iter().filter(|name| !known.contains(*name)).collect();
                if !missing.is_empty() {
                    tokio::spawn(make_queues(self.client.clone(), missing));
                }
            }
        }
    }

    /// Whether the scheduler has admitted the job's group, or why not; no reason before its first verdict.
    fn gate(&self, job: &str) -> Result<(), String> {
        match &self.admissions {
            None => Ok(()),
            Some(admissions) => admissions.get(job).unwrap_or_else(|| Err(String::new())),
        }
    }

    fn command_changed(&self, change: Shown<Object>) {
        let (Shown::Applied(command) | Shown::Deleted(command)) = &change else { return };
        if is_for_queue(command) {
            return;
        }
        let Some(uid) = command.rest["target"]["uid"].as_str().map(str::to_owned) else { return };
        {
            let mut state = self.state();
            let of_job = state.volcano.commands.entry(uid.clone()).or_default();
            if matches!(change, Shown::Applied(_)) && !command.is_deleting() {
                let read = volcano::Command {
                    name: command.name().to_owned(),
                    uid: command.uid().to_owned(),
                    action: command.rest["action"].as_str().unwrap_or_default().to_owned(),
                };
                of_job.insert(read.name.clone(), read);
            } else {
                of_job.remove(command.name());
            }
            if of_job.is_empty() {
                state.volcano.commands.remove(&uid);
            }
        }
        self.queue.add(uid);
    }

    pub(crate) fn plan_volcano(
        &self,
        resource: &kube::discovery::ApiResource,
        snapshot: &Snapshot,
    ) -> JobPlan {
        let job = &*snapshot.job.object;
        // Volcano uses a random id per session; here it is derived from the job's version, so that runs can
        // be repeated.
        let seed = format!("{}/{}", job.uid(), job.metadata.resource_version.as_deref().unwrap_or_default());
        let session = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, seed.as_bytes()).to_string();
        let state = self.state();
        let group = state.volcano.groups.get(job.uid()).cloned();
        let command = state.volcano.commands.get(job.uid()).and_then(|all| all.values().next()).cloned();
        let gate = self.gate(job.uid());
        volcano::plan(&volcano::Input {
            resource,
            job,
            pods: &snapshot.pods,
            lost: &snapshot.lost,
            delayed: &snapshot.delayed,
            updated: snapshot.job.updated.is_some(),
            pod_group: group.as_deref(),
            command: command.as_ref(),
            gate: &gate,
            session: &session,
            priority_of: &|class| state.volcano.priorities.get(class).copied().unwrap_or(0),
            now: self.now(),
        })
    }

    /// Marks pods as deleted by the controller.
    pub(crate) async fn mark(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<(), CallError> {
        let pods = resource("", "v1", "Pod", "pods");
        let patch = json!({"metadata": {"annotations": {volcano::OUT_OF_SYNC: "true"}}});
        for pod in plan.mark.iter().filter_map(|name| snapshot.pods.get(name)) {
            let object = Object { metadata: pod.metadata.clone(), ..Object::default() };
            match writes::patch(&self.client, &pods, &object, None, &patch).await {
                Err(error) if error.is_not_found() => {}
                answer => drop(answer?),
            }
            let mut marked = Pod::clone(pod);
            let annotations = marked.metadata.annotations.get_or_insert_default();
            annotations.insert(volcano::OUT_OF_SYNC.to_owned(), "true".to_owned());
            self.state().amend_pod(marked);
        }
        Ok(())
    }

    /// Deletes the Command of the plan after its effect is written.
    pub(crate) async fn end_command(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<(), CallError> {
        let job = &snapshot.job.object;
        if !plan.command_done {
            return Ok(());
        }
        let command =
            self.state().volcano.commands.get(job.uid()).and_then(|all| all.values().next()).cloned();
        let Some(command) = command else { return Ok(()) };
        writes::delete(&self.client, &commands(), job.namespace(), &command.name, &command.uid).await?;
        let mut state = self.state();
        if let Some(all) = state.volcano.commands.get_mut(job.uid()) {
            all.remove(&command.name);
        }
        drop(state);
        self.queue.add(job.uid().to_owned());
        Ok(())
    }

    /// Writes the plan's PodGroup. Returns whether it wrote anything.
    pub(crate) async fn write_pod_group(
        &self,
        snapshot: &Snapshot,
        plan: &JobPlan,
    ) -> Result<bool, CallError> {
        let job = &snapshot.job.object;
        let known = self.state().volcano.groups.get(job.uid()).cloned();
        let answer = match (&plan.pod_group, known) {
            (Some(wanted), None) => match writes::create::<Object>(&self.client, wanted).await {
                Err(error) if error.is_conflict() => {
                    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
                    let found: Option<Object> =
                        writes::get(&self.client, &pod_groups(), job.namespace(), name).await?;
                    // An older group of the same job that is being deleted.
                    let Some(found) = found.filter(|found| !found.is_deleting()) else { return Err(error) };
                    found
                }
                answer => answer?,
            },
            (wanted, Some(group)) if !group.is_deleting() => {
                let spec = wanted
                    .as_ref()
                    .and_then(|wanted| fleet_api::patch::merge_diff(&group.spec, &wanted["spec"]));
                let status = plan.pod_group_status.as_ref();
                let status = status.and_then(|status| fleet_api::patch::merge_diff(&group.status, status));
                let patched = match (spec, status) {
                    (Some(spec), _) => {
                        writes::patch(&self.client, &pod_groups(), &group, None, &json!({"spec": spec})).await
                    }
                    (None, Some(status)) => {
                        let patch = json!({"status": status});
                        writes::patch(&self.client, &pod_groups(), &group, Some("status"), &patch).await
                    }
                    (None, None) => return Ok(false),
                };
                match patched {
                    // Deleted meanwhile; the watch reports it.
                    Err(error) if error.is_not_found() => return Ok(false),
                    answer => answer?,
                }
            }
            _ => return Ok(false),
        };
        self.state().volcano.put_group(job.uid(), Arc::new(answer));
        Ok(true)
    }

    pub(crate) async fn delete_pod_group(&self, job: &Object) -> Result<(), CallError> {
        let known = self.state().volcano.groups.get(job.uid()).cloned();
        let Some(group) = known.filter(|group| !group.is_deleting()) else { return Ok(()) };
        writes::delete(&self.client, &pod_groups(), group.namespace(), group.name(), group.uid()).await?;
        self.state().volcano.groups.remove(job.uid());
        Ok(())
    }
}

/// Sets the root as parent of a queue without one, as Volcano's controller does.
async fn write_parent(client: kube::Client, queue: Arc<Object>) {
    let patch = json!({"spec": {"parent": ROOT_QUEUE}});
    match writes::patch(&client, &queues(), &queue, None, &patch).await {
        Err(error) if !error.is_not_found() => {
            tracing::warn!(queue = queue.name(), %error, "spec.parent of a queue could not be written");
        }
        _ => {}
    }
}

async fn make_queues(client: kube::Client, names: Vec<&'static str>) {
    for name in names {
        let queue = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1, "reclaimable": name != ROOT_QUEUE},
            "status": {"state": "Open"},
        });
        match writes::create::<Object>(&client, &queue).await {
            Err(error) if !error.is_conflict() => {
                tracing::warn!(queue = name, %error, "cannot create a built-in queue");
            }
            _ => {}
        }
    }
}
