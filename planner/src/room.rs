//! Free capacity of each member as the hub counts it: the last report, less the places of jobs that the
//! report does not include yet.
//!
//! Errors are safe: an overestimate costs a refused reservation, an underestimate a short wait.

mod supposed;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_placement::{GroupedNodes, NodeShape, Places, PodShape, fits_sum};
use fleet_policies::affinity::ClusterFacts;
use fleet_quota::{JobId, WaitingJob};
use fleet_resources::{ResourceName, Resources};

use super::job::{Counted, Held, JobShape};
use supposed::Supposed;

/// The planner's input about a member.
#[derive(Clone, Debug, Default)]
pub struct Member {
    pub facts: ClusterFacts,
    /// Whether it supports reservations; otherwise the hub compares sums of free resources.
    pub reserves: bool,
    /// `apiVersion/Kind` of the kinds that it serves; empty if it does not report them.
    pub serves: BTreeSet<String>,
    pub shapes: Vec<NodeShape>,
    /// Names of the nodes of each shape, if known.
    pub node_names: Vec<Vec<String>>,
    /// Sequence number of the report with these shapes.
    pub sequence: i64,
}

/// A job that holds places here.
#[derive(Clone, Debug)]
struct Hold {
    shape: Arc<JobShape>,
    counted: Counted,
    /// Component to the node of each pod, if the member reported it.
    nodes: BTreeMap<String, Vec<String>>,
    taken: Taken,
}

/// What was subtracted from the capacity of the report.
#[derive(Clone, Debug)]
enum Taken {
    /// It did not fit; the member will refuse it.
    Nothing,
    Sum,
    Places(Places),
    /// Nothing: the report includes it.
    ByReport,
}

/// Reports after the end of a job that may still include its places: one may have been in flight.
const REPORTS_BEHIND: u8 = 2;
/// How long the planner waits for a report without these places; after that, another user has them.
const REPORT_PATIENCE_MS: i64 = 5_000;

/// Places of an ended job that the report included at its end.
#[derive(Clone, Debug)]
struct Leaving {
    hold: Hold,
    reports_left: u8,
    /// Set by the first plan after the end.
    until_ms: Option<i64>,
}

/// Free capacity of one member.
#[derive(Clone, Debug)]
pub struct Room {
    pub facts: ClusterFacts,
    pub reserves: bool,
    pub allocatable: Resources,
    pub free: Resources,
    serves: BTreeSet<String>,
    nodes: GroupedNodes,
    sequence: i64,
    holds: BTreeMap<JobId, Hold>,
    leaving: BTreeMap<JobId, Leaving>,
    /// Shapes that did not fit, and why. Valid until capacity is freed.
    refused: BTreeMap<u64, String>,
    /// Whether shapes would fit if the member were empty.
    when_empty: BTreeMap<u64, bool>,
    /// The nodes of the last what-if questions: as reported, and with the places of ended jobs free.
    supposed: [Option<Supposed>; 2],
}

impl Room {
    fn new(member: Member) -> Self {
        Self {
            reserves: member.reserves,
            allocatable: sum(&member.shapes, |shape| &shape.allocatable),
            free: sum(&member.shapes, |shape| &shape.free),
            nodes: GroupedNodes::new(&member.shapes, &member.node_names),
            serves: member.serves,
            sequence: member.sequence,
            holds: BTreeMap::new(),
            leaving: BTreeMap::new(),
            refused: BTreeMap::new(),
            when_empty: BTreeMap::new(),
            supposed: [None, None],
            facts: member.facts,
        }
    }

    /// Whether the member serves a kind.
    pub fn serves(&self, api_version: &str, kind: &str) -> bool {
        self.serves.is_empty() || self.serves.contains(&format!("{api_version}/{kind}"))
    }

    /// Takes capacity for a job.
    pub fn take(&mut self, id: &JobId, shape: &Arc<JobShape>) -> Result<(), String> {
        if let Some(sentence) = self.refused.get(&shape.id) {
            return Err(sentence.clone());
        }
        let taken = self.try_take(shape);
        if let Err(sentence) = &taken {
            self.refused.insert(shape.id, sentence.clone());
        }
        let taken = taken?;
        self.begin_hold(id);
        let hold = Hold { shape: shape.clone(), counted: Counted::ByPlanner, nodes: BTreeMap::new(), taken };
        self.holds.insert(id.clone(), hold);
        Ok(())
    }

