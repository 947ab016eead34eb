use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use proptest::prelude::*;

use super::*;
use crate::amounts::GPU;

mod looks;
mod viewers;

fn binding(name: &str, created_s: i64, gpus: i64) -> BindingFacts {
    BindingFacts {
        api_version: "kubeflow.org/v1".to_owned(),
        kind: "PyTorchJob".to_owned(),
        resource: "pytorchjobs.kubeflow.org".to_owned(),
        name: name.to_owned(),
        is_job: true,
        created_s,
        requests: BTreeMap::from([(GPU.to_owned(), gpus)]),
        pods: 1,
        ..BindingFacts::default()
    }
}

fn unit(queue: &str, priority: i32, created_s: i64) -> UnitFacts {
    let said =
        Said { reason: "MaxJobs".to_owned(), message: "1 of 1 jobs run".to_owned(), since_s: created_s };
    UnitFacts {
        queue: queue.to_owned(),
        priority,
        created_s,
        waits: true,
        preemptible: true,
        said: Some(said),
        ..UnitFacts::default()
    }
}

fn id(namespace: &str, name: &str) -> Id {
    (namespace.to_owned(), name.to_owned())
}

fn only(namespace: &str) -> Sight {
    Sight { jobs: Namespaces::Only(BTreeSet::from([namespace.to_owned()])), ..Sight::all() }
}

fn add(known: &mut Known, namespace: &str, name: &str, queue: &str, priority: i32, created_s: i64) {
    known.set_binding(id(namespace, name), Some(binding(name, created_s, 8)));
    known.set_unit(id(namespace, name), Some(unit(queue, priority, created_s)));
}

fn quota(name: &str, min: i64, max: i64, used: i64, children: Vec<QuotaFacts>) -> QuotaFacts {
    let of = |amount: i64| BTreeMap::from([(GPU.to_owned(), amount)]);
    QuotaFacts {
        name: name.to_owned(),
        min: of(min),
        max: of(max),
        used: of(used),
        children,
        ..QuotaFacts::default()
    }
}

fn tree() -> TreeFacts {
    let children = vec![
        quota("research", 16, 32, 28, vec![]),
        quota("vision", 8, 32, 0, vec![]),
        quota("speech", 8, 16, 4, vec![]),
    ];
    TreeFacts { root: Some(quota("root", 32, 32, 32, children)), problems: Vec::new() }
}

#[test]
fn who_borrows_from_whom_is_said() {
    let mut known = Known::default();
    known.set_tree(tree());
    add(&mut known, "a", "x", "root/research", 0, 5);
    let rows = queues(&known, &Sight::all()).rows;
    let text: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} | {} | {}", row.path, row.waiting, row.bars[0].text, row.lending))
        .collect();
    insta::assert_snapshot!(text.join("\n"), @r"
    root 1 | 32 of 32 gpu used, 32 guaranteed | gpu: research (12) borrows from vision (8), speech (4)
    root/research 1 | 28 of 32 gpu used, 16 guaranteed, 12 borrowed | 
    root/vision 0 | 0 of 32 gpu used, 8 guaranteed, 8 lent | 
    root/speech 0 | 4 of 16 gpu used, 8 guaranteed, 4 lent | 
    ");
    let blind = Sight { queues: false, ..Sight::all() };
    assert!(
        queues(&known, &blind).rows.is_empty() && queues(&known, &blind).absent.contains("ElasticQuotaTrees")
    );
    assert_eq!(queue(&known, &blind, "root", None, 10), None);
}

#[test]
fn what_is_lent_adds_up_to_what_is_borrowed() {
    let mut known = Known::default();
    let children = vec![
        quota("a", 96, 256, 192, vec![]),
        quota("b", 128, 160, 12, vec![]),
        quota("c", 64, 64, 12, vec![]),
    ];
    known.set_tree(TreeFacts { root: Some(quota("root", 288, 288, 216, children)), problems: Vec::new() });
    let rows = queues(&known, &Sight::all()).rows;
    assert_eq!(rows[0].lending, "gpu: a (96) borrows from b (67), c (29)");
}

