//! `fleet pai`: OpenPAI's view of the hub's jobs.

mod show;

use anyhow::bail;
use fleet_cli_ground::{
    answer::Answer,
    apply,
    args::{Connect, Scope, Targets},
    connect::Hub,
    listing, members, output,
    server::{Selectors, Server},
};
use fleet_openpai::jobs::{self, JobError, Offers, Run, Who};
use fleet_pai::{names, state::ExecutionType};
use jiff::Timestamp;
use serde_json::Value;

use crate::args::pai::{EventsArgs, GetArgs, ListArgs, LogsArgs, NamedArgs, OneArgs, PaiCommand, SubmitArgs};

/// Most bytes of the log of one pod.
const LOG_MAX: usize = 256 << 20;

pub async fn run(connect: &Connect, command: &PaiCommand) -> anyhow::Result<Answer> {
    match command {
        PaiCommand::Submit(args) => submit(connect, args).await,
        PaiCommand::List(args) => list(&connect.hub().await?, args).await,
        PaiCommand::Get(args) => get(&connect.hub().await?, args).await,
        PaiCommand::Stop(args) => want(&connect.hub().await?, args, ExecutionType::Stop).await,
        PaiCommand::Start(args) => want(&connect.hub().await?, args, ExecutionType::Start).await,
        PaiCommand::Logs(args) => logs(&connect.hub().await?, args).await,
        PaiCommand::Events(args) => events(&connect.hub().await?, args).await,
        PaiCommand::Config(args) => {
            let hub = connect.hub().await?;
            let run = find(&hub, args).await?;
            let config = &run.object["metadata"]["annotations"][names::CONFIG_ANNOTATION];
            Ok(Answer::text(config.as_str().unwrap_or_default()))
        }
    }
}

fn namespace<'a>(hub: &'a Hub, scope: &'a Scope) -> &'a str {
    scope.namespace.as_deref().unwrap_or(&hub.namespace)
}

async fn submit(connect: &Connect, args: &SubmitArgs) -> anyhow::Result<Answer> {
    let text = apply::text_of(&args.file)?;
    let name = args.file.display().to_string();
    let now_ms = Timestamp::now().as_millisecond();
    // No user lookup is needed for a dry run with owner and namespace.
    if let (true, Some(user), Some(namespace)) = (args.dry_run, &args.user, &args.scope.namespace) {
        return dry_run(&name, &text, Who { user, namespace }, &Offers::default(), now_ms);
    }
    let hub = connect.hub().await?;
    let namespace = namespace(&hub, &args.scope);
    let user = match &args.user {
        Some(user) => user.clone(),
        None => jobs::user_of(&hub.server).await?,
    };
    let who = Who { user: &user, namespace };
    let offers = Offers::read(&hub.server).await?;
    if args.dry_run {
        return dry_run(&name, &text, who, &offers, now_ms);
    }
    let taken =
        jobs::submit(&hub.server, &text, who, &offers, now_ms).await.map_err(|e| in_file(&name, e))?;
    let mut answer =
        Answer::text(format!("job {} submitted as jobs.batch.volcano.sh/{}\n", taken.id, taken.object));
    taken.notices.into_iter().for_each(|notice| answer.note(format!("note: {notice}")));
    Ok(answer)
}

fn dry_run(file: &str, text: &str, who: Who<'_>, offers: &Offers, now_ms: i64) -> anyhow::Result<Answer> {
    let (_, native) = jobs::native_objects(text, who, offers, now_ms).map_err(|e| in_file(file, e))?;
    let mut texts = Vec::new();
    for object in std::iter::once(&native.job).chain(&native.secrets) {
        texts.push(output::yaml(object)?);
    }
    let mut answer = Answer::text(texts.join("---\n"));
    native.notices.into_iter().for_each(|notice| answer.note(format!("note: {notice}")));
    Ok(answer)
}

/// Errors about the file's content begin with its name.
fn in_file(file: &str, error: JobError) -> anyhow::Error {
    match error {
        JobError::Refused(_) | JobError::NoYaml { .. } => {
            let lines: Vec<String> =
                error.to_string().lines().map(|line| format!("{file}: {line}")).collect();
            anyhow::anyhow!("{}", lines.join("\n"))
        }
        other => other.into(),
    }
}

