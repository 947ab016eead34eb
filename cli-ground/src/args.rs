//! Arguments of many commands.

use std::path::PathBuf;

use clap::Args;
use fleet_kubesim::RunTime;

/// How to reach the hub.
#[derive(Clone, Debug, Default, Args)]
pub struct Connect {
    /// Kubeconfig of the hub [default: $KUBECONFIG, the running `fleet up`, then ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub context: Option<String>,
    /// Time-out of one request: 10s, 1m, a number of seconds, 0 for none [default: 30s, for members 5s]
    #[arg(long, global = true, value_name = "TIME", help_heading = "Global options", value_parser = timeout)]
    pub request_timeout: Option<std::time::Duration>,
    /// URL instead of the kubeconfig's; no flag of `fleet`.
    #[arg(skip)]
    pub url: Option<String>,
    /// Called as a plugin: kubectl's cluster takes precedence.
    #[arg(skip)]
    pub is_plugin: bool,
}

/// The namespace.
#[derive(Clone, Debug, Default, Args)]
pub struct Scope {
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// One namespace, or all.
#[derive(Clone, Debug, Default, Args)]
pub struct Namespaces {
    #[command(flatten)]
    pub scope: Scope,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

impl Namespaces {
    /// The one namespace, that of the context by default; `None`: all.
    pub fn one<'a>(&'a self, default: &'a str) -> Option<&'a str> {
        (!self.all_namespaces).then(|| self.scope.namespace.as_deref().unwrap_or(default))
    }
}

/// How a list is printed.
#[derive(Clone, Debug, Default, Args)]
pub struct Listing {
    /// Print more columns (wide), names, or data instead of a table
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
    /// Order by a field of the data that -o json prints, such as .metadata.creationTimestamp
    #[arg(long, value_name = "JSONPATH")]
    pub sort_by: Option<String>,
    /// Watch for changes, polled once a second
    #[arg(short, long)]
    pub watch: bool,
    /// Print no headers
    #[arg(long)]
    pub no_headers: bool,
}

impl Listing {
    pub fn is_wide(&self) -> bool {
        self.output == Some(Format::Wide)
    }
}

/// How the answer about one thing is printed.
#[derive(Clone, Debug, Default, Args)]
pub struct Shown {
    /// Print data instead of text
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
}

/// Which member clusters to query.
#[derive(Clone, Debug, Default, Args)]
pub struct Targets {
    /// Query all member clusters
    #[arg(short = 'M', long, conflicts_with = "clusters")]
    pub all_clusters: bool,
    /// Query these member clusters
    #[arg(short = 'm', long = "cluster", value_name = "CLUSTER,..", value_delimiter = ',')]
    pub clusters: Vec<String>,
}

/// Output format, as kubectl names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    Wide,
    Yaml,
    Json,
    Name,
    JsonPath(String),
    /// `HEADER:PATH,..`
    Columns(String),
}

const FORMATS: &str = "json|yaml|wide|name|jsonpath=TEMPLATE|custom-columns=HEADER:PATH,..";

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once('=').unwrap_or((text, ""));
        match (word, rest) {
            ("wide", "") => Ok(Self::Wide),
            ("yaml", "") => Ok(Self::Yaml),
            ("json", "") => Ok(Self::Json),
            ("name", "") => Ok(Self::Name),
            ("jsonpath", template) if !template.is_empty() => Ok(Self::JsonPath(template.to_string())),
            ("custom-columns", columns) if !columns.is_empty() => Ok(Self::Columns(columns.to_string())),
            _ => Err(format!("found {text:?}; allowed: {FORMATS}")),
        }
    }
}

/// `10s`, `1m30s`, a number of seconds; 0 is no limit.
fn timeout(text: &str) -> Result<std::time::Duration, String> {
    const NO_BOUND: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);
    let read = match text.parse::<u64>() {
        Ok(seconds) => Some(std::time::Duration::from_secs(seconds)),
        Err(_) => match text.parse() {
            Ok(RunTime::For(time)) => Some(time),
            _ => None,
        },
    };
    let time =
        read.ok_or_else(|| "allowed: a duration such as 10s or 1m, a number of seconds, or 0".to_string())?;
    Ok(if time.is_zero() { NO_BOUND } else { time })
}
