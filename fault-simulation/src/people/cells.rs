//! Virtual clusters: nodes that are cells, who was promised them, users who submit to them, and an administrator who
//! changes the configuration under load.
//!
//! The nodes of cells are further nodes of the members. Drawn from a branch of its own: without it a seed has the same
//! fleet, jobs and faults. The configuration of the end is that of the beginning, so that how jobs end is known.

mod borrowers;

use std::{collections::BTreeSet, time::Duration};

use fleet_api::names;
use fleet_resources::{Taint, TaintEffect};
use serde_json::{Value, json};

use super::{HONEST, OVER_MS, each_template, jobs::job, name_of};
use crate::{
    draw::cell_pool,
    plan::{EXPECT_LABEL, SimulationPlan, What},
    random::Random,
};
use fleet_simulator::scenario::NodePool;

/// Namespace of no leaf of the quota tree.
const FREE: &str = "team-v";
const TAINT: &str = "example.com/cells";
const KINDS: [(&str, &str); 3] =
    [("kubeflow.org/v1", "PyTorchJob"), ("batch/v1", "Job"), ("batch.volcano.sh/v1alpha1", "Job")];
const VCS: [&str; 3] = ["research", "product", "lab"];
/// Nodes of a rack.
const RACK: u64 = 2;
/// Devices that a leaf of the quota tree has at least, of the leaves that limit them.
const QUOTA_GPUS: u64 = 8;

/// A tree of cells: one rack.
#[derive(Clone, Debug)]
struct Rack {
    cluster: String,
    /// Letter of its cell types.
    letter: char,
    nodes: Vec<String>,
    /// The first node, or the whole rack, is pinned.
    pin: Option<Pin>,
}

#[derive(Clone, Debug)]
struct Pin {
    name: String,
    whole: bool,
}

/// Cells of one level that a virtual cluster was promised in one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise {
    vc: &'static str,
    letter: char,
    /// Leaf cells of one of them.
    leaves: u64,
    number: u64,
}

#[derive(Clone, Debug)]
struct Layout {
    racks: Vec<Rack>,
    /// Devices of a node, by letter.
    node_leaves: [(char, u64); 2],
    /// Trees name their member.
    named: bool,
}

/// What a virtual cluster was promised.
#[derive(Clone, Debug, Default)]
struct Promised {
    cells: Vec<Promise>,
    pins: Vec<(&'static str, String)>,
}

impl SimulationPlan {
    /// Whether somebody configures cells.
    pub(crate) fn has_cells(&self) -> bool {
        let applied =
            |what: &What| matches!(what, What::Apply(object) if object["kind"] == "CellConfiguration");
        self.objects.iter().any(|object| object["kind"] == "CellConfiguration")
            || self.events.iter().any(|event| applied(&event.what))
    }

    pub(crate) fn add_cells(&mut self, random: &mut Random) {
        let tainted = random.per_mille(500);
        let layout = self.add_cell_nodes(random, tainted);
        let promised = layout.promise(random);
        let first = layout.configuration(&promised);
        self.people_do(random.time(0, 15_000), What::Apply(first.clone()));
        let changes = random.below(4);
        for _ in 0..changes {
            let at = random.time(25_000, 200_000);
            let changed = match random.below(6) {
                0 => {
                    self.people_do(at, What::Delete(name_of(&first)));
                    self.people_do(at + random.time(10, 40_000), What::Apply(first.clone()));
                    continue;
                }
                1 => layout.too_much(&promised),
                2 if layout.racks.len() > 1 => {
                    let mut smaller = layout.clone();
                    smaller.racks.remove(random.below(layout.racks.len() as u64) as usize);
                    let promised = smaller.promise(random);
                    smaller.configuration(&promised)
                }
                _ => layout.configuration(&layout.promise(random)),
            };
            self.people_do(at, What::Apply(changed));
        }
        if changes > 0 {
            self.people_do(Duration::from_millis(OVER_MS), What::Apply(first));
        }
        if !tainted || changes > 0 {
            // The nodes of cells are more room, while no configuration keeps them.
            self.each_job(|job| {
                if job["metadata"]["labels"][EXPECT_LABEL] == "Waits" {
                    job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
                }
            });
        }
        self.select(&KINDS);
        self.add_free_policy();
        for index in 0..random.between(6, 12) {
            let mut job = self.cell_job(random, &format!("v{index}"), &layout, &promised);
            if changes > 0 && job["metadata"]["labels"][EXPECT_LABEL] == "Waits" {
                job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
            }
            if tainted {
                tolerate(&mut job);
            }
            self.submit_cell_job(random, job);
        }
        self.add_bad_cells(random, &layout);
        self.add_borrowers(&layout, &promised, tainted);
    }

