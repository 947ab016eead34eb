//! What pages look like: the rules of accessibility over every page, light and dark, and with `FLEET_SCREENSHOTS=DIR`
//! (`cargo xtask screenshots`) pictures of them.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use fleet_tests::{
    Polled,
    browser::{Browser, Scheme},
    process::fleet_binary,
    repository,
    tools::axe,
    wait_for,
};

use crate::{
    portal::{Stage, sign_in, sign_out},
    portal_time::recorded,
};

const SCHEMES: [Scheme; 2] = [Scheme::Light, Scheme::Dark];
const FAILED: &str = "/jobs/vision/pytorchjobs.kubeflow.org/wrong-image";
const CONFIGURATION: &str = "/virtual-clusters/configuration";

const PAGES: [(&str, &str); 15] = [
    ("home", "/"),
    ("queues", "/queues"),
    ("queue", "/queues/root/research"),
    ("jobs", "/jobs"),
    ("job-running", "/jobs/research/pytorchjobs.kubeflow.org/wide-1"),
    ("job-waiting", "/jobs/research/pytorchjobs.kubeflow.org/wide-6"),
    ("job-failed", FAILED),
    ("clusters", "/clusters"),
    ("cluster", "/clusters/north"),
    ("virtual-clusters", "/virtual-clusters"),
    ("configuration", CONFIGURATION),
    ("submit", "/submit"),
    ("submit-yaml", "/submit?clone=research%2Fpytorchjobs.kubeflow.org%2Fwide-1&mode=yaml"),
    ("log", "/jobs/research/pytorchjobs.kubeflow.org/wide-1/logs/wide-1-master-0"),
    ("administration", "/administration?join=south"),
];
/// Beside those with a picture.
const MORE: [&str; 8] = [
    "/administration",
    "/submit?mode=yaml",
    "/submit?clone=research%2Fpytorchjobs.kubeflow.org%2Fwide-1",
    "/jobs?state=Waiting&sort=priority",
    "/jobs?text=none-has-this-name",
    "/nothing",
    "/queues/root/none",
    "/time",
];
/// Of a recording, and the instant.
const RECORDED: [(&str, &str); 8] = [
    ("time", "/queues?at=25000"),
    ("time-home", "/?at=30000"),
    ("time-jobs", "/jobs?at=30000"),
    ("time-clusters", "/clusters?at=30000"),
    ("time-cluster", "/clusters/east?at=30000"),
    ("time-virtual-clusters", "/virtual-clusters?at=30000"),
    ("time-job", "/jobs/product/pytorchjobs.kubeflow.org/release?at=30000"),
    ("time-nothing", "/nothing?at=30000"),
];
/// Those with a picture.
const RECORDED_DRAWN: usize = 1;

/// The page of a simulated run that opens without a server.
async fn report(folder: &Path) -> anyhow::Result<String> {
    let out = folder.join("run.html").display().to_string();
    // Its title names the file as it was given.
    let simulated = tokio::process::Command::new(fleet_binary()?)
        .args(["simulate", "examples/scenarios/reclaim.yaml", "--html", &out])
        .current_dir(repository())
        .output()
        .await?;
    anyhow::ensure!(simulated.status.success(), "{simulated:?}");
    Ok(format!("file://{out}"))
}

async fn open_details(browser: &Browser) -> anyhow::Result<()> {
    let script = "for (const one of document.querySelectorAll('main details:not(#yaml):not([id^=nodes-])')) one.open = true";
    browser.run(script).await.map(drop)
}

/// A job as the form takes it, checked.
async fn check_a_job(stage: &Stage, browser: &Browser) -> anyhow::Result<()> {
    browser.open(&format!("{}/submit", stage.url)).await?;
    browser.write("#name", "good").await?;
    browser.write("#namespace", "vision").await?;
    browser.write("#role0-image", "registry.example.com/training/pytorch:v1").await?;
    browser.click("button[value=check]").await?;
    browser.until_it_says("The hub would take it").await
}

