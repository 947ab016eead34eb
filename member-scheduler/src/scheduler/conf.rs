//! Parses `volcano-scheduler.conf` in Volcano's format; every mistake is reported with its line.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use fleet_api::yaml::{Located, Node, read_located};
use fleet_scheduler::{
    Action, Config, Plugin, PluginName, Policy,
    config::{Arguments, Hook, not_acted_on},
};
use tokio::sync::{mpsc, watch};

use super::loads::Source;
use crate::changes::CoreChange;

mod metrics;

/// Interval at which the file is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Volcano's actions that are part of other actions here: preempt and reclaim handle whole gangs.
const SAME_AS: [(&str, Action); 2] = [("gangpreempt", Action::Preempt), ("gangreclaim", Action::Reclaim)];

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conf {
    pub config: Config,
    /// Source of node loads; `None`: not needed.
    pub loads: Option<Source>,
}

/// Parses a configuration.
///
/// # Errors
/// Line, field, value found and values allowed, in one sentence.
pub(crate) fn read(text: &str) -> Result<Conf, String> {
    let document = read_located(text).map_err(|(line, what)| format!("line {line}: {what}"))?;
    let mut config = Config { actions: Vec::new(), tiers: Vec::new(), action_arguments: BTreeMap::new() };
    let mut lines: Vec<(PluginName, String, u64)> = Vec::new();
    let mut source = Source::default();
    for (key, value) in map(&document, "the document")? {
        match key.as_str() {
            "actions" => config.actions = actions(value)?,
            "tiers" => {
                for (t, tier) in list(value, "tiers")?.iter().enumerate() {
                    config.tiers.push(read_tier(tier, &format!("tiers[{t}]"), &mut lines)?);
                }
            }
            "configurations" => {
                for (c, entry) in list(value, "configurations")?.iter().enumerate() {
                    let (action, arguments) = read_configuration(entry, &format!("configurations[{c}]"))?;
                    config.action_arguments.insert(action, arguments);
                }
            }
            "metrics" => source = metrics::read(value)?,
            _ => return Err(wrong(value.line, "field", key, "actions, tiers, configurations, metrics")),
        }
    }
    if config.actions.is_empty() {
        config.actions = Config::default().actions;
    }
    if config.tiers.is_empty() {
        config.tiers = Config::default().tiers;
    }
    Policy::compile(&config).map_err(|error| {
        let at =
            lines.iter().find(|(plugin, name, _)| plugin.as_str() == error.plugin && *name == error.argument);
        format!("line {}: {error}", at.map_or(1, |(.., line)| *line))
    })?;
    let asked = config.tiers.iter().flatten().any(|plugin| plugin.name == PluginName::Usage);
    Ok(Conf { config, loads: asked.then_some(source) })
}

fn actions(value: &Located) -> Result<Vec<Action>, String> {
    let Node::Text(text) = &value.node else {
        return Err(wrong(
            value.line,
            "actions",
            &value.to_json().to_string(),
            "names of actions with commas",
        ));
    };
    let mut found = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let action = read_action(name).ok_or_else(|| wrong(value.line, "actions", name, &action_names()))?;
        if !found.contains(&action) {
            found.push(action);
        }
    }
    Ok(found)
}

fn read_action(name: &str) -> Option<Action> {
    Action::read(name).or_else(|| SAME_AS.iter().find(|(same, _)| *same == name).map(|(_, action)| *action))
}

fn action_names() -> String {
    let own = Action::ALL.iter().map(|(name, _)| *name);
    own.chain(SAME_AS.iter().map(|(name, _)| *name)).collect::<Vec<_>>().join(", ")
}

fn read_tier(
    tier: &Located,
    path: &str,
    lines: &mut Vec<(PluginName, String, u64)>,
) -> Result<Vec<Plugin>, String> {
    let mut plugins = Vec::new();
    for (key, value) in map(tier, path)? {
        if key != "plugins" {
            return Err(wrong(value.line, &format!("{path}, field"), key, "plugins"));
        }
        for (p, entry) in list(value, &format!("{path}.plugins"))?.iter().enumerate() {
            plugins.push(read_plugin(entry, &format!("{path}.plugins[{p}]"), lines)?);
        }
    }
    let by_tree =
        plugins.iter().any(|plugin| plugin.name == PluginName::Drf && plugin.hooks.has(Hook::Hierarchy));
    if by_tree && plugins.iter().any(|plugin| plugin.name == PluginName::Proportion) {
        return Err(wrong(
            tier.line,
            path,
            "drf with enableHierarchy beside proportion",
            "one of the two in a tier",
        ));
    }
    Ok(plugins)
}