    /// Jobs of the free namespace have no queue: they wait for cells alone.
    fn add_free_policy(&mut self) {
        let Some(all) = self.objects.iter().find(|object| object["kind"] == "ClusterPropagationPolicy")
        else {
            return;
        };
        let mut spec = all["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("suspension");
        }
        let policy = json!({"apiVersion": all["apiVersion"], "kind": "PropagationPolicy",
            "metadata": {"name": "cells", "namespace": FREE}, "spec": spec});
        self.people_do(Duration::ZERO, What::Apply(policy));
    }

    fn each_job(&mut self, change: impl Fn(&mut Value)) {
        for event in &mut self.events {
            if let What::Apply(object) = &mut event.what {
                change(object);
            }
        }
    }

    fn add_cell_nodes(&mut self, random: &mut Random, tainted: bool) -> Layout {
        let node_leaves = [('v', *random.one_of(&[2, 4])), ('t', 2)];
        let mut racks: Vec<Rack> = Vec::new();
        let mut pins = 0;
        let must = random.below(self.clusters.len() as u64) as usize;
        for (at, cluster) in self.clusters.iter_mut().enumerate() {
            if at != must && random.per_mille(400) {
                continue;
            }
            // Only a member that answers reservations can give cells.
            cluster.reservation = true;
            let (letter, leaves) = node_leaves[usize::from(random.per_mille(300))];
            let pool = NodePool {
                name: cell_pool(&cluster.name),
                count: (random.between(1, 2) * RACK) as usize,
                allocatable: [("cpu", "64".to_string()), ("memory", "256Gi".to_string())]
                    .into_iter()
                    .chain([("nvidia.com/gpu", leaves.to_string()), ("pods", "110".to_string())])
                    .map(|(name, amount)| (name.to_string(), amount))
                    .collect(),
                labels: Default::default(),
                taints: tainted
                    .then(|| Taint {
                        key: TAINT.to_string(),
                        value: String::new(),
                        effect: TaintEffect::NoSchedule,
                    })
                    .into_iter()
                    .collect(),
            };
            let nodes: Vec<String> = (0..pool.count).map(|index| pool.node_name(index)).collect();
            for nodes in nodes.chunks(RACK as usize) {
                let pin = (random.per_mille(250)).then(|| {
                    pins += 1;
                    Pin { name: format!("pin-{pins}"), whole: random.per_mille(400) }
                });
                racks.push(Rack { cluster: cluster.name.clone(), letter, nodes: nodes.to_vec(), pin });
            }
            cluster.node_pools.push(pool);
        }
        Layout { racks, node_leaves, named: random.per_mille(800) }
    }

    fn cell_job(&mut self, random: &mut Random, name: &str, layout: &Layout, promised: &Promised) -> Value {
        let vc = *random.one_of(&VCS);
        let namespace = if random.per_mille(700) { FREE } else { *random.one_of(&HONEST) };
        let kind = *random.one_of(&KINDS);
        let is_roles = kind.1 == "PyTorchJob";
        let workers = random.between(1, 3);
        let pods = workers + u64::from(is_roles);
        let cells = *random.one_of(&[1, 1, 1, 2, 2, 4]);
        // Long enough that cells are wanted while others have them.
        let runtime_ms =
            if random.per_mille(600) { random.between(40_000, 250_000) } else { random.between(200, 40_000) };
        let mut job = job(kind, name, namespace, workers, cells, runtime_ms);
        let class = *random.one_of(&["oppo", "oppo", "test", "test", "prod", "500"]);
        let pin = promised.pins.iter().find(|(owner, _)| *owner == vc);
        let pin = pin.filter(|_| random.per_mille(400)).map(|(_, pin)| pin.clone());
        let whole = !random.per_mille(250);
        let within = (whole && random.per_mille(120)).then(|| *random.one_of(&["NODE-V", "RACK-V"]));
        let meta = &mut job["metadata"];
        meta["labels"][names::VIRTUAL_CLUSTER_LABEL] = vc.into();
        meta["labels"][names::CLASS_LABEL] = class.into();
        if let Some(pin) = &pin {
            meta["annotations"][names::PINNED_CELL_ANNOTATION] = pin.as_str().into();
        } else if random.per_mille(200) {
            meta["annotations"][names::LEAF_CELL_TYPE_ANNOTATION] = "GPU-V".into();
        }
        if !whole {
            meta["annotations"][names::GANG_ALLOCATION_ANNOTATION] = "false".into();
        }
        if let Some(within) = within {
            meta["annotations"][names::WITHIN_ONE_CELL_ANNOTATION] = within.into();
        }
        if random.per_mille(200) {
            meta["annotations"][names::LAZY_PREEMPTION_ANNOTATION] = "true".into();
        }
        let typed = meta["annotations"][names::LEAF_CELL_TYPE_ANNOTATION].is_string();
        let limited = namespace != FREE && pods * cells > QUOTA_GPUS;
        let sure = pin.is_none() && within.is_none() && !limited && class != "oppo";
        meta["labels"][EXPECT_LABEL] = match sure && layout.fits(promised, vc, typed, pods, cells) {
            _ if random.per_mille(80) => {
                meta["annotations"]["sim.fleet.dev/result"] = "fail".into();
                "Any"
            }
            true => "Succeeded",
            false => "Any",
        }
        .into();
        job
    }

