//! The command lines of a real `etcd` and `kube-apiserver`, as envtest gives them.

use std::path::Path;

/// Where a server's files are, and its ports.
pub struct Layout<'a> {
    pub folder: &'a Path,
    pub etcd_port: u16,
    pub peer_port: u16,
    pub secure_port: u16,
}

impl Layout<'_> {
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.secure_port)
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Arguments of `etcd`.
    pub fn etcd(&self) -> Vec<String> {
        let (client, peer) = (self.etcd_url(), format!("http://127.0.0.1:{}", self.peer_port));
        vec![
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // The data of a test need not outlive a power cut.
            "--unsafe-no-fsync".to_string(),
        ]
    }

    /// Arguments of `kube-apiserver`.
    pub fn apiserver(&self) -> Vec<String> {
        vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", self.secure_port),
            "--bind-address=127.0.0.1".to_string(),
            "--advertise-address=127.0.0.1".to_string(),
            "--service-cluster-ip-range=10.0.0.0/24".to_string(),
            "--allow-privileged=true".to_string(),
            "--authorization-mode=RBAC".to_string(),
            // Nobody makes service accounts or their tokens here, so pods must not wait for them.
            "--disable-admission-plugins=ServiceAccount".to_string(),
            format!("--cert-dir={}", self.file("certificates")),
            format!("--tls-cert-file={}", self.file("serving.crt")),
            format!("--tls-private-key-file={}", self.file("serving.key")),
            format!("--token-auth-file={}", self.file("tokens.csv")),
            format!("--service-account-key-file={}", self.file("accounts.pub")),
            format!("--service-account-signing-key-file={}", self.file("accounts.key")),
            format!("--service-account-issuer={}/", self.url()),
        ]
    }
}

/// Controllers that every cluster has and that Fleet counts on: what clears up, and what lets nodes be used. Not those of
/// workloads: tests bring their own kubelets, and the agent runs the jobs.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,node-lifecycle-controller,\
                           serviceaccount-controller,serviceaccount-token-controller,resourcequota-controller,disruption-controller,\
                           clusterrole-aggregation-controller,persistentvolumeclaim-protection-controller";

/// Arguments of `kube-controller-manager`, which reads a kubeconfig of an administrator. `accounts` is the key with which tokens of
/// accounts are signed.
pub fn controller_manager(kubeconfig: &Path, accounts: &Path) -> Vec<String> {
    vec![
        format!("--service-account-private-key-file={}", accounts.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={CONTROLLERS}"),
        "--leader-elect=false".to_string(),
        // Nobody asks how it is.
        "--secure-port=0".to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout<'static> {
        Layout { folder: Path::new("/t"), etcd_port: 1, peer_port: 2, secure_port: 3 }
    }

    #[test]
    fn etcd_listens_on_its_ports_and_keeps_its_data_with_the_test() {
        assert_eq!(
            layout().etcd(),
            [
                "--data-dir=/t/etcd",
                "--listen-client-urls=http://127.0.0.1:1",
                "--advertise-client-urls=http://127.0.0.1:1",
                "--listen-peer-urls=http://127.0.0.1:2",
                "--initial-advertise-peer-urls=http://127.0.0.1:2",
                "--initial-cluster=default=http://127.0.0.1:2",
                "--unsafe-no-fsync",
            ]
        );
    }

    #[test]
    fn the_server_is_started_as_envtest_starts_it() {
        assert_eq!(
            layout().apiserver(),
            [
                "--etcd-servers=http://127.0.0.1:1",
                "--secure-port=3",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--allow-privileged=true",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--cert-dir=/t/certificates",
                "--tls-cert-file=/t/serving.crt",
                "--tls-private-key-file=/t/serving.key",
                "--token-auth-file=/t/tokens.csv",
                "--service-account-key-file=/t/accounts.pub",
                "--service-account-signing-key-file=/t/accounts.key",
                "--service-account-issuer=https://127.0.0.1:3/",
            ]
        );
    }
}
