//! The objects a job becomes.

use fleet_pai::{
    Protocol,
    completion::Rules,
    hived::Offer,
    names,
    native::{Native, native, rerun},
};
use serde_json::{Value, json};

use crate::common::{lab, protocol, read, submission};

fn objects(protocol: &Protocol) -> Native {
    native(&submission(protocol), &Offer::default()).expect("objects")
}

fn env(job: &Value, task: usize) -> Vec<(String, String)> {
    let env = &job["spec"]["tasks"][task]["template"]["spec"]["containers"][0]["env"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let value = |e: &Value| match &e["valueFrom"]["fieldRef"]["fieldPath"] {
        Value::Null => text(&e["value"]),
        path => format!("<{}>", text(path)),
    };
    env.as_array().expect("a list").iter().map(|e| (text(&e["name"]), value(e))).collect()
}

#[test]
fn a_lost_task_of_an_incremental_job_does_not_start_the_job_again() {
    for (number, policies) in
        [(6, json!([{"event": "PodEvicted", "action": "RestartJob"}])), (7, Value::Null)]
    {
        assert_eq!(objects(&read(&lab(number)).expect("a job")).job["spec"]["policies"], policies);
    }
}

#[test]
fn a_lab_job_is_a_volcano_job_with_its_marks() {
    let Native { secrets, job, notices } = objects(&read(&lab(6)).expect("a job"));
    assert!(secrets.is_empty() && notices.is_empty());
    assert_eq!((&job["apiVersion"], &job["kind"]), (&json!("batch.volcano.sh/v1alpha1"), &json!("Job")));
    assert_eq!(job["metadata"]["name"], "alice-job-config-6");
    assert_eq!(
        job["metadata"]["labels"],
        json!({"pai.fleet.dev/job": "alice-job-config-6", "pai.fleet.dev/user": "alice", "pai.fleet.dev/run": "1",
            "fleet.dev/virtual-cluster": "default", "fleet.dev/class": "prod"})
    );
    let annotations = &job["metadata"]["annotations"];
    assert_eq!(annotations["pai.fleet.dev/id"], "alice~job-config-6");
    assert_eq!(annotations["pai.fleet.dev/gpus"], "2");
    let spec = &job["spec"];
    assert_eq!(
        (&spec["minAvailable"], &spec["maxRetry"], &spec["minSuccess"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(spec["policies"], json!([{"event": "PodEvicted", "action": "RestartJob"}]));
    let task = &spec["tasks"][0];
    assert_eq!((&task["name"], &task["replicas"]), (&json!("train"), &json!(2)));
    assert_eq!(task["policies"], json!([{"event": "PodFailed", "action": "RestartJob"}]));
    let template = &task["template"];
    assert_eq!(template["metadata"]["labels"]["pai.fleet.dev/task-role"], "train");
    assert_eq!(
        template["metadata"]["annotations"]["hivedscheduler.microsoft.com/pod-scheduling-spec"],
        r#"{"virtualCluster":"default","priority":100,"leafCellNumber":1,"affinityGroup":{"name":"alice~job-config-6/default","members":[{"podNumber":2,"leafCellNumber":1}]}}"#
    );
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["image"], "openpai/pai.example.pytorch");
    assert_eq!(
        container["command"],
        json!([
            "/bin/bash",
            "-c",
            "set -e\npython3 examples/mnist/main.py --epochs 1 --lr 0.01 --batch-size 64\n"
        ])
    );
    let resources = json!({"cpu": "2", "memory": "4096Mi", "nvidia.com/gpu": "1"});
    assert_eq!(container["resources"], json!({"requests": resources, "limits": resources}));
    assert_eq!(template["spec"]["restartPolicy"], "Never");
    // Task by task: one is enough to start.
    let alone = objects(&read(&lab(7)).expect("a job")).job;
    assert_eq!(alone["spec"]["minAvailable"], 1);
    assert_eq!(
        alone["spec"]["tasks"][0]["template"]["metadata"]["annotations"][names::HIVED_ANNOTATION],
        r#"{"virtualCluster":"default","priority":100,"leafCellNumber":1}"#
    );
}

#[test]
fn its_rules_go_with_it() {
    let job = protocol(|job| {
        job["jobRetryCount"] = json!(4);
        job["taskRoles"]["train"]["completion"] = json!({"minFailedInstances": 2});
    });
    let made = objects(&job).job;
    let text = made["metadata"]["annotations"][names::RULES_ANNOTATION].as_str().expect("text");
    assert_eq!(serde_json::from_str::<Rules>(text).expect("rules"), Rules::of(&job));
    assert_eq!(made["spec"]["maxRetry"], 5);
    assert_eq!(
        made["spec"]["tasks"][0]["policies"],
        json!([{"event": "TaskCompleted", "action": "CompleteJob"}])
    );
}

#[test]
fn secrets_stand_in_secrets_alone() {
    let job = protocol(|job| {
        job["secrets"] = json!({"token": "s3cret", "password": "p4ss"});
        job["prerequisites"][0]["auth"] = json!({"username": "u", "password": "<% $secrets.password %>"});
        job["taskRoles"]["train"]["commands"] = json!(["login <% $secrets.token %>", "run"]);
        let mut ps = job["taskRoles"]["train"].clone();
        ps["commands"] = json!(["serve"]);
        job["taskRoles"]["ps"] = ps;
    });
    let Native { secrets, job, .. } = objects(&job);
    let text = job.to_string();
    assert!(!text.contains("s3cret") && !text.contains("p4ss"), "{text}");
    let [scripts, login] = secrets.as_slice() else { panic!("{secrets:?}") };
    assert_eq!(scripts["metadata"]["name"], "alice-mnist-scripts");
    assert_eq!(scripts["stringData"], json!({"train": "set -e\nlogin s3cret\nrun\n"}));
    assert_eq!(login["type"], "kubernetes.io/dockerconfigjson");
    let config: Value =
        serde_json::from_str(login["stringData"][".dockerconfigjson"].as_str().expect("text")).expect("JSON");
    assert_eq!(config["auths"]["https://index.docker.io/v1/"], json!({"username": "u", "password": "p4ss"}));
    let by_name = |name: &str| {
        let tasks = job["spec"]["tasks"].as_array().expect("tasks");
        tasks.iter().find(|task| task["name"] == name).expect("a task")["template"]["spec"].clone()
    };
    let (train, ps) = (by_name("train"), by_name("ps"));
    assert_eq!(train["containers"][0]["command"], json!(["/bin/bash", "/etc/pai/train"]));
    assert_eq!(train["volumes"][1]["secret"]["secretName"], "alice-mnist-scripts");
    assert_eq!(ps["containers"][0]["command"][2], "set -e\nserve\n");
    for spec in [&train, &ps] {
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "alice-mnist-login-image"}]));
    }
}