/// Another configuration, and what it would change.
async fn show_a_difference(stage: &Stage, browser: &Browser) -> anyhow::Result<()> {
    browser.open(&format!("{}{CONFIGURATION}", stage.url)).await?;
    let text = browser.run("return document.getElementById('yaml').value").await?;
    let text = text.as_str().context("a configuration")?;
    let without = text.replace("  speech:", "  language:");
    anyhow::ensure!(without != text, "no virtual cluster speech in {text}");
    browser.write("#yaml", &without).await?;
    browser.follow("button[value=preview]").await?;
    browser.until_it_says("Virtual clusters that come: language").await
}

/// What axe-core finds, with where it was found.
struct Judge {
    axe: String,
    wrong: Vec<String>,
}

impl Judge {
    async fn look(&mut self, browser: &Browser, scheme: Scheme, what: &str) -> anyhow::Result<()> {
        let found = browser.violations(&self.axe).await?;
        self.wrong.extend(found.into_iter().map(|one| format!("{what}, {}: {one}", scheme.name())));
        Ok(())
    }

    fn found_nothing(self) -> anyhow::Result<()> {
        anyhow::ensure!(self.wrong.is_empty(), "{} violations:\n{}", self.wrong.len(), self.wrong.join("\n"));
        Ok(())
    }
}

/// The rules are at work: a picture without a text is found.
async fn rules_are_at_work(browser: &Browser, axe: &str) -> anyhow::Result<()> {
    browser.run("document.body.append(document.createElement('img'))").await?;
    let found = browser.violations(axe).await?;
    anyhow::ensure!(found.iter().any(|one| one.contains("image-alt")), "{found:?}");
    browser.run("document.querySelector('img').remove()").await.map(drop)
}

/// Every page, light and dark, after the rules of axe-core.
#[tokio::test]
async fn the_rules_of_accessibility_find_nothing() -> anyhow::Result<()> {
    let Some(axe) = axe()? else { return Ok(()) };
    let mut judge = Judge { axe, wrong: Vec::new() };
    let stage = Stage::set(&["--nodes", "12", "--runtime", "forever"]).await?;
    stage.apply_demo().await?;
    for scheme in SCHEMES {
        let browser = Browser::start(scheme).await?;
        browser.open(&stage.url).await?;
        browser.find("#token").await?;
        judge.look(&browser, scheme, "sign-in").await?;
        rules_are_at_work(&browser, &judge.axe).await?;
        browser.write("#token", "nonsense").await?;
        browser.click("button.primary").await?;
        browser.until_it_says("The hub does not know this token").await?;
        judge.look(&browser, scheme, "sign-in, refused").await?;
        stage.sign_in(&browser).await?;
        until_the_demo_runs(&stage, &browser).await?;
        for path in PAGES.iter().map(|(_, path)| path).chain(&MORE) {
            browser.open(&format!("{}{path}", stage.url)).await?;
            browser.find("main h1").await?;
            browser.run("for (const one of document.querySelectorAll('details')) one.open = true").await?;
            judge.look(&browser, scheme, path).await?;
        }
        browser.open(&format!("{}/submit", stage.url)).await?;
        browser.write("#name", "Train!").await?;
        browser.click("button[value=check]").await?;
        browser.until_it_says("This cannot be submitted").await?;
        judge.look(&browser, scheme, "submit, refused").await?;
        check_a_job(&stage, &browser).await?;
        judge.look(&browser, scheme, "submit, checked").await?;
        show_a_difference(&stage, &browser).await?;
        judge.look(&browser, scheme, "configuration, its difference").await?;
        browser.client.clone().close().await?;
    }
    stage.end().await?;
    judge.found_nothing()
}

