//! One cluster, and the jobs of some tenants on it, on a virtual clock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use fleet_cells::{Ask, Cells, Decision, GroupRequest};

use super::jobs::Workload;

/// Who keeps tenants apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The cells: each tenant's jobs are guaranteed jobs of its virtual cluster.
    Promises,
    /// A count of leaf cells per tenant; jobs may lie anywhere.
    Quota,
}

pub(super) struct World {
    cells: Cells,
    sharing: Sharing,
}

/// Jobs of one tenant that wait, by shape: rank, number.
type Waiting = BTreeMap<usize, BTreeSet<(i64, usize)>>;

struct Run<'w> {
    workload: &'w Workload,
    /// By tenant.
    waiting: Vec<Waiting>,
    held: Vec<i64>,
    /// Shapes that do not fit until something ends. Each is of one tenant.
    refused: BTreeSet<usize>,
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    starts: Vec<Option<i64>>,
}

impl World {
    pub fn new(cells: Cells, sharing: Sharing) -> Self {
        Self { cells, sharing }
    }

    pub fn admits(&mut self, request: &GroupRequest) -> bool {
        self.cells.admit(request).is_ok()
    }

    pub fn audit(&self) -> Vec<String> {
        self.cells.audit()
    }

    /// Runs all jobs of these tenants to their end; when each started, in milliseconds.
    pub fn replay(&mut self, workload: &Workload, tenants: &[usize]) -> Vec<Option<i64>> {
        let mut run = Run {
            workload,
            waiting: vec![Waiting::new(); workload.tenants.len()],
            held: vec![0; workload.tenants.len()],
            refused: BTreeSet::new(),
            ends: BinaryHeap::new(),
            starts: vec![None; workload.jobs.len()],
        };
        let own = |job: &usize| tenants.contains(&workload.jobs[*job].tenant);
        let mut submissions = (0..workload.jobs.len()).filter(own).peekable();
        loop {
            let submit_at = submissions.peek().map(|job| workload.jobs[*job].submit_ms);
            let end_at = run.ends.peek().map(|Reverse((at, _))| *at);
            let Some(now_ms) = submit_at.into_iter().chain(end_at).min() else { break };
            let mut touched: BTreeSet<usize> = BTreeSet::new();
            while let Some(Reverse((_, job))) = run.ends.peek().filter(|end| end.0.0 == now_ms).copied() {
                run.ends.pop();
                self.end(&mut run, job);
                match self.sharing {
                    Sharing::Promises => touched.extend([workload.jobs[job].tenant]),
                    Sharing::Quota => touched.extend(tenants),
                }
            }
            while let Some(job) = submissions.next_if(|job| workload.jobs[*job].submit_ms == now_ms) {
                let of = &workload.jobs[job];
                run.waiting[of.tenant].entry(of.shape).or_default().insert((of.rank, job));
                touched.insert(of.tenant);
            }
            self.start_all(&mut run, &touched, now_ms);
        }
        run.starts
    }

    fn end(&mut self, run: &mut Run<'_>, job: usize) {
        let of = &run.workload.jobs[job];
        self.cells.release(&name(job));
        run.held[of.tenant] -= run.workload.shapes[of.shape].leaves;
        match self.sharing {
            // What ends in another virtual cluster makes no room in this one.
            Sharing::Promises => run.refused.retain(|shape| !run.waiting[of.tenant].contains_key(shape)),
            Sharing::Quota => run.refused.clear(),
        }
    }

    /// Starts what fits, next in order first.
    fn start_all(&mut self, run: &mut Run<'_>, tenants: &BTreeSet<usize>, now_ms: i64) {
        while let Some((_, job)) = tenants.iter().filter_map(|tenant| run.next(*tenant)).min() {
            let of = &run.workload.jobs[job];
            let shape = &run.workload.shapes[of.shape];
            let within_quota =
                run.held[of.tenant] + shape.leaves <= run.workload.tenants[of.tenant].promised_leaves;
            if !within_quota || !self.place(run, job, now_ms) {
                run.refused.insert(of.shape);
                continue;
            }
            run.held[of.tenant] += shape.leaves;
            run.starts[job] = Some(now_ms);
            run.ends.push(Reverse((now_ms.saturating_add(of.duration_ms), job)));
            if let Some(jobs) = run.waiting[of.tenant].get_mut(&of.shape) {
                jobs.remove(&(of.rank, job));
            }
        }
    }

    fn place(&mut self, run: &Run<'_>, job: usize, now_ms: i64) -> bool {
        let shape = &run.workload.shapes[run.workload.jobs[job].shape];
        let mut request = match self.sharing {
            Sharing::Promises => shape.promised.clone(),
            Sharing::Quota => shape.anywhere.clone(),
        };
        request.affinity_group.name = name(job);
        match self.cells.schedule(&request, &Ask { now_ms, ..Ask::default() }) {
            Decision::Place(proposal) => self.cells.commit(&proposal).is_ok(),
            Decision::Preempt(_) | Decision::Wait(_) | Decision::Refuse(_) => false,
        }
    }
}

impl Run<'_> {
    /// The next job of a tenant that may fit.
    fn next(&self, tenant: usize) -> Option<(i64, usize)> {
        let refused = |shape: &usize| self.refused.contains(shape);
        let heads = self.waiting[tenant].iter().filter_map(|(shape, jobs)| Some((jobs.first()?, shape)));
        if self.workload.head_blocks {
            let (head, shape) = heads.min()?;
            return (!refused(shape)).then_some(*head);
        }
        heads.filter(|(_, shape)| !refused(shape)).map(|(head, _)| *head).min()
    }
}

fn name(job: usize) -> String {
    format!("j{job}")
}
