//! One API server as the command line and the portal use it: raw paths, JSON answers, a timeout for every
//! request.

use std::time::Duration;

use http::{Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Objects per page, as in kubectl.
const PAGE: usize = 500;
/// Most pages of one list; a server that sends more is treated as broken. This is 5 million objects.
const MOST_PAGES: usize = 10_000;

/// Most bytes of one answer of the hub, and of a member, which may send what it likes: 200 objects of 1.5 MB, of which few
/// are as large.
const HUB_ANSWER_MAX: usize = 128 << 20;
const MEMBER_ANSWER_MAX: usize = 32 << 20;

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
    /// Items after which a list is cut.
    pub most: Option<usize>,
}

impl Server {
    /// GET of a path with an Accept header.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn get(&self, path: &str, accept: &str) -> Result<Value, AskError> {
        self.send("GET", path, accept, None).await
    }

    /// GET of a text of so many bytes at most, such as a log.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn text(&self, path: &str, most: usize) -> Result<String, AskError> {
        let request = Request::get(path).body(Vec::new()).map_err(|error| AskError::Unexpected {
            url: format!("{}{path}", self.url),
            message: error.to_string(),
        })?;
        let body = self.answer(request, most).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
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
        let most = selectors.most.unwrap_or(usize::MAX);
        for _ in 0..MOST_PAGES {
            let mut query = format!("{path}?limit={}", PAGE.min(most));
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
            let count = |field| whole.as_ref().and_then(|whole| whole[field].as_array()).map_or(0, Vec::len);
            if resume.is_empty() || count("items") + count("rows") >= most {
                break;
            }
        }
        let mut whole = whole.unwrap_or_default();
        for field in ["items", "rows"] {
            if let Some(all) = whole.get_mut(field).and_then(Value::as_array_mut) {
                all.truncate(most);
            }
        }
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
        let most = if self.name == "hub" { HUB_ANSWER_MAX } else { MEMBER_ANSWER_MAX };
        let body = self.answer(request, most).await?;
        serde_json::from_slice(&body)
            .map_err(|error| AskError::Unexpected { url: self.url.clone(), message: error.to_string() })
    }

    /// The body of an answer, which ends within the server's patience and has so many bytes at most: whatever answers, nobody
    /// waits for ever or runs out of memory.
    async fn answer(&self, request: Request<Vec<u8>>, most: usize) -> Result<bytes::Bytes, AskError> {
        let asked = async {
            let answer = self.client.send(request.map(kube::client::Body::from)).await;
            let (head, body) = answer.map_err(|error| self.explain(error))?.into_parts();
            let body = Limited::new(body, most).collect().await.map_err(|error| {
                let url = self.url.clone();
                match error.is::<LengthLimitError>() {
                    true => AskError::Unexpected { url, message: format!("more than {most} bytes") },
                    false => AskError::Away { url, message: innermost(&*error) },
                }
            })?;
            let body = body.to_bytes();
            match head.status.is_client_error() || head.status.is_server_error() {
                true => Err(self.refused(head.status.as_u16(), &body)),
                false => Ok(body),
            }
        };
        tokio::time::timeout(self.patience, asked).await.unwrap_or_else(|_| {
            Err(AskError::Away {
                url: self.url.clone(),
                message: format!("nothing heard for {} s", self.patience.as_secs()),
            })
        })
    }

    /// A refusal: the server's Status, or the text that stands there instead.
    fn refused(&self, code: u16, body: &[u8]) -> AskError {
        match serde_json::from_slice::<kube::core::Status>(body) {
            Ok(status) => self.explain(kube::Error::Api(Box::new(status))),
            Err(_) => {
                let message = String::from_utf8_lossy(&body[..body.len().min(1024)]).trim().to_owned();
                AskError::Refused { code, message }
            }
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

/// Whether a text that others wrote may be a part of a path of an API: small letters, digits, dashes and dots. An empty one
/// may.
pub fn is_path_part(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    text.chars().all(fits) && !text.contains("..") && text.len() <= 253
}

/// The innermost error of a chain: the one with the cause (`Connection refused`).
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, response::Response};
    use serde_json::json;

    use super::*;

    /// A server that answers every request with what `answer` makes of its path.
    fn server(name: &str, answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> Server {
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let answer = answer(&request.uri().to_string());
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let client = Client::new(service, "default");
        Server { client, name: name.to_owned(), url: "it".to_owned(), patience: MEMBER_PATIENCE }
    }

    #[tokio::test]
    async fn a_member_fills_no_memory() {
        let large = |_: &str| Response::new(Body::from(vec![b' '; MEMBER_ANSWER_MAX + 1]));
        let member = server("east", large);
        let why = member.object("/x").await.expect_err("too large").to_string();
        assert_eq!(why, "it answers with something unexpected: more than 33554432 bytes");
        let why = member.text("/x", 1_000).await.expect_err("too large").to_string();
        assert_eq!(why, "it answers with something unexpected: more than 1000 bytes");
        // Pages that each say that there is one more.
        let endless = |_: &str| {
            let items = vec![json!({"kind": "Pod"}); 3];
            Response::new(Body::from(json!({"metadata": {"continue": "more"}, "items": items}).to_string()))
        };
        let most = Selectors { most: Some(10), ..Selectors::default() };
        let listed = server("east", endless).list("/pods", &most, "application/json").await.expect("a list");
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(10));
        assert!(listed["metadata"]["continue"].is_null());
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_servers_words() {
        let refuses = |path: &str| {
            let body = match path.contains("status") {
                true => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such pod",
                    "reason": "NotFound", "code": 404})
                .to_string(),
                false => "out of order\n".to_owned(),
            };
            let mut answer = Response::new(Body::from(body));
            *answer.status_mut() =
                http::StatusCode::from_u16(if path.contains("status") { 404 } else { 500 })
                    .expect("a status");
            answer
        };
        let member = server("east", refuses);
        let error = member.object("/status").await.expect_err("a refusal");
        assert!(error.is_not_found() && error.to_string() == "no such pod", "{error}");
        let error = member.object("/x").await.expect_err("a refusal");
        assert_eq!((error.status(), error.to_string()), (502, "out of order".to_owned()));
    }
}
