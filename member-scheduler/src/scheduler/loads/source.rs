//! Sources of node loads: Prometheus, the custom metrics API, Elasticsearch, or the metrics server.
//!
//! The first three, with their queries, are Volcano's (`metrics.type`); one request returns all nodes.

use std::{collections::BTreeMap, fmt, time::Duration};

use fleet_resources::quantity;
use serde_json::{Value, json};

use super::reading::{Reading, Use};
use crate::context::Context;
use crate::outside;
use fleet_agent_ground::CALL_TIMEOUT;

/// Period over which loads are averaged.
const PERIOD: &str = "10m";
/// Most hosts in one answer of Elasticsearch.
const ES_HOSTS: usize = 20_000;
const ES_HOST: &str = "host.hostname";
const ES_CPU: &str = "host.cpu.usage";
const ES_MEMORY: &str = "system.memory.actual.used.pct";

/// Idle time of processors and available memory, as the node exporter counts them.
const PROMETHEUS_CPU: &str =
    "avg_over_time((1 - avg by (instance, node) (rate(node_cpu_seconds_total{mode=\"idle\"}[5m])))[10m:30s])";
const PROMETHEUS_MEMORY: &str =
    "avg_over_time((1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)[10m:30s])";
/// Fractions of nodes in the custom metrics API.
const CUSTOM: [&str; 2] = ["node_cpu_usage_avg", "node_memory_usage_avg"];

/// Address of a separate server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// `http://` or `https://`, without a trailing `/`.
    pub url: String,
    /// `tls.insecureSkipVerify`
    pub any_certificate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elasticsearch {
    pub index: String,
    pub username: String,
    pub password: String,
    pub host_field: String,
}

impl Default for Elasticsearch {
    fn default() -> Self {
        Self {
            index: "metricbeat-*".to_owned(),
            username: String::new(),
            password: String::new(),
            host_field: ES_HOST.to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prometheus(Address),
    Elasticsearch(Address, Elasticsearch),
    /// `custom.metrics.k8s.io` of the member.
    CustomMetrics,
    /// `metrics.k8s.io` of the member.
    MetricsServer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub kind: Kind,
    pub interval: Duration,
}

impl Default for Source {
    /// The default without a section `metrics`.
    fn default() -> Self {
        Self { kind: Kind::MetricsServer, interval: Duration::from_secs(30) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Prometheus(address) => write!(f, "prometheus at {}", address.url),
            Kind::Elasticsearch(address, _) => write!(f, "elasticsearch at {}", address.url),
            Kind::CustomMetrics => f.write_str("custom.metrics.k8s.io"),
            Kind::MetricsServer => f.write_str("metrics.k8s.io"),
        }
    }
}

impl Source {
    /// Current loads of all nodes. A node without one of the two readings is left out.
    pub async fn read(&self, context: &Context) -> Result<Vec<Reading>, String> {
        match &self.kind {
            Kind::Prometheus(address) => {
                let client = client(address)?;
                let url: reqwest::Url = format!("{}/api/v1/query", address.url)
                    .parse()
                    .map_err(|error| format!("{}: {error}", address.url))?;
                let ask = |query: &'static str| {
                    let mut url = url.clone();
                    url.query_pairs_mut().append_pair("query", query);
                    outside::ask(client.get(url))
                };
                let (cpu, memory) = tokio::try_join!(ask(PROMETHEUS_CPU), ask(PROMETHEUS_MEMORY))?;
                Ok(joined(vector(&cpu)?, &vector(&memory)?))
            }
            Kind::Elasticsearch(address, options) => {
                let url = format!("{}/{}/_search", address.url, options.index);
                let mut request = client(address)?.post(url).json(&search(options));
                if !options.username.is_empty() {
                    request = request.basic_auth(&options.username, Some(&options.password));
                }
                Ok(buckets(&outside::ask(request).await?))
            }
            Kind::CustomMetrics => {
                let ask = |metric: &str| {
                    member(context, format!("/apis/custom.metrics.k8s.io/v1beta1/nodes/*/{metric}"))
                };
                let (cpu, memory) = tokio::try_join!(ask(CUSTOM[0]), ask(CUSTOM[1]))?;
                Ok(joined(described(&cpu), &described(&memory)))
            }
            Kind::MetricsServer => {
                Ok(usages(&member(context, "/apis/metrics.k8s.io/v1beta1/nodes".to_owned()).await?))
            }
        }
    }
}

fn client(address: &Address) -> Result<reqwest::Client, String> {
    outside::client(CALL_TIMEOUT, address.any_certificate)
}

async fn member(context: &Context, path: String) -> Result<Value, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    fleet_agent_ground::call(context.member.client.request(request)).await.map_err(|error| error.to_string())
}

/// Nodes with both readings.
fn joined(cpu: BTreeMap<String, f64>, memory: &BTreeMap<String, f64>) -> Vec<Reading> {
    let both = |(node, cpu): (String, f64)| {
        let memory = Use::Share(*memory.get(&node)?);
        Some(Reading { node, cpu: Use::Share(cpu), memory })
    };
    cpu.into_iter().filter_map(both).collect()
}

/// Values of an instant query by node: the label `node`, or `instance` without its port.
fn vector(answer: &Value) -> Result<BTreeMap<String, f64>, String> {
    let Some(samples) = answer["data"]["result"].as_array() else {
        let error = answer["error"].as_str().unwrap_or("no data.result");
        return Err(format!("its answer says: {error}"));
    };
    let value = |sample: &Value| {
        let instance = || {
            let instance = sample["metric"]["instance"].as_str()?;
            Some(instance.rsplit_once(':').map_or(instance, |(host, _)| host))
        };
        let node = sample["metric"]["node"].as_str().filter(|node| !node.is_empty()).or_else(instance)?;
        let value: f64 = sample["value"][1].as_str()?.parse().ok()?;
        value.is_finite().then(|| (node.to_owned(), value))
    };
    Ok(samples.iter().filter_map(value).collect())
}

