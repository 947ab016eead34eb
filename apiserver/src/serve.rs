//! The network door: TLS with the server's own certificate authority, HTTP/1.1 and HTTP/2.
//!
//! Inputs: a server and an address. Absent on purpose: plain HTTP and client certificates.

use crate::auth::Door;
use crate::server::{self, Core};
use axum::body::Body;
use base64::Engine;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where to listen.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Further host names or addresses of the certificate.
    pub extra_sans: Vec<String>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), extra_sans: Vec::new() }
    }
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {0}: {1}; choose another address or port (port 0 picks a free one)")]
    Listen(SocketAddr, std::io::Error),
    /// The certificate could not be made.
    #[error("cannot make the server certificate: {0}")]
    Certificate(String),
}

/// The certificate authority of a server.
pub struct Authority {
    /// Certificate in PEM form.
    pub ca_pem: String,
    key_pem: String,
}

/// Life of a handshake before it is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time open connections get to end.
const GOODBYE: Duration = Duration::from_millis(500);

impl Authority {
    /// Reads the authority kept in a directory, or makes one.
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
        std::fs::create_dir_all(&dir).map_err(|e| at(&dir, e))?;
        std::fs::write(&cert, &authority.ca_pem).map_err(|e| at(&cert, e))?;
        write_private(&key, &authority.key_pem).map_err(|e| at(&key, e))?;
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

    fn leaf(&self, sans: &[String]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), String> {
        let key = KeyPair::generate().map_err(|e| e.to_string())?;
        let mut params = CertificateParams::new(Vec::new()).map_err(|e| e.to_string())?;
        params.distinguished_name.push(DnType::CommonName, "fleet-apiserver");
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

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// A listening server.
pub struct Server {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// The address that was bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The certificate authority, in PEM form.
    pub fn ca_pem(&self) -> String {
        self.ca_pem.clone()
    }

    /// A kubeconfig with the authority and the administrator's token inside.
    pub fn kubeconfig(&self, context_name: &str) -> String {
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => "127.0.0.1".to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        let name = serde_json::Value::from(context_name);
        let (port, token) = (self.address.port(), &self.token);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  cluster:\n    \
             server: https://{host}:{port}\n    certificate-authority-data: {ca}\nusers:\n- name: {name}\n  user:\n    \
             token: {token}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n"
        )
    }

    /// Stops listening; open connections are closed.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Binds and starts accepting.
pub async fn serve(
    core: Arc<Core>,
    authority: &Authority,
    token: String,
    options: ServeOptions,
) -> Result<Server, ServeError> {
    let mut sans: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(String::from)
            .to_vec();
    if !options.listen.ip().is_unspecified() {
        sans.push(options.listen.ip().to_string());
    }
    sans.extend(options.extra_sans.iter().cloned());
    sans.sort();
    sans.dedup();
    let (cert, key) = authority.leaf(&sans).map_err(ServeError::Certificate)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ServeError::Certificate(e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .map_err(|e| ServeError::Certificate(e.to_string()))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listen = |e| ServeError::Listen(options.listen, e);
    let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let stop = core.closing.child_token();
    let tasks = TaskTracker::new();
    let server =
        Server { address, ca_pem: authority.ca_pem.clone(), token, stop: stop.clone(), tasks: tasks.clone() };
    let accepting = tasks.clone();
    tasks.spawn(async move {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    accepting.spawn(connection(core.clone(), acceptor.clone(), stream, stop.clone()));
                }
                Err(e) => {
                    tracing::warn!(error = %e, "a connection could not be accepted");
                    // Out of descriptors: waiting a moment lets some close.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    });
    Ok(server)
}

async fn connection(
    core: Arc<Core>,
    acceptor: tokio_rustls::TlsAcceptor,
    stream: TcpStream,
    stop: CancellationToken,
) {
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let core = core.clone();
        async move {
            Ok::<_, std::convert::Infallible>(
                server::handle(core, Door::Network, request.map(Body::new)).await,
            )
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1000);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        () = stop.cancelled() => {
            // Requests under way and watches get a moment to end cleanly.
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(GOODBYE, connection).await;
        }
        _ = connection.as_mut() => {}
    }
}
