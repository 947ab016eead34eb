//! The checker over a recorded run log (`fleet simulate -o jsonl`): what of invariants 1 and 4 its lines show.
//!
//! Input: the lines in order. Absent on purpose: what a log does not tell, such as pods, quota and policies; the
//! violations that the run itself found stand in its last line and count as found.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Violation, violation::broken};

/// One job so far.
#[derive(Debug, Default)]
struct Job {
    /// The newest epoch it was bound under.
    epoch: i64,
    /// Where it is bound now.
    target: Option<(String, i64)>,
    /// A line says why it waits, or that it queues.
    told: bool,
    over: bool,
}

/// Broken invariants, or the first line that is none of a log: its number from 1, what was found, what is allowed.
///
/// # Errors
/// A line that is no record, or a log without its last line.
pub fn check_run_log(text: &str) -> Result<Vec<Violation>, (usize, String)> {
    let mut found = Vec::new();
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    let mut last = 0.0;
    let mut summary: Option<Value> = None;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        let wrong = |what: &str| {
            (
                number,
                format!(
                    "{what}; allowed: one JSON object a line with t and event, the last one with summary"
                ),
            )
        };
        let value: Value =
            serde_json::from_str(line).map_err(|error| wrong(&format!("found no JSON ({error})")))?;
        if summary.is_some() {
            return Err(wrong("found a line after the summary"));
        }
        if value["summary"].is_object() {
            summary = Some(value["summary"].clone());
            continue;
        }
        let (Some(t), Some(event)) = (value["t"].as_f64(), value["event"].as_str()) else {
            return Err(wrong("found no t and event"));
        };
        if t < last {
            return Err(wrong(&format!("found t {t} after {last}")));
        }
        last = t;
        if let Some(name) = value["job"].as_str() {
            let job = jobs.entry(name.to_string()).or_default();
            found.extend(
                job.take(event, &value)
                    .map(|(invariant, what)| broken(invariant, format!("at {t} s: {name} {what}"))),
            );
        }
    }
    let Some(summary) = summary else {
        let lines = text.lines().count();
        return Err((
            lines,
            "found no summary: the log is not whole; allowed: a log whose run came to its end".to_string(),
        ));
    };
    for (name, job) in &jobs {
        if !job.over && job.target.is_none() && !job.told {
            found.push(broken(
                4,
                format!("at the end: {name} is neither over nor bound, and nothing says why"),
            ));
        }
    }
    for violation in summary["violations"].as_array().into_iter().flatten() {
        let invariant =
            violation["invariant"].as_u64().and_then(|number| u8::try_from(number).ok()).unwrap_or(0);
        let what = violation["what"].as_str().unwrap_or_default();
        found.push(broken(invariant, format!("at {} s, as the run itself found: {what}", violation["t"])));
    }
    Ok(found)
}

