//! One random history from a seed.

use std::collections::{BTreeMap, BTreeSet};

use super::{laws, shapes::Shapes};
use crate::{Ask, Cells, Decision, GroupRequest, GroupState, NodeName, Phase, Proposal, Unreported};

/// SplitMix64: small, and the same everywhere.
pub(super) struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound.max(1) as u64) as usize
    }

    pub(super) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }
}

/// Plays one history; what it breaks, if anything.
pub(super) fn run(shapes: Shapes, seed: u64) -> Result<(), String> {
    let dice = &mut Dice(seed);
    let config = shapes.config(dice);
    let cells = Cells::new(config, Unreported::Good).map_err(|errors| errors.to_string())?;
    let (asked, since) = (BTreeMap::new(), BTreeMap::new());
    let mut history = History { shapes, cells, asked, since, number: 0, now_ms: 0 };
    let steps = 5 + dice.below(40);
    for step in 0..steps {
        history.now_ms += 1_000;
        history.step(dice).map_err(|broken| format!("step {step}: {broken}"))?;
        check(&history.cells).map_err(|broken| format!("step {step}: {broken}"))?;
    }
    history.end().map_err(|broken| format!("end: {broken}"))
}

fn check(cells: &Cells) -> Result<(), String> {
    let broken = cells.audit();
    if broken.is_empty() { laws::obtainable(cells) } else { Err(broken.join("; ")) }
}

struct History {
    shapes: Shapes,
    cells: Cells,
    /// Groups that were asked about and not released.
    asked: BTreeMap<String, GroupRequest>,
    /// When the work of a group began that would be lost with it: its start, or its last checkpoint.
    since: BTreeMap<String, i64>,
    number: usize,
    now_ms: i64,
}