    fn submit_cell_job(&mut self, random: &mut Random, mut job: Value) {
        let at = random.time(5_000, 150_000);
        let name = name_of(&job);
        let deleted = random.per_mille(120);
        let edited = random.per_mille(120);
        if edited {
            job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
        }
        self.people_do(at, What::Apply(job));
        if edited {
            let class = *random.one_of(&["oppo", "test", "prod", "77"]);
            let patch = json!({"metadata": {"labels": {names::CLASS_LABEL: class}}});
            self.people_do(at + random.time(0, 60_000), What::Patch { object: name.clone(), patch });
        }
        if deleted {
            self.people_do(at + random.time(50, 90_000), What::Delete(name));
        }
    }

    /// Nodes of cells go bad and come back.
    fn add_bad_cells(&mut self, random: &mut Random, layout: &Layout) {
        for _ in 0..random.below(4) {
            let rack = random.one_of(&layout.racks);
            let (cluster, name) = (rack.cluster.clone(), random.one_of(&rack.nodes).clone());
            let from = random.time(10_000, 200_000);
            let node = |ready| What::Node { cluster: cluster.clone(), name: name.clone(), ready };
            let (down, up) = (node(false), node(true));
            self.people_do(from, down);
            self.people_do(from + random.time(500, 60_000), up);
        }
    }
}

/// The pods of a job may go to nodes of cells that are tainted.
fn tolerate(job: &mut Value) {
    each_template(job, |template| {
        template["spec"]["tolerations"] = json!([{"key": TAINT, "operator": "Exists"}]);
    });
}

impl Layout {
    fn leaves(&self, letter: char) -> u64 {
        self.node_leaves.iter().find(|(known, _)| *known == letter).map_or(0, |(_, leaves)| *leaves)
    }

