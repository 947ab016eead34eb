//! Files and doors: who may read what a server keeps, and what one caller can take from the others.

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

use crate::api::Api;

fn on_disk(dir: &Path) -> Config {
    Config { data_dir: Some(dir.into()), access: Access::Rbac, ..Config::default() }
}

/// Everything below a directory, itself included.
fn all(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_path_buf()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(all(&path)) } else { found.push(path) }
    }
    found
}

/// What others than the owner may read or do.
fn open_to_others(dir: &Path) -> Vec<PathBuf> {
    all(dir).into_iter().filter(|p| fs::symlink_metadata(p).unwrap().mode() & 0o077 != 0).collect()
}

fn holds(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).unwrap();
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_keeps_is_for_its_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    let (data, copy) = (home.path().join("a/data"), home.path().join("copy"));
    let api = ApiServer::open(on_disk(&data)).await.unwrap();
    let served = api.serve(ServeOptions::default()).await.unwrap();
    served.write_kubeconfig(&data.join("kubeconfig"), "x").unwrap();
    api.snapshot(&copy).await.unwrap();
    served.shutdown().await;
    api.shutdown().await;
    drop(api);
    assert_eq!(open_to_others(&data), Vec::<PathBuf>::new());
    assert_eq!(open_to_others(&copy), Vec::<PathBuf>::new());
    for path in all(&data) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let foreign = data.join("notes.txt");
    fs::write(&foreign, "of another program").unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o644)).unwrap();
    let api = ApiServer::open(on_disk(&data)).await.unwrap();
    assert_eq!(open_to_others(&data), [foreign], "mended when opened");
    api.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_and_its_copies_hold_no_token() {
    let home = tempfile::tempdir().unwrap();
    let (data, copy) = (home.path().join("data"), home.path().join("copy"));
    let api = ApiServer::open(on_disk(&data)).await.unwrap();
    api.add_token("tess-secret-token", "tess", &["dev"]);
    let admin = api.admin_token();
    api.snapshot(&copy).await.unwrap();
    api.shutdown().await;
    drop(api);
    for file in all(home.path()).iter().filter(|p| p.is_file()) {
        for token in [admin.as_str(), "tess-secret-token"] {
            assert!(!holds(file, token), "{} holds a token", file.display());
        }
    }
    for dir in [&data, &copy] {
        let api = Api::serve(on_disk(dir)).await;
        assert_eq!(api.embedded().unwrap().admin_token(), admin);
        let tess = api.with_token(Some("tess-secret-token"));
        assert_eq!(tess.get("/api/v1/namespaces/default/pods").await.code, 403, "known, without rights");
        let wrong = api.with_token(Some("tess-secret-tokem"));
        assert_eq!(wrong.get("/api/v1/namespaces/default/pods").await.code, 401);
        api.embedded().unwrap().shutdown().await;
    }
}

/// Written by the program before format 2, with its secrets as they were.
const FORMAT_1: &[u8] = include_bytes!("data/store-format-1.redb.gz");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_an_older_store_are_taken_out_of_its_file() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("store.redb");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(FORMAT_1).read_to_end(&mut bytes).unwrap();
    fs::write(&file, bytes).unwrap();
    let (old_admin, old_key) = {
        let db = redb::Database::open(&file).unwrap();
        let read = redb::ReadableDatabase::begin_read(&db).unwrap();
        let notes: redb::TableDefinition<&str, &str> = redb::TableDefinition::new("notes");
        let table = read.open_table(notes).unwrap();
        let note = |key: &str| table.get(key).unwrap().unwrap().value().to_string();
        (note("admin-token"), note("account-key"))
    };
    assert!(holds(&file, &old_admin) && holds(&file, &old_key));
    for _ in 0..2 {
        let api = Api::serve(on_disk(data.path())).await;
        assert!(!holds(&file, &old_admin) && !holds(&file, &old_key));
        assert_eq!(
            api.get("/api/v1/namespaces/default/configmaps/c7").await.expect(200).body["data"]["x"],
            "7"
        );
        let then = api.with_token(Some(&old_admin));
        assert_eq!(then.get("/api/v1/namespaces").await.code, 401, "others may have read it");
        api.embedded().unwrap().shutdown().await;
    }
    assert!(holds(&data.path().join("pki/sa.key"), &old_key), "service account tokens stay good");
}

