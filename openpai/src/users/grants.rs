//! Which virtual clusters a user may use: the submitters in the access rules of the CellConfiguration in force.
//!
//! A virtual cluster without submitters is open to everybody, and stays so: like OpenPAI's `default`, it is granted to
//! all and taken from nobody.

use std::collections::BTreeSet;

use fleet_api::cells::{AccessRules, read};
use fleet_cells::OPPORTUNISTIC;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{error::UserError, names};
use crate::{
    cells::{self, CellsError, configurations_path},
    server::{AskError, Server},
};

/// Writes that find the object changed are tried so often.
const TRIES: usize = 5;

/// Access rules as they stand in the object that is in force.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    object: String,
    version: Option<String>,
    pub access: AccessRules,
    pub virtual_clusters: Vec<String>,
    /// Namespace of users' jobs; empty where it does not matter.
    pub jobs: String,
}

/// # Errors
/// The hub does not answer, or refuses.
pub async fn rules(server: &Server) -> Result<Rules, UserError> {
    let objects = match cells::configurations(server).await {
        Ok(objects) => objects,
        Err(CellsError::NotServed) => return Ok(Rules::default()),
        Err(CellsError::Ask(error)) => return Err(error.into()),
        Err(error) => return Err(UserError::Conflict(error.to_string())),
    };
    let Some(view) = read::in_force(&objects) else { return Ok(Rules::default()) };
    let clusters = view.object.spec.virtual_clusters.as_object();
    Ok(Rules {
        object: view.object.name_any(),
        version: view.object.resource_version(),
        access: view.object.spec.access.clone(),
        virtual_clusters: clusters.into_iter().flat_map(|map| map.keys().cloned()).collect(),
        jobs: String::new(),
    })
}

/// The virtual clusters that take users' jobs, each with the subjects that it takes; `None`: all.
pub struct Granted<'r>(Vec<(&'r String, Option<BTreeSet<&'r str>>)>);

impl<'r> Granted<'r> {
    /// Read once for all users.
    pub fn of(rules: &'r Rules) -> Self {
        let all = names::all_users();
        let takes = |vc: &'r String| {
            let Some(access) = rules.access.get(vc) else { return Some((vc, None)) };
            if !rules.jobs.is_empty() && access.admit(vc, &rules.jobs, OPPORTUNISTIC).is_err() {
                return None;
            }
            let named: Option<BTreeSet<&str>> =
                access.submitters.as_ref().map(|list| list.iter().map(String::as_str).collect());
            Some((vc, named.filter(|named| !named.contains(all.as_str()))))
        };
        Self(rules.virtual_clusters.iter().filter_map(takes).collect())
    }

    /// Those of one user.
    pub fn to(&self, user: &str) -> Vec<&'r String> {
        let own = names::subject(user);
        let is_open =
            |named: &Option<BTreeSet<&str>>| named.as_ref().is_none_or(|named| named.contains(own.as_str()));
        self.0.iter().filter(|(_, named)| is_open(named)).map(|(vc, _)| *vc).collect()
    }
}

/// The change that grants a user these virtual clusters and no others; none if there is nothing to change.
///
/// # Errors
/// There is no such virtual cluster.
pub fn change(rules: &Rules, user: &str, wanted: &[String]) -> Result<Option<Value>, UserError> {
    if let Some(unknown) = wanted.iter().find(|vc| !rules.virtual_clusters.contains(vc)) {
        let allowed = rules.virtual_clusters.join(", ");
        return Err(UserError::NoVirtualCluster { found: unknown.clone(), allowed });
    }
    let own = names::subject(user);
    let mut access = serde_json::Map::new();
    for (vc, rule) in &rules.access {
        let Some(list) = &rule.submitters else { continue };
        let (is, should) = (list.contains(&own), wanted.contains(vc));
        if is == should || (should && list.contains(&names::all_users())) {
            continue;
        }
        let mut list: Vec<&String> = list.iter().filter(|subject| **subject != own).collect();
        if should {
            list.push(&own);
        }
        access.insert(vc.clone(), json!({"submitters": list}));
    }
    if access.is_empty() {
        return Ok(None);
    }
    Ok(Some(json!({"metadata": {"resourceVersion": rules.version}, "spec": {"access": access}})))
}

/// Grants a user these virtual clusters and no others, with the caller's rights.
///
/// # Errors
/// There is no such virtual cluster, or the hub refuses.
pub async fn grant(server: &Server, user: &str, wanted: &[String]) -> Result<(), UserError> {
    for _ in 0..TRIES {
        let rules = rules(server).await?;
        let Some(patch) = change(&rules, user, wanted)? else { return Ok(()) };
        match server.merge(&format!("{}/{}", configurations_path(), rules.object), &patch).await {
            Err(error) if error.is_conflict() => {}
            Err(AskError::Refused { code: 403, message }) => {
                let told = "virtualCluster: grants are written to spec.access of the CellConfiguration";
                return Err(UserError::Forbidden(format!("{told}: {message}")));
            }
            done => return Ok(done.map(drop)?),
        }
    }
    Err(UserError::Conflict("the CellConfiguration is changed again and again; try later".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Rules {
        let access = json!({
            "vc1": {"submitters": ["group:ml", "serviceaccount:fleet-pai-users/alice"]},
            "vc2": {"submitters": ["group:system:serviceaccounts:fleet-pai-users"]},
            "vc3": {"submitters": [], "submitterNamespaces": ["other"]},
            "vc4": {"submitterNamespaces": ["other"]},
        });
        let virtual_clusters = ["default", "vc1", "vc2", "vc3", "vc4"].map(str::to_owned).into();
        Rules {
            access: serde_json::from_value(access).expect("rules"),
            virtual_clusters,
            version: Some("7".to_owned()),
            jobs: "default".to_owned(),
            ..Rules::default()
        }
    }

    #[test]
    fn a_user_has_what_is_open_and_what_names_him() {
        let rules = some();
        let granted = Granted::of(&rules);
        assert_eq!(granted.to("alice"), ["default", "vc1", "vc2"]);
        assert_eq!(granted.to("alic"), ["default", "vc2"]);
    }

    #[test]
    fn a_grant_changes_what_it_must_and_leaves_others_alone() {
        let vcs = |list: &[&str]| list.iter().map(|vc| (*vc).to_owned()).collect::<Vec<_>>();
        let check = |user: &str, wanted: &[&str], access: Value| {
            let patch = change(&some(), user, &vcs(wanted)).expect("known");
            let found = patch.map_or(Value::Null, |mut patch| {
                assert_eq!(patch["metadata"]["resourceVersion"], "7");
                patch["spec"]["access"].take()
            });
            assert_eq!(found, access, "{user} {wanted:?}");
        };
        let bob = "serviceaccount:fleet-pai-users/bob";
        check("alice", &["vc1"], Value::Null);
        check("alice", &["default", "vc1", "vc2", "vc4"], Value::Null);
        check("alice", &[], json!({"vc1": {"submitters": ["group:ml"]}}));
        check("bob", &[], Value::Null);
        let both = ["group:ml", "serviceaccount:fleet-pai-users/alice", bob];
        check("bob", &["vc1", "vc3"], json!({"vc1": {"submitters": both}, "vc3": {"submitters": [bob]}}));
        let told = change(&some(), "bob", &vcs(&["vc9"])).expect_err("unknown").to_string();
        assert_eq!(told, "virtualCluster: found \"vc9\"; allowed: default, vc1, vc2, vc3, vc4");
    }
}
