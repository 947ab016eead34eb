//! One page of a recorded run that opens without a server: the story, what each queue used, who ran where.

use fleet_views::run::{ClusterRuns, QueueUse, RunBox, RunCharts};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("report.css");
/// Height of a lane of runs, and of a chart of use.
const LANE: usize = 18;
const CHART: i64 = 90;
/// A longer story is cut; the run itself can be asked for its log.
const STORY_MAX: usize = 400 * 1024;

/// Width of a letter on a run's bar, in thousandths of a chart that is as wide as a laptop's window.
const LETTER: i64 = 6;

/// The whole page. `story` is the log as people read it.
pub fn page(title: &str, charts: &RunCharts, story: &str) -> String {
    let shown = beginning(story);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    p { "A run of " (clock(charts.end_ms)) ", drawn by " code { "fleet simulate --html" } "." }
                    section { h2 { "GPUs in use, by queue" }
                        @if charts.queues.is_empty() { p { "Nothing ran." } }
                        @for line in &charts.queues { (queue(line, charts.end_ms)) }
                    }
                    @for runs in &charts.clusters { (cluster(runs, charts.end_ms)) }
                    section { h2 { "What happened" }
                        pre tabindex="0" { (shown) }
                        @if shown.len() < story.len() { p { "The story is longer; the log has all of it." } }
                    }
                }
            }
        }
    };
    page.into_string()
}

/// Whole lines.
fn beginning(story: &str) -> &str {
    let Some(first) = story.as_bytes().get(..STORY_MAX) else { return story };
    first.iter().rposition(|byte| *byte == b'\n').map_or("", |end| &story[..=end])
}

fn clock(ms: i64) -> String {
    let seconds = ms / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours}:{minutes:02}:{seconds:02}")
}

/// Thousandths of the run.
fn x(at_ms: i64, end_ms: i64) -> i64 {
    (i128::from(at_ms) * 1000 / i128::from(end_ms.max(1))) as i64
}

fn queue(line: &QueueUse, end_ms: i64) -> Markup {
    let y = |used: i64| CHART - (i128::from(used) * i128::from(CHART) / i128::from(line.most.max(1))) as i64;
    let mut path = format!("M0 {CHART}");
    for (at_ms, used) in &line.points {
        path.push_str(&format!("H{}V{}", x(*at_ms, end_ms), y(*used)));
    }
    path.push_str(&format!("H1000V{CHART}Z"));
    html! {
        figure {
            figcaption { b { (line.queue) } ", peak " (line.most) " GPUs" }
            svg class="use" viewBox={ "0 0 1000 " (CHART) } preserveAspectRatio="none" role="img"
                aria-label={ (line.queue) ": GPUs in use over time, peak " (line.most) } {
                rect.track width="1000" height=(CHART) {}
                path.own d=(path) {}
            }
            (axis(end_ms))
        }
    }
}

fn cluster(runs: &ClusterRuns, end_ms: i64) -> Markup {
    let height = runs.lanes.max(1) * LANE;
    let drawn = runs.boxes.len();
    html! {
        section { h2 { "Runs in " (runs.cluster) }
            p.legend { span.own {} "succeeded or running " span.failed {} "failed " span.moved {} "preempted, evicted or fenced" }
            svg.runs height=(height) role="img" aria-label={ (drawn) " runs in " (runs.cluster) "; the table below has the same" } {
                rect.track width="100%" height=(height) {}
                @for run in &runs.boxes { (bar(run, end_ms)) }
            }
            (axis(end_ms))
            @if runs.more > 0 { p { (drawn) " runs are drawn, those that took the most GPU hours; " (runs.more) " are not." } }
            details {
                summary { "Runs in " (runs.cluster) " as a table" }
                div.table tabindex="0" role="region" aria-label={ "Runs in " (runs.cluster) } { table {
                    thead { tr { th scope="col" { "Job" } th scope="col" { "GPUs" } th scope="col" { "From" } th scope="col" { "To" } th scope="col" { "End" } } }
                    tbody { @for run in &runs.boxes { tr {
                        th scope="row" { (run.job) } td { (run.gpus) } td { (clock(run.from_ms)) } td { (clock(run.to_ms)) } td { (ended(&run.reason)) }
                    } } }
                } }
            }
        }
    }
}

