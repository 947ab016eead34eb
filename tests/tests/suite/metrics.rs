//! What Prometheus makes of a running fleet: every metric is documented and well named, every expression of the dashboards
//! and alert rules has data, and alerts fire.
//!
//! Debian's `prometheus` and `promtool`; where they are not installed, see [`fleet_tests::tools`].

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use fleet_api::{crds::Side, yaml};
use fleet_tests::{
    ApiServers, FleetProcess, Kubectl, Polled,
    jobs::{Job, Queueing, gang_policy},
    kubectl::Shell,
    metrics::{Families, families},
    process::{Daemon, fleet_binary, ports_in_a_row, program},
    repository,
    servers::{Door, Plane},
    wait_for,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const WITHIN: Duration = Duration::from_secs(60);

fn installed(program: &str) -> anyhow::Result<bool> {
    fleet_tests::tools::has_program(program, "prometheus")
}

fn promtool(arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut tool = Command::new("promtool")
        .args(arguments)
        .current_dir(repository())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    tool.stdin.take().context("stdin")?.write_all(input.as_bytes())?;
    let ended = tool.wait_with_output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(ended.status.success(), "promtool {arguments:?} ended with {}:\n{said}", ended.status);
    Ok(said)
}

fn file(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(repository().join(path)).with_context(|| path.to_owned())
}

const RULES: &str = "charts/fleet/files/alerts.yaml";
const CASES: &str = "tests/tests/alerts.yaml";

fn rules() -> anyhow::Result<Vec<Value>> {
    let read: Value = yaml::read(&file(RULES)?).map_err(|error| anyhow::anyhow!("{RULES}: {error}"))?;
    let groups = read["groups"].as_array().context("groups")?;
    Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Metrics that an expression names, histograms by their own name.
fn metrics_of(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| ["fleet_", "apiserver_"].iter().any(|prefix| word.starts_with(prefix)));
    ours.map(|word| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        of_histogram.unwrap_or(word)
    })
}

#[test]
fn every_alert_can_fire_and_is_documented() -> anyhow::Result<()> {
    let documented = file("docs/metrics.md")?;
    let cases: Value = yaml::read(&file(CASES)?).map_err(|error| anyhow::anyhow!("{CASES}: {error}"))?;
    let fires = cases["tests"][0]["promql_expr_test"][0]["exp_samples"].to_string();
    let (rules, exposed) = (rules()?, self::documented()?);
    ensure!(rules.len() > 10, "{RULES}: {rules:?}");
    for rule in &rules {
        let name = text_of(&rule["alert"]);
        assert!(documented.contains(&format!("`{name}`")), "docs/metrics.md does not name {name}");
        assert!(fires.contains(&format!("\\\"{name}\\\"")), "{CASES} does not make {name} fire: {fires}");
        assert!(!text_of(&rule["annotations"]["summary"]).is_empty(), "{name} has no summary");
        let expression = text_of(&rule["expr"]);
        for metric in metrics_of(&expression) {
            // That each of these is exposed, the test below says.
            assert!(
                exposed.contains_key(metric),
                "{name}: found {metric}; allowed: a metric of docs/metrics.md"
            );
        }
        assert!(metrics_of(&expression).next().is_some(), "{name}: {expression}");
        let severity = text_of(&rule["labels"]["severity"]);
        assert!(
            ["critical", "warning", "info"].contains(&severity.as_str()),
            "{name}: severity {severity:?}"
        );
    }
    if installed("promtool")? {
        promtool(&["check", "rules", RULES], "")?;
        promtool(&["test", "rules", CASES], "")?;
    }
    Ok(())
}

/// Prometheus' own text, which `promtool check metrics` reads: counters have their suffix in the type line.
fn plain(open_metrics: &str) -> String {
    let counters: BTreeSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .filter(|name| !name.ends_with("_total"))
        .collect();
    let mut text = String::new();
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        let mut words: Vec<&str> = line.splitn(4, ' ').collect();
        let total = words.get(2).filter(|name| line.starts_with('#') && counters.contains(*name));
        let total = total.map(|name| format!("{name}_total"));
        if let Some(total) = &total {
            words[2] = total;
        }
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    text
}

