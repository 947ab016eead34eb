//! Time in a real browser: the slider over a recorded run, with a script and without one, and a fleet's own log.

use std::{path::Path, time::Duration};

use anyhow::Context;
use fleet_tests::{
    FleetProcess, Kubectl, Polled,
    browser::{Browser, Scheme},
    kubectl::Shell,
    process::{Daemon, fleet_binary, ports_in_a_row},
    repository, wait_for,
};

const WITHIN: Duration = Duration::from_secs(60);

/// The portal of a simulated run, and its address.
pub async fn recorded(folder: &Path) -> anyhow::Result<(Daemon, String)> {
    let fleet = fleet_binary()?;
    let log = folder.join("run.jsonl").display().to_string();
    let scenario = repository().join("examples/scenarios/reclaim.yaml").display().to_string();
    let simulated =
        tokio::process::Command::new(&fleet).args(["simulate", &scenario, "--log", &log]).output().await?;
    anyhow::ensure!(simulated.status.success(), "{simulated:?}");
    let address = format!("127.0.0.1:{}", ports_in_a_row(1)?);
    let portal = Daemon::start(&fleet, &["portal", "--log", &log, "--listen", &address])?;
    wait_for("the portal to listen", WITHIN, async || {
        let tried = tokio::net::TcpStream::connect(&address).await;
        Ok(Polled::when(tried.is_ok(), || format!("{tried:?}")))
    })
    .await?;
    Ok((portal, format!("http://{address}")))
}

/// What the row of a job says of its state.
async fn state(browser: &Browser, job: &str) -> anyhow::Result<String> {
    let script = format!(
        "return [...document.querySelectorAll('tbody tr')].find((row) => row.textContent.includes('{job}'))\
         ?.querySelector('.badge')?.textContent ?? ''"
    );
    Ok(browser.run(&script).await?.as_str().unwrap_or_default().to_owned())
}

async fn until_state(browser: &Browser, job: &str, wanted: &str) -> anyhow::Result<()> {
    wait_for(&format!("{job} to be {wanted:?}"), WITHIN, async || {
        let seen = state(browser, job).await?;
        Ok(Polled::when(seen == wanted, || seen))
    })
    .await
}

#[tokio::test]
async fn the_slider_goes_through_a_recorded_run() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (portal, url) = recorded(folder.path()).await?;
    let browser = Browser::start(Scheme::Light).await?;
    browser.open(&format!("{url}/jobs?at=0&sort=name")).await?;
    browser.until_it_says("Recording of run.jsonl").await?;
    until_state(&browser, "product/release", "").await?;
    browser.run("window.marker = 'never reloaded'").await?;

    // By the mouse, or a finger: the value changes, and the page with it.
    let drag = "const at = document.getElementById('at'); at.focus(); at.value = ARG; \
                at.dispatchEvent(new Event('input')); at.dispatchEvent(new Event('change'))";
    browser.run(&drag.replace("ARG", "30000")).await?;
    until_state(&browser, "product/release", "Running").await?;
    let instant = browser.run("return document.getElementById('instant').textContent").await?;
    assert_eq!(instant, "0:00:30");
    let spoken = browser.run("return document.getElementById('at').getAttribute('aria-valuetext')").await?;
    assert_eq!(spoken, "0:00:30");
    let address = browser.run("return location.search").await?;
    assert!(
        address.as_str().is_some_and(|text| text.contains("at=30000") && text.contains("sort=name")),
        "{address}"
    );

    // By the keyboard: the slider keeps the focus, one event after the other.
    browser.run(&drag.replace("ARG", "0")).await?;
    until_state(&browser, "product/release", "").await?;
    let slider = browser.find("#at").await?;
    slider.send_keys("\u{E010}").await?;
    until_state(&browser, "product/release", "Succeeded").await?;
    assert_eq!(browser.run("return document.activeElement.id").await?, "at");
    browser.click("#earlier").await?;
    wait_for("an event before the end", WITHIN, async || {
        let seen = browser.run("return location.search").await?;
        Ok(Polled::when(browser.run("return document.activeElement.id === 'earlier'").await? == true, || {
            seen.to_string()
        }))
    })
    .await?;
    assert_eq!(browser.run("return window.marker").await?, "never reloaded");

    // Other pages are of the same instant, and nothing there can be done.
    browser.open(&format!("{url}/?at=25000")).await?;
    browser.follow("header nav a[href^='/queues']").await?;
    browser.until_it_says("borrows from").await?;
    browser.follow("header nav a[href^='/clusters']").await?;
    browser.find("svg.heat").await?;
    assert_eq!(browser.run("return new URLSearchParams(location.search).get('at')").await?, "25000");
    let writes = browser.run("return document.querySelectorAll('form[method=post], .danger').length").await?;
    assert_eq!(writes, 0);
    let foreign = browser.run("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin)).map(e => e.name)").await?;
    assert_eq!(foreign, serde_json::json!([]), "everything is the portal's own");

    // Without the script the form does it.
    browser.open(&format!("{url}/jobs?at=0&sort=name")).await?;
    browser
        .run("document.getElementById('at').value = 30000; HTMLFormElement.prototype.submit.call(document.getElementById('time-form'))")
        .await?;
    until_state(&browser, "product/release", "Running").await?;
    browser.client.clone().close().await?;
    portal.kill()
}

#[tokio::test]
async fn a_fleet_keeps_a_log_of_itself() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("home");
    let arguments = ["--portal-port", "0", "--members", "1", "--nodes", "3", "--runtime", "2s"];
    let fleet = FleetProcess::up(&home, ports_in_a_row(2)?, &arguments).await?;
    let said = fleet.output();
    let url = said.lines().find_map(|line| line.strip_prefix("Portal: ")?.split(';').next());
    let url = url.with_context(|| format!("a line with the portal's address in:\n{said}"))?.to_owned();
    let shell = Shell::new(&home.join("kubeconfig"), &home.join("bin"))?;
    let token = shell.run(&fleet_binary()?, &["portal", "token"]).await?;
    let kubectl = Kubectl::find().context("no kubectl on PATH, and FLEET_KUBECTL does not name one")?;
    for file in ["examples/quickstart/queue.yaml", "examples/quickstart/job.yaml"] {
        let path = repository().join(file).display().to_string();
        let said = shell.run(&kubectl, &["apply", "-f", &path]).await?;
        anyhow::ensure!(said.succeeded(), "{said}");
    }
    let log = home.join("run.jsonl");
    wait_for("the log to tell the whole life of the job", WITHIN, async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let has = |event: &str| text.contains(&format!("\"event\":\"{event}\""));
        let whole = ["Recording", "Cluster", "Tree", "Submitted", "Queued", "Started", "Finished"];
        Ok(Polled::when(whole.into_iter().all(has), || text.clone()))
    })
    .await?;
    let browser = Browser::start(Scheme::Dark).await?;
    browser.open(&format!("{url}/time")).await?;
    browser.write("#token", token.stdout.trim()).await?;
    browser.click("button.primary").await?;
    browser.until_it_says("Recording of run.jsonl").await?;
    browser.open(&format!("{url}/jobs?at=99999999999999")).await?;
    until_state(&browser, "train-1", "Succeeded").await?;
    browser.click("#begin").await?;
    until_state(&browser, "train-1", "").await?;
    browser.follow("header .now").await?;
    browser.until_it_says("Signed in as").await?;
    browser.client.clone().close().await?;
    fleet.interrupt().await?;
    Ok(())
}
