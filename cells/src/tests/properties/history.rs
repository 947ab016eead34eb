//! One random history from a seed.

use std::collections::{BTreeMap, BTreeSet};

use super::laws;
use crate::{
    Ask, Cells, Decision, GroupRequest, GroupState, Member, NodeName, Phase, PodGroup, Unreported,
    config::{
        CellType, ClusterConfig, PhysicalCell, PhysicalCluster, PinnedCell, VirtualCell, VirtualCluster,
    },
};

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

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }
}

const VCS: [&str; 3] = ["a", "b", "c"];
/// Types of the chain, from the leaf up, with the number of children.
const TYPES: [(&str, usize); 4] = [("gpu", 1), ("socket", 2), ("node", 2), ("rack", 2)];

fn config(dice: &mut Dice) -> ClusterConfig {
    loop {
        let candidate = candidate(dice);
        if Cells::new(candidate.clone(), Unreported::Good).is_ok() {
            return candidate;
        }
    }
}

fn candidate(dice: &mut Dice) -> ClusterConfig {
    let mut cell_types = BTreeMap::new();
    for level in 1..TYPES.len() {
        cell_types.insert(
            TYPES[level].0.to_string(),
            CellType {
                child_cell_type: TYPES[level - 1].0.to_string(),
                child_cell_number: TYPES[level].1 as i64,
                is_node_level: TYPES[level].0 == "node",
            },
        );
    }
    let racks = 2 + dice.below(3);
    let clusters = if dice.one_in(3) { 2 } else { 1 };
    let mut pinned = false;
    let physical_cells = (0..racks)
        .map(|rack| {
            let mut cell = PhysicalCell { cell_type: "rack".into(), ..PhysicalCell::default() };
            if clusters == 2 {
                cell.cluster = format!("cluster-{}", rack % 2);
            }
            cell.cell_children = (0..2)
                .map(|node| {
                    let mut child = PhysicalCell {
                        cell_address: format!("n{}", rack * 2 + node),
                        ..PhysicalCell::default()
                    };
                    if !pinned && dice.one_in(8) {
                        pinned = true;
                        child.pinned_cell_id = "pin".into();
                    }
                    child
                })
                .collect();
            cell
        })
        .collect();
    let mut virtual_clusters: BTreeMap<String, VirtualCluster> = BTreeMap::new();
    for vc in VCS.iter().take(2 + dice.below(2)) {
        let mut own = VirtualCluster::default();
        for level in 0..TYPES.len() {
            let path: Vec<&str> = TYPES[level..].iter().rev().map(|(name, _)| *name).collect();
            let cell = VirtualCell { cell_type: path.join("."), cell_number: dice.below(3) as i64 };
            if cell.cell_number > 0 && dice.one_in(2) {
                own.virtual_cells.push(cell);
            }
        }
        virtual_clusters.insert((*vc).to_string(), own);
    }
    if pinned && let Some(vc) = virtual_clusters.get_mut("a") {
        vc.pinned_cells.push(PinnedCell { pinned_cell_id: "pin".into() });
    }
    let physical_cluster = PhysicalCluster { sku_types: BTreeMap::new(), cell_types, physical_cells };
    ClusterConfig { physical_cluster, virtual_clusters }
}

fn request(dice: &mut Dice, number: usize, config: &ClusterConfig) -> GroupRequest {
    let vcs: Vec<&String> = config.virtual_clusters.keys().collect();
    let vc = dice.pick(&vcs).map(|vc| (*vc).clone()).unwrap_or_default();
    let priority = [-1, -1, 0, 1, 1, 5][dice.below(6)];
    let mut request = GroupRequest::new(&format!("g{number}"), &vc, priority, 1, 1);
    let members = 1 + dice.below(2);
    let root = &mut request.affinity_group.root;
    *root = PodGroup::default();
    for _ in 0..members {
        let mut member = Member {
            pod_number: 1 + dice.below(3) as i64,
            leaf_cell_number: 1 + dice.below(4) as i64,
            ..Member::default()
        };
        if dice.one_in(6) {
            member.cell_type = "socket".into();
            member.leaf_cell_number = 1 + dice.below(2) as i64;
        }
        root.members.push(member);
    }
    if dice.one_in(5) {
        root.within_one_cell = TYPES[1 + dice.below(3)].0.to_string();
    }
    if dice.one_in(8) {
        let child = PodGroup {
            within_one_cell: "node".into(),
            members: root.members.clone(),
            child_groups: Vec::new(),
        };
        root.child_groups.push(child);
    }
    let pinned = config.virtual_clusters[&vc].pinned_cells.first();
    if let Some(pin) = pinned
        && priority >= 0
        && dice.one_in(2)
    {
        request.pinned_cell_id = pin.pinned_cell_id.clone();
    }
    request.lazy_preemption_enable = dice.one_in(2);
    request.ignore_k8s_suggested_nodes = dice.one_in(2);
    request.gang_release_enable = dice.one_in(2);
    request
}

/// Plays one history; what it breaks, if anything.
pub(super) fn run(seed: u64) -> Result<(), String> {
    let dice = &mut Dice(seed);
    let config = config(dice);
    let cells = Cells::new(config, Unreported::Good).map_err(|errors| errors.to_string())?;
    let mut history = History { cells, asked: BTreeMap::new(), number: 0, now_ms: 0 };
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
    cells: Cells,
    /// Groups that were asked about and not released.
    asked: BTreeMap<String, GroupRequest>,
    number: usize,
    now_ms: i64,
}

impl History {
    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        match dice.below(20) {
            0..=8 => {
                let request = request(dice, self.number, self.cells.config());
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
            _ => self.reconfigure(dice),
        }
    }

    fn schedule(&mut self, request: &GroupRequest, dice: &mut Dice) -> Result<(), String> {
        if !self.cells.config().virtual_clusters.contains_key(&request.vc) {
            return Ok(());
        }
        let nodes: Vec<NodeName> = self.cells.nodes().cloned().collect();
        let suggested: Option<BTreeSet<NodeName>> =
            dice.one_in(3).then(|| nodes.into_iter().filter(|_| !dice.one_in(3)).collect());
        let phase = if dice.one_in(4) { Phase::Filtering } else { Phase::Preempting };
        let ask = Ask { now_ms: self.now_ms, phase, suggested: suggested.as_ref(), clusters: None };
        self.asked.insert(request.name().to_string(), request.clone());
        let before = self.cells.clone();
        let decision = self.cells.schedule(request, &ask);
        laws::decision(&before, &self.cells, request, &ask, &decision)?;
        match decision {
            Decision::Place(proposal) => {
                self.cells.commit(&proposal).map_err(|stale| stale.to_string())?;
                laws::hidden(&before, &self.cells, request, &ask, &proposal)?;
                laws::placed(&self.cells, request, &proposal)
            }
            Decision::Preempt(proposal) if phase == Phase::Preempting => {
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
        let new = config(dice);
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
