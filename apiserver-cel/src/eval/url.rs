//! URLs: an absolute one, or an absolute path.
//!
//! Source: RFC 3986, as the real server reads it. Nothing is normalised but the scheme.

use super::outcome::{Outcome, failed};
use super::value::{Key, Value};
use kube_cel::cel::objects::Opaque;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A URL by its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    /// What follows the scheme of a URL without a path.
    opaque: String,
    user: String,
    host: String,
    /// As it was written.
    path: String,
    query: String,
}

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    match (name, values) {
        ("isURL", [Value::Text(text)]) => Some(Ok(Value::Bool(Url::parse(text).is_ok()))),
        ("url", [Value::Text(text)]) => Some(match Url::parse(text) {
            Ok(url) => Ok(Value::Library(Arc::new(url))),
            Err(why) => {
                failed(format!("URL parse error during conversion from string: parse {text:?}: {why}"))
            }
        }),
        (name, [Value::Library(url)]) => {
            let url = url.downcast_ref::<Url>()?;
            let text = match name {
                "getScheme" => url.scheme.clone(),
                "getHost" => url.host.clone(),
                "getHostname" => url.name_and_port().0.to_string(),
                "getPort" => url.name_and_port().1.to_string(),
                "getEscapedPath" => url.escaped_path(),
                "getQuery" => return Some(Ok(text_lists(url.queries()))),
                _ => return None,
            };
            Some(Ok(Value::text(text)))
        }
        _ => None,
    }
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is none, in the words of the real server.
    pub fn parse(text: &str) -> Result<Url, String> {
        let invalid = || "invalid URI for request".to_string();
        if text.is_empty() {
            return Err("empty url".into());
        }
        if text.chars().any(|c| c.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".into());
        }
        let mut url = Url::default();
        if text == "*" {
            url.path = text.to_string();
            return Ok(url);
        }
        let (scheme, rest) = scheme_of(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        unescaped(fragment)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.to_string();
        if !rest.starts_with('/') {
            if url.scheme.is_empty() {
                return Err(invalid());
            }
            url.opaque = rest.to_string();
            return Ok(url);
        }
        let mut path = rest;
        let named = !url.scheme.is_empty() || !rest.starts_with("///");
        if let Some(authority) = rest.strip_prefix("//").filter(|_| named) {
            let end = authority.find('/').unwrap_or(authority.len());
            let (user, host) = authority[..end].rsplit_once('@').unwrap_or(("", &authority[..end]));
            url.user = checked_user(user)?;
            url.host = checked_host(host)?;
            path = &authority[end..];
        }
        unescaped(path)?;
        url.path = path.to_string();
        Ok(url)
    }

    fn name_and_port(&self) -> (&str, &str) {
        if let Some((name, rest)) = self.host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return (name, rest.trim_start_matches(':'));
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }

    fn escaped_path(&self) -> String {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&b);
        if self.path.bytes().all(known) {
            return self.path.clone();
        }
        let bytes = unescaped(&self.path).unwrap_or_default();
        bytes.iter().fold(String::new(), |out, b| match b {
            b if b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(b) => {
                out + &char::from(*b).to_string()
            }
            b => out + &format!("%{b:02X}"),
        })
    }

    fn queries(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for part in self.query.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let plain = |text: &str| {
                let bytes = unescaped(&text.replace('+', " ")).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            };
            if let (Some(key), Some(value)) = (plain(key), plain(value)) {
                found.entry(key).or_default().push(value);
            }
        }
        found
    }
}

/// The scheme and what follows it.
fn scheme_of(text: &str) -> Result<(&str, &str), String> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme".into()),
            ':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn checked_user(user: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if user.chars().all(known) { Ok(user.to_string()) } else { Err("net/url: invalid userinfo".into()) }
}

fn checked_host(host: &str) -> Result<String, String> {
    let port = match host.strip_prefix('[') {
        Some(inner) => inner.rfind(']').map(|end| &inner[end + 1..]).ok_or("missing ']' in host")?,
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if (!port.is_empty() && !port.starts_with(':')) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("invalid port {port:?} after host"));
    }
    let strange =
        |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if let Some(c) = host.chars().find(|c| strange(*c)) {
        return Err(format!("invalid character {:?} in host name", c.to_string()));
    }
    let plain = unescaped(host)?;
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let (bytes, mut out, mut i) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while i < bytes.len() {
        if bytes[i] != b'%' {
            out.push(bytes[i]);
            i += 1;
            continue;
        }
        let code = text.get(i + 1..i + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let Some(code) = code.filter(|_| bytes[i + 1].is_ascii_hexdigit()) else {
            let shown: String = text[i..].chars().take(3).collect();
            return Err(format!("invalid URL escape {shown:?}"));
        };
        out.push(code);
        i += 3;
    }
    Ok(out)
}

/// The entries of a map of texts to lists of texts.
fn text_lists(entries: impl IntoIterator<Item = (String, Vec<String>)>) -> Value {
    let list = |texts: Vec<String>| Value::list(texts.into_iter().map(Value::text).collect());
    Value::map(entries.into_iter().map(|(key, texts)| (Key::Text(key.as_str().into()), list(texts))))
}
