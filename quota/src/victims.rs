//! Whose jobs make room for a job that may take it.
//!
//! Three rules, tried in this order. *Reclaim*: a job inside its leaf's min
//! takes from siblings of its path that are above theirs. *FairShare* (where
//! the root says so): a job above min takes from siblings that keep the larger
//! dominant share. *InQueuePriority*: in its own leaf, from lower priorities.
//! The search releases victims in the ledger, asks whether the job fits tree
//! and cluster, puts back whom it does not need, and restores the ledger before
//! it answers.

mod candidates;
mod honest;
mod worth;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::Resources;

use crate::ledger::{AdmittedJob, JobId, Ledger};
use crate::places::{ClusterName, Places};
use crate::plan::{TakeRule, Victim};
use crate::planner::Started;
use crate::queues::WaitingJob;
use crate::share::Share;
use crate::tree::{GUARANTEE, NodeId, QuotaTree, RECLAIM, Request, SHARE_PREEMPTION, WITHIN};
use crate::verdict::Rule;
use worth::Protected;

/// Clusters whose victims are compared, best first; the others are not looked at.
const CLUSTERS_COMPARED: usize = 128;
/// Sets of victims looked at in one cluster, at most.
const SETS_TRIED: usize = 16;
/// Jobs taken for one, at most.
const MAX_VICTIMS: usize = 1024;

/// What a taker counts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub cluster: ClusterName,
    pub victims: Vec<Victim>,
    /// Jobs already ending that it needs too.
    pub awaited: Vec<JobId>,
}

/// What a search came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Searched {
    pub found: Option<Found>,
    /// A job that was not looked at because it is protected, and until when: the one to be looked at first.
    pub protected: Option<(i64, JobId)>,
    /// When to search again although nothing has changed.
    pub again_ms: Option<i64>,
}

/// One cluster to start in.
#[derive(Clone, Debug)]
pub(crate) struct Goal<'g> {
    pub cluster: ClusterName,
    /// Takers that count on places there already, and their victims.
    pub takers: Vec<&'g WaitingJob>,
    pub gone: Vec<JobId>,
}

/// What a search is told beside ledger and places.
#[derive(Clone, Copy)]
pub(crate) struct Known<'k> {
    /// Jobs on their way out that nobody counts on yet: they come first.
    pub ending: &'k BTreeSet<JobId>,
    /// Jobs that the present plan has started: the oracle may not know where.
    pub started: &'k BTreeMap<JobId, Started>,
    /// When jobs started that did so a short while ago.
    pub fresh: &'k BTreeMap<JobId, i64>,
    pub now_ms: i64,
    /// Whether the taker fits its path beside what is kept from it.
    pub leaves_room: &'k dyn Fn(&Ledger) -> bool,
}

/// By which rights a job may take, whether or not that leads anywhere.
pub(crate) struct Rights;

impl Rights {
    /// From others, as guaranteed.
    pub fn reclaim(ledger: &Ledger, leaf: NodeId, request: &Request) -> bool {
        let tree = ledger.tree();
        attribute(tree, leaf, RECLAIM) != "Never"
            && (ledger.node_inside_min(leaf, request)
                || tree
                    .path_to_root(leaf)
                    .any(|node| lends_min(tree, node) && ledger.node_inside_min(node, request)))
    }

    /// From larger shares.
    pub fn fair_share(tree: &QuotaTree) -> bool {
        attribute(tree, NodeId::ROOT, SHARE_PREEMPTION) == "FairShare"
    }

    /// From its own leaf: is there anyone?
    pub fn within(ledger: &Ledger, taker: &WaitingJob) -> bool {
        own_candidates(ledger, taker).next().is_some()
    }
}

/// The cheapest set of victims after which `taker` fits its path and one of
/// `goals`; none where no right leads there. Victims of other takers have left
/// the ledger and those takers are in it. `ending` are jobs on their way out:
/// they come first. The ledger is the same after the call.
pub(crate) fn search(
    ledger: &mut Ledger,
    places: &mut dyn Places,
    taker: &WaitingJob,
    known: Known,
    goals: &[Goal],
) -> Searched {
    let request = ledger.tree().request(&taker.request);
    let tree = Arc::clone(ledger.tree());
    let mut search = Search {
        tree,
        ledger,
        places,
        taker,
        request,
        known,
        by_leaf: BTreeMap::new(),
        guaranteed: Vec::new(),
        shares: Vec::new(),
        spared: Vec::new(),
        protected: Protected::default(),
    };
    let found = search.best(goals);
    // Places of jobs that have ended may count twice until a report has shown them: who is evicted has to help
    // without them, else it is asked again once they show.
    let found = found.filter(|(goal, found)| found.victims.is_empty() || search.helps_for_sure(goal, found));
    let (protected, again_ms) = (search.protected.first(), search.protected.again_ms());
    Searched { found: found.map(|(_, found)| found), protected, again_ms }
}