fn read_plugin(
    entry: &Located,
    path: &str,
    lines: &mut Vec<(PluginName, String, u64)>,
) -> Result<Plugin, String> {
    let fields = map(entry, path)?;
    let named = fields.iter().find(|(key, _)| key == "name");
    let Some((_, name)) = named else {
        return Err(wrong(entry.line, &format!("{path}.name"), "nothing", "a plugin's name"));
    };
    let text = scalar(name).unwrap_or_default();
    let Some(plugin) = PluginName::read(&text) else {
        let names: Vec<&str> = PluginName::ALL.iter().map(|(name, _)| *name).collect();
        return Err(wrong(name.line, &format!("{path}.name"), &text, &names.join(", ")));
    };
    let mut found = Plugin::new(plugin);
    for (key, value) in fields {
        if key == "name" {
            continue;
        }
        if key == "arguments" {
            found.arguments = read_arguments(value, &format!("{path}.arguments"), plugin, lines)?;
            continue;
        }
        let Some(hook) = Hook::read(key) else {
            let hooks: Vec<&str> = Hook::ALL.iter().map(|(name, _)| *name).collect();
            let allowed = format!("name, arguments, {}", hooks.join(", "));
            return Err(wrong(value.line, &format!("{path}, field"), key, &allowed));
        };
        let Node::Bool(on) = value.node else {
            return Err(wrong(
                value.line,
                &format!("{path}.{key}"),
                &value.to_json().to_string(),
                "true or false",
            ));
        };
        found.hooks.set(hook, on);
    }
    Ok(found)
}

fn read_arguments(
    value: &Located,
    path: &str,
    plugin: PluginName,
    lines: &mut Vec<(PluginName, String, u64)>,
) -> Result<Arguments, String> {
    let mut found = Arguments::new();
    if value.node == Node::Null {
        return Ok(found);
    }
    let mut take = |name: String, value: &Located| {
        if !plugin.takes(&name) {
            let allowed = plugin.arguments();
            let allowed = if allowed.is_empty() { "no arguments".to_owned() } else { allowed.join(", ") };
            return Err(wrong(value.line, path, &name, &allowed));
        }
        lines.push((plugin, name.clone(), value.line));
        // Values that are not scalars belong to plugins that are not supported.
        found.insert(name, scalar(value).unwrap_or_else(|| value.to_json().to_string()));
        Ok(())
    };
    for (key, value) in map(value, path)? {
        match &value.node {
            // `thresholds: {cpu: 80}` is `thresholds.cpu: 80`.
            Node::Map(inner) if !plugin.takes(key) => {
                for (name, value) in inner {
                    let name = format!("{key}.{name}");
                    match &value.node {
                        // `resources: {cpu: {weight: 2}}` is `resources.cpu.weight: 2`.
                        Node::Map(fields) => {
                            for (field, value) in fields {
                                take(format!("{name}.{field}"), value)?;
                            }
                        }
                        _ => take(name, value)?,
                    }
                }
            }
            _ => take(key.clone(), value)?,
        }
    }
    Ok(found)
}

fn read_configuration(entry: &Located, path: &str) -> Result<(Action, Arguments), String> {
    let fields = map(entry, path)?;
    let name = fields.iter().find(|(key, _)| key == "name").map(|(_, value)| value);
    let text = name.and_then(scalar).unwrap_or_default();
    let line = name.map_or(entry.line, |name| name.line);
    let action =
        read_action(&text).ok_or_else(|| wrong(line, &format!("{path}.name"), &text, &action_names()))?;
    let mut found = Arguments::new();
    for (key, value) in fields.iter().filter(|(key, _)| key != "name") {
        if key != "arguments" {
            return Err(wrong(value.line, &format!("{path}, field"), key, "name, arguments"));
        }
        for (key, value) in map(value, path)? {
            if !action.arguments().contains(&key.as_str()) {
                let allowed = action.arguments();
                let allowed = if allowed.is_empty() { "no arguments".to_owned() } else { allowed.join(", ") };
                return Err(wrong(value.line, &format!("{path}.arguments"), key, &allowed));
            }
            found.insert(key.clone(), scalar(value).unwrap_or_default());
        }
    }
    Ok((action, found))
}

