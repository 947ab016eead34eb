//! What the definitions of Volcano's kinds refuse, and how they say so.

use fleet_api::crds::{self, Side};
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

fn rules(definition: &str) -> CompiledSchema {
    rules_of(Side::Member, definition)
}

fn rules_of(side: Side, definition: &str) -> CompiledSchema {
    let all = crds::definitions(side);
    let found = all.iter().find(|one| crds::name(one) == definition).expect("the definition");
    compile_schema(&found["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
}

/// `field: message` of each rule that the object breaks.
fn said(rules: &CompiledSchema, spec: Value) -> String {
    let object = json!({"metadata": {"name": "a"}, "spec": spec});
    match Validator::new().validate_compiled(rules, &object, None) {
        Ok(()) => String::new(),
        Err(errors) => {
            let text = |error: kube_cel::ValidationError| format!("{}: {}", error.field_path, error.message);
            errors.into_vec().into_iter().map(text).collect::<Vec<_>>().join("\n")
        }
    }
}

fn task(name: &str, more: Value) -> Value {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let mut task =
        json!({"name": name, "replicas": 2, "template": {"spec": {"containers": [container("c")]}}});
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

fn after(name: &str, names: &[&str]) -> Value {
    task(name, json!({"dependsOn": {"name": names}}))
}

/// On the hub, where users submit them, and in a member.
#[test]
fn jobs_that_could_never_run_as_they_say_are_refused() {
    let rules = [Side::Hub, Side::Member].map(|side| rules_of(side, "jobs.batch.volcano.sh"));
    let tasks = |tasks: &[Value]| json!({"tasks": tasks});
    let with = |more: Value| {
        let mut spec = tasks(&[task("t", json!({}))]);
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let of_task = |more: Value| tasks(&[task("t", more)]);
    let containers = |list: Value| of_task(json!({"template": {"spec": list}}));
    let policies = |list: Value| with(json!({"policies": list}));
    let on = |event: &str| json!({"event": event, "action": "AbortJob"});
    for (spec, wanted) in [
        // Circles of three, of five, and one behind a chain.
        (
            tasks(&[after("a", &["b"]), after("b", &["c"]), after("c", &["a"])]),
            "spec.tasks: found tasks [\"a\", \"b\", \"c\"] that depend on each other, or on such a task; allowed: dependsOn \
             without a cycle",
        ),
        (
            tasks(&[
                task("z", json!({})),
                after("y", &["z"]),
                after("a", &["b", "y"]),
                after("b", &["c"]),
                after("c", &["d"]),
                after("d", &["e"]),
                after("e", &["a"]),
            ]),
            "spec.tasks: found tasks [\"a\", \"b\", \"c\", \"d\", \"e\"] that depend on each other",
        ),
        (tasks(&[after("a", &["a"])]), "spec.tasks: found tasks [\"a\"] that depend on each other"),
        (
            tasks(&[after("a", &["b", "x"]), task("b", json!({}))]),
            "found dependsOn naming [[\"x\"]]; allowed: names of tasks",
        ),
        (
            of_task(json!({"dependsOn": {"name": [], "iteration": "some"}})),
            "found iteration some; allowed: any, all",
        ),
        (
            containers(json!({"containers": [{"name": "c"}, {"name": "c"}]})),
            "spec.tasks[0].template.spec.containers: found the name c twice; allowed: names that differ",
        ),
        (
            containers(
                json!({"initContainers": [{"name": "c"}, {"name": "c"}], "containers": [{"name": "d"}]}),
            ),
            "initContainers: found the name c twice",
        ),
        (
            containers(json!({"initContainers": [{"name": "c"}], "containers": [{"name": "c"}]})),
            "found a container and an init container named c",
        ),
        (containers(json!({"containers": []})), "found no containers; allowed: at least one"),
        (
            containers(json!({"containers": [{"name": "c"}], "volumes": [{"name": "v"}, {"name": "v"}]})),
            "volumes: found the name v twice",
        ),
        (
            with(json!({"plugins": {"mpi": []}})),
            "found the plugin mpi with tasks [\"t\"] and no master among them; allowed: a task named master, or as --master= says",
        ),
        (with(json!({"plugins": {"mpi": ["--master=lead --port=22"]}})), "no master among them"),
        (
            policies(json!([on("PodFailed"), on("PodFailed")])),
            "spec.policies: found the event PodFailed twice; allowed: each event once in a list of policies",
        ),
        (
            policies(
                json!([on("PodFailed"), {"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}]),
            ),
            "found the event PodFailed twice",
        ),
        (
            policies(json!([{"events": ["PodEvicted", "PodEvicted"], "action": "RestartJob"}])),
            "found the event PodEvicted twice",
        ),
        (
            policies(json!([{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 3, "action": "RestartJob"}])),
            "found the exitCode 3 twice",
        ),
        (
            policies(json!([on("*"), on("PodFailed")])),
            "found the event * beside [[\"PodFailed\"]]; allowed: * alone",
        ),
        (
            of_task(json!({"policies": [on("*"), on("PodFailed")]})),
            "spec.tasks[0].policies: found the event *",
        ),
        (
            of_task(json!({"policies": [on("TaskFailed"), on("TaskFailed")]})),
            "spec.tasks[0].policies: found the event TaskFailed twice",
        ),
        (policies(json!([{"event": "PodFailed"}])), "spec.policies[0]: found no action"),
        (
            policies(json!([{"exitCode": 0, "action": "AbortJob"}])),
            "spec.policies[0]: found no event, no events, exitCode 0; allowed: exactly one of event, events and exitCode",
        ),
        (
            policies(json!([{"event": "PodFailed", "events": ["PodEvicted"], "action": "AbortJob"}])),
            "found event PodFailed, events [\"PodEvicted\"], no exitCode; allowed: exactly one",
        ),
        (policies(json!([{"action": "AbortJob"}])), "found no event, no events, no exitCode; allowed"),
        (
            policies(json!([{"event": "PodFailed", "exitCode": 3, "action": "AbortJob"}])),
            "found event PodFailed, no events, exitCode 3; allowed",
        ),
        (
            of_task(json!({"policies": [{"events": ["*", "PodFailed"], "action": "AbortJob"}]})),
            "spec.tasks[0].policies[0]: found no event, events [\"*\", \"PodFailed\"]; allowed: * alone, or PodPending",
        ),
        (policies(json!([on("Rain")])), "found event Rain, no events; allowed: * alone, or PodPending"),
        (
            policies(json!([{"event": "PodFailed", "action": "Explode"}])),
            "found action Explode; allowed: AbortJob",
        ),
        (
            policies(json!([{"event": "PodFailed", "action": "AbortJob", "timeout": "soon"}])),
            "found timeout soon; allowed: durations such as 90s",
        ),
        (
            of_task(
                json!({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 1, "minPartitions": 3}}),
            ),
            "found minPartitions 3 of totalPartitions 2; allowed: 0 to totalPartitions",
        ),
        (
            of_task(json!({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 3}})),
            "found 2 partitions of 3 for 2 replicas",
        ),
        (
            with(json!({"ttlSecondsAfterFinished": -1})),
            "spec: found ttlSecondsAfterFinished -1; allowed: 0 or more",
        ),
        (with(json!({"maxRetry": -2})), "spec: found maxRetry -2; allowed: 0 or more"),
        (of_task(json!({"maxRetry": -2})), "spec.tasks[0]: found maxRetry -2; allowed: -1"),
        (of_task(json!({"minAvailable": 3})), "found minAvailable 3 over replicas 2"),
        (tasks(&[json!({"name": "t", "minAvailable": 3})]), "found minAvailable 3 over replicas, which is 1"),
        (with(json!({"minAvailable": 3})), "spec: found minAvailable 3 over the sum 2"),
        (tasks(&[task("t", json!({})), task("t", json!({}))]), "spec.tasks: found two tasks named t"),
        (of_task(json!({"name": "A_b"})), "found name A_b; allowed:"),
        (of_task(json!({"topologyPolicy": "closest"})), "found topologyPolicy closest; allowed: none"),
        (with(json!({"networkTopology": {"mode": "firm"}})), "found mode firm; allowed: hard, soft"),
        (with(json!({"networkTopology": {"highestTierAllowed": -1}})), "found highestTierAllowed -1"),
        (with(json!({"plugins": {"telepathy": []}})), "found plugin [\"telepathy\"]; allowed: env"),
        (
            with(
                json!({"volumes": [{"mountPath": "/a", "volumeClaimName": "x"}, {"mountPath": "/a", "volumeClaimName": "y"}]}),
            ),
            "spec.volumes: found mountPath /a twice",
        ),
        (
            with(json!({"volumes": [{"mountPath": "/a"}]})),
            "spec.volumes[0]: found neither volumeClaimName nor volumeClaim",
        ),
        (with(json!({"volumes": [{"mountPath": "/a:/b", "volumeClaimName": "x"}]})), "found mountPath /a:/b"),
    ] {
        for (side, rules) in ["hub", "member"].into_iter().zip(&rules) {
            let said = said(rules, spec.clone());
            assert!(said.contains(wanted), "{spec:#}\n{side} said: {said}\nwanted: {wanted}");
        }
    }
}

#[test]
fn one_fault_is_told_once() {
    let job = json!({"tasks": [after("a", &["x"]), task("b", json!({}))]});
    let flows = json!({"flows": [{"name": "a", "dependsOn": {"targets": ["x"]}}, {"name": "b"}]});
    let own = json!({"flows": [{"name": "a", "dependsOn": {"targets": ["a"]}}, {"name": "b"}]});
    for (definition, spec) in [
        ("jobs.batch.volcano.sh", job),
        ("jobflows.flow.volcano.sh", flows),
        ("jobflows.flow.volcano.sh", own),
    ] {
        let said = said(&rules(definition), spec);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("naming"), "{said}");
    }
}

#[test]
fn jobs_of_many_shapes_are_taken() {
    let rules = [Side::Hub, Side::Member].map(|side| rules_of(side, "jobs.batch.volcano.sh"));
    let chain: Vec<Value> =
        (0..9)
            .map(|i| {
                if i == 8 {
                    task("t8", json!({}))
                } else {
                    after(&format!("t{i}"), &[&format!("t{}", i + 1)])
                }
            })
            .collect();
    for spec in [
        json!({"tasks": [task("t", json!({}))]}),
        json!({"tasks": [{"replicas": 1}, {"replicas": 2}]}),
        // A chain in the wrong order, and a diamond.
        json!({"tasks": chain}),
        json!({"tasks": [after("d", &["b", "c"]), after("b", &["a"]), after("c", &["a"]), task("a", json!({}))]}),
        json!({"tasks": [task("lead", json!({}))], "plugins": {"mpi": ["--master=lead"], "svc": []}}),
        json!({"tasks": [task("lead", json!({}))], "plugins": {"mpi": ["--port=22 --master", "lead"]}}),
        json!({"tasks": [task("master", json!({}))], "plugins": {"mpi": ["--worker=w"]}}),
        json!({"tasks": [task("t", json!({"policies": [{"event": "*", "action": "RestartJob"}]}))],
            "policies": [{"event": "PodFailed", "action": "RestartJob", "timeout": "1h30m"},
                {"exitCode": 3, "action": "AbortJob"}, {"exitCode": 4, "action": "AbortJob"},
                {"events": ["PodEvicted", "Unknown"], "action": "RestartJob"}]}),
        json!({"tasks": [task("t", json!({}))], "policies": [{"event": "*", "action": "RestartJob"},
            {"exitCode": 3, "action": "AbortJob"}]}),
        json!({"tasks": [task("t", json!({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 1,
            "minPartitions": 2}, "maxRetry": -1}))], "ttlSecondsAfterFinished": 0}),
    ] {
        for (side, rules) in ["hub", "member"].into_iter().zip(&rules) {
            assert_eq!(said(rules, spec.clone()), "", "{side}: {spec:#}");
        }
    }
}

#[test]
fn flows_groups_queues_and_hypernodes_say_what_was_found() {
    let flow = |name: &str, targets: &[&str]| json!({"name": name, "dependsOn": {"targets": targets}});
    let member = |selector: Value| json!({"tier": 1, "members": [{"type": "Node", "selector": selector}]});
    for (definition, spec, wanted) in [
        (
            "jobflows.flow.volcano.sh",
            json!({"flows": [flow("a", &["c"]), flow("b", &["a"]), flow("c", &["b"]), flow("d", &[])]}),
            "spec.flows: found flows [\"a\", \"b\", \"c\"] that depend on each other",
        ),
        (
            "jobflows.flow.volcano.sh",
            json!({"flows": [flow("a", &["x"])]}),
            "found dependsOn.targets naming [[\"x\"]]",
        ),
        ("jobflows.flow.volcano.sh", json!({"flows": []}), "found no flows"),
        ("hypernodes.topology.volcano.sh", json!({"tier": 1, "members": []}), "spec: found no members"),
        ("hypernodes.topology.volcano.sh", json!({"tier": 1}), "spec: found no members"),
        (
            "hypernodes.topology.volcano.sh",
            member(json!({"regexMatch": {"pattern": "node-("}})),
            "spec.members[0].selector.regexMatch",
        ),
        (
            "podgroups.scheduling.volcano.sh",
            json!({"minTaskMember": {"a": -1}}),
            "found [\"a -1\"]; allowed: 0 or more",
        ),
        ("podgroups.scheduling.volcano.sh", json!({"minMember": -1}), "found minMember -1"),
        ("queues.scheduling.volcano.sh", json!({"weight": 0}), "spec: found weight 0; allowed: 1 to 65535"),
        (
            "queues.scheduling.volcano.sh",
            json!({"deserved": {"cpu": "4500m"}, "capability": {"cpu": 4}}),
            "found deserved over capability",
        ),
        ("queues.scheduling.volcano.sh", json!({"dequeueStrategy": "lifo"}), "found dequeueStrategy lifo"),
    ] {
        let said = said(&rules(definition), spec.clone());
        assert!(said.contains(wanted), "{spec:#}\nsaid: {said}\nwanted: {wanted}");
    }
    let taken = member(json!({"regexMatch": {"pattern": "^node-[0-9]+$"}}));
    assert_eq!(said(&rules("hypernodes.topology.volcano.sh"), taken), "");
    let taken = json!({"flows": [flow("a", &[]), flow("c", &["b", "a"]), flow("b", &["a"])]});
    assert_eq!(said(&rules("jobflows.flow.volcano.sh"), taken), "");
}

/// The schema says it, since a rule over every quantity of a map is too expensive for an API server.
#[test]
fn amounts_are_zero_or_more() {
    let all = crds::definitions(Side::Member);
    for (definition, path) in [
        ("podgroups.scheduling.volcano.sh", "/minResources"),
        ("queues.scheduling.volcano.sh", "/capability"),
        ("queues.scheduling.volcano.sh", "/deserved"),
        ("queues.scheduling.volcano.sh", "/guarantee/properties/resource"),
    ] {
        let found = all.iter().find(|one| crds::name(one) == definition).expect("the definition");
        let spec =
            &found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let amount = spec.pointer(&format!("{path}/additionalProperties")).expect("amounts");
        assert_eq!(amount["minimum"], 0, "{definition} {path}: {amount}");
        let pattern = amount["pattern"].as_str().unwrap_or_default();
        assert!(pattern.starts_with("^\\+?(([0-9]+"), "{definition} {path}: {pattern}");
    }
}

#[test]
fn defaults_stand_in_the_definitions() {
    let all = crds::definitions(Side::Member);
    let default = |definition: &str, path: &str| {
        let found = all.iter().find(|one| crds::name(one) == definition).expect("the definition");
        let schema = &found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        schema.pointer(&format!("{path}/default")).cloned().unwrap_or_default()
    };
    for (definition, path, wanted) in [
        ("jobs.batch.volcano.sh", "/properties/queue", json!("default")),
        ("jobs.batch.volcano.sh", "/properties/maxRetry", json!(3)),
        ("jobs.batch.volcano.sh", "/properties/tasks/items/properties/maxRetry", json!(3)),
        ("queues.scheduling.volcano.sh", "/properties/reclaimable", json!(true)),
        ("queues.scheduling.volcano.sh", "/properties/weight", json!(1)),
        ("podgroups.scheduling.volcano.sh", "/properties/queue", json!("default")),
    ] {
        assert_eq!(default(definition, path), wanted, "{definition} {path}");
    }
}
