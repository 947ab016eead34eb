//! `member-agent`: the agent of one member, as a process of its own.
//!
//! Reads flags, opens both clients, runs until Ctrl-C or SIGTERM.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Parser;
use fleet_metrics::{Exposed, Exposition, Process};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use member_agent::{
    DEFAULT_WATCHDOG_IMAGE, Election, JobController, Options, Reach, Webhook, credential,
    permits::{CellNodes, DEFAULT_ACCOUNT, DEFAULT_KINDS, Permits, SERVICE_TYPES, account_of},
    process_name,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The system's allocator took a third of a busy process's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Registers a member cluster on the hub and does the hub's work in it.
#[derive(Debug, Parser)]
#[command(name = "member-agent", version)]
struct Flags {
    /// Kubeconfig of the hub
    #[arg(long, value_name = "FILE", env = "HUB_KUBECONFIG", required_unless_present = "hub_bootstrap")]
    hub_kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the hub with a bootstrap token (`fleet join`), with which the agent gets its own
    /// credential. The credential is stored in the member and renewed; a restart needs no token
    #[arg(long, value_name = "FILE", env = "HUB_BOOTSTRAP", conflicts_with = "hub_kubeconfig")]
    hub_bootstrap: Option<PathBuf>,
    /// Folder of the file with that credential's token
    #[arg(long, value_name = "DIRECTORY", default_value = "/tmp/fleet")]
    credential_folder: PathBuf,
    /// Kubeconfig of the member; without it the pod's service account is used
    #[arg(long, value_name = "FILE", env = "MEMBER_KUBECONFIG")]
    member_kubeconfig: Option<PathBuf>,
    /// Name of the Cluster on the hub
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// Address of the member's API server for users of the hub. This and the following flags are proposals in
    /// the Cluster's status, until an administrator confirms them (fleet join --confirm)
    #[arg(long, value_name = "URL")]
    api_endpoint: Option<String>,
    #[arg(long)]
    provider: Option<String>,
    #[arg(long)]
    region: Option<String>,
    #[arg(long, value_name = "ZONE", value_delimiter = ',')]
    zones: Vec<String>,
    /// Labels for the Cluster object
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Job controllers to run, for members without their own operators: pytorchjob, tfjob, mpijob,
    /// volcanojob, job, deployment; `all` or `none`
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_value = "none")]
    controllers: Vec<String>,
    /// Scheduler names whose pods this agent binds; `none` turns it off
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "fleet,volcano")]
    scheduler_names: Vec<String>,
    /// Configuration of the scheduler in the format of volcano-scheduler.conf, read again when it changes
    #[arg(long, value_name = "FILE", env = "SCHEDULER_CONF")]
    scheduler_conf: Option<PathBuf>,
    /// Listen address of the admission webhook for Volcano's objects, such as 0.0.0.0:9443.
    /// Without it, invalid objects are accepted, wait, and report why
    #[arg(long, value_name = "ADDRESS:PORT")]
    webhook_listen: Option<SocketAddr>,
    /// The Service of the member in front of --webhook-listen; without it the address itself is registered
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "webhook_listen", value_parser = service)]
    webhook_service: Option<Reach>,
    /// Kinds that the hub may apply in this member, as Kind or Kind.group; `*` for every kind
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_values = DEFAULT_KINDS)]
    kinds: Vec<String>,
    /// Namespaces that the hub may use in this member: full names, or a prefix with `*`. Namespaces of the
    /// cluster itself (kube-*, fleet-system, openshift-*, istio-system) need their full name
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', default_value = "*")]
    namespaces: Vec<String>,
    /// Let policies with `conflictResolution: Overwrite` take over objects that Fleet did not make
    #[arg(long)]
    allow_overwrite: bool,
    /// Types of Services beside ClusterIP that the hub may apply: NodePort, LoadBalancer, ExternalName
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(SERVICE_TYPES))]
    service_types: Vec<String>,
    /// Account under whose rights jobs and their dependencies are created and changed, such as
    /// system:serviceaccount:{namespace}:fleet, with {namespace} for their namespace; default: the agent's
    /// own rights
    #[arg(long, value_name = "USER")]
    impersonate: Option<String>,
    /// Labels of the nodes that the hub may keep for cells of virtual clusters; default: all nodes
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    cell_node_selector: Vec<(String, String)>,
    /// How many nodes the hub may keep for cells of virtual clusters; default: all, 0 for none
    #[arg(long, value_name = "NUMBER")]
    max_cell_nodes: Option<usize>,
    /// Do not answer reservations: the hub compares sums of free resources
    #[arg(long)]
    no_reservation: bool,
    /// Seconds for which the hub counts the agent as alive after a renewal of its lease
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..))]
    lease_duration: u32,
    /// Seconds between renewals of the lease
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    lease_renew: u32,
    /// Name of this agent, unique among the agents of this member that run at once; a restart under the same name
    /// takes over at once. Default: a name that no other process has
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    /// Seconds without a renewal of its lease in the member after which another agent of this member acts
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=600))]
    leader_lease: u64,
    /// Seconds after the end of the lease within which pods of jobs that may move are gone; the hub waits
    /// this long
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    fence_grace: u32,
    /// Seconds that pods which Fleet ends may take to end, with their preStop hooks, whatever
    /// terminationGracePeriodSeconds they have
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    max_pod_grace: u32,
    /// Seconds that the member's API server works on a request at most (kube-apiserver's --request-timeout): a run
    /// is not over while a create without an answer may still arrive
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    member_request_timeout: u32,
    /// Address of /metrics and /healthz; default: not served
    #[arg(long, value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
    /// Image of the side container for jobs with fencing Watchdog
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_WATCHDOG_IMAGE)]
    watchdog_image: String,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    // Installed before anything connects; the process has no other TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let options = flags.options()?;
    // Before anything connects: a port in use is a mistake in the flags.
    let listener = match flags.metrics_address {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let member = client("--member-kubeconfig", flags.member_kubeconfig.as_ref()).await?;
    let shutdown = CancellationToken::new();
    let hub = match &flags.hub_kubeconfig {
        Some(file) => client("--hub-kubeconfig", Some(file)).await?,
        None => own_credential(&flags, &member, &shutdown).await?,
    };
    let stop = shutdown.clone();
    tokio::spawn(async move {
        stop_signal().await;
        stop.cancel();
    });
    let metrics = options.metrics.clone();
    let agent = member_agent::run(hub, member, options, shutdown.clone());
    let Some(listener) = listener else { return agent.await };
    let process = Process::new("member-agent", env!("CARGO_PKG_VERSION"));
    let parts: [Arc<dyn Exposed>; 2] = [Arc::new(process), Arc::new(metrics)];
    let serving = async {
        let ended = fleet_metrics::serve(listener, Exposition::new(parts), shutdown.cancelled_owned());
        ended.await.context("--metrics-address: the socket is broken")
    };
    tokio::try_join!(agent, serving).map(drop)
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("--metrics-address {address}: cannot listen on it"))
}

