//! One page of a recorded run that opens without a server: the story, what each queue used, who ran where.

use fleet_views::run::{ClusterRuns, QueueUse, RunCharts};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("report.css");
/// Height of a lane of runs, and of a chart of use.
const LANE: usize = 16;
const CHART: i64 = 90;
/// A longer story is cut; the run itself can be asked for its log.
const STORY_MAX: usize = 400 * 1024;

/// The whole page. `story` is the log as people read it.
pub fn page(title: &str, charts: &RunCharts, story: &str) -> String {
    let shown = story.char_indices().nth(STORY_MAX).map_or(story, |(end, _)| &story[..end]);
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
    html! {
        section { h2 { "Runs in " (runs.cluster) }
            p.legend { span.own {} "succeeded or running " span.failed {} "failed " span.moved {} "preempted, evicted or fenced" }
            svg class="runs" viewBox={ "0 0 1000 " (height) } preserveAspectRatio="none" height=(height) role="img"
                aria-label={ (runs.boxes.len()) " runs in " (runs.cluster) } {
                rect.track width="1000" height=(height) {}
                @for run in &runs.boxes {
                    @let (from, to) = (x(run.from_ms, end_ms), x(run.to_ms, end_ms));
                    rect class=(class(&run.reason)) x=(from) y=(run.lane * LANE + 1) width=((to - from).max(1)) height=(LANE - 2) {
                        title { (run.job) ", " (run.gpus) " GPUs, " (clock(run.from_ms)) " to " (clock(run.to_ms))
                            @if !run.reason.is_empty() { ": " (run.reason) } }
                    }
                }
            }
            (axis(end_ms))
            @if runs.more > 0 { p { (runs.more) " more runs are not drawn." } }
        }
    }
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
}
