use std::sync::Arc;

use super::{Buckets, MAX_NAMES, Task, TaskTopology};
use crate::amounts::{CPU, Request};
use crate::ids::{NodeId, PodId};

fn rules(affinity: &str, anti_affinity: &str) -> TaskTopology {
    TaskTopology::read(Some(affinity), Some(anti_affinity), None).unwrap()
}

fn request(milli: i64) -> Request {
    Arc::from([(CPU as u16, milli)])
}

fn task(pod: usize, role: &str, milli: i64) -> Task {
    Task { pod: pod as PodId, role: role.into(), node: None, request: request(milli) }
}

const MANY: usize = 100_000;

fn pods() -> Vec<PodId> {
    (0..MANY as PodId).collect()
}

/// Each alone in its bucket: the next one must not look at all of them.
#[test]
fn tasks_that_avoid_each_other_are_put_in_buckets_in_one_pass() {
    let tasks = (0..MANY).map(|pod| task(pod, "worker", 1000)).collect();
    let mut buckets = Buckets::new(&rules("", "worker"), tasks);
    assert_eq!(buckets.full(), 1);
    assert_eq!(buckets.order(&pods()), pods());
    buckets.placed(0, 0);
    assert_eq!(buckets.points(1, 0, |_| 8000), 0, "one for the task, less the one that stands there");
    assert_eq!(buckets.points(1, 1, |_| 8000), 1);
}

/// All in one bucket: none is looked for among the others.
#[test]
fn tasks_that_like_each_other_are_ordered_and_placed_in_one_pass() {
    let tasks = (0..MANY).map(|pod| task(pod, "worker", 1000)).collect();
    let mut buckets = Buckets::new(&rules("worker", ""), tasks);
    assert_eq!(buckets.full(), MANY as i64);
    assert_eq!(buckets.order(&pods()), pods());
    for pod in 0..MANY - 5 {
        let (pod, node) = (pod as PodId, (pod / 10) as NodeId);
        let points = buckets.points(pod, node, |_| 10_000);
        assert_eq!(points, i64::from(pod % 10) + 10_i64.min(MANY as i64 - i64::from(pod)));
        buckets.placed(pod, node);
    }
    assert_eq!(buckets.points(MANY as PodId - 1, 7, |_| 10_000), 10 + 5);
    assert_eq!(buckets.points(0, 7, |_| 10_000), 0, "it has a place");
}

#[test]
fn what_fits_beside_a_task_is_counted_by_request() {
    let tasks =
        vec![task(0, "ps", 1000), task(1, "worker", 3000), task(2, "worker", 2000), task(3, "worker", 2000)];
    let buckets = Buckets::new(&rules("ps,worker;worker", ""), tasks);
    let points = |pod, free: i64| buckets.points(pod, 0, |_| free);
    assert_eq!(
        [0, 999, 1000, 3000, 4000, 5999, 6000, 8000].map(|free| points(0, free)),
        [0, 0, 1, 2, 2, 2, 3, 4]
    );
    assert_eq!([points(3, 2000), points(3, 3000), points(3, -5)], [1, 2, 0]);
}

#[test]
fn a_smaller_bucket_goes_before_a_larger_one_with_as_many_points() {
    let mut tasks = vec![task(0, "ps", 3000), task(1, "ps", 1000), task(2, "worker", 500)];
    let buckets = Buckets::new(&rules("ps,worker", "ps"), tasks.clone());
    assert_eq!(buckets.order(&[0, 1, 2]), [0, 1, 2]);
    // With the smaller one, which is not the larger by that.
    assert_eq!(buckets.points(1, 0, |_| 9000), 2);
    assert_eq!(buckets.points(0, 0, |_| 9000), 1);
    // Where one stands, and the other does not.
    tasks[0].node = Some(4);
    let buckets = Buckets::new(&rules("ps,worker", "ps"), tasks);
    assert_eq!(buckets.points(2, 4, |_| 9000), 2);
}

#[test]
fn names_beyond_the_most_are_not_read() {
    let pairs = |number: usize| (0..number).map(|at| format!("a{at},b{at};")).collect::<Vec<_>>().concat();
    let read = |text: &str| TaskTopology::read(Some(text), None, Some(text)).unwrap();
    let most = read(&pairs(MAX_NAMES / 2));
    assert_eq!((most.affinity.len(), most.order.len()), (MAX_NAMES / 2, MAX_NAMES));
    assert_eq!(read(&pairs(MAX_NAMES)), most);
    // No part of a group is read.
    let one: Vec<String> = (0..=MAX_NAMES).map(|at| format!("a{at}")).collect();
    assert_eq!(TaskTopology::read(Some(&one.join(",")), None, None), None);
    // All of them in one group, and all tasks of the job.
    let names = &one[..MAX_NAMES];
    let tasks = (0..10_000).map(|pod| task(pod, &names[pod % MAX_NAMES], 1)).collect();
    let buckets = Buckets::new(&rules(&names.join(","), ""), tasks);
    assert_eq!(buckets.full(), 10_000);
}
