//! Why a group waits, in one sentence.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::sync::Arc;

use fleet_placement::{ComponentRefusal, Refusal};
use fleet_resources::Shortage;

use super::stopped::Stopped;
use crate::amounts::PODS;
use crate::cluster::Cluster;
use crate::ids::{ClassId, GroupId, NodeId, PodId};
use crate::misfit::{Misfit, sentence};

/// Resources of which a sentence has the amounts.
const MOST_AMOUNTS: usize = 16;

impl Cluster {
    pub(crate) fn explain(&self, id: GroupId, stopped: &Stopped) -> Arc<str> {
        match stopped {
            Stopped::Queue(why) => why.as_str().into(),
            Stopped::Pod(pod) => self.explain_pod(id, *pod),
        }
    }

    fn explain_pod(&self, id: GroupId, pod: PodId) -> Arc<str> {
        let (misfits, fitting) = self.misfits(pod);
        let nodes = misfits.values().sum::<i64>() + fitting;
        if misfits.keys().any(|misfit| misfit.is_about_pods()) {
            return sentence(&self.dimensions, &misfits, nodes);
        }
        let group = self.group(id);
        let need = |count: u32| if group.need() > 0 { group.need().min(i64::from(count)) } else { 1 };
        let wanted = group.pending_by_class.iter().map(|(class, count)| (*class, need(*count)));
        self.explain_classes(id, wanted.collect())
    }

    /// Why these pods do not fit; `unplaced` found no node.
    pub(crate) fn explain_pods(&self, id: GroupId, pods: &[PodId], unplaced: PodId) -> Arc<str> {
        let (misfits, fitting) = self.misfits(unplaced);
        if misfits.keys().any(|misfit| misfit.is_about_pods()) {
            return sentence(&self.dimensions, &misfits, misfits.values().sum::<i64>() + fitting);
        }
        self.explain_classes(id, self.counts(pods))
    }

    fn counts(&self, pods: &[PodId]) -> Vec<(ClassId, i64)> {
        counted(pods.iter().map(|pod| self.pod(*pod).class))
    }

    /// In Volcano's words for the first class that does not fit, and then how much is missing.
    fn explain_classes(&self, id: GroupId, wanted: Vec<(ClassId, i64)>) -> Arc<str> {
        let components = self.refusals(id, wanted.clone());
        let short = components.iter().zip(&wanted).find(|(refusal, _)| refusal.fit < refusal.wanted);
        let unavailable = short.map(|(_, (class, _))| self.unavailable(id, *class));
        let equal: Vec<String> = components
            .iter()
            .flat_map(|component| component.by_resource())
            .filter(|lack| lack.equal)
            .map(|lack| lack.amounts())
            .take(MOST_AMOUNTS)
            .collect();
        let refusal = Refusal { components };
        match unavailable {
            Some(unavailable) => {
                let counts = std::iter::once(refusal.counts()).chain(equal);
                format!("{unavailable} {}", counts.collect::<Vec<_>>().join("; ")).into()
            }
            None => refusal.sentence().into(),
        }
    }

    /// Why no node takes a pod of the class, once the pods that fit have their places.
    fn unavailable(&self, id: GroupId, class: ClassId) -> Arc<str> {
        let spec = self.class(class);
        let mut misfits: BTreeMap<Misfit, i64> = BTreeMap::new();
        let mut nodes = 0;
        for (node, state) in self.nodes.iter() {
            nodes += 1;
            let misfit = if let Err(misfit) = self.may_use(id, state).and_then(|()| self.admits(spec, state))
            {
                misfit
            } else {
                let cells = self.nodes.cells(node);
                let slots = cells[PODS].free().max(0);
                let times = spec.request.iter().map(|(d, n)| cells[usize::from(*d)].free().max(0) / n).min();
                let times = times.unwrap_or(slots).min(slots);
                let lacks = |(place, amount): &(u16, i64)| {
                    cells[usize::from(*place)].free().saturating_sub(times.saturating_mul(*amount)) < *amount
                };
                let lacking: Vec<u16> =
                    spec.request.iter().filter(|one| lacks(one)).map(|(place, _)| *place).collect();
                if lacking.is_empty() { Misfit::PodCount } else { Misfit::Resources(lacking) }
            };
            *misfits.entry(misfit).or_default() += 1;
        }
        sentence(&self.dimensions, &misfits, nodes)
    }

    /// What is missing, for each class of these pods.
    pub fn refusals_of(&self, id: GroupId, pods: &[PodId]) -> Vec<ComponentRefusal> {
        self.refusals(id, self.counts(pods))
    }

