//! What gangs are for: crowds of jobs that make progress only as a whole.

use std::time::Duration;

use fleet_kubesim::plays::{Drivers, Gangs, queries, trainings};

const RUNTIME: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn one_two_and_five_trainings_finish_and_never_more_than_two_hold_pods() {
    for jobs in [1, 2, 5] {
        let outcome = trainings(jobs, 2, Gangs::Kept, RUNTIME).await.unwrap();
        assert!(outcome.all_ended(), "{outcome:?}");
        assert_eq!(outcome.most_at_once, jobs.min(2), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_gangs_five_trainings_hold_each_other_up() {
    let outcome = trainings(5, 2, Gangs::Ignored, RUNTIME).await.unwrap();
    assert!(!outcome.all_ended() && outcome.stuck.len() > 2, "{outcome:?}");
    // One alone has nobody to wait for.
    let outcome = trainings(1, 2, Gangs::Ignored, RUNTIME).await.unwrap();
    assert!(outcome.all_ended(), "{outcome:?}");
}

/// Two trainings on a cluster with capacity for one: each holds a part, or one runs after the other.
#[tokio::test(start_paused = true)]
async fn two_trainings_without_capacity_for_both_run_one_after_the_other() {
    let outcome = trainings(2, 1, Gangs::Kept, RUNTIME).await.unwrap();
    assert!(outcome.all_ended() && outcome.most_at_once == 1, "{outcome:?}");
    let outcome = trainings(2, 1, Gangs::Ignored, RUNTIME).await.unwrap();
    assert_eq!((outcome.ended, outcome.stuck.len()), (0, 2), "{outcome:?}");
}

/// `FLEET_QUERIES=104` plays the whole crowd, which takes a minute without optimisation.
#[tokio::test(start_paused = true)]
async fn queries_finish_on_nodes_they_share_with_their_drivers() {
    let count = std::env::var("FLEET_QUERIES").map_or(26, |text| text.parse().expect("a number"));
    let outcome = queries(count, Drivers::Grouped, RUNTIME).await.unwrap();
    assert!(outcome.all_ended(), "{outcome:?}");
    // 32 cpu hold five whole queries of six.
    assert_eq!(outcome.most_at_once, 5, "{outcome:?}");
    // A node for drivers divides the places for good: four queries have all their executors, not five.
    let divided = queries(count, Drivers::OwnNode, RUNTIME).await.unwrap();
    assert!(divided.all_ended(), "{divided:?}");
    let gain = divided.took.as_secs_f64() / outcome.took.as_secs_f64();
    assert!((1.1..1.6).contains(&gain), "{gain}: {divided:?}");
}

#[tokio::test(start_paused = true)]
async fn without_groups_drivers_take_the_places_of_executors() {
    let outcome = queries(104, Drivers::Free, RUNTIME).await.unwrap();
    assert_eq!((outcome.ended, outcome.stuck.len()), (0, 32), "{outcome:?}");
}
