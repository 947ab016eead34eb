//! The arguments of `fleet up`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use fleet_kubesim::RunTime;

#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Member clusters: east, west, north, member-4 and so on [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub members: Option<u16>,
    /// Nodes of each member [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub nodes: Option<u16>,
    /// Names of the nodes of each member, in place of --nodes: hostname-carol,hostname-dan
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "nodes", value_parser = fleet_kubesim::node_name)]
    pub node_names: Option<Vec<String>>,
    /// nvidia.com/gpu of each node [default: 8]
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// cpu of each node [default: 64]
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub cpu: Option<String>,
    /// memory of each node [default: 512Gi]
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub memory: Option<String>,
    /// Data directory of the fleet [default: $FLEET_HOME or ~/.fleet]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Port of the hub; the members use the ports after it
    #[arg(long, value_name = "P", default_value_t = 6444, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Port of the portal [default: 9286, or a free one if that is in use; 0 uses a free one]
    #[arg(long, value_name = "P")]
    pub portal_port: Option<u16>,
    /// Address of the fleet's metrics, at /metrics; port 0 uses a free one [default: not served]
    #[arg(long, value_name = "IP:PORT")]
    pub metrics_address: Option<SocketAddr>,
    /// Default run time of simulated jobs: 60s, 5m, forever (the annotation sim.fleet.dev/runtime overrides it)
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub runtime: RunTime,
    /// Configuration of the members' schedulers, as volcano-scheduler.conf; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub scheduler_conf: Option<PathBuf>,
}

pub(super) fn cpu(text: &str) -> Result<String, String> {
    quantity("cpu", text)
}

pub(super) fn memory(text: &str) -> Result<String, String> {
    quantity("memory", text)
}

fn quantity(name: &str, text: &str) -> Result<String, String> {
    match fleet_resources::quantity::parse(name, text) {
        Ok(amount) if amount > 0 => Ok(text.to_string()),
        Ok(_) => Err("allowed: more than 0".to_string()),
        Err(error) => Err(error.to_string()),
    }
}