/// The pages of a recording, and the one that needs no server.
#[tokio::test]
async fn the_rules_of_accessibility_find_nothing_in_recordings() -> anyhow::Result<()> {
    let Some(axe) = axe()? else { return Ok(()) };
    let mut judge = Judge { axe, wrong: Vec::new() };
    let folder = tempfile::tempdir()?;
    let (portal, url) = recorded(folder.path()).await?;
    let report = report(folder.path()).await?;
    for scheme in SCHEMES {
        let browser = Browser::start(scheme).await?;
        for (_, path) in RECORDED {
            browser.open(&format!("{url}{path}")).await?;
            browser.find("main h1").await?;
            open_details(&browser).await?;
            judge.look(&browser, scheme, path).await?;
        }
        browser.open(&report).await?;
        open_details(&browser).await?;
        judge.look(&browser, scheme, "simulate --html").await?;
        browser.client.clone().close().await?;
    }
    portal.kill()?;
    judge.found_nothing()
}

/// `fleet simulate FILE --html OUT`: one file, without a server, with all that happened in it.
#[tokio::test]
async fn a_simulated_run_opens_without_a_server() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let report = report(folder.path()).await?;
    let browser = Browser::start(Scheme::Light).await?;
    browser.open(&report).await?;
    for words in ["GPUs in use, by queue", "root/research", "Runs in east", "What happened"] {
        browser.until_it_says(words).await?;
    }
    let seen = browser
        .run(
            "const area = (one) => { const box = one.getBoundingClientRect(); return box.width * box.height; }; \
             return { charts: [...document.querySelectorAll('svg.use path.own')].map((one) => area(one) > 0), \
                      runs: [...document.querySelectorAll('svg.runs rect:not(.track)')].filter((one) => area(one) > 0) \
                          .map((one) => one.querySelector('title').textContent), \
                      story: document.querySelector('pre').innerText, \
                      loaded: performance.getEntriesByType('resource').map((one) => one.name), \
                      scripts: document.scripts.length }",
        )
        .await?;
    assert_eq!(
        (&seen["loaded"], &seen["scripts"]),
        (&serde_json::json!([]), &serde_json::json!(0)),
        "{seen}"
    );
    let charts = seen["charts"].as_array().context("charts")?;
    assert!(charts.len() >= 2 && charts.iter().all(|drawn| drawn == true), "{seen}");
    let runs = seen["runs"].to_string();
    for words in ["research/sweep-1", "product/release", "Preempted"] {
        assert!(runs.contains(words), "{words} in {runs}");
    }
    // Without a pointer: a table that the keyboard opens has each run.
    browser.tab_to("main details summary").await?;
    browser.press(" ").await?;
    browser.until_it_says("Preempted").await?;
    let rows = "return [...document.querySelectorAll('details[open] tbody tr')].map((row) => row.innerText).join('\\n')";
    let rows = browser.run(rows).await?;
    for words in ["research/sweep-1", "product/release", "Preempted", "Succeeded"] {
        assert!(rows.as_str().is_some_and(|rows| rows.contains(words)), "{words} in {rows}");
    }
    let story = seen["story"].as_str().unwrap_or_default();
    assert!(story.contains("product/release") && story.contains("research/sweep-2"), "{story}");
    // It is as wide as the window, not wider.
    let width = browser.run("return document.documentElement.scrollWidth <= innerWidth").await?;
    assert_eq!(width, true);
    browser.client.clone().close().await?;
    Ok(())
}

/// A fleet of three members and its first jobs, on two cores that build at the same time.
const DEMO_WITHIN: Duration = Duration::from_secs(300);

/// Waits until the page says all of this.
async fn until_it_says_all(browser: &Browser, words: &[&str]) -> anyhow::Result<()> {
    wait_for(&format!("the page to say {words:?}"), DEMO_WITHIN, async || {
        let text = browser.text().await?;
        Ok(Polled::when(words.iter().all(|words| text.contains(words)), || text))
    })
    .await
}

