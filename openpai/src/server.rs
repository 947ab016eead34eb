//! One API server as the command line and the portal use it: raw paths, JSON answers, a timeout for every
//! request.

use std::time::Duration;

use http::{Request, header};
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Objects per page, as in kubectl.
const PAGE: usize = 500;
/// Most pages of one list; a server that sends more is treated as broken. This is 5 million objects.
const MOST_PAGES: usize = 10_000;

const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Timeout for one answer.
pub const HUB_PATIENCE: Duration = Duration::from_secs(30);
pub const MEMBER_PATIENCE: Duration = Duration::from_secs(5);

/// A server and its name in messages.
#[derive(Clone)]
pub struct Server {
    pub client: Client,
    /// `hub`, or the name of a member cluster.
    pub name: String,
    pub url: String,
    pub patience: Duration,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server refused; `message` is its own text.
    #[error("{message}")]
    Refused { code: u16, message: String },
    #[error("{url} does not answer: {message}")]
    Away { url: String, message: String },
    #[error("{url} answers with something unexpected: {message}")]
    Unexpected { url: String, message: String },
}

impl AskError {
    /// HTTP status that is passed on to the caller.
    pub fn status(&self) -> u16 {
        match self {
            Self::Refused { code: code @ 400..=499, .. } => *code,
            Self::Refused { .. } | Self::Unexpected { .. } => 502,
            Self::Away { .. } => 503,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }
}

/// Selectors of a list.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// Rows of tables contain their whole objects.
    pub whole_rows: bool,
}

impl Server {
    /// GET of a path with an Accept header.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn get(&self, path: &str, accept: &str) -> Result<Value, AskError> {
        self.send("GET", path, accept, None).await
    }

    /// GET of a text, such as a log.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn text(&self, path: &str) -> Result<String, AskError> {
        let request = Request::get(path).body(Vec::new()).map_err(|error| AskError::Unexpected {
            url: format!("{}{path}", self.url),
            message: error.to_string(),
        })?;
        match tokio::time::timeout(self.patience, self.client.request_text(request)).await {
            Ok(answer) => answer.map_err(|error| self.explain(error)),
            Err(_) => Err(AskError::Away {
                url: self.url.clone(),
                message: format!("nothing heard for {} s", self.patience.as_secs()),
            }),
        }
    }

    /// GET of a plain object.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn object(&self, path: &str) -> Result<Value, AskError> {
        self.get(path, "application/json").await
    }

    /// A whole list, page by page: the first answer with the items (or rows) of all pages.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn list(&self, path: &str, selectors: &Selectors, accept: &str) -> Result<Value, AskError> {
        let mut whole: Option<Value> = None;
        let mut resume = String::new();
        for _ in 0..MOST_PAGES {
            let mut query = format!("{path}?limit={PAGE}");
            let parts = [
                ("labelSelector", selectors.labels.as_deref()),
                ("fieldSelector", selectors.fields.as_deref()),
                ("continue", Some(resume.as_str()).filter(|token| !token.is_empty())),
                ("includeObject", selectors.whole_rows.then_some("Object")),
            ];
            for (name, value) in parts {
                if let Some(value) = value {
                    query.push_str(&format!("&{name}={}", utf8_percent_encode(value, QUERY)));
                }
            }
            let mut page = self.get(&query, accept).await?;
            resume = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
            match &mut whole {
                None => whole = Some(page),
                Some(whole) => {
                    for field in ["items", "rows"] {
                        if let (Some(all), Some(more)) =
                            (whole[field].as_array_mut(), page[field].as_array_mut())
                        {
                            all.append(more);
                        }
                    }
                }
            }
            if resume.is_empty() {
                break;
            }
        }
        let mut whole = whole.unwrap_or_default();
        if let Some(metadata) = whole["metadata"].as_object_mut() {
            metadata.remove("continue");
            metadata.remove("remainingItemCount");
        }
        Ok(whole)
    }

    /// Server-side apply of one object at its own path.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn apply(&self, path: &str, manager: &str, object: &Value) -> Result<Value, AskError> {
        let path = format!("{path}?fieldManager={manager}&force=true&fieldValidation=Strict");
        // JSON is valid YAML.
        self.send("PATCH", &path, "application/json", Some(("application/apply-patch+yaml", object))).await
    }

    /// # Errors
    /// See [`AskError`].
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, AskError> {
        self.send("PATCH", path, "application/json", Some(("application/merge-patch+json", patch))).await
    }

    /// # Errors
    /// See [`AskError`].
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, AskError> {
        self.send("POST", path, "application/json", Some(("application/json", object))).await
    }

    /// Replaces an object that was read and changed. The server refuses it if somebody else has changed it
    /// meanwhile.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn replace(&self, path: &str, object: &Value) -> Result<Value, AskError> {
        self.send("PUT", path, "application/json", Some(("application/json", object))).await
    }

    /// # Errors
    /// See [`AskError`].
    pub async fn delete(&self, path: &str) -> Result<Value, AskError> {
        self.send("DELETE", path, "application/json", None).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, AskError> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        let bytes = match body {
            Some((content_type, value)) => {
                request = request.header(header::CONTENT_TYPE, content_type);
                serde_json::to_vec(value).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let request = request.body(bytes).map_err(|error| AskError::Unexpected {
            url: format!("{}{path}", self.url),
            message: error.to_string(),
        })?;
        match tokio::time::timeout(self.patience, self.client.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(|error| self.explain(error)),
            Err(_) => Err(AskError::Away {
                url: self.url.clone(),
                message: format!("nothing heard for {} s", self.patience.as_secs()),
            }),
        }
    }

    fn explain(&self, error: kube::Error) -> AskError {
        let url = self.url.clone();
        match error {
            kube::Error::Api(status) => {
                let message = match status.code {
                    401 => format!("{url} does not know this user ({})", status.message),
                    _ => status.message.clone(),
                };
                AskError::Refused { code: status.code, message }
            }
            kube::Error::SerdeError(error) => AskError::Unexpected { url, message: error.to_string() },
            other => AskError::Away { url, message: innermost(&other) },
        }
    }
}

/// The innermost error of a chain: the one with the cause (`Connection refused`).
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
