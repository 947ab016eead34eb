//! What a real `kube-apiserver` needs to be trusted and to know its administrator: a certificate authority,
//! a serving certificate, keys for service accounts, a file of tokens, and the kubeconfig over all that.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Group that may do everything.
const MASTERS: &str = "system:masters";

/// Written once per server.
pub struct Credentials {
    pub ca_pem: String,
    pub token: String,
}

impl Credentials {
    /// Makes all of them and writes the server's files into `folder`.
    ///
    /// # Errors
    /// A certificate cannot be made or a file cannot be written.
    pub fn make(folder: &Path) -> anyhow::Result<Self> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.distinguished_name.push(DnType::CommonName, "fleet-tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let serving_key = KeyPair::generate()?;
        let mut serving = CertificateParams::new(vec!["localhost".to_string()])?;
        serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        serving.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let serving = serving.signed_by(&serving_key, &issuer)?;

        let accounts = KeyPair::generate()?;
        // The key pair is as good a source of randomness as any, and needs no further crate.
        let token: String =
            KeyPair::generate()?.public_key_raw().iter().map(|byte| format!("{byte:02x}")).collect();
        let write = |name: &str, text: String| {
            fs::write(folder.join(name), text).with_context(|| format!("{}/{name}", folder.display()))
        };
        write("serving.crt", serving.pem())?;
        write("serving.key", serving_key.serialize_pem())?;
        // A public key here, not the pair: kube-apiserver reads elliptic keys of this form only.
        write("accounts.pub", accounts.public_key_pem())?;
        write("accounts.key", accounts.serialize_pem())?;
        write("tokens.csv", token_line(&token))?;
        Ok(Self { ca_pem, token })
    }
}

/// One line of a token file: token, user, uid, groups.
fn token_line(token: &str) -> String {
    format!("{token},admin,admin,\"{MASTERS}\"\n")
}

/// A kubeconfig with the authority and the token inside.
pub fn kubeconfig(name: &str, url: &str, credentials: &Credentials) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {
            "server": url, "certificate-authority-data": STANDARD.encode(&credentials.ca_pem)}}],
        "users": [{"name": name, "user": {"token": credentials.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_server_reads_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let credentials = Credentials::make(folder.path()).expect("made");
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
        for (name, kind) in [
            ("serving.crt", "BEGIN CERTIFICATE"),
            ("serving.key", "BEGIN PRIVATE KEY"),
            ("accounts.pub", "BEGIN PUBLIC KEY"),
            ("accounts.key", "BEGIN PRIVATE KEY"),
        ] {
            assert!(text(name).contains(kind), "{name}");
        }
        assert_eq!(text("tokens.csv"), token_line(&credentials.token));
        assert!(credentials.token.len() >= 64);
        let config = kubeconfig("hub", "https://127.0.0.1:1", &credentials);
        let read = kube::config::Kubeconfig::from_yaml(&config).expect("a kubeconfig");
        assert_eq!(read.current_context.as_deref(), Some("hub"));
    }
}
