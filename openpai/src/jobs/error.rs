//! Why a request about a job fails, with OpenPAI's error code and an HTTP status.

use fleet_pai::Refusal;

use crate::server::AskError;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The job file is invalid.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The file is not valid YAML.
    #[error("line {line}: {message}; allowed: one YAML document")]
    NoYaml { line: u64, message: String },
    #[error("job {id} not found; allowed: USER~NAME of an existing job")]
    NoJob { id: String },
    #[error("job {id} exists already, as {object} in namespace {namespace}; allowed: a name that is free")]
    Exists { id: String, object: String, namespace: String },
    #[error("{0}")]
    Conflict(String),
    #[error(
        "user {user:?} cannot own jobs; allowed: up to 63 letters, digits, \"-\", \"_\" and \".\", with a letter or digit first and last"
    )]
    User { user: String },
    #[error(
        "{url} does not serve jobs.batch.volcano.sh, which jobs become; apply `fleet crds --hub` to it, or name the hub's kubeconfig"
    )]
    NoKind { url: String },
    /// The configuration of cells was written by another version of Fleet.
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

    /// HTTP status.
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
