//! Whose jobs make room for a job that may take it.
//!
//! Three rules, tried in this order. *Reclaim*: a job inside its leaf's min
//! takes from siblings of its path that are above theirs. *FairShare* (where
//! the root says so): a job above min takes from siblings that keep the larger
//! dominant share. *InQueuePriority*: in its own leaf, from lower priorities.
//! The search releases victims in the ledger, asks whether the job fits tree
//! and cluster, puts back whom it does not need, and restores the ledger before
//! it answers.

mod honest;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::{AdmittedJob, JobId, Ledger};
use crate::places::{ClusterName, Places};
use crate::plan::{TakeRule, Victim};
use crate::queues::WaitingJob;
use crate::share::Share;
use crate::tree::{GUARANTEE, JOBS, NodeId, QuotaTree, RECLAIM, Request, SHARE_PREEMPTION, WITHIN};

/// Clusters whose victims are compared, best first; the others are not looked at.
const CLUSTERS_COMPARED: usize = 128;
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

/// One cluster to start in.
#[derive(Clone, Debug)]
pub(crate) struct Goal<'g> {
    pub cluster: ClusterName,
    /// Takers that count on places there already, and their victims.
    pub takers: Vec<&'g WaitingJob>,
    pub gone: Vec<JobId>,
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
/// `goals`; `None` where no right leads there. Victims of other takers have left
/// the ledger and those takers are in it. `ending` are jobs on their way out:
/// they come first. The ledger is the same after the call.
pub(crate) fn search(
    ledger: &mut Ledger,
    places: &mut dyn Places,
    taker: &WaitingJob,
    ending: &BTreeSet<JobId>,
    goals: &[Goal],
    leaves_room: &dyn Fn(&Ledger) -> bool,
) -> Option<Found> {
    let request = ledger.tree().request(&taker.request);
    let tree = Arc::clone(ledger.tree());
    let mut search = Search {
        tree,
        ledger,
        places,
        taker,
        request,
        ending,
        leaves_room,
        by_leaf: BTreeMap::new(),
        guaranteed: Vec::new(),
        shares: Vec::new(),
    };
    let (goal, found) = search.best(goals)?;
    // Places of jobs that have ended may count twice until a report has shown them: who is evicted has to help
    // without them, else it is asked again once they show.
    let helps = found.victims.is_empty() || search.helps_for_sure(goal, &found);
    helps.then_some(found)
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
    ending: &'s BTreeSet<JobId>,
    leaves_room: &'s dyn Fn(&Ledger) -> bool,
    /// Jobs of the leaves that were visited, those to be taken first in front.
    by_leaf: BTreeMap<NodeId, Vec<AdmittedJob>>,
    /// Where the min of the taker's side reaches: see [`Search::guaranteed_levels`].
    guaranteed: Vec<NodeId>,
    /// Per node of the path, the share that the taker would lead to.
    shares: Vec<(NodeId, Share)>,
}

/// What still keeps the taker from starting.
#[derive(Clone, Copy)]
struct Lack {
    /// The lowest node of its path without room.
    quota_at: Option<NodeId>,
    places: bool,
}

