//! `job run|list|view|suspend|resume|delete`.

use fleet_cli_ground::{
    age,
    answer::Answer,
    columns,
    connect::Hub,
    listing::{self, List},
    output,
    server::Selectors,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    COMMANDS, JOBS, day, get, known, list, manifests, name, namespace, number, object_namespace, table, text,
};
use crate::args::{JobCommand, ListArgs, NamedArgs, RunArgs};

const API_VERSION: &str = "batch.volcano.sh/v1alpha1";
/// Its only task, when the job is not read from a file.
const TASK: &str = "task";

pub async fn run(hub: &Hub, command: &JobCommand) -> anyhow::Result<Answer> {
    match command {
        JobCommand::Run(args) => create(hub, args).await,
        JobCommand::List(args) => list_jobs(hub, args).await,
        JobCommand::View(args) => view(hub, args).await,
        JobCommand::Suspend(args) => tell(hub, args, "AbortJob", "suspend").await,
        JobCommand::Resume(args) => tell(hub, args, "ResumeJob", "resume").await,
        JobCommand::Delete(args) => {
            let namespace = namespace(hub, &args.scope);
            let path = format!("{}?propagationPolicy=Foreground", JOBS.object(namespace, &args.name));
            hub.server.delete(&path).await?;
            Ok(Answer::text(format!("delete job {} successfully\n", args.name)))
        }
    }
}

async fn create(hub: &Hub, args: &RunArgs) -> anyhow::Result<Answer> {
    let jobs = match &args.filename {
        Some(file) => manifests(file, API_VERSION, "Job")?,
        None => vec![simple(args)],
    };
    let mut answer = Answer::default();
    for mut job in jobs {
        if object_namespace(&job).is_empty() || args.scope.namespace.is_some() {
            job["metadata"]["namespace"] = namespace(hub, &args.scope).into();
        }
        let made = hub.server.create(&JOBS.list(Some(object_namespace(&job))), &job).await;
        let made = match made {
            Err(error) if error.is_not_found() => return Err(known(hub, JOBS, error)),
            made => made?,
        };
        answer.text.push_str(&format!("run job {} successfully\n", name(&made)));
    }
    Ok(answer)
}

/// One task of equal pods.
fn simple(args: &RunArgs) -> Value {
    let name = args.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": args.min,
            "schedulerName": args.scheduler,
            "tasks": [{
                "name": TASK,
                "replicas": args.replicas,
                "template": {
                    "metadata": {"labels": {"volcano.sh/job-name": name}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": name,
                            "image": args.image,
                            "imagePullPolicy": "IfNotPresent",
                            "resources": {"requests": args.requests.0, "limits": args.limits.0},
                        }],
                    },
                },
            }],
        },
    })
}

async fn list_jobs(hub: &Hub, args: &ListArgs) -> anyhow::Result<Answer> {
    let wanted = |job: &Value| {
        let spec = &job["spec"];
        args.scheduler.as_deref().is_none_or(|scheduler| text(&spec["schedulerName"], "volcano") == scheduler)
            && args.queue.as_deref().is_none_or(|queue| text(&spec["queue"], "default") == queue)
    };
    listing::run(&args.listing, async || {
        let mut jobs = list(hub, JOBS, args.namespaces.one(&hub.namespace)).await?;
        jobs.retain(wanted);
        rows(&jobs, args.namespaces.all_namespaces)
    })
    .await
}

fn rows(jobs: &[Value], all_namespaces: bool) -> anyhow::Result<List> {
    let columns = [
        ("Name", 0),
        ("Creation", 15),
        ("Phase", 12),
        ("JobType", 12),
        ("Replicas", 12),
        ("Min", 6),
        ("Pending", 10),
        ("Running", 10),
        ("Succeeded", 12),
        ("Failed", 10),
        ("Unknown", 12),
        ("RetryCount", 10),
    ];
    table("job.batch.volcano.sh/", &columns, all_namespaces, jobs, |job| {
        let (spec, status) = (&job["spec"], &job["status"]);
        let tasks = spec["tasks"].as_array().into_iter().flatten();
        let replicas: i64 = tasks.map(|task| task["replicas"].as_i64().unwrap_or(1)).sum();
        let min = spec["minAvailable"].as_i64().or(status["minAvailable"].as_i64()).unwrap_or(replicas);
        vec![
            name(job).to_owned(),
            day(job),
            text(&status["state"]["phase"], "").to_owned(),
            text(&job["metadata"]["labels"]["volcano.sh/job-type"], "Batch").to_owned(),
            replicas.to_string(),
            min.to_string(),
            number(&status["pending"]),
            number(&status["running"]),
            number(&status["succeeded"]),
            number(&status["failed"]),
            number(&status["unknown"]),
            number(&status["retryCount"]),
        ]
    })
}

