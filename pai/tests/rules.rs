//! Templates, cells, completion and retry: one row for each rule.

use std::collections::BTreeMap;

use fleet_pai::{
    Protocol,
    completion::{Completed, Ended, RoleRule, Rules, judge},
    hived::{CellOffer, ClusterOffer, Offer, PodSpec, SkuUnit, SpecV1, request},
    render,
    retry::{Decision, Policy, Retried, decide},
    state::{State, SubState, shown},
};
use serde_json::{Value, json};

use crate::common::{job, lab, protocol, read};

fn with_commands(commands: Value) -> Protocol {
    protocol(|job| {
        job["parameters"] =
            json!({"lr": 0.01, "epochs": 3, "data": {"path": "/d", "list": ["x", "y"]}, "none": null});
        job["secrets"] = json!({"token": "s3cret"});
        let list = job["prerequisites"].as_array_mut().expect("a list");
        list.push(json!({"name": "set", "type": "data", "uri": ["a://1", "a://2"]}));
        list.push(json!({"name": "code", "type": "script", "uri": "git://code"}));
        job["taskRoles"]["train"]["data"] = json!("set");
        job["taskRoles"]["train"]["script"] = json!("code");
        job["taskRoles"]["train"]["commands"] = commands.clone();
    })
}

#[test]
fn templates_are_filled_in() {
    for (command, becomes, hidden) in [
        ("run --lr <% $parameters.lr %> --n <%$parameters.epochs%>", "run --lr 0.01 --n 3", false),
        ("cd <% $parameters.data.path %>/<% $parameters.data.list[1] %>", "cd /d/y", false),
        ("get <% $data.uri[0] %> <% $data.name %>", "get a://1 set", false),
        ("sh <% $script.name %>: <% $script.uri %>", "sh code: git://code", false),
        ("login '<% $secrets.token %>'", "login 's3cret'", true),
        ("echo '{{ x }}' $HOME %> <", "echo '{{ x }}' $HOME %> <", false),
    ] {
        let scripts = render::scripts(&with_commands(json!([command]))).expect(command);
        assert_eq!(scripts[0].text, format!("set -e\n{becomes}\n"));
        assert_eq!(scripts[0].has_secrets, hidden, "{command}");
    }
}

#[test]
fn a_name_that_leads_nowhere_is_refused() {
    for (command, says) in [
        (
            "<% $parameters.rate %>",
            "taskRoles.train.commands[0]: found <% $parameters.rate %>, which leads nowhere; \
            allowed: $parameters.data, $parameters.epochs, $parameters.lr, $parameters.none",
        ),
        ("<% $parameters.data.list[2] %>", "allowed: $parameters.data.list[0], $parameters.data.list[1]"),
        ("<% $parameters.data %>", "found <% $parameters.data %>, which is no single value"),
        ("<% $parameters.none %>", "which is no single value"),
        ("<% $secrets.tokens %>", "allowed: $secrets.token"),
        ("<% $output.uri %>", "in a task role without it; allowed: a task role with the field output"),
        (
            "<% lr %>",
            "found <% lr %>; allowed: names that begin with $parameters, $secrets, $script, $output, $data",
        ),
        ("<% $parameters.lr", "found \"<% $parameters.lr\" without \"%>\""),
    ] {
        let refusal = render::scripts(&with_commands(json!([command]))).expect_err(command);
        let says = says.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(refusal.to_string().contains(&says), "{refusal}");
        assert!(!refusal.to_string().contains("s3cret"));
    }
}

#[test]
fn what_is_put_in_is_not_looked_at_again() {
    let job = protocol(|job| {
        job["parameters"] = json!({"a": "<% $secrets.b %>"});
        job["secrets"] = json!({"b": "hidden"});
        job["taskRoles"]["train"]["commands"] = json!(["<% $parameters.a %>"]);
    });
    assert_eq!(render::scripts(&job).expect("a script")[0].text, "set -e\n<% $secrets.b %>\n");
}

