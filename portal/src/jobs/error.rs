//! Why something cannot be done with a job, with OpenPAI's code and a status of HTTP.

use fleet_pai::Refusal;

use crate::server::AskError;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The job itself is wrong.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The file is no YAML.
    #[error("line {line}: {message}; allowed: one YAML document")]
    NoYaml { line: u64, message: String },
    #[error("job {id} is not there; allowed: USER~NAME of a job, as the list says it")]
    NoJob { id: String },
    #[error("job {id} exists already, as {object} in namespace {namespace}; allowed: a name that is free")]
    Exists { id: String, object: String, namespace: String },
    #[error("{0}")]
    Conflict(String),
    #[error(
        "user {user:?} cannot own jobs; allowed: up to 63 letters, digits, \"-\", \"_\" and \".\", of which letters and digits at both ends"
    )]
    User { user: String },
    #[error(
        "{url} does not serve jobs.batch.volcano.sh, which jobs become; apply `fleet crds --hub` to it, or name the hub's kubeconfig"
    )]
    NoKind { url: String },
    /// The configuration of cells is of another version of this program.
    #[error("the configuration of cells in force cannot be read:\n{0}")]
    Cells(String),
    #[error("{0}")]
    Hub(#[from] AskError),
}

impl JobError {
    /// OpenPAI's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code.as_str(),
            Self::NoYaml { .. } => "InvalidProtocolError",
            Self::NoJob { .. } => "NoJobError",
            Self::Exists { .. } | Self::Conflict(_) => "ConflictJobError",
            Self::User { .. } => "InvalidParametersError",
            Self::Hub(AskError::Refused { code: 401, .. }) => "UnauthorizedUserError",
            Self::Hub(AskError::Refused { code: 403, .. }) => "ForbiddenUserError",
            Self::Hub(AskError::Refused { code: 400 | 422, .. }) => "InvalidProtocolError",
            Self::NoKind { .. } | Self::Cells(_) | Self::Hub(_) => "UnknownError",
        }
    }

    /// Status of HTTP.
    pub fn status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => refusal.code.status(),
            Self::NoYaml { .. } | Self::User { .. } => 400,
            Self::NoJob { .. } => 404,
            Self::Exists { .. } | Self::Conflict(_) => 409,
            Self::Hub(AskError::Refused { code: code @ (401 | 403), .. }) => *code,
            Self::Hub(AskError::Refused { code: 400 | 422, .. }) => 400,
            Self::Hub(AskError::Away { .. }) => 503,
            Self::NoKind { .. } | Self::Cells(_) | Self::Hub(_) => 500,
        }
    }
}