    /// When the job holds places again, its earlier ones count as free, even if no report shows that.
    fn begin_hold(&mut self, id: &JobId) {
        if self.leaving.remove(id).is_some() {
            self.suppositions().for_each(|supposed| supposed.forget(id));
        }
    }

    fn try_take(&mut self, shape: &JobShape) -> Result<Taken, String> {
        let taken = if self.reserves {
            let places = self.nodes.place(&shape.gang).map_err(|refusal| refusal.sentence())?;
            self.suppositions().for_each(|supposed| supposed.taken(&places));
            Taken::Places(places)
        } else {
            fits_sum(&self.free, &shape.gang).map_err(|short| {
                let short: Vec<String> = short.iter().map(ToString::to_string).collect();
                format!("the sum of what is free is short of {}", short.join(", "))
            })?;
            Taken::Sum
        };
        self.free.sub(&shape.total);
        Ok(taken)
    }

    /// How many pods of one shape still fit, at most `limit`.
    pub fn pods_of(&self, shape: &PodShape, limit: i64) -> i64 {
        self.nodes.pods_of(shape, limit)
    }

    /// Whether the gang would fit if the member were empty.
    pub fn holds_when_empty(&mut self, shape: &JobShape) -> bool {
        if !self.reserves {
            return fits_sum(&self.allocatable, &shape.gang).is_ok();
        }
        *self.when_empty.entry(shape.id).or_insert_with(|| self.nodes.holds_when_empty(&shape.gang))
    }

    fn counts_itself(&self, counted: Counted) -> bool {
        match counted {
            Counted::ByPlanner => true,
            Counted::FromReport(first) => first > self.sequence,
            Counted::ByReports => false,
        }
    }

    fn hold(&mut self, id: &JobId, shape: &Arc<JobShape>, held: &Held) -> CapacityChange {
        let by_planner = self.counts_itself(held.counted);
        let mut change = CapacityChange::None;
        self.begin_hold(id);
        if let Some(known) = self.holds.get_mut(id) {
            if matches!(known.taken, Taken::ByReport) != by_planner {
                known.counted = held.counted;
                if known.nodes != held.nodes {
                    known.nodes.clone_from(&held.nodes);
                    self.move_to_named(id);
                }
                return change;
            }
            change = self.give_back(id);
            self.begin_hold(id);
        }
        let taken = match by_planner {
            true => self.try_take_at(shape, &held.nodes),
            false => Taken::ByReport,
        };
        let (shape, nodes) = (shape.clone(), held.nodes.clone());
        self.holds.insert(id.clone(), Hold { shape, counted: held.counted, nodes, taken });
        change
    }

    /// Takes capacity on the nodes that the member named. If the gang no longer fits there, the member
    /// refuses it itself. Pods on nodes that the report does not have, because they are not ready or gone, use nothing
    /// of the others.
    fn try_take_at(&mut self, shape: &JobShape, nodes: &BTreeMap<String, Vec<String>>) -> Taken {
        let away = |name: &String| self.reserves && self.nodes.knows(name) == Some(false);
        let some_away = nodes.values().flatten().any(away);
        let here = |names: &Vec<String>| names.iter().filter(|name| !away(name)).cloned().collect();
        let left: BTreeMap<String, Vec<String>> =
            nodes.iter().map(|(component, names)| (component.clone(), here(names))).collect();
        let named = if self.reserves { self.nodes.named(&shape.gang, &left) } else { None };
        match named.filter(|places| !places.is_empty()) {
            Some(places) => {
                self.nodes.take(&places);
                self.suppositions().for_each(|supposed| supposed.taken(&places));
                self.free.sub(&places.requests());
                Taken::Places(places)
            }
            None if some_away => Taken::Nothing,
            None => self.try_take(shape).unwrap_or(Taken::Nothing),
        }
    }

