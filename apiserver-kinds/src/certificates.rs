//! Requests for certificates: what may be asked for, who decides, and what is issued.
//!
//! Inputs: decoded objects. Source: the validation of Kubernetes 1.36. Absent on purpose: the times of conditions, and
//! what a signer cannot change (see `signing`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::{go_text, names, pem};
use serde_json::json;
use std::collections::BTreeSet;
use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer, X509CertificationRequest};
use x509_parser::public_key::PublicKey;

/// Shortest life that may be asked for, in seconds.
const SHORTEST: i64 = 600;

/// Checks a CertificateSigningRequest.
pub fn request(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    if old.is_none() {
        let (asked, usages) = (spec.at("request"), spec.at("usages"));
        if let Some(why) = request_problem(asked.text()) {
            asked.note(Cause::invalid(asked.path(), &json!(asked.text()), &why));
        }
        if usages.is_empty() {
            usages.required("");
        }
        self::usages(&usages);
        signer_name(&spec.at("signerName"));
        let seconds = spec.at("expirationSeconds");
        if seconds.number().is_some_and(|n| n < SHORTEST) {
            seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
        }
    }
    let (list, before) = (new.at("status.conditions"), old.map(|old| old.at("status.conditions")));
    conditions(&list, before.as_ref());
    let certificate = new.at("status.certificate");
    let issued = old.map_or("", |old| old.at("status.certificate").text());
    if certificate.text() != issued
        && !(certificate.text().is_empty() || chain_problem(issued).is_some())
        && let Some(why) = chain_problem(certificate.text())
    {
        certificate.tell("<certificate data>", &[why]);
    }
    if let Some(before) = &before {
        decided(&list, before, subresource);
    }
    if certificate.text() != issued && !issued.is_empty() {
        certificate.forbidden("updates may not modify existing certificate content");
    }
}

/// The text that is sent in base64; what is no text in it is nothing of ours.
fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&STANDARD.decode(text).unwrap_or_default()).into_owned()
}

/// Why a base64 text is no request that its own key signed, or None.
fn request_problem(text: &str) -> Option<String> {
    let text = decoded(text);
    let Some((block, _)) = pem::next_block(&text).filter(|(block, _)| block.label == "CERTIFICATE REQUEST")
    else {
        return Some("PEM block type must be CERTIFICATE REQUEST".into());
    };
    match X509CertificationRequest::from_der(&block.contents) {
        Ok((_, asked)) => signature_problem(&asked).map(str::to_string),
        Err(e) => Some(e.to_string()),
    }
}

/// Why a signature is not by the key of the request. Of algorithms and sizes that are not known here it is believed.
fn signature_problem(asked: &X509CertificationRequest) -> Option<&'static str> {
    let why = match asked.certification_request_info.subject_pki.parsed() {
        Ok(PublicKey::RSA(key)) if (2048..=8192).contains(&key.key_size()) => {
            "crypto/rsa: verification error"
        }
        Ok(PublicKey::RSA(_)) => return None,
        Ok(PublicKey::EC(_)) => "x509: ECDSA verification failure",
        _ => "x509: Ed25519 verification failure",
    };
    matches!(asked.verify_signature(), Err(X509Error::SignatureVerificationError)).then_some(why)
}

/// Why a base64 text is no chain of certificates, or None. An empty one is none yet.
fn chain_problem(text: &str) -> Option<String> {
    let text = decoded(text);
    let (mut rest, mut is_empty) = (text.as_str(), true);
    while let Some((block, after)) = pem::next_block(rest) {
        if block.label != pem::CERTIFICATE {
            let found = go_text::quoted(&block.label);
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {found}"));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".into());
        }
        if block.contents.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        if let Some(why) = pem::certificate_problem(&block.contents) {
            return Some(why.into());
        }
        (rest, is_empty) = (after, false);
    }
    (is_empty && !text.is_empty()).then(|| "must contain at least one CERTIFICATE PEM block".into())
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Those that are not known, and then those that are said before.
fn usages(list: &At) {
    for usage in list.items().filter(|usage| !USAGES.contains(&usage.text())) {
        usage.unsupported(&USAGES);
    }
    let mut seen = BTreeSet::new();
    for usage in list.items() {
        if !seen.insert(usage.text()) {
            usage.duplicate();
        }
    }
}

/// Most characters of the domain of a signer.
const LONGEST_DOMAIN: usize = 253;
/// The domain, a slash, and a path with room for a namespace and a name.
const LONGEST_SIGNER: usize = LONGEST_DOMAIN + 1 + 253 + 63 + 1;

fn signer_name(signer: &At) {
    if signer.text().is_empty() {
        signer.required("");
        return;
    }
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version");
        return;
    }
    let parts = signer.text().split_once('/').filter(|(_, path)| !path.contains('/'));
    let Some((domain, path)) = parts else {
        signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'");
        return;
    };
    if domain.len() > LONGEST_DOMAIN {
        signer.too_long(LONGEST_DOMAIN);
    }
    signer.tell(domain, &first_wrong(domain, names::label));
    if !domain.contains('.') {
        signer.tell(domain, &["should be a domain with at least two segments separated by dots"]);
    }
    signer.tell(path, &first_wrong(path, names::subdomain));
    if signer.text().len() > LONGEST_SIGNER {
        signer.too_long(LONGEST_SIGNER);
    }
}

/// What is wrong with the first label that is wrong; later ones are not looked at.
fn first_wrong(part: &str, rule: fn(&str) -> Vec<String>) -> Vec<String> {
    let told = |label: &str| {
        let whys = rule(label).into_iter();
        whys.map(|why| format!("validating label {}: {why}", go_text::quoted(label))).collect::<Vec<_>>()
    };
    part.split('.').map(told).find(|whys| !whys.is_empty()).unwrap_or_default()
}

fn conditions(list: &At, before: Option<&At>) {
    let of_before = |kind: &str| before.is_some_and(|before| count(before, kind) > 0);
    // What was stored with both decisions, or one of them twice, stays as it is.
    let (both, twice) = (of_before("Approved") && of_before("Denied"), before.is_some_and(has_twice));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for condition in list.items() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        kind.need();
        if matches!(kind.text(), "Approved" | "Denied" | "Failed") {
            status.need_one_of(&["True"]);
        } else {
            status.need_one_of(&["False", "True", "Unknown"]);
        }
        let other = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !both && !other.is_empty() && seen.contains(other) {
            let why = "Approved and Denied conditions are mutually exclusive";
            list.note(Cause::invalid(list.path(), kind.value(), why));
        }
        if !seen.insert(kind.text()) && !twice {
            kind.duplicate();
        }
    }
}

fn count(list: &At, kind: &str) -> usize {
    list.items().filter(|condition| condition.at("type").text() == kind).count()
}

fn has_twice(list: &At) -> bool {
    let mut seen = BTreeSet::new();
    list.items().any(|condition| !seen.insert(condition.at("type").text()))
}

/// What is decided stays decided, and only an approver decides. A signer cannot change a decision at all (see
/// `signing`), and a write of the object has no status.
fn decided(list: &At, before: &At, subresource: &str) {
    for kind in ["Approved", "Denied", "Failed"] {
        if count(list, kind) < count(before, kind) {
            list.forbidden(&format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in ["Approved", "Denied"] {
        if subresource == "status" && count(list, kind) > count(before, kind) {
            list.forbidden(&format!("updates may not add a condition of type {kind:?}"));
        }
    }
}
