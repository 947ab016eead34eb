//! The scheduler's groups: from PodGroup objects, or from the pods if there is none.

use fleet_resources::{Resources, quantity};
use fleet_scheduler::{GroupId, GroupInput, Phase, group::Topology, queue::DEFAULT_QUEUE};
use serde_json::{Value, json};

use super::{GangKey, MemberState, PodEntry, PodGroup, PodGroupObject, PodKey};

/// Internal name of the queue of pods of other schedulers; no object has it.
const FOREIGN_QUEUE: &str = "";

impl MemberState {
    /// Updates the scheduler with a pod's start time and its parts of devices: a bound pod has these in its
    /// annotations, whoever bound it.
    pub(super) fn tell_more(&mut self, key: &PodKey) {
        let Some(entry) = self.pods.get(key) else { return };
        let Some(id) = entry.id else { return };
        if let Some(started) = entry.started {
            self.cluster.set_started(id, started.as_second());
        }
        if entry.node.is_some() && !entry.parts.is_empty() {
            self.cluster.set_parts(id, entry.parts.clone());
        }
    }

    /// The scheduler's group of a gang, created if there is none.
    pub(super) fn group_of(&mut self, key: &GangKey) -> GroupId {
        if let Some(group) = self.gangs.get(key).and_then(|gang| gang.group) {
            return group;
        }
        let (namespace, name) = name_of(key);
        let known = self.pod_groups.get(&(namespace.clone(), name.clone())).map(|known| known.group);
        let group = known.unwrap_or_else(|| {
            let input = self.own_input(key);
            self.cluster.put_group(input)
        });
        if let Some(gang) = self.gangs.get_mut(key) {
            gang.group = Some(group);
        }
        self.gangs_by_group.insert(group, key.clone());
        group
    }

    /// A pod has joined: without a PodGroup, it may change its gang's settings.
    pub(super) fn group_joined(&mut self, key: &GangKey, entry: &PodEntry, new: bool) {
        let described =
            if self.pod_groups.is_empty() { None } else { self.pod_groups.get_mut(&name_of(key)) };
        if let Some(known) = described {
            if entry.reservation.is_some() && !known.input.manual {
                known.input.manual = true;
                let input = known.input.clone();
                self.cluster.put_group(input);
            }
            return;
        }
        if new {
            self.group_of(key);
        }
        let Some(group) = self.gangs.get(key).and_then(|gang| gang.group) else { return };
        let Some(known) = self.cluster.try_group(group) else { return };
        let known = &known.input;
        let priority = i64::from(entry.priority);
        let created = entry.created.map_or(0, |at| at.as_second());
        let min_member = i64::try_from(entry.gang_size.max(1)).unwrap_or(i64::MAX);
        let queue = entry.queue.as_deref().filter(|queue| !queue.is_empty()).unwrap_or(DEFAULT_QUEUE);
        let priority = if new { priority } else { known.priority.max(priority) };
        let created = if new { created } else { known.created.min(created) };
        // Places reserved by the hub are assigned by name.
        let manual = known.manual || entry.reservation.is_some();
        let topology = known.topology.or(entry.topology);
        // Most pods of a gang have the same settings as the first one.
        if (known.min_member, &*known.queue, known.priority, known.created, known.manual, known.topology)
            != (min_member, queue, priority, created, manual, topology)
        {
            let queue = queue.into();
            let input =
                GroupInput { min_member, queue, priority, created, manual, topology, ..known.clone() };
            self.cluster.put_group(input);
        }
    }

    fn own_input(&self, key: &GangKey) -> GroupInput {
        let (namespace, name) = name_of(key);
        GroupInput {
            namespace: namespace.into(),
            name: name.into(),
            queue: DEFAULT_QUEUE.into(),
            min_member: 1,
            no_gate: true,
            ..GroupInput::default()
        }
    }

    pub(super) fn foreign_group(&mut self) -> GroupId {
        if let Some(group) = self.foreign {
            return group;
        }
        let group = self.cluster.put_group(GroupInput {
            queue: FOREIGN_QUEUE.into(),
            no_gate: true,
            manual: true,
            ..GroupInput::default()
        });
        self.foreign = Some(group);
        group
    }

    /// The gang's last pod is gone; a PodGroup outlives its pods.
    pub(super) fn drop_group(&mut self, key: &GangKey, group: Option<GroupId>) {
        let Some(group) = group else { return };
        self.gangs_by_group.remove(&group);
        if !self.pod_groups.contains_key(&name_of(key)) {
            self.cluster.remove_group(group);
        }
    }

