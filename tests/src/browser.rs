//! A real Chromium, driven over WebDriver: `chromium` and `chromedriver` of the system.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use fantoccini::{
    Client, ClientBuilder, Locator,
    actions::{InputSource, KeyAction, KeyActions},
    elements::Element,
};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::wait::{self, Polled};

/// Names another driver than the one on PATH.
const DRIVER: &str = "FLEET_CHROMEDRIVER";
/// A page on two cores that build at the same time.
const WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// As WebDriver names these keys.
pub const TAB: &str = "\u{E004}";
pub const ENTER: &str = "\u{E007}";

/// One browser with one window. Its process ends with it.
pub struct Browser {
    driver: Child,
    pub client: Client,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// # Errors
    /// Chromium or its driver is not installed, or does not start.
    pub async fn start(scheme: Scheme) -> anyhow::Result<Self> {
        let program = std::env::var_os(DRIVER).unwrap_or_else(|| "chromedriver".into());
        let mut driver = Command::new(&program)
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!(
                    "{}: no driver of Chromium; `apt-get install chromium chromium-driver`, or name one with {DRIVER}",
                    program.display()
                )
            })?;
        let stdout = driver.stdout.take().context("the driver's output")?;
        let port = tokio::task::spawn_blocking(move || port(BufReader::new(stdout))).await??;
        // 0 is dark to Chromium.
        let colours = if scheme == Scheme::Dark { 0 } else { 1 };
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1360,900",
            "--force-prefers-reduced-motion",
            "--hide-scrollbars",
            format!("--blink-settings=preferredColorScheme={colours}"),
        ]);
        let mut wanted = serde_json::Map::new();
        wanted.insert("goog:chromeOptions".into(), json!({"args": arguments}));
        wanted.insert("goog:loggingPrefs".into(), json!({"browser": "ALL"}));
        let url = format!("http://127.0.0.1:{port}");
        let connected = ClientBuilder::new(HttpConnector::new()).capabilities(wanted).connect(&url).await;
        match connected {
            Ok(client) => Ok(Self { driver, client }),
            Err(error) => {
                let _ = driver.kill();
                let _ = driver.wait();
                bail!("Chromium does not start: {error}")
            }
        }
    }

    /// # Errors
    /// The page does not load.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        self.client.goto(url).await.with_context(|| url.to_owned())
    }

    /// The element of a CSS selector, once it is there.
    ///
    /// # Errors
    /// It does not come.
    pub async fn find(&self, selector: &str) -> anyhow::Result<Element> {
        let found = self.client.wait().at_most(WITHIN).for_element(Locator::Css(selector)).await;
        match found {
            Ok(element) => Ok(element),
            Err(error) => bail!("{selector}: {error}; the page says: {}", self.text().await?),
        }
    }

    /// # Errors
    /// The element does not come, or cannot be clicked.
    pub async fn click(&self, selector: &str) -> anyhow::Result<()> {
        self.find(selector).await?.click().await.with_context(|| selector.to_owned())
    }

    /// Clicks what leads to a new page, and waits until that page is there: a click alone may be overtaken by the next
    /// navigation.
    ///
    /// # Errors
    /// The element does not come, cannot be clicked, or leads nowhere.
    pub async fn follow(&self, selector: &str) -> anyhow::Result<()> {
        self.run("window.left = false").await?;
        self.click(selector).await?;
        wait::wait_for(&format!("the page that {selector} leads to"), WITHIN, async || {
            let left =
                self.run("return window.left === undefined && document.readyState === 'complete'").await?;
            Ok(Polled::when(left == true, || "still the page before".to_owned()))
        })
        .await
    }

    /// Writes into a field, over what stood there.
    ///
    /// # Errors
    /// The field does not come.
    pub async fn write(&self, selector: &str, text: &str) -> anyhow::Result<()> {
        let field = self.find(selector).await?;
        field.clear().await?;
        field.send_keys(text).await.with_context(|| selector.to_owned())
    }

    /// Types on the keyboard, whatever has the focus.
    ///
    /// # Errors
    /// The browser is gone.
    pub async fn press(&self, keys: &str) -> anyhow::Result<()> {
        let typed = keys.chars().fold(KeyActions::new("keyboard".to_owned()), |keys, value| {
            keys.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        Ok(self.client.perform_actions(typed).await?)
    }

    /// Goes on by Tab until this element has the focus, and looks at each step whether the focus can be seen.
    ///
    /// # Errors
    /// It is not reached, or the focus is lost or invisible on the way.
    pub async fn tab_to(&self, selector: &str) -> anyhow::Result<()> {
        /// Stops on the way; a page has fewer in front of what it is for.
        const MOST: usize = 80;
        self.find(selector).await?;
        let look = format!(
            "const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect(); \
             return {{ at: at.outerHTML.slice(0, 160), is_there: at.matches({selector:?}), is_body: at === document.body, \
             is_seen: style.outlineStyle !== 'none' && box.width > 0 && box.height > 0 && box.left >= 0 }}"
        );
        let mut passed = Vec::new();
        for _ in 0..MOST {
            self.press(TAB).await?;
            let seen = self.run(&look).await?;
            if seen["is_body"] == true {
                // Past the end: the browser's own bar is next, then the page again.
                continue;
            }
            if seen["is_seen"] != true {
                bail!("the focus is not seen on {}", seen["at"]);
            }
            if seen["is_there"] == true {
                return Ok(());
            }
            passed.push(seen["at"].to_string());
        }
        bail!("{selector} is not reached by {MOST} times Tab, but {}", passed.join("\n"))
    }

    /// What the rules of axe-core, of this text, find wrong with the page.
    ///
    /// # Errors
    /// They cannot be run.
    pub async fn violations(&self, axe: &str) -> anyhow::Result<Vec<String>> {
        self.run(axe).await?;
        let script = "const done = arguments[arguments.length - 1]; \
                      axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations), (e) => done([{id: String(e), nodes: []}]))";
        let found = self.client.execute_async(script, Vec::new()).await?;
        let found = found.as_array().context("a list of violations")?;
        let tell = |one: &Value| {
            let nodes = one["nodes"].as_array().into_iter().flatten().take(3);
            let nodes: Vec<String> =
                nodes.map(|node| format!("    {} ({})", node["html"], node["failureSummary"])).collect();
            format!("{}: {}\n{}", one["id"], one["help"], nodes.join("\n"))
        };
        Ok(found.iter().map(tell).collect())
    }

    /// All that can be read on the page.
    ///
    /// # Errors
    /// The browser is gone.
    pub async fn text(&self) -> anyhow::Result<String> {
        Ok(self.run("return document.body.innerText").await?.as_str().unwrap_or_default().to_owned())
    }

    /// # Errors
    /// The script fails.
    pub async fn run(&self, script: &str) -> anyhow::Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// Waits until the page says this.
    ///
    /// # Errors
    /// It does not in time.
    pub async fn until_it_says(&self, words: &str) -> anyhow::Result<()> {
        wait::wait_for(&format!("the page to say {words:?}"), WITHIN, async || {
            let text = self.text().await?;
            Ok(Polled::when(text.contains(words), || text))
        })
        .await
    }

    /// Draws the whole page, as high as it is, into a file.
    ///
    /// # Errors
    /// It cannot be drawn or written.
    pub async fn draw(&self, file: &Path) -> anyhow::Result<()> {
        let height = self.run("return Math.min(3000, document.documentElement.scrollHeight)").await?;
        let height = height.as_u64().unwrap_or(900).max(500);
        // The window is higher than what it shows.
        let outer = self.run("return window.outerHeight - window.innerHeight").await?.as_u64().unwrap_or(0);
        self.client.set_window_size(1360, u32::try_from(height + outer)?).await?;
        std::fs::write(file, self.client.screenshot().await?).with_context(|| file.display().to_string())?;
        self.client.set_window_size(1360, 900).await?;
        Ok(())
    }
}

/// The port that the driver has taken, as it says itself.
fn port(mut lines: impl BufRead + Send + 'static) -> anyhow::Result<u16> {
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        if let Some((_, rest)) = line.split_once("successfully on port ") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            // It goes on writing: somebody has to read.
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            return digits.parse().with_context(|| line.clone());
        }
        line.clear();
    }
    bail!("the driver ended before it said its port")
}
