//! Two users of one portal in a real browser: what an administrator gives, the other one has.

use std::{sync::Arc, time::Duration};

use fleet_api::crds::{Side, definitions};
use fleet_apiserver::{Access, ApiServer, Config};
use fleet_portal::{
    board::Board,
    web::{Web, serve},
};
use fleet_tests::{
    Polled,
    browser::{Browser, Scheme},
    gate::Gate,
    objects, wait_for,
};
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::portal::{Stage, sign_in, sign_out};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_administrator_gives_an_account_a_namespace() -> anyhow::Result<()> {
    let stage = Stage::set(&["--members", "1", "--nodes", "2", "--runtime", "forever"]).await?;
    stage.apply("examples/portal/fleet.yaml").await?;
    let browser = Browser::start(Scheme::Light).await?;
    let admin = format!("{}/administration", stage.url);

    // An account, and a token that is shown once.
    sign_in(&browser, &stage.url, &stage.token).await?;
    browser.open(&admin).await?;
    browser.write("#account-namespace", "research").await?;
    browser.write("#account-name", "carol").await?;
    browser.follow("#accounts button.primary").await?;
    browser.follow("button[aria-label='Make a token of research/carol']").await?;
    let token = browser.find("#token pre").await?.text().await?;
    browser.open(&admin).await?;
    anyhow::ensure!(!browser.text().await?.contains(&token), "a token is shown once");

    // Its owner sees nothing of the fleet, and changes nothing.
    sign_out(&browser).await?;
    sign_in(&browser, &stage.url, &token).await?;
    browser.until_it_says("system:serviceaccount:research:carol").await?;
    anyhow::ensure!(!browser.text().await?.contains("wide-1"), "{}", browser.text().await?);
    browser.open(&admin).await?;
    browser.until_it_says("change nothing").await?;
    anyhow::ensure!(browser.run("return document.querySelectorAll('main form').length").await? == 0);

    // With a namespace he sees what is in it.
    sign_out(&browser).await?;
    sign_in(&browser, &stage.url, &stage.token).await?;
    browser.open(&admin).await?;
    browser.write("#grant-who", "serviceaccount:research/carol").await?;
    browser.write("#grant-namespace", "research").await?;
    browser.follow("#tenants button.primary").await?;
    browser.until_it_says("serviceaccount:research/carol").await?;
    sign_out(&browser).await?;
    sign_in(&browser, &stage.url, &token).await?;
    browser.until_it_says("wide-1").await?;
    sign_out(&browser).await?;
    // On the command line too, without what only other roles let him list.
    let explained = stage.fleet_of(&token, &["explain", "wide-6", "--namespace", "research"]).await?;
    anyhow::ensure!(explained.succeeded(), "{explained}");
    for says in [
        "waits",
        "Reason:",
        "ClusterPropagationPolicy jobs, which you may not read",
        "Not shown, as you may not list it",
    ] {
        anyhow::ensure!(explained.stdout.contains(says), "{says} in {explained}");
    }

    // A command to paste.
    sign_in(&browser, &stage.url, &stage.token).await?;
    browser.open(&admin).await?;
    browser.write("#join", "north").await?;
    browser.follow("#join-clusters button.primary").await?;
    browser.until_it_says("fleet join north --print").await?;
    browser.client.clone().close().await?;
    stage.end().await
}

/// A page that somebody looks at says that the hub is away, keeps what it shows, and goes on by itself when the hub is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_outlives_a_hub_that_goes_away() -> anyhow::Result<()> {
    let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
    let server = ApiServer::open(config).await?;
    server.add_token("token-r", "root", &["system:masters"]);
    let (admin, gate) = (Client::new(server.router(), "default"), Gate::default());
    let hub = gate.client(admin.clone());
    let (board, stop) = (Arc::new(Board::default()), CancellationToken::new());
    tokio::spawn(board.clone().follow(hub.clone(), stop.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let web = Web::new(board, hub, "the hub".to_owned(), "default".to_owned());
    let serving = tokio::spawn(serve(listener, Arc::new(web), stop.clone().cancelled_owned()));
    let job = |name: &str| {
        json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding", "metadata": {"name": format!("{name}-pytorchjob"), "namespace": "default"},
            "spec": {"resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "default", "name": name},
            "policy": {"kind": "PropagationPolicy", "name": "p"}, "replicas": 1,
            "components": [{"name": "master", "replicas": 1, "request": {"nvidia.com/gpu": "8"}}]}})
    };
    objects::create(&admin, &job("before")).await?;
    let browser = Browser::start(Scheme::Light).await?;
    sign_in(&browser, &url, "token-r").await?;
    browser.open(&format!("{url}/jobs")).await?;
    browser.until_it_says("default/before").await?;
    browser.run("window.marker = 'never reloaded'").await?;
    gate.cut();
    browser.until_it_says("The hub has not answered for").await?;
    anyhow::ensure!(browser.text().await?.contains("default/before"), "what was known stays");
    objects::create(&admin, &job("meanwhile")).await?;
    gate.heal();
    browser.until_it_says("default/meanwhile").await?;
    wait_for("the page to say no more that the hub is away", WITHIN, async || {
        let text = browser.text().await?;
        Ok(Polled::when(!text.contains("The hub has not answered for"), || text))
    })
    .await?;
    objects::create(&admin, &job("after")).await?;
    browser.until_it_says("default/after").await?;
    anyhow::ensure!(browser.run("return window.marker").await? == "never reloaded");
    browser.client.clone().close().await?;
    stop.cancel();
    serving.await??;
    Ok(())
}