/// Of the tables of `docs/metrics.md`: type and labels by name.
fn documented() -> anyhow::Result<Families> {
    of_tables(&file("docs/metrics.md")?)
}

/// The same of some of its sections.
fn documented_in(titles: &[&str]) -> anyhow::Result<Families> {
    let all = file("docs/metrics.md")?;
    let sections = all
        .split("\n## ")
        .filter(|section| section.lines().next().is_some_and(|title| titles.contains(&title)));
    of_tables(&sections.collect::<Vec<_>>().join("\n"))
}

fn of_tables(text: &str) -> anyhow::Result<Families> {
    let mut all = Families::new();
    for line in text.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let Some(name) = cells.next().and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`')) else {
            continue;
        };
        let Some(kind) = cells.next().filter(|kind| ["gauge", "counter", "histogram"].contains(kind)) else {
            continue;
        };
        let (name, labels) =
            name.strip_suffix('}').and_then(|name| name.split_once('{')).unwrap_or((name, ""));
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
        ensure!(
            all.insert(name.to_owned(), (kind.to_owned(), labels)).is_none(),
            "{name} stands there twice"
        );
    }
    Ok(all)
}

struct Stage {
    fleet: FleetProcess,
    shell: Shell,
    folder: tempfile::TempDir,
    metrics: String,
    prometheus: String,
    _daemon: Daemon,
}

/// Starts Prometheus; with where it answers.
fn prometheus(folder: &Path, config: &Value, address: &str) -> anyhow::Result<(Daemon, String)> {
    let config_file = folder.join("prometheus.yaml");
    std::fs::write(&config_file, config.to_string())?;
    let flag = |name: &str, value: &str| format!("--{name}={value}");
    let flags = [
        flag("config.file", &config_file.display().to_string()),
        flag("storage.tsdb.path", &folder.join("data").display().to_string()),
        flag("web.listen-address", address),
        flag("log.level", "warn"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let daemon = Daemon::start(Path::new("prometheus"), &flags)?;
    Ok((daemon, format!("http://{address}")))
}

/// GET of `http://ADDRESS/PATH`.
async fn get(url: &str) -> anyhow::Result<String> {
    let (address, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).context("a URL")?;
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /{path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer")?;
    ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{url}: {head}\n{body}");
    Ok(body.to_owned())
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// A kubeconfig's server, token and certificate of the authority.
fn access(kubeconfig: &Path, folder: &Path, name: &str) -> anyhow::Result<Value> {
    let read: Value =
        yaml::read(&std::fs::read_to_string(kubeconfig)?).map_err(|error| anyhow::anyhow!("{error}"))?;
    let cluster = &read["clusters"][0]["cluster"];
    let ca =
        base64::engine::general_purpose::STANDARD.decode(text_of(&cluster["certificate-authority-data"]))?;
    let ca_file = folder.join(format!("{name}.ca.pem"));
    std::fs::write(&ca_file, ca)?;
    let server = text_of(&cluster["server"]);
    Ok(json!({
        "job_name": format!("apiserver-{name}"), "scheme": "https", "scrape_interval": "1s",
        "authorization": {"credentials": read["users"][0]["user"]["token"]},
        "tls_config": {"ca_file": ca_file},
        "static_configs": [{"targets": [server.strip_prefix("https://").context("a server")?]}],
    }))
}

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fleet-metrics-").tempdir()?;
        let home = folder.path().join("home");
        let arguments =
            ["--metrics-address", "127.0.0.1:0", "--portal-port", "0", "--members", "2", "--nodes", "2"];
        let runtime = ["--gpus", "8", "--runtime", "6s"];
        let port = ports_in_a_row(5)?;
        let fleet = FleetProcess::up(&home, port, &[&arguments[..], &runtime[..]].concat()).await?;
        let said = fleet.output();
        let metrics = said.lines().find_map(|line| line.strip_prefix("Metrics: "));
        let metrics =
            metrics.with_context(|| format!("a line with the address of metrics in:\n{said}"))?.to_owned();
        let shell = Shell::new(&home.join("kubeconfig"), &home.join("bin"))?;

        // The rules as they stand, but without their patience.
        let mut alerts: Value = yaml::read(&file(RULES)?).map_err(|error| anyhow::anyhow!("{error}"))?;
        for rule in alerts["groups"][0]["rules"].as_array_mut().into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                rule.remove("for");
            }
        }
        let rules = folder.path().join("alerts.yaml");
        std::fs::write(&rules, alerts.to_string())?;
        let target = metrics.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let mut scrape = vec![json!({"job_name": "fleet", "scrape_interval": "1s",
            "static_configs": [{"targets": [target.context("an address")?]}]})];
        for (name, kubeconfig) in [("hub", "kubeconfig"), ("east", "members/east.kubeconfig")] {
            scrape.push(access(&home.join(kubeconfig), folder.path(), name)?);
        }
        let config =
            json!({"global": {"evaluation_interval": "1s"}, "rule_files": [rules], "scrape_configs": scrape});
        let (daemon, prometheus) = prometheus(folder.path(), &config, &format!("127.0.0.1:{}", port + 4))?;
        Ok(Self { fleet, shell, folder, metrics, prometheus, _daemon: daemon })
    }

    async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let kubectl = Kubectl::find().context("no kubectl on PATH, and FLEET_KUBECTL does not name one")?;
        let said = self.shell.run(&kubectl, arguments).await?;
        ensure!(said.succeeded(), "{said}");
        Ok(())
    }

    async fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        let file = self.folder.path().join("object.json");
        for object in objects {
            std::fs::write(&file, object.to_string())?;
            self.kubectl(&["apply", "-f", &file.display().to_string()]).await?;
        }
        Ok(())
    }

    /// `data` of an answer of Prometheus' API.
    async fn ask(&self, path: &str) -> anyhow::Result<Value> {
        let answer: Value = serde_json::from_str(&get(&format!("{}{path}", self.prometheus)).await?)?;
        Ok(answer["data"].clone())
    }

    async fn wait_for_data(&self, what: &str, path: &str, field: &str) -> anyhow::Result<()> {
        wait_for(&format!("data of {what}"), WITHIN, async || {
            let data = match self.ask(path).await {
                Ok(data) => data,
                // It has just been started; what is wrong with an expression stays wrong.
                Err(error) => return Ok(Polled::NotYet(format!("{error:#}"))),
            };
            let found = if field.is_empty() { &data } else { &data[field] };
            let some = found.as_array().is_some_and(|found| !found.is_empty());
            Ok(Polled::when(some, || data.to_string()))
        })
        .await
    }
}