    /// Moves the job to the nodes that the member named; they may differ from those chosen here.
    fn move_to_named(&mut self, id: &JobId) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        if let Taken::Places(places) = &mut hold.taken {
            let named = self.nodes.named(&hold.shape.gang, &hold.nodes).filter(|named| !named.is_empty());
            let Some(named) = named.filter(|named| named != places) else { return };
            self.nodes.give_back(places);
            self.nodes.take(&named);
            *places = named;
            self.refused.clear();
        }
        self.supposed = [None, None];
    }

    fn give_back(&mut self, id: &JobId) -> CapacityChange {
        let Some(hold) = self.holds.remove(id) else { return CapacityChange::None };
        match &hold.taken {
            Taken::Nothing => return CapacityChange::None,
            Taken::ByReport => {
                self.suppositions().for_each(|supposed| supposed.forget(id));
                let leaving = Leaving { hold, reports_left: REPORTS_BEHIND, until_ms: None };
                self.leaving.insert(id.clone(), leaving);
                return CapacityChange::None;
            }
            Taken::Sum => self.free.add(&hold.shape.total),
            Taken::Places(places) => {
                self.nodes.give_back(places);
                self.suppositions().for_each(|supposed| supposed.given_back(id, places));
                self.free.add(&places.requests());
            }
        }
        self.refused.clear();
        CapacityChange::Grown
    }

    fn suppositions(&mut self) -> impl Iterator<Item = &mut Supposed> {
        self.supposed.iter_mut().flatten()
    }

    /// Whether the gangs fit together once the places of `gone` are free. If a report includes places without
    /// naming their nodes, sums are compared. With `settled`, places of ended jobs count as free before a
    /// report shows it.
    fn fits_without(
        &mut self,
        jobs: &[&WaitingJob],
        shape_of: &dyn Fn(&JobId) -> Option<Arc<JobShape>>,
        gone: &[JobId],
        settled: bool,
    ) -> bool {
        let Some((asked, beside)) = jobs.split_last() else { return true };
        let Some(shape) = shape_of(&asked.id) else { return false };
        if !self.reserves {
            let shapes = beside.iter().map(|job| shape_of(&job.id)).collect::<Option<Vec<_>>>();
            return shapes.is_some_and(|shapes| self.sums_fit(&shapes, &shape, gone, settled));
        }
        let leaves_none = |id| self.leaves(id, settled).is_none();
        if beside.is_empty() && (!settled || self.leaving.is_empty()) && gone.iter().all(leaves_none) {
            return self.nodes.fits(&shape.gang);
        }
        let mut supposed =
            self.supposed[usize::from(settled)].take().unwrap_or_else(|| Supposed::new(&self.nodes));
        let leaving = self.leaving.keys().filter(|_| settled);
        supposed.set_gone(gone.iter().chain(leaving), |nodes, id| {
            let hold = self.leaves(id, settled)?;
            Some(match &hold.taken {
                Taken::Places(places) => Some(places.clone()),
                _ => nodes.named(&hold.shape.gang, &hold.nodes).filter(|places| !places.is_empty()),
            })
        });
        let fits = supposed.set_standing(beside, shape_of) && supposed.fits(&shape);
        let vague = supposed.is_vague();
        self.supposed[usize::from(settled)] = Some(supposed);
        fits || (vague
            && jobs.iter().all(|job| shape_of(&job.id).is_some_and(|shape| self.holds_when_empty(&shape))))
    }

    /// Resources whose sum here is too small for all requests once `gone` have left.
    pub fn short_of<'r>(
        &self,
        asked: impl Iterator<Item = &'r Resources>,
        gone: &[JobId],
    ) -> Vec<ResourceName> {
        let mut free = self.free.clone();
        let gone: BTreeSet<&JobId> = gone.iter().chain(self.leaving.keys()).collect();
        for hold in gone.into_iter().filter_map(|id| self.leaves(id, true)) {
            free.add(&hold.shape.total);
        }
        let mut sum = Resources::new();
        asked.for_each(|asked| sum.add(asked));
        sum.iter()
            .filter(|(name, amount)| free.get(name.as_str()) < *amount)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// What the job holds here; with `settled`, also what an ended job held if no report shows it free yet.
    fn leaves(&self, id: &JobId, settled: bool) -> Option<&Hold> {
        let leaving = self.leaving.get(id).filter(|_| settled).map(|leaving| &leaving.hold);
        self.holds.get(id).or(leaving).filter(|hold| !matches!(hold.taken, Taken::Nothing))
    }

    fn sums_fit(
        &self,
        beside: &[Arc<JobShape>],
        asked: &Arc<JobShape>,
        gone: &[JobId],
        settled: bool,
    ) -> bool {
        let mut free = self.free.clone();
        let gone: BTreeSet<&JobId> = gone.iter().chain(self.leaving.keys().filter(|_| settled)).collect();
        for hold in gone.into_iter().filter_map(|id| self.leaves(id, settled)) {
            free.add(&hold.shape.total);
        }
        beside.iter().chain([asked]).all(|shape| {
            let fits = fits_sum(&free, &shape.gang).is_ok();
            free.sub(&shape.total);
            fits
        })
    }
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityChange {
    None,
    Grown,
}

/// What has changed about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Only its capacity.
    Report,
    /// It is new, or facts have changed that decide which jobs it admits.
    Facts,
}

