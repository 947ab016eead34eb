//! Reads the lease: one GET over HTTPS with the pod's token, on plain sockets.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, Stream,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;

use crate::{
    judge::Renewal,
    names::{ANSWER_TIMEOUT, LEASE_NAME, LEASE_NAMESPACE},
};

/// A Lease is far smaller.
const LONGEST_ANSWER: u64 = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: found no certificate; allowed: PEM with one or more", path = path.display())]
    NoCertificate { path: PathBuf },
    #[error("{host}: {source}")]
    Connection { host: String, source: io::Error },
    #[error("{host}: {source}")]
    Tls { host: String, source: rustls::Error },
    #[error("address of the API server: found {0:?}; allowed: a host name or an IP address")]
    Host(String),
    #[error("the API server answered {0:?}")]
    Answer(String),
    #[error("the lease has no {0}")]
    Field(&'static str),
}

/// The API server of the pod's cluster.
#[derive(Clone, Debug)]
pub struct Source {
    pub host: String,
    pub port: u16,
    /// Files, read again each time, because both are rotated.
    pub token: PathBuf,
    pub ca: PathBuf,
}

impl Source {
    /// Reads the lease once.
    ///
    /// # Errors
    /// Why the lease could not be read.
    pub fn read(&self) -> Result<Renewal, LeaseError> {
        let file = |path: &Path| {
            std::fs::read_to_string(path).map_err(|source| LeaseError::File { path: path.to_owned(), source })
        };
        let token = file(&self.token)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(file(&self.ca)?.as_bytes()).flatten() {
            // An invalid certificate does not spoil the others.
            let _ = roots.add(certificate);
        }
        if roots.is_empty() {
            return Err(LeaseError::NoCertificate { path: self.ca.clone() });
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name =
            ServerName::try_from(self.host.clone()).map_err(|_| LeaseError::Host(self.host.clone()))?;
        let mut tls = ClientConnection::new(Arc::new(config), name)
            .map_err(|source| LeaseError::Tls { host: self.host.clone(), source })?;
        let answer = self
            .exchange(&mut tls, token.trim())
            .map_err(|source| LeaseError::Connection { host: self.host.clone(), source })?;
        renewal(&answer)
    }

    /// HTTP/1.0: the answer is one piece and ends with the connection.
    fn exchange(&self, tls: &mut ClientConnection, token: &str) -> io::Result<String> {
        let mut socket = self.connect()?;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE_NAME}");
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\r\n",
            self.host
        );
        let mut stream = Stream::new(tls, &mut socket);
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        match stream.take(LONGEST_ANSWER).read_to_end(&mut answer) {
            // Many servers close without a TLS close message; a truncated answer does not parse.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            read => drop(read?),
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
                Ok(socket) => {
                    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                    socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                    return Ok(socket);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Parses an answer.
fn renewal(answer: &str) -> Result<Renewal, LeaseError> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(LeaseError::Answer(status.to_owned()));
    }
    let lease: Value =
        serde_json::from_str(body).map_err(|error| LeaseError::Answer(format!("{status}: {error}")))?;
    let spec = &lease["spec"];
    let mark = spec["renewTime"].as_str().ok_or(LeaseError::Field("spec.renewTime"))?;
    let seconds =
        spec["leaseDurationSeconds"].as_u64().ok_or(LeaseError::Field("spec.leaseDurationSeconds"))?;
    Ok(Renewal { mark: mark.to_owned(), duration: Duration::from_secs(seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let answer = |status: &str, body: &str| renewal(&format!("HTTP/1.0 {status}\r\nA: b\r\n\r\n{body}"));
        let lease = r#"{"spec": {"renewTime": "t1", "leaseDurationSeconds": 39}}"#;
        let read = answer("200 OK", lease).unwrap();
        assert_eq!(read, Renewal { mark: "t1".to_owned(), duration: Duration::from_secs(39) });
        let failed = |status: &str, body: &str| answer(status, body).unwrap_err().to_string();
        assert_eq!(failed("403 Forbidden", lease), "the API server answered \"HTTP/1.0 403 Forbidden\"");
        assert_eq!(failed("200 OK", r#"{"spec": {}}"#), "the lease has no spec.renewTime");
        assert!(failed("200 OK", &lease[..20]).starts_with("the API server answered \"HTTP/1.0 200 OK: EOF"));
    }
}
