//! Who a certificate is asked for.
//!
//! Inputs: CertificateSigningRequests as stored. Absent on purpose: whether the request is well formed (its kind checks
//! that), and who signs it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_ground::tree;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// The subject of a request.
pub struct Subject {
    /// Its common name, or "".
    pub name: String,
    /// Its organizations: the groups of the holder.
    pub organizations: Vec<String>,
}

/// The subject of a CertificateSigningRequest, if its request can be read.
pub fn subject(request: &Value) -> Option<Subject> {
    let bytes = STANDARD.decode(tree::text(request, &["spec", "request"])).ok()?;
    let block = Pem::iter_from_buffer(&bytes).next()?.ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&block.contents).ok()?;
    let subject = &parsed.certification_request_info.subject;
    let names = subject.iter_common_name().filter_map(|name| name.as_str().ok());
    let organizations = subject.iter_organization().filter_map(|name| name.as_str().ok());
    Some(Subject {
        name: names.last().unwrap_or_default().to_string(),
        organizations: organizations.map(str::to_string).collect(),
    })
}