impl Flags {
    fn options(&self) -> anyhow::Result<Options> {
        if self.lease_renew >= self.lease_duration {
            bail!(
                "--lease-renew: found {} s; allowed: less than --lease-duration, {} s",
                self.lease_renew,
                self.lease_duration
            );
        }
        let webhook = self
            .webhook_listen
            .map(|listen| Webhook { listen, reach: self.webhook_service.clone().unwrap_or(Reach::Listener) });
        if let Some(Webhook { listen, reach: Reach::Listener }) = &webhook
            && listen.ip().is_unspecified()
        {
            bail!(
                "--webhook-listen: found {listen}, which no API server can reach; allowed: an address of this machine, or \
                 --webhook-service beside it"
            );
        }
        check_account(self.impersonate.as_deref())?;
        let named = self.scheduler_names.iter().filter(|name| *name != "none" && !name.is_empty());
        Ok(Options {
            api_endpoint: self.api_endpoint.clone(),
            provider: self.provider.clone(),
            region: self.region.clone(),
            zones: self.zones.clone(),
            labels: self.labels.iter().cloned().collect(),
            reservation: !self.no_reservation,
            scheduler_names: named.cloned().collect(),
            scheduler_conf: self.scheduler_conf.clone(),
            webhook,
            controllers: controllers(&self.controllers)?,
            lease_duration: Duration::from_secs(self.lease_duration.into()),
            lease_renew: Duration::from_secs(self.lease_renew.into()),
            fence_grace: Duration::from_secs(self.fence_grace.into()),
            max_pod_grace: Duration::from_secs(self.max_pod_grace.into()),
            member_request_timeout: Duration::from_secs(self.member_request_timeout.into()),
            check_rights: true,
            permits: Permits {
                kinds: self.kinds.iter().cloned().collect(),
                namespaces: self.namespaces.iter().cloned().collect(),
                overwrite: self.allow_overwrite,
                service_types: self.service_types.iter().cloned().collect(),
                impersonate: self.impersonate.clone(),
                own_namespace: own_namespace(self.member_kubeconfig.as_deref()),
                cell_nodes: CellNodes {
                    selector: self.cell_node_selector.iter().cloned().collect(),
                    max: self.max_cell_nodes,
                },
            },
            election: Some(Election {
                identity: self
                    .identity
                    .clone()
                    .filter(|name| !name.is_empty())
                    .unwrap_or_else(process_name::own),
                duration: Duration::from_secs(self.leader_lease),
            }),
            watchdog_image: Some(self.watchdog_image.clone()).filter(|image| !image.is_empty()),
            ..Options::new(cluster_name(&self.cluster)?)
        })
    }
}

