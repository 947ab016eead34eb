//! The way to a member: with what the user himself may read of the hub, or with the portal's own right to read the
//! members' Secrets, for a user whom the hub lets read pods of the job's namespace.
//!
//! A member's token reads all of it. So whoever asks with the portal's has to look whether a pod is of the user's job.

use std::time::Duration;

use fleet_openpai::{
    members,
    server::{HUB_PATIENCE, Server},
};
use kube::{Client, ResourceExt};

use super::{
    rights::{Deed, may},
    state::Web,
};

/// What of a member is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Pods,
    Logs,
}

impl What {
    const fn deed(self) -> Deed {
        let subresource = match self {
            Self::Pods => "",
            Self::Logs => "log",
        };
        Deed { verb: "get", group: "", resource: "pods", subresource }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Logs => "pods/log",
        }
    }
}

/// The portal's own way to the hub, for the Secrets of members alone.
fn own_server(own: &Client, url: &str) -> Server {
    Server { client: own.clone(), name: "hub".to_owned(), url: url.to_owned(), patience: HUB_PATIENCE }
}

/// A member, for a user who may see what is asked for of jobs of this namespace. `hub` is the hub as he sees it.
///
/// # Errors
/// Why he is not shown it.
pub async fn reach(
    web: &Web,
    hub: &Server,
    cluster: &str,
    namespace: &str,
    what: What,
    patience: Duration,
) -> Result<Server, String> {
    let own = match &web.members {
        Some(own) if may(hub, what.deed(), namespace).await.map_err(|error| error.to_string())? => own,
        others => {
            let found = members::reach(hub, cluster).await;
            let found = found.map(|member| Server { patience, ..member });
            return found.map_err(|why| match others {
                Some(_) => format!(
                    "the hub does not let you get {} in namespace {namespace}, and {why}",
                    what.text()
                ),
                None => why.to_string(),
            });
        }
    };
    let objects = web.board.clusters();
    let object = objects.iter().find(|object| object.name_any() == cluster);
    let object = object.ok_or_else(|| format!("there is no Cluster {cluster} any more"))?;
    let found = members::member(&own_server(own, &web.url), object, cluster, patience).await;
    found.map_err(|why| why.to_string())
}