#[test]
fn commands_of_the_chosen_deployment_stand_around() {
    let with = |deployment: Value| {
        let job = protocol(|job| {
            job["deployments"] = json!([
                {"name": "one", "taskRoles": {"train": {"preCommands": ["a"], "postCommands": ["z"]}}},
                {"name": "two", "taskRoles": {"other": {"preCommands": ["b"]}}}]);
            job["defaults"] = json!({"deployment": deployment});
        });
        render::scripts(&job).expect("a script")[0].text.clone()
    };
    assert_eq!(with(json!("one")), "set -e\na\npython main.py\nz\n");
    assert_eq!(with(json!("two")), "set -e\npython main.py\n");
    assert_eq!(with(Value::Null), "set -e\npython main.py\n");
}

#[test]
fn secrets_and_passwords_are_masked() {
    let doc = job(|job| {
        job["secrets"] = json!({"token": "s3cret", "many": ["s3cret", {"deep": "s3cret"}]});
        job["prerequisites"][0]["auth"] = json!({"username": "u", "password": "s3cret", "registryuri": "r"});
    });
    let shown = serde_json::to_string(&render::masked(&doc)).expect("text");
    assert!(!shown.contains("s3cret") && shown.contains("\"username\":\"u\""), "{shown}");
    let doc = job(|job| {
        job["secrets"] = json!({"token": "s3cret"});
        job["prerequisites"][0]["auth"] = json!({"password": "<% $secrets.token %>"});
    });
    let shown = serde_json::to_string(&render::masked(&doc)).expect("text");
    assert!(!shown.contains("s3cret") && shown.contains("<% $secrets.token %>"), "{shown}");
    let logins = render::logins(&Protocol::read(&doc).expect("a job")).expect("logins");
    assert_eq!((logins[0].0.as_str(), logins[0].1.password.as_str()), ("image", "s3cret"));
}

/// The lab: SKUs of one GPU, two cpus, four GiB; the second configuration has both in one virtual cluster.
fn offer(skus: &[&str], cells: &[(&str, i64)]) -> Offer {
    let unit = SkuUnit { gpu: 1, cpu: 2, memory_mb: 4096 };
    Offer {
        sku_types: skus.iter().map(|name| ((*name).to_owned(), unit)).collect(),
        cluster: Some(ClusterOffer {
            leaf_cells: cells.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
            cells: BTreeMap::from([(
                "NODE".to_owned(),
                CellOffer { number: 1, leaf_type: cells.first().map_or("", |c| c.0).to_owned(), leaves: 2 },
            )]),
        }),
        clusters: None,
    }
}

#[test]
fn a_task_takes_as_many_cells_as_its_largest_wish_needs() {
    for (gpu, cpu, memory, cells) in [
        (1, 2, 4096, 1),
        (2, 2, 4096, 2),
        (0, 2, 4096, 1),
        (0, 3, 1, 2),
        (0, 0, 4097, 2),
        (1, 8, 4096, 4),
        (3, 1, 1, 3),
    ] {
        let job = protocol(|job| {
            job["taskRoles"]["train"]["instances"] = json!(1);
            job["taskRoles"]["train"]["resourcePerInstance"] =
                json!({"gpu": gpu, "cpu": cpu, "memoryMB": memory});
        });
        let found = request(&job, "alice", &offer(&["GPU"], &[("GPU", 100)])).expect("a request");
        assert_eq!(found.roles[0].cells, cells, "{gpu} {cpu} {memory}");
    }
}

#[test]
fn without_a_sku_the_smallest_of_the_virtual_cluster_counts_and_of_all_for_opportunistic_jobs() {
    let mut offer = offer(&["BIG", "SMALL"], &[("BIG", 8)]);
    let big = SkuUnit { gpu: 1, cpu: 8, memory_mb: 65536 };
    offer.sku_types.insert("BIG".to_owned(), big);
    let cells = |class: &str, sku: Value| {
        let job = protocol(|job| {
            job["taskRoles"]["train"]["resourcePerInstance"] = json!({"gpu": 1, "cpu": 8, "memoryMB": 8192});
            job["extras"] = json!({"hivedScheduler": {"jobPriorityClass": class, "taskRoles": {"train": {"skuType": sku}}}});
        });
        request(&job, "alice", &offer).expect("a request").roles[0].cells
    };
    assert_eq!(cells("prod", Value::Null), 1);
    assert_eq!(cells("oppo", Value::Null), 4);
    assert_eq!(cells("oppo", json!("BIG")), 1);
    assert_eq!(cells("oppo", json!("SMALL")), 4);
}