/// A run on its lane, with its job's name where that fits. Widths are percentages, so that letters are not stretched.
fn bar(run: &RunBox, end_ms: i64) -> Markup {
    let (from, to) = (x(run.from_ms, end_ms), x(run.to_ms, end_ms));
    let width = (to - from).max(1);
    html! {
        svg x=(percent(from)) y=(run.lane * LANE + 1) width=(percent(width)) height=(LANE - 2) {
            rect class=(class(&run.reason)) width="100%" height="100%" {
                title { (run.job) ", " (run.gpus) " GPUs, " (clock(run.from_ms)) " to " (clock(run.to_ms)) ": " (ended(&run.reason)) }
            }
            @if let Some(name) = fitting(&run.job, width) { text x="4" y=(LANE - 6) { (name) } }
        }
    }
}

/// The name, or that without its namespace.
fn fitting(job: &str, width: i64) -> Option<&str> {
    let own = job.split_once('/').map_or(job, |(_, name)| name);
    let fits = |name: &str| i64::try_from(name.chars().count()).is_ok_and(|letters| letters * LETTER < width);
    [job, own].into_iter().find(|name| fits(name))
}

/// Thousandths as a percentage.
fn percent(thousandths: i64) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

fn ended(reason: &str) -> &str {
    if reason.is_empty() { "still running" } else { reason }
}

fn axis(end_ms: i64) -> Markup {
    html! { div.axis { @for quarter in 0..=4 { span { (clock(end_ms * quarter / 4)) } } } }
}

fn class(reason: &str) -> &'static str {
    match reason {
        "" | "Succeeded" => "own",
        "Failed" => "failed",
        _ => "moved",
    }
}

#[cfg(test)]
mod tests {
    use fleet_views::run::Recorder;

    use super::*;

    #[test]
    fn a_page_stands_alone_and_escapes_names() {
        let mut recorder = Recorder::default();
        recorder.submitted(0, "a/<script>", 8);
        recorder.queued(0, "a/<script>", "root/<b>");
        recorder.started(1_000, "a/<script>", "east");
        recorder.ended(61_000, "a/<script>", "Preempted");
        let page = page("a <run>", &recorder.charts(), "<i>story</i>");
        assert!(!page.contains("<script") && !page.contains("<i>") && !page.contains("root/<b>"), "{page}");
        assert!(!page.contains("href=") && !page.contains("src=") && !page.contains("url("), "{page}");
        assert!(page.contains("0:00:01 to 0:01:01: Preempted") && page.contains("peak 8 GPUs"), "{page}");
    }

    /// Who has no pointer reads the names on the bars or in the table.
    #[test]
    fn each_run_is_named_beside_its_tooltip() {
        let mut recorder = Recorder::default();
        for (job, from_ms, to_ms) in [("a/long", 0, 100_000), ("a/short", 100_000, 101_000)] {
            recorder.submitted(0, job, 8);
            recorder.started(from_ms, job, "east");
            recorder.ended(to_ms, job, "Succeeded");
        }
        recorder.submitted(0, "a/last", 1);
        recorder.started(40_000, "a/last", "east");
        let page = page("a run", &recorder.charts(), "");
        assert!(page.contains(">a/long</text>") && !page.contains(">a/short</text>"), "{page}");
        let row =
            "<th scope=\"row\">a/short</th><td>8</td><td>0:01:40</td><td>0:01:41</td><td>Succeeded</td>";
        assert!(page.contains(row) && page.contains("<td>still running</td>"), "{page}");
        assert!(page.contains("x=\"39.6%\"") && page.contains("width=\"60.4%\""), "{page}");
    }

    #[test]
    fn names_on_bars_are_as_long_as_the_bars() {
        assert_eq!(fitting("team/job-1", 100), Some("team/job-1"));
        assert_eq!(fitting("team/job-1", 60), Some("job-1"));
        assert_eq!(fitting("team/job-1", 30), None);
        assert_eq!((percent(7), percent(1000)), ("0.7%".to_owned(), "100.0%".to_owned()));
    }

    #[test]
    fn a_long_story_is_cut_behind_a_line() {
        let story = "what happened to the job ä\n".repeat(STORY_MAX / 20);
        let shown = beginning(&story);
        assert!(shown.len() <= STORY_MAX && shown.ends_with("ä\n") && story.starts_with(shown));
        assert_eq!((beginning("a\nb"), beginning("")), ("a\nb", ""));
    }
}