    /// Classes share the nodes: each finds what those before it left.
    fn refusals(&self, id: GroupId, wanted: Vec<(ClassId, i64)>) -> Vec<ComponentRefusal> {
        let mut taken = BTreeMap::new();
        let names = self.role_names(id, wanted.iter().map(|(class, _)| *class).collect());
        let refusal = |(class, wanted): (ClassId, i64)| {
            let name = names.get(&class).filter(|name| !name.is_empty());
            let name = name.map_or("pod", |name| &**name);
            self.refusal_of(id, (class, name), wanted, &mut taken)
        };
        wanted.into_iter().map(refusal).collect()
    }

    /// The role of the first waiting pod of each of these classes. A gang may have as many classes as pods.
    fn role_names(&self, id: GroupId, mut unnamed: BTreeSet<ClassId>) -> BTreeMap<ClassId, Arc<str>> {
        let group = self.group(id);
        let mut names = BTreeMap::new();
        for order in &group.pending {
            if unnamed.is_empty() {
                break;
            }
            let pod = self.pod(order.3);
            if unnamed.remove(&pod.class) {
                names.insert(pod.class, group.roles[usize::from(pod.role)].name.clone());
            }
        }
        names
    }

    fn refusal_of(
        &self,
        id: GroupId,
        (class, name): (ClassId, &str),
        wanted: i64,
        taken: &mut BTreeMap<(NodeId, usize), i64>,
    ) -> ComponentRefusal {
        let spec = self.class(class);
        let request: Vec<(usize, i64)> =
            spec.request.iter().map(|(place, amount)| (usize::from(*place), *amount)).collect();
        let mut refusal = ComponentRefusal {
            name: name.to_owned(),
            fit: 0,
            wanted,
            nodes: 0,
            admitted: 0,
            lacks: Vec::new(),
        };
        let mut admitted = Vec::new();
        for (node, state) in self.nodes.iter() {
            refusal.nodes += 1;
            if state.claimed_by.is_some_and(|group| group != id) || self.admits(spec, state).is_err() {
                continue;
            }
            admitted.push(node);
            let free = |place: usize| self.left(node, place, taken).max(0);
            let slots = free(PODS);
            let times = request.iter().map(|(place, n)| free(*place) / n).min().unwrap_or(slots).min(slots);
            let here = times.min(wanted - refusal.fit);
            if here > 0 {
                refusal.fit += here;
                for (place, amount) in request.iter().copied().chain([(PODS, 1)]) {
                    *taken.entry((node, place)).or_default() += amount.saturating_mul(here);
                }
            }
        }
        refusal.admitted = i64::try_from(admitted.len()).unwrap_or(i64::MAX);
        if refusal.fit >= wanted {
            return refusal;
        }
        for node in admitted {
            let short = self.short_on(node, &request, taken);
            if !short.is_empty() || self.left(node, PODS, taken) <= 0 {
                refusal.lack(1, short);
            }
        }
        refusal
    }

    /// What is free there beside `taken`.
    fn left(&self, node: NodeId, place: usize, taken: &BTreeMap<(NodeId, usize), i64>) -> i64 {
        let taken = taken.get(&(node, place)).copied().unwrap_or(0);
        self.nodes.cells(node)[place].free().saturating_sub(taken)
    }

    fn short_on(
        &self,
        node: NodeId,
        request: &[(usize, i64)],
        taken: &BTreeMap<(NodeId, usize), i64>,
    ) -> Vec<Shortage> {
        let short = request.iter().filter_map(|(place, amount)| {
            let (left, parts) = (self.left(node, *place, taken), self.dimensions.parts(*place));
            (left < *amount).then(|| Shortage {
                name: self.dimensions.name(*place).clone(),
                requested: amount / parts,
                available: left / parts,
            })
        });
        short.collect()
    }
}

/// How many there are of each class, in the order in which they first come.
fn counted(classes: impl Iterator<Item = ClassId>) -> Vec<(ClassId, i64)> {
    let mut counts: Vec<(ClassId, i64)> = Vec::new();
    let mut places: BTreeMap<ClassId, usize> = BTreeMap::new();
    for class in classes {
        match places.entry(class) {
            Entry::Occupied(place) => counts[*place.get()].1 += 1,
            Entry::Vacant(place) => {
                place.insert(counts.len());
                counts.push((class, 1));
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_of_a_gang_may_have_a_class_of_its_own() {
        // Looked for one after another, they take half an hour.
        const CLASSES: ClassId = 1_000_000;
        assert_eq!(counted([7, 2, 7, 9, 2, 7].into_iter()), [(7, 3), (2, 2), (9, 1)]);
        let counts = counted((0..CLASSES).chain((0..CLASSES).rev()));
        assert_eq!(counts, (0..CLASSES).map(|class| (class, 2)).collect::<Vec<_>>());
    }
}