/// Values of a list of custom metrics, by node.
fn described(list: &Value) -> BTreeMap<String, f64> {
    let value = |item: &Value| {
        let node = item["describedObject"]["name"].as_str()?.to_owned();
        // Thousandths, as for cpu.
        let thousandths = quantity::parse("cpu", item["value"].as_str()?).ok()?;
        Some((node, thousandths as f64 / 1_000.0))
    };
    list["items"].as_array().into_iter().flatten().filter_map(value).collect()
}

/// Use of nodes from the metrics server.
fn usages(list: &Value) -> Vec<Reading> {
    let reading = |item: &Value| {
        let node = item["metadata"]["name"].as_str()?.to_owned();
        let amount = |name: &str| quantity::parse(name, item["usage"][name].as_str()?).ok().map(Use::Amount);
        Some(Reading { node, cpu: amount("cpu")?, memory: amount("memory")? })
    };
    list["items"].as_array().into_iter().flatten().filter_map(reading).collect()
}

/// Means per host over the last [`PERIOD`].
fn search(options: &Elasticsearch) -> Value {
    json!({
        "size": 0,
        "query": {"range": {"@timestamp": {"gte": format!("now-{PERIOD}"), "lt": "now"}}},
        "aggs": {"hosts": {
            "terms": {"field": options.host_field, "size": ES_HOSTS},
            "aggs": {"cpu": {"avg": {"field": ES_CPU}}, "mem": {"avg": {"field": ES_MEMORY}}},
        }},
    })
}

fn buckets(answer: &Value) -> Vec<Reading> {
    let reading = |bucket: &Value| {
        let share = |name: &str| bucket[name]["value"].as_f64().map(Use::Share);
        let node = bucket["key"].as_str()?.to_owned();
        Some(Reading { node, cpu: share("cpu")?, memory: share("mem")? })
    };
    answer["aggregations"]["hosts"]["buckets"].as_array().into_iter().flatten().filter_map(reading).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(node: &str, cpu: f64, memory: f64) -> Reading {
        Reading { node: node.to_owned(), cpu: Use::Share(cpu), memory: Use::Share(memory) }
    }

    #[test]
    fn prometheus_names_nodes_by_label_or_instance() {
        let sample =
            |metric: Value, value: &str| json!({"metric": metric, "value": [1_700_000_000.5, value]});
        let cpu = json!({"status": "success", "data": {"resultType": "vector", "result": [
            sample(json!({"instance": "10.0.0.1:9100", "node": "n1"}), "0.25"),
            sample(json!({"instance": "n2:9100"}), "0.5"),
            sample(json!({"instance": "n3"}), "NaN"),
            sample(json!({"instance": "n4"}), "0.1"),
        ]}});
        let memory = json!({"data": {"result": [
            sample(json!({"instance": "10.0.0.1:9100", "node": "n1", "job": "node"}), "0.75"),
            sample(json!({"instance": "n2:9100"}), "1"),
            sample(json!({"instance": "n3"}), "0.5"),
        ]}});
        let found = joined(vector(&cpu).unwrap(), &vector(&memory).unwrap());
        assert_eq!(found, [shares("n1", 0.25, 0.75), shares("n2", 0.5, 1.0)]);
        let error = vector(&json!({"status": "error", "error": "query timed out"})).unwrap_err();
        assert_eq!(error, "its answer says: query timed out");
    }

    #[test]
    fn custom_metrics_are_quantities() {
        let list = |values: [(&str, &str); 2]| {
            let item = |(node, value): (&str, &str)| json!({"describedObject": {"kind": "Node", "name": node}, "value": value});
            json!({"items": values.map(item)})
        };
        let cpu = described(&list([("n1", "250m"), ("n2", "1")]));
        let memory = described(&list([("n1", "1"), ("n2", "many")]));
        assert_eq!(joined(cpu, &memory), [shares("n1", 0.25, 1.0)]);
    }

    #[test]
    fn the_metrics_server_says_amounts() {
        let list = json!({"items": [
            {"metadata": {"name": "n1"}, "usage": {"cpu": "1500m", "memory": "1Gi"}},
            {"metadata": {"name": "n2"}, "usage": {"cpu": "156340217n", "memory": "2048Ki"}},
            {"metadata": {"name": "n3"}, "usage": {"cpu": "1"}},
        ]});
        let amounts = |node: &str, cpu: i64, memory: i64| Reading {
            node: node.to_owned(),
            cpu: Use::Amount(cpu),
            memory: Use::Amount(memory),
        };
        assert_eq!(usages(&list), [amounts("n1", 1_500, 1 << 30), amounts("n2", 157, 2 << 20)]);
    }

    #[test]
    fn elasticsearch_says_means_per_host() {
        let asked = search(&Elasticsearch::default());
        assert_eq!(asked["aggs"]["hosts"]["terms"]["field"], "host.hostname");
        let bucket = |node: &str, cpu: Value, memory: Value| json!({"key": node, "doc_count": 9, "cpu": {"value": cpu}, "mem": {"value": memory}});
        let answer = json!({"aggregations": {"hosts": {"buckets": [
            bucket("n1", json!(0.5), json!(0.25)),
            bucket("n2", Value::Null, json!(0.25)),
        ]}}});
        assert_eq!(buckets(&answer), [shares("n1", 0.5, 0.25)]);
    }
}
