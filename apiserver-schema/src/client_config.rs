//! How a webhook is reached: by a URL, or by a service of the cluster; and which versions of a review it knows.
//!
//! Inputs: the configuration of a client, as webhooks and conversions have it. Source: Kubernetes 1.36. Absent on purpose:
//! whether anybody answers.

use crate::field::At;
use crate::{names, pem};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
use serde_json::json;
use std::collections::BTreeSet;

/// Versions of a review of which a webhook knows at least one.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Checks the versions of a review; `missing` says what is wrong with none.
pub fn review_versions(list: &At, missing: &str) {
    if list.is_empty() {
        list.required(missing);
        return;
    }
    let mut seen = BTreeSet::new();
    for version in list.items() {
        if !seen.insert(version.text()) {
            version.invalid("duplicate version");
        } else {
            version.tell(version.text(), &names::label_1035(version.text()));
        }
    }
    if !VERSIONS.iter().any(|known| seen.contains(known)) {
        list.invalid(&format!("must include at least one of {}", VERSIONS.join(", ")));
    }
}

/// Why a bundle of certificates, in base64, is not one that a client can trust, or None.
pub fn bundle_problem(bundle: &str) -> Option<String> {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    if bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes);
    let (mut rest, mut wrong) = (&*text, None);
    while let Some((block, after)) = pem::next_block(rest) {
        rest = after;
        if block.label != pem::CERTIFICATE || block.has_headers {
            continue;
        }
        match pem::certificate_problem(&block.contents) {
            None => return None,
            Some(why) => wrong = wrong.or(Some(format!("failed to parse certificate: {why}"))),
        }
    }
    let why = match wrong {
        Some(why) => why,
        None if rest.is_empty() => "no valid certificate authority data seen".into(),
        None => "unable to parse bytes as PEM block".into(),
    };
    Some(format!("unable to load root certificates: {why}"))
}

/// Checks how a webhook is reached.
pub fn check(config: &At) {
    let (url, service) = (config.at("url"), config.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => check_url(&url),
        (false, true) => check_service(&service),
        _ => config.required("exactly one of url or service is required"),
    }
}

fn check_url(at: &At) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match Url::parse(at.text()) {
        Ok(url) => url,
        Err(why) => {
            at.required(&format!(
                "url must be a valid URL: parse {}: {why}{FORM}",
                go_text::quoted(at.text())
            ));
            return;
        }
    };
    let wrong = |found: &str, why: &str| at.note(Cause::invalid(at.path(), &json!(found), why));
    if url.scheme != "https" {
        wrong(&url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        wrong("", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        wrong(url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        wrong(url.query, "query parameters are not permitted in the URL");
    }
}

/// The parts of a URL that a webhook's has, or must not have.
struct Url<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl Url<'_> {
    fn parse(text: &str) -> Result<Url<'_>, String> {
        if text.chars().any(|c| c.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".into());
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_scheme = |s: &str| {
            s.starts_with(|c: char| c.is_ascii_alphabetic())
                && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        let (scheme, rest) = match rest.split_once(':') {
            Some(("", _)) => return Err("missing protocol scheme".into()),
            Some((scheme, below)) if is_scheme(scheme) => (scheme.to_lowercase(), below),
            Some((first, _)) if !first.contains('/') => {
                return Err("first path segment in URL cannot contain colon".into());
            }
            _ => (String::new(), rest),
        };
        let authority = rest.strip_prefix("//").unwrap_or_default();
        let authority = authority.split_once('/').map_or(authority, |(authority, _)| authority);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if let Some(c) =
            host.chars().find(|c| matches!(c, ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'))
        {
            return Err(format!("invalid character {:?} in host name", c.to_string()));
        }
        // An address of IPv6 has colons of its own, in brackets.
        let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
        match after.split_once(':') {
            Some((_, port)) if !port.bytes().all(|b| b.is_ascii_digit()) => {
                Err(format!("invalid port {:?} after host", format!(":{port}")))
            }
            _ => Ok(Url { scheme, user, host, query, fragment }),
        }
    }
}

fn check_service(service: &At) {
    // The real server takes one for the other: each is told where the other one is missing.
    for (field, other) in [("name", "namespace"), ("namespace", "name")] {
        if service.at(other).text().is_empty() {
            service.at(field).required("");
        }
    }
    let (port, path) = (service.at("port"), service.at("path"));
    if port.number().is_some_and(|n| !(1..=65_535).contains(&n)) {
        port.invalid("port is not valid: must be between 1 and 65535, inclusive");
    }
    let text = path.text();
    match text {
        "" | "/" => return,
        "//" => return path.invalid("segment[0] may not be empty"),
        _ => {}
    }
    if !text.starts_with('/') {
        path.invalid("must start with a '/'");
    }
    // Whatever the first character is, the steps begin behind it.
    let below = text.char_indices().nth(1).map_or("", |(at, _)| &text[at..]);
    for (i, step) in below.strip_suffix('/').unwrap_or(below).split('/').enumerate() {
        if step.is_empty() {
            path.invalid(&format!("segment[{i}] may not be empty"));
        } else {
            for why in names::subdomain(step) {
                path.invalid(&format!("segment[{i}]: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
