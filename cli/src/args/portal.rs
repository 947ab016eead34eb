//! The arguments of `fleet portal`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use fleet_cli_ground::args::Scope;

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PortalArgs {
    #[command(subcommand)]
    pub command: Option<PortalCommand>,
    /// Listen address and port; port 0 uses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9286")]
    pub listen: SocketAddr,
    /// Where jobs are submitted to
    #[command(flatten)]
    pub scope: Scope,
    /// Show a recorded fleet from a run log instead of a live one: of fleet simulate --log (or -o jsonl), or
    /// of a controller. No hub is needed, and everybody who reaches the address sees all of it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run_log", "namespace", "metrics_address"])]
    pub log: Option<PathBuf>,
    /// Run log of this fleet's controller: the page Time shows the fleet as it was
    #[arg(long, value_name = "FILE")]
    pub run_log: Option<PathBuf>,
    /// Show users the pods and logs of their jobs, if the hub lets them get pods and pods/log of the job's
    /// namespace. Members are read with the kubeconfig's credential, which may read Secrets member-access
    #[arg(long, conflicts_with = "log")]
    pub read_members: bool,
    /// Address of the portal's own metrics, at /metrics [default: not served]
    #[arg(long, value_name = "IP:PORT")]
    pub metrics_address: Option<SocketAddr>,
    /// Allow a listen address beyond this machine, although tokens then cross the network unencrypted
    #[arg(long, conflicts_with = "log")]
    pub allow_plain_http: bool,
    /// Keep users with passwords, for OpenPAI's REST API: accounts of namespace fleet-pai-users, whose roles chart fleet
    /// has (portal.users)
    #[arg(long, conflicts_with = "log")]
    pub users: bool,
    /// All requests come through a proxy that appends the client's address to X-Forwarded-For; limits of wrong
    /// passwords use that address
    #[arg(long, requires = "users")]
    pub behind_proxy: bool,
    /// With --log: allow a listen address beyond this machine, although nobody signs in
    #[arg(long, requires = "log")]
    pub allow_anonymous: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub enum PortalCommand {
    /// Print the token of the kubeconfig, for signing in
    Token,
}