    /// A PodGroup was created or changed.
    pub fn put_pod_group(&mut self, object: &PodGroupObject) {
        let key = (object.namespace.clone(), object.name.clone());
        let mut input = object.input();
        input.priority = self.priority_of(object.priority_class.as_deref());
        let tier_names = object.tier_names();
        tier_names.resolve(&mut input, |name| self.tier_named(name));
        let before = self.pod_groups.get(&key).filter(|known| known.uid == object.uid);
        let seen = before.map(|known| Phase::read(known.status["phase"].as_str().unwrap_or_default()));
        let phase = Phase::read(object.status["phase"].as_str().unwrap_or_default());
        // Pods of a group with a reservation of the hub are placed by name, whoever created the PodGroup.
        let old = self.cluster.find_group(&object.namespace, &object.name);
        input.manual =
            old.and_then(|old| self.cluster.try_group(old)).is_some_and(|group| group.input.manual);
        let group = self.cluster.put_group(input.clone());
        // The object takes precedence, except for its admission, which is written with a delay: this
        // scheduler may have admitted a group that was Pending before. A new object was not admitted by
        // anyone.
        if phase != Phase::Pending || seen != Some(Phase::Pending) {
            self.cluster.set_phase(group, phase);
        }
        let busy = before.is_some_and(|known| known.busy);
        let known = PodGroup {
            uid: object.uid.clone(),
            job: object.job.clone(),
            input,
            priority_class: object.priority_class.clone(),
            tier_names,
            status: object.status.clone(),
            group,
            busy,
        };
        self.pod_groups.insert(key, known);
        let gang = GangKey::Named { namespace: object.namespace.clone(), gang: object.name.clone() };
        if let Some(entry) = self.gangs.get_mut(&gang) {
            entry.group = Some(group);
            self.gangs_by_group.insert(group, gang);
        }
    }

    /// The PodGroup to create for a gang of Volcano's pods without one, and the pods that get its name.
    /// Returned only once, until that is undone or the PodGroup is deleted.
    pub fn undescribed(&mut self, key: &GangKey) -> Option<(Value, Vec<PodKey>)> {
        let GangKey::Named { namespace, gang: name } = key else { return None };
        let gang = self.gangs.get(key)?;
        let known = self.pod_groups.contains_key(&(namespace.clone(), name.clone()));
        let pods: Vec<(&PodKey, &PodEntry)> =
            gang.pods.iter().filter_map(|pod| Some((pod, self.pods.get(pod)?))).collect();
        let unnamed: Vec<PodKey> = pods
            .iter()
            .filter(|(_, pod)| pod.unnamed && !pod.deleting)
            .map(|(key, _)| (*key).clone())
            .collect();
        let (_, first) = pods.iter().find(|(_, pod)| pod.group_owner.is_some() && !pod.finished)?;
        if gang.described || (known && unnamed.is_empty()) {
            return None;
        }
        let size = gang.size;
        let mut minimum = Resources::new();
        pods.iter().take(size).for_each(|(_, pod)| minimum.add(pod.requests()));
        let amounts: serde_json::Map<String, Value> = minimum
            .iter()
            .map(|(name, n)| (name.to_string(), quantity::format(name.as_str(), n).into()))
            .collect();
        let mut spec = json!({
            "minMember": size,
            "queue": first.queue.as_deref().filter(|queue| !queue.is_empty()).unwrap_or(DEFAULT_QUEUE),
        });
        if pods.len() >= size && !amounts.is_empty() {
            spec["minResources"] = amounts.into();
        }
        if let Some(class) = &first.priority_class {
            spec["priorityClassName"] = class.as_str().into();
        }
        if let Some(Topology { hard, highest_tier }) = first.topology {
            let mode = if hard { "hard" } else { "soft" };
            spec["networkTopology"] = match highest_tier {
                Some(tier) => json!({"mode": mode, "highestTierAllowed": tier}),
                None => json!({"mode": mode}),
            };
        }
        let object = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [first.group_owner.as_deref()]},
            "spec": spec,
        });
        if let Some(gang) = self.gangs.get_mut(key) {
            gang.described = true;
        }
        Some((object, unnamed))
    }

    /// A PodGroup is gone. Remaining pods wait for a new one.
    pub fn remove_pod_group(&mut self, namespace: &str, name: &str) {
        let Some(known) = self.pod_groups.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        let gang = GangKey::Named { namespace: namespace.to_owned(), gang: name.to_owned() };
        if let Some(entry) = self.gangs.get_mut(&gang) {
            entry.described = false;
        }
        match self.gangs.get(&gang) {
            None => self.cluster.remove_group(known.group),
            Some(entry) => {
                let size = i64::try_from(entry.size).unwrap_or(i64::MAX);
                let manual = known.input.manual;
                let input = GroupInput { min_member: size, manual, ..self.own_input(&gang) };
                self.cluster.put_group(input);
            }
        }
    }

    /// A PriorityClass was created, changed or deleted.
    pub fn set_priority_class(&mut self, name: &str, value: Option<i64>) {
        match value {
            Some(value) => self.priorities.insert(name.to_owned(), value),
            None => self.priorities.remove(name),
        };
        let concerned: Vec<(String, String)> = self
            .pod_groups
            .iter()
            .filter(|(_, group)| group.priority_class.as_deref() == Some(name))
            .map(|(key, _)| key.clone())
            .collect();
        for key in concerned {
            let Some(group) = self.pod_groups.get_mut(&key) else { continue };
            group.input.priority = value.unwrap_or(0);
            let input = group.input.clone();
            self.cluster.put_group(input);
        }
    }

    fn priority_of(&self, class: Option<&str>) -> i64 {
        class.and_then(|class| self.priorities.get(class)).copied().unwrap_or(0)
    }
}

fn name_of(key: &GangKey) -> (String, String) {
    match key {
        GangKey::Named { namespace, gang } => (namespace.clone(), gang.clone()),
        // Object names contain no slash.
        GangKey::Single(pod) => (pod.namespace.clone(), format!("pod/{}", pod.name)),
    }
}