fn sum(shapes: &[NodeShape], of: fn(&NodeShape) -> &Resources) -> Resources {
    let mut sum = Resources::new();
    for shape in shapes {
        sum.add(&of(shape).scaled(shape.count));
    }
    sum
}

/// Free capacity of all members.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    known: BTreeMap<String, Room>,
    /// Incremented when the set of members or a fact about one changes, capacity excepted.
    pub facts_version: u64,
    /// Incremented also when the nodes of a member change, whatever is free on them.
    pub empty_version: u64,
}

impl Rooms {
    /// Sets a member's report and facts. Places that the report does not include are subtracted again.
    pub fn set(&mut self, name: &str, member: Member) -> News {
        let mut room = Room::new(member);
        let known = self.known.remove(name);
        let same_nodes = known.as_ref().is_some_and(|known| known.nodes.same_when_empty(&room.nodes));
        let same = known.as_ref().is_some_and(|known| {
            known.facts == room.facts && known.serves == room.serves && known.reserves == room.reserves
        });
        if let Some(known) = known {
            let newer = room.sequence > known.sequence;
            for (id, hold) in known.holds {
                let held = Held { nodes: hold.nodes, ..Held::here(name, hold.counted) };
                room.hold(&id, &hold.shape, &held);
            }
            room.leaving = known.leaving;
            room.leaving.retain(|_, leaving| {
                leaving.reports_left -= u8::from(newer);
                leaving.reports_left > 0
            });
        }
        self.facts_version += u64::from(!same);
        self.empty_version += u64::from(!(same && same_nodes));
        self.known.insert(name.to_string(), room);
        if same { News::Report } else { News::Facts }
    }

    /// Returns whether the member was known.
    pub fn remove(&mut self, name: &str) -> bool {
        let known = self.known.remove(name).is_some();
        self.facts_version += u64::from(known);
        self.empty_version += u64::from(known);
        known
    }

    pub fn hold(&mut self, id: &JobId, shape: &Arc<JobShape>, held: &Held) -> CapacityChange {
        self.known.get_mut(&held.cluster).map_or(CapacityChange::None, |room| room.hold(id, shape, held))
    }

    /// See [`Room::fits_without`].
    pub fn fits_without(
        &mut self,
        cluster: &str,
        jobs: &[&WaitingJob],
        shape_of: &dyn Fn(&JobId) -> Option<Arc<JobShape>>,
        gone: &[JobId],
        settled: bool,
    ) -> bool {
        self.known.get_mut(cluster).is_some_and(|room| room.fits_without(jobs, shape_of, gone, settled))
    }

    /// For how many gangs of these sums there is enough free capacity, as far as sums say.
    pub fn free_for(&self, total: &Resources) -> usize {
        let each = |room: &Room| {
            let asked = total.iter().filter(|(_, amount)| *amount > 0);
            let counts = asked.map(|(name, amount)| room.free.get(name.as_str()).max(0) / amount);
            counts.min().map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        self.known.values().map(each).fold(0, usize::saturating_add)
    }

    /// Gives up on places of ended jobs that no report has shown free for too long. Returns the clusters, and
    /// when the next are due.
    pub fn give_up_leaving(&mut self, now_ms: i64) -> (Vec<String>, Option<i64>) {
        let (mut changed, mut due) = (Vec::new(), None);
        for (name, room) in &mut self.known {
            let before = room.leaving.len();
            room.leaving.retain(|_, leaving| {
                let until = *leaving.until_ms.get_or_insert(now_ms + REPORT_PATIENCE_MS);
                if until > now_ms {
                    due = crate::decision::earliest(due, Some(until));
                }
                until > now_ms
            });
            if room.leaving.len() < before {
                changed.push(name.clone());
            }
        }
        (changed, due)
    }

    /// The jobs that hold places in a cluster.
    pub fn running_in(&self, cluster: &str) -> Vec<JobId> {
        self.known.get(cluster).map(|room| room.holds.keys().cloned().collect()).unwrap_or_default()
    }

    pub fn give_back(&mut self, cluster: &str, id: &JobId) -> CapacityChange {
        self.known.get_mut(cluster).map_or(CapacityChange::None, |room| room.give_back(id))
    }

    pub fn get(&self, name: &str) -> Option<&Room> {
        self.known.get(name)
    }

    pub fn get_key_value(&self, name: &str) -> Option<(&String, &Room)> {
        self.known.get_key_value(name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Room> {
        self.known.get_mut(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Room)> {
        self.known.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