/// Name of a group, and pods and cells of its members.
type Group = (String, Vec<(i64, i64)>);

/// The group of the first form, per role.
fn groups(protocol: &Protocol) -> Vec<Option<Group>> {
    let found = request(protocol, "alice", &offer(&["GPU"], &[("GPU", 100)])).expect("a request");
    let spec = |spec: Option<PodSpec>| match spec {
        Some(PodSpec::V1(spec)) => spec,
        other => panic!("{other:?}"),
    };
    let group = |spec: SpecV1| {
        let group = spec.affinity_group?;
        Some((group.name, group.members.iter().map(|m| (m.pod_number, m.leaf_cell_number)).collect()))
    };
    found.roles.into_iter().map(|role| group(spec(role.spec))).collect()
}

fn two_roles(gang: bool, hived: Value) -> Protocol {
    protocol(|job| {
        let mut ps = job["taskRoles"]["train"].clone();
        ps["instances"] = json!(1);
        ps["resourcePerInstance"]["gpu"] = json!(3);
        job["taskRoles"]["worker"] = ps;
        job["extras"] = json!({"gangAllocation": gang, "hivedScheduler": hived});
    })
}

#[test]
fn affinity_groups() {
    let all = Some(("alice~mnist/default".to_owned(), vec![(2, 1), (1, 3)]));
    assert_eq!(groups(&two_roles(true, json!({}))), [all.clone(), all]);
    assert_eq!(groups(&two_roles(false, json!({}))), [None, None], "every task is alone");
    let one = json!({"taskRoles": {"train": {"affinityGroupName": "g"}}});
    let named = Some(("alice~mnist/g".to_owned(), vec![(2, 1)]));
    for gang in [true, false] {
        assert_eq!(groups(&two_roles(gang, one.clone())), [named.clone(), None]);
    }
    let both =
        json!({"taskRoles": {"train": {"affinityGroupName": "g"}, "worker": {"affinityGroupName": "g"}}});
    let named = Some(("alice~mnist/g".to_owned(), vec![(2, 1), (1, 3)]));
    assert_eq!(groups(&two_roles(true, both)), [named.clone(), named]);
}

#[test]
fn the_scheduling_spec_of_both_forms() {
    let text = |hived: Value| {
        let job = two_roles(true, hived);
        let mut offer = offer(&["GPU"], &[("GPU", 100)]);
        offer.sku_types.insert("OTHER".to_owned(), SkuUnit { gpu: 1, cpu: 2, memory_mb: 4096 });
        let found = request(&job, "alice", &offer).expect("a request");
        found.roles[0].spec.as_ref().expect("a spec").text()
    };
    insta::assert_snapshot!(
        text(json!({"jobPriorityClass": "prod", "lazyPreemptionEnable": true,
            "taskRoles": {"train": {"skuType": "GPU", "skuNum": 7}}})),
        @r#"{"virtualCluster":"default","priority":100,"leafCellType":"GPU","leafCellNumber":1,"lazyPreemptionEnable":true,"affinityGroup":{"name":"alice~mnist/default","members":[{"podNumber":2,"leafCellNumber":1},{"podNumber":1,"leafCellNumber":3}]}}"#
    );
    insta::assert_snapshot!(
        text(json!({"taskRoles": {"train": {"withinOne": "NODE", "skuNum": 2}}})),
        @r#"{"version":"v2","virtualCluster":"default","priority":10,"cellNumber":2,"podRootGroup":{"name":"alice~mnist/default","childGroups":[{"name":"alice~mnist/default/train","withinOneCell":"NODE","pod":{"podMinNumber":2,"podMaxNumber":2,"cellsPerPod":{"cellNumber":2},"containsCurrentPod":true}},{"name":"alice~mnist/default/worker","pod":{"podMinNumber":1,"podMaxNumber":1,"cellsPerPod":{"cellNumber":3}}}]}}"#
    );
    insta::assert_snapshot!(
        text(json!({"taskRoleGroups": [{"taskRoles": ["train", "worker"], "withinOne": "NODE"}],
            "taskRoles": {"train": {"resourcePerInstance": {"skuType": "NODE"}}}})),
        @r#"{"version":"v2","virtualCluster":"default","priority":10,"cellType":"NODE","cellNumber":1,"podRootGroup":{"name":"alice~mnist/taskRoleGroups/train_worker","withinOneCell":"NODE","childGroups":[{"name":"alice~mnist/taskRoleGroups/train_worker/train","pod":{"podMinNumber":2,"podMaxNumber":2,"cellsPerPod":{"cellType":"NODE","cellNumber":1},"containsCurrentPod":true}},{"name":"alice~mnist/taskRoleGroups/train_worker/worker","pod":{"podMinNumber":1,"podMaxNumber":1,"cellsPerPod":{"cellNumber":3}}}]}}"#
    );
}