async fn list(hub: &Hub, args: &ListArgs) -> anyhow::Result<Answer> {
    listing::run(&args.listing, async || {
        let one = args.namespaces.one(&hub.namespace);
        let mut items = jobs::list(&hub.server, one).await?;
        let wanted = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
        items.retain(|item| {
            wanted(&args.user, &item.username)
                && wanted(&args.vc, &item.virtual_cluster)
                && (args.state.is_empty() || args.state.contains(&item.state))
        });
        items.sort_by(|a, b| (b.submission_time, &a.name).cmp(&(a.submission_time, &b.name)));
        let mut list = show::table(&items, args.listing.is_wide(), Timestamp::now())?;
        list.nothing = match one {
            Some(namespace) => format!("No jobs found in namespace {namespace}."),
            None => "No jobs found.".to_owned(),
        };
        Ok(list)
    })
    .await
}

/// The newest run of the requested job: `USER~NAME`, or a name, of the caller's own job or of the only one.
async fn find(hub: &Hub, args: &OneArgs) -> anyhow::Result<Run> {
    find_named(hub, namespace(hub, &args.scope), &args.job).await
}

async fn find_named(hub: &Hub, namespace: &str, job: &str) -> anyhow::Result<Run> {
    if names::of_id(job).is_some() {
        return Ok(jobs::newest(&hub.server, Some(namespace), job).await?);
    }
    let user = jobs::user_of(&hub.server).await?;
    match jobs::newest(&hub.server, Some(namespace), &names::id(&user, job)).await {
        Err(JobError::NoJob { .. }) => {}
        found => return Ok(found?),
    }
    let items = jobs::list(&hub.server, Some(namespace)).await?;
    let ids: Vec<String> =
        items.iter().filter(|item| item.name == job).map(|item| names::id(&item.username, job)).collect();
    match ids.as_slice() {
        [] => bail!("job {job:?} is not in namespace {namespace}; `fleet pai list` shows those that are"),
        [id] => Ok(jobs::newest(&hub.server, Some(namespace), id).await?),
        ids => bail!("found {} jobs {job:?}; allowed: one of {}", ids.len(), ids.join(", ")),
    }
}

async fn get(hub: &Hub, args: &GetArgs) -> anyhow::Result<Answer> {
    let run = find(hub, &args.one).await?;
    let mut answer = Answer::default();
    let tasks = match pods(hub, &run).await {
        Ok(Some((_, pods))) => jobs::tasks_of_pods(&run, &pods),
        Ok(None) => jobs::tasks_of_counts(&run),
        Err(why) => {
            answer.note(format!("note: {why:#}; tasks are shown by their numbers alone"));
            jobs::tasks_of_counts(&run)
        }
    };
    let mut detail = jobs::detail(&run, tasks);
    jobs::add_tasks(&hub.server, &run, &mut detail).await;
    match output::data(args.shown.output.as_ref(), &detail, ("job/", "{.name}"))? {
        Some(text) => answer.text = text,
        None => {
            answer.text = show::page(&run, &detail, Timestamp::now());
            answer.for_people = true;
        }
    }
    Ok(answer)
}

/// The member in which a job runs, and its pods there; `None` if it is not bound.
async fn pods(hub: &Hub, run: &Run) -> anyhow::Result<Option<(Server, Vec<Value>)>> {
    let Some(cluster) = run.cluster() else { return Ok(None) };
    let targets = Targets { all_clusters: false, clusters: vec![cluster.to_owned()] };
    let reached = members::reach(hub, &targets).await?;
    let member = match reached.into_iter().next() {
        Some(Ok(member)) => member,
        Some(Err(unreached)) => bail!("cluster({}): {}", unreached.cluster, unreached.why),
        None => return Ok(None),
    };
    let labels = Some(format!("volcano.sh/job-name={}", run.name()));
    let selectors = Selectors { labels, ..Selectors::default() };
    let path = format!("/api/v1/namespaces/{}/pods", run.namespace());
    let mut listed = member.list(&path, &selectors, "application/json").await?;
    let pods = listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(Some((member, pods)))
}

