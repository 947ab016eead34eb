//! The portal of `fleet up` in a real browser: sign in, submit, watch without reloading, stop. With
//! `FLEET_SCREENSHOTS=DIR` (`cargo xtask screenshots`) it draws the pages.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use fleet_tests::{
    FleetProcess, Kubectl, Look,
    browser::{Browser, Scheme},
    kubectl::Shell,
    process::{fleet_binary, ports_in_a_row},
    repository, wait_for,
};

const WITHIN: Duration = Duration::from_secs(60);

struct Stage {
    fleet: Option<FleetProcess>,
    shell: Shell,
    url: String,
    token: String,
    folder: tempfile::TempDir,
    port: u16,
}

impl Stage {
    async fn set(arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fleet-portal-").tempdir()?;
        let home = folder.path().join("home");
        let port = ports_in_a_row(4)?;
        let mut all = vec!["--portal-port", "0"];
        all.extend(arguments);
        let fleet = FleetProcess::up(&home, port, &all).await?;
        let said = fleet.output();
        let url = said.lines().find_map(|line| line.strip_prefix("Portal: ")?.split(';').next());
        let url = url.with_context(|| format!("a line with the portal's address in:\n{said}"))?.to_owned();
        let shell = Shell::new(&home.join("kubeconfig"), &home.join("bin"))?;
        let token = shell.run(&fleet_binary()?, &["portal", "token"]).await?;
        anyhow::ensure!(token.succeeded(), "{token}");
        let token = token.stdout.trim().to_owned();
        Ok(Self { fleet: Some(fleet), shell, url, token, folder, port })
    }

    async fn apply(&self, file: &str) -> anyhow::Result<()> {
        let path = repository().join(file).display().to_string();
        let kubectl = Kubectl::find().context("no kubectl on PATH, and FLEET_KUBECTL does not name one")?;
        let said = self.shell.run(&kubectl, &["apply", "-f", &path]).await?;
        anyhow::ensure!(said.succeeded(), "{said}");
        Ok(())
    }

    async fn sign_in(&self, browser: &Browser) -> anyhow::Result<()> {
        browser.open(&format!("{}/jobs", self.url)).await?;
        browser.write("#token", &self.token).await?;
        browser.click("button.primary").await?;
        browser.until_it_says("Signed in as").await
    }

