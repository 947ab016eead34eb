//! Checks of APIServices: which server answers for a group and version.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Absent on purpose: whether that server
//! is there.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::names::{self, NameRule};
use serde_json::json;

/// Highest priorities of a group among all, and of a version in its group.
const MOST: [(&str, i64); 2] = [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)];

/// Checks an APIService, or its status.
pub fn api_service(new: &At, subresource: &str) {
    if subresource == "status" {
        for condition in new.at("status.conditions").items() {
            let status = condition.at("status");
            if !matches!(status.text(), "True" | "False" | "Unknown") {
                status.unsupported(&["True", "False", "Unknown"]);
            }
        }
        return;
    }
    let spec = new.at("spec");
    let (group, version, name) = (spec.at("group"), spec.at("version"), new.at("metadata.name"));
    let wanted = format!("{}.{}", version.text(), group.text());
    // What cannot be a part of a path is told as such, and not as another name.
    let is_name = !name.text().is_empty() && names::of(NameRule::Path, name.text()).is_empty();
    if is_name && name.text() != wanted {
        name.invalid(&format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    if group.text().is_empty() && version.text() != "v1" {
        group.required("only v1 may have an empty group and it better be legacy kube");
    }
    group.name(NameRule::Subdomain);
    version.tell(version.text(), &names::label_1035(version.text()));
    for (field, most) in MOST {
        let found = spec.at(field).number().unwrap_or(0);
        if !(1..=most).contains(&found) {
            let why = format!("must be positive and less than {most}");
            spec.note(Cause::invalid(format!("spec.{field}"), &json!(found), &why));
        }
    }
    server(&spec);
}

/// How the server that answers is reached: there is none for what is answered here.
fn server(spec: &At) {
    let (service, bundle) = (spec.at("service"), spec.at("caBundle"));
    let insecure = spec.at("insecureSkipTLSVerify");
    if !service.is_set() {
        if !bundle.text().is_empty() {
            let shown = format!("{} bytes", bytes(bundle.text()));
            bundle.tell(&shown, &["local APIServices may not have a caBundle"]);
        }
        if insecure.is_true() {
            insecure.invalid("local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for field in ["namespace", "name"] {
        if service.at(field).text().is_empty() {
            service.at(field).required("");
        }
    }
    let port = service.at("port");
    if port.number().is_some_and(|n| !(1..=65_535).contains(&n)) {
        port.invalid("port is not valid: must be between 1 and 65535, inclusive");
    }
    if insecure.is_true() && !bundle.text().is_empty() {
        insecure.invalid("may not be true if caBundle is present");
    }
}

/// Bytes that a text in base64 stands for.
fn bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::Value;

    fn told(service: &Value, subresource: &str) -> Vec<String> {
        let found = Causes::default();
        api_service(&At::root(service, &found), subresource);
        found.into_inner().into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
    }

    #[test]
    fn each_mistake_is_told() {
        let service = json!({"metadata": {"name": "V.1.G_"}, "spec": {"group": "G_", "version": "V.1",
            "groupPriorityMinimum": 0, "versionPriority": 1001, "caBundle": "eA==", "insecureSkipTLSVerify": true}});
        let found = told(&service, "");
        let starts = [
            "spec.group: Invalid value: \"G_\": a lowercase RFC 1123 subdomain must consist of",
            "spec.version: Invalid value: \"V.1\": a DNS-1035 label must consist of",
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
            "spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle",
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        assert_eq!([bytes("eA=="), bytes("eHg="), bytes("eHh4")], [1, 2, 3]);
    }

    #[test]
    fn a_name_is_that_of_version_and_group() {
        let named = |name: &str| {
            json!({"metadata": {"name": name}, "spec": {"group": "g.example.com", "version": "v1",
                "groupPriorityMinimum": 1, "versionPriority": 1}})
        };
        assert!(told(&named("v1.g.example.com"), "").is_empty());
        let must = "must be `spec.version+\".\"+spec.group`: \"v1.g.example.com\"";
        assert_eq!(told(&named("x"), ""), [format!("metadata.name: Invalid value: \"x\": {must}")]);
        assert!(told(&named("x/y"), "").is_empty(), "told with all names");
    }

    #[test]
    fn the_status_has_words_of_its_own() {
        let service = json!({"status": {"conditions": [{"type": "Available", "status": "Maybe"}]}});
        let says = "Unsupported value: \"Maybe\": supported values: \"True\", \"False\", \"Unknown\"";
        assert_eq!(told(&service, "status"), [format!("status.conditions[0].status: {says}")]);
    }
}
