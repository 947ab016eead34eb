//! Access rules of virtual clusters: an administrator's rules beside HiveD's configuration, in the terms of
//! the quota tree's leaves.
//!
//! The controller checks namespaces ([`VcAccess::admit`]). It does not know who created a job, so the hub's
//! API server checks subjects at submission; [`VcAccess::subjects`] is the list that it uses.

use std::collections::BTreeMap;

use fleet_cells::{
    OPPORTUNISTIC,
    config::{ClusterConfig, ConfigError, ConfigErrors},
};
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::class::class_name;

/// Rules by the name of the virtual cluster.
pub type AccessRules = BTreeMap<String, VcAccess>;

/// Who may use one virtual cluster. An absent list admits everybody, an empty list nobody.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VcAccess {
    /// Namespaces whose jobs may use it. Jobs of other namespaces wait (`NotAdmittedToVirtualCluster`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024), inner(length(max = 63))))]
    pub submitter_namespaces: Option<Vec<String>>,
    /// Who may submit jobs that use it: `user:NAME`, `group:NAME` and `serviceaccount:NAMESPACE/NAME`. The
    /// API server refuses other users' jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024), inner(length(max = 512))))]
    pub submitters: Option<Vec<String>>,
    /// Namespaces whose jobs may have a class above opportunistic there. Jobs of other admitted namespaces
    /// may only be opportunistic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024), inner(length(max = 63))))]
    pub guaranteed_namespaces: Option<Vec<String>>,
}

impl VcAccess {
    /// Whether a job of the namespace may have the class in virtual cluster `vc`, to which these rules
    /// belong.
    ///
    /// # Errors
    /// A sentence with what is allowed.
    pub fn admit(&self, vc: &str, namespace: &str, class: i32) -> Result<(), String> {
        let lacks = |list: &Option<Vec<String>>| {
            list.as_ref().filter(|list| !list.iter().any(|entry| entry == namespace)).map(|list| named(list))
        };
        if let Some(allowed) = lacks(&self.submitter_namespaces) {
            return Err(format!(
                "virtual cluster {vc} admits no jobs of namespace {namespace:?}; allowed: {allowed}"
            ));
        }
        if class > OPPORTUNISTIC
            && let Some(allowed) = lacks(&self.guaranteed_namespaces)
        {
            return Err(format!(
                "virtual cluster {vc} admits only opportunistic jobs of namespace {namespace:?}, found class {}; \
                 allowed above {}: jobs of {allowed}",
                class_name(class),
                class_name(OPPORTUNISTIC),
            ));
        }
        Ok(())
    }

    /// Who may submit, as an API server names them, separated by commas; `None` if everybody may.
    pub fn subjects(&self) -> Option<String> {
        let listed = self.submitters.as_ref()?;
        let subjects = listed.iter().filter_map(|entry| fleet_quota_tree::subject(entry));
        Some(subjects.collect::<Vec<_>>().join(","))
    }
}