/// A connection that says a body comes, and sends a part of it.
async fn half_sent(api: &Api, token: &str) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = api.ca().expect("an embedded server");
    let ca = <rustls::pki_types::CertificateDer as rustls::pki_types::pem::PemObject>::from_pem_slice(
        ca.as_bytes(),
    );
    roots.add(ca.unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = tokio::net::TcpStream::connect(api.host()).await.unwrap();
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{\"metadata\":"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_bodies_of_one_caller_do_not_delay_another() {
    let api = Api::serve(Config { access: Access::Rbac, ..Config::default() }).await;
    let server = api.embedded().unwrap();
    server.add_token("slow", "mallory", &["system:masters"]);
    server.add_token("quick", "ann", &["system:masters"]);
    let opened = futures::future::join_all((0..400).map(|_| half_sent(&api, "slow"))).await;
    let ann = api.with_token(Some("quick"));
    let asked = Instant::now();
    for n in 0..5 {
        let map = json!({"metadata": {"name": format!("m{n}")}});
        ann.post("/api/v1/namespaces/default/configmaps", map).await.expect(201);
        ann.get("/api/v1/namespaces/default/configmaps").await.expect(200);
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    drop(opened);
}

#[tokio::test]
async fn without_credentials_nothing_is_told() {
    let api = Api::serve(Config { access: Access::Rbac, ..Config::default() }).await;
    let nobody = api.with_token(None);
    for path in ["/api/v1/secrets", "/api/v1/namespaces/default/pods", "/apis", "/openapi/v3", "/metrics"] {
        let code = nobody.get(path).await.code;
        assert!(matches!(code, 401 | 403), "{path}: {code}");
    }
    nobody.post("/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await.fails(403, "Forbidden");
    assert_eq!(nobody.get("/version").await.code, 200);
    assert_eq!(api.get("/api/v1/namespaces/x").await.body["reason"], Value::from("NotFound"));
}

/// A directory on a small file system of its own, such as a tmpfs of 60 MiB: it is filled. Without it there is nothing to see.
const SMALL: &str = "FLEET_SMALL_DISK";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_disk_that_is_really_full_deletes_pass_and_a_server_starts() {
    let Some(disk) = std::env::var_os(SMALL).map(PathBuf::from) else { return };
    let data = disk.join("data");
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str| {
        let random: String = (0..8000).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
        json!({"metadata": {"name": name}, "data": {"a": random}})
    };
    let api = Api::serve(on_disk(&data)).await;
    for n in 0..20 {
        api.post(maps, map(&format!("m{n}"))).await.expect(201);
    }
    let fill = || {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(disk.join("fill")).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    };
    fill();
    let mut n = 100;
    while api.post(maps, map(&format!("m{n}"))).await.code == 201 {
        n += 1;
    }
    for gone in 0..5 {
        api.delete(&format!("{maps}/m{gone}"), Value::Null).await.expect(200);
        fill();
    }
    api.embedded().unwrap().shutdown().await;
    drop(api);
    fill();
    for _ in 0..2 {
        let api = Api::serve(on_disk(&data)).await;
        api.get(&format!("{maps}/m10")).await.expect(200);
        assert_eq!(api.get(&format!("{maps}/m1")).await.code, 404);
        api.embedded().unwrap().shutdown().await;
    }
    let api = Api::serve(on_disk(&data)).await;
    api.delete(&format!("{maps}/m10"), Value::Null).await.expect(200);
    fs::remove_file(disk.join("fill")).unwrap();
    api.post(maps, map("late")).await.expect(201);
    api.embedded().unwrap().shutdown().await;
}