#[test]
fn what_the_parent_did_not_promise_is_lent_first() {
    let mut known = Known::default();
    let children = vec![quota("a", 4, 16, 10, vec![]), quota("b", 4, 16, 0, vec![])];
    let root = quota("root", 16, 16, 10, children);
    known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
    let rows = queues(&known, &Sight::all()).rows;
    assert_eq!(
        (rows[1].bars[0].borrowed.as_str(), rows[2].bars[0].lent.as_str(), rows[0].lending.as_str()),
        ("6", "", "")
    );
}

#[test]
fn nothing_is_borrowed_of_what_the_tree_does_not_speak_of() {
    let mut known = Known::default();
    let mut facts = tree();
    let use_cpu = |node: &mut QuotaFacts| {
        node.used.insert("cpu".to_owned(), 9_000);
    };
    if let Some(root) = &mut facts.root {
        use_cpu(root);
        root.children.iter_mut().for_each(use_cpu);
    }
    known.set_tree(facts.clone());
    let texts = |known: &Known| -> BTreeSet<String> {
        queues(known, &Sight::all()).rows.into_iter().flat_map(|row| row.bars).map(|bar| bar.text).collect()
    };
    assert!(texts(&known).iter().all(|text| text.contains("gpu")), "{:?}", texts(&known));
    // A guarantee of one node is borrowed from by the others.
    if let Some(root) = &mut facts.root {
        root.children[1].min.insert("cpu".to_owned(), 20_000);
    }
    known.set_tree(facts.clone());
    assert!(texts(&known).iter().any(|text| text.ends_with("cpu used, 9 borrowed")), "{:?}", texts(&known));
    // A tree that bounds nothing: use is shown as it is.
    fn unbound(node: &mut QuotaFacts) {
        (node.min, node.max) = (BTreeMap::new(), BTreeMap::new());
        node.children.iter_mut().for_each(unbound);
    }
    facts.root.iter_mut().for_each(unbound);
    known.set_tree(facts);
    assert!(texts(&known).iter().all(|text| !text.contains("borrowed")) && !texts(&known).is_empty());
}

#[test]
fn what_a_job_would_wait_for_is_said() {
    let mut known = Known::default();
    let mut facts = tree();
    if let Some(root) = &mut facts.root {
        root.children[2].namespaces = vec!["team-s".to_owned()];
        root.children[1].max.insert(amounts::JOBS.to_owned(), 0);
    }
    known.set_tree(facts);
    add(&mut known, "team-s", "x", "root/speech", 0, 5);
    let ask = |queue: &str, namespace: &str, gpus: i64| {
        outlook(&known, &Sight::all(), queue, namespace, &[(GPU.to_owned(), gpus)].into()).join("\n")
    };
    let full = "It would wait until jobs of root end, or are preempted for it: it asks for 8 gpu, and 32 of 32 gpu are used.";
    assert_eq!(ask("", "team-s", 8), format!("It would go to queue root/speech, where 1 job waits.\n{full}"));
    assert_eq!(ask("speech", "other", 8), ask("root/speech", "", 8));
    assert_eq!(
        ask("", "team-s", 20).lines().last(),
        Some("It would never start: it asks for 20 gpu, and root/speech has at most 16 gpu.")
    );
    assert_eq!(
        ask("vision", "", 0).lines().last(),
        Some("It would never start: it is one job more, and root/vision has at most 0 jobs.")
    );
    assert_eq!(ask("research", "", 0), "It would go to queue root/research, where nobody waits.");
    // An inner node takes no jobs; nothing is said of a queue that is not there, or not to be seen.
    assert_eq!((ask("root", "", 1), ask("", "other", 1)), (String::new(), String::new()));
    assert!(outlook(&known, &Sight::nothing(), "speech", "", &BTreeMap::new()).is_empty());
}

