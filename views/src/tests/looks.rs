//! Who is on which node, what is claimed, what is moved, and whose a job is.

use super::*;

#[test]
fn a_node_says_its_domain_and_who_is_on_it() {
    let mut known = Known::default();
    let mut taken = binding("train", 0, 8);
    taken.clusters = vec!["east".to_owned()];
    known.set_binding(id("a", "train"), Some(taken));
    known.set_binding(id("b", "secret"), Some(binding("secret", 0, 8)));
    known.set_binding(id("a", "next"), Some(binding("next", 0, 8)));
    let places = |of: Id, nodes: &[&str]| PlaceFacts {
        cluster: "east".to_owned(),
        id: of,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    };
    for (name, of) in [("r1", id("a", "train")), ("r2", id("b", "secret")), ("r3", id("a", "next"))] {
        known.set_places(id("fleet-east", name), Some(places(of, &["n1", "n2"])));
    }
    known.set_places(id("fleet-east", "r3"), Some(places(id("a", "next"), &["n3"])));
    let group = |name: &str, domain: &str| NodeGroup {
        count: 1,
        gpus: 8,
        names: vec![name.to_owned()],
        domain: domain.to_owned(),
        ..NodeGroup::default()
    };
    let cluster = ClusterFacts {
        groups: vec![
            group("n1", "rack-2"),
            NodeGroup { unusable: "NotReady".to_owned(), ..group("n2", "rack-1") },
            NodeGroup { of_cells: true, gpus_free: 8, ..group("n3", "rack-1") },
        ],
        ..ClusterFacts::default()
    };
    let sight = only("a");
    let told = |known: &Known| {
        let heat = heat(&cluster, &Who { known, sight: &sight, cluster: "east" });
        heat.cells.iter().map(|cell| format!("{} {}", cell.domain, cell.text)).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&known),
        [
            "rack-1 n3: 0 of 8 GPUs used: reserved for a/next; for cells of virtual clusters",
            "rack-1 n2: NotReady, 8 GPUs: a/train, 1 other job",
            "rack-2 n1: 8 of 8 GPUs used: a/train, 1 other job",
        ]
    );
    let marks = |known: &Known| {
        let heat = heat(&cluster, &Who { known, sight: &sight, cluster: "east" });
        heat.cells
            .iter()
            .map(|cell| (cell.is_reserved, cell.is_cordoned, cell.is_unusable))
            .collect::<Vec<_>>()
    };
    // Of a job that this viewer may not see, too.
    assert_eq!(marks(&known), [(true, false, false), (true, false, true), (true, false, false)]);
    assert_eq!(nodes_by_free([&cluster].into_iter()).iter().map(|(_, nodes)| nodes).sum::<i64>(), 2);
    for name in ["r1", "r2", "r3"] {
        known.set_places(id("fleet-east", name), None);
    }
    assert_eq!(told(&known)[2], "rack-2 n1: 8 of 8 GPUs used");
    assert_eq!(marks(&known), [(false, false, false), (false, false, true), (false, false, false)]);
}

