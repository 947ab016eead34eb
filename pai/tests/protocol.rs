//! The protocol's schema: defaults, every mistake by its path, and the lab's files as they are.

use fleet_pai::{Class, Code, Completion, Doc, Node, Protocol};
use serde_json::{Value, json};

use crate::common::{JOB, doc, job, lab, protocol, read};

#[test]
fn the_eight_lab_files_are_read_as_they_are() {
    // instances, commands, virtual cluster, class, gang
    let rows = [
        (1, 1, "vc1", Class::Production, true),
        (1, 2, "vc1", Class::Test, true),
        (1, 2, "vc1", Class::Production, true),
        (1, 2, "vc1", Class::Production, true),
        (1, 2, "vc1", Class::Opportunistic, true),
        (1, 2, "default", Class::Production, true),
        (2, 1, "default", Class::Production, true),
        (2, 1, "default", Class::Production, false),
    ];
    for (number, (instances, commands, cluster, class, gang)) in rows.into_iter().enumerate() {
        let job = read(&lab(number)).unwrap_or_else(|refusal| panic!("{number}: {refusal}"));
        let [role] = job.task_roles.as_slice() else { panic!("{number}: one role") };
        assert_eq!(job.name, format!("job-config-{number}"));
        assert_eq!((role.name.as_str(), role.instances, role.commands.len()), ("train", instances, commands));
        assert_eq!(role.completion, Completion { min_failed: 1, min_succeeded: 1 });
        assert_eq!((role.resources.cpu, role.resources.memory_mb, role.resources.gpu), (2, 4096, 1));
        assert_eq!((job.virtual_cluster.as_str(), job.extras.hived.class), (cluster, class));
        assert_eq!((job.extras.gang_allocation, job.job_retry_count, role.task_retry_count), (gang, 0, 0));
        assert!(role.commands[0].contains("--epochs 1 --lr 0.01 --batch-size 64"));
        assert!(job.notices.is_empty());
    }
}

#[test]
fn what_is_absent_has_its_default() {
    let job = protocol(|job| {
        job["taskRoles"]["train"].as_object_mut().map(|role| role.remove("instances"));
    });
    let role = &job.task_roles[0];
    assert_eq!((role.instances, role.shm_mb, role.infiniband, role.task_retry_count), (1, 512, false, 0));
    assert_eq!(role.completion, Completion { min_failed: 1, min_succeeded: 1 });
    assert_eq!(role.resources.ports, [("ssh".to_owned(), 1), ("http".to_owned(), 1)]);
    assert_eq!((job.job_retry_count, job.virtual_cluster.as_str()), (0, "default"));
    assert!(job.extras.gang_allocation);
    assert_eq!(job.extras.hived.class, Class::Test, "test when it is absent");
    assert_eq!((job.extras.hived.class.priority(), job.extras.hived.is_v2), (10, false));
}

#[test]
fn completion_null_zero_and_absent_are_the_defaults() {
    let instances = 4;
    for (completion, min_failed, min_succeeded) in [
        (json!({}), 1, instances),
        (json!({"minFailedInstances": null, "minSucceededInstances": null}), 1, instances),
        (json!({"minFailedInstances": 0, "minSucceededInstances": 0}), 1, instances),
        (json!({"minFailedInstances": -1, "minSucceededInstances": -1}), -1, -1),
        (json!({"minFailedInstances": 3, "minSucceededInstances": 2}), 3, 2),
    ] {
        let job = protocol(|job| {
            job["taskRoles"]["train"]["instances"] = instances.into();
            job["taskRoles"]["train"]["completion"] = completion.clone();
        });
        assert_eq!(job.task_roles[0].completion, Completion { min_failed, min_succeeded }, "{completion}");
    }
}

#[test]
fn classes_and_their_priorities() {
    for (class, priority, shown) in [
        (json!("oppo"), -1, "oppo"),
        (json!("test"), 10, "test"),
        (json!("prod"), 100, "prod"),
        (json!(-1), -1, "oppo"),
        (json!(0), 0, "0"),
        (json!(100), 100, "prod"),
        (json!(1000), 1000, "1000"),
    ] {
        let job = protocol(|job| job["extras"] = json!({"hivedScheduler": {"jobPriorityClass": class}}));
        let read = job.extras.hived.class;
        assert_eq!((read.priority(), read.to_string().as_str()), (priority, shown));
        assert_eq!(read.is_opportunistic(), priority < 0);
    }
}

