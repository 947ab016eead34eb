//! Queueing delays by tenant, and who waited longer than in a private cluster.

use serde::Serialize;

use super::jobs::Workload;

/// Delays of one tenant in one way of sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Delays {
    pub mean_s: f64,
    pub longest_s: f64,
    /// Jobs that waited longer than in the private cluster, and by how much at most.
    pub later: usize,
    pub most_later_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tenant {
    pub name: String,
    pub promised_leaves: i64,
    pub jobs: usize,
    /// Leaf cells in use on average, of those promised, from the first submission to the last end when private.
    pub load: f64,
    pub private: Delays,
    pub quota: Delays,
    pub cells: Delays,
}

/// What the three ways of sharing give each tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub tenants: Vec<Tenant>,
    pub total: Tenant,
    /// What was assumed or left out, one sentence each.
    pub notices: Vec<String>,
    /// What the audit of cells found at the end.
    pub violations: Vec<String>,
}

impl Comparison {
    /// `starts` of each job in private clusters, under quota, and under cells.
    pub(super) fn new(
        workload: &Workload,
        starts: [&[Option<i64>]; 3],
        mut notices: Vec<String>,
        mut violations: Vec<String>,
    ) -> Self {
        for (count, why) in [
            (workload.unknown, "of virtual clusters that the configuration does not have"),
            (workload.without_leaves, "that ask for no GPU"),
            (workload.too_large, "that do not fit the empty cells of their virtual cluster"),
        ] {
            if count > 0 {
                notices.push(format!("left out: {count} jobs {why}"));
            }
        }
        let never = starts.iter().map(|starts| starts.iter().filter(|start| start.is_none()).count());
        for (way, never) in ["in private clusters", "under quota", "under cells"].iter().zip(never) {
            if never > 0 {
                violations.push(format!("{never} jobs never start {way}"));
            }
        }
        let row = |name: &str, promised_leaves: i64, of: &dyn Fn(usize) -> bool| {
            let jobs: Vec<usize> = (0..workload.jobs.len()).filter(|job| of(*job)).collect();
            let delays = |way: usize| delays(workload, &jobs, starts[way], starts[0]);
            Tenant {
                name: name.to_string(),
                promised_leaves,
                jobs: jobs.len(),
                load: load(workload, &jobs, starts[0], promised_leaves),
                private: delays(0),
                quota: delays(1),
                cells: delays(2),
            }
        };
        let tenants = workload.tenants.iter().enumerate();
        let tenants: Vec<Tenant> = tenants
            .map(|(number, tenant)| {
                row(&tenant.name, tenant.promised_leaves, &|job| workload.jobs[job].tenant == number)
            })
            .collect();
        let all = workload.tenants.iter().map(|tenant| tenant.promised_leaves).sum();
        Self { total: row("all", all, &|_| true), tenants, notices, violations }
    }

    /// The jobs of all tenants that cells made wait longer than their private cluster.
    #[must_use]
    pub fn later_under_cells(&self) -> usize {
        self.total.cells.later
    }

    /// A table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let head = [
            "VC",
            "GPUS",
            "LOAD",
            "JOBS",
            "PRIVATE",
            "QUOTA",
            "CELLS",
            "LATER:QUOTA",
            "BY",
            "LATER:CELLS",
            "BY",
        ];
        let mut rows: Vec<Vec<String>> = vec![head.iter().map(ToString::to_string).collect()];
        rows.extend(self.tenants.iter().chain([&self.total]).map(cells_of));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut text = String::new();
        for row in rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (value, width) in row.iter().zip(&widths).skip(1) {
                line.push_str(&format!("  {value:>width$}"));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn cells_of(tenant: &Tenant) -> Vec<String> {
    let mut row = vec![
        tenant.name.clone(),
        tenant.promised_leaves.to_string(),
        format!("{:.0}%", tenant.load * 100.0),
        tenant.jobs.to_string(),
    ];
    row.extend([&tenant.private, &tenant.quota, &tenant.cells].map(|delays| time(delays.mean_s)));
    for delays in [&tenant.quota, &tenant.cells] {
        row.push(delays.later.to_string());
        row.push(if delays.later == 0 { "-".to_string() } else { time(delays.most_later_s) });
    }
    row
}

/// Seconds below two minutes, minutes below two hours, then hours.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s => format!("{:.0}h", s / 3600.0),
    }
}

fn delays(workload: &Workload, jobs: &[usize], starts: &[Option<i64>], private: &[Option<i64>]) -> Delays {
    let mut delays = Delays::default();
    let (mut sum, mut longest, mut most_later) = (0_i64, 0, 0);
    for job in jobs {
        let (Some(start), Some(alone)) = (starts[*job], private[*job]) else { continue };
        let waited = start - workload.jobs[*job].submit_ms;
        sum += waited;
        longest = longest.max(waited);
        most_later = most_later.max(start - alone);
        delays.later += usize::from(start > alone);
    }
    delays.mean_s = seconds(sum) / jobs.len().max(1) as f64;
    delays.longest_s = seconds(longest);
    delays.most_later_s = seconds(most_later);
    delays
}

fn load(workload: &Workload, jobs: &[usize], starts: &[Option<i64>], promised: i64) -> f64 {
    let ends = jobs.iter().filter_map(|job| Some(starts[*job]? + workload.jobs[*job].duration_ms));
    let first = jobs.iter().map(|job| workload.jobs[*job].submit_ms).min().unwrap_or(0);
    let span = ends.max().unwrap_or(first) - first;
    let used = jobs.iter().map(|job| {
        let of = &workload.jobs[*job];
        seconds(of.duration_ms) * workload.shapes[of.shape].leaves as f64
    });
    let whole = seconds(span) * promised as f64;
    if whole > 0.0 { used.sum::<f64>() / whole } else { 0.0 }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