#[test]
fn what_can_never_run_is_refused() {
    let lab_offer = offer(&["GPU"], &[("GPU", 2)]);
    let check = |job: Protocol, offer: &Offer, says: Option<&str>| match (request(&job, "alice", offer), says)
    {
        (Ok(_), None) => {}
        (Err(refusal), Some(says)) => assert!(refusal.to_string().contains(says), "{refusal}"),
        (other, says) => panic!("{says:?}: {other:?}"),
    };
    let four = |gang: bool, class: &str| {
        let mut text: Value = serde_saphyr::from_str(&lab(6)).expect("YAML");
        text["taskRoles"]["train"]["instances"] = json!(4);
        text["extras"]["gangAllocation"] = json!(gang);
        text["extras"]["hivedScheduler"]["jobPriorityClass"] = json!(class);
        Protocol::read(&fleet_pai::Doc::from_json(&text)).expect("a job")
    };
    check(read(&lab(6)).expect("a job"), &lab_offer, None);
    check(
        four(true, "prod"),
        &lab_offer,
        Some(
            "taskRoles: found 4 SKUs that start together; allowed: at most 2 SKUs, \
        all that virtual cluster default has",
        ),
    );
    check(four(false, "prod"), &lab_offer, None);
    check(four(true, "oppo"), &lab_offer, None);
    check(four(true, "prod"), &Offer { cluster: None, ..lab_offer.clone() }, None);
    let with = |hived: Value| two_roles(true, hived);
    let skus = offer(&["GPU", "OTHER"], &[("GPU", 100)]);
    check(
        with(json!({"taskRoles": {"train": {"skuType": "X"}}})),
        &skus,
        Some("found \"X\"; allowed: GPU, OTHER"),
    );
    check(
        with(json!({"taskRoles": {"train": {"skuType": "OTHER"}}})),
        &skus,
        Some("found \"OTHER\"; allowed: in virtual cluster default: GPU"),
    );
    check(
        with(json!({"jobPriorityClass": "oppo", "taskRoles": {"train": {"skuType": "OTHER"}}})),
        &skus,
        None,
    );
    check(
        with(json!({"taskRoles": {"train": {"affinityGroupName": "g", "skuType": "GPU"},
        "worker": {"affinityGroupName": "g"}}})),
        &skus,
        Some("affinity group \"g\" with skuType or pinnedCellId other"),
    );
    check(
        with(json!({"taskRoles": {"train": {"withinOne": "RACK"}}})),
        &skus,
        Some("taskRoles.train.withinOne: found \"RACK\"; allowed: in virtual cluster default: NODE"),
    );
    let mut empty = skus.clone();
    empty.sku_types.insert("GPU".to_owned(), SkuUnit { gpu: 0, cpu: 2, memory_mb: 1 });
    check(
        with(json!({})),
        &empty,
        Some(
            "taskRoles.train.resourcePerInstance.gpu: found 1; allowed: 0: the SKUs of the \
        job have no gpu",
        ),
    );
    let zeros = protocol(|job| {
        job["taskRoles"]["train"]["resourcePerInstance"] = json!({"gpu": 0, "cpu": 0, "memoryMB": 0})
    });
    check(zeros, &skus, Some("found nothing but zeros"));
    let elsewhere = Offer { clusters: Some(vec!["vc1".to_owned()]), ..skus.clone() };
    check(
        with(json!({})),
        &elsewhere,
        Some("defaults.virtualCluster: found \"default\"; allowed: one of vc1"),
    );
    let wide = protocol(|job| job["taskRoles"]["train"]["resourcePerInstance"]["gpu"] = json!(3));
    let wide_alone =
        Protocol { extras: fleet_pai::Extras { gang_allocation: false, ..wide.extras.clone() }, ..wide };
    check(wide_alone, &lab_offer, Some("taskRoles.train: found 3 SKUs per task; allowed: at most 2 SKUs"));
}