/// Sets what a JSON pointer leads to, and makes what is missing on the way.
fn set(value: &mut Value, pointer: &str, to: Value) {
    let mut at = value;
    for step in pointer.split('/').skip(1) {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    *at = to;
}

#[test]
fn each_mistake_is_named_with_its_path() {
    let role = |field: &str| format!("/taskRoles/train/{field}");
    let rows: Vec<(String, Value, &str)> = vec![
        ("/protocolVersion".into(), json!(1), "protocolVersion: found 1; allowed: 2"),
        ("/protocolVersion".into(), json!("3"), "protocolVersion: found \"3\"; allowed: 2"),
        ("/name".into(), json!("a b"), "name: found \"a b\"; allowed: a name of 1 to 255 letters"),
        ("/name".into(), json!("x".repeat(256)), "name: found \"xxx"),
        ("/name".into(), json!(7), "name: found 7;"),
        ("/type".into(), json!("task"), "type: found \"task\"; allowed: \"job\""),
        ("/jobRetries".into(), json!(1), "jobRetries: found an unknown field; allowed: only protocolVersion"),
        ("/jobRetryCount".into(), json!(-1), "jobRetryCount: found -1; allowed: a whole number from 0"),
        ("/jobRetryCount".into(), json!(1.5), "jobRetryCount: found 1.5;"),
        ("/parameters".into(), json!([1]), "parameters: found a list of 1; allowed: a map"),
        ("/secrets".into(), json!("x"), "secrets: found \"x\"; allowed: a map"),
        (
            "/taskRoles".into(),
            json!({}),
            "taskRoles: found an empty map; allowed: a map of one task role or more",
        ),
        ("/taskRoles".into(), json!([]), "taskRoles: found a list of 0"),
        (
            "/taskRoles/a-b".into(),
            json!({}),
            "taskRoles.a-b: found the name \"a-b\"; allowed: a name of letters",
        ),
        (role("instances"), json!(0), "taskRoles.train.instances: found 0; allowed: a whole number from 1"),
        (role("instances"), json!("2"), "taskRoles.train.instances: found \"2\""),
        (role("taskRetryCount"), json!(-3), "taskRoles.train.taskRetryCount: found -3"),
        (
            role("dockerImage"),
            json!("other"),
            "taskRoles.train.dockerImage: found \"other\"; allowed: the name of a \
            prerequisite of type dockerimage: image",
        ),
        (
            role("data"),
            json!("d"),
            "taskRoles.train.data: found \"d\"; allowed: the name of a prerequisite of type \
            data; there is none",
        ),
        (role("script"), json!("image"), "taskRoles.train.script: found \"image\""),
        (role("prerequisites"), json!(["nope"]), "taskRoles.train.prerequisites[0]: found \"nope\""),
        (
            role("completion"),
            json!({"minFailed": 1}),
            "taskRoles.train.completion.minFailed: found an unknown field",
        ),
        (role("completion"), json!({"minFailedInstances": -2}), "completion.minFailedInstances: found -2"),
        (
            role("commands"),
            json!([]),
            "taskRoles.train.commands: found a list of 0; allowed: a list of one command",
        ),
        (role("commands"), json!([1]), "taskRoles.train.commands[0]: found 1; allowed: a text"),
        (
            role("resourcePerInstance"),
            json!({"cpu": 1, "gpu": 1}),
            "taskRoles.train.resourcePerInstance.memoryMB: found nothing; allowed: a whole number of 0 or more",
        ),
        (role("resourcePerInstance/cpu"), json!(-1), "resourcePerInstance.cpu: found -1"),
        (role("resourcePerInstance/disk"), json!(1), "resourcePerInstance.disk: found an unknown field"),
        (role("resourcePerInstance/ports"), json!({}), "resourcePerInstance.ports: found an empty map"),
        (role("resourcePerInstance/ports"), json!({"a b": 1}), "ports.a b: found the label \"a b\""),
        (role("resourcePerInstance/ports"), json!({"a": 0}), "resourcePerInstance.ports.a: found 0"),
        (
            role("extraContainerOptions"),
            json!({"shm": 1}),
            "extraContainerOptions.shm: found an unknown field",
        ),
        (
            role("extraContainerOptions"),
            json!({"infiniband": "yes"}),
            "infiniband: found \"yes\"; allowed: true or",
        ),
        (role("retry"), json!(1), "taskRoles.train.retry: found an unknown field"),
        ("/prerequisites".into(), json!([]), "prerequisites: found a list of 0"),
        (
            "/prerequisites/0/type".into(),
            json!("image"),
            "prerequisites[0].type: found \"image\"; allowed: \"script\"",
        ),
        (
            "/prerequisites/0/uri".into(),
            json!(["a"]),
            "prerequisites[0].uri: found a list of 1; allowed: a text",
        ),
        ("/prerequisites/0/uri".into(), Value::Null, "prerequisites[0].uri: found nothing"),
        ("/prerequisites/0/uris".into(), json!("a"), "prerequisites[0].uris: found an unknown field"),
        ("/prerequisites/0/require".into(), json!(["x"]), "prerequisites[0].require[0]: found \"x\""),
        (
            "/prerequisites/0/auth".into(),
            json!({"user": "a"}),
            "prerequisites[0].auth.user: found an unknown field",
        ),
        (
            "/deployments".into(),
            json!([{"name": "d", "taskRoles": {"train": {"commands": ["x"]}}}]),
            "deployments[0].taskRoles.train.commands: found an unknown field; allowed: only preCommands, postCommands",
        ),
        (
            "/deployments".into(),
            json!([{"name": "d", "taskRoles": {}}, {"name": "d", "taskRoles": {}}]),
            "deployments[1].name: found \"d\" twice",
        ),
        ("/defaults".into(), json!({"deployment": "d"}), "defaults.deployment: found \"d\"; allowed: none"),
        ("/defaults".into(), json!({"vc": "d"}), "defaults.vc: found an unknown field"),
        ("/defaults".into(), json!({"virtualCluster": "a b"}), "defaults.virtualCluster: found \"a b\""),
        (
            "/extras".into(),
            json!({"gangAllocation": "no"}),
            "extras.gangAllocation: found \"no\"; allowed: true or",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"jobPriorityClass": "crit"}}),
            "extras.hivedScheduler.jobPriorityClass: found \"crit\"; allowed: \"oppo\" (-1)",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"jobPriorityClass": 1001}}),
            "jobPriorityClass: found 1001",
        ),
        ("/extras".into(), json!({"hivedScheduler": {"jobPriorityClass": -2}}), "jobPriorityClass: found -2"),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"taskRoles": {"other": {"skuType": "A"}}}}),
            "extras.hivedScheduler.taskRoles.other: found no such task role; allowed: a task role of the job: train",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"taskRoles": {"train": {"skuType": "A", "pinnedCellId": "B"}}}}),
            "extras.hivedScheduler.taskRoles.train: found both skuType and pinnedCellId; allowed: one of them",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"taskRoles": {"train": {"sku": "A"}}}}),
            "extras.hivedScheduler.taskRoles.train.sku: found an unknown field",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"jobPriorityClass": "oppo",
            "taskRoles": {"train": {"pinnedCellId": "B"}}}}),
            "found pinnedCellId in an opportunistic job",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"taskRoles": {}}}),
            "hivedScheduler.taskRoles: found an empty map",
        ),
        (
            "/extras".into(),
            json!({"hivedScheduler": {"taskRoleGroups": [{"taskRoles": ["train"]}]}}),
            "extras.hivedScheduler.taskRoleGroups[0].taskRoles: found 1 task role; allowed: two or more",
        ),
    ];
    for (pointer, value, says) in rows {
        let refusal = Protocol::read(&job(|job| set(job, &pointer, value.clone()))).expect_err(&pointer);
        let said = refusal.to_string();
        let says = says.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&says), "{pointer} {value}\nsays   {said}\nwanted {says}");
        assert_eq!(
            (refusal.code, refusal.code.as_str(), refusal.code.status()),
            (Code::InvalidProtocol, "InvalidProtocolError", 400)
        );
    }
}

