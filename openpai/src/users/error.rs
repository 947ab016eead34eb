//! Why a request about a user fails, with OpenPAI's error code and an HTTP status.

use crate::server::AskError;

/// Why a request about a user fails.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No such user or another password; which of both is not said.
    #[error("found no user with this name and password; allowed: the name and the password of a user")]
    WrongPassword,
    #[error("user {0:?} not found; allowed: the name of a user")]
    NoUser(String),
    #[error("user {0} exists already; allowed: a name that is free")]
    Exists(String),
    #[error("{field}: found {found}; allowed: {allowed}")]
    Invalid { field: &'static str, found: String, allowed: String },
    #[error("virtualCluster: found {found:?}; allowed: {allowed}")]
    NoVirtualCluster { found: String, allowed: String },
    #[error(
        "token: found none of this user with that id; allowed: an id of GET /tokens, or the token itself"
    )]
    NoToken,
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}; allowed after {1} s")]
    TooMany(String, u64),
    #[error("{0}")]
    Conflict(String),
    #[error("users are not kept on this hub: {0}")]
    NotKept(String),
    #[error("{0}")]
    Hub(#[from] AskError),
}

impl UserError {
    pub(super) fn invalid(field: &'static str, found: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Invalid { field, found: found.into(), allowed: allowed.into() }
    }

    /// OpenPAI's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WrongPassword => "IncorrectPasswordError",
            Self::NoUser(_) => "NoUserError",
            Self::Exists(_) | Self::Conflict(_) => "ConflictUserError",
            Self::Invalid { .. } => "InvalidParametersError",
            Self::NoVirtualCluster { .. } => "NoVirtualClusterError",
            Self::NoToken => "NoTokenError",
            Self::Forbidden(_) | Self::Hub(AskError::Refused { code: 403, .. }) => "ForbiddenUserError",
            Self::TooMany(..) => "TooManyRequestsError",
            Self::Hub(AskError::Refused { code: 401, .. }) => "UnauthorizedUserError",
            Self::Hub(AskError::Refused { code: 400 | 422, .. }) => "InvalidParametersError",
            Self::NotKept(_) | Self::Hub(_) => "UnknownError",
        }
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::WrongPassword => 401,
            Self::NoUser(_) | Self::NoToken => 404,
            Self::Exists(_) | Self::Conflict(_) => 409,
            Self::Invalid { .. } | Self::NoVirtualCluster { .. } => 400,
            Self::Forbidden(_) => 403,
            Self::TooMany(..) => 429,
            Self::Hub(AskError::Refused { code: code @ (401 | 403), .. }) => *code,
            Self::Hub(AskError::Refused { code: 400 | 422, .. }) => 400,
            Self::Hub(AskError::Away { .. }) => 503,
            Self::NotKept(_) | Self::Hub(_) => 500,
        }
    }
}