/// What a set of victims costs: the highest priority among them, the work lost,
/// how many they are.
type Cost = (i64, i64, usize);

/// A released job and the right by which; none for jobs already ending.
type Released = (AdmittedJob, Option<TakeRule>);

struct Search<'s> {
    tree: Arc<QuotaTree>,
    ledger: &'s mut Ledger,
    places: &'s mut dyn Places,
    taker: &'s WaitingJob,
    request: Request,
    known: Known<'s>,
    /// Jobs of the leaves that were visited, those to be taken first in front.
    by_leaf: BTreeMap<NodeId, Vec<AdmittedJob>>,
    /// Where the min of the taker's side reaches: see [`Search::reckon_rights`].
    guaranteed: Vec<NodeId>,
    /// Per node of the path, the share that the taker would lead to.
    shares: Vec<(NodeId, Share)>,
    /// Jobs that led to a swap, and those equal to them: not looked at again.
    spared: Vec<(NodeId, i64, Resources)>,
    protected: Protected,
}

/// What still keeps the taker from starting.
#[derive(Clone, Debug, Default)]
struct Lack {
    /// The lowest node of its path without room.
    quota_at: Option<NodeId>,
    places: bool,
    /// Resources that are short there, of those that the taker asks for.
    short: Vec<usize>,
    /// It may not be preempted, and jobs like it hold the min: nobody's leaving helps.
    hopeless: bool,
}

impl Lack {
    fn is_nothing(&self) -> bool {
        self.quota_at.is_none() && !self.places
    }
}

/// Whether a job may be taken; the node is the sibling of the taker's path that it is below.
type MayTake<'f, 's> = &'f dyn Fn(&Search<'s>, NodeId, &AdmittedJob) -> bool;

impl<'s> Search<'s> {
    fn best<'g>(&mut self, goals: &'g [Goal<'g>]) -> Option<(&'g Goal<'g>, Found)> {
        let goals = &goals[..goals.len().min(CLUSTERS_COMPARED)];
        // Where it fits now, only quota has to be taken.
        for goal in goals {
            let going: Vec<JobId> = self.known.ending.iter().chain(&goal.gone).cloned().collect();
            if self.fits_in(goal, &going) {
                let found = [false, true].into_iter().find_map(|own| self.without_swap(goal, own));
                return found.map(|(_, found)| (goal, found));
            }
        }
        [false, true].into_iter().find_map(|own| {
            let found = goals.iter().filter_map(|goal| {
                let (cost, found) = self.without_swap(goal, own)?;
                Some((cost, goal, found))
            });
            // Of equal costs the first, which is the preferred cluster.
            found.min_by_key(|(cost, ..)| *cost).map(|(_, goal, found)| (goal, found))
        })
    }

    fn helps_for_sure(&mut self, goal: &Goal, found: &Found) -> bool {
        let victims = found.victims.iter().map(|victim| &victim.job);
        let gone: Vec<JobId> = victims.chain(&found.awaited).chain(&goal.gone).cloned().collect();
        let mut jobs = goal.takers.clone();
        jobs.push(self.taker);
        self.places.fits_without(&jobs, &goal.cluster, &gone)
    }

    /// One set of which nobody could take its room back. A victim that could is spared, and another set is
    /// looked for; so it is where a victim would only hand its fate on, unless there is no other set.
    fn without_swap(&mut self, goal: &Goal, own: bool) -> Option<(Cost, Found)> {
        self.spared.clear();
        let mut handing_on = None;
        for _ in 0..SETS_TRIED {
            let Some((cost, found)) = self.with_own(goal, own) else { break };
            let worth = !self.costs_too_much(&found);
            let spared = match self.takes_back(goal, &found) {
                Some(job) => job,
                None => match self.hands_on(goal, &found) {
                    None if worth => return Some((cost, found)),
                    None => break,
                    Some(job) => {
                        handing_on = handing_on.or(worth.then_some((cost, found)));
                        job
                    }
                },
            };
            self.spared.push((spared.leaf, spared.priority, spared.request));
        }
        handing_on
    }