#[test]
fn virtual_clusters_are_shown_to_whom_may_list_them() {
    let mut known = Known::default();
    let facts = VirtualClusterFacts {
        name: "vc1".to_owned(),
        allocation: "75%".to_owned(),
        guaranteed: 8,
        used: 5,
        borrowed: 4,
        lent: 1,
        bad: 2,
        ..VirtualClusterFacts::default()
    };
    known.set_virtual_cluster("vc1", Some(facts.clone()));
    let version = known.version();
    known.set_virtual_cluster("vc1", Some(facts));
    assert_eq!(known.version(), version, "the same is no news");
    let row = &home(&known, &Sight::all(), "", 0).virtual_clusters[0];
    assert_eq!(row.bar.text, "5 of 8 cells used, 8 guaranteed, 1 lent");
    let blind = Sight { virtual_clusters: false, ..Sight::all() };
    assert!(home(&known, &blind, "", 0).virtual_clusters.is_empty());
    known.set_virtual_cluster("vc1", None);
    assert!(virtual_clusters(&known, &Sight::all()).is_empty() && known.version() > version);
}

#[test]
fn a_lost_cluster_says_how_many_jobs_wait_for_it() {
    let mut known = Known::default();
    known.set_cluster("east", Some(ClusterFacts::default()));
    let lost = |name: &str, lost_since_s| BindingFacts {
        clusters: vec!["east".to_owned()],
        run: Some(RunFacts { lost_since_s, started_s: Some(1), ..RunFacts::default() }),
        ..binding(name, 1, 8)
    };
    known.set_binding(id("a", "x"), Some(lost("x", Some(9))));
    known.set_binding(id("b", "y"), Some(lost("y", Some(9))));
    known.set_binding(id("b", "z"), Some(lost("z", None)));
    let sentence = |known: &Known, sight: &Sight| clusters(known, sight)[0].sentence.clone();
    assert!(!sentence(&known, &Sight::all()).contains("for that"));
    known.set_lease("east", Some(LeaseFacts { declared_lost: true, ..LeaseFacts::default() }));
    assert!(sentence(&known, &Sight::all()).ends_with("no longer run there. 2 jobs wait for that."));
    assert!(sentence(&known, &only("a")).ends_with("1 job waits for that."));
}

#[test]
fn jobs_of_other_namespaces_are_counted_in_line_and_not_shown() {
    let mut known = Known::default();
    known.set_tree(tree());
    add(&mut known, "a", "mine", "root/research", 0, 5);
    add(&mut known, "b", "theirs", "root/research", 9, 6);
    let page = queue(&known, &only("a"), "root/research", None, 10).expect("a page");
    assert_eq!(page.waiting.len(), 2);
    assert_eq!((page.waiting[0].position, &page.waiting[0].job), (1, &None));
    assert!(!format!("{page:?}").contains("theirs"), "{page:?}");
    assert_eq!(page.waiting[1].position, 2);
    assert_eq!(page.reasons.iter().map(|r| (r.0.as_str(), r.2)).collect::<Vec<_>>(), [("MaxJobs", 1)]);
    let listed = jobs(&known, &only("a"), &JobQuery { limit: 10, ..JobQuery::default() });
    assert_eq!((listed.total, listed.namespaces), (1, vec!["a".to_owned()]));
    let first = home(&known, &only("a"), "", 100);
    assert_eq!(first.counts[0], (State::Waiting, 1));
    assert_eq!(first.recent.len(), 1);
    let none = home(&known, &Sight::nothing(), "", 100);
    assert!(none.recent.is_empty() && none.clusters.is_empty() && none.queues.is_empty());
    assert_eq!(known.position(&id("a", "mine")), Some((2, 2)));
}

#[test]
fn a_unit_may_come_before_its_binding_and_stay_after_it() {
    let mut known = Known::default();
    known.set_unit(id("a", "x"), Some(unit("q", 3, 1)));
    assert_eq!(known.position(&id("a", "x")), None);
    known.set_binding(id("a", "x"), Some(binding("x", 1, 1)));
    assert_eq!(known.position(&id("a", "x")), Some((1, 1)));
    known.set_binding(id("a", "x"), None);
    known.set_binding(id("a", "x"), Some(binding("x", 1, 1)));
    assert_eq!(known.position(&id("a", "x")), Some((1, 1)));
    known.set_unit(id("a", "x"), None);
    assert_eq!(known.position(&id("a", "x")), None);
    known.set_binding(id("a", "x"), None);
    assert!(known.jobs().is_empty() && known.counts().is_empty() && known.lines().is_empty());
}