    /// Promises that can be kept: racks, nodes of what racks are left, then leaf cells of what nodes are left.
    fn promise(&self, random: &mut Random) -> Promised {
        let mut promised = Promised::default();
        let letters: BTreeSet<char> = self.racks.iter().map(|rack| rack.letter).collect();
        for rack in &self.racks {
            if let Some(pin) = &rack.pin {
                promised.pins.push((*random.one_of(&VCS), pin.name.clone()));
            }
        }
        for letter in letters {
            let of_letter = || self.racks.iter().filter(|rack| rack.letter == letter);
            let mut racks = of_letter().filter(|rack| rack.pin.is_none()).count() as u64;
            let mut nodes =
                of_letter().filter(|rack| rack.pin.as_ref().is_some_and(|pin| !pin.whole)).count() as u64;
            let node = self.leaves(letter);
            let mut wishes: Vec<(&'static str, u64)> =
                VCS.iter().map(|vc| (*vc, *random.one_of(&[RACK * node, node, node, 1]))).collect();
            // The largest first: they need whole racks.
            wishes.sort_by_key(|(_, leaves)| std::cmp::Reverse(*leaves));
            for (vc, leaves) in wishes {
                let most = match leaves {
                    leaves if leaves > node => racks,
                    leaves if leaves == node => nodes + racks * RACK,
                    _ => (nodes + racks * RACK) * node,
                };
                let number = random.between(0, most.min(3));
                let taken = (number * leaves).div_ceil(node);
                if leaves > node {
                    racks -= number;
                } else {
                    while nodes < taken {
                        (racks, nodes) = (racks - 1, nodes + RACK);
                    }
                    nodes -= taken;
                }
                if number > 0 {
                    promised.cells.push(Promise { vc, letter, leaves, number });
                }
            }
        }
        promised
    }

    fn level(&self, letter: char, leaves: u64) -> String {
        let upper = letter.to_ascii_uppercase();
        let node = self.leaves(letter);
        match leaves {
            leaves if leaves > node => format!("RACK-{upper}"),
            leaves if leaves == node => format!("RACK-{upper}.NODE-{upper}"),
            _ => format!("RACK-{upper}.NODE-{upper}.GPU-{upper}"),
        }
    }

    fn configuration(&self, promised: &Promised) -> Value {
        let mut types = json!({});
        for (letter, leaves) in self.node_leaves {
            let upper = letter.to_ascii_uppercase();
            types[format!("NODE-{upper}")] = json!({"childCellType": format!("GPU-{upper}"), "childCellNumber": leaves, "isNodeLevel": true});
            types[format!("RACK-{upper}")] =
                json!({"childCellType": format!("NODE-{upper}"), "childCellNumber": RACK});
        }
        let tree = |rack: &Rack| {
            let nodes = rack.nodes.iter().enumerate().map(|(at, node)| {
                let mut cell = json!({"cellAddress": node});
                if let Some(pin) = rack.pin.as_ref().filter(|pin| !pin.whole && at == 0) {
                    cell["pinnedCellId"] = pin.name.as_str().into();
                }
                cell
            });
            let mut tree = json!({"cellType": format!("RACK-{}", rack.letter.to_ascii_uppercase()),
                "cellChildren": nodes.collect::<Vec<_>>()});
            if self.named {
                tree["cluster"] = rack.cluster.as_str().into();
            }
            if let Some(pin) = rack.pin.as_ref().filter(|pin| pin.whole) {
                tree["pinnedCellId"] = pin.name.as_str().into();
            }
            tree
        };
        let mut vcs = json!({});
        for vc in VCS {
            let cells = promised.cells.iter().filter(|promise| promise.vc == vc).map(|promise| {
                json!({"cellType": self.level(promise.letter, promise.leaves), "cellNumber": promise.number})
            });
            let pins = promised.pins.iter().filter(|(owner, _)| *owner == vc);
            let pins = pins.map(|(_, pin)| json!({"pinnedCellId": pin}));
            vcs[vc] =
                json!({"virtualCells": cells.collect::<Vec<_>>(), "pinnedCells": pins.collect::<Vec<_>>()});
        }
        json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration", "metadata": {"name": "cells"},
            "spec": {"physicalCluster": {"cellTypes": types,
                "physicalCells": self.racks.iter().map(tree).collect::<Vec<_>>()},
                "virtualClusters": vcs}})
    }

    /// One that promises more than there is: it changes nothing.
    fn too_much(&self, promised: &Promised) -> Value {
        let mut wrong = promised.clone();
        let letter = self.racks[0].letter;
        wrong.cells.push(Promise { vc: VCS[0], letter, leaves: self.leaves(letter), number: 99 });
        self.configuration(&wrong)
    }

    /// Whether a job fits its virtual cluster while nobody else is in it.
    fn fits(&self, promised: &Promised, vc: &str, typed: bool, pods: u64, cells: u64) -> bool {
        promised.cells.iter().filter(|promise| promise.vc == vc && (!typed || promise.letter == 'v')).any(
            |promise| {
                let node = self.leaves(promise.letter);
                let unit = promise.leaves.min(node);
                let Some(each) = unit.checked_div(cells).filter(|each| *each > 0) else { return false };
                let needed = pods.div_ceil(each);
                let homes: BTreeSet<&str> = self
                    .racks
                    .iter()
                    .filter(|rack| rack.letter == promise.letter)
                    .map(|rack| rack.cluster.as_str())
                    .collect();
                let of_one = promise.leaves / unit;
                needed <= of_one || (homes.len() == 1 && needed <= of_one * promise.number)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_what_it_is_meant_to_be() {
        let mut wrong = 0;
        for seed in 0..200 {
            let mut plan = SimulationPlan::of_seed(seed);
            if !plan.has_cells() {
                plan.add_cells(&mut Random::branch(seed, "test"));
            }
            for event in &plan.events {
                let What::Apply(object) = &event.what else { continue };
                if object["kind"] != "CellConfiguration" {
                    continue;
                }
                let config = fleet_cells::config::ClusterConfig::read(&object["spec"]).expect("well formed");
                let errors = fleet_cells::Cells::new(config, fleet_cells::Unreported::Good).err();
                let too_much = object["spec"].to_string().contains("\"cellNumber\":99");
                assert_eq!(errors.is_some(), too_much, "seed {seed}: {errors:?}\n{}", object["spec"]);
                wrong += usize::from(too_much);
            }
        }
        assert!(wrong > 5, "{wrong} configurations promise too much");
    }
}
