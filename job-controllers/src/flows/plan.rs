//! The plan of one JobFlow: a pure function of the flow, its templates and its jobs.
//!
//! A flow's job is created once all its dependencies have completed, or pass its probe. Deliberately absent: clients, clocks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use fleet_agent_ground::Object;

use super::probe::{self, Answers, Check};
use crate::cycle;

/// Labels of a flow's jobs, as Volcano has them: `namespace.name` of the flow and of the template.
pub(crate) const BY_FLOW: &str = "volcano.sh/createdByJobFlow";
const BY_TEMPLATE: &str = "volcano.sh/createdByJobTemplate";

/// The actions for one JobFlow.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FlowPlan {
    /// Whole jobs to create.
    pub create: Vec<Value>,
    /// Names of jobs to delete.
    pub delete: Vec<String>,
    /// The whole new status, if it changed.
    pub status: Option<Value>,
}

/// One step of a flow.
struct Step<'f> {
    /// Name of its JobTemplate.
    name: &'f str,
    needs: Vec<&'f str>,
    probe: Result<Vec<Check>, String>,
    patch: &'f Value,
}

fn steps(flow: &Object) -> Vec<Step<'_>> {
    let list = flow.spec["flows"].as_array().into_iter().flatten();
    list.enumerate()
        .map(|(at, step)| Step {
            probe: probe::read(&step["dependsOn"]["probe"], &format!("spec.flows[{at}].dependsOn.probe")),
            name: step["name"].as_str().unwrap_or_default(),
            needs: step["dependsOn"]["targets"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
            patch: &step["patch"]["jobSpec"],
        })
        .collect()
}

/// Name of the job of a step.
pub(crate) fn job_name(flow: &str, step: &str) -> String {
    format!("{flow}-{step}")
}

/// Why the flow can never complete, if so.
fn problem(steps: &[Step<'_>]) -> Option<String> {
    let names: BTreeSet<&str> = steps.iter().map(|step| step.name).collect();
    if names.len() < steps.len() {
        return Some("field spec.flows: found two flows of one name; allowed: names that differ".to_owned());
    }
    for (at, step) in steps.iter().enumerate() {
        if let Err(wrong) = &step.probe {
            return Some(wrong.clone());
        }
        if let Some(unknown) = step.needs.iter().find(|name| !names.contains(*name)) {
            return Some(format!(
                "field spec.flows[{at}].dependsOn.targets: found {unknown}; allowed: names of flows of this JobFlow"
            ));
        }
    }
    let needs = steps.iter().map(|step| (step.name, step.needs.clone())).collect();
    cycle::find(&needs).map(|cycle| format!("field spec.flows: {}", cycle::sentence(&cycle)))
}

/// Why a JobFlow can never complete, if so.
pub fn problem_of(flow: &Object) -> Option<String> {
    problem(&steps(flow))
}

/// The checks that pods must answer now, by their job.
pub(crate) fn questions<'j>(
    flow: &Object,
    jobs: &BTreeMap<String, &'j Object>,
) -> Vec<(&'j Object, Vec<Check>)> {
    let steps = steps(flow);
    if flow.is_deleting() || problem(&steps).is_some() {
        return Vec::new();
    }
    let mut found: BTreeMap<String, BTreeSet<Check>> = BTreeMap::new();
    for step in steps.iter().filter(|step| !jobs.contains_key(&job_name(flow.name(), step.name))) {
        let checks = step.probe.as_deref().unwrap_or_default();
        for name in step.needs.iter().map(|name| job_name(flow.name(), name)) {
            if let Some(job) = jobs.get(&name).filter(|job| phase_of(job) != "Completed") {
                let open = probe::open(job, checks).into_iter().cloned();
                found.entry(name).or_default().extend(open);
            }
        }
    }
    let asked = found.into_iter().filter(|(_, checks)| !checks.is_empty());
    asked.filter_map(|(name, checks)| Some((*jobs.get(&name)?, checks.into_iter().collect()))).collect()
}