#[test]
fn a_life_is_spans_without_gaps() {
    let mut facts = binding("x", 100, 8);
    let attempt = |epoch, cluster: &str, started_s, ended_s| AttemptFacts {
        cluster: cluster.to_owned(),
        epoch,
        reason: "Preempted".to_owned(),
        message: "makes room".to_owned(),
        started_s,
        ended_s,
    };
    facts.attempts = vec![attempt(1, "east", Some(120), 150), attempt(2, "west", None, 170)];
    facts.clusters = vec!["east".to_owned()];
    facts.epoch = 3;
    facts.run = Some(RunFacts { since_s: 180, started_s: Some(190), lost_since_s: None });
    let mut known = Known::default();
    known.set_binding(id("a", "x"), Some(facts.clone()));
    let line = timeline(&known, &Sight::all(), known.job(&id("a", "x")).expect("a job"), 200);
    let spans: Vec<_> = line
        .spans
        .iter()
        .map(|s| (s.kind, s.from, s.length, s.epoch, s.reason.as_str(), s.is_open))
        .collect();
    use SpanKind::{Running, Starting, Waiting};
    assert_eq!(
        spans,
        [
            (Waiting, 0, 200, 0, "", false),
            (Running, 200, 300, 1, "Preempted", false),
            (Waiting, 500, 200, 0, "", false),
            (Starting, 700, 0, 2, "Preempted", false),
            (Waiting, 700, 100, 0, "", false),
            (Starting, 800, 100, 3, "", false),
            (Running, 900, 100, 3, "", true),
        ]
    );
    // Its end is the last run's, whose attempt is noted.
    facts.attempts.push(attempt(3, "east", Some(190), 210));
    facts.end = Some(End {
        is_success: false,
        cluster: "east".to_owned(),
        at_s: 210,
        reason: Some("Stopped".to_owned()),
        message: None,
    });
    known.set_binding(id("a", "x"), Some(facts));
    let job = known.job(&id("a", "x")).expect("a job");
    assert_eq!(job.state(), State::Stopped);
    let last = timeline(&known, &Sight::all(), job, 999).spans.pop().expect("a span");
    assert_eq!((last.to_s, last.is_open), (210, false));
}

#[test]
fn states_follow_from_facts() {
    let check = |change: &dyn Fn(&mut BindingFacts), expected: State| {
        let mut facts = binding("x", 0, 1);
        change(&mut facts);
        let job = Job { id: id("a", "x"), binding: facts, unit: None };
        assert_eq!(job.state(), expected);
    };
    let end = |is_success, reason: Option<&str>| {
        Some(End { is_success, reason: reason.map(str::to_owned), ..End::default() })
    };
    let bound = |facts: &mut BindingFacts| facts.clusters = vec!["east".to_owned()];
    check(&|_| {}, State::Waiting);
    check(&bound, State::Starting);
    check(
        &|facts| {
            bound(facts);
            facts.run = Some(RunFacts { started_s: Some(3), ..RunFacts::default() });
        },
        State::Running,
    );
    check(
        &|facts| {
            bound(facts);
            facts.is_job = false;
        },
        State::Running,
    );
    check(&|facts| facts.end = end(true, None), State::Succeeded);
    check(&|facts| facts.end = end(false, Some("Stopped")), State::Stopped);
    check(&|facts| facts.end = end(false, Some("BackoffLimitExceeded")), State::Failed);
    for state in State::ALL {
        assert_eq!(State::from_text(&state.as_str().to_lowercase()), Some(state));
    }
}