/// Cluster names become part of a namespace's name.
fn cluster_name(name: &str) -> anyhow::Result<&str> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let valid = name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-');
    if name.is_empty() || name.len() > 57 || !valid {
        bail!(
            "--cluster: found {name:?}; allowed: lower-case letters, digits and inner dashes, 1 to 57 of them"
        );
    }
    if fleet_api::access::RESERVED_CLUSTERS.contains(&name) {
        bail!(
            "--cluster: found {name:?}, whose namespace on the hub is Fleet's own; allowed: any other name"
        );
    }
    Ok(name)
}

/// The account of the jobs is none that pods get without asking for it: those would have its rights.
fn check_account(user: Option<&str>) -> anyhow::Result<()> {
    let namespace = "{namespace}";
    if let Some(user) = user
        && account_of(user, namespace) == Some(DEFAULT_ACCOUNT)
    {
        bail!(
            "--impersonate: found {user}, the account of pods that name none; allowed: an account of its own, such as \
             system:serviceaccount:{namespace}:fleet"
        );
    }
    Ok(())
}

/// The namespace of the agent's pod; `None` outside a pod of the member.
fn own_namespace(member_kubeconfig: Option<&Path>) -> Option<String> {
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let text = member_kubeconfig.is_none().then(|| std::fs::read_to_string(file).ok()).flatten()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

fn controllers(names: &[String]) -> anyhow::Result<BTreeSet<JobController>> {
    let mut found = BTreeSet::new();
    for name in names {
        match name.to_ascii_lowercase().as_str() {
            "none" | "" => {}
            "all" => found.extend(JobController::ALL),
            "pytorchjob" => drop(found.insert(JobController::PyTorchJob)),
            "tfjob" => drop(found.insert(JobController::TFJob)),
            "mpijob" => drop(found.insert(JobController::MPIJob)),
            "volcanojob" | "vcjob" => drop(found.insert(JobController::VolcanoJob)),
            "job" | "batchjob" => drop(found.insert(JobController::BatchJob)),
            "deployment" => drop(found.insert(JobController::Deployment)),
            other => bail!(
                "--controllers: found {other:?}; allowed: pytorchjob, tfjob, mpijob, volcanojob, job, deployment, all and none"
            ),
        }
    }
    Ok(found)
}

fn service(text: &str) -> Result<Reach, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Reach::Service { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err(format!("found {text:?}; allowed: NAMESPACE/NAME")),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("found {text:?}; allowed: KEY=VALUE")),
    }
}

