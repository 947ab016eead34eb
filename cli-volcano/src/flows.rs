//! `jobflow` and `jobtemplate`: `create|list|get|describe|delete`.

use fleet_cli_ground::{
    answer::Answer,
    columns,
    connect::Hub,
    listing::{self, List},
    output,
};
use serde_json::Value;

use super::{Kind, day, get, known, list, manifests, name, namespace, number, object_namespace, table, text};
use crate::args::FlowCommand;

const API_VERSION: &str = "flow.volcano.sh/v1alpha1";

pub async fn flow(hub: &Hub, command: &FlowCommand) -> anyhow::Result<Answer> {
    run(hub, super::FLOWS, "jobflow", command).await
}

pub async fn template(hub: &Hub, command: &FlowCommand) -> anyhow::Result<Answer> {
    run(hub, super::TEMPLATES, "jobtemplate", command).await
}

async fn run(hub: &Hub, kind: Kind, word: &str, command: &FlowCommand) -> anyhow::Result<Answer> {
    match command {
        FlowCommand::Create(args) => {
            let wanted = if word == "jobflow" { "JobFlow" } else { "JobTemplate" };
            let mut answer = Answer::default();
            for mut object in manifests(&args.file, API_VERSION, wanted)? {
                if object_namespace(&object).is_empty() {
                    object["metadata"]["namespace"] = hub.namespace.clone().into();
                }
                let made = match hub.server.create(&kind.list(Some(object_namespace(&object))), &object).await
                {
                    Err(error) if error.is_not_found() => return Err(known(hub, kind, error)),
                    made => made?,
                };
                let line = format!("Created {word} {}/{}\n", object_namespace(&made), name(&made));
                answer.text.push_str(&line);
            }
            Ok(answer)
        }
        FlowCommand::List(args) => {
            let one = args.namespaces.one(&hub.namespace);
            listing::run(&args.listing, async || rows(&list(hub, kind, one).await?, word)).await
        }
        FlowCommand::Get(args) => {
            let found = get(hub, kind, namespace(hub, &args.scope), &args.name).await?;
            Ok(Answer::text(rows(&[found], word)?.print()))
        }
        FlowCommand::Describe(args) => {
            let found = get(hub, kind, namespace(hub, &args.scope), &args.name).await?;
            Ok(Answer::text(output::yaml(&output::tidy(found))?))
        }
        FlowCommand::Delete(args) => {
            hub.server.delete(&kind.object(namespace(hub, &args.scope), &args.name)).await?;
            let namespace = namespace(hub, &args.scope);
            Ok(Answer::text(format!("Deleted {word} {namespace}/{}\n", args.name)))
        }
    }
}

fn rows(found: &[Value], word: &str) -> anyhow::Result<List> {
    let mut columns: Vec<columns::Column> = vec![("Name", 0), ("Namespace", 0)];
    if word == "jobflow" {
        columns.extend([("Phase", 12), ("Pending", 10), ("Running", 10), ("Completed", 12), ("Failed", 10)]);
    }
    columns.push(("Creation", 0));
    let prefix = if word == "jobflow" { "jobflow.flow.volcano.sh/" } else { "jobtemplate.flow.volcano.sh/" };
    // Their column of the namespace is always there, and second.
    table(prefix, &columns, false, found, |object| {
        let status = &object["status"];
        let count = |field: &str| number(&Value::from(status[field].as_array().map_or(0, Vec::len)));
        let mut row = vec![name(object).to_owned(), object_namespace(object).to_owned()];
        if word == "jobflow" {
            row.push(text(&status["state"]["phase"], "Pending").to_owned());
            row.extend(["pendingJobs", "runningJobs", "completedJobs", "failedJobs"].map(count));
        }
        row.push(day(object));
        row
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::rows;

    #[test]
    fn flows_are_listed_with_their_jobs() {
        let flow = json!({"metadata": {"name": "test", "namespace": "default", "creationTimestamp": "2024-05-28T09:18:50Z"},
            "status": {"state": {"phase": "Running"}, "completedJobs": ["test-a"], "runningJobs": ["test-b", "test-c"]}});
        insta::assert_snapshot!(rows(&[flow], "jobflow").expect("a list").print(), @r"
        Name   Namespace   Phase       Pending   Running   Completed   Failed    Creation
        test   default     Running     0         2         1           0         2024-05-28
        ");
    }
}