#[test]
fn what_looks_wrong_is_named_with_its_reason() {
    let mut known = Known::default();
    add(&mut known, "a", "patient", "q", 0, 0);
    let mut restless = binding("restless", 0, 1);
    restless.attempts =
        vec![AttemptFacts { reason: "ClusterLost".to_owned(), ended_s: 50, ..AttemptFacts::default() }; 3];
    known.set_binding(id("a", "restless"), Some(restless));
    let mut eternal = binding("eternal", 0, 1);
    eternal.clusters = vec!["east".to_owned()];
    eternal.run = Some(RunFacts { started_s: Some(0), ..RunFacts::default() });
    known.set_binding(id("a", "eternal"), Some(eternal));
    let why = |now| {
        home(&known, &Sight::all(), "", now)
            .strange
            .into_iter()
            .map(|s| format!("{} {}", s.job.name, s.why))
            .collect::<Vec<_>>()
    };
    assert_eq!(why(100), ["restless has ended 3 runs, the last one by ClusterLost"]);
    assert_eq!(
        why(6 * 86_400),
        [
            "restless has ended 3 runs, the last one by ClusterLost",
            "patient waits for 6d",
            "restless waits for 5d23h",
            "eternal runs for 6d",
        ]
    );
}

#[test]
fn nodes_are_cells_and_a_large_cluster_has_few() {
    let group = |count, free, taints: &[&str]| NodeGroup {
        count,
        gpus: 8,
        gpus_free: free,
        names: vec!["node-1".to_owned()],
        taints: taints.iter().map(|t| (*t).to_owned()).collect(),
        ..NodeGroup::default()
    };
    let (known, sight) = (Known::default(), Sight::all());
    let who = Who { known: &known, sight: &sight, cluster: "east" };
    let small = ClusterFacts {
        groups: vec![group(2, 8, &[]), group(1, 1, &["bad=gpu:NoSchedule"])],
        ..ClusterFacts::default()
    };
    let cells: Vec<_> = heat(&small, &who).cells.iter().map(|c| (c.shade, c.text.clone())).collect();
    assert_eq!(
        cells,
        [
            (4, "node-1: 7 of 8 GPUs used; tainted bad=gpu:NoSchedule".to_owned()),
            (0, "node-1: 0 of 8 GPUs used".to_owned()),
            (0, "a node: 0 of 8 GPUs used".to_owned()),
        ]
    );
    assert_eq!(
        nodes_by_free([&small].into_iter()).iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>(),
        [&(1, 1), &(8, 2)]
    );
    let large = ClusterFacts { groups: vec![group(10_000, 0, &[])], ..ClusterFacts::default() };
    let heat = heat(&large, &who);
    assert!(heat.cells.len() <= 600, "{}", heat.cells.len());
    assert_eq!(heat.cells.iter().map(|cell| cell.nodes).sum::<i64>(), 10_000);
}