#[test]
fn what_is_required_is_missed() {
    for field in ["protocolVersion", "name", "type", "taskRoles"] {
        let refusal = Protocol::read(&job(|job| {
            job.as_object_mut().map(|job| job.remove(field));
        }));
        let said = refusal.expect_err(field).to_string();
        assert!(said.starts_with(&format!("{field}: found nothing; allowed: ")), "{said}");
    }
    for field in ["dockerImage", "resourcePerInstance", "commands"] {
        let refusal = Protocol::read(&job(|job| {
            job["taskRoles"]["train"].as_object_mut().map(|role| role.remove(field));
        }));
        let said = refusal.expect_err(field).to_string();
        assert!(said.contains(&format!("taskRoles.train.{field}: found nothing")), "{said}");
    }
    for text in ["[]", "a", "null", "{}"] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let refusal = Protocol::read(&job(|job| {
        job["name"] = json!("a b");
        job["taskRoles"]["train"]["instances"] = json!(0);
        job["extra"] = json!(1);
    }));
    assert_eq!(refusal.expect_err("wrong").problems.len(), 3);
}

#[test]
fn one_name_may_stand_in_two_types_and_not_twice_in_one() {
    let twice = |kind: &str, uri: Value| {
        Protocol::read(&job(|job| {
            let list = job["prerequisites"].as_array_mut().expect("a list");
            list.push(json!({"name": "image", "type": kind, "uri": uri}));
        }))
    };
    assert!(twice("script", json!("a")).is_ok());
    assert!(twice("data", json!(["a", "b"])).is_ok());
    let said = twice("dockerimage", json!("a")).expect_err("twice").to_string();
    assert_eq!(
        said,
        "prerequisites[1].name: found \"image\" of type dockerimage twice; allowed: each name once within its type"
    );
}