#[test]
fn no_cells_known_means_gpus_are_cells() {
    let found = request(&two_roles(true, json!({})), "alice", &Offer::default()).expect("a request");
    assert_eq!(found.roles.iter().map(|role| role.cells).collect::<Vec<_>>(), [1, 3]);
    let idle = protocol(|job| job["taskRoles"]["train"]["resourcePerInstance"]["gpu"] = json!(0));
    assert_eq!(request(&idle, "alice", &Offer::default()).expect("a request").roles[0].spec, None);
}

fn rule(role: &str, instances: i64, min_failed: i64, min_succeeded: i64) -> RoleRule {
    let task_retry = Policy { fancy: false, max: 0 };
    RoleRule { role: role.into(), task: role.into(), instances, min_failed, min_succeeded, task_retry }
}

#[test]
fn completion_of_an_attempt() {
    /// Codes of tasks 0, 1, ... of each role in the order in which they ended.
    fn ended(codes: &[&[i64]]) -> Vec<Vec<Ended>> {
        let one = |(index, code): (usize, &i64)| Ended { index: index as i64, code: *code };
        codes.iter().map(|codes| codes.iter().enumerate().map(one).collect()).collect()
    }
    let short = |found: Option<Completed>| {
        found.map(|found| (found.code, found.trigger.map(|(r, i)| format!("{r}{i}"))))
    };
    let (ps, worker) = (rule("ps", 1, 1, -1), rule("w", 3, 2, 3));
    let both = [ps, worker];
    for (codes, wanted) in [
        (vec![&[][..], &[]], None),
        (vec![&[], &[255]], None),
        (vec![&[], &[0, 0]], None),
        (vec![&[], &[255, 0, 137]], Some((137, Some("w2")))),
        (vec![&[], &[0, 0, 0]], Some((0, Some("w2")))),
        (vec![&[1], &[]], Some((1, Some("ps0")))),
        (vec![&[0], &[0, 255]], None),
        // All are over, and nothing was reached.
        (vec![&[0], &[0, 255, 0]], Some((0, None))),
        // Failures are looked at first.
        (vec![&[-101], &[0, 0, 0]], Some((-101, Some("ps0")))),
    ] {
        let wanted = wanted.map(|(code, trigger)| (code, trigger.map(str::to_owned)));
        assert_eq!(short(judge(&both, &ended(&codes))), wanted, "{codes:?}");
    }
    // -1 disables; the lab's one success ends a job of two tasks.
    assert_eq!(short(judge(&[rule("w", 2, -1, -1)], &ended(&[&[1]]))), None);
    assert_eq!(short(judge(&[rule("w", 2, -1, -1)], &ended(&[&[1, 1]]))), Some((0, None)));
    assert_eq!(short(judge(&[rule("w", 2, 1, 1)], &ended(&[&[0]]))), Some((0, Some("w0".into()))));
}

