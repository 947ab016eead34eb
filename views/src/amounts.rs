//! Amounts of resources as people read them.

use std::collections::BTreeMap;

use fleet_resources::quantity;

/// The resource by which fleets are measured.
pub const GPU: &str = "nvidia.com/gpu";
/// The limit of a quota node for the number of its jobs.
pub const JOBS: &str = "kube-queue/max-jobs";

/// From this value on a quantity means "no limit", as in the quota rules.
const UNLIMITED: i64 = i32::MAX as i64;

/// Bytes as gibibytes when that is exact enough to read; other amounts as they are.
pub fn short(resource: &str, amount: i64) -> String {
    const GIB: i64 = 1 << 30;
    if quantity::is_bytes(resource) && amount >= GIB {
        return format!("{}Gi", amount / GIB);
    }
    // Tenths of a core are read more easily than millicores.
    if resource == "cpu" && amount % 1000 != 0 && amount >= 1000 {
        return format!("{}.{}", amount / 1000, amount % 1000 / 100);
    }
    quantity::format(resource, amount)
}

/// Whether a max is no limit. Bytes have no such value: 2 GiB is a small amount of memory.
pub fn is_unlimited(resource: &str, amount: i64) -> bool {
    amount >= UNLIMITED && !quantity::is_bytes(resource) && resource != "cpu"
}

/// `gpu` for `nvidia.com/gpu`; other resources by their own names.
pub fn label(resource: &str) -> &str {
    match resource {
        JOBS => "jobs",
        GPU => "gpu",
        other => other,
    }
}

/// Sort order: the most important resources first.
pub fn rank(resource: &str) -> u8 {
    match resource {
        JOBS => 0,
        GPU => 1,
        "cpu" => 2,
        "memory" => 3,
        _ => 4,
    }
}

/// `jobs=1 gpu=3 cpu=3 memory=6Gi`: the most important resources first, without amounts of 0 and without
/// limits that never apply; `-` when nothing is left.
pub fn line_of(all: &BTreeMap<String, i64>) -> String {
    let shown =
        sorted(all).into_iter().filter(|(name, amount)| **amount != 0 && !is_unlimited(name, **amount));
    let cells: Vec<String> =
        shown.map(|(name, amount)| format!("{}={}", label(name), short(name, *amount))).collect();
    if cells.is_empty() { "-".to_string() } else { cells.join(" ") }
}

fn sorted(all: &BTreeMap<String, i64>) -> Vec<(&String, &i64)> {
    let mut sorted: Vec<(&String, &i64)> = all.iter().collect();
    sorted.sort_by_key(|(name, _)| (rank(name), (*name).clone()));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_in_order() {
        let all = |cells: &[(&str, i64)]| {
            cells.iter().map(|(name, amount)| (name.to_string(), *amount)).collect::<BTreeMap<_, _>>()
        };
        let used = all(&[("cpu", 1500), ("memory", 6 << 30), (GPU, 3), (JOBS, 1), ("ephemeral-storage", 0)]);
        assert_eq!(line_of(&used), "jobs=1 gpu=3 cpu=1.5 memory=6Gi");
        assert_eq!(line_of(&all(&[(GPU, 2_147_483_647)])), "-");
    }
}
