//! A recorded run as charts: what each queue used over time, and which job ran where and when.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use crate::log::{Event, Line};

/// Most runs of one cluster, and most lanes; more cannot be told apart.
const MOST_BOXES: usize = 2_000;
const MOST_LANES: usize = 200;
/// Most runs of all clusters together, as long as each has its fewest: a run is about 500 bytes of a page.
const MOST_BOXES_OF_ALL: usize = 4_000;
const FEWEST_BOXES: usize = 40;
/// Most points of one line, and of all lines together, as long as each has its fewest.
const MOST_POINTS: usize = 600;
const MOST_POINTS_OF_ALL: usize = 60_000;
const FEWEST_POINTS: usize = 60;

/// Reads events in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    jobs: BTreeMap<String, Known>,
    boxes: BTreeMap<String, Vec<RunBox>>,
    queues: BTreeMap<String, Vec<(i64, i64)>>,
    end_ms: i64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    gpus: i64,
    queue: String,
    /// Cluster, start and queue of the current run.
    runs: Option<(String, i64, String)>,
}

/// A job's run in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunBox {
    pub job: String,
    pub gpus: i64,
    pub from_ms: i64,
    pub to_ms: i64,
    /// Row of the chart, from 0: overlapping runs have different rows.
    pub lane: usize,
    /// Why it ended; `Succeeded` if the job succeeded, empty while it runs.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRuns {
    pub cluster: String,
    pub lanes: usize,
    /// By their beginning: those that took the most GPU hours.
    pub boxes: Vec<RunBox>,
    /// Runs that are not drawn.
    pub more: usize,
}