#[test]
fn retry_policies() {
    let (again, counted) =
        (|delay_s| Decision::Retry { counts: false, delay_s }, Decision::Retry { counts: true, delay_s: 0 });
    let tried = |accountable, resource| Retried { total: accountable + resource, accountable, resource };
    let (fancy, plain) = (|max| Policy { fancy: true, max }, |max| Policy { fancy: false, max });
    for (policy, retried, code, wanted) in [
        // What was asked for is final, whatever the policy.
        (fancy(-2), tried(0, 0), -200, Decision::End),
        (fancy(-2), tried(0, 0), -210, Decision::End),
        (plain(-2), tried(0, 0), -220, Decision::End),
        // Transient: always and uncounted; permanent: never.
        (fancy(0), tried(0, 0), -101, again(0)),
        (fancy(0), tried(9, 0), 137, again(0)),
        (fancy(9), tried(0, 0), -1200, Decision::End),
        (fancy(-1), tried(0, 0), 254, Decision::End),
        (fancy(0), tried(0, 0), 251, again(60)),
        (fancy(0), tried(0, 1), 251, again(120)),
        (fancy(0), tried(0, 50), 251, again(900)),
        // Unknown: the normal rule.
        (fancy(0), tried(0, 0), 255, Decision::End),
        (fancy(2), tried(1, 7), 255, counted),
        (fancy(2), tried(2, 0), 255, Decision::End),
        (fancy(-1), tried(99, 0), 255, counted),
        (fancy(2), tried(0, 0), 0, Decision::End),
        (fancy(-1), tried(0, 0), 0, Decision::End),
        (fancy(-2), tried(5, 0), 0, counted),
        // Without the fancy policy a lost pod counts like any failure.
        (plain(0), tried(0, 0), -101, Decision::End),
        (plain(1), tried(0, 0), -101, counted),
        (plain(1), tried(0, 0), -1200, counted),
    ] {
        assert_eq!(decide(policy, &retried, code), wanted, "{policy:?} {retried:?} {code}");
    }
    let after = Retried::default().after(255, true).after(-101, false).after(251, false);
    assert_eq!((after.total, after.accountable, after.platform(), after.resource), (3, 1, 1, 1));
}

#[test]
fn gang_and_incremental_jobs_retry_at_their_own_level() {
    let rules = |gang: bool| {
        Rules::of(&protocol(|job| {
            job["jobRetryCount"] = json!(3);
            job["taskRoles"]["train"]["taskRetryCount"] = json!(5);
            job["extras"] = json!({"gangAllocation": gang});
        }))
    };
    assert_eq!(rules(true).roles[0].task_retry, Policy { fancy: false, max: 0 });
    assert_eq!(rules(false).roles[0].task_retry, Policy { fancy: true, max: 5 });
    for gang in [true, false] {
        assert_eq!(rules(gang).job_retry, Policy { fancy: true, max: 3 });
    }
}

#[test]
fn states_as_they_are_shown() {
    use SubState::{
        AttemptCompleted, AttemptCreationPending, AttemptCreationRequested, AttemptDeleting,
        AttemptDeletionPending, AttemptDeletionRequested, AttemptPreparing, AttemptRunning, Completed,
    };
    for (state, code, delayed, wanted) in [
        (AttemptCreationPending, None, false, State::Waiting),
        (AttemptCreationRequested, None, false, State::Waiting),
        (AttemptPreparing, None, false, State::Waiting),
        (AttemptRunning, None, false, State::Running),
        (AttemptDeletionPending, Some(-210), false, State::Stopping),
        (AttemptDeletionRequested, Some(-220), false, State::Stopping),
        (AttemptDeleting, Some(-210), false, State::Stopping),
        (AttemptDeleting, Some(255), false, State::Running),
        (AttemptDeleting, Some(0), false, State::Running),
        (AttemptCompleted, Some(255), false, State::Running),
        (AttemptCompleted, Some(251), true, State::Waiting),
        (Completed, Some(0), false, State::Succeeded),
        (Completed, Some(-210), false, State::Stopped),
        (Completed, Some(-220), false, State::Stopped),
        (Completed, Some(-101), false, State::Failed),
        (Completed, Some(255), false, State::Failed),
        (Completed, None, false, State::Failed),
    ] {
        assert_eq!(shown(state, code, delayed), wanted, "{state:?} {code:?}");
    }
}