impl Job {
    /// Takes one line in; what it breaks.
    fn take(&mut self, event: &str, line: &Value) -> Option<(u8, String)> {
        let place = || {
            (line["cluster"].as_str().unwrap_or_default().to_string(), line["epoch"].as_i64().unwrap_or(0))
        };
        match event {
            "Submitted" => *self = Self::default(),
            "Rejected" | "Deleted" => (self.over, self.target) = (true, None),
            "Queued" | "Pending" | "Requeued" => self.told = true,
            "Bound" => {
                let (cluster, epoch) = place();
                let wrong = match &self.target {
                    _ if self.over => Some((4, format!("is bound to {cluster} after its end"))),
                    Some((at, _)) => Some((1, format!("is bound to {cluster} while it is bound to {at}"))),
                    None if epoch <= self.epoch => {
                        Some((1, format!("is bound under epoch {epoch} after {}", self.epoch)))
                    }
                    None => None,
                };
                (self.epoch, self.target, self.told) = (epoch, Some((cluster, epoch)), true);
                return wrong;
            }
            "Started" => {
                let started = place();
                if self.over {
                    return Some((4, format!("starts in {} after its end", started.0)));
                }
                if self.target.as_ref() != Some(&started) {
                    let (cluster, epoch) = started;
                    return Some((
                        1,
                        format!("starts in {cluster} under epoch {epoch} and is bound to {:?}", self.target),
                    ));
                }
            }
            "Evicted" | "Preempted" => self.target = None,
            "Finished" => {
                if std::mem::replace(&mut self.over, true) {
                    return Some((4, "ends a second time".to_string()));
                }
                self.target = None;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = r#"{"summary":{"violations":[]}}"#;

    fn line(t: f64, event: &str, cluster: &str, epoch: i64) -> String {
        format!(r#"{{"t":{t},"event":"{event}","job":"a/j","cluster":"{cluster}","epoch":{epoch}}}"#)
    }

    fn check(lines: &[String]) -> Vec<String> {
        let text = format!("{}\n{END}\n", lines.join("\n"));
        check_run_log(&text).expect("a log").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_job_that_moves_and_ends_breaks_nothing() {
        let told = [
            line(0.0, "Submitted", "", 0),
            line(0.0, "Bound", "east", 1),
            line(1.0, "Started", "east", 1),
            line(2.0, "Fenced", "east", 1),
            line(9.0, "Evicted", "east", 1),
            line(9.0, "Requeued", "", 0),
            line(9.5, "Bound", "west", 2),
            line(10.0, "Started", "west", 2),
            line(20.0, "Finished", "west", 2),
        ];
        assert_eq!(check(&told), Vec::<String>::new());
    }

    #[test]
    fn what_is_broken_is_named() {
        let bound = line(0.0, "Bound", "east", 1);
        let twice = [bound.clone(), line(1.0, "Bound", "west", 2)];
        assert_eq!(check(&twice), ["invariant 1: at 1 s: a/j is bound to west while it is bound to east"]);
        let older = [bound.clone(), line(1.0, "Evicted", "east", 1), line(2.0, "Bound", "west", 1)];
        assert_eq!(check(&older), ["invariant 1: at 2 s: a/j is bound under epoch 1 after 1"]);
        let late = [bound.clone(), line(1.0, "Finished", "east", 1), line(2.0, "Started", "east", 1)];
        assert_eq!(check(&late), ["invariant 4: at 2 s: a/j starts in east after its end"]);
        let stale = [
            bound.clone(),
            line(1.0, "Evicted", "east", 1),
            line(2.0, "Bound", "west", 2),
            line(3.0, "Started", "east", 1),
        ];
        assert!(check(&stale)[0].starts_with("invariant 1: at 3 s: a/j starts in east under epoch 1"));
        let again = [bound, line(1.0, "Finished", "east", 1), line(1.0, "Finished", "east", 1)];
        assert_eq!(check(&again), ["invariant 4: at 1 s: a/j ends a second time"]);
        assert_eq!(
            check(&[line(0.0, "Submitted", "", 0)]),
            ["invariant 4: at the end: a/j is neither over nor bound, and nothing says why"]
        );
    }

    #[test]
    fn what_the_run_found_counts() {
        let text =
            r#"{"summary":{"violations":[{"invariant":3,"t":4.5,"objects":[],"what":"node n is full"}]}}"#;
        let found = check_run_log(text).expect("a log");
        assert_eq!(found[0].to_string(), "invariant 3: at 4.5 s, as the run itself found: node n is full");
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        assert_eq!(check_run_log("{\n").unwrap_err().0, 1);
        assert!(check_run_log("{}\n").unwrap_err().1.starts_with("found no t and event; allowed:"));
        let back = format!("{}\n{}\n{END}", line(2.0, "Bound", "e", 1), line(1.0, "Started", "e", 1));
        assert_eq!(check_run_log(&back).unwrap_err().0, 2);
        assert!(check_run_log(&line(2.0, "Bound", "e", 1)).unwrap_err().1.contains("not whole"));
        assert_eq!(check_run_log(&format!("{END}\n{END}")).unwrap_err().0, 2);
    }
}