    /// One set, without or with victims in the taker's own leaf. Own victims
    /// count as gone from the start, so that they lower the taker's own use.
    fn with_own(&mut self, goal: &Goal, own: bool) -> Option<(Cost, Found)> {
        let own: Vec<AdmittedJob> = if own { self.own_in_order() } else { Vec::new() };
        let mut released: Vec<Released> = Vec::new();
        for id in self.known.ending {
            released.extend(self.ledger.release(id).map(|job| (job, None)));
        }
        for job in &own {
            self.ledger.release(&job.id);
        }
        self.reckon_rights();
        let mut fits = false;
        while released.len() <= MAX_VICTIMS {
            let lack = self.lack(goal, released.iter().map(|(job, _)| job).chain(&own));
            fits = lack.is_nothing();
            if fits {
                break;
            }
            let Some((job, rule)) = self.next(goal, &lack) else { break };
            self.ledger.release(&job.id);
            released.push((job, Some(rule)));
        }
        released.extend(own.into_iter().map(|job| (job, Some(TakeRule::InQueuePriority))));
        let kept = self.put_back(goal, released, fits);
        if !fits {
            return None;
        }
        let kept = self.spare_those_of_no_use(goal, kept)?;
        Some(self.found(goal, kept))
    }

    /// Restores the ledger; whom the taker does not need is not kept, last
    /// added first.
    fn put_back(&mut self, goal: &Goal, mut released: Vec<Released>, fits: bool) -> Vec<Released> {
        let mut kept: Vec<Released> = Vec::new();
        while let Some((job, rule)) = released.pop() {
            self.ledger.admit(job.clone());
            if !fits {
                continue;
            }
            let gone = released.iter().chain(&kept).map(|(job, _)| job);
            let lack = self.lack(goal, gone);
            let own = rule == Some(TakeRule::InQueuePriority);
            if !lack.is_nothing() || (own && !self.stay_rightful(&released)) {
                self.ledger.release(&job.id);
                kept.push((job, rule));
            }
        }
        kept.reverse();
        for (job, _) in &kept {
            self.ledger.admit(job.clone());
        }
        kept
    }

    /// Jobs of the taker's own leaf that gave it a right to others and no room are not evicted: they would start
    /// again at once. Its leaf's min is the taker's before theirs all the same; what it takes by its share it
    /// would hold beside them, so that such a set does not count.
    fn spare_those_of_no_use(&mut self, goal: &Goal, kept: Vec<Released>) -> Option<Vec<Released>> {
        if kept.iter().all(|(_, rule)| *rule != Some(TakeRule::InQueuePriority)) {
            return Some(kept);
        }
        for (job, _) in &kept {
            self.ledger.release(&job.id);
        }
        let (mut needed, mut spared) = (kept.clone(), false);
        for (job, rule) in kept.iter().rev().filter(|(_, rule)| *rule == Some(TakeRule::InQueuePriority)) {
            self.ledger.admit(job.clone());
            let gone = needed.iter().map(|(job, _)| job).filter(|other| other.id != job.id);
            let gone: Vec<AdmittedJob> = gone.cloned().collect();
            if self.lack(goal, gone.iter()).is_nothing() {
                needed.retain(|(other, _)| other.id != job.id);
                spared = true;
            } else {
                self.ledger.release(&job.id);
            }
            debug_assert_eq!(*rule, Some(TakeRule::InQueuePriority));
        }
        for (job, _) in &needed {
            self.ledger.admit(job.clone());
        }
        let by_share = needed.iter().any(|(_, rule)| *rule == Some(TakeRule::FairShare));
        (!spared || !by_share).then_some(needed)
    }

    fn found(&self, goal: &Goal, kept: Vec<Released>) -> (Cost, Found) {
        let mut found = Found { cluster: goal.cluster.clone(), victims: Vec::new(), awaited: Vec::new() };
        let mut cost = (i64::MIN, 0_i64, 0);
        for (job, rule) in kept {
            let Some(rule) = rule else {
                found.awaited.push(job.id);
                continue;
            };
            let lost_work_ms = self.places.lost_work_ms(&job.id);
            cost = (cost.0.max(job.priority), cost.1.saturating_add(lost_work_ms), cost.2 + 1);
            found.victims.push(Victim { job: job.id, rule, lost_work_ms });
        }
        (cost, found)
    }