/// One queue with a guarantee and a bound.
fn tree() -> Value {
    // More than the clusters have: what is too large for them is not too large for its queue.
    let gpus = json!({"nvidia.com/gpu": 1000});
    let leaf = json!({"name": "research", "namespaces": ["default"], "min": gpus, "max": gpus});
    json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "min": gpus, "max": gpus, "children": [leaf]}}})
}

/// What Grafana puts in for its variables.
fn filled_in(expression: &str) -> String {
    let mut text = expression.replace("$__rate_interval", "10s");
    for variable in ["queue", "resource", "cluster", "process"] {
        text = text.replace(&format!("${variable}"), ".*");
    }
    text
}

/// File, title and JSON of each dashboard.
fn dashboards() -> anyhow::Result<Vec<(PathBuf, Value)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(repository().join("charts/fleet/files/dashboards"))? {
        let path = entry?.path();
        let read = serde_json::from_str(&std::fs::read_to_string(&path)?)
            .with_context(|| path.display().to_string())?;
        all.push((path, read));
    }
    ensure!(all.len() >= 3, "{} dashboards", all.len());
    Ok(all)
}

async fn every_expression_has_data(stage: &Stage) -> anyhow::Result<()> {
    let mut expressions = 0;
    for (path, board) in dashboards()? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for variable in board["templating"]["list"].as_array().into_iter().flatten() {
            let Some(query) =
                variable["query"].as_str().and_then(|query| query.strip_prefix("label_values("))
            else {
                continue;
            };
            let (metric, label) =
                query.trim_end_matches(')').split_once(", ").context("a metric and a label")?;
            let path = format!("/api/v1/label/{label}/values?match[]={}", encoded(metric));
            stage.wait_for_data(&format!("{name}, variable {}", variable["name"]), &path, "").await?;
        }
        for panel in board["panels"].as_array().into_iter().flatten() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = filled_in(&text_of(&target["expr"]));
                ensure!(
                    !expression.contains('$'),
                    "{name}: {expression}: a variable that the test does not know"
                );
                let what = format!("{name}, panel {}: {expression}", panel["title"]);
                let path = format!("/api/v1/query?query={}", encoded(&expression));
                stage.wait_for_data(&what, &path, "result").await?;
                expressions += 1;
            }
        }
    }
    ensure!(expressions > 40, "{expressions} expressions");
    Ok(())
}

