//! A run of the fault simulation: a fleet, and timed events.
//!
//! Made from a scenario file or from a seed. It is a plain list of events, so that a failing run can be shortened
//! by leaving events out.

use std::{fmt, time::Duration};

use serde_json::Value;

use fleet_simulator::scenario::{self, Action, ClusterSpec, ObjectName, Scenario};

/// A process of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Controller,
    /// A second controller that leads when the first does not.
    Standby,
    Agent(String),
    /// The hollow kubelets of a member.
    Nodes(String),
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("controller"),
            Self::Standby => f.write_str("standby"),
            Self::Agent(cluster) => write!(f, "agent {cluster}"),
            Self::Nodes(cluster) => write!(f, "nodes {cluster}"),
        }
    }
}

/// Which API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Hub,
    Member(String),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub => f.write_str("hub"),
            Self::Member(cluster) => write!(f, "member {cluster}"),
        }
    }
}

/// One of the two ways of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Hub,
    /// An agent's or a hollow kubelet's way to its own member.
    Own,
}

/// How often requests of one process meet each fault, of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Longest time that a late one takes.
    pub latest_ms: u64,
    /// Credentials are not taken: 401.
    pub unauthorized: u32,
    pub request_lost: u32,
    pub answer_lost: u32,
    pub twice: u32,
    pub late: u32,
    /// 409 for writes, 410 for reads, 429, 500 or 503 for both.
    pub refused: u32,
    /// Watches: torn in the middle of a line, broken between two, or late.
    pub frames: u32,
}

/// Which way of a partition is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Both,
    Requests,
    Answers,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A user applies an object on the hub.
    Apply(Value),
    /// Somebody in a member makes an object there.
    ApplyInMember {
        cluster: String,
        object: Value,
    },
    /// A user deletes an object on the hub.
    Delete(ObjectName),
    /// A user changes an object on the hub, by a merge patch.
    Patch {
        object: ObjectName,
        patch: Value,
    },
    /// A member's credentials write what is not so into what they may write.
    Lie {
        cluster: String,
        lie: Lie,
    },
    /// Somebody in a member deletes an object there.
    DeleteInMember {
        cluster: String,
        name: ObjectName,
    },
    Node {
        cluster: String,
        name: String,
        ready: bool,
    },
    /// An agent or a controller and the hub cannot talk, until healed.
    Partition {
        process: Process,
        way: Way,
    },
    Heal {
        process: Process,
    },
    /// The agent's calls to its own member hang or are refused, until healed.
    MemberDown {
        cluster: String,
        hung: bool,
    },
    MemberUp {
        cluster: String,
    },
    /// The process dies at the `after_writes`-th write from now (0: at once); with `unheard`, before that write
    /// takes effect.
    Crash {
        process: Process,
        after_writes: u64,
        unheard: bool,
        restart_after: Option<Duration>,
    },
    /// The hub forgets its history: every watch of the process breaks, has to list again, and listings take their time.
    /// `over`: the process reaches the hub again.
    History {
        process: Process,
        over: bool,
    },
    /// The disk of a server is nearly full: objects may grow by so many bytes. `None`: there is room again.
    Disk {
        server: Server,
        room: Option<u32>,
    },
    /// The hub forgets its history of one resource, such as `works`, just before the process next creates one. The create
    /// arrives and is answered while the new listing, which was made before it, is still on its way.
    HistoryAtCreate {
        process: Process,
        resource: &'static str,
    },
    /// The hub is restored to what it was so long ago, under processes that stay connected. Users repeat what they
    /// have done since.
    Restore {
        back: Duration,
    },
    /// A server loses its power, with whatever it has not answered; what it answered is on its disk. Or it is back.
    Power {
        server: Server,
        on: bool,
    },
    /// From now on requests of the process meet faults at these rates.
    NetworkFaults {
        process: Process,
        side: Side,
        rates: Rates,
    },
}

/// What a lying member says of all that it may write the status of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Its jobs have succeeded.
    Succeeded,
    /// Its jobs have failed.
    Failed,
    /// It could not apply its Works, because of objects of others.
    NameTaken,
    /// It refuses the runs as over.
    Stale,
    /// Whatever is asked for is reserved, on nodes that do not exist.
    Reserved,
    Refused,
    /// It has a thousand times its room.
    Room,
    /// It holds nothing for its Works any more.
    LetGo,
}

impl Lie {
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Failed,
        Self::NameTaken,
        Self::Stale,
        Self::Reserved,
        Self::Refused,
        Self::Room,
        Self::LetGo,
    ];
}

