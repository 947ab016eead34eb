//! `fleet vc explain`: the cells of one job, or why it has none, and the jobs on cells of its virtual
//! cluster.

use anyhow::bail;
use fleet_api::{
    QueueUnit, ResourceBinding, VirtualCluster, cells::class::class_name, names::VIRTUAL_CLUSTER_LABEL,
};
use fleet_cli_ground::{answer::Answer, connect::Hub, discovery, output};
use fleet_openpai::cells::{
    self, Picture, Standing, job_of, tree,
    waiting::{WaitingPod, waiting_pods},
};
use fleet_policies::workload::WorkloadKind;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use super::show;
use crate::args::vc::VcExplainArgs;
use crate::queue;
use fleet_console::{
    progress::Progress,
    table::{Table, labelled},
};

/// State of a job and its cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub job: String,
    pub kind: String,
    pub virtual_cluster: String,
    pub class: String,
    /// Where it runs, how it ended, or that it waits.
    pub state: String,
    /// Why it waits: code and message.
    pub reason: Option<String>,
    pub message: Option<String>,
    pub cells: Vec<PodCells>,
    /// Pods that wait while others of the job run.
    pub waiting: Vec<WaitingPod>,
    /// Jobs that have cells of its virtual cluster, or of which it borrows.
    pub others: Vec<tree::Occupant>,
    pub promised: Option<fleet_api::cells::VirtualClusterStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCells {
    pub pod: String,
    pub node: String,
    pub leaf_cells: Vec<i32>,
    /// Type of the promised cell; empty for a pod without a promise.
    pub preassigned_cell_type: String,
}

pub async fn run(hub: &Hub, args: &VcExplainArgs) -> anyhow::Result<Answer> {
    let _progress = Progress::start("asking the hub");
    let namespace = args.scope.namespace.clone().unwrap_or_else(|| hub.namespace.clone());
    let standing = Standing::read(&hub.server).await?;
    let of_job = |binding: &&ResourceBinding| {
        let job = job_of(binding);
        job.namespace == namespace && job.name == args.job
    };
    let found: Vec<&ResourceBinding> = standing.bindings.iter().filter(of_job).collect();
    let binding = match found.as_slice() {
        [binding] => *binding,
        [] => bail!(
            "job {:?}: found no binding in namespace {namespace}; `fleet explain {} -n {namespace}` says why",
            args.job,
            args.job
        ),
        several => {
            let kinds: Vec<&str> = several.iter().map(|b| b.spec.resource.kind.as_str()).collect();
            bail!("job {:?}: found {}; allowed: the name of one job", args.job, kinds.join(" and "))
        }
    };
    let (units, vcs) = tokio::try_join!(queue::list::<QueueUnit>(hub, queue::UNITS.to_string()), async {
        cells::virtual_clusters(&hub.server).await.map_err(anyhow::Error::from)
    },)?;
    let is_its = |unit: &&QueueUnit| {
        let of = &unit.spec.consumer_ref;
        unit.namespace().as_deref() == Some(namespace.as_str()) && of.name == binding.name_any()
    };
    let unit = units.iter().find(is_its);
    let object = object(hub, binding).await?;
    let now = Timestamp::now();
    let picture = standing.picture(now)?;
    let resource = &binding.spec.resource;
    let kind = WorkloadKind::of(&resource.api_version, &resource.kind);
    let queue = unit.and_then(|unit| unit.spec.queue.as_ref()).or(binding.spec.queue.as_ref());
    let of_leaf = match queue {
        Some(queue) => cells::of_leaf(&queue::list(hub, queue::trees()).await?, queue),
        None => None,
    };
    let asked = cells::asked(kind, &object, of_leaf.as_deref());
    let mut told = tell(binding, unit, asked, picture.as_ref(), &vcs);
    if let Some(picture) = &picture
        && binding.status.as_ref().is_none_or(|status| status.result.is_none())
    {
        let held = told.cells.iter().filter(|pod| !pod.node.is_empty()).map(|pod| pod.pod.clone()).collect();
        told.waiting = waiting_pods(picture, kind, &object, &held, now);
    }
    if let Some(text) = output::data(args.shown.output.as_ref(), &json!(told), ("", ".job"))? {
        return Ok(Answer::text(text));
    }
    Ok(Answer::people(print(&told)))
}

/// The job as it is now.
async fn object(hub: &Hub, binding: &ResourceBinding) -> anyhow::Result<Value> {
    let resource = &binding.spec.resource;
    let (group, version) = resource.api_version.split_once('/').unwrap_or(("", &resource.api_version));
    let kinds = discovery::kinds(&hub.server).await?;
    let is_its = |kind: &&discovery::Kind| {
        kind.group == group && kind.version == version && kind.kind == resource.kind
    };
    let Some(kind) = kinds.iter().find(is_its) else { return Ok(Value::Null) };
    match hub.server.object(&format!("{}/{}", kind.path(Some(&resource.namespace)), resource.name)).await {
        Ok(object) => Ok(object),
        Err(error) if error.is_not_found() => Ok(Value::Null),
        Err(error) => Err(error.into()),
    }
}