    /// The cluster is asked only once the tree has room: that costs more.
    fn lack<'j>(&mut self, goal: &Goal, gone: impl Iterator<Item = &'j AdmittedJob>) -> Lack {
        let (leaf, firm) = (self.taker.leaf, !self.taker.preemptible);
        if let Some(short) = self.ledger.first_short(leaf, &self.request, !firm, |_| 0) {
            return Lack {
                quota_at: Some(short.node),
                short: self.ledger.short_at(short.node, &self.request, short.r),
                hopeless: short.rule == Rule::Min,
                places: false,
            };
        }
        if !(self.known.leaves_room)(self.ledger) {
            return Lack { quota_at: Some(NodeId::ROOT), short: self.asked(), ..Lack::default() };
        }
        let gone: Vec<JobId> = gone.map(|job| job.id.clone()).chain(goal.gone.iter().cloned()).collect();
        if self.fits_in(goal, &gone) {
            return Lack::default();
        }
        let mut jobs = goal.takers.clone();
        jobs.push(self.taker);
        let named = self.places.short_in(&jobs, &goal.cluster, &gone);
        let named = named.iter().filter_map(|name| self.tree.resource_index(name.as_str()));
        let mut short: Vec<usize> = named.filter(|r| self.request.amount(*r) > 0).collect();
        if short.is_empty() {
            short = self.asked();
        }
        Lack { places: true, short, ..Lack::default() }
    }

    fn fits_in(&mut self, goal: &Goal, gone: &[JobId]) -> bool {
        let mut jobs = goal.takers.clone();
        jobs.push(self.taker);
        self.places.will_fit_without(&jobs, &goal.cluster, gone)
    }

    fn own_in_order(&mut self) -> Vec<AdmittedJob> {
        let ids: BTreeSet<JobId> =
            own_candidates(self.ledger, self.taker).map(|job| job.id.clone()).collect();
        self.visit(self.taker.leaf);
        let jobs = self.by_leaf.get(&self.taker.leaf).into_iter().flatten();
        jobs.filter(|job| ids.contains(&job.id) && !self.known.ending.contains(&job.id))
            .filter(|job| !self.is_protected(job) && !self.just_started(job))
            .cloned()
            .collect()
    }

    fn cluster_of(&self, job: &JobId) -> Option<ClusterName> {
        let started = self.known.started.get(job).map(|started| started.cluster.clone());
        started.or_else(|| self.places.cluster_of(job))
    }

    /// Reads a leaf's jobs once, in the order in which they are taken.
    fn visit(&mut self, leaf: NodeId) {
        if self.by_leaf.contains_key(&leaf) {
            return;
        }
        let mut jobs: Vec<AdmittedJob> = self.ledger.preemptible_in(leaf).cloned().collect();
        jobs.sort_by_cached_key(|job| self.order_of(job));
        self.by_leaf.insert(leaf, jobs);
    }

    /// Lower priority first, least work lost, newest, name.
    fn order_of(&self, job: &AdmittedJob) -> VictimOrder {
        (job.priority, self.places.lost_work_ms(&job.id), Reverse(job.admitted_at_ms), job.id.clone())
    }
}

type VictimOrder = (i64, i64, Reverse<i64>, JobId);

/// Jobs of the taker's leaf that it may take.
fn own_candidates<'l>(
    ledger: &'l Ledger,
    taker: &WaitingJob,
) -> impl Iterator<Item = &'l AdmittedJob> + use<'l> {
    let within = attribute(ledger.tree(), taker.leaf, WITHIN);
    let (priority, age) = (taker.priority, taker.enqueued_at_ms);
    let jobs = ledger.preemptible_in(taker.leaf).take_while(move |job| job.priority <= priority);
    jobs.filter(move |job| match within {
        "Never" => false,
        "LowerOrNewerEqualPriority" => job.priority < priority || job.enqueued_at_ms > age,
        _ => job.priority < priority,
    })
}

/// The node lends its own min to any job below it.
pub(crate) fn lends_min(tree: &QuotaTree, node: NodeId) -> bool {
    node != NodeId::ROOT && !tree.node(node).is_leaf() && attribute(tree, node, GUARANTEE) == "Subtree"
}

fn attribute<'t>(tree: &'t QuotaTree, node: NodeId, name: &str) -> &'t str {
    tree.node(node).attributes.get(name).map_or("", String::as_str)
}