impl Search<'_> {
    fn best<'g>(&mut self, goals: &'g [Goal<'g>]) -> Option<(&'g Goal<'g>, Found)> {
        let goals = &goals[..goals.len().min(CLUSTERS_COMPARED)];
        // Where it fits now, only quota has to be taken.
        for goal in goals {
            let going: Vec<JobId> = self.ending.iter().chain(&goal.gone).cloned().collect();
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

    /// One set, unless one of its victims could take its room back.
    fn without_swap(&mut self, goal: &Goal, own: bool) -> Option<(Cost, Found)> {
        let found = self.with_own(goal, own)?;
        (!self.is_swap(&found.1)).then_some(found)
    }

    /// One set, without or with victims in the taker's own leaf. Own victims
    /// count as gone from the start, so that they lower the taker's own use.
    fn with_own(&mut self, goal: &Goal, own: bool) -> Option<(Cost, Found)> {
        let own: Vec<AdmittedJob> = if own { self.own_in_order() } else { Vec::new() };
        let mut released: Vec<Released> = Vec::new();
        for id in self.ending {
            released.extend(self.ledger.release(id).map(|job| (job, None)));
        }
        for job in &own {
            self.ledger.release(&job.id);
        }
        self.reckon_rights();
        let mut fits = false;
        while released.len() <= MAX_VICTIMS {
            let lack = self.lack(goal, released.iter().map(|(job, _)| job).chain(&own));
            fits = lack.quota_at.is_none() && !lack.places;
            if fits {
                break;
            }
            let Some((job, rule)) = self.next(goal, lack) else { break };
            self.ledger.release(&job.id);
            released.push((job, Some(rule)));
        }
        released.extend(own.into_iter().map(|job| (job, Some(TakeRule::InQueuePriority))));
        let kept = self.put_back(goal, released, fits);
        fits.then(|| self.found(goal, kept))
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
            if lack.places || lack.quota_at.is_some() || (own && !self.stay_rightful(&released)) {
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
        let short = self.ledger.first_short(self.taker.leaf, &self.request, self.taker.preemptible, |_| 0);
        let mut quota_at = short.map(|short| short.node);
        if quota_at.is_none() && !(self.leaves_room)(self.ledger) {
            quota_at = Some(NodeId::ROOT);
        }
        let gone: Vec<JobId> = gone.map(|job| job.id.clone()).chain(goal.gone.iter().cloned()).collect();
        Lack { quota_at, places: quota_at.is_none() && !self.fits_in(goal, &gone) }
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
        jobs.filter(|job| ids.contains(&job.id) && !self.ending.contains(&job.id)).cloned().collect()
    }

    fn next(&mut self, goal: &Goal, lack: Lack) -> Option<(AdmittedJob, TakeRule)> {
        if let Some(job) = self.next_reclaimed(goal, lack) {
            return Some((job, TakeRule::Reclaim));
        }
        let job = self.next_by_share(goal, lack)?;
        Some((job, TakeRule::FairShare))
    }

    /// The nodes of the path whose siblings' jobs can help: below the node
    /// without room.
    fn levels(&self, lack: Lack) -> Vec<NodeId> {
        let path = self.tree.path_to_root(self.taker.leaf);
        path.take_while(|node| Some(*node) != lack.quota_at && *node != NodeId::ROOT).collect()
    }

    /// Where the min of the taker's side reaches, and what share it comes to. Only victims of its own leaf count
    /// as gone: what it takes from one sibling gives it no right to another's, as that one may be put back.
    fn reckon_rights(&mut self) {
        let mut guaranteed = self.ledger.node_inside_min(self.taker.leaf, &self.request);
        let path = self.tree.path_to_root(self.taker.leaf).filter(|node| *node != NodeId::ROOT);
        (self.guaranteed, self.shares) = (Vec::new(), Vec::new());
        for node in path {
            guaranteed |= lends_min(&self.tree, node) && self.ledger.node_inside_min(node, &self.request);
            if guaranteed {
                self.guaranteed.push(node);
            }
            if Rights::fair_share(&self.tree) {
                self.shares.push((node, Share::after(self.ledger, node, &self.request, 1)));
            }
        }
    }

    fn next_reclaimed(&mut self, goal: &Goal, lack: Lack) -> Option<AdmittedJob> {
        let right = attribute(&self.tree, self.taker.leaf, RECLAIM).to_owned();
        if right == "Never" {
            return None;
        }
        let priority = self.taker.priority;
        let may_take = |_: &Self, job: &AdmittedJob| right != "LowerPriority" || job.priority < priority;
        for node in self.levels(lack) {
            if !self.guaranteed.contains(&node) {
                continue;
            }
            for sibling in self.siblings(node) {
                if let Some(job) = self.first_below(sibling, goal, lack, &may_take) {
                    return Some(job);
                }
            }
        }
        None
    }

    /// Those whose share stays at least the taker's after the victim left; only
    /// when there is none, those whose share is larger before.
    fn next_by_share(&mut self, goal: &Goal, lack: Lack) -> Option<AdmittedJob> {
        if self.ledger.node_inside_min(self.taker.leaf, &self.request) {
            return None;
        }
        let levels: Vec<(NodeId, Share)> = {
            let levels = self.levels(lack);
            self.shares.iter().filter(|(node, _)| levels.contains(node)).copied().collect()
        };
        for (node, own) in &levels {
            for sibling in self.siblings(*node) {
                let stays_larger = |search: &Self, job: &AdmittedJob| {
                    let leaving = search.tree.request(&job.request);
                    Share::after(search.ledger, sibling, &leaving, -1) >= *own
                };
                if let Some(job) = self.first_below(sibling, goal, lack, &stays_larger) {
                    return Some(job);
                }
            }
        }
        let none = Request::default();
        for (node, own) in &levels {
            for sibling in self.siblings(*node) {
                if Share::after(self.ledger, sibling, &none, 0) > *own
                    && let Some(job) = self.first_below(sibling, goal, lack, &|_, _| true)
                {
                    return Some(job);
                }
            }
        }
        None
    }

    /// The node's siblings above their min, the largest share first.
    fn siblings(&self, node: NodeId) -> Vec<NodeId> {
        let Some(parent) = self.tree.node(node).parent else {
            return Vec::new();
        };
        let children = self.tree.node(parent).children.iter().copied();
        self.largest_first(children.filter(|child| *child != node))
    }

    fn largest_first(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let mut found: Vec<NodeId> =
            nodes.filter(|node| self.needed().any(|r| self.is_above_min(*node, r))).collect();
        let none = Request::default();
        found.sort_by_cached_key(|node| {
            (Reverse(Share::after(self.ledger, *node, &none, 0)), self.tree.node(*node).path.as_str())
        });
        found
    }

    /// Resources that the taker asks for.
    fn needed(&self) -> impl Iterator<Item = usize> + '_ {
        self.request.amounts.iter().map(|(r, _)| *r).filter(|r| *r != JOBS)
    }

    fn is_above_min(&self, node: NodeId, r: usize) -> bool {
        self.ledger.used_at(node, r) > self.tree.min_at(node, r)
    }

    /// The first job below `node` that helps and may be taken, in children above
    /// their min only. The stack holds nodes, next on top.
    fn first_below(
        &mut self,
        node: NodeId,
        goal: &Goal,
        lack: Lack,
        may_take: &dyn Fn(&Self, &AdmittedJob) -> bool,
    ) -> Option<AdmittedJob> {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if self.tree.node(node).is_leaf() {
                self.visit(node);
            }
            let jobs = self.by_leaf.get(&node).into_iter().flatten();
            let mut left = jobs.filter(|job| {
                self.ledger.job(&job.id).is_some() && self.helps(node, job, goal, lack) && may_take(self, job)
            });
            if let Some(job) = left.next() {
                return Some(job.clone());
            }
            let children = self.largest_first(self.tree.node(node).children.iter().copied());
            open.extend(children.into_iter().rev());
        }
        None
    }

    /// It holds something that the taker needs and that its leaf only borrows;
    /// where only places are short, places of the cluster.
    fn helps(&self, leaf: NodeId, job: &AdmittedJob, goal: &Goal, lack: Lack) -> bool {
        let names = self.tree.resources();
        let borrowed =
            self.needed().any(|r| self.is_above_min(leaf, r) && job.request.get(names[r].as_str()) > 0);
        borrowed && (!lack.places || self.places.cluster_of(&job.id).as_ref() == Some(&goal.cluster))
    }

    /// Reads a leaf's jobs once: lower priority first, least work lost, newest,
    /// name.
    fn visit(&mut self, leaf: NodeId) {
        if self.by_leaf.contains_key(&leaf) {
            return;
        }
        let mut jobs: Vec<AdmittedJob> = self.ledger.preemptible_in(leaf).cloned().collect();
        jobs.sort_by_cached_key(|job| {
            (job.priority, self.places.lost_work_ms(&job.id), Reverse(job.admitted_at_ms), job.id.clone())
        });
        self.by_leaf.insert(leaf, jobs);
    }
}

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
