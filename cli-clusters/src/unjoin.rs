//! `fleet unjoin`: removes clusters, emptied, dead or hostile.
//!
//! Without `--force` a cluster's agent takes part: all that runs there has left first. With it nobody there is asked: the
//! agent's credential ends, then its lease, then the hub ends the jobs. Every step may be repeated.

use std::time::Duration;

use anyhow::bail;
use fleet_api::{
    cluster::{CORDON_TAINT, GONE_TAINT},
    names::{MEMBER_NAMESPACE, cluster_namespace},
};
use fleet_cli_ground::{
    answer::Answer,
    args::Connect,
    connect::{self, Hub},
    members::{self, cluster_path},
};

use crate::{args::UnjoinArgs, cordon, cut_off, install, join::READER, leaving};

/// Limit for the controller to end the jobs of a cluster that is declared gone.
const WRITE_OFF: Duration = Duration::from_secs(120);

pub async fn unjoin(connect: &Connect, args: &UnjoinArgs) -> anyhow::Result<Answer> {
    let hub = &connect.hub().await?;
    let mut answer = Answer::default();
    for name in &args.names {
        let removed = match unjoin_one(hub, name, args.force).await {
            Ok(text) => text,
            Err(error) => {
                answer.fail(format!("error: {error:#}"));
                continue;
            }
        };
        let known = !removed.is_empty();
        answer.text.push_str(&removed);
        match clean_member(connect, name, args).await {
            // The rest of an earlier unjoin, which had not reached the member.
            Ok(Cleaned::Lines(lines)) if known || !lines.is_empty() => {
                answer.text.extend(lines.iter().map(|line| format!("cluster({name}): {line}\n")));
            }
            Ok(Cleaned::NotReached(text)) if known => answer.text.push_str(&text),
            Ok(_) => answer.fail(format!("error: {}", unknown(hub, name).await?)),
            Err(error) => answer.fail(format!("error: cluster({name}): {error:#}")),
        }
    }
    Ok(answer)
}

/// The error for a name that is no cluster.
async fn unknown(hub: &Hub, name: &str) -> anyhow::Result<String> {
    let known: Vec<String> =
        members::clusters(hub).await?.into_iter().filter_map(|cluster| cluster.metadata.name).collect();
    let known = match known.is_empty() {
        true => "there are none".to_string(),
        false => format!("its clusters: {}", known.join(", ")),
    };
    Ok(format!("cluster {name:?} is not in this fleet; {known}"))
}

/// Removes a cluster from the hub, and says what was deleted: nothing if the hub knows nothing of it.
async fn unjoin_one(hub: &Hub, name: &str, force: bool) -> anyhow::Result<String> {
    let namespace = cluster_namespace(name);
    match hub.server.object(&cluster_path(name)).await {
        // An unjoin that was interrupted, or did not reach the member, is simply repeated.
        Err(error) if error.is_not_found() && !force => {
            return remove_from_hub(hub, name, &namespace).await;
        }
        Err(error) if error.is_not_found() => bail!("{}", unknown(hub, name).await?),
        found => drop(found?),
    }
    if force {
        // Nothing new is sent to a cluster that will not take it up.
        cordon::set(hub, name, "cordoned", &[], &[(CORDON_TAINT, "NoSchedule")]).await?;
        cut_off::take_rights(hub, name).await?;
        cut_off::wait_for_lease(hub, name).await?;
        write_off(hub, name).await?;
    }
    let works = leaving::let_go_of_finished(hub, name).await?;
    if !works.is_empty() {
        bail!(
            "cluster {name:?} still has {} objects of the fleet: {}. `fleet drain {name}` moves jobs elsewhere and \
             takes other objects off; what no other cluster admits waits on the hub for one; what is being removed is \
             gone when its agent has answered; --force, for a dead or hostile cluster, takes its agent's credentials away and \
             ends all of them without hearing from it",
            works.len(),
            leaving::objects(&works)
        );
    }
    remove_from_hub(hub, name, &namespace).await
}

/// Deletes what a join created on the hub.
async fn remove_from_hub(hub: &Hub, name: &str, namespace: &str) -> anyhow::Result<String> {
    let role = cut_off::agent_role(name);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let mut text = String::new();
    for (kind, path) in [
        ("cluster.fleet.dev", cluster_path(name)),
        ("clusterrolebinding", format!("{rbac}/clusterrolebindings/{role}")),
        ("clusterrole", format!("{rbac}/clusterroles/{role}")),
        ("namespace", format!("/api/v1/namespaces/{namespace}")),
    ] {
        match hub.server.delete(&path).await {
            Ok(_) => {
                text.push_str(&format!("{kind}/{} deleted\n", path.rsplit('/').next().unwrap_or_default()))
            }
            // A cluster whose agent registered itself has no role from a join.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(text)
}

/// What was done in the member.
enum Cleaned {
    /// What was deleted there.
    Lines(Vec<String>),
    /// What to do there by hand.
    NotReached(String),
}

/// Uninstalls Fleet in the member, if it can be reached.
async fn clean_member(connect: &Connect, name: &str, args: &UnjoinArgs) -> anyhow::Result<Cleaned> {
    if args.keep_member {
        return Ok(Cleaned::Lines(Vec::new()));
    }
    let (origin, kubeconfig, context) = match &args.member_kubeconfig {
        Some(file) => (file.display().to_string(), connect::read(file)?, None),
        None => {
            let (origin, kubeconfig) = connect.kubeconfig()?;
            if !kubeconfig.contexts.iter().any(|context| context.name == name) {
                return Ok(Cleaned::NotReached(not_reached(name)));
            }
            (origin, kubeconfig, Some(name))
        }
    };
    let (member, _) = connect::server(name, &origin, kubeconfig, context).await?;
    Ok(Cleaned::Lines(install::remove(&member, READER).await?))
}

fn not_reached(name: &str) -> String {
    format!(
        "cluster({name}): not reached from here; `kubectl delete namespace {MEMBER_NAMESPACE}` there ends its agent, and \
         `fleet unjoin {name} --member-kubeconfig FILE` removes the rest. The agent of a member of `fleet up` is in that \
         program, which lets the cluster join again when it starts anew\n"
    )
}

/// Ends every job of a cluster whose agent has no lease any more, and prints the outcome of each.
async fn write_off(hub: &Hub, name: &str) -> anyhow::Result<()> {
    let gone = [(CORDON_TAINT, "NoSchedule"), (GONE_TAINT, "NoExecute")];
    let runs = leaving::runs(hub, name).await?;
    cordon::set(hub, name, "gone", &[], &gone).await?;
    println!(
        "{name} is declared gone: {} jobs and {} objects",
        runs.len(),
        leaving::works(hub, name).await?.len()
    );
    let left = leaving::follow(hub, name, &runs, Some(WRITE_OFF)).await?;
    if left > 0 {
        bail!(
            "{left} jobs or objects of {name:?} are not finished after {} s: does fleet-controller run? The cluster stays \
             marked as gone; run the command again",
            WRITE_OFF.as_secs()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_unjoins_a_member_of_fleet_up_is_told_that_it_comes_back() {
        assert!(not_reached("west").contains("`fleet up`"), "{}", not_reached("west"));
    }
}