/// `asked` is virtual cluster and class of the job as it is now; a run has those that it was admitted with.
pub fn tell(
    binding: &ResourceBinding,
    unit: Option<&QueueUnit>,
    asked: (String, String),
    picture: Option<&Picture>,
    vcs: &[VirtualCluster],
) -> Explanation {
    let groups = binding.spec.cells.as_ref().map_or(&[][..], |cells| &cells.groups);
    let admitted = groups.first().map(|group| &group.request);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let virtual_cluster = admitted.map_or(asked.0, |admitted| text(&admitted["virtualCluster"]));
    let number = |of: &Value| of["priority"].as_i64().and_then(|class| i32::try_from(class).ok());
    let class = admitted.and_then(number).map_or(asked.1, class_name);
    let pods = groups.iter().flat_map(|group| &group.pods).map(|pod| PodCells {
        pod: pod.name.clone(),
        node: pod.node.clone(),
        leaf_cells: pod.leaf_cells.clone(),
        preassigned_cell_type: pod.preassigned_cell_type.clone(),
    });
    let status = binding.status.as_ref();
    let result = status.and_then(|status| status.result.as_ref());
    let target = binding.spec.clusters.first();
    let state = match (result, target) {
        (Some(result), _) => format!("{} in {}", result.outcome, result.cluster),
        (None, Some(target)) => format!("in {} (run {})", target.name, binding.spec.epoch),
        (None, None) => "waits".to_string(),
    };
    let waits = result.is_none() && target.is_none();
    let unit = unit.and_then(|unit| unit.status.as_ref()).filter(|_| waits);
    // A job without a queue has no unit; its binding has the reason.
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let scheduled = conditions.iter().find(|told| told.type_ == "Scheduled" && told.status == "False");
    let scheduled = scheduled.filter(|_| waits);
    let own = job_of(binding).to_string();
    let others =
        picture.and_then(|picture| tree::of_virtual_cluster(picture, &virtual_cluster, tree::Detail::Every));
    let mut others: Vec<tree::Occupant> = others.into_iter().flatten().flat_map(|row| row.jobs).collect();
    others.retain(|job| job.job != own);
    others.sort();
    others.dedup();
    Explanation {
        kind: binding.spec.resource.kind.clone(),
        job: own,
        class,
        state,
        reason: unit.and_then(|unit| unit.reason.clone()).or(scheduled.map(|told| told.reason.clone())),
        message: unit.and_then(|unit| unit.message.clone()).or(scheduled.map(|told| told.message.clone())),
        cells: pods.collect(),
        waiting: Vec::new(),
        others,
        promised: vcs.iter().find(|vc| vc.spec.name == virtual_cluster).and_then(|vc| vc.status.clone()),
        virtual_cluster,
    }
}

pub fn print(told: &Explanation) -> String {
    let mut lines = vec![("Job", format!("{} ({})", told.job, told.kind)), ("State", told.state.clone())];
    if let Some(reason) = &told.reason {
        lines.push(("Reason", reason.clone()));
        lines.push(("", told.message.clone().unwrap_or_default()));
    }
    let class = if told.class.is_empty() { String::new() } else { format!(", class {}", told.class) };
    lines.push((
        "VC",
        match told.virtual_cluster.as_str() {
            "" => format!("none: the job has no label {VIRTUAL_CLUSTER_LABEL}"),
            vc => format!("{vc}{class}"),
        },
    ));
    if let Some(status) = &told.promised {
        for (index, leaves) in status.leaf_cells.iter().enumerate() {
            let text = format!(
                "{}: {} promised, {} used, {} bad, {} lent, {} borrowed",
                leaves.cell_type,
                leaves.guaranteed,
                leaves.used,
                leaves.bad,
                leaves.borrowed_out,
                leaves.borrowed_in
            );
            lines.push((if index == 0 { "Leaf cells" } else { "" }, text));
        }
    }
    let mut text = labelled(&lines, 12);
    if !told.cells.is_empty() {
        let mut table = Table::new(&["Pod", "Node", "Devices", "Promised cell"]);
        for pod in &told.cells {
            let devices: Vec<String> = pod.leaf_cells.iter().map(i32::to_string).collect();
            let promised = match pod.preassigned_cell_type.as_str() {
                "" => "none: opportunistic",
                promised => promised,
            };
            table.row([pod.pod.as_str(), &pod.node, &devices.join(","), promised]);
        }
        text.push_str(&format!("\n{}", table.print()));
    }
    for pod in &told.waiting {
        text.push_str(&format!("\n{} waits: {}: {}\n", pod.pod, pod.reason, pod.message));
    }
    if !told.others.is_empty() {
        // Each group of a job is one of them.
        let mut others: Vec<String> = told.others.iter().map(show::occupant).collect();
        others.dedup();
        text.push_str(&format!("\nAlso on cells of {}: {}\n", told.virtual_cluster, others.join(", ")));
    }
    text
}