/// GPUs of a queue's running jobs, from each time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueUse {
    pub queue: String,
    pub most: i64,
    pub points: Vec<(i64, i64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunCharts {
    pub end_ms: i64,
    pub clusters: Vec<ClusterRuns>,
    pub queues: Vec<QueueUse>,
}

impl Recorder {
    /// Reads a line of a run log. A job of a virtual cluster is in the queue of its name until one is told.
    pub fn take(&mut self, Line { at_ms, id, event }: &Line) {
        let Some((namespace, name)) = id else { return };
        let (at_ms, job) = (*at_ms, format!("{namespace}/{name}"));
        match event {
            Event::Submitted(submission) => {
                self.submitted(at_ms, &job, submission.gpus);
                self.queued(at_ms, &job, &submission.virtual_cluster);
            }
            Event::Queued { queue, .. } | Event::Requeued { queue, .. } | Event::Admitted { queue }
                if !queue.is_empty() =>
            {
                self.queued(at_ms, &job, queue);
            }
            Event::Started { cluster, .. } => self.started(at_ms, &job, cluster),
            Event::Preempted { .. } => self.ended(at_ms, &job, "Preempted"),
            Event::Evicted { reason, .. } | Event::Rejected { reason, .. } => self.ended(at_ms, &job, reason),
            Event::Fenced { .. } => self.ended(at_ms, &job, "Fenced"),
            Event::Finished { result, .. } => self.ended(at_ms, &job, result),
            Event::Deleted {} => self.ended(at_ms, &job, "Deleted"),
            _ => {}
        }
    }

    pub fn submitted(&mut self, at_ms: i64, job: &str, gpus: i64) {
        self.at(at_ms);
        self.jobs.entry(job.to_owned()).or_default().gpus = gpus;
    }

    pub fn queued(&mut self, at_ms: i64, job: &str, queue: &str) {
        self.at(at_ms);
        self.jobs.entry(job.to_owned()).or_default().queue = queue.to_owned();
    }

    pub fn started(&mut self, at_ms: i64, job: &str, cluster: &str) {
        self.ended(at_ms, job, "");
        let known = self.jobs.entry(job.to_owned()).or_default();
        let (queue, gpus) = (known.queue.clone(), known.gpus);
        known.runs = Some((cluster.to_owned(), at_ms, queue.clone()));
        self.add(at_ms, &queue, gpus);
    }

    /// The job's run has ended; nothing if it has none.
    pub fn ended(&mut self, at_ms: i64, job: &str, reason: &str) {
        self.at(at_ms);
        let Some(known) = self.jobs.get_mut(job) else { return };
        let Some((cluster, from_ms, queue)) = known.runs.take() else { return };
        let gpus = known.gpus;
        let done =
            RunBox { job: job.to_owned(), gpus, from_ms, to_ms: at_ms, lane: 0, reason: reason.to_owned() };
        self.boxes.entry(cluster).or_default().push(done);
        self.add(at_ms, &queue, -gpus);
    }

    fn at(&mut self, at_ms: i64) {
        self.end_ms = self.end_ms.max(at_ms);
    }

    fn add(&mut self, at_ms: i64, queue: &str, gpus: i64) {
        let points = self.queues.entry(queue.to_owned()).or_insert_with(|| vec![(0, 0)]);
        let used = points.last().map_or(0, |(_, used)| *used) + gpus;
        match points.last_mut() {
            Some(last) if last.0 == at_ms => last.1 = used,
            _ => points.push((at_ms, used)),
        }
    }

    /// The charts; runs that have not ended extend to the end.
    pub fn charts(mut self) -> RunCharts {
        let end_ms = self.end_ms.max(1);
        for (job, known) in &self.jobs {
            if let Some((cluster, from_ms, _)) = &known.runs {
                let open = RunBox {
                    job: job.clone(),
                    gpus: known.gpus,
                    from_ms: *from_ms,
                    to_ms: end_ms,
                    lane: 0,
                    reason: String::new(),
                };
                self.boxes.entry(cluster.clone()).or_default().push(open);
            }
        }
        let most = (MOST_BOXES_OF_ALL / self.boxes.len().max(1)).clamp(FEWEST_BOXES, MOST_BOXES);
        let clusters = self.boxes.into_iter().map(|(cluster, boxes)| lanes(cluster, boxes, most)).collect();
        self.queues.retain(|_, points| points.iter().any(|(_, used)| *used > 0));
        let most = (MOST_POINTS_OF_ALL / self.queues.len().max(1)).clamp(FEWEST_POINTS, MOST_POINTS);
        let queues = self.queues.into_iter().map(|(queue, points)| QueueUse {
            most: points.iter().map(|(_, used)| *used).max().unwrap_or(0),
            points: thinned(points, most),
            queue: if queue.is_empty() { "no queue".to_owned() } else { queue },
        });
        RunCharts { end_ms, queues: queues.collect(), clusters }
    }
}

/// Puts each of the `most` largest runs into the first lane that is free when it begins.
fn lanes(cluster: String, mut boxes: Vec<RunBox>, most: usize) -> ClusterRuns {
    let all = boxes.len();
    // The first ones of a long run would leave the rest of the time empty.
    let size = |run: &RunBox| Reverse(i128::from(run.gpus.max(1)) * i128::from(run.to_ms - run.from_ms));
    boxes.sort_by(|a, b| (size(a), a.from_ms, &a.job).cmp(&(size(b), b.from_ms, &b.job)));
    boxes.truncate(most);
    boxes.sort_by(|a, b| (a.from_ms, &a.job).cmp(&(b.from_ms, &b.job)));
    let mut free_at: Vec<i64> = Vec::new();
    let mut kept = Vec::new();
    for mut run in boxes {
        let lane = free_at.iter().position(|free| *free <= run.from_ms).unwrap_or(free_at.len());
        if lane >= MOST_LANES {
            continue;
        }
        match free_at.get_mut(lane) {
            Some(free) => *free = run.to_ms,
            None => free_at.push(run.to_ms),
        }
        run.lane = lane;
        kept.push(run);
    }
    ClusterRuns { cluster, lanes: free_at.len(), more: all - kept.len(), boxes: kept }
}

/// The highest of points that are close together.
fn thinned(points: Vec<(i64, i64)>, most: usize) -> Vec<(i64, i64)> {
    let each = points.len().div_ceil(most).max(1);
    let last = points.last().copied();
    let highest = points.chunks(each).filter_map(|part| {
        let most = part.iter().map(|(_, used)| *used).max()?;
        part.first().map(|(at_ms, _)| (*at_ms, most))
    });
    let mut kept: Vec<(i64, i64)> = highest.collect();
    // The last point is kept as it was.
    if let (true, Some(last)) = (each > 1, last) {
        kept.push(last);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_overlap_have_lanes_of_their_own() {
        let mut recorder = Recorder::default();
        for (job, gpus) in [("a", 8), ("b", 4), ("c", 2)] {
            recorder.submitted(0, job, gpus);
            recorder.queued(0, job, "root/team");
        }
        recorder.started(10, "a", "east");
        recorder.started(20, "b", "east");
        recorder.ended(30, "a", "Preempted");
        recorder.started(30, "c", "east");
        recorder.ended(40, "b", "Succeeded");
        recorder.ended(40, "nobody", "Succeeded");
        recorder.started(50, "a", "west");
        let charts = recorder.charts();
        let boxes = |index: usize| -> Vec<_> {
            let runs: &ClusterRuns = &charts.clusters[index];
            runs.boxes
                .iter()
                .map(|r| (r.job.as_str(), r.from_ms, r.to_ms, r.lane, r.reason.as_str()))
                .collect()
        };
        assert_eq!(
            boxes(0),
            [("a", 10, 30, 0, "Preempted"), ("b", 20, 40, 1, "Succeeded"), ("c", 30, 50, 0, "")]
        );
        assert_eq!((boxes(1), charts.end_ms), (vec![("a", 50, 50, 0, "")], 50));
        assert_eq!(charts.queues[0].points, [(0, 0), (10, 8), (20, 12), (30, 6), (40, 2), (50, 10)]);
        assert_eq!(charts.queues[0].most, 12);
    }

    #[test]
    fn a_long_run_is_drawn_with_few_corners() {
        let mut recorder = Recorder::default();
        for index in 0..5_000 {
            let job = format!("job-{index}");
            recorder.submitted(index, &job, 1);
            recorder.started(index, &job, "east");
            recorder.ended(index + 10_000, &job, "Succeeded");
        }
        let charts = recorder.charts();
        assert!(charts.queues[0].points.len() <= MOST_POINTS + 1);
        let east = &charts.clusters[0];
        assert!(east.boxes.len() <= MOST_BOXES && east.lanes <= MOST_LANES);
        assert_eq!(east.boxes.len() + east.more, 5_000);
    }

    #[test]
    fn the_largest_runs_are_drawn_and_many_clusters_have_fewer_each() {
        let mut recorder = Recorder::default();
        for index in 0..50_000_i64 {
            let (job, cluster) = (format!("job-{index}"), format!("east-{}", index % 20));
            // One of a hundred has eight GPUs, also at the end.
            recorder.submitted(index, &job, if index / 20 % 100 == 99 { 8 } else { 1 });
            recorder.queued(index, &job, &format!("root/team-{}", index % 500));
            recorder.started(index, &job, &cluster);
            recorder.ended(index + 1_000, &job, "Succeeded");
        }
        let charts = recorder.charts();
        let drawn: usize = charts.clusters.iter().map(|runs| runs.boxes.len()).sum();
        assert!(drawn <= MOST_BOXES_OF_ALL && drawn > MOST_BOXES_OF_ALL / 2, "{drawn}");
        for runs in &charts.clusters {
            let large: Vec<_> = runs.boxes.iter().filter(|run| run.gpus == 8).collect();
            assert_eq!(large.len(), 25, "{}", runs.cluster);
            assert!(large.last().is_some_and(|run| run.from_ms > 49_000), "{}", runs.cluster);
        }
        let points: usize = charts.queues.iter().map(|line| line.points.len()).sum();
        assert!(points <= MOST_POINTS_OF_ALL + 2 * charts.queues.len(), "{points}");
    }
}