    async fn end(mut self) -> anyhow::Result<()> {
        match self.fleet.take() {
            Some(fleet) => fleet.interrupt().await.map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Fills in the form for a job of one master.
async fn submit(browser: &Browser, url: &str, name: &str) -> anyhow::Result<()> {
    browser.open(&format!("{url}/submit")).await?;
    browser.write("#name", name).await?;
    browser.write("#role0-image", "registry.example.com/training/pytorch:v1").await?;
    browser.write("#role0-gpus", "8").await?;
    browser.click("button[value=create]").await?;
    browser.until_it_says("Its life").await
}

async fn until_state(browser: &Browser, state: &str) -> anyhow::Result<()> {
    let script = "return document.querySelector('h1 .badge')?.textContent ?? ''";
    wait_for(&format!("the page to show the state {state}"), WITHIN, async || {
        let seen = browser.run(script).await?;
        Ok(Look::at(seen == state, || format!("{seen}")))
    })
    .await
}

#[tokio::test]
async fn a_job_is_submitted_watched_and_stopped_in_a_browser() -> anyhow::Result<()> {
    let stage = Stage::set(&["--members", "2", "--nodes", "2", "--runtime", "8s"]).await?;
    stage.apply("examples/quickstart/queue.yaml").await?;
    let browser = Browser::start(Scheme::Light).await?;

    // A wrong token is refused with words.
    browser.open(&stage.url).await?;
    browser.write("#token", "nonsense").await?;
    browser.click("button.primary").await?;
    browser.until_it_says("The hub does not know this token").await?;
    stage.sign_in(&browser).await?;

    // An error stands beside its field, and what was written stays.
    browser.open(&format!("{}/submit", stage.url)).await?;
    browser.write("#name", "Train!").await?;
    browser.write("#role0-image", "registry.example.com/training/pytorch:v1").await?;
    browser.click("button[value=check]").await?;
    browser.until_it_says("This cannot be submitted").await?;
    browser.find("#name[aria-invalid=true]").await?;
    browser.write("#name", "first").await?;
    browser.click("button[value=check]").await?;
    browser.until_it_says("The hub would take it").await?;

    // The queue runs one job at a time: the second waits, and says why.
    submit(&browser, &stage.url, "first").await?;
    submit(&browser, &stage.url, "second").await?;
    browser.run("window.marker = 'never reloaded'").await?;
    browser.until_it_says("MaxJobs").await?;
    until_state(&browser, "Running").await?;
    until_state(&browser, "Succeeded").await?;
    assert_eq!(browser.run("return window.marker").await?, "never reloaded");
    let updates = browser.run("return Number(document.documentElement.dataset.updates)").await?;
    assert!(updates.as_f64().is_some_and(|updates| updates > 0.0), "{updates}");

    // Stopped from the list, by the box of one that runs.
    browser.open(&format!("{}/submit?mode=yaml", stage.url)).await?;
    let endless = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: endless}\n\
                   spec: {pytorchReplicaSpecs: {Master: {template: {metadata: {annotations: {sim.fleet.dev/runtime: forever}}, \
                   spec: {containers: [{name: pytorch, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}}\n";
    browser.write("#yaml", endless).await?;
    browser.click("button[value=create]").await?;
    until_state(&browser, "Running").await?;
    browser.until_it_says("endless-master-0").await?;
    browser.open(&format!("{}/jobs?state=Running", stage.url)).await?;
    browser.click("input[name=job]").await?;
    browser.click("button.danger").await?;
    browser.open(&format!("{}/jobs/default/pytorchjobs.kubeflow.org/endless", stage.url)).await?;
    until_state(&browser, "Stopped").await?;

    // Nothing was refused by the policy of contents, and no script failed.
    browser.open(&format!("{}/clusters", stage.url)).await?;
    browser.find("svg.heat").await?;
    let broken = browser.run("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin)).map(e => e.name)").await?;
    assert_eq!(broken, serde_json::json!([]), "everything is the portal's own");
    browser.client.clone().close().await?;
    stage.end().await
}

#[tokio::test]
async fn a_page_says_that_the_portal_is_away_and_comes_back() -> anyhow::Result<()> {
    let mut stage = Stage::set(&["--members", "1", "--nodes", "1"]).await?;
    let browser = Browser::start(Scheme::Dark).await?;
    stage.sign_in(&browser).await?;
    let dark = browser.run("return matchMedia('(prefers-color-scheme: dark)').matches").await?;
    assert_eq!(dark, true);
    let fleet = stage.fleet.take().context("a fleet")?;
    fleet.interrupt().await?;
    browser.until_it_says("The portal does not answer").await?;
    let portal_port = stage.url.rsplit(':').next().context("a port")?.to_owned();
    let home = stage.folder.path().join("home");
    let again = FleetProcess::up(&home, stage.port, &["--portal-port", &portal_port]).await?;
    stage.fleet = Some(again);
    // Sessions end with the process; the page asks to sign in by itself.
    browser.find("#token").await?;
    browser.client.clone().close().await?;
    stage.end().await
}

/// Pages with something on them, light and dark.
#[tokio::test]
async fn screenshots() -> anyhow::Result<()> {
    let Some(folder) = std::env::var_os("FLEET_SCREENSHOTS").map(PathBuf::from) else { return Ok(()) };
    std::fs::create_dir_all(&folder)?;
    let stage = Stage::set(&["--nodes", "12", "--runtime", "90s"]).await?;
    stage.apply("examples/portal/fleet.yaml").await?;
    let pages = [
        ("home", "/"),
        ("queues", "/queues"),
        ("queue", "/queues/root/research"),
        ("jobs", "/jobs"),
        ("job-running", "/jobs/research/pytorchjobs.kubeflow.org/wide-1"),
        ("job-waiting", "/jobs/research/pytorchjobs.kubeflow.org/wide-6"),
        ("clusters", "/clusters"),
        ("submit", "/submit"),
    ];
    for scheme in [Scheme::Light, Scheme::Dark] {
        let browser = Browser::start(scheme).await?;
        browser.open(&stage.url).await?;
        browser.find("#token").await?;
        browser.draw(&folder.join(format!("sign-in-{}.png", scheme.name()))).await?;
        stage.sign_in(&browser).await?;
        browser.open(&format!("{}/jobs?state=Running", stage.url)).await?;
        browser.until_it_says("wide-1").await?;
        for (name, path) in pages {
            browser.open(&format!("{}{path}", stage.url)).await?;
            browser.find("main h1").await?;
            browser.draw(&folder.join(format!("{name}-{}.png", scheme.name()))).await?;
        }
        browser.client.clone().close().await?;
    }
    stage.end().await
}