async fn view(hub: &Hub, args: &NamedArgs) -> anyhow::Result<Answer> {
    let namespace = namespace(hub, &args.scope);
    let job = get(hub, JOBS, namespace, &args.name).await?;
    let selectors = Selectors {
        fields: Some(format!("involvedObject.kind=Job,involvedObject.name={}", args.name)),
        ..Selectors::default()
    };
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let events = hub.server.list(&path, &selectors, "application/json").await?;
    let events = events["items"].as_array().cloned().unwrap_or_default();
    Ok(Answer::text(description(&job, &events, Timestamp::now())?))
}

fn description(job: &Value, events: &[Value], now: Timestamp) -> anyhow::Result<String> {
    let mut page = String::new();
    let pairs = |map: &Value| -> Vec<String> {
        map.as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", text(value, "")))
            .collect()
    };
    put(&mut page, "Name:", name(job));
    put(&mut page, "Namespace:", object_namespace(job));
    for (label, field) in [("Labels:", "labels"), ("Annotations:", "annotations")] {
        let pairs = pairs(&job["metadata"][field]);
        put(&mut page, label, pairs.first().map_or("<none>", String::as_str));
        pairs.iter().skip(1).for_each(|pair| put(&mut page, "", pair));
    }
    page.push_str("Spec:\n");
    page.push_str(&indented(&output::yaml(&job["spec"])?));
    page.push_str("Status:\n");
    page.push_str(&indented(&output::yaml(&job["status"])?));
    if events.is_empty() {
        put(&mut page, "Events:", "<none>");
        return Ok(page);
    }
    page.push_str("Events:\n");
    let columns = [("  Type", 10), ("Reason", 0), ("Age", 8), ("From", 0), ("Message", 0)];
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|event| {
            vec![
                format!("  {}", text(&event["type"], "Normal")),
                text(&event["reason"], "").to_owned(),
                age::since(event["lastTimestamp"].as_str(), now),
                text(&event["source"]["component"], text(&event["reportingComponent"], "")).to_owned(),
                text(&event["message"], "").to_owned(),
            ]
        })
        .collect();
    page.push_str(&columns::print(&columns, &rows));
    Ok(page)
}

fn put(page: &mut String, label: &str, value: &str) {
    page.push_str(&format!("{label:<17}{value}\n"));
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// A Command for the job; its controller carries it out.
async fn tell(hub: &Hub, args: &NamedArgs, action: &str, word: &str) -> anyhow::Result<Answer> {
    let namespace = namespace(hub, &args.scope);
    let job = get(hub, JOBS, namespace, &args.name).await?;
    let command = super::queues::command(&job, API_VERSION, "Job", namespace, action);
    match hub.server.create(&COMMANDS.list(Some(namespace)), &command).await {
        Err(error) if error.is_not_found() => Err(known(hub, COMMANDS, error)),
        made => {
            made.map(|_| Answer::text(format!("{word} job {} successfully\n", args.name))).map_err(Into::into)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, phase: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": "2024-05-28T09:18:50Z",
                "labels": {"volcano.sh/job-type": "MPI"}},
            "spec": {"minAvailable": 4, "tasks": [{"replicas": 1}, {"replicas": 3}]},
            "status": {"state": {"phase": phase}, "running": 3, "succeeded": 1},
        })
    }

    #[test]
    fn jobs_are_listed_in_the_columns_of_volcano() {
        let (one, mut two) = (job("lm-mpi-job", "Running"), job("b", "Pending"));
        two["metadata"]["labels"] = Value::Null;
        let shown = |jobs: &[Value], all: bool| rows(jobs, all).expect("a list").print();
        insta::assert_snapshot!(shown(&[one.clone(), two], false), @r"
        Name         Creation       Phase       JobType     Replicas    Min   Pending   Running   Succeeded   Failed    Unknown     RetryCount
        lm-mpi-job   2024-05-28     Running     MPI         4           4     0         3         1           0         0           0
        b            2024-05-28     Pending     Batch       4           4     0         3         1           0         0           0
        ");
        assert!(shown(&[one], true).starts_with("Namespace   Name         Creation"));
    }

    #[test]
    fn a_job_is_described_with_its_events() {
        let event = json!({"type": "Warning", "reason": "PodGroupPending", "lastTimestamp": "2024-05-28T09:18:53Z",
            "source": {"component": "vc-controller"}, "message": "queue q is full"});
        let now = "2024-05-28T09:19:53Z".parse().expect("a time");
        let page = description(&job("a", "Running"), &[event], now).expect("a page");
        insta::assert_snapshot!(page, @r"
        Name:            a
        Namespace:       team-a
        Labels:          volcano.sh/job-type=MPI
        Annotations:     <none>
        Spec:
          minAvailable: 4
          tasks:
          - replicas: 1
          - replicas: 3
        Status:
          running: 3
          state:
            phase: Running
          succeeded: 1
        Events:
          Type    Reason            Age     From            Message
          Warning PodGroupPending   60s     vc-controller   queue q is full
        ");
    }
}
