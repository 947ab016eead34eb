//! `podgroup list` and `pod list`.

use fleet_cli_ground::{
    age,
    answer::Answer,
    columns,
    connect::Hub,
    listing::{self, List},
    server::Selectors,
};
use serde_json::Value;

use super::{Kind, POD_GROUPS, day, list, listed, name, number, table, text};
use crate::args::{PodCommand, PodGroupCommand, PodGroupListArgs, PodListArgs};

const GROUP_COLUMNS: [columns::Column; 8] = [
    ("Name", 0),
    ("Creation", 15),
    ("Phase", 12),
    ("MinMember", 12),
    ("Running", 10),
    ("Succeeded", 12),
    ("Failed", 10),
    ("Queue", 0),
];
const POD_COLUMNS: [columns::Column; 7] =
    [("Name", 0), ("Ready", 12), ("Status", 12), ("Restart", 12), ("Age", 15), ("Job", 0), ("Node", 0)];

pub async fn groups(hub: &Hub, command: &PodGroupCommand) -> anyhow::Result<Answer> {
    let PodGroupCommand::List(PodGroupListArgs { namespaces, listing, queue }) = command;
    listing::run(listing, async || {
        let mut groups = list(hub, POD_GROUPS, namespaces.one(&hub.namespace)).await?;
        groups.retain(|group| {
            queue.as_deref().is_none_or(|queue| text(&group["spec"]["queue"], "default") == queue)
        });
        group_list(&groups, namespaces.all_namespaces)
    })
    .await
}

fn group_list(groups: &[Value], all_namespaces: bool) -> anyhow::Result<List> {
    table("podgroup.scheduling.volcano.sh/", &GROUP_COLUMNS, all_namespaces, groups, |group| {
        let (spec, status) = (&group["spec"], &group["status"]);
        vec![
            name(group).to_owned(),
            day(group),
            text(&status["phase"], "Pending").to_owned(),
            spec["minMember"].as_i64().unwrap_or(1).to_string(),
            number(&status["running"]),
            number(&status["succeeded"]),
            number(&status["failed"]),
            text(&spec["queue"], "default").to_owned(),
        ]
    })
}

pub async fn pods(hub: &Hub, command: &PodCommand) -> anyhow::Result<Answer> {
    let PodCommand::List(PodListArgs { namespaces, listing, job, queue }) = command;
    let labels = [("volcano.sh/job-name", job), ("volcano.sh/queue-name", queue)]
        .map(|(label, value)| value.as_ref().map_or(label.to_owned(), |value| format!("{label}={value}")));
    let selectors = Selectors { labels: Some(labels.join(",")), ..Selectors::default() };
    let path = match namespaces.one(&hub.namespace) {
        None => "/api/v1/pods".to_owned(),
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods"),
    };
    let kind = Kind { group: "core/v1", plural: "pods", namespaced: true };
    listing::run(listing, async || {
        pod_list(&listed(hub, kind, &path, &selectors).await?, namespaces.all_namespaces)
    })
    .await
}

fn pod_list(pods: &[Value], all_namespaces: bool) -> anyhow::Result<List> {
    table("pod/", &POD_COLUMNS, all_namespaces, pods, |pod| {
        let states = || pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        let ready = states().filter(|state| state["ready"] == true).count();
        let restarts: i64 = states().map(|state| state["restartCount"].as_i64().unwrap_or(0)).sum();
        let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
        vec![
            name(pod).to_owned(),
            format!("{ready}/{containers}"),
            text(&pod["status"]["phase"], "Pending").to_owned(),
            restarts.to_string(),
            age::of(pod, jiff::Timestamp::now()),
            text(&pod["metadata"]["labels"]["volcano.sh/job-name"], "").to_owned(),
            text(&pod["spec"]["nodeName"], "").to_owned(),
        ]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::group_list;

    #[test]
    fn groups_are_listed() {
        let group = json!({"metadata": {"name": "a-1", "creationTimestamp": "2024-05-28T09:18:50Z"},
            "spec": {"minMember": 4, "queue": "team"}, "status": {"phase": "Running", "running": 4}});
        insta::assert_snapshot!(group_list(&[group], false).expect("a list").print(), @r"
        Name   Creation       Phase       MinMember   Running   Succeeded   Failed    Queue
        a-1    2024-05-28     Running     4           4         0           0         team
        ");
    }
}
