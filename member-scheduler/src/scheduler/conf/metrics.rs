//! Section `metrics`: the source of node loads.

use std::time::Duration;

use fleet_api::yaml::Located;
use fleet_scheduler::config::duration_s;

use super::{map, scalar, wrong};
use crate::scheduler::loads::{Address, Elasticsearch, Kind, Source};

/// Values of `type`. Without the section, the metrics server is used.
const TYPES: [&str; 4] = ["prometheus", "prometheus_adaptor", "elasticsearch", "metrics-server"];
/// Another spelling in Volcano's documentation.
const ADAPTOR_TOO: &str = "prometheus_adapt";
const FIELDS: &str = "type, address, interval, tls, elasticsearch";

/// Parses the section.
///
/// # Errors
/// Line, field, value found and values allowed, in one sentence.
pub(super) fn read(section: &Located) -> Result<Source, String> {
    let mut kind = ("prometheus".to_owned(), section.line);
    let mut url: Option<(String, u64)> = None;
    let mut any_certificate = false;
    let mut interval = Source::default().interval;
    let mut elasticsearch = Elasticsearch::default();
    for (key, value) in map(section, "metrics")? {
        let path = format!("metrics.{key}");
        let text =
            || scalar(value).ok_or_else(|| wrong(value.line, &path, &value.to_json().to_string(), "a text"));
        match key.as_str() {
            "type" => kind = (text()?, value.line),
            "address" => url = Some((text()?, value.line)),
            "interval" => {
                let found = text()?;
                let seconds = duration_s(&found).filter(|seconds| *seconds > 0);
                let seconds = seconds
                    .ok_or_else(|| wrong(value.line, &path, &found, "a duration from 1s, such as 30s"))?;
                interval = Duration::from_secs(seconds.unsigned_abs());
            }
            "tls" => any_certificate = read_tls(value)?,
            "elasticsearch" => elasticsearch = read_elasticsearch(value)?,
            _ => return Err(wrong(value.line, "metrics, field", key, FIELDS)),
        }
    }
    let address = || match &url {
        Some((url, _)) if url.starts_with("http://") || url.starts_with("https://") => {
            Ok(Address { url: url.trim_end_matches('/').to_owned(), any_certificate })
        }
        Some((url, line)) => {
            Err(wrong(*line, "metrics.address", url, "an address such as http://prometheus:9090"))
        }
        None => Err(wrong(
            section.line,
            "metrics.address",
            "nothing",
            "an address such as http://prometheus:9090",
        )),
    };
    let kind = match kind.0.as_str() {
        "prometheus" => Kind::Prometheus(address()?),
        "elasticsearch" => Kind::Elasticsearch(address()?, elasticsearch),
        "prometheus_adaptor" | ADAPTOR_TOO => Kind::CustomMetrics,
        "metrics-server" => Kind::MetricsServer,
        other => return Err(wrong(kind.1, "metrics.type", other, &TYPES.join(", "))),
    };
    Ok(Source { kind, interval })
}

/// Whether certificates are not verified.
fn read_tls(section: &Located) -> Result<bool, String> {
    let mut any = false;
    for (key, value) in map(section, "metrics.tls")? {
        let found = scalar(value).unwrap_or_default();
        match (key.as_str(), found.as_str()) {
            ("insecureSkipVerify", "true") => any = true,
            ("insecureSkipVerify", "false") => any = false,
            ("insecureSkipVerify", _) => {
                return Err(wrong(value.line, "metrics.tls.insecureSkipVerify", &found, "true or false"));
            }
            _ => return Err(wrong(value.line, "metrics.tls, field", key, "insecureSkipVerify")),
        }
    }
    Ok(any)
}

fn read_elasticsearch(section: &Located) -> Result<Elasticsearch, String> {
    let mut found = Elasticsearch::default();
    for (key, value) in map(section, "metrics.elasticsearch")? {
        let text = scalar(value).unwrap_or_default();
        match key.as_str() {
            _ if text.is_empty() => {}
            "index" => found.index = text,
            "username" => found.username = text,
            "password" => found.password = text,
            "hostnameFieldName" => found.host_field = text,
            _ => {
                let allowed = "index, username, password, hostnameFieldName";
                return Err(wrong(value.line, "metrics.elasticsearch, field", key, allowed));
            }
        }
    }
    Ok(found)
}
