//! What policies of both kinds have: the writes they are about, their bindings, conditions, variables and parameters.
//!
//! Inputs: policies and bindings as stored, and writes under review. Absent on purpose: what a policy does with a
//! write (see `policy`, `mutation`).

use super::hook::{Condition, Rule, Selectors, compile_conditions, conditions, seen_as};
use super::review::Review;
use fleet_apiserver_cel::Value as Cel;
use fleet_apiserver_cel::expression::{Expression, Variables};
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::registry::ServedResource;
use fleet_apiserver_schema::selectors::Labels;
use serde_json::Value;
use std::sync::Arc;

/// Objects of a `paramRef` selector that are looked at.
const MAX_PARAMS: usize = 1000;

struct Match {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
    selectors: Selectors,
}

impl Match {
    fn compile(spec: &Value) -> Match {
        let rules = |key: &str| tree::list(spec, &[key]).iter().map(Rule::compile).collect();
        Match {
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            equivalent: tree::text(spec, &["matchPolicy"]) != "Exact",
            selectors: Selectors::compile(spec),
        }
    }

    fn excludes(&self, review: &Review<'_>) -> bool {
        !self.excluded.is_empty() && seen_as(review, &self.excluded, self.equivalent).is_some()
    }
}

/// A policy bound to writes.
pub struct Binding {
    /// Its name.
    pub name: String,
    /// None: the policy's own constraints alone.
    matches: Option<Match>,
    params: Option<Value>,
    /// What is done about a write that does not hold; only of validating policies.
    pub actions: Vec<String>,
}

/// The frame of one policy.
pub struct Frame {
    /// Name of the policy.
    pub name: String,
    matches: Match,
    conditions: Vec<Result<(String, Expression), String>>,
    variables: Vec<(String, Result<Expression, String>)>,
    param_kind: Option<(String, String)>,
    /// What cannot be judged is refused.
    pub fails: bool,
    /// The bindings, in order.
    pub bindings: Vec<Binding>,
}

impl Frame {
    /// Reads a policy, and those of the bindings that are its own.
    pub fn compile(policy: &Value, bindings: &[Arc<Obj>]) -> Frame {
        let name = tree::meta_text(policy, "name").to_string();
        let empty = Value::Null;
        let spec = policy.get("spec").unwrap_or(&empty);
        let binding = |b: &Arc<Obj>| {
            let spec = &b.at(&["spec"])?;
            (tree::text(spec, &["policyName"]) == name).then(|| Binding {
                name: b.meta_text("name").to_string(),
                matches: spec.get("matchResources").map(Match::compile),
                params: spec.get("paramRef").cloned(),
                actions: tree::list(spec, &["validationActions"])
                    .iter()
                    .filter_map(|a| a.as_str().map(str::to_string))
                    .collect(),
            })
        };
        let variable = |v: &Value| {
            let expression = Expression::compile(tree::text(v, &["expression"]));
            (tree::text(v, &["name"]).to_string(), expression)
        };
        let kind = spec.get("paramKind").filter(|k| !k.is_null());
        Frame {
            matches: Match::compile(spec.get("matchConstraints").unwrap_or(&empty)),
            conditions: compile_conditions(spec),
            variables: tree::list(spec, &["variables"]).iter().map(variable).collect(),
            param_kind: kind
                .map(|k| (tree::text(k, &["apiVersion"]).into(), tree::text(k, &["kind"]).into())),
            fails: tree::text(spec, &["failurePolicy"]) != "Ignore",
            bindings: bindings.iter().filter_map(binding).collect(),
            name,
        }
    }

    /// The version in which the policy sees a write; None: it is not about it.
    pub fn sees(&self, review: &Review<'_>) -> Option<ServedResource> {
        let seen = seen_as(review, &self.matches.rules, self.matches.equivalent)?;
        (!self.matches.excludes(review) && self.matches.selectors.select(review)).then_some(seen)
    }

    /// Whether a binding is about a write that its policy is about.
    pub fn binds(&self, binding: &Binding, review: &Review<'_>) -> bool {
        binding.matches.as_ref().is_none_or(|m| {
            let meant = m.rules.is_empty() || seen_as(review, &m.rules, m.equivalent).is_some();
            meant && !m.excludes(review) && m.selectors.select(review)
        })
    }

    /// What the match conditions say.
    pub fn conditions(&self, scope: &Variables) -> Condition {
        conditions(&self.conditions, scope)
    }

    /// Adds the variables of the policy, each of which knows those before it.
    pub fn declare(&self, scope: &mut Variables) {
        let mut known: Vec<(String, Cel)> = Vec::new();
        scope.put_map("variables", &known);
        for (name, expression) in &self.variables {
            // One that cannot be computed is missed only by those who use it.
            if let Some(value) = expression.as_ref().ok().and_then(|e| e.value(scope).ok()) {
                known.push((name.clone(), value));
                scope.put_map("variables", &known);
            }
        }
    }

    /// The parameter objects of a binding; one null without parameters.
    ///
    /// # Errors
    /// They are not there, and the binding needs them.
    pub fn params(&self, review: &Review<'_>, binding: &Binding) -> Result<Vec<Value>, String> {
        let Some((version, kind)) = &self.param_kind else { return Ok(vec![Value::Null]) };
        let Some(reference) = binding.params.as_ref().filter(|p| !p.is_null()) else {
            return Ok(vec![Value::Null]);
        };
        let registry = review.base.registry.load();
        let Some(entry) = registry.by_kind(version, kind) else {
            return Err(format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'"));
        };
        let namespace = match tree::text(reference, &["namespace"]) {
            _ if !entry.resource.namespaced => "",
            "" => review.namespace,
            given => given,
        };
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let name = tree::text(reference, &["name"]);
        let found: Vec<Value> = if name.is_empty() {
            let labels = Labels::from_object(reference.get("selector").unwrap_or(&Value::Null));
            let all = entry.table.objects().into_iter();
            let mine = all.filter(|o| o.key.starts_with(&prefix) && labels.matches(&o.node()));
            mine.take(MAX_PARAMS).map(|o| o.value()).collect()
        } else {
            entry.table.get(&format!("{prefix}{name}")).map(|o| o.value()).into_iter().collect()
        };
        if found.is_empty() && tree::text(reference, &["parameterNotFoundAction"]) != "Allow" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        Ok(found)
    }
}