async fn alerts_fire(stage: &Stage, wanted: &[&str]) -> anyhow::Result<()> {
    wait_for(&format!("the alerts {wanted:?}"), WITHIN, async || {
        let data = stage.ask("/api/v1/rules").await?;
        let rules = data["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        let state = |name: &str| {
            let rule = rules.iter().find(|rule| rule["name"] == name);
            rule.map(|rule| (text_of(&rule["state"]), text_of(&rule["health"]), text_of(&rule["lastError"])))
        };
        let seen: BTreeMap<&str, _> = wanted.iter().map(|name| (*name, state(name))).collect();
        let fires = seen.values().all(|state| state.as_ref().is_some_and(|state| state.0 == "firing"));
        Ok(Polled::when(fires, || format!("{seen:?}")))
    })
    .await
}

#[tokio::test]
async fn every_expression_of_dashboards_and_alerts_is_answered() -> anyhow::Result<()> {
    if !installed("prometheus")? || !installed("promtool")? {
        return Ok(());
    }
    let stage = Stage::set().await?;
    stage.apply(&[tree(), gang_policy(Queueing::Queued)]).await?;
    stage.apply(&[Job::pytorch("first").manifest(), Job::pytorch("second").manifest()]).await?;
    stage.apply(&[Job::pytorch("too-large").gpus(64).runs("forever").manifest()]).await?;
    stage.wait_for_data("a job that waits", "/api/v1/query?query=fleet_waiting_jobs", "result").await?;
    every_expression_has_data(&stage).await?;

    // Names are well formed, and each is documented with its labels.
    let mut text = get(&stage.metrics).await?;
    let said = promtool(&["check", "metrics"], &plain(&text))?;
    ensure!(said.trim().is_empty(), "promtool check metrics says:\n{said}");
    let shell = stage.shell.run(&Kubectl::find().context("kubectl")?, &["get", "--raw", "/metrics"]).await?;
    let said = promtool(&["check", "metrics"], &shell.stdout)?;
    ensure!(said.trim().is_empty(), "promtool check metrics of the API server says:\n{said}");
    text.push_str(&shell.stdout);
    let (exposed, documented) = (families(&text), documented()?);
    for (name, (kind, labels)) in &exposed {
        let (told_kind, told_labels) =
            documented.get(name).with_context(|| format!("{name} is not in docs/metrics.md"))?;
        assert_eq!((kind, labels), (told_kind, told_labels), "{name}");
    }
    let gone: Vec<&String> = documented.keys().filter(|name| !exposed.contains_key(*name)).collect();
    assert!(gone.is_empty(), "docs/metrics.md has metrics that no process exposes: {gone:?}");

    // Alerts of a fleet in which something is wrong.
    alerts_fire(&stage, &["FleetJobsFitNowhere"]).await?;
    for cluster in ["east", "west"] {
        let said = stage.shell.run(&fleet_binary()?, &["cordon", cluster]).await?;
        ensure!(said.succeeded(), "{said}");
    }
    alerts_fire(&stage, &["FleetNoClusterReady"]).await?;
    let data = stage.ask("/api/v1/rules").await?;
    let evaluated = data["groups"][0]["rules"].as_array().context("rules")?;
    assert_eq!(evaluated.len(), rules()?.len());
    for rule in evaluated {
        assert_eq!(rule["health"], "ok", "{rule}");
        let is_quiet = !["FleetJobsFitNowhere", "FleetNoClusterReady", "FleetQueueStuck"]
            .contains(&rule["name"].as_str().unwrap_or_default());
        assert!(!is_quiet || rule["state"] == "inactive", "{rule}");
    }
    match stage.fleet.interrupt().await? {
        Some(0) => Ok(()),
        other => bail!("fleet up ended with {other:?}"),
    }
}