/// `templates`: JobTemplates of the flow's namespace by name; `jobs`: its own jobs by name; `answers`: what its
/// [`questions`] found.
pub(crate) fn plan(
    flow: &Object,
    templates: &BTreeMap<String, &Object>,
    jobs: &BTreeMap<String, &Object>,
    answers: &Answers,
) -> FlowPlan {
    let mut plan = FlowPlan::default();
    let steps = steps(flow);
    if flow.is_deleting() {
        plan.delete =
            jobs.values().filter(|job| !job.is_deleting()).map(|job| job.name().to_owned()).collect();
        return plan;
    }
    let before = flow.status["state"]["phase"].as_str().unwrap_or_default();
    if before == "Succeed" {
        // Remaining jobs of an ended flow stay as they ended.
        if flow.spec["jobRetainPolicy"] == "delete" {
            let live = jobs.values().filter(|job| !job.is_deleting());
            plan.delete = live.map(|job| job.name().to_owned()).collect();
        }
        return plan;
    }
    let problem = problem(&steps);
    let mut message = problem.clone();
    let is_ready = |step: &Step<'_>, name: &str| {
        let checks = step.probe.as_deref().unwrap_or_default();
        jobs.get(&job_name(flow.name(), name)).is_some_and(|job| {
            phase_of(job) == "Completed" || !job.is_deleting() && probe::holds(job, checks, answers)
        })
    };
    for step in steps.iter().filter(|_| problem.is_none()) {
        if jobs.contains_key(&job_name(flow.name(), step.name))
            || !step.needs.iter().all(|name| is_ready(step, name))
        {
            continue;
        }
        match templates.get(step.name) {
            Some(template) => plan.create.push(job(flow, template, step)),
            None => {
                message.get_or_insert(format!(
                    "field spec.flows: found {}, which is no JobTemplate of namespace {}; allowed: JobTemplates that \
                     exist",
                    step.name,
                    flow.namespace()
                ));
            }
        }
    }
    let status = status(flow, &steps, jobs, problem.is_some(), message);
    plan.status = (status != flow.status).then_some(status);
    plan
}

fn phase_of(job: &Object) -> &str {
    job.status["state"]["phase"].as_str().unwrap_or("Pending")
}