#[test]
fn tasks_find_what_openpai_promises_in_their_environment() {
    let job = protocol(|job| {
        job["taskRoles"]["train"]["resourcePerInstance"]["ports"] = json!({"tb": 2});
        job["taskRoles"]["train"]["extraContainerOptions"] = json!({"shmMB": 1024, "infiniband": true});
    });
    let made = objects(&job).job;
    let found = env(&made, 0);
    for (name, value) in [
        ("PAI_JOB_NAME", "alice~mnist"),
        ("PAI_USER_NAME", "alice"),
        ("PAI_VIRTUAL_CLUSTER", "default"),
        ("PAI_TASK_ROLE_COUNT", "1"),
        ("PAI_TASK_ROLE_LIST", "train"),
        ("PAI_TASK_ROLE_TASK_COUNT_train", "2"),
        ("PAI_JOB_TASK_COUNT", "2"),
        ("PAI_RESOURCE_train", "1,2,4096,1024"),
        ("PAI_MIN_FAILED_TASK_COUNT_train", "1"),
        ("PAI_MIN_SUCCEEDED_TASK_COUNT_train", "2"),
        ("PAI_CURRENT_TASK_ROLE_NAME", "train"),
        ("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "<metadata.annotations['volcano.sh/task-index']>"),
        ("PAI_TASK_INDEX", "<metadata.annotations['volcano.sh/task-index']>"),
        ("PAI_HOST_IP_train_1", "alice-mnist-train-1.alice-mnist"),
        ("PAI_PORT_LIST_train_0_tb", "20000,20001"),
        ("PAI_PORT_LIST_train_1_ssh", "20002"),
        ("PAI_CONTAINER_SSH_PORT", "20002"),
        ("PAI_CONTAINER_HOST_PORT", "20003"),
    ] {
        assert!(found.contains(&(name.to_owned(), value.to_owned())), "{name}={value} in {found:?}");
    }
    let spec = &made["spec"]["tasks"][0]["template"]["spec"];
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({"medium": "Memory", "sizeLimit": "1024Mi"}));
    assert_eq!(spec["containers"][0]["resources"]["limits"]["rdma/hca"], "1");
    let wide = protocol(|job| job["taskRoles"]["train"]["instances"] = json!(257));
    let made = objects(&wide);
    assert!(made.notices[0].contains("257 tasks"), "{:?}", made.notices);
    assert!(!env(&made.job, 0).iter().any(|(name, _)| name.starts_with("PAI_HOST_IP_")));
}

#[test]
fn names_of_roles_become_names_of_tasks() {
    let job = protocol(|job| {
        let role = job["taskRoles"]["train"].take();
        job["taskRoles"] = json!({"Worker": role, "worker": role, "ps_server": role});
    });
    let made = objects(&job).job;
    let mut names: Vec<&str> =
        made["spec"]["tasks"].as_array().expect("tasks").iter().filter_map(|t| t["name"].as_str()).collect();
    let plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    assert!(names.iter().all(plain), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), 3);
    // Pods are named after job, task and index, within the 63 characters of a host name.
    let long = protocol(|job| job["name"] = json!("x".repeat(255)));
    let made = objects(&long).job;
    let (name, task) = (made["metadata"]["name"].as_str(), made["spec"]["tasks"][0]["name"].as_str());
    assert!(name.zip(task).is_some_and(|(name, task)| name.len() + task.len() + "-r10--99999".len() <= 63));
}

#[test]
fn a_further_run_has_a_name_and_addresses_of_its_own() {
    let job = objects(&protocol(|job| job["secrets"] = json!({}))).job;
    let next = rerun(&job, 2);
    assert_eq!(next["metadata"]["name"], "alice-mnist-r2");
    assert_eq!(next["metadata"]["labels"]["pai.fleet.dev/run"], "2");
    assert_eq!(next["metadata"]["labels"]["pai.fleet.dev/job"], "alice-mnist");
    let third = rerun(&next, 3);
    let found = env(&third, 0);
    let host = ("PAI_HOST_IP_train_1".to_owned(), "alice-mnist-r3-train-1.alice-mnist-r3".to_owned());
    assert!(found.contains(&host), "{found:?}");
    assert_eq!(env(&rerun(&third, 1), 0), env(&job, 0));
}