proptest! {
    /// Page by page, every job comes once and in the order of a plain sort, whatever the page size.
    #[test]
    fn pages_show_every_job_once(
        made in prop::collection::vec((0..3i32, 0..4i64, 0..3u8, 0..2u8), 0..40),
        limit in 1..7usize,
        ascending: bool,
        sort in 0..Sort::ALL.len(),
    ) {
        let mut known = Known::default();
        known.set_tree(TreeFacts { root: Some(quota("q", 0, 9, 0, vec![quota("a", 0, 9, 0, vec![]), quota("b", 0, 9, 0, vec![])])), problems: vec![] });
        for (index, (priority, created, namespace, leaf)) in made.iter().enumerate() {
            let (namespace, leaf) = (format!("n{namespace}"), ["root/a", "root/b"][usize::from(*leaf)]);
            add(&mut known, &namespace, &format!("job-{index}"), leaf, *priority, *created);
        }
        // Changed and gone jobs leave nothing behind.
        for (index, gone) in made.iter().enumerate().take(made.len() / 3) {
            let gone = id(&format!("n{}", gone.2), &format!("job-{index}"));
            known.set_binding(gone.clone(), None);
            known.set_unit(gone, None);
        }
        let mut query = JobQuery { limit, ascending, sort: Sort::ALL[sort], ..JobQuery::default() };
        let mut seen = Vec::new();
        loop {
            let page = jobs(&known, &Sight::all(), &query);
            prop_assert_eq!(page.total, known.jobs().len());
            seen.extend(page.rows.iter().map(|row| id(&row.namespace, &row.name)));
            let Some(next) = page.next else { break };
            query.after = Cursor::read(&next);
            prop_assert!(query.after.is_some());
        }
        let whole = jobs(&known, &Sight::all(), &JobQuery { limit: 1000, after: None, ..query.clone() });
        let whole: Vec<Id> = whole.rows.iter().map(|row| id(&row.namespace, &row.name)).collect();
        prop_assert_eq!(&seen, &whole);
        prop_assert_eq!(seen.len(), known.jobs().len());

        let mut line = Vec::new();
        let mut after = None;
        while let Some(page) = queue(&known, &Sight::all(), "root", after.as_deref(), limit) {
            line.extend(page.waiting.into_iter().map(|row| (row.position, row.job)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut expected = Vec::new();
        for leaf in ["root/a", "root/b"] {
            let mut here: Vec<&Job> = known.jobs().values().filter(|job| job.queue() == leaf).collect();
            here.sort_by_key(|job| (Reverse(job.unit.as_ref().map(|u| u.priority)), job.binding.created_s, job.id.1.clone(), job.id.0.clone()));
            for (index, job) in here.into_iter().enumerate() {
                prop_assert_eq!(known.position(&job.id), Some((index + 1, known.jobs().values().filter(|j| j.queue() == leaf).count())));
                expected.push((index + 1, Some((job.id.0.clone(), job.id.1.clone(), "pytorchjobs.kubeflow.org".to_owned()))));
            }
        }
        prop_assert_eq!(line, expected);
    }
}

#[test]
fn the_root_has_one_path_whatever_its_name_is_and_shows_its_min() {
    let mut known = Known::default();
    let root = quota("company", 32, 64, 8, vec![quota("team", 8, 16, 8, vec![])]);
    known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
    add(&mut known, "team", "a", "root/team", 0, 1);
    let shown = queues(&known, &Sight::all());
    let found: Vec<(&str, &str, usize)> =
        shown.rows.iter().map(|row| (row.path.as_str(), row.name.as_str(), row.waiting)).collect();
    assert_eq!(found, [("root", "company", 1), ("root/team", "team", 1)]);
    let bar = &shown.rows[0].bars[0];
    assert_eq!((bar.min.as_str(), bar.borrowed.as_str()), ("32", ""));
    assert_eq!(bar.text, "8 of 64 gpu used, 32 guaranteed");
    let requests = BTreeMap::from([(GPU.to_owned(), 9)]);
    let said = outlook(&known, &Sight::all(), "team", "team", &requests);
    assert!(said.iter().any(|said| said.contains("root/team")), "{said:?}");
}

#[test]
fn an_invalid_tree_is_not_called_absent() {
    let mut known = Known::default();
    assert!(queues(&known, &Sight::all()).absent.starts_with("There is no quota tree"));
    known.set_tree(TreeFacts { root: None, problems: vec!["it is wrong".to_owned()] });
    assert!(queues(&known, &Sight::all()).absent.starts_with("No quota tree is in force"));
}

#[test]
fn an_object_in_several_clusters_is_in_each() {
    let mut known = Known::default();
    let clusters = vec!["east".to_owned(), "west".to_owned()];
    let web = BindingFacts { is_job: false, clusters: clusters.clone(), ..binding("web", 1, 1) };
    known.set_binding(id("team", "web"), Some(web));
    for name in &clusters {
        known.set_cluster(name, Some(ClusterFacts::default()));
        let query = JobQuery { cluster: name.clone(), limit: 10, ..JobQuery::default() };
        let rows = jobs(&known, &Sight::all(), &query).rows;
        assert_eq!(rows.len(), 1, "{name}");
        assert_eq!(rows[0].clusters, clusters);
    }
}
