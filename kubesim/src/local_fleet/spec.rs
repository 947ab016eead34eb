//! The spec of a local fleet, and the part of it that is stored in its data directory.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use fleet_simulator::RunTime;

use crate::standins::tenants::Tenants;

/// A hub and its members in one process.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    /// At least one.
    pub members: Vec<MemberSpec>,
    /// Directory for all data; `None` keeps it in memory.
    pub data_dir: Option<PathBuf>,
    pub listen: Listen,
    /// Run time of a job's pod without an annotation.
    pub default_run_time: RunTime,
    /// Configuration of all members' schedulers, as `volcano-scheduler.conf`; `None`: the agent's own.
    pub scheduler_conf: Option<PathBuf>,
    /// Members like clusters that others own, with a training operator, a scheduler and tenants of their own
    /// ([`crate::standins`]). Their agents bring no scheduler but `fleet`.
    pub shared: Option<Tenants>,
    /// For measuring admission alone: nothing runs in the members, and each job is reported as ended when its
    /// run time has passed.
    pub ends_only: bool,
}

/// One member: its name and its nodes, all alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSpec {
    pub name: String,
    pub nodes: usize,
    /// `nvidia.com/gpu` per node.
    pub gpus: u32,
    /// Kubernetes quantity per node.
    pub cpu: String,
    /// Kubernetes quantity per node.
    pub memory: String,
    /// Names of the nodes; the first ones' if there are fewer. The others are named after the member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_names: Vec<String>,
}

/// A name that a node may have.
///
/// # Errors
/// What is allowed.
pub fn node_name(text: &str) -> Result<String, String> {
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && part.chars().all(fits) && !part.starts_with('-') && !part.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(part) {
        Ok(text.to_owned())
    } else {
        Err("allowed: small letters, digits, inner dashes and dots".to_owned())
    }
}

/// How the API servers can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// In this process only, without a socket.
    InProcess,
    /// On ports the system chooses, on the loopback address.
    Ephemeral,
    /// The hub on `first_port`, the members on those after it.
    From { host: IpAddr, first_port: u16 },
}

const FIRST_NAMES: [&str; 3] = ["east", "west", "north"];

impl MemberSpec {
    /// The name of member `index`, from 0: east, west, north, member-4 and so on.
    pub fn default_name(index: usize) -> String {
        match FIRST_NAMES.get(index) {
            Some(name) => (*name).to_string(),
            None => format!("member-{}", index + 1),
        }
    }

    /// Members with the default names.
    pub fn many(count: usize, nodes: usize, gpus: u32, cpu: &str, memory: &str) -> Vec<Self> {
        (0..count)
            .map(|index| Self {
                name: Self::default_name(index),
                nodes,
                gpus,
                cpu: cpu.to_string(),
                memory: memory.to_string(),
                node_names: Vec::new(),
            })
            .collect()
    }

    /// The region of a member, so that policies with regions have something to match.
    pub fn region(&self) -> String {
        format!("cn-{}", self.name)
    }

    pub fn zone(&self) -> String {
        format!("cn-{}-a", self.name)
    }
}

impl Default for FleetSpec {
    /// Three members of four nodes, in memory, without sockets; jobs run for three seconds.
    fn default() -> Self {
        Self {
            members: MemberSpec::many(3, 4, 8, "64", "512Gi"),
            data_dir: None,
            listen: Listen::InProcess,
            default_run_time: RunTime::For(std::time::Duration::from_secs(3)),
            scheduler_conf: None,
            shared: None,
            ends_only: false,
        }
    }
}
