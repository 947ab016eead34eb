//! Certificates: the server's own authority, the certificates that it signs, and the identity in a client's
//! certificate.
//!
//! Inputs: a data directory, names, and the certificates of connections. The authority is in `pki/ca.crt` and
//! `pki/ca.key`. Anything that can sign with those (openssl) can make client certificates, too.

use crate::access::user::{CREDENTIAL_ID, Certified, User};
use fleet_apiserver_ground::private;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Object identifier of the organization in a name.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The certificate authority of a server.
pub struct Authority {
    /// Certificate in PEM form.
    pub ca_pem: String,
    key_pem: String,
}

impl Authority {
    /// Reads the authority stored in a directory, or makes one.
    pub fn open(dir: Option<&Path>) -> Result<Authority, (PathBuf, String)> {
        let Some(dir) = dir.map(|d| d.join("pki")) else {
            return Authority::make().map_err(|e| (PathBuf::new(), e));
        };
        let (cert, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        let at = |p: &Path, e: std::io::Error| (p.to_path_buf(), e.to_string());
        if cert.exists() && key.exists() {
            let authority = Authority {
                ca_pem: std::fs::read_to_string(&cert).map_err(|e| at(&cert, e))?,
                key_pem: std::fs::read_to_string(&key).map_err(|e| at(&key, e))?,
            };
            authority.issuer().map_err(|e| (key, e))?;
            return Ok(authority);
        }
        let authority = Authority::make().map_err(|e| (dir.clone(), e))?;
        private::directory(&dir).map_err(|e| at(&dir, e))?;
        private::write(&cert, &authority.ca_pem).map_err(|e| at(&cert, e))?;
        private::write(&key, &authority.key_pem).map_err(|e| at(&key, e))?;
        Ok(authority)
    }

    fn make() -> Result<Authority, String> {
        let key = KeyPair::generate().map_err(|e| e.to_string())?;
        let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
        params.distinguished_name.push(DnType::CommonName, "fleet-apiserver-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let cert = params.self_signed(&key).map_err(|e| e.to_string())?;
        Ok(Authority { ca_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, String> {
        let key = KeyPair::from_pem(&self.key_pem).map_err(|e| e.to_string())?;
        Issuer::from_ca_cert_pem_checked(&self.ca_pem, key)
    }

    /// A certificate of the server itself, for these names and addresses.
    pub fn leaf(&self, sans: &[String]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), String> {
        let key = KeyPair::generate().map_err(|e| e.to_string())?;
        let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
        params.distinguished_name.push(DnType::CommonName, "fleet-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in sans {
            let san = match name.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(
                    name.as_str().try_into().map_err(|_| format!("{name:?} is not a DNS name"))?,
                ),
            };
            params.subject_alt_names.push(san);
        }
        let cert = params.signed_by(&key, &self.issuer()?).map_err(|e| e.to_string())?;
        Ok((cert.der().clone(), PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))))
    }

    /// A client certificate and its key, in PEM form: the user is the common name, the groups are the organizations.
    pub fn client(
        &self,
        user: &str,
        groups: &[&str],
        last_day: jiff::civil::Date,
    ) -> Result<(String, String), String> {
        let key = KeyPair::generate().map_err(|e| e.to_string())?;
        let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
        params.distinguished_name.push(DnType::CommonName, user);
        for (i, group) in groups.iter().enumerate() {
            // The library has one value for each type of name; a second one uses the type's object identifier.
            let kind = match i {
                0 => DnType::OrganizationName,
                1 => DnType::CustomDnType(ORGANIZATION.to_vec()),
                _ => {
                    return Err(format!("found {} groups; allowed: two in one certificate", groups.len()));
                }
            };
            params.distinguished_name.push(kind, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (month, day) = (last_day.month().unsigned_abs(), last_day.day().unsigned_abs());
        params.not_after = rcgen::date_time_ymd(i32::from(last_day.year()), month, day);
        let cert = params.signed_by(&key, &self.issuer()?).map_err(|e| e.to_string())?;
        Ok((cert.pem(), key.serialize_pem()))
    }
}

trait CheckedIssuer: Sized {
    fn from_ca_cert_pem_checked(pem: &str, key: KeyPair) -> Result<Self, String>;
}

impl CheckedIssuer for Issuer<'static, KeyPair> {
    fn from_ca_cert_pem_checked(_pem: &str, key: KeyPair) -> Result<Self, String> {
        // The subject and the key are all that signing needs; both are fixed by `make`.
        let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
        params.distinguished_name.push(DnType::CommonName, "fleet-apiserver-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Issuer::new(params, key))
    }
}

/// Requests a certificate from every client, and accepts clients with none or an unknown one. The request door
/// answers those with 401 and a reason, which a broken handshake could not.
#[derive(Debug, Clone)]
pub struct AskForCertificate(Arc<dyn ClientCertVerifier>);

impl AskForCertificate {
    /// Trusts certificates of this authority.
    pub fn new(ca_pem: &str, provider: Arc<CryptoProvider>) -> Result<AskForCertificate, String> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|e| e.to_string())?;
        roots.add(ca).map_err(|e| e.to_string())?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|e| e.to_string())?;
        Ok(AskForCertificate(verifier))
    }

    /// The identity in a connection's certificates; None without any.
    pub fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<Certified> {
        let (first, rest) = chain?.split_first()?;
        let known = self.0.verify_client_cert(first, rest, UnixTime::now()).is_ok();
        Some(user_of(first).filter(|_| known).map_or(Certified::Unknown, Certified::User))
    }
}

impl ClientCertVerifier for AskForCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Checked by `identify` after the handshake, which has proven that the client holds the key.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The user a certificate names: common name, organizations, and its fingerprint.
fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_string();
    let groups: Option<Vec<String>> =
        subject.iter_organization().map(|o| o.as_str().ok().map(str::to_string)).collect();
    let mut groups = groups?;
    groups.push(crate::access::user::AUTHENTICATED.into());
    let print = fleet_apiserver_ground::digest::hex(&fleet_apiserver_ground::digest::sha256(certificate));
    let extra = [(CREDENTIAL_ID.to_string(), vec![format!("X509SHA256={print}")])].into();
    (!name.is_empty()).then_some(User { name, groups, uid: String::new(), extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pem: &str, authority: &Authority) -> Option<Certified> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        AskForCertificate::new(&authority.ca_pem, provider).unwrap().identify(Some(&[der]))
    }

    #[test]
    fn certificates_name_users_and_groups() {
        let ours = Authority::open(None).unwrap();
        let (later, earlier) = (jiff::civil::date(2100, 1, 1), jiff::civil::date(2020, 1, 1));
        let (pem, _) = ours.client("ann", &["dev", "ops"], later).unwrap();
        let Some(Certified::User(ann)) = look(&pem, &ours) else { panic!("ann is not known") };
        assert_eq!(
            (ann.name.as_str(), &ann.groups[..2]),
            ("ann", &["dev".to_string(), "ops".to_string()][..])
        );
        assert!(ann.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        let (old, _) = ours.client("ann", &[], earlier).unwrap();
        assert_eq!(look(&old, &ours), Some(Certified::Unknown), "expired");
        let other = Authority::open(None).unwrap();
        let (forged, _) = other.client("ann", &["system:masters"], later).unwrap();
        assert_eq!(look(&forged, &ours), Some(Certified::Unknown), "another authority");
    }
}