fn named(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

/// Whether the rules fit a configuration.
///
/// # Errors
/// Every mistake with its path. Rules of a virtual cluster that does not exist are a mistake: if it was
/// renamed, it would be open to everybody under its new name.
pub fn check(access: &AccessRules, config: &ClusterConfig) -> Result<(), ConfigErrors> {
    let mut wrong = Vec::new();
    let known: Vec<&str> = config.virtual_clusters.keys().map(String::as_str).collect();
    for (vc, rules) in access {
        let path = format!("access.{vc}");
        let mut tell = |path: String, found: &str, allowed: &str| {
            wrong.push(ConfigError { path, found: found.to_owned(), allowed: allowed.to_owned() });
        };
        if !known.contains(&vc.as_str()) {
            let allowed = format!("a virtual cluster of the configuration: {}", known.join(", "));
            tell(path.clone(), "rules of no virtual cluster", &allowed);
        }
        let lists = [
            ("submitterNamespaces", &rules.submitter_namespaces),
            ("guaranteedNamespaces", &rules.guaranteed_namespaces),
        ];
        for (field, list) in lists {
            for (index, entry) in list.iter().flatten().enumerate() {
                let at = format!("{path}.{field}[{index}]");
                let admitted = rules.submitter_namespaces.as_ref();
                if !fleet_quota_tree::is_namespace(entry) {
                    tell(at, &format!("{entry:?}"), "the name of a namespace");
                } else if let Some(admitted) = admitted.filter(|admitted| !admitted.contains(entry)) {
                    tell(at, entry, &format!("of submitterNamespaces: {}", named(admitted)));
                }
            }
        }
        for (index, entry) in rules.submitters.iter().flatten().enumerate() {
            if fleet_quota_tree::subject(entry).is_none() {
                let allowed = "user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME";
                tell(format!("{path}.submitters[{index}]"), &format!("{entry:?}"), allowed);
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(ConfigErrors(wrong)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(value: serde_json::Value) -> VcAccess {
        serde_json::from_value(value).expect("rules")
    }

    #[test]
    fn namespaces_and_classes_are_admitted_as_the_rules_say() {
        let check = |rules: &VcAccess, namespace: &str, class: i32, expected: &str| {
            let told = rules.admit("vc1", namespace, class).err().unwrap_or_default();
            assert_eq!(told, expected, "{namespace} {class}");
        };
        let open = VcAccess::default();
        check(&open, "anybody", 1000, "");
        let some = rules(json!({"submitterNamespaces": ["a", "b"], "guaranteedNamespaces": ["a"]}));
        for (namespace, class) in [("a", 1000), ("a", -1), ("b", -1)] {
            check(&some, namespace, class, "");
        }
        let told = "virtual cluster vc1 admits only opportunistic jobs of namespace \"b\", found class prod; \
                    allowed above oppo: jobs of a";
        check(&some, "b", 100, told);
        check(&some, "b", 0, &told.replace("prod", "0"));
        check(&some, "c", -1, "virtual cluster vc1 admits no jobs of namespace \"c\"; allowed: a, b");
        let closed = rules(json!({"submitterNamespaces": []}));
        check(&closed, "a", 10, "virtual cluster vc1 admits no jobs of namespace \"a\"; allowed: none");
    }

    #[test]
    fn subjects_are_named_as_the_api_server_does() {
        let some = rules(json!({"submitters": ["user:alice", "group:staff", "serviceaccount:team-a/ci"]}));
        let listed = "user:alice,group:staff,user:system:serviceaccount:team-a:ci";
        assert_eq!(some.subjects().as_deref(), Some(listed));
        assert_eq!(rules(json!({"submitters": []})).subjects().as_deref(), Some(""));
        assert_eq!(VcAccess::default().subjects(), None);
    }

    #[test]
    fn mistakes_are_told_with_their_paths() {
        let config: ClusterConfig =
            serde_json::from_value(json!({"virtualClusters": {"vc1": {}, "vc2": {}}})).expect("one");
        let told = |access: serde_json::Value| -> Vec<String> {
            let access: AccessRules = serde_json::from_value(access).expect("rules");
            let errors = super::check(&access, &config).err();
            errors.into_iter().flat_map(|errors| errors.0).map(|error| error.to_string()).collect()
        };
        assert_eq!(told(json!({"vc1": {"submitterNamespaces": ["a"], "submitters": ["user:a"]}})), [""; 0]);
        assert_eq!(
            told(json!({"VC1": {}})),
            [
                "access.VC1: found rules of no virtual cluster; allowed: a virtual cluster of the configuration: vc1, vc2"
            ]
        );
        let wrong = json!({"vc1": {"submitterNamespaces": ["A b"], "submitters": ["alice", "user:a,b"],
            "guaranteedNamespaces": ["c"]}});
        assert_eq!(
            told(wrong),
            [
                "access.vc1.submitterNamespaces[0]: found \"A b\"; allowed: the name of a namespace",
                "access.vc1.guaranteedNamespaces[0]: found c; allowed: of submitterNamespaces: A b",
                "access.vc1.submitters[0]: found \"alice\"; allowed: user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME",
                "access.vc1.submitters[1]: found \"user:a,b\"; allowed: user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME",
            ]
        );
    }
}
