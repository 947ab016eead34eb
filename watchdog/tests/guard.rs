//! The loop against an embedded API server over TLS: content while the lease is renewed, lapsed after. What stops
//! containers is played by the test.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fleet_apiserver::{ApiServer, Config, ServeOptions};
use fleet_watchdog::{
    LEASE_NAME, LEASE_NAMESPACE,
    guard::{self, Signal},
    judge::LeaseVerdict,
    lease::Source,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};

const WITHIN: Duration = Duration::from_secs(30);

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < WITHIN, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_while_it_is_renewed_then_containers_are_stopped() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = ApiServer::open(Config::default()).await.unwrap();
    let client = Client::new(server.router(), "default");
    let served = server.serve(ServeOptions::default()).await.unwrap();
    let namespace =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces");
    let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &namespace);
    namespaces.create(&Default::default(), &DynamicObject::new(LEASE_NAMESPACE, &namespace)).await.unwrap();
    let lease = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"),
        "leases",
    );
    let leases: Api<DynamicObject> = Api::namespaced_with(client, LEASE_NAMESPACE, &lease);
    let renew = async |number: usize| {
        let lease = serde_json::json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE_NAME}, "spec": {"leaseDurationSeconds": 6,
                "renewTime": format!("2026-01-01T00:00:{number:02}.000000Z")}});
        leases.patch(LEASE_NAME, &PatchParams::apply("test").force(), &Patch::Apply(&lease)).await.unwrap();
    };

    let folder = std::env::temp_dir().join(format!("fleet-watchdog-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), server.admin_token()).unwrap();
    std::fs::write(folder.join("ca.crt"), served.ca_pem()).unwrap();
    let source = Source {
        host: served.local_addr().ip().to_string(),
        port: served.local_addr().port(),
        token: folder.join("token"),
        ca: folder.join("ca.crt"),
    };
    let (verdicts, signals) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let goes_on = Arc::new(AtomicBool::new(true));
    let watching = {
        let (verdicts, signals, goes_on) = (verdicts.clone(), signals.clone(), goes_on.clone());
        std::thread::spawn(move || {
            guard::watch(
                move || source.read(),
                |verdict| verdicts.lock().unwrap().push(verdict),
                |signal| signals.lock().unwrap().push(signal),
                || goes_on.load(Ordering::SeqCst),
            );
        })
    };
    let mut number = 0;
    let start = Instant::now();
    while verdicts.lock().unwrap().last() != Some(&LeaseVerdict::Content) {
        assert!(start.elapsed() < WITHIN, "never content: {verdicts:?}");
        number += 1;
        renew(number % 60).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(signals.lock().unwrap().is_empty());
    until("the lease to lapse", || verdicts.lock().unwrap().last() == Some(&LeaseVerdict::Lapsed)).await;
    until("containers to be stopped", || !signals.lock().unwrap().is_empty()).await;
    assert_eq!(*signals.lock().unwrap(), [Signal::Terminate], "they have time to end");
    goes_on.store(false, Ordering::SeqCst);
    watching.join().unwrap();
    let seen = verdicts.lock().unwrap().clone();
    assert_eq!(seen, [LeaseVerdict::Waiting, LeaseVerdict::Content, LeaseVerdict::Lapsed]);
    let _ = std::fs::remove_dir_all(folder);
    served.shutdown().await;
}
