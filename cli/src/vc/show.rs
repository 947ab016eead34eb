//! Prints virtual clusters and cells.

use fleet_api::{
    CellConfiguration, VirtualCluster,
    cells::{VcAccess, read},
};
use fleet_cli_ground::listing::{List, Names};
use fleet_openpai::cells::{
    plan::ConfigurationPlan,
    tree::{Occupant, Row},
};
use kube::ResourceExt;

use fleet_console::table::Table;

/// Nodes and jobs named in one line; the others are counted.
const NAMED: usize = 8;

/// The changes of a plan, as text.
pub fn difference(plan: &ConfigurationPlan) -> String {
    let mut text = String::new();
    let lists = [
        ("virtual clusters added", &plan.virtual_clusters_added),
        ("virtual clusters removed", &plan.virtual_clusters_removed),
        ("nodes added", &plan.nodes_added),
        ("nodes removed", &plan.nodes_removed),
    ];
    for (label, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        text.push_str(&format!("{label}: {}\n", some(names)));
    }
    for change in &plan.access {
        text.push_str(&format!("{} may be used by: {}\n", change.vc, who_may(change.after.as_ref())));
    }
    if !plan.promises.is_empty() {
        let mut table = Table::new(&["Virtual cluster", "Cells", "Before", "After", "Change"]);
        for change in &plan.promises {
            let mut cells = match change.chain == change.cell_type {
                true => change.chain.clone(),
                false => format!("{}.{}", change.chain, change.cell_type),
            };
            if !change.pinned_cell_id.is_empty() {
                cells.push_str(&format!(" (pinned {})", change.pinned_cell_id));
            }
            let sign = match change.after > change.before {
                true => format!("+{}", change.after - change.before),
                false => format!("-{}", change.before - change.after),
            };
            table.row([change.vc.clone(), cells, change.before.to_string(), change.after.to_string(), sign]);
        }
        text.push_str(&separated(&text, &table.print()));
    }
    if !plan.jobs.is_empty() {
        let mut table = Table::new(&["Job", "Virtual cluster", "Class", "Becomes", "Why"]);
        for job in &plan.jobs {
            table.row(
                [&job.job, &job.virtual_cluster, &job.class, &job.becomes, &job.why].map(String::as_str),
            );
        }
        text.push_str(&separated(&text, &table.print()));
        text.push_str("All of them keep running.\n");
    }
    for unnamed in &plan.unnamed {
        text.push_str(&separated(&text, &format!("bad until a member reports their nodes: {unnamed}\n")));
    }
    for absent in &plan.absent {
        text.push_str(&separated(&text, &format!("bad, because their member has no such node: {absent}\n")));
    }
    match (text.is_empty(), plan.is_change) {
        (true, true) => "no virtual cluster gains or loses cells, and no job loses its place\n".to_string(),
        (true, false) => "no change\n".to_string(),
        (false, _) => text + "\n",
    }
}

/// Who may use a virtual cluster, in one line.
fn who_may(access: Option<&VcAccess>) -> String {
    let Some(access) = access.filter(|access| **access != VcAccess::default()) else {
        return "everybody".into();
    };
    let lists = [
        ("namespaces", &access.submitter_namespaces),
        ("submitters", &access.submitters),
        ("above oppo only namespaces", &access.guaranteed_namespaces),
    ];
    let list = |(label, list): (&str, &Option<Vec<String>>)| {
        let list = list.as_ref()?;
        Some(if list.is_empty() { format!("{label} none") } else { format!("{label} {}", list.join(", ")) })
    };
    lists.into_iter().filter_map(list).collect::<Vec<_>>().join("; ")
}

fn separated(before: &str, text: &str) -> String {
    if before.is_empty() { text.to_string() } else { format!("\n{text}") }
}

fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names[..names.len() - more].join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// A line for each configuration that is not in force, and which one is; empty if all are valid.
pub fn invalid(configurations: &[CellConfiguration]) -> String {
    let broken: Vec<String> = configurations
        .iter()
        .filter_map(|object| {
            Some(format!("INVALID: CellConfiguration {}: {}", object.name_any(), read::invalid(object)?))
        })
        .collect();
    if broken.is_empty() {
        return String::new();
    }
    let instead = match read::in_force(configurations) {
        Some(view) => {
            format!("In force: CellConfiguration {}, generation {}", view.object.name_any(), view.generation)
        }
        None => "In force: no configuration; there are no virtual clusters".to_string(),
    };
    format!("{}\n{instead}\n", broken.join("\n"))
}

/// As `kubectl get virtualclusters` prints them; wide adds cells and classes.
///
/// # Errors
/// An object cannot be serialized.
pub fn virtual_clusters(found: &[VirtualCluster], wide: bool) -> anyhow::Result<List> {
    let mut headers =
        vec!["Name", "Allocation", "Memory", "CPU", "GPU", "Bad", "Lent", "Borrowed", "Waiting", "Running"];
    if wide {
        headers.extend(["Cells", "Jobs", "Who may use it"]);
    }
    // Memory and cpu follow from the cells, of which the GPUs tell how many there are.
    let mut list = List { spare: &["Memory", "CPU"], ..List::of_objects(&headers, "virtualcluster/") };
    list.nothing =
        "No virtual clusters: apply a configuration of cells with `fleet vc apply -f FILE`.".to_string();
    for vc in found {
        let status = vc.status.clone().unwrap_or_default();
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
        let mut cells = vec![
            vc.spec.name.clone(),
            text(status.allocation),
            text(status.memory),
            text(status.cpu),
            text(status.gpu),
            status.bad.to_string(),
            status.borrowed_out.to_string(),
            status.borrowed_in.to_string(),
            status.waiting.to_string(),
            status.running.to_string(),
        ];
        if wide {
            let promised = status.cells.iter().map(|row| {
                let bad = if row.bad > 0 { format!(" ({} bad)", row.bad) } else { String::new() };
                format!("{} {}/{}{bad}", row.cell_type, row.used, row.guaranteed)
            });
            let jobs = status
                .jobs
                .iter()
                .map(|jobs| format!("{} {} waiting, {} running", jobs.class, jobs.waiting, jobs.running));
            cells.extend([joined(promised), joined(jobs), who_may(vc.spec.access.as_ref())]);
        }
        list.row(vc, cells)?;
    }
    Ok(list)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "-".to_string() } else { parts.join("; ") }
}

/// The tree of cells; for a virtual cluster with the physical cell of each.
///
/// # Errors
/// A cell cannot be serialized.
pub fn tree(rows: &[Row], of_virtual_cluster: bool, names: Names) -> anyhow::Result<List> {
    let where_ = if of_virtual_cluster { "Stands on" } else { "VC" };
    let mut list = List::of_items(&["Cell", "Used", where_, "Job"], ("", ".address"));
    list.nothing = "No cells: apply a configuration with `fleet vc apply -f FILE`.".to_string();
    for row in rows {
        let bad = if row.healthiness == "Bad" { " Bad" } else { "" };
        let owner = match of_virtual_cluster {
            true => row.stands_for.clone(),
            false => row.virtual_clusters.join(","),
        };
        let cells = [
            match names {
                Names::Tree => format!("{}{} {}", "  ".repeat(row.depth), row.cell_type, row.name),
                Names::Paths => format!("{} {}", row.cell_type, row.address),
            },
            format!("{}/{}{bad}", row.used, row.leaves),
            if owner.is_empty() { "-".to_string() } else { owner },
            jobs(row),
        ];
        list.row(row, cells.to_vec())?;
    }
    Ok(list)
}

/// Jobs on a cell. For a whole tree the lines of its cells have them.
fn jobs(row: &Row) -> String {
    match row.jobs.as_slice() {
        [] => "-".to_string(),
        [one] => occupant(one),
        several => format!("{} jobs", several.len()),
    }
}

pub fn occupant(job: &Occupant) -> String {
    match job.virtual_cluster.as_str() {
        "" => job.job.clone(),
        vc => format!("{} ({vc}, {})", job.job, job.class),
    }
}
