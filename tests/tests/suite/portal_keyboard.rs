//! The portal by Tab and Enter alone, in a real browser: where the focus is can be seen at every step.

use fleet_tests::browser::{Browser, ENTER, Scheme, TAB};

use crate::portal::{Stage, until_state};

#[tokio::test]
async fn a_job_is_submitted_and_stopped_without_a_mouse() -> anyhow::Result<()> {
    let stage = Stage::set(&["--members", "1", "--nodes", "2", "--runtime", "forever"]).await?;
    stage.apply("examples/quickstart/queue.yaml").await?;
    let browser = Browser::start(Scheme::Light).await?;
    browser.open(&format!("{}/jobs", stage.url)).await?;
    browser.tab_to("#token").await?;
    browser.press(&stage.token).await?;
    browser.press(ENTER).await?;
    browser.until_it_says("Signed in as").await?;

    // Past the navigation at once, for whoever has heard it before.
    browser.open(&format!("{}/jobs", stage.url)).await?;
    browser.press(TAB).await?;
    browser.press(ENTER).await?;
    let at = browser.run("return document.activeElement.id").await?;
    anyhow::ensure!(at == "main", "{at}");

    browser.open(&format!("{}/jobs", stage.url)).await?;
    browser.tab_to("header nav a[href='/submit']").await?;
    browser.press(ENTER).await?;
    browser.find("#name").await?;
    for (field, text) in [("#name", "typed"), ("#role0-image", "registry.example.com/training/pytorch:v1")] {
        browser.tab_to(field).await?;
        browser.press(text).await?;
    }
    browser.tab_to("button[value=create]").await?;
    browser.press(ENTER).await?;
    browser.until_it_says("Its life").await?;
    until_state(&browser, "Running").await?;

    // The list changes by itself, and the focus stays where it was.
    let name = "/jobs/default/pytorchjobs.kubeflow.org/typed";
    browser.open(&format!("{}/jobs", stage.url)).await?;
    browser.tab_to(&format!("a[href='{name}']")).await?;
    stage.apply("examples/quickstart/job.yaml").await?;
    browser.until_it_says("train-1").await?;
    let at = browser.run("return document.activeElement.getAttribute('href')").await?;
    anyhow::ensure!(at == name, "{at}");
    browser.press(ENTER).await?;
    browser.until_it_says("Its life").await?;
    browser.tab_to("#stop").await?;
    browser.press(ENTER).await?;
    until_state(&browser, "Stopped").await?;
    let path = browser.client.current_url().await?;
    anyhow::ensure!(path.path().ends_with(name), "{path}");
    browser.client.clone().close().await?;
    stage.end().await
}
