//! A progress line on stderr: only on a terminal, and only after two seconds.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use tokio::task::JoinHandle;

use crate::terminal;

const PATIENCE: Duration = Duration::from_secs(2);
const FRAME: Duration = Duration::from_millis(120);
const FRAMES: [&str; 8] = ["⠋", "⠙", "⠸", "⢰", "⣠", "⣄", "⡆", "⠇"];

/// Shown until dropped.
pub struct Progress {
    task: Option<JoinHandle<()>>,
}

impl Progress {
    /// Must be called in a runtime.
    pub fn start(what: impl Into<String>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { task: None };
        }
        let what = terminal::plain(&what.into()).into_owned();
        let task = tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            for frame in FRAMES.iter().cycle() {
                draw(&format!("\r{frame} {what}\x1b[K"));
                tokio::time::sleep(FRAME).await;
            }
        });
        Self { task: Some(task) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
            draw("\r\x1b[K");
        }
    }
}

fn draw(text: &str) {
    let mut err = std::io::stderr().lock();
    // A closed terminal needs no progress.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