#[test]
fn jobs_are_found_by_user_and_by_virtual_cluster() {
    let mut known = Known::default();
    let mut named = binding("named", 1, 1);
    (named.user, named.virtual_cluster) = ("alice".to_owned(), "vision".to_owned());
    known.set_binding(id("a", "named"), Some(named));
    add(&mut known, "a", "queued", "root/speech", 0, 2);
    add(&mut known, "a", "plain", "root/other", 0, 3);
    let mut tree =
        quota("root", 0, 8, 0, vec![quota("speech", 0, 8, 0, vec![]), quota("other", 0, 8, 0, vec![])]);
    tree.children[0].virtual_cluster = "speech".to_owned();
    known.set_tree(TreeFacts { root: Some(tree), problems: Vec::new() });
    let found = |user: &str, vc: &str| {
        let query = JobQuery {
            user: user.to_owned(),
            virtual_cluster: vc.to_owned(),
            limit: 10,
            ..JobQuery::default()
        };
        jobs(&known, &Sight::all(), &query).rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(found("alice", ""), ["named"]);
    assert_eq!(found("bob", ""), [""; 0]);
    assert_eq!(found("", "vision"), ["named"]);
    assert_eq!(found("", "speech"), ["queued"]);
    assert_eq!(found("alice", "speech"), [""; 0]);
    assert_eq!(found("", ""), ["plain", "queued", "named"]);
}

#[test]
fn claims_are_shown_where_they_are_and_above() {
    let mut known = Known::default();
    known.set_tree(tree());
    let leaves: Vec<String> = queues(&known, &Sight::all())
        .rows
        .iter()
        .filter(|row| row.is_leaf)
        .map(|row| row.path.clone())
        .collect();
    let (one, other) = (leaves[0].as_str(), leaves[1].as_str());
    add(&mut known, "a", "wide", one, 0, 1);
    add(&mut known, "a", "plain", other, 0, 2);
    let claim = ClaimFacts { cluster: "east".to_owned(), since_s: 10, start_s: Some(70), until_s: Some(600) };
    known.set_unit(id("a", "wide"), Some(UnitFacts { claim: Some(claim), ..unit(one, 0, 1) }));
    let claims = |known: &Known, sight: &Sight, path: &str| {
        let page = queue(known, sight, path, None, 10).expect("a queue");
        page.claims
            .into_iter()
            .map(|row| (row.job.map(|job| job.1), row.cluster, row.start_s))
            .collect::<Vec<_>>()
    };
    let seen = (Some("wide".to_owned()), "east".to_owned(), Some(70));
    assert_eq!(claims(&known, &Sight::all(), one), std::slice::from_ref(&seen));
    assert_eq!(claims(&known, &Sight::all(), "root"), [seen]);
    assert_eq!(claims(&known, &Sight::all(), other), []);
    let blind = Sight { clusters: false, ..only("b") };
    assert_eq!(claims(&known, &blind, one), [(None, String::new(), Some(70))]);
    known.set_unit(id("a", "wide"), Some(unit(one, 0, 1)));
    assert_eq!(claims(&known, &Sight::all(), one), []);
}

#[test]
fn what_is_moved_is_listed_where_it_leaves() {
    let mut known = Known::default();
    let at = |cluster: &str, epoch: i64| AttemptFacts {
        cluster: cluster.to_owned(),
        epoch,
        reason: "ClusterLost".to_owned(),
        ended_s: 50,
        ..AttemptFacts::default()
    };
    let put = |known: &mut Known, name: &str, clusters: &[&str], attempts: &[AttemptFacts]| {
        let clusters = clusters.iter().map(|name| (*name).to_owned()).collect();
        let facts = BindingFacts { clusters, attempts: attempts.to_vec(), ..binding(name, 0, 1) };
        known.set_binding(id("a", name), Some(facts));
    };
    put(&mut known, "waits", &[], &[at("east", 1)]);
    put(&mut known, "starts", &["west"], &[at("west", 1), at("east", 2)]);
    put(&mut known, "stays", &["east"], &[]);
    known.set_cluster("east", Some(ClusterFacts { ready: Some(true), ..ClusterFacts::default() }));
    known.set_cluster("west", Some(ClusterFacts { ready: Some(true), ..ClusterFacts::default() }));
    let told = |known: &Known| {
        let line = |row: &MovingRow| format!("{} {}: {}", row.job.name, row.why, row.state);
        let all = clusters(known, &only_clusters());
        all.iter().map(|row| row.moving.iter().map(line).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&known),
        [vec!["starts ClusterLost: starts in west", "waits ClusterLost: waits for another place"], vec![]]
    );
    let drained = ClusterFacts { ready: Some(true), draining: true, ..ClusterFacts::default() };
    known.set_cluster("east", Some(drained));
    assert_eq!(told(&known)[0][0], "stays the cluster is drained: runs here until its turn");
    assert!(clusters(&known, &Sight { clusters: true, ..only("b") })[0].moving.is_empty());
}

fn only_clusters() -> Sight {
    Sight { clusters: true, ..only("a") }
}

/// The table below the map names every node that a report names, however many there are, and a viewer's jobs alone.
#[test]
fn nodes_of_a_cluster_are_rows_of_pages() {
    let mut known = Known::default();
    for (name, cluster) in [("train", vec!["east".to_owned()]), ("next", Vec::new())] {
        let mut job = binding(name, 0, 8);
        job.clusters = cluster;
        known.set_binding(id("a", name), Some(job));
    }
    let mut secret = binding("secret", 0, 8);
    secret.clusters = vec!["east".to_owned()];
    known.set_binding(id("b", "secret"), Some(secret));
    for (of, node) in [("train", "n1"), ("next", "n2")] {
        let places = PlaceFacts { cluster: "east".into(), id: id("a", of), nodes: [node.to_owned()].into() };
        known.set_places(id("fleet-east", of), Some(places));
    }
    let places =
        PlaceFacts { cluster: "east".into(), id: id("b", "secret"), nodes: ["n1".to_owned()].into() };
    known.set_places(id("fleet-east", "secret"), Some(places));
    let names = (0..1_000).map(|index| format!("n{index}")).collect();
    let group = NodeGroup { count: 1_200, gpus: 8, gpus_free: 3, names, ..NodeGroup::default() };
    let bad = |name: &str, why: &str| NodeGroup {
        count: 1,
        gpus: 8,
        names: vec![name.to_owned()],
        unusable: why.to_owned(),
        ..NodeGroup::default()
    };
    let groups = vec![group, bad("x1", "NotReady"), bad("x2", "Cordoned")];
    known.set_cluster("east", Some(ClusterFacts { groups, ..ClusterFacts::default() }));
    let sight = Sight { clusters: true, ..only("a") };
    let blind = Sight { clusters: false, ..only("a") };
    assert!(cluster_page(&known, &blind, "east", 0, 3).is_none(), "whoever may list no clusters");
    assert!(cluster_page(&known, &sight, "west", 0, 3).is_none());
    let page = |before: usize, most: usize| {
        cluster_page(&known, &sight, "east", before, most).expect("a cluster").table
    };
    let told = |page: &NodePage| {
        let tell = |row: &NodeRow| {
            let jobs: Vec<&str> = row.jobs.iter().map(|job| job.name.as_str()).collect();
            format!(
                "{} {} {} {}/{} {} {}",
                row.nodes,
                row.name,
                row.state,
                row.gpus_free,
                row.gpus,
                jobs.join(","),
                row.others
            )
        };
        page.rows.iter().map(tell).collect::<Vec<_>>()
    };
    let first = page(0, 3);
    assert_eq!((first.before, first.total), (0, 1_003));
    assert_eq!(told(&first), ["1 n0 ready 3/8  0", "1 n1 ready 3/8 train 1", "1 n2 reserved 3/8 next 0"]);
    assert_eq!(
        told(&page(999, 10)),
        ["1 n999 ready 3/8  0", "1 x1 not ready 0/8  0", "1 x2 cordoned 0/8  0", "200  ready 3/8  0"]
    );
    assert!(page(2_000, 10).rows.is_empty());
    assert_eq!(cluster_pages(&known, &sight)[0].table.rows.len(), 20);
}

#[test]
fn a_job_that_lost_its_place_waits_behind_those_that_came_before() {
    let mut known = Known::default();
    known.set_tree(tree());
    for (name, created_s) in [("first", 1), ("second", 2), ("third", 5)] {
        add(&mut known, "team", name, "root/research", 0, created_s);
    }
    let edited = BindingFacts { place_ms: 3_500, ..binding("first", 1, 8) };
    known.set_binding(id("team", "first"), Some(edited));
    assert_eq!(known.position(&id("team", "first")), Some((2, 3)));
    let mut names = Vec::new();
    let mut after = None;
    for _ in 0..3 {
        let page = queue(&known, &Sight::all(), "root/research", after.as_deref(), 1);
        let page = page.unwrap_or_else(|| panic!("no page after {after:?}"));
        names.extend(page.waiting.iter().filter_map(|row| row.job.clone()).map(|(_, name, _)| name));
        after = page.next;
    }
    assert_eq!((names, after), (vec!["second".to_owned(), "first".to_owned(), "third".to_owned()], None));
}