impl What {
    /// What no person does.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Node { .. }
                | Self::Partition { .. }
                | Self::Heal { .. }
                | Self::MemberDown { .. }
                | Self::MemberUp { .. }
                | Self::Crash { .. }
                | Self::NetworkFaults { .. }
                | Self::History { .. }
                | Self::HistoryAtCreate { .. }
                | Self::Restore { .. }
                | Self::Power { .. }
                | Self::Disk { .. }
        )
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let meta = &object["metadata"];
            format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
        };
        match self {
            Self::Apply(object) => write!(f, "apply {}", name(object)),
            Self::ApplyInMember { cluster, object } => write!(f, "apply {} in {cluster}", name(object)),
            Self::Delete(object) => write!(f, "delete {} {}/{}", object.kind, object.namespace, object.name),
            Self::DeleteInMember { cluster, name } => {
                write!(f, "delete {} {}/{} in {cluster}", name.kind, name.namespace, name.name)
            }
            Self::Patch { object, patch } => {
                let text = patch.to_string();
                let shown: String = text.chars().take(LONGEST_PATCH).collect();
                write!(f, "patch {} {}/{}: {shown}", object.kind, object.namespace, object.name)
            }
            Self::Lie { cluster, lie } => write!(f, "{cluster} lies: {lie:?}"),
            Self::Node { cluster, name, ready } => write!(f, "node {cluster}/{name} ready {ready}"),
            Self::Partition { process, way } => write!(f, "partition {process} {way:?}"),
            Self::Heal { process } => write!(f, "heal {process}"),
            Self::MemberDown { cluster, hung } => write!(f, "member {cluster} down, hung {hung}"),
            Self::MemberUp { cluster } => write!(f, "member {cluster} up"),
            Self::Crash { process, after_writes, unheard, restart_after } => {
                write!(f, "crash {process} after {after_writes} writes, unheard {unheard}, ")?;
                match restart_after {
                    Some(pause) => write!(f, "back after {} ms", pause.as_millis()),
                    None => f.write_str("for good"),
                }
            }
            Self::History { process, over: false } => write!(f, "the history that {process} watches is lost"),
            Self::History { process, over: true } => write!(f, "{process} watches again"),
            Self::HistoryAtCreate { process, resource } => {
                write!(f, "the history of {resource} is lost when {process} next creates one")
            }
            Self::Restore { back } => write!(f, "hub restored to {} ms ago", back.as_millis()),
            Self::Power { server, on } => {
                write!(f, "power of {server} {}", if *on { "back" } else { "lost" })
            }
            Self::Disk { server, room: Some(bytes) } => {
                write!(f, "the disk of {server} has {bytes} bytes left")
            }
            Self::Disk { server, room: None } => write!(f, "the disk of {server} has room again"),
            Self::NetworkFaults { process, side, rates } => {
                write!(f, "network faults {process} {side:?} {rates:?}")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: Duration,
    pub what: What,
}

/// One run.
#[derive(Clone, Debug)]
pub struct SimulationPlan {
    pub seed: u64,
    pub clusters: Vec<ClusterSpec>,
    /// Applied at 0, before anything else.
    pub objects: Vec<Value>,
    /// By time.
    pub events: Vec<Event>,
    /// When every fault is over, with everything that is down back again; `None`: never, the events say all.
    pub calm: Option<Duration>,
    /// Virtual end. For a plan from a seed the time until which the end state must be reached.
    pub until: Duration,
    /// Clocks of processes run up to this much fast or slow, in millionths.
    pub drift_ppm: i32,
    /// Time 0 is when every cluster has joined; else when the first process starts.
    pub settled: bool,
    /// There are two controllers, of which one leads.
    pub standby: bool,
    /// Pods that are asked to end take all of their grace.
    pub lingering: bool,
    /// There are no faults, so that what may last a moment may last a short one only.
    pub fair: bool,
    /// Clusters that lie.
    pub liars: Vec<String>,
}

/// Label of random jobs: how they are to end.
pub const EXPECT_LABEL: &str = "sim.fleet.dev/expect";
/// Characters of a patch that are shown.
const LONGEST_PATCH: usize = 400;
/// Virtual end of a scenario that names none.
const DEFAULT_UNTIL: Duration = Duration::from_secs(2 * 3600);

impl SimulationPlan {
    /// A scenario file, as it stands.
    pub fn of_scenario(scenario: &Scenario) -> Self {
        let event = |event: &scenario::Event| {
            let what = match &event.action {
                Action::Apply(manifest) => What::Apply(manifest.value.clone()),
                Action::Delete(name) => What::Delete(name.clone()),
                Action::ApplyInMember { cluster, manifest } => {
                    What::ApplyInMember { cluster: cluster.clone(), object: manifest.value.clone() }
                }
                Action::DeleteInMember { cluster, name } => {
                    What::DeleteInMember { cluster: cluster.clone(), name: name.clone() }
                }
                Action::Node { cluster, name, ready } => {
                    What::Node { cluster: cluster.clone(), name: name.clone(), ready: *ready }
                }
                Action::Partition { cluster } => {
                    What::Partition { process: Process::Agent(cluster.clone()), way: Way::Both }
                }
                Action::Heal { cluster } => What::Heal { process: Process::Agent(cluster.clone()) },
                Action::Credentials { cluster, valid } => What::NetworkFaults {
                    process: Process::Agent(cluster.clone()),
                    side: Side::Hub,
                    rates: Rates { unauthorized: if *valid { 0 } else { 1000 }, ..Rates::default() },
                },
                Action::Crash { process, restart_after } => What::Crash {
                    process: match process {
                        scenario::Process::Hub => Process::Controller,
                        scenario::Process::Agent { cluster } => Process::Agent(cluster.clone()),
                    },
                    after_writes: 0,
                    unheard: false,
                    restart_after: *restart_after,
                },
            };
            Event { at: event.at, what }
        };
        Self {
            seed: scenario.seed,
            clusters: scenario.clusters.clone(),
            objects: scenario.objects.iter().map(|manifest| manifest.value.clone()).collect(),
            events: scenario.events.iter().map(event).collect(),
            calm: None,
            until: scenario.until.unwrap_or(DEFAULT_UNTIL),
            drift_ppm: 0,
            settled: true,
            standby: false,
            lingering: false,
            fair: false,
            liars: Vec::new(),
        }
    }

    /// Nothing says when the run ends: it ends when nothing is left to happen.
    pub fn until_is_default(&self) -> bool {
        self.until == DEFAULT_UNTIL
    }
}
