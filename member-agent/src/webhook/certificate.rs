//! The webhook's certificate. Behind a Service all agents of a member answer with the same one, which is in a Secret
//! of the member: the registration has one certificate, and nobody knows which agent a review reaches.

use anyhow::Context as _;
use fleet_agent_ground::{Backoff, CallError, call};
use fleet_api::names;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;

/// Secret of the member's `fleet-system` with certificate and key.
const SECRET: &str = "fleet-agent-webhook";
/// Its annotation with the name for which the certificate was generated.
const FOR_ANNOTATION: &str = "fleet.dev/certificate-for";

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub certificate_pem: String,
    key_pem: String,
}

impl Pair {
    pub fn certificate(&self) -> anyhow::Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .with_context(|| format!("webhook: Secret {SECRET}, field tls.crt: allowed: a certificate"))
    }

    pub fn key(&self) -> anyhow::Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .with_context(|| format!("webhook: Secret {SECRET}, field tls.key: allowed: a private key"))
    }
}

/// A new certificate for a name or an address.
pub(super) fn generate(name: String) -> anyhow::Result<Pair> {
    let drawn =
        rcgen::generate_simple_self_signed([name]).context("webhook: cannot generate a certificate")?;
    Ok(Pair { certificate_pem: drawn.cert.pem(), key_pem: drawn.signing_key.serialize_pem() })
}

/// The certificate of all agents of this member for the name of their Service. The first one generates it; retries
/// until the member answers.
pub(super) async fn shared(member: &Client, name: &str) -> anyhow::Result<Pair> {
    let own = generate(name.to_owned())?;
    let mut backoff = Backoff::new("webhook/certificate");
    loop {
        match stored(member, name, &own).await {
            Ok(Some(pair)) => return Ok(pair),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot share the webhook's certificate; retrying"),
        }
        backoff.wait().await;
    }
}

/// What is stored for the name, or `own` once that is; `None`: somebody else was faster.
async fn stored(member: &Client, name: &str, own: &Pair) -> Result<Option<Pair>, CallError> {
    let secrets: Api<Secret> = Api::namespaced(member.clone(), names::MEMBER_NAMESPACE);
    let known = call(secrets.get_opt(SECRET)).await?;
    if let Some(pair) = known.as_ref().and_then(|secret| read(secret, name)) {
        return Ok(Some(pair));
    }
    let mut body = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": names::MEMBER_NAMESPACE,
            "annotations": {FOR_ANNOTATION: name}},
        "stringData": {"tls.crt": own.certificate_pem, "tls.key": own.key_pem},
    });
    let written = match known {
        // Of another Service, or not readable.
        Some(known) => {
            body["metadata"]["resourceVersion"] = json!(known.metadata.resource_version);
            call(secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&body))).await
        }
        None => {
            let secret = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            call(secrets.create(&PostParams::default(), &secret)).await
        }
    };
    match written {
        Ok(_) => Ok(Some(own.clone())),
        Err(error) if error.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(secret: &Secret, name: &str) -> Option<Pair> {
    let is_for = secret.metadata.annotations.as_ref()?.get(FOR_ANNOTATION)?;
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let pair = Pair { certificate_pem: text("tls.crt")?, key_pem: text("tls.key")? };
    (is_for == name && pair.certificate().is_ok() && pair.key().is_ok()).then_some(pair)
}