/// Controller, agent and portal each by itself, as in production: every metric that one exposes is documented in its section.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_by_itself_exposes_what_is_documented_of_it() -> anyhow::Result<()> {
    if !installed("prometheus")? || !installed("promtool")? {
        return Ok(());
    }
    let servers = ApiServers::from_env()?;
    let hub = servers.start("hub", Side::Hub, Door::Listening).await?;
    let east = servers.start("east", Side::Member, Door::Listening).await?;
    let folder = tempfile::Builder::new().prefix("fleet-single-").tempdir()?;
    let kubeconfig = |plane: &Plane| -> anyhow::Result<String> {
        let path = folder.path().join(format!("{}.kubeconfig", plane.name));
        let address = plane.address.as_ref().context("a server that listens")?;
        std::fs::write(&path, &address.kubeconfig)?;
        Ok(path.display().to_string())
    };
    let (hub_file, east_file) = (kubeconfig(&hub)?, kubeconfig(&east)?);
    let port = ports_in_a_row(5)?;
    let addresses: Vec<String> = (0..5).map(|index| format!("127.0.0.1:{}", port + index)).collect();
    let metrics = |index: usize| ["--metrics-address", addresses[index].as_str()];
    let controller = [&["--kubeconfig", &hub_file], &metrics(0)[..]].concat();
    let of_agent = ["--cluster", "east", "--hub-kubeconfig", &hub_file, "--member-kubeconfig", &east_file];
    let agent = [&of_agent[..], &metrics(1)].concat();
    let of_portal = ["--kubeconfig", &hub_file, "portal", "--listen", addresses[3].as_str()];
    let portal = [&of_portal[..], &metrics(2)].concat();
    let started = [
        ("Controller", Daemon::start(&program("fleet-controller")?, &controller)?),
        ("Agent", Daemon::start(&program("member-agent")?, &agent)?),
        ("Portal", Daemon::start(&fleet_binary()?, &portal)?),
    ];
    let scrape = started.iter().zip(&addresses).map(|((name, _), address)| {
        json!({"job_name": name, "scrape_interval": "1s", "static_configs": [{"targets": [address]}]})
    });
    let config = json!({"scrape_configs": scrape.collect::<Vec<_>>()});
    let (_prometheus, asked) = prometheus(folder.path(), &config, &addresses[4])?;
    for (index, (name, _)) in started.iter().enumerate() {
        // A member that the agent may join has to be there, and it has a lease then.
        let ready = match *name {
            "Agent" => "fleet_agent_lease_remaining_seconds",
            "Portal" => "fleet_portal_hub_up",
            _ => "fleet_controller_leader",
        };
        let path = format!(
            "/api/v1/query?query={}",
            encoded(&format!("{ready} > 0 and on() up{{job=\"{name}\"}} == 1"))
        );
        wait_for(&format!("{name} to be scraped with {ready}"), WITHIN, async || {
            let answer = get(&format!("{asked}{path}")).await;
            let some = answer.as_ref().is_ok_and(|text| text.contains("\"value\""));
            Ok(Polled::when(some, || format!("{answer:?}")))
        })
        .await?;
        let text = get(&format!("http://{}/metrics", addresses[index])).await?;
        let said = promtool(&["check", "metrics"], &plain(&text))?;
        ensure!(said.trim().is_empty(), "promtool check metrics of {name} says:\n{said}");
        let known = documented_in(&[name, "Every process but the API server"])?;
        let exposed = families(&text);
        for (metric, (kind, labels)) in &exposed {
            let (told_kind, told_labels) =
                known.get(metric).with_context(|| format!("{metric} of {name} is not in its section"))?;
            assert_eq!(kind, told_kind, "{metric}");
            assert!(labels.is_subset(told_labels), "{metric}: found {labels:?}; documented: {told_labels:?}");
        }
        let own = exposed.keys().filter(|metric| metric.starts_with("fleet_")).count();
        ensure!(own > 5, "{name} exposes {own} metrics of its own: {:?}", exposed.keys());
    }
    Ok(())
}