async fn until_the_demo_runs(stage: &Stage, browser: &Browser) -> anyhow::Result<()> {
    browser.open(&format!("{}/jobs?state=Running", stage.url)).await?;
    until_it_says_all(browser, &["wide-1", "recognise"]).await?;
    browser.open(&format!("{}{FAILED}", stage.url)).await?;
    crate::portal::until_state(browser, "Failed").await
}

/// Waits until what queues and virtual clusters use has been counted and stays: pictures do not contradict each other.
async fn until_the_demo_is_counted(stage: &Stage, browser: &Browser) -> anyhow::Result<()> {
    const STILL: Duration = Duration::from_secs(6);
    browser.open(&format!("{}/", stage.url)).await?;
    until_it_says_all(browser, &["8/8", "4/8"]).await?;
    let amounts = "return [...document.querySelectorAll('.amount')].map((one) => one.textContent).join(' ')";
    let (mut seen, mut since) = (serde_json::Value::Null, Instant::now());
    wait_for("amounts that stay", DEMO_WITHIN, async || {
        let now = browser.run(amounts).await?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        Ok(Polled::when(since.elapsed() > STILL, || seen.to_string()))
    })
    .await
}

/// A token of somebody who has one namespace and its queue.
async fn tenant(stage: &Stage) -> anyhow::Result<String> {
    stage.kubectl(&["create", "serviceaccount", "rosa", "--namespace", "research"]).await?;
    for (role, kind) in
        [("fleet-tenant", "rolebinding"), ("fleet-virtual-cluster-reader", "clusterrolebinding")]
    {
        let (role_flag, account) = (format!("--clusterrole={role}"), "--serviceaccount=research:rosa");
        let mut arguments = vec!["create", kind, "rosa", &role_flag, account];
        if kind == "rolebinding" {
            arguments.extend(["--namespace", "research"]);
        }
        stage.kubectl(&arguments).await?;
    }
    Ok(stage.kubectl(&["create", "token", "rosa", "--namespace", "research"]).await?.trim().to_owned())
}

/// Pages with something on them, light and dark.
#[tokio::test]
async fn screenshots() -> anyhow::Result<()> {
    let Some(folder) = std::env::var_os("FLEET_SCREENSHOTS").map(PathBuf::from) else { return Ok(()) };
    std::fs::create_dir_all(&folder)?;
    let stage = Stage::set(&["--nodes", "12", "--runtime", "forever"]).await?;
    stage.apply_demo().await?;
    let tenant = tenant(&stage).await?;
    let run = tempfile::tempdir()?;
    let (recording, recorded_url) = recorded(run.path()).await?;
    let report = report(run.path()).await?;
    for scheme in SCHEMES {
        let browser = Browser::start(scheme).await?;
        let draw = async |name: &str| {
            open_details(&browser).await?;
            browser.draw(&folder.join(format!("{name}-{}.png", scheme.name()))).await
        };
        browser.open(&stage.url).await?;
        browser.find("#token").await?;
        draw("sign-in").await?;
        stage.sign_in(&browser).await?;
        until_the_demo_runs(&stage, &browser).await?;
        until_the_demo_is_counted(&stage, &browser).await?;
        for (name, path) in PAGES {
            browser.open(&format!("{}{path}", stage.url)).await?;
            browser.find("main h1").await?;
            draw(name).await?;
        }
        check_a_job(&stage, &browser).await?;
        draw("submit-checked").await?;
        show_a_difference(&stage, &browser).await?;
        draw("configuration-difference").await?;
        sign_out(&browser).await?;
        sign_in(&browser, &stage.url, &tenant).await?;
        browser.open(&stage.url).await?;
        browser.until_it_says("wide-6").await?;
        draw("home-tenant").await?;
        for (name, path) in RECORDED.iter().take(RECORDED_DRAWN) {
            browser.open(&format!("{recorded_url}{path}")).await?;
            browser.find("main h1").await?;
            draw(name).await?;
        }
        browser.open(&report).await?;
        draw("simulated-run").await?;
        browser.client.clone().close().await?;
    }
    recording.kill()?;
    stage.end().await
}
