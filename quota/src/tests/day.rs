//! A whole day on a small tree: how often jobs are cut, and that a job that is cut often runs longer between.

use std::collections::BTreeMap;

use super::*;

const SECOND: i64 = 1000;
const DAY_MS: i64 = 86_400 * SECOND;

/// How long a job runs before this cut of its life, by the text of the documentation: the first two are free, the third comes
/// after ten seconds, each further one after twice as long, up to an hour.
fn runs_before_ms(cut: u32) -> i64 {
    if cut < 3 { 0 } else { ((10 * SECOND) << (cut - 3).min(20)).min(3600 * SECOND) }
}

/// The most cuts that a day has room for.
fn most_in_a_day() -> u32 {
    (1..)
        .scan(0, |sum, cut| {
            *sum += runs_before_ms(cut);
            (*sum <= DAY_MS).then_some(cut)
        })
        .last()
        .unwrap()
}

/// One cut of a job: by which rule, and how long it had run.
type Cut = (TakeRule, i64);

/// Plays a day. Jobs of `stays` are in the tree all day, and wait again a second after they were cut. By `comes`, leaf, cores,
/// priority, and every so many seconds, jobs of ten seconds.
fn day(
    tree_text: &str,
    clusters: &str,
    stays: &[(&str, &str, i64)],
    comes: &[(&str, i64, i64, i64)],
) -> BTreeMap<JobId, Vec<Cut>> {
    let mut fleet = Fleet::new(tree_text, clusters);
    for (id, path, cores) in stays {
        fleet.submit(id, path, *cores, -1);
    }
    let mut cuts: BTreeMap<JobId, Vec<Cut>> = BTreeMap::new();
    let mut again: Vec<(i64, JobId)> = Vec::new();
    let mut next: Vec<i64> = comes.iter().map(|(.., every_s)| every_s * SECOND).collect();
    let mut count = 0;
    let mut now_ms = 0;
    while now_ms < DAY_MS {
        (fleet.now_ms, fleet.clusters.now_ms) = (now_ms, now_ms);
        let over: Vec<JobId> = fleet
            .clusters
            .ends
            .iter()
            .filter(|(_, end_ms)| **end_ms <= now_ms)
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            fleet.clusters.ends.remove(&id);
            fleet.end(id.as_str());
        }
        for ((path, cores, priority, every_s), next_ms) in comes.iter().zip(&mut next) {
            if *next_ms <= now_ms {
                // One at a time waits: else so many come in an hour of protection that they fill the next one.
                if !fleet.planner.queues().jobs().any(|job| job.id.as_str().starts_with(&format!("{path}-")))
                {
                    count += 1;
                    fleet.submit(&format!("{path}-{count:05}"), path, *cores, *priority);
                }
                *next_ms += every_s * SECOND;
            }
        }
        let due: Vec<JobId> =
            again.iter().filter(|(at_ms, _)| *at_ms <= now_ms).map(|(_, id)| id.clone()).collect();
        again.retain(|(at_ms, _)| *at_ms > now_ms);
        for id in due {
            let (_, path, cores) = stays.iter().find(|(stay, ..)| *stay == id.as_str()).unwrap();
            let job = waiting(fleet.planner.tree(), id.as_str(), path, *cores, -1, now_ms);
            fleet.planner.enqueue(WaitingJob { preemptions: cuts[&id].len() as u32, ..job });
        }
        let plan = fleet.planner.plan(now_ms, PlanLimits::default(), &mut fleet.clusters);
        for (id, _) in plan.admitted() {
            fleet.clusters.started.insert(id.clone(), now_ms);
            if !stays.iter().any(|(stay, ..)| *stay == id.as_str()) {
                fleet.clusters.ends.insert(id.clone(), now_ms + 10 * SECOND);
            }
        }
        for victim in plan.takes().flat_map(|(_, take)| &take.victims) {
            let ran_ms = now_ms - fleet.clusters.started[&victim.job];
            // Only those that stay are below the others.
            cuts.entry(victim.job.clone()).or_default().push((victim.rule, ran_ms));
            again.push((now_ms + SECOND, victim.job.clone()));
        }
        for id in plan.takes().flat_map(|(_, take)| &take.victims).map(|victim| &victim.job) {
            fleet.end(id.as_str());
        }
        let ends = fleet.clusters.ends.values();
        let times = ends.chain(&next).chain(again.iter().map(|(at_ms, _)| at_ms)).chain(&plan.wake_at_ms);
        now_ms = times.copied().min().unwrap_or(DAY_MS).max(now_ms + 1);
    }
    cuts
}

#[test]
fn a_day_of_urgent_jobs_cuts_a_long_one_only_so_often() {
    let cuts = day("root 2-2; a 0-2", "east 2", &[("long", "a", 2)], &[("a", 2, 5, 15)]);
    let cuts = &cuts[&JobId::new("long")];
    for (i, (rule, ran_ms)) in cuts.iter().enumerate() {
        assert_eq!(*rule, TakeRule::InQueuePriority);
        assert!(*ran_ms >= runs_before_ms(i as u32 + 1), "cut {} after {ran_ms} ms", i + 1);
    }
    let most = most_in_a_day() as usize;
    assert!(cuts.len() <= most, "{} of {most}", cuts.len());
    // The protection is all that keeps the urgent jobs away: nearly as many as the day has room for.
    assert!(cuts.len() + 3 >= most, "{} of {most}", cuts.len());
}

/// The owner's min comes back at once, however often: each of its jobs cuts a borrower once. Between, urgent jobs cut them as
/// rarely as the protection says, and the cuts of both kinds count for it.
#[test]
fn a_day_of_reclaims_cuts_two_borrowers_once_for_each_owner_and_no_more() {
    let owners = (DAY_MS / (600 * SECOND)) as usize;
    let text = "root 4-4; a 0-4; b 0-4; own 2-4";
    let stays = [("long-a", "a", 2), ("long-b", "b", 2)];
    let cuts = day(text, "east 4", &stays, &[("own", 2, 0, 600), ("a", 2, 5, 40), ("b", 2, 5, 40)]);
    let reclaims = cuts.values().flatten().filter(|(rule, _)| *rule == TakeRule::Reclaim).count();
    assert!(reclaims > owners / 2 && reclaims <= owners, "{reclaims} by {owners} owners");
    for (id, cuts) in &cuts {
        let others = cuts.iter().enumerate().filter(|(_, (rule, _))| *rule != TakeRule::Reclaim);
        for (i, (_, ran_ms)) in others.clone() {
            assert!(*ran_ms >= runs_before_ms(i as u32 + 1), "{id}: cut {} after {ran_ms} ms", i + 1);
        }
        assert!(others.count() <= most_in_a_day() as usize, "{id}");
    }
    assert_eq!(cuts.len(), 2, "both are cut");
}