/// One after the other; a failure does not stop the rest.
async fn want(hub: &Hub, args: &NamedArgs, wanted: ExecutionType) -> anyhow::Result<Answer> {
    let mut answer = Answer::default();
    for job in &args.jobs {
        let done = match find_named(hub, namespace(hub, &args.scope), job).await {
            Ok(run) => want_one(hub, &run, wanted).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(line) => answer.text.push_str(&format!("{line}\n")),
            Err(error) => answer.fail(format!("error: {error:#}")),
        }
    }
    Ok(answer)
}

async fn want_one(hub: &Hub, run: &Run, wanted: ExecutionType) -> anyhow::Result<String> {
    let state = run.state();
    Ok(match wanted {
        ExecutionType::Stop if state.is_final() => {
            format!("job {} has ended already ({})", run.id, state.as_str())
        }
        ExecutionType::Stop => {
            jobs::stop(&hub.server, run).await?;
            format!("job {} is being stopped", run.id)
        }
        ExecutionType::Start if !state.is_final() && run.execution() == ExecutionType::Start => {
            format!("job {} is started already ({})", run.id, state.as_str())
        }
        ExecutionType::Start => match jobs::start(&hub.server, run).await? {
            number if number > run.number => format!("job {} runs again, as run {number}", run.id),
            _ => format!("job {} goes on", run.id),
        },
    })
}

async fn logs(hub: &Hub, args: &LogsArgs) -> anyhow::Result<Answer> {
    let run = find(hub, &args.one).await?;
    let Some(rules) = run.rules() else {
        bail!("job {} has no completion rules, so its tasks are unknown", run.id)
    };
    let roles: Vec<&str> = rules.roles.iter().map(|rule| rule.role.as_str()).collect();
    if let Some(role) = args.role.as_deref().filter(|role| !roles.contains(role)) {
        bail!("--role: found {role:?}; allowed: {}", roles.join(", "));
    }
    let wanted = rules.roles.iter().filter(|rule| args.role.as_ref().is_none_or(|role| *role == rule.role));
    let tasks: Vec<(String, String)> = wanted
        .flat_map(|rule| {
            let indexes = (0..rule.instances).filter(|index| args.index.is_none_or(|only| only == *index));
            indexes.map(|index| {
                let pod = format!("{}-{}-{index}", run.name(), rule.task);
                (format!("{}[{index}]", rule.role), pod)
            })
        })
        .collect();
    if let (Some(index), true) = (args.index, tasks.is_empty()) {
        let most = rules.roles.iter().map(|rule| rule.instances - 1).max().unwrap_or(0);
        bail!("--index: found {index}; allowed: 0 to {most}");
    }
    let Some((member, pods)) = pods(hub, &run).await? else {
        let why = run.waiting().map(|(reason, message)| format!(": {reason}: {message}")).unwrap_or_default();
        bail!("job {} has no pods yet{why}", run.id);
    };
    let mut answer = Answer::default();
    let mut found = 0;
    for (task, pod) in &tasks {
        if !pods.iter().any(|there| there["metadata"]["name"] == pod.as_str()) {
            continue;
        }
        found += 1;
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}/log?container=app&tailLines={}",
            run.namespace(),
            args.tail
        );
        match member.text(&path, LOG_MAX).await {
            Ok(text) => {
                for line in text.lines() {
                    // With several pods, each line begins with its pod.
                    let before = if tasks.len() > 1 { format!("{task} ") } else { String::new() };
                    answer.text.push_str(&format!("{before}{line}\n"));
                }
            }
            Err(error) => answer.fail(format!("error: {task}: {error}")),
        }
    }
    if found == 0 {
        answer.fail(format!("error: no pods of job {} are left in cluster {}", run.id, member.name));
    }
    Ok(answer)
}

async fn events(hub: &Hub, args: &EventsArgs) -> anyhow::Result<Answer> {
    listing::run(&args.listing, async || {
        let run = find(hub, &args.one).await?;
        let mut list = show::events(&jobs::events(&hub.server, &run).await?, Timestamp::now())?;
        list.nothing = format!("No events of job {}.", run.id);
        Ok(list)
    })
    .await
}