fn wrong(line: u64, what: &str, found: &str, allowed: &str) -> String {
    format!("line {line}, {what}: found {found:?}; allowed: {allowed}")
}

fn map<'l>(value: &'l Located, what: &str) -> Result<&'l [(String, Located)], String> {
    match &value.node {
        Node::Map(entries) => Ok(entries),
        _ => Err(wrong(value.line, what, &value.to_json().to_string(), "a map")),
    }
}

fn list<'l>(value: &'l Located, what: &str) -> Result<&'l [Located], String> {
    match &value.node {
        Node::List(items) => Ok(items),
        _ => Err(wrong(value.line, what, &value.to_json().to_string(), "a list")),
    }
}

fn scalar(value: &Located) -> Option<String> {
    match &value.node {
        Node::Text(text) => Some(text.clone()),
        Node::Number(number) => Some(number.to_string()),
        Node::Bool(on) => Some(on.to_string()),
        _ => None,
    }
}

/// Reads the file whenever it changes, until the receiver is dropped. An invalid file is reported, and the
/// last valid one stays in force.
pub(crate) async fn watch(
    file: PathBuf,
    changes: mpsc::Sender<CoreChange>,
    loads: watch::Sender<Option<Source>>,
) {
    let mut known: Option<String> = None;
    loop {
        match tokio::fs::read_to_string(&file).await {
            Ok(text) if known.as_ref() != Some(&text) => {
                match read(&text) {
                    Ok(Conf { config, loads: source }) => {
                        for name in not_acted_on(&config) {
                            tracing::warn!(name, "this plugin or argument is accepted, but has no effect");
                        }
                        tracing::info!(file = %file.display(), "read the scheduler's configuration");
                        if changes.send(CoreChange::Config(Box::new(config))).await.is_err() {
                            return;
                        }
                        loads.send_if_modified(|known| {
                            let new = *known != source;
                            *known = source;
                            new
                        });
                    }
                    Err(error) => {
                        tracing::error!(file = %file.display(), error, "the scheduler's configuration is invalid; the last valid one stays in force");
                    }
                }
                known = Some(text);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(file = %file.display(), %error, "cannot read the configuration"),
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Volcano's chart ships it.
    const CHART: &str = r#"
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"#;

    #[test]
    fn the_charts_configuration_is_read() {
        let config = read(CHART).unwrap().config;
        assert_eq!(config.actions, [Action::Enqueue, Action::Allocate, Action::Backfill]);
        let names: Vec<Vec<&str>> = config
            .tiers
            .iter()
            .map(|tier| tier.iter().map(|plugin| plugin.name.as_str()).collect())
            .collect();
        assert_eq!(
            names,
            [
                vec!["priority", "gang", "conformance"],
                vec!["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"]
            ]
        );
        assert!(
            !config.tiers[0][1].hooks.has(Hook::Preemptable) && config.tiers[0][1].hooks.has(Hook::JobReady)
        );
    }

    #[test]
    fn arguments_are_read() {
        let text = r#"
actions: "enqueue, allocate, preempt, gangreclaim"
tiers:
- plugins:
  - name: sla
    arguments:
      sla-waiting-time: 1h2m3s
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.resources: nvidia.com/gpu, example.com/foo
      binpack.resources.nvidia.com/gpu: 2
  - name: tdm
    arguments:
      tdm.revocable-zone.rz1: 10:00-21:00
configurations:
- name: preempt
  arguments:
    allowWholeBundle: false
"#;
        let policy = Policy::compile(&read(text).unwrap().config).unwrap();
        let plugins = &policy.plugins;
        assert_eq!(plugins.sla.as_ref().unwrap().rules.wait_s, Some(3723));
        assert_eq!(plugins.binpack.as_ref().unwrap().rules.weight, 10);
        assert_eq!(plugins.tdm.as_ref().unwrap().rules.zones["rz1"], (600, 1260));
        assert!(!policy.whole_gangs);
        assert_eq!(policy.actions[3], Action::Reclaim);
    }

    #[test]
    fn usage_and_where_it_is_read() {
        let file = |metrics: &str| {
            format!(
                "tiers:\n- plugins:\n  - name: usage\n    enablePredicate: false\n    arguments:\n      usage.weight: 7\n      \
                 thresholds:\n        cpu: 70\n        mem: 60.5\n{metrics}"
            )
        };
        let conf = read(&file("")).unwrap();
        assert_eq!(conf.loads, Some(Source::default()));
        let on = Policy::compile(&conf.config).unwrap().plugins.usage.unwrap();
        let usage = &on.rules;
        assert_eq!((on.hooks.has(Hook::Predicate), usage.weight, usage.cpu_weight), (false, 7, 1));
        assert_eq!((usage.cpu_threshold, usage.memory_threshold), (700_000, 605_000));
        let metrics = "metrics:\n  type: prometheus\n  address: http://prometheus.monitoring:9090/\n  interval: 10s\n  \
                       tls:\n    insecureSkipVerify: \"true\"\n";
        let source = read(&file(metrics)).unwrap().loads.unwrap();
        assert_eq!(source.to_string(), "prometheus at http://prometheus.monitoring:9090");
        assert_eq!(source.interval, Duration::from_secs(10));
        // Where nobody asks for loads, none are read.
        assert_eq!(read(&format!("{CHART}{metrics}")).unwrap().loads, None);
        let check = |from: &str, to: &str, wanted: &str| {
            assert_eq!(read(&file(metrics).replace(from, to)).unwrap_err(), wanted);
        };
        check(
            "type: prometheus",
            "type: statsd",
            r#"line 11, metrics.type: found "statsd"; allowed: prometheus, prometheus_adaptor, elasticsearch, metrics-server"#,
        );
        check(
            "http://prometheus",
            "prometheus",
            r#"line 12, metrics.address: found "prometheus.monitoring:9090/"; allowed: an address such as http://prometheus:9090"#,
        );
        check(
            "10s",
            "often",
            r#"line 13, metrics.interval: found "often"; allowed: a duration from 1s, such as 30s"#,
        );
        check(
            "mem: 60.5",
            "disk: 60",
            r#"line 9, tiers[0].plugins[0].arguments: found "thresholds.disk"; allowed: usage.weight, cpu.weight, memory.weight, thresholds.cpu, thresholds.mem"#,
        );
        check(
            "cpu: 70",
            "cpu: lots",
            r#"line 8: plugin usage, argument thresholds.cpu: found "lots"; allowed: a number of percent from 0 to 100"#,
        );
    }

    #[test]
    fn mistakes_name_line_and_allowed_values() {
        let check = |from: &str, to: &str, wanted: &str| {
            let text = CHART.replace(from, to);
            assert_ne!(text, CHART);
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(wanted), "{error}\nwanted: {wanted}");
        };
        check(
            "backfill",
            "back",
            r#"line 2, actions: found "back"; allowed: enqueue, allocate, preempt, reclaim, "#,
        );
        check(
            "overcommit",
            "overcomit",
            r#"line 10, tiers[1].plugins[0].name: found "overcomit"; allowed: gang, priority, "#,
        );
        check(
            "enablePreemptable: false\n  - name: conformance",
            "enablePreempt: false\n  - name: conformance",
            r#"line 7, tiers[0].plugins[1], field: found "enablePreempt"; allowed: name, arguments, enableJobOrder, "#,
        );
        check(
            "- name: binpack",
            "- name: binpack\n    arguments:\n      binpack.gpu: 3",
            r#"line 18, tiers[1].plugins[5].arguments: found "binpack.gpu"; allowed: binpack.weight, binpack.cpu, "#,
        );
        check(
            "- name: binpack",
            "- name: binpack\n    arguments:\n      binpack.cpu: many",
            r#"line 18: plugin binpack, argument binpack.cpu: found "many"; allowed: a whole number"#,
        );
        check("tiers:", "tears:", r#"line"#);
        check(
            "  - name: drf\n",
            "  - name: drf\n    enableHierarchy: true\n",
            "line 9, tiers[1]: found \"drf with",
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_read_again_and_a_bad_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("volcano-scheduler.conf");
        let (sender, mut changes) = mpsc::channel(4);
        std::fs::write(&file, CHART).unwrap();
        let watching = tokio::spawn(watch(file.clone(), sender, watch::Sender::new(None)));
        let actions = |change: Option<CoreChange>| match change {
            Some(CoreChange::Config(config)) => config.actions.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(actions(changes.recv().await), 3);
        std::fs::write(&file, "actions: nothing").unwrap();
        tokio::time::sleep(3 * LOOK_INTERVAL).await;
        assert!(changes.try_recv().is_err());
        std::fs::write(&file, CHART.replace("enqueue, allocate, backfill", "enqueue, allocate")).unwrap();
        assert_eq!(actions(changes.recv().await), 2);
        watching.abort();
    }
}
