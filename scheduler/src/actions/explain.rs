//! Why a group waits, in one sentence.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_placement::{ComponentRefusal, Refusal};
use fleet_resources::Shortage;

use super::stopped::Stopped;
use crate::cluster::Cluster;
use crate::ids::{ClassId, GroupId, PodId};
use crate::misfit::{Fit, Misfit, sentence};

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
        let mut counts: Vec<(ClassId, i64)> = Vec::new();
        for pod in pods {
            let class = self.pod(*pod).class;
            match counts.iter_mut().find(|(known, _)| *known == class) {
                Some((_, count)) => *count += 1,
                None => counts.push((class, 1)),
            }
        }
        counts
    }

    /// In Volcano's words for the first class that does not fit, and then how much is missing.
    fn explain_classes(&self, id: GroupId, wanted: Vec<(ClassId, i64)>) -> Arc<str> {
        let components = self.refusals(id, wanted.clone());
        let short = components.iter().zip(&wanted).find(|(refusal, _)| refusal.fit < refusal.wanted);
        let unavailable = short.map(|(_, (class, _))| self.unavailable(id, *class));
        let missing = Refusal { components }.sentence();
        match unavailable {
            Some(unavailable) => format!("{unavailable} {missing}").into(),
            None => missing.into(),
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
                let slots = cells[crate::amounts::PODS].free().max(0);
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

    fn refusals(&self, id: GroupId, wanted: Vec<(ClassId, i64)>) -> Vec<ComponentRefusal> {
        wanted.into_iter().map(|(class, wanted)| self.refusal_of(id, class, wanted)).collect()
    }

    fn refusal_of(&self, id: GroupId, class: ClassId, wanted: i64) -> ComponentRefusal {
        let group = self.group(id);
        let role = group
            .pending
            .iter()
            .find(|order| self.pod(order.3).class == class)
            .map(|order| group.roles[usize::from(self.pod(order.3).role)].name.to_string())
            .filter(|name| !name.is_empty());
        let spec = self.class(class);
        let mut refusal = ComponentRefusal {
            name: role.unwrap_or_else(|| "pod".to_owned()),
            fit: 0,
            wanted,
            nodes: 0,
            admitted: 0,
            lacking: 0,
            short: Vec::new(),
        };
        // What most of the nodes lack that cannot take one; the first of equals.
        let mut lacks: Vec<(Vec<Shortage>, i64)> = Vec::new();
        let mut all = Vec::new();
        for (node, state) in self.nodes.iter() {
            refusal.nodes += 1;
            let claimed = state.claimed_by.is_some_and(|group| group != id);
            if claimed || self.admits(spec, state).is_err() {
                continue;
            }
            refusal.admitted += 1;
            let cells = self.nodes.cells(node);
            let pods = cells[crate::amounts::PODS].free().max(0);
            let times = spec.request.iter().map(|(d, n)| cells[usize::from(*d)].free().max(0) / n).min();
            let times = times.unwrap_or(pods).min(pods);
            refusal.fit = refusal.fit.saturating_add(times).min(wanted);
            // If each could take one, the pods that fit are placed first: then all lack something.
            let left =
                |place: usize, amount: i64| cells[place].free().saturating_sub(times.saturating_mul(amount));
            let short: Vec<Shortage> = spec
                .request
                .iter()
                .map(|(place, amount)| (usize::from(*place), *amount))
                .filter(|(place, amount)| left(*place, *amount) < *amount)
                .map(|(place, amount)| {
                    let parts = self.dimensions.parts(place);
                    Shortage {
                        name: self.dimensions.name(place).clone(),
                        requested: amount / parts,
                        available: left(place, amount) / parts,
                    }
                })
                .collect();
            let list = if self.fits(spec, node, Fit::Now).is_err() { &mut lacks } else { &mut all };
            match list.iter_mut().find(|(known, _)| *known == short) {
                Some((_, count)) => *count += 1,
                None => list.push((short, 1)),
            }
        }
        let lacking = if lacks.is_empty() { all } else { lacks };
        refusal.lacking = lacking.iter().map(|(_, count)| count).sum();
        // Among equally many, the one that lacks least: the others lack that, too.
        let missing = |short: &[Shortage]| short.iter().map(Shortage::missing).fold(0, i64::saturating_add);
        let most = lacking
            .into_iter()
            .rev()
            .max_by_key(|(short, count)| (*count, std::cmp::Reverse(missing(short))));
        refusal.short = most.map(|(short, _)| short).unwrap_or_default();
        refusal
    }
}
