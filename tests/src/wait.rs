//! Waiting for a condition, with a bound and a sentence.

use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

/// How often a condition is looked at; the one poll of the harness.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Variable that names the folder with real servers.
pub const REAL_SERVERS: &str = "KUBEBUILDER_ASSETS";

/// What one poll of a condition found.
#[derive(Debug)]
pub enum Polled<T> {
    Yes(T),
    /// What was seen instead; the failure repeats it.
    NotYet(String),
}

impl Polled<()> {
    /// Yes if `true`.
    pub fn when(is: bool, seen: impl FnOnce() -> String) -> Self {
        if is { Polled::Yes(()) } else { Polled::NotYet(seen()) }
    }
}

/// How much longer a bound is with real servers: three processes for each cluster, on the machine of the test.
fn slower() -> u32 {
    if std::env::var_os(REAL_SERVERS).is_some_and(|folder| !folder.is_empty()) { 4 } else { 1 }
}

/// Polls until the answer is yes. With real servers the bound is four times as long.
///
/// # Errors
/// The error of a poll at once; else, after `within`, what was waited for and what was seen last.
pub async fn wait_for<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Polled<T>>,
) -> anyhow::Result<T> {
    let within = within * slower();
    let deadline = Instant::now() + within;
    loop {
        let seen = match look().await? {
            Polled::Yes(found) => return Ok(found),
            Polled::NotYet(seen) => seen,
        };
        if Instant::now() >= deadline {
            bail!("waited {} s for {what}; last seen: {seen}", within.as_secs_f64());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_with_the_condition_or_says_what_it_saw() {
        let mut looks = 0;
        let found = wait_for("three looks", Duration::from_secs(1), async || {
            looks += 1;
            Ok(if looks == 3 { Polled::Yes(looks) } else { Polled::NotYet("fewer".to_string()) })
        });
        assert_eq!(found.await.expect("found"), 3);
        let never = wait_for("the end of time", Duration::from_millis(50), async || {
            Ok(Polled::<()>::NotYet("a clock".to_string()))
        });
        let error = never.await.expect_err("too late").to_string();
        assert_eq!(error, "waited 0.05 s for the end of time; last seen: a clock");
    }
}