#[test]
fn what_is_not_done_is_said() {
    let job = protocol(|job| {
        let list = job["prerequisites"].as_array_mut().expect("a list");
        list.push(json!({"name": "nni", "type": "script", "plugin": "com.example.cmd", "callbacks": [{"event": "x"}]}));
        job["extras"] = json!({"storages": ["a"], "submitFrom": "a page", "mine": {"a": 1}});
    });
    assert_eq!(
        job.notices,
        [
            "prerequisites[1]: prerequisite nni is not prepared by plugin com.example.cmd",
            "extras.storages: no storage is mounted; commands see what the image holds",
        ]
    );
}

#[test]
fn lines_and_the_order_of_the_file_are_kept() {
    let mut doc = doc(JOB);
    let Node::Map(entries) = &mut doc.node else { panic!("a map") };
    let role = entries.iter().find(|(name, _)| name == "taskRoles").and_then(|(_, roles)| roles.get("train"));
    let role = role.cloned().expect("a role");
    for (name, value) in entries.iter_mut() {
        if name == "taskRoles" {
            *value = Doc {
                line: 7,
                node: Node::Map(vec![("z".into(), role.clone()), ("a".into(), role.clone())]),
            };
        }
        if name == "name" {
            *value = Doc { line: 3, node: Node::Text("a b".into()) };
        }
    }
    let said = Protocol::read(&doc).expect_err("a wrong name").to_string();
    assert!(said.starts_with("line 3: name: found"), "{said}");
    let Node::Map(entries) = &mut doc.node else { panic!("a map") };
    entries
        .iter_mut()
        .filter(|(name, _)| name == "name")
        .for_each(|(_, value)| value.node = Node::Text("a".into()));
    let job = Protocol::read(&doc).expect("a job");
    assert_eq!(job.task_roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
    let text = serde_json::to_string(&doc).expect("text");
    assert!(text.contains("\"taskRoles\":{\"z\":") && text.find("\"z\":") < text.find("\"a\":"));
}

#[test]
fn of_many_mistakes_a_hundred_are_told() {
    let many = |to: usize| (0..to).map(|i| (format!("r{i}"), json!({"skuType": "a", "pinnedCellId": "b"})));
    for mistakes in [5, 20_000] {
        let job = job(|job| {
            job["extras"] = json!({"hivedScheduler": {"taskRoles": Value::from_iter(many(mistakes))}});
            let names: Vec<String> = (0..mistakes).map(|i| format!("p{i}")).collect();
            job["taskRoles"]["train"]["prerequisites"] = json!(names);
        });
        let refusal = Protocol::read(&job).expect_err("mistakes");
        let told = refusal.problems.len();
        // A prerequisite is one mistake, a role of the extras two.
        assert!((mistakes.min(100)..=(3 * mistakes).min(102)).contains(&told), "{told} of {mistakes}");
        assert!(refusal.to_string().len() < 500_000, "{}", refusal.to_string().len());
    }
}

#[test]
fn a_role_has_a_thousand_ports_at_most() {
    let with = |labels: usize| {
        let ports: Value = (0..labels).map(|i| (format!("p{i}"), json!(1))).collect();
        job(|job| job["taskRoles"]["train"]["resourcePerInstance"]["ports"] = ports.clone())
    };
    let most = Protocol::read(&with(1_000)).expect("a thousand");
    assert_eq!(most.task_roles[0].resources.ports.len(), 1_000 + 2, "with ssh and http");
    let more = Protocol::read(&with(1_001)).expect_err("one more").to_string();
    assert!(more.contains("found 1001 ports; allowed: at most 1000 of all labels together"), "{more}");
}
