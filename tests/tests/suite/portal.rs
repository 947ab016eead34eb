//! The portal of `fleet up` in a real browser: sign in, submit, watch without reloading, stop.

use std::time::Duration;

use anyhow::Context;
use fleet_tests::{
    FleetProcess, Kubectl, Polled,
    browser::{Browser, Scheme},
    kubectl::{Said, Shell},
    process::{fleet_binary, ports_in_a_row},
    repository, wait_for,
};

const WITHIN: Duration = Duration::from_secs(60);

pub struct Stage {
    fleet: Option<FleetProcess>,
    shell: Shell,
    pub url: String,
    pub token: String,
    folder: tempfile::TempDir,
    port: u16,
}

impl Stage {
    pub async fn set(arguments: &[&str]) -> anyhow::Result<Self> {
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

    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let kubectl = Kubectl::find().context("no kubectl on PATH, and FLEET_KUBECTL does not name one")?;
        let said = self.shell.run(&kubectl, arguments).await?;
        anyhow::ensure!(said.succeeded(), "{said}");
        Ok(said.stdout)
    }

    /// What `fleet` says to whoever has this token.
    pub async fn fleet_of(&self, token: &str, arguments: &[&str]) -> anyhow::Result<Said> {
        let file = self.folder.path().join("of-a-user");
        std::fs::write(&file, self.kubectl(&["config", "view", "--raw", "--flatten"]).await?)?;
        let own = format!("--kubeconfig={}", file.display());
        let token = format!("--token={token}");
        self.kubectl(&[&own, "config", "set-credentials", "user", &token]).await?;
        self.kubectl(&[&own, "config", "set-context", "--current", "--user=user"]).await?;
        let arguments: Vec<&str> = std::iter::once(own.as_str()).chain(arguments.iter().copied()).collect();
        self.shell.run(&fleet_binary()?, &arguments).await
    }

    pub async fn apply(&self, file: &str) -> anyhow::Result<()> {
        let path = repository().join(file).display().to_string();
        self.kubectl(&["apply", "-f", &path]).await.map(drop)
    }

    /// A fleet with something on every page.
    pub async fn apply_demo(&self) -> anyhow::Result<()> {
        for file in ["cells", "fleet", "cell-jobs"] {
            self.apply(&format!("examples/portal/{file}.yaml")).await?;
        }
        Ok(())
    }

    pub async fn sign_in(&self, browser: &Browser) -> anyhow::Result<()> {
        sign_in(browser, &self.url, &self.token).await
    }

    pub async fn end(mut self) -> anyhow::Result<()> {
        match self.fleet.take() {
            Some(fleet) => fleet.interrupt().await.map(|_| ()),
            None => Ok(()),
        }
    }
}

pub async fn sign_in(browser: &Browser, url: &str, token: &str) -> anyhow::Result<()> {
    browser.open(&format!("{url}/jobs")).await?;
    browser.write("#token", token).await?;
    browser.click("button.primary").await?;
    browser.until_it_says("Signed in as").await
}

pub async fn sign_out(browser: &Browser) -> anyhow::Result<()> {
    browser.follow("form.user button").await?;
    browser.find("#token").await.map(|_| ())
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

pub async fn until_state(browser: &Browser, state: &str) -> anyhow::Result<()> {
    let script = "return document.querySelector('h1 .badge')?.textContent ?? ''";
    wait_for(&format!("the page to show the state {state}"), WITHIN, async || {
        let seen = browser.run(script).await?;
        Ok(Polled::when(seen == state, || format!("{seen}")))
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
    // The member serves what the pod has written.
    let page = browser.client.current_url().await?;
    browser.follow("a[aria-label='Log of endless-master-0']").await?;
    browser.until_it_says("is simulated and writes no log").await?;
    browser.open(page.as_str()).await?;
    // What it was made of stands in the form again, or in the editor where the form cannot say it.
    browser.follow("a[href^='/submit?clone=']").await?;
    let text = browser.run("return document.querySelector('#yaml')?.value ?? ''").await?;
    assert!(text.as_str().is_some_and(|text| text.contains("sim.fleet.dev/runtime")), "{text}");
    browser.open(&format!("{}/submit?clone=default%2Fpytorchjobs.kubeflow.org%2Ffirst", stage.url)).await?;
    let filled = "return [...document.querySelectorAll('#name, #role0-image, #role0-gpus')].map((field) => field.value)";
    let filled = browser.run(filled).await?;
    assert_eq!(filled, serde_json::json!(["", "registry.example.com/training/pytorch:v1", "8"]));
    browser.open(&format!("{}/jobs?state=Running", stage.url)).await?;
    browser.click("input[name=job]").await?;
    browser.follow("button.danger").await?;
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
