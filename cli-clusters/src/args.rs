//! Arguments of the commands over member clusters.

use std::path::PathBuf;

use clap::Args;
use fleet_cli_ground::args::Listing;

#[derive(Debug, Clone, Default, Args)]
pub struct ClustersArgs {
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Names of the clusters [default: all]
    #[arg(value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Fail unless each cluster is ready, its agent answers, and it has its rights
    #[arg(long, conflicts_with = "watch")]
    pub check: bool,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Args)]
pub struct JoinArgs {
    /// Name of the cluster in the fleet
    pub name: String,
    /// Kubeconfig of the member cluster [default: the context with the cluster's name in your own]
    #[arg(long, value_name = "FILE", conflicts_with = "confirm")]
    pub member_kubeconfig: Option<PathBuf>,
    /// Context of the member's kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "member_kubeconfig")]
    pub member_context: Option<String>,
    /// Print the manifests for the member instead of applying them, for a repository or for a member that
    /// cannot be reached from here. Their token is valid for an hour
    #[arg(long, conflicts_with_all = ["confirm", "member_kubeconfig", "agent_kubeconfig"])]
    pub print: bool,
    /// Address of the hub for the member [default: that of your own kubeconfig]
    #[arg(long, value_name = "URL")]
    pub hub_url: Option<String>,
    /// Image of the agent
    #[arg(long, value_name = "IMAGE", default_value = concat!("registry.example.com/fleet/member-agent:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Job controllers that the agent runs, for a member without operators: pytorchjob, tfjob, mpijob,
    /// volcanojob, job, deployment; `all` or `none`
    #[arg(long, value_name = "KIND,..", default_value = "none")]
    pub controllers: String,
    /// Install no agent; write a kubeconfig of the hub for an agent that you run yourself to this file
    #[arg(long, value_name = "FILE", requires = "member_kubeconfig")]
    pub agent_kubeconfig: Option<PathBuf>,
    /// Copy the proposals of a joined cluster's agent into its Cluster: address, provider, region, zones and
    /// labels (status.proposed). From then on the member's token is sent to that address
    #[arg(long)]
    pub confirm: bool,
}

#[derive(Debug, Clone, Args)]
pub struct UnjoinArgs {
    /// Names of the clusters in the fleet
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The cluster is dead or hostile, and is not asked: take its agent's credentials away, wait until its
    /// lease has run out, place its jobs elsewhere if their policy has failover.cluster, else fail them. What
    /// is not fenced may run on there until its administrator stops it
    #[arg(long)]
    pub force: bool,
    /// Kubeconfig of the member cluster, to uninstall Fleet there [default: the context with the cluster's
    /// name in your own]
    #[arg(long, value_name = "FILE")]
    pub member_kubeconfig: Option<PathBuf>,
    /// Do not uninstall Fleet in the member
    #[arg(long, conflicts_with = "member_kubeconfig")]
    pub keep_member: bool,
}

#[derive(Debug, Clone, Args)]
pub struct CordonArgs {
    /// Names of the clusters in the fleet
    #[arg(required = true, value_name = "CLUSTER")]
    pub clusters: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// Names of the clusters in the fleet
    #[arg(required = true, value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Print which jobs would move, in which order, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until all jobs have left; the drain continues
    #[arg(long, conflicts_with = "dry_run")]
    pub no_wait: bool,
    /// Stop waiting after so many seconds; the drain continues
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}