impl History {
    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        let kinds = match self.shapes {
            Shapes::Plain => 20,
            Shapes::Many => 22,
        };
        match dice.below(kinds) {
            0..=8 => {
                let request = self.shapes.request(dice, self.number, self.cells.config());
                self.number += 1;
                self.schedule(&request, dice)
            }
            9..=11 => {
                let waiting: Vec<GroupRequest> = self.asked.values().cloned().collect();
                match dice.pick(&waiting) {
                    Some(request) => self.schedule(&request.clone(), dice),
                    None => Ok(()),
                }
            }
            12..=14 => self.release(dice),
            15 => self.evict_victims(),
            16 | 17 => {
                let nodes: Vec<NodeName> = self.cells.nodes().cloned().collect();
                if let Some(node) = dice.pick(&nodes) {
                    let good = !dice.one_in(3);
                    self.cells.set_node_health(node, good);
                }
                Ok(())
            }
            18 => self.crash(),
            19 => self.reconfigure(dice),
            _ => self.save(dice),
        }
    }

    /// A group saves a checkpoint.
    fn save(&mut self, dice: &mut Dice) -> Result<(), String> {
        let groups = self.cells.groups();
        let Some(group) = dice.pick(&groups).filter(|group| group.state != GroupState::Preempting) else {
            return Ok(());
        };
        let at_ms = self.now_ms - dice.below(3_000) as i64;
        if !self.cells.set_checkpoint(&group.name, at_ms) {
            return Err(format!("{} is there and saves no checkpoint", group.name));
        }
        let since = self.since.entry(group.name.clone()).or_default();
        *since = at_ms.max(*since);
        Ok(())
    }

    fn schedule(&mut self, request: &GroupRequest, dice: &mut Dice) -> Result<(), String> {
        if !self.cells.config().virtual_clusters.contains_key(&request.vc) {
            return Ok(());
        }
        let nodes: Vec<NodeName> = self.cells.nodes().cloned().collect();
        let suggested: Option<BTreeSet<NodeName>> =
            dice.one_in(3).then(|| nodes.into_iter().filter(|_| !dice.one_in(3)).collect());
        let phase = if dice.one_in(4) { Phase::Filtering } else { Phase::Preempting };
        let (mut excluded, mut clusters) = (BTreeSet::new(), None);
        if self.shapes == Shapes::Many {
            let nodes = self.cells.nodes().cloned().collect::<Vec<_>>();
            let one_in = if dice.one_in(5) { 3 } else { usize::MAX };
            excluded.extend(nodes.into_iter().filter(|_| dice.one_in(one_in)));
            clusters = dice.one_in(3).then(|| self.some_clusters(dice));
        }
        let ask = Ask {
            now_ms: self.now_ms,
            phase,
            suggested: suggested.as_ref(),
            excluded: Some(&excluded),
            clusters: clusters.as_deref(),
        };
        self.asked.insert(request.name().to_string(), request.clone());
        let before = self.cells.clone();
        let decision = self.cells.schedule(request, &ask);
        laws::decision(&before, &self.cells, request, &ask, &decision)?;
        match decision {
            Decision::Place(proposal) => {
                self.lost_work(&proposal)?;
                self.cells.commit(&proposal).map_err(|stale| stale.to_string())?;
                let had = before.group(request.name()).filter(|group| group.state != GroupState::Preempting);
                if let Some(had) = had {
                    return laws::unmoved(&had, &self.cells);
                }
                self.since.insert(request.name().to_string(), self.now_ms);
                laws::hidden(&before, &self.cells, request, &ask, &proposal)?;
                laws::placed(&self.cells, request, &proposal)
            }
            Decision::Preempt(proposal) if phase == Phase::Preempting => {
                self.lost_work(&proposal)?;
                self.cells.commit(&proposal).map_err(|stale| stale.to_string())?;
                laws::hidden(&before, &self.cells, request, &ask, &proposal)?;
                laws::reserved(&self.cells, request, &proposal)
            }
            Decision::Preempt(_) | Decision::Wait(_) => Ok(()),
            Decision::Refuse(_) => {
                self.asked.remove(request.name());
                Ok(())
            }
        }
    }

    /// Some of the clusters, in any order.
    fn some_clusters(&self, dice: &mut Dice) -> Vec<String> {
        let mut names = self.cells.topology.clusters.clone();
        let start = dice.below(names.len());
        names.rotate_left(start);
        names.truncate(1 + dice.below(names.len()));
        names
    }

    /// What each victim would lose, from its start or its last checkpoint on.
    fn lost_work(&self, proposal: &Proposal) -> Result<(), String> {
        for victim in &proposal.victims {
            let Some(since) = self.since.get(&victim.group) else { continue };
            let group = self.cells.group(&victim.group);
            let pods = group.iter().flat_map(|group| &group.placement.pods);
            let leaves = pods.map(|pod| pod.leaf_cells.len() as i64).sum::<i64>();
            let lost_ms = (self.now_ms - since).max(0) * leaves;
            if victim.lost_work_ms != lost_ms {
                let (name, told) = (&victim.group, victim.lost_work_ms);
                return Err(format!("{name} would lose {lost_ms} ms on {leaves} leaves, told: {told} ms"));
            }
        }
        Ok(())
    }

    fn release(&mut self, dice: &mut Dice) -> Result<(), String> {
        let groups = self.cells.groups();
        let Some(group) = dice.pick(&groups) else { return Ok(()) };
        let pods = group.placement.pods.len();
        if dice.one_in(3) && group.state != GroupState::Preempting {
            let pod = dice.below(pods);
            if self.cells.release_pod(&group.name, pod) {
                self.asked.remove(&group.name);
            }
            return Ok(());
        }
        self.cells.release(&group.name).ok_or("a group that is there cannot be released")?;
        self.asked.remove(&group.name);
        Ok(())
    }

    /// The victims of one preempting group go, and it takes its cells.
    fn evict_victims(&mut self) -> Result<(), String> {
        let groups = self.cells.groups();
        let Some(preemptor) = groups.iter().find(|group| group.state == GroupState::Preempting) else {
            return Ok(());
        };
        for victim in &preemptor.victims {
            self.cells.release(victim);
            self.asked.remove(victim);
        }
        let Some(request) = self.asked.get(&preemptor.name).cloned() else { return Ok(()) };
        let ask = Ask { now_ms: self.now_ms, phase: Phase::Filtering, ..Ask::default() };
        match self.cells.schedule(&request, &ask) {
            Decision::Place(proposal) => {
                self.cells.commit(&proposal).map_err(|stale| stale.to_string())?;
                self.since.insert(preemptor.name.clone(), self.now_ms);
                laws::placed(&self.cells, &request, &proposal)
            }
            other => Err(format!("the victims of {} are gone, but: {other:?}", preemptor.name)),
        }
    }

    fn crash(&mut self) -> Result<(), String> {
        let before = self.cells.bound_groups();
        let good = self.cells.good_nodes();
        let (cells, lost) = Cells::recover(self.cells.config().clone(), &good, before.clone(), self.now_ms)
            .map_err(|errors| errors.to_string())?;
        if !lost.is_empty() {
            return Err(format!("a crash lost {lost:?}"));
        }
        laws::same_places(&before, &cells.bound_groups())?;
        self.cells = cells;
        Ok(())
    }

    fn reconfigure(&mut self, dice: &mut Dice) -> Result<(), String> {
        let new = self.shapes.config(dice);
        let before = self.cells.bound_groups();
        let preview = self.cells.preview(new.clone(), Unreported::Good, self.now_ms);
        let done = self.cells.reconfigure(new, Unreported::Good, self.now_ms);
        if preview != done {
            return Err(format!("previewed {preview:?}, done {done:?}"));
        }
        laws::kept(&before, &self.cells, &done.map_err(|errors| errors.to_string())?)?;
        self.asked.retain(|_, request| self.cells.config().virtual_clusters.contains_key(&request.vc));
        Ok(())
    }

    /// When all are gone, the state is the one it began with.
    fn end(mut self) -> Result<(), String> {
        for group in self.cells.groups() {
            self.cells.release(&group.name);
        }
        check(&self.cells)?;
        let mut fresh =
            Cells::new(self.cells.config().clone(), Unreported::Good).map_err(|errors| errors.to_string())?;
        for node in self.cells.nodes().cloned().collect::<Vec<_>>() {
            fresh.set_node_health(&node, self.cells.is_good(&node));
        }
        match self.cells.state.differs_from(&fresh.state) {
            None if self.cells.physical_cells() == fresh.physical_cells() => Ok(()),
            None => Err("the cells are not as in the beginning".into()),
            Some(index) => Err(format!("{index} are not as in the beginning")),
        }
    }
}