fn job(flow: &Object, template: &Object, step: &Step<'_>) -> Value {
    let mut spec = template.spec.clone();
    merge(&mut spec, step.patch);
    let named = |name: &str| format!("{}.{name}", flow.namespace());
    let mut labels: Map<String, Value> = template
        .metadata
        .labels
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), Value::from(value.clone())))
        .collect();
    labels.insert(BY_FLOW.to_owned(), named(flow.name()).into());
    labels.insert(BY_TEMPLATE.to_owned(), named(template.name()).into());
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": job_name(flow.name(), step.name),
            "namespace": flow.namespace(),
            "labels": labels,
            "annotations": template.metadata.annotations,
            "ownerReferences": [{
                "apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "name": flow.name(), "uid": flow.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

/// RFC 7396: maps are merged, null removes, everything else replaces.
pub(super) fn merge(to: &mut Value, patch: &Value) {
    match patch {
        Value::Null => {}
        Value::Object(fields) => {
            if !to.is_object() {
                *to = json!({});
            }
            for (name, value) in fields {
                match (value, to.as_object_mut()) {
                    (Value::Null, Some(fields)) => drop(fields.remove(name)),
                    _ => merge(&mut to[name], value),
                }
            }
        }
        other => *to = other.clone(),
    }
}

fn status(
    flow: &Object,
    steps: &[Step<'_>],
    jobs: &BTreeMap<String, &Object>,
    broken: bool,
    message: Option<String>,
) -> Value {
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut rows, mut conditions) = (Vec::new(), Map::new());
    for step in steps {
        let name = job_name(flow.name(), step.name);
        let Some(job) = jobs.get(&name) else { continue };
        let phase = phase_of(job);
        let list = match phase {
            "Pending" => "pendingJobs",
            "Running" | "Restarting" | "Completing" => "runningJobs",
            "Completed" => "completedJobs",
            "Failed" => "failedJobs",
            "Terminating" | "Terminated" | "Aborting" | "Aborted" => "terminatedJobs",
            _ => "unKnowJobs",
        };
        lists.entry(list).or_default().push(name.clone());
        let mut row = json!({"name": name, "state": phase});
        let created = job.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
        if let Some(created) = &created {
            row["startTimestamp"] = created.as_str().into();
        }
        if matches!(phase, "Completed" | "Failed" | "Terminated") {
            row["endTimestamp"] = job.status["state"]["lastTransitionTime"].clone();
        }
        if let Some(retries) = job.status["retryCount"].as_i64() {
            row["restartCount"] = retries.into();
        }
        rows.push(row);
        let mut condition = json!({"phase": phase});
        if let Some(created) = created {
            condition["createTime"] = created.into();
        }
        for (to, from) in [("runningDuration", "runningDuration"), ("taskStatusCount", "taskStatusCount")] {
            if !job.status[from].is_null() {
                condition[to] = job.status[from].clone();
            }
        }
        conditions.insert(name, condition);
    }
    let count = |list: &str| lists.get(list).map_or(0, Vec::len);
    let phase = if broken || count("failedJobs") + count("terminatedJobs") > 0 {
        "Failed"
    } else if !steps.is_empty() && count("completedJobs") == steps.len() {
        "Succeed"
    } else if count("runningJobs") + count("completedJobs") > 0 {
        "Running"
    } else {
        "Pending"
    };
    let mut state = json!({"phase": phase});
    if let Some(message) = message {
        state["message"] = message.into();
    }
    let mut status = json!({"state": state});
    for (list, names) in lists {
        status[list] = names.into();
    }
    if !rows.is_empty() {
        status["jobStatusList"] = rows.into();
        status["conditions"] = conditions.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        serde_json::from_value(value).expect("an object")
    }

    fn flow(flows: Value, status: Value) -> Object {
        object(json!({"metadata": {"name": "f", "namespace": "default", "uid": "u"},
            "spec": {"jobRetainPolicy": "retain", "flows": flows}, "status": status}))
    }

    fn step(name: &str, needs: &[&str]) -> Value {
        json!({"name": name, "dependsOn": {"targets": needs}})
    }

    fn job(name: &str, phase: &str) -> Object {
        object(
            json!({"metadata": {"name": name, "namespace": "default"}, "status": {"state": {"phase": phase}}}),
        )
    }

    /// Names of jobs made, and the phase.
    fn planned(flow: &Object, jobs: &[Object]) -> (Vec<String>, String) {
        let template = |name: &str| {
            object(json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1}]}}))
        };
        let templates: Vec<Object> = ["a", "b", "c"].map(template).into();
        let templates = templates.iter().map(|template| (template.name().to_owned(), template)).collect();
        let jobs = jobs.iter().map(|job| (job.name().to_owned(), job)).collect();
        let plan = plan(flow, &templates, &jobs, &Answers::new());
        let name = |job: &Value| job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let phase =
            plan.status.as_ref().map_or("", |status| status["state"]["phase"].as_str().unwrap_or_default());
        (plan.create.iter().map(name).collect(), phase.to_owned())
    }

    #[test]
    fn a_job_is_made_when_what_it_depends_on_has_completed() {
        let diamond = flow(json!([step("a", &[]), step("b", &["a"]), step("c", &["a", "b"])]), Value::Null);
        let check = |jobs: &[Object], made: &[&str], phase: &str| {
            assert_eq!(
                planned(&diamond, jobs),
                (made.iter().map(ToString::to_string).collect(), phase.to_owned())
            );
        };
        check(&[], &["f-a"], "Pending");
        check(&[job("f-a", "Pending")], &[], "Pending");
        check(&[job("f-a", "Running")], &[], "Running");
        check(&[job("f-a", "Completed")], &["f-b"], "Running");
        check(&[job("f-a", "Completed"), job("f-b", "Completed")], &["f-c"], "Running");
        check(&[job("f-a", "Completed"), job("f-b", "Failed")], &[], "Failed");
        check(&[job("f-a", "Completed"), job("f-b", "Aborted")], &[], "Failed");
        // Repaired by a retry, the flow goes on.
        check(&[job("f-a", "Completed"), job("f-b", "Running")], &[], "Running");
        let all = ["f-a", "f-b", "f-c"].map(|name| job(name, "Completed"));
        check(&all, &[], "Succeed");
    }

    #[test]
    fn a_probe_starts_a_job_before_its_target_has_completed() {
        let mut needs = step("b", &["a"]);
        needs["dependsOn"]["probe"] = json!({
            "taskStatusList": [{"taskName": "ps", "phase": "Running"}],
            "tcpSocketList": [{"taskName": "ps", "port": 2222}],
        });
        let flow = flow(json!([step("a", &[]), needs]), Value::Null);
        let target = |phase: &str, running: i64| {
            object(json!({"metadata": {"name": "f-a", "namespace": "default", "uid": "j"},
                "spec": {"tasks": [{"name": "ps", "replicas": 1}]},
                "status": {"state": {"phase": phase}, "taskStatusCount": {"ps": {"phase": {"Running": running}}}}}))
        };
        let template = object(json!({"metadata": {"name": "b", "namespace": "default"}, "spec": {}}));
        let templates = BTreeMap::from([("b".to_owned(), &template)]);
        let found = |target: &Object, answers: &Answers| {
            let jobs = BTreeMap::from([("f-a".to_owned(), target)]);
            let asked: usize = questions(&flow, &jobs).iter().map(|(_, checks)| checks.len()).sum();
            (asked, plan(&flow, &templates, &jobs, answers).create.len())
        };
        let port = Check::Tcp { task: "ps".into(), port: 2222 };
        let yes = Answers::from([("j".to_owned(), port)]);
        assert_eq!(found(&target("Pending", 0), &yes), (0, 0), "nobody is asked before the task runs");
        assert_eq!(found(&target("Running", 1), &Answers::new()), (1, 0));
        assert_eq!(found(&target("Running", 1), &yes), (1, 1));
        // What has completed is not asked, and is enough without its pods.
        assert_eq!(found(&target("Completed", 0), &Answers::new()), (0, 1));
    }

    #[test]
    fn a_patch_changes_the_templates_spec_and_the_job_is_the_flows() {
        let mut step = step("a", &[]);
        step["patch"] = json!({"jobSpec": {"minAvailable": 2, "queue": "team"}});
        let flow = flow(json!([step]), Value::Null);
        let template = object(json!({"metadata": {"name": "a", "namespace": "default"},
            "spec": {"minAvailable": 1, "tasks": [{"name": "t"}]}}));
        let templates = BTreeMap::from([("a".to_owned(), &template)]);
        let made = plan(&flow, &templates, &BTreeMap::new(), &Answers::new()).create;
        assert_eq!(made[0]["spec"], json!({"minAvailable": 2, "queue": "team", "tasks": [{"name": "t"}]}));
        assert_eq!(made[0]["metadata"]["labels"][BY_FLOW], "default.f");
        assert_eq!(made[0]["metadata"]["labels"][BY_TEMPLATE], "default.a");
        assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    #[test]
    fn what_can_never_end_is_named() {
        let said = |flows: Value| {
            let flow = flow(flows, Value::Null);
            let status = plan(&flow, &BTreeMap::new(), &BTreeMap::new(), &Answers::new());
            let status = status.status.unwrap_or_default();
            (
                status["state"]["phase"].clone(),
                status["state"]["message"].as_str().unwrap_or_default().to_owned(),
            )
        };
        let (phase, message) = said(json!([step("a", &["b"]), step("b", &["a"])]));
        assert_eq!(phase, "Failed");
        assert!(message.contains("found the cycle"), "{message}");
        let mut wrong = step("a", &[]);
        wrong["dependsOn"]["probe"] = json!({"tcpSocketList": [{"taskName": "t", "port": 0}]});
        let says = "field spec.flows[0].dependsOn.probe.tcpSocketList[0].port: found 0; allowed";
        assert!(said(json!([wrong])).1.starts_with(says));
        assert!(said(json!([step("a", &["x"])])).1.contains("spec.flows[0].dependsOn.targets: found x"));
        let (phase, message) = said(json!([step("a", &[])]));
        assert_eq!(phase, "Pending");
        assert!(message.contains("found a, which is no JobTemplate of namespace default"), "{message}");
    }

    #[test]
    fn a_flow_that_has_ended_deletes_its_jobs_only_when_it_says_so() {
        let ended = json!({"state": {"phase": "Succeed"}});
        let mut flow = flow(json!([step("a", &[])]), ended);
        let done = job("f-a", "Completed");
        let jobs = BTreeMap::from([("f-a".to_owned(), &done)]);
        let plan = |flow: &Object, jobs: &BTreeMap<String, &Object>| {
            plan(flow, &BTreeMap::new(), jobs, &Answers::new())
        };
        assert_eq!(plan(&flow, &jobs), FlowPlan::default());
        flow.spec["jobRetainPolicy"] = "delete".into();
        assert_eq!(plan(&flow, &jobs).delete, ["f-a"]);
        // Its jobs gone, it stays as it ended.
        assert_eq!(plan(&flow, &BTreeMap::new()), FlowPlan::default());
    }
}
