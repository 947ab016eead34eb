//! The CustomResourceDefinitions that a member needs, beside those that other software has installed there.
//!
//! Kinds such as PyTorchJob belong to other projects. Where their operators run, their definitions stay as they are: an older or
//! newer schema put over them would change what those operators store. A join says which stay.

use anyhow::Context;
use fleet_api::crds::{self, Side};
use fleet_cli_ground::{apply, server::Server};
use serde_json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The group of Fleet's own kinds, which are written whoever wrote them before.
const OWN_GROUP: &str = "fleet.dev";

/// What a join does about definitions.
#[derive(Debug, Default, PartialEq)]
pub struct Definitions {
    /// Those to apply.
    pub apply: Vec<Value>,
    /// A line for each that stays as it is.
    pub kept: Vec<String>,
}

/// The definitions that a member needs if it has none.
pub fn all() -> Vec<Value> {
    crds::definitions(Side::Member)
}

/// What a person has to know before applying a manifest by hand, as a comment of YAML.
pub fn remark(manifest: &Value) -> String {
    if manifest["kind"] != "CustomResourceDefinition" || !is_of_others(manifest) {
        return String::new();
    }
    let name = crds::name(manifest);
    format!("# Leave this out if the cluster has a definition {name} of others.\n")
}

/// Reads what a member has.
///
/// # Errors
/// A definition could not be read.
pub async fn of_member(member: &Server) -> anyhow::Result<Definitions> {
    let mut definitions = Definitions::default();
    for wanted in all() {
        let name = crds::name(&wanted);
        let found = match member.object(&format!("{DEFINITIONS}/{name}")).await {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error).with_context(|| format!("customresourcedefinition {name}")),
        };
        definitions.add(wanted, found.as_ref());
    }
    Ok(definitions)
}

/// Whether a definition is of another project's kind, which a cluster may have from elsewhere.
fn is_of_others(definition: &Value) -> bool {
    definition["spec"]["group"] != OWN_GROUP
}

impl Definitions {
    fn add(&mut self, wanted: Value, found: Option<&Value>) {
        let Some(installed) = found.filter(|found| is_of_others(&wanted) && !is_written_by_a_join(found))
        else {
            self.apply.push(wanted);
            return;
        };
        let (asked, served) = (served(&wanted), served(installed));
        let lacking: Vec<&str> = asked.into_iter().filter(|version| !served.contains(version)).collect();
        let name = crds::name(&wanted);
        let mut line =
            format!("customresourcedefinition.apiextensions.k8s.io/{name} kept: others have installed it");
        if !lacking.is_empty() {
            line.push_str(&format!(
                "; it serves {}, not {}, so objects of {} are not sent to this cluster",
                served.join(", "),
                lacking.join(", "),
                if lacking.len() == 1 { "this version" } else { "these versions" }
            ));
        }
        self.kept.push(line);
    }
}

fn is_written_by_a_join(definition: &Value) -> bool {
    let managers = definition["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.into_iter().any(|entry| entry["manager"] == apply::MANAGER)
}

fn served(definition: &Value) -> Vec<&str> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .filter_map(|version| version["name"].as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(group: &str, versions: &[&str], manager: &str) -> Value {
        let versions: Vec<Value> =
            versions.iter().map(|name| json!({"name": name, "served": true, "storage": true})).collect();
        json!({"metadata": {"name": format!("mpijobs.{group}"), "managedFields": [{"manager": manager}]},
            "spec": {"group": group, "versions": versions}})
    }

    #[track_caller]
    fn check(wanted: &Value, found: Option<Value>, kept: Option<&str>) {
        let mut all = Definitions::default();
        all.add(wanted.clone(), found.as_ref());
        let expected = match kept {
            None => Definitions { apply: vec![wanted.clone()], kept: Vec::new() },
            Some(rest) => Definitions {
                apply: Vec::new(),
                kept: vec![format!(
                    "customresourcedefinition.apiextensions.k8s.io/{} kept: others have installed it{rest}",
                    crds::name(wanted)
                )],
            },
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn definitions_of_others_stay_as_they_are() {
        let wanted = definition("kubeflow.org", &["v2beta1"], "");
        check(&wanted, None, None);
        check(&wanted, Some(definition("kubeflow.org", &["v2beta1"], apply::MANAGER)), None);
        check(&wanted, Some(definition("kubeflow.org", &["v2beta1"], "helm")), Some(""));
        check(
            &wanted,
            Some(definition("kubeflow.org", &["v1"], "kubectl")),
            Some("; it serves v1, not v2beta1, so objects of this version are not sent to this cluster"),
        );
        let own = definition("fleet.dev", &["v1alpha1"], "");
        check(&own, Some(definition("fleet.dev", &["v1alpha1"], "helm")), None);
    }
}
