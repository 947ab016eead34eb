//! What a viewer with few rights sees: his own first, and of others no names.

use super::*;

/// Leaves of namespaces `a` and `b`, below one node that both share.
fn shared() -> TreeFacts {
    let leaf = |name: &str, namespaces: &[&str], used: i64| QuotaFacts {
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        ..quota(name, 8, 32, used, vec![])
    };
    let team = quota("team", 16, 32, 24, vec![leaf("ours", &["a", "c"], 4), leaf("secret", &["b"], 20)]);
    TreeFacts {
        root: Some(quota("company", 32, 32, 24, vec![team, leaf("hidden", &["d"], 0)])),
        problems: vec!["ElasticQuotaTree of-secret is not in force".to_owned()],
    }
}

fn tenant(namespace: &str) -> Sight {
    Sight { queues: false, clusters: false, ..only(namespace) }
}

#[test]
fn who_may_not_list_trees_sees_the_queues_of_his_namespaces() {
    let mut known = Known::default();
    known.set_tree(shared());
    add(&mut known, "a", "mine", "root/team/ours", 0, 5);
    add(&mut known, "b", "theirs", "root/team/secret", 9, 6);
    let seen = queues(&known, &tenant("a"));
    let text: Vec<String> = seen
        .rows
        .iter()
        .map(|row| format!("{} of {:?} | {}", row.path, row.namespaces, row.lending))
        .collect();
    insta::assert_snapshot!(text.join("\n"), @r#"
    root of [] | 
    root/team of [] | gpu: other queues (12) borrows from ours (4)
    root/team/ours of ["a"] | 
    "#);
    assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
    assert!(seen.absent.is_empty() && seen.left_out.contains("only queues of namespaces that you may see"));
    // The line of a node above has the jobs of what he sees below it.
    let page = queue(&known, &tenant("a"), "root/team", None, 10).expect("a page");
    assert_eq!(page.waiting.len(), 1);
    assert!(!format!("{page:?}").contains("secret") && !format!("{page:?}").contains("theirs"), "{page:?}");
    assert_eq!(queue(&known, &tenant("a"), "root/team/secret", None, 10), None);
    let nothing = queues(&known, &tenant("none"));
    assert!(nothing.rows.is_empty() && nothing.absent.contains("no queue lists a namespace"), "{nothing:?}");
    // The bars of a job's page, and what a new job would wait for, come with the queues.
    let asked = BTreeMap::from([(GPU.to_owned(), 64)]);
    let said = outlook(&known, &tenant("a"), "", "a", &asked);
    assert!(said.iter().any(|said| said.contains("It would never start")), "{said:?}");
    assert_eq!(outlook(&known, &tenant("a"), "secret", "a", &asked), [""; 0]);
}

#[test]
fn who_sees_no_clusters_is_told_the_whole_sentence() {
    let mut known = Known::default();
    let whole = "0 of 2 clusters can hold the whole job now: east: 1 of 2 pods fits; west: not ready";
    let mut facts = binding("x", 1, 8);
    facts.unscheduled =
        Some(Said { reason: "NoClusterFits".to_owned(), message: whole.to_owned(), since_s: 1 });
    known.set_binding(id("a", "x"), Some(facts));
    let job = known.job(&id("a", "x")).expect("a job");
    let told = |sight: &Sight| {
        let last = timeline(&known, sight, job, 9).spans.pop().expect("a span");
        (job_row(&known, sight, job).message, last.message)
    };
    assert_eq!(told(&tenant("a")), (whole.to_owned(), whole.to_owned()));
    let head = "0 of 2 clusters can hold the whole job now".to_owned();
    assert_eq!(told(&only("a")), (head.clone(), head));
}

#[test]
fn the_first_page_begins_with_what_is_the_viewers_own() {
    let mut known = Known::default();
    known.set_tree(shared());
    let put = |known: &mut Known, namespace: &str, name: &str, queue: &str, user: &str, at: i64| {
        let mut facts = binding(name, at, 8);
        user.clone_into(&mut facts.user);
        known.set_binding(id(namespace, name), Some(facts));
        known.set_unit(id(namespace, name), Some(unit(queue, 0, at)));
    };
    put(&mut known, "b", "old", "root/team/secret", "alice", 1);
    put(&mut known, "b", "done", "root/team/secret", "alice", 7);
    put(&mut known, "a", "other", "root/team/ours", "bob", 9);
    let end = End { is_success: true, at_s: 8, ..End::default() };
    let done = BindingFacts { user: "alice".to_owned(), end: Some(end), ..binding("done", 7, 8) };
    known.set_binding(id("b", "done"), Some(done));
    let look = |sight: &Sight, user: &str| {
        let home = home(&known, sight, user, 100);
        let jobs = home.own.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
        let queues = home.queues.iter().take(home.own_queues).map(|row| row.name.clone()).collect::<Vec<_>>();
        (jobs.join(" "), queues.join(" "), home.queues.len())
    };
    // What has not ended is before what is newer; the queue of a job of his is his.
    assert_eq!(look(&Sight::all(), "alice"), ("old done".to_owned(), "secret".to_owned(), 5));
    // So is one that lists a namespace of his.
    assert_eq!(look(&only("a"), "bob"), ("other".to_owned(), "ours".to_owned(), 5));
    // A label opens no namespace.
    assert_eq!(look(&only("a"), "alice"), (String::new(), "ours".to_owned(), 5));
    assert_eq!(look(&Sight::all(), ""), (String::new(), String::new(), 5));
    known.set_binding(id("b", "old"), None);
    assert_eq!(known.of_user(&Sight::all(), "alice").count(), 1);
}

#[test]
fn jobs_that_start_anew_again_and_again_look_wrong() {
    let mut known = Known::default();
    for (name, restarts) in [("often", 3), ("twice", 2), ("most", 40)] {
        let run = Some(RunFacts { started_s: Some(1), ..RunFacts::default() });
        let clusters = vec!["east".to_owned()];
        known.set_binding(
            id("a", name),
            Some(BindingFacts { restarts, clusters, run, ..binding(name, 1, 1) }),
        );
    }
    let told: Vec<String> = home(&known, &Sight::all(), "", 2)
        .strange
        .into_iter()
        .map(|one| format!("{} {}", one.job.name, one.why))
        .collect();
    let again = |times: i64| format!("started anew {times} times in east, in the same run");
    assert_eq!(told, [format!("most {}", again(40)), format!("often {}", again(3))]);
}

#[test]
fn who_made_room_is_told_with_what_was_lost() {
    let mut known = Known::default();
    known.set_tree(shared());
    add(&mut known, "a", "winner", "root/team/ours", 0, 20);
    let over = |epoch, by: &str, ended_s| AttemptFacts {
        cluster: "east".to_owned(),
        epoch,
        reason: "Preempted".to_owned(),
        message: format!("preempted by {by} in east (Reclaim); {epoch} s of work are lost"),
        started_s: Some(1),
        ended_s,
    };
    let victim =
        |known: &mut Known, namespace: &str, name: &str, queue: &str, attempts: Vec<AttemptFacts>| {
            let facts = BindingFacts { attempts, ..binding(name, 2, 8) };
            known.set_binding(id(namespace, name), Some(facts));
            known.set_unit(id(namespace, name), Some(unit(queue, 0, 2)));
        };
    let first = over(1, "a/winner", 30);
    victim(&mut known, "a", "mine", "root/team/ours", vec![first.clone(), over(2, "a/gone", 50)]);
    // The second was for an earlier job of the winner's name.
    victim(
        &mut known,
        "b",
        "theirs",
        "root/team/secret",
        vec![over(7, "a/winner", 40), over(5, "a/winner", 9)],
    );
    victim(&mut known, "b", "alone", "root/team/secret", vec![over(8, "b/theirs", 60)]);
    let name = |job: &Option<(String, String, String)>| {
        job.as_ref().map_or("-".to_owned(), |(namespace, name, _)| format!("{namespace}/{name}"))
    };
    let text = |rows: Vec<PreemptionRow>| {
        let line = |row: &PreemptionRow| {
            format!("{} for {} at {}: {}", name(&row.victim), name(&row.taker), row.at_s, row.lost)
        };
        rows.iter().map(line).collect::<Vec<_>>()
    };
    let winner = known.job(&id("a", "winner")).expect("a job");
    let lost = |seconds: i64| format!("{seconds} s of work are lost");
    let of_mine = format!("a/mine for a/winner at 30: {}", lost(1));
    let (rows, more) = preempted_for(&known, &Sight::all(), winner);
    assert_eq!(
        (text(rows), more),
        (vec![format!("b/theirs for a/winner at 40: {}", lost(7)), of_mine.clone()], 0)
    );
    let (rows, _) = preempted_for(&known, &only("a"), winner);
    let hidden = format!("- for a/winner at 40: {}", lost(7));
    assert_eq!(text(rows), [hidden.clone(), of_mine.clone()]);
    // Of the last ones, those in which a job of the viewer has a part.
    let of_gone = format!("a/mine for a/gone at 50: {}", lost(2));
    let of_old = format!("- for a/winner at 9: {}", lost(5));
    assert_eq!(
        text(preemptions(&known, &only("a"), None, 10)),
        [of_gone.clone(), hidden, of_mine.clone(), of_old]
    );
    assert_eq!(
        text(preemptions(&known, &Sight::all(), None, 1)),
        [format!("b/alone for b/theirs at 60: {}", lost(8))]
    );
    let page = queue(&known, &Sight::all(), "root/team/ours", None, 10).expect("a page");
    assert_eq!(text(page.preemptions), [of_gone, of_mine]);
    // With the job its preemptions go.
    known.set_binding(id("a", "mine"), None);
    assert!(text(preemptions(&known, &only("a"), Some("root/team/ours"), 10)).is_empty());
}

#[test]
fn running_jobs_of_a_cluster_are_counted_as_they_come_and_go() {
    let mut known = Known::default();
    known.set_cluster("east", Some(ClusterFacts::default()));
    let run = |known: &mut Known, namespace: &str, index: i64, cluster: &str| {
        let name = format!("job-{index:02}");
        let run = Some(RunFacts { started_s: Some(index), ..RunFacts::default() });
        let facts = BindingFacts { clusters: vec![cluster.to_owned()], run, ..binding(&name, 0, 1) };
        known.set_binding(id(namespace, &name), Some(facts));
    };
    for index in 0..15 {
        run(&mut known, if index % 3 == 0 { "b" } else { "a" }, index, "east");
    }
    let counted = |known: &Known, sight: &Sight| {
        let row = clusters(known, sight).remove(0);
        (row.jobs.len() + row.more_jobs, row.jobs.first().map(|job| job.name.clone()))
    };
    assert_eq!(counted(&known, &Sight::all()), (15, Some("job-00".to_owned())));
    assert_eq!(counted(&known, &only("a")), (10, Some("job-01".to_owned())));
    run(&mut known, "a", 1, "west");
    known.set_binding(id("a", "job-02"), None);
    assert_eq!(counted(&known, &only("a")), (8, Some("job-04".to_owned())));
}

/// A long list by age is read from an index: it has the rows and the total of one that looks at every job.
#[test]
fn a_long_list_has_the_same_pages_as_a_short_one() {
    let mut known = Known::default();
    for index in 0..6_000_i64 {
        let mut facts = binding(&format!("job-{index:04}"), index / 3, 1);
        if index % 2 == 0 {
            facts.clusters = vec!["east".to_owned()];
        }
        let namespace = if index % 10 == 0 { "b" } else { "a" };
        known.set_binding(id(namespace, &format!("job-{index:04}")), Some(facts));
    }
    let pages = |sight: &Sight, change: &dyn Fn(&mut JobQuery)| {
        let mut query = JobQuery { limit: 700, ..JobQuery::default() };
        change(&mut query);
        let mut found = Vec::new();
        loop {
            let page = jobs(&known, sight, &query);
            found
                .extend(page.rows.iter().map(|row| (row.created_s, row.namespace.clone(), row.name.clone())));
            match page.next {
                Some(next) => query.after = Cursor::read(&next),
                None => return (page.total, found),
            }
        }
    };
    for sight in [Sight::all(), only("a")] {
        for state in [None, Some(State::Waiting), Some(State::Starting)] {
            for ascending in [false, true] {
                let set = |query: &mut JobQuery| (query.state, query.ascending) = (state, ascending);
                let plain = pages(&sight, &set);
                // A text that all names have is not counted.
                let looked = pages(&sight, &|query| {
                    set(query);
                    query.text = "JOB-".to_owned();
                });
                assert_eq!(plain, looked, "{state:?} {ascending}");
                let is_in_order = plain.1.is_sorted_by(|a, b| if ascending { a < b } else { a > b });
                assert!(is_in_order && plain.0 == plain.1.len(), "{state:?} {ascending}");
            }
        }
    }
    assert_eq!(pages(&only("a"), &|query| query.text = "pytorchJOB".to_owned()).0, 5_400);
    assert_eq!(pages(&only("a"), &|query| query.namespace = "b".to_owned()).0, 0);
}