/// A client of the hub with the agent's own credential, which is renewed until `shutdown`.
async fn own_credential(
    flags: &Flags,
    member: &Client,
    shutdown: &CancellationToken,
) -> anyhow::Result<Client> {
    let settings = credential::Settings {
        cluster: flags.cluster.clone(),
        // The bootstrap token is deleted from the member once it was used.
        bootstrap: flags.hub_bootstrap.clone().filter(|file| file.exists()),
        folder: flags.credential_folder.clone(),
    };
    let (config, own) = credential::open(member, &settings).await?;
    let hub = client_of("--hub-bootstrap", config)?;
    tokio::spawn(credential::renew(hub.clone(), member.clone(), settings, own, shutdown.clone()));
    Ok(hub)
}

/// A client from a kubeconfig, or of the agent's own pod. It does not retry by itself; the agent decides
/// about retries.
async fn client(flag: &str, file: Option<&PathBuf>) -> anyhow::Result<Client> {
    let config = match file {
        Some(file) => from_file(flag, file).await?,
        None => Config::incluster().with_context(|| {
            format!("{flag}: not given, and this is not a pod; allowed: a kubeconfig file")
        })?,
    };
    client_of(flag, config)
}

fn client_of(flag: &str, mut config: Config) -> anyhow::Result<Client> {
    config.default_retry = false;
    // Watches end after 290 s at the latest; a connection that is silent for longer is dead.
    config.read_timeout = Some(Duration::from_secs(305));
    config.reset_reader_on_write = true;
    Client::try_from(config).with_context(|| format!("{flag}: cannot make a client of it"))
}

async fn from_file(flag: &str, file: &PathBuf) -> anyhow::Result<Config> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{flag}: cannot read {shown}; allowed: a readable kubeconfig file"))?;
    let kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| {
        // The parser's message has several lines; one is enough.
        let cause = error.to_string();
        let cause = cause.lines().next().unwrap_or_default();
        anyhow::anyhow!("{flag}: {shown} is not a kubeconfig; allowed: YAML of kind Config: {cause}")
    })?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.with_context(|| {
        format!(
            "{flag}: {shown} names no usable cluster; allowed: a current-context with a cluster and a user"
        )
    })
}

#[cfg(unix)]
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

#[cfg(not(unix))]
async fn stop_signal() {
    drop(tokio::signal::ctrl_c().await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_options() {
        let flags = Flags::parse_from([
            "member-agent",
            "--hub-kubeconfig=h",
            "--cluster=east",
            "--controllers=pytorchjob,mpijob",
            "--scheduler-names=none",
            "--labels=a=b",
        ]);
        let options = flags.options().unwrap();
        assert_eq!(options.controllers, [JobController::PyTorchJob, JobController::MPIJob].into());
        assert!(options.scheduler_names.is_empty() && options.reservation);
        assert_eq!(options.labels["a"], "b");
    }

    #[test]
    fn errors_name_flag_found_and_allowed() {
        assert_eq!(
            controllers(&["sparkjob".to_owned()]).unwrap_err().to_string(),
            "--controllers: found \"sparkjob\"; allowed: pytorchjob, tfjob, mpijob, volcanojob, job, deployment, all and none"
        );
        assert!(cluster_name("East").unwrap_err().to_string().starts_with("--cluster: found \"East\""));
        assert!(cluster_name("east-1").is_ok());
        let account = "system:serviceaccount:{namespace}:";
        let why = check_account(Some(&format!("{account}default"))).unwrap_err().to_string();
        assert!(why.starts_with("--impersonate: found system:serviceaccount:{namespace}:default"), "{why}");
        assert!(check_account(Some(&format!("{account}fleet"))).is_ok() && check_account(None).is_ok());
    }

    #[tokio::test]
    async fn an_unreadable_kubeconfig_is_one_line() {
        let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        for (file, start) in [
            ("/nowhere/config".into(), "--hub-kubeconfig: cannot read /nowhere/config; allowed:".to_owned()),
            (own.clone(), format!("--hub-kubeconfig: {} is not a kubeconfig; allowed:", own.display())),
        ] {
            let line = format!("{:#}", from_file("--hub-kubeconfig", &file).await.unwrap_err());
            assert!(line.starts_with(&start) && !line.contains('\n'), "{line}");
        }
    }
}
