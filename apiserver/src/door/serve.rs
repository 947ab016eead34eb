//! The TLS listener with the server's own certificate authority, HTTP/1.1 and HTTP/2.
//!
//! Inputs: a server and an address. Client certificates are requested, and checked once for each connection. Absent
//! on purpose: plain HTTP.

use crate::door::server;
use axum::body::Body;
use base64::Engine;
use fleet_apiserver_admission::access::pki::{AskForCertificate, Authority};
use fleet_apiserver_admission::access::shares::Guest;
use fleet_apiserver_admission::access::user::{Certified, Door};
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::private;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
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

/// Life of a handshake before it is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time open connections get to end.
const GOODBYE: Duration = Duration::from_millis(500);
/// Time a client has for the head of an HTTP/1.1 request.
const HEADERS: Duration = Duration::from_secs(30);
/// Time a connection has for its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

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

    /// Writes the kubeconfig to a file that only its owner may read; a reader never sees half of it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, context_name: &str) -> std::io::Result<()> {
        private::write(path, &self.kubeconfig(context_name))
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
    let asking =
        AskForCertificate::new(&authority.ca_pem, provider.clone()).map_err(ServeError::Certificate)?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ServeError::Certificate(e.to_string()))?
        .with_client_cert_verifier(Arc::new(asking.clone()))
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
                    let doorway = Doorway { acceptor: acceptor.clone(), asking: asking.clone() };
                    accepting.spawn(connection(core.clone(), doorway, stream, stop.clone()));
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

#[derive(Clone)]
struct Doorway {
    acceptor: tokio_rustls::TlsAcceptor,
    asking: AskForCertificate,
}

async fn connection(core: Arc<Core>, doorway: Doorway, stream: TcpStream, stop: CancellationToken) {
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, doorway.acceptor.accept(stream)).await else { return };
    let certificate: Option<Certified> = doorway.asking.identify(tls.get_ref().1.peer_certificates());
    let guest = Guest::new(&core.shares);
    let seat = guest.clone();
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let core = core.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(seat.clone());
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        async move { Ok::<_, std::convert::Infallible>(server::handle(core, Door::Network, request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().max_concurrent_streams(1000);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
    tokio::pin!(connection);
    // A connection without a request belongs to nobody: it may not stay.
    let unused = async {
        if tokio::time::timeout(FIRST_REQUEST, guest.seated()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = guest.refused() => {}
        _ = connection.as_mut() => return,
        () = unused => {}
    }
    // Requests under way and watches get a moment to end cleanly.
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(GOODBYE, connection).await;
}
