//! `podgroup list` and `pod list`.

use serde_json::Value;

use super::{
    EMPTY, Kind, POD_GROUPS, columns, day, list, listed, name, namespace, number, object_namespace, text,
};
use crate::args::volcano::{PodCommand, PodGroupCommand, PodGroupListArgs, PodListArgs};
use crate::{answer::Answer, connect::Hub, server::Selectors};

pub async fn groups(hub: &Hub, command: &PodGroupCommand) -> anyhow::Result<Answer> {
    let PodGroupCommand::List(PodGroupListArgs { scope, all_namespaces, queue }) = command;
    let groups = list(hub, POD_GROUPS, Some(namespace(hub, scope)).filter(|_| !all_namespaces)).await?;
    let of_queue = |group: &&Value| {
        queue.as_deref().is_none_or(|queue| text(&group["spec"]["queue"], "default") == queue)
    };
    let groups: Vec<&Value> = groups.iter().filter(of_queue).collect();
    Ok(Answer::text(if groups.is_empty() { EMPTY.to_owned() } else { group_table(&groups, *all_namespaces) }))
}

fn group_table(groups: &[&Value], with_namespace: bool) -> String {
    let mut columns: Vec<columns::Column> = vec![
        ("Name", 0),
        ("Creation", 15),
        ("Phase", 12),
        ("MinMember", 12),
        ("Running", 10),
        ("Succeeded", 12),
        ("Failed", 10),
        ("Queue", 0),
    ];
    if with_namespace {
        columns.insert(0, ("Namespace", 0));
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            let (spec, status) = (&group["spec"], &group["status"]);
            let mut row = vec![
                name(group).to_owned(),
                day(group),
                text(&status["phase"], "Pending").to_owned(),
                spec["minMember"].as_i64().unwrap_or(1).to_string(),
                number(&status["running"]),
                number(&status["succeeded"]),
                number(&status["failed"]),
                text(&spec["queue"], "default").to_owned(),
            ];
            if with_namespace {
                row.insert(0, object_namespace(group).to_owned());
            }
            row
        })
        .collect();
    columns::print(&columns, &rows)
}

pub async fn pods(hub: &Hub, command: &PodCommand) -> anyhow::Result<Answer> {
    let PodCommand::List(PodListArgs { scope, all_namespaces, job, queue }) = command;
    let path = if *all_namespaces {
        "/api/v1/pods".to_owned()
    } else {
        format!("/api/v1/namespaces/{}/pods", namespace(hub, scope))
    };
    let labels = [("volcano.sh/job-name", job), ("volcano.sh/queue-name", queue)]
        .map(|(label, value)| value.as_ref().map_or(label.to_owned(), |value| format!("{label}={value}")));
    let selectors = Selectors { labels: Some(labels.join(",")), ..Selectors::default() };
    let kind = Kind { group: "core/v1", plural: "pods", namespaced: true };
    let pods = listed(hub, kind, &path, &selectors).await?;
    Ok(Answer::text(if pods.is_empty() { EMPTY.to_owned() } else { pod_table(&pods, *all_namespaces) }))
}

fn pod_table(pods: &[Value], with_namespace: bool) -> String {
    let mut columns: Vec<columns::Column> = vec![
        ("Name", 0),
        ("Ready", 12),
        ("Status", 12),
        ("Restart", 12),
        ("Age", 15),
        ("Job", 0),
        ("Node", 0),
    ];
    if with_namespace {
        columns.insert(0, ("Namespace", 0));
    }
    let rows: Vec<Vec<String>> = pods
        .iter()
        .map(|pod| {
            let states = || pod["status"]["containerStatuses"].as_array().into_iter().flatten();
            let ready = states().filter(|state| state["ready"] == true).count();
            let restarts: i64 = states().map(|state| state["restartCount"].as_i64().unwrap_or(0)).sum();
            let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
            let mut row = vec![
                name(pod).to_owned(),
                format!("{ready}/{containers}"),
                text(&pod["status"]["phase"], "Pending").to_owned(),
                restarts.to_string(),
                crate::age::of(pod, jiff::Timestamp::now()),
                text(&pod["metadata"]["labels"]["volcano.sh/job-name"], "").to_owned(),
                text(&pod["spec"]["nodeName"], "").to_owned(),
            ];
            if with_namespace {
                row.insert(0, object_namespace(pod).to_owned());
            }
            row
        })
        .collect();
    columns::print(&columns, &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::group_table;

    #[test]
    fn groups_are_listed() {
        let group = json!({"metadata": {"name": "a-1", "creationTimestamp": "2024-05-28T09:18:50Z"},
            "spec": {"minMember": 4, "queue": "team"}, "status": {"phase": "Running", "running": 4}});
        insta::assert_snapshot!(group_table(&[&group], false), @r"
        Name   Creation       Phase       MinMember   Running   Succeeded   Failed    Queue
        a-1    2024-05-28     Running     4           4         0           0         team
        ");
    }
}
