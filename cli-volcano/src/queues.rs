//! `queue create|get|list|operate|delete`.

use fleet_cli_ground::{
    answer::Answer,
    connect::Hub,
    listing::{self, List},
};
use serde_json::{Value, json};

use super::{COMMANDS, QUEUES, get, known, list, name, number, table, text};
use crate::args::{QueueAction, QueueCommand, QueueCreateArgs, QueueOperateArgs, State};

const API_VERSION: &str = "scheduling.volcano.sh/v1beta1";
/// Queues have no namespace; their Commands are in this one.
const COMMAND_NAMESPACE: &str = "default";

pub async fn run(hub: &Hub, command: &QueueCommand) -> anyhow::Result<Answer> {
    match command {
        QueueCommand::Create(args) => create(hub, args).await,
        QueueCommand::Get(args) => {
            let queue = get(hub, QUEUES, "", &args.name).await?;
            Ok(Answer::text(rows(&[queue])?.print()))
        }
        QueueCommand::List(how) => listing::run(how, async || rows(&list(hub, QUEUES, None).await?)).await,
        QueueCommand::Operate(args) => operate(hub, args).await,
        QueueCommand::Delete(args) => {
            hub.server.delete(&QUEUES.object("", &args.name)).await?;
            Ok(Answer::text(format!("delete queue {} successfully\n", args.name)))
        }
    }
}

async fn create(hub: &Hub, args: &QueueCreateArgs) -> anyhow::Result<Answer> {
    let queue = json!({
        "apiVersion": API_VERSION,
        "kind": "Queue",
        "metadata": {"name": args.name},
        "spec": {"weight": args.weight, "reclaimable": true},
    });
    let made = match hub.server.create(&QUEUES.list(None), &queue).await {
        Err(error) if error.is_not_found() => return Err(known(hub, QUEUES, error)),
        made => made?,
    };
    if args.state == State::Closed {
        send(hub, &made, "CloseQueue").await?;
    }
    Ok(Answer::text(format!("create queue {} successfully\n", args.name)))
}

async fn operate(hub: &Hub, args: &QueueOperateArgs) -> anyhow::Result<Answer> {
    let queue = get(hub, QUEUES, "", &args.name).await?;
    let word = match args.action {
        QueueAction::Open => {
            send(hub, &queue, "OpenQueue").await?;
            "open"
        }
        QueueAction::Close if args.name == "root" => {
            anyhow::bail!("queue root cannot be closed; allowed: the queues below it")
        }
        QueueAction::Close => {
            send(hub, &queue, "CloseQueue").await?;
            "close"
        }
        QueueAction::Update => {
            let patch = json!({"spec": {"weight": args.weight}});
            hub.server.merge(&QUEUES.object("", &args.name), &patch).await?;
            "update"
        }
    };
    Ok(Answer::text(format!("{word} queue {} successfully\n", args.name)))
}

async fn send(hub: &Hub, queue: &Value, action: &str) -> anyhow::Result<()> {
    let command = command(queue, API_VERSION, "Queue", COMMAND_NAMESPACE, action);
    match hub.server.create(&COMMANDS.list(Some(COMMAND_NAMESPACE)), &command).await {
        Err(error) if error.is_not_found() => Err(known(hub, COMMANDS, error)),
        made => Ok(made.map(drop)?),
    }
}

/// A request to the controller of the object, which deletes it after it was carried out.
pub(super) fn command(object: &Value, api_version: &str, kind: &str, namespace: &str, action: &str) -> Value {
    let target = json!({
        "apiVersion": api_version, "kind": kind, "name": name(object), "uid": object["metadata"]["uid"],
        "controller": true,
    });
    json!({
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": format!("{}-{}-", name(object), action.to_lowercase()),
            "namespace": namespace,
            "ownerReferences": [target],
        },
        "action": action,
        "target": target,
    })
}

fn rows(queues: &[Value]) -> anyhow::Result<List> {
    let columns = [
        ("Name", 25),
        ("Weight", 8),
        ("State", 8),
        ("Parent", 8),
        ("Inqueue", 8),
        ("Pending", 8),
        ("Running", 8),
        ("Unknown", 8),
        ("Completed", 8),
    ];
    table("queue.scheduling.volcano.sh/", &columns, false, queues, |queue| {
        let (spec, status) = (&queue["spec"], &queue["status"]);
        vec![
            name(queue).to_owned(),
            spec["weight"].as_i64().unwrap_or(1).to_string(),
            text(&status["state"], "Open").to_owned(),
            text(&spec["parent"], if name(queue) == "root" { "" } else { "root" }).to_owned(),
            number(&status["inqueue"]),
            number(&status["pending"]),
            number(&status["running"]),
            number(&status["unknown"]),
            number(&status["completed"]),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_listed_in_the_columns_of_volcano() {
        let queues = [
            json!({"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open", "running": 2}}),
            json!({"metadata": {"name": "research"}, "spec": {"weight": 3, "parent": "eng"}, "status": {"state": "Closing"}}),
        ];
        insta::assert_snapshot!(rows(&queues).expect("a list").print(), @r"
        Name                     Weight  State   Parent  Inqueue Pending Running Unknown Completed
        default                  1       Open    root    0       0       2       0       0
        research                 3       Closing eng     0       0       0       0       0
        ");
    }

    #[test]
    fn a_command_names_its_target_by_uid() {
        let queue = json!({"metadata": {"name": "research", "uid": "u-1"}});
        let command = command(&queue, API_VERSION, "Queue", "default", "CloseQueue");
        assert_eq!(command["metadata"]["generateName"], "research-closequeue-");
        assert_eq!(command["target"]["uid"], "u-1");
        assert_eq!(command["action"], "CloseQueue");
    }
}
