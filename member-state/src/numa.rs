//! Exclusive cpus of pods and NUMA cells of nodes, in the terms of Kubernetes and of Volcano's resource
//! exporter.
//!
//! A pod is considered if it is Guaranteed (limits equal requests in every container); of its containers,
//! those that request whole cpus. A node is described by its Numatopology: policies, free cpus as a list such
//! as `1-7,9`, and the cell of each cpu.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use fleet_scheduler::numa::{MAX_CELLS, Numa, NumaAsk, NumaCell, NumaPolicy};
use serde_json::Value;

use fleet_agent_ground::lean::{LeanContainer, LeanPodSpec};

pub const POLICY_ANNOTATION: &str = "volcano.sh/numa-topology-policy";

/// The pod's request; `policy` is its annotation.
pub fn ask(spec: &LeanPodSpec, policy: Option<&str>) -> Option<NumaAsk> {
    let policy = policy.map_or(NumaPolicy::None, NumaPolicy::read);
    let of = |containers: &[LeanContainer]| -> Option<Vec<Resources>> {
        containers.iter().map(guaranteed).collect()
    };
    of(&spec.init_containers)?;
    let cpus = of(&spec.containers)?.iter().map(|amounts| amounts.get("cpu")).collect::<Vec<_>>();
    let whole: Vec<i64> = cpus.into_iter().filter(|cpu| cpu % 1_000 == 0).map(|cpu| cpu / 1_000).collect();
    (policy != NumaPolicy::None || !whole.is_empty()).then_some(NumaAsk { policy, cpus: whole })
}

/// Requests of a container with equal limits.
fn guaranteed(container: &LeanContainer) -> Option<Resources> {
    let resources = &container.resources;
    if resources.limits.0.is_empty() {
        return None;
    }
    let limits =
        Resources::parse(resources.limits.0.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let (limits, requests) = (limits.ok()?, resources.requests().ok()?);
    let same = |name: &str| limits.get(name) > 0 && limits.get(name) == requests.get(name);
    (same("cpu") && same("memory")).then_some(requests)
}

/// Parses the spec of a Numatopology.
///
/// # Errors
/// The invalid field, the value found and the values allowed.
pub fn read(spec: &Value) -> Result<Numa, String> {
    let policy = |name: &str| spec["policies"][name].as_str().unwrap_or_default();
    let mut cells: BTreeMap<usize, NumaCell> = BTreeMap::new();
    let mut cell_of: BTreeMap<u64, usize> = BTreeMap::new();
    for (cpu, detail) in spec["cpuDetail"].as_object().into_iter().flatten() {
        let number = cpu
            .parse()
            .map_err(|_| format!("field spec.cpuDetail: found {cpu:?}; allowed: numbers of cpus"))?;
        // Zeros are left out.
        let cell = detail["numa"].as_u64().unwrap_or(0);
        let cell = usize::try_from(cell).ok().filter(|cell| *cell < MAX_CELLS).ok_or_else(|| {
            format!("field spec.cpuDetail.{cpu}.numa: found {cell}; allowed: 0 to {}", MAX_CELLS - 1)
        })?;
        cell_of.insert(number, cell);
        cells.entry(cell).or_default().capacity += 1;
    }
    let free = spec["numares"]["cpu"]["allocatable"].as_str().unwrap_or_default();
    for cpu in cpu_list(free).ok_or_else(|| {
        format!("field spec.numares.cpu.allocatable: found {free:?}; allowed: a list of cpus such as 1-7,9")
    })? {
        let cell = cell_of.get(&cpu).ok_or_else(|| {
            format!("field spec.numares.cpu.allocatable: found cpu {cpu}; allowed: cpus of spec.cpuDetail")
        })?;
        cells.entry(*cell).or_default().free += 1;
    }
    let last = cells.keys().next_back().map_or(0, |cell| cell + 1);
    Ok(Numa {
        policy: NumaPolicy::read(policy("TopologyManagerPolicy")),
        exclusive: policy("CPUManagerPolicy") == "static",
        cells: (0..last).map(|cell| cells.get(&cell).copied().unwrap_or_default()).collect(),
    })
}

/// Most cpus of one node.
const MAX_CPUS: u64 = 1 << 14;

/// Parses `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<u64>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        if from > to || to >= MAX_CPUS {
            return None;
        }
        ranges.push((from, to));
    }
    ranges.sort_unstable();
    let mut found: Vec<u64> = Vec::new();
    for (from, to) in ranges {
        // Each is listed once, however often the text names it.
        let next = found.last().map_or(0, |last| last + 1);
        found.extend(from.max(next)..=to);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_cpus_of_guaranteed_pods_count() {
        let ask_of = |containers: Value, policy: Option<&str>| {
            let spec: LeanPodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
            ask(&spec, policy)
        };
        let both = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}});
        let asked = |policy, cpus: &[i64]| Some(NumaAsk { policy, cpus: cpus.to_vec() });
        let some = Some("single-numa-node");
        assert_eq!(ask_of(json!([both("4"), both("500m")]), None), asked(NumaPolicy::None, &[4]));
        assert_eq!(ask_of(json!([both("2000m")]), some), asked(NumaPolicy::SingleNumaNode, &[2]));
        assert_eq!(ask_of(json!([both("500m")]), None), None);
        assert_eq!(ask_of(json!([both("500m")]), some), asked(NumaPolicy::SingleNumaNode, &[]));
        // Not guaranteed: no memory limit, another request, no limits.
        assert_eq!(ask_of(json!([{"resources": {"limits": {"cpu": "4"}}}]), some), None);
        let burst = json!({"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "2"}});
        assert_eq!(ask_of(json!([{"resources": burst}]), some), None);
        assert_eq!(ask_of(json!([{"resources": {"requests": {"cpu": "4"}}}]), None), None);
    }

    fn topology(free: &str) -> Value {
        let cell = |cpu: u64| if cpu < 4 { json!({"core": cpu}) } else { json!({"numa": 1, "core": cpu}) };
        let detail: serde_json::Map<String, Value> = (0..8).map(|cpu| (cpu.to_string(), cell(cpu))).collect();
        json!({
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"},
            "numares": {"cpu": {"allocatable": free, "capacity": 8}},
            "cpuDetail": detail,
        })
    }

    #[test]
    fn a_topology_is_read() {
        let numa = read(&topology("1-4,6, 7")).unwrap();
        let cell = |free| NumaCell { capacity: 4, free };
        assert_eq!(
            numa,
            Numa { policy: NumaPolicy::BestEffort, exclusive: true, cells: vec![cell(3), cell(3)] }
        );
        for (free, wanted) in [
            (
                "4-1",
                "field spec.numares.cpu.allocatable: found \"4-1\"; allowed: a list of cpus such as 1-7,9",
            ),
            ("8", "field spec.numares.cpu.allocatable: found cpu 8; allowed: cpus of spec.cpuDetail"),
            (
                "0-99999999999",
                "field spec.numares.cpu.allocatable: found \"0-99999999999\"; allowed: a list of cpus such as 1-7,9",
            ),
        ] {
            assert_eq!(read(&topology(free)).unwrap_err(), wanted);
        }
        // A list is not as long as its text makes it.
        let often = read(&topology(&"0-16383,".repeat(30_000))).unwrap_err();
        assert_eq!(often, "field spec.numares.cpu.allocatable: found cpu 8; allowed: cpus of spec.cpuDetail");
        let mut far = topology("1");
        far["cpuDetail"]["1"]["numa"] = 9.into();
        assert_eq!(read(&far).unwrap_err(), "field spec.cpuDetail.1.numa: found 9; allowed: 0 to 7");
    }
}
