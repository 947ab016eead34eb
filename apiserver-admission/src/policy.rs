//! ValidatingAdmissionPolicies with their bindings.
//!
//! Inputs: compiled policies and writes under review. Absent on purpose: audit annotations, and type checking of
//! expressions against schemas.

use super::hook::{Condition, Rule, Selectors, compile_conditions, conditions, seen_as, variables};
use super::review::Review;
use fleet_apiserver_cel::Value as Cel;
use fleet_apiserver_cel::expression::{Expression, Variables};
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::selectors::Labels;
use serde_json::Value;
use std::sync::Arc;

/// Objects of a `paramRef` selector that are looked at.
const MAX_PARAMS: usize = 1000;

struct Check {
    expression: Result<Expression, String>,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

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

struct Binding {
    name: String,
    /// None: the policy's own constraints alone.
    matches: Option<Match>,
    params: Option<Value>,
    actions: Vec<String>,
}

/// One policy with its bindings.
pub struct Policy {
    name: String,
    matches: Match,
    conditions: Vec<Result<(String, Expression), String>>,
    variables: Vec<(String, Result<Expression, String>)>,
    checks: Vec<Check>,
    param_kind: Option<(String, String)>,
    /// What cannot be judged is refused.
    fails: bool,
    bindings: Vec<Binding>,
}

impl Policy {
    /// All policies that are bound.
    pub fn compile_all(policies: &[Arc<Obj>], bindings: &[Arc<Obj>]) -> Vec<Policy> {
        let compiled = policies.iter().map(|p| Policy::compile(&p.value(), bindings));
        compiled.filter(|p| !p.bindings.is_empty()).collect()
    }

    fn compile(policy: &Value, bindings: &[Arc<Obj>]) -> Policy {
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
        let check = |v: &Value| Check {
            expression: Expression::compile(tree::text(v, &["expression"])),
            message: tree::text(v, &["message"]).to_string(),
            message_expression: Expression::compile(tree::text(v, &["messageExpression"])).ok(),
            reason: tree::text(v, &["reason"]).to_string(),
        };
        let kind = spec.get("paramKind").filter(|k| !k.is_null());
        let kind = kind.map(|k| (tree::text(k, &["apiVersion"]).into(), tree::text(k, &["kind"]).into()));
        Policy {
            matches: Match::compile(spec.get("matchConstraints").unwrap_or(&empty)),
            conditions: compile_conditions(spec),
            variables: tree::list(spec, &["variables"])
                .iter()
                .map(|v| {
                    let expression = Expression::compile(tree::text(v, &["expression"]));
                    (tree::text(v, &["name"]).to_string(), expression)
                })
                .collect(),
            checks: tree::list(spec, &["validations"]).iter().map(check).collect(),
            param_kind: kind,
            fails: tree::text(spec, &["failurePolicy"]) != "Ignore",
            bindings: bindings.iter().filter_map(binding).collect(),
            name,
        }
    }

    /// Refuses a write, or adds a warning, as the bindings say.
    pub fn judge(&self, review: &Review<'_>, warnings: &mut Vec<String>) -> ApiResult<()> {
        let Some(seen) = seen_as(review, &self.matches.rules, self.matches.equivalent) else { return Ok(()) };
        if self.matches.excludes(review) || !self.matches.selectors.select(review) {
            return Ok(());
        }
        let request = review.request(&seen);
        for binding in &self.bindings {
            if let Some(m) = &binding.matches {
                let meant = m.rules.is_empty() || seen_as(review, &m.rules, m.equivalent).is_some();
                if !meant || m.excludes(review) || !m.selectors.select(review) {
                    continue;
                }
            }
            let params = match self.params(review, binding) {
                Ok(params) => params,
                Err(_) if !self.fails => continue,
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    self.act(review, binding, "", why, warnings)?;
                    continue;
                }
            };
            for param in params {
                let mut scope = variables(review, &request);
                scope.put("params", &param);
                match conditions(&self.conditions, &scope) {
                    Condition::NotMet => continue,
                    Condition::Broken(_) if !self.fails => continue,
                    Condition::Broken(why) => self.act(review, binding, "", why, warnings)?,
                    Condition::Met => {
                        for (reason, why) in self.broken(&mut scope) {
                            self.act(review, binding, &reason, why, warnings)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The checks that do not hold: reason and message.
    fn broken(&self, scope: &mut Variables) -> Vec<(String, String)> {
        let mut known: Vec<(String, Cel)> = Vec::new();
        scope.put_map("variables", &known);
        for (name, expression) in &self.variables {
            // One that cannot be computed is missed only by those who use it.
            if let Some(value) = expression.as_ref().ok().and_then(|e| e.value(scope).ok()) {
                known.push((name.clone(), value));
                scope.put_map("variables", &known);
            }
        }
        let mut out = Vec::new();
        for check in &self.checks {
            let (text, verdict) = match &check.expression {
                Ok(e) => (e.text.clone(), e.holds(scope)),
                Err(why) => (String::new(), Err(why.clone())),
            };
            match verdict {
                Ok(true) => {}
                Err(_) if !self.fails => {}
                Err(why) => {
                    out.push((check.reason.clone(), format!("expression '{text}' resulted in error: {why}")));
                }
                Ok(false) => {
                    let computed = match check.message_expression.as_ref().map(|e| e.value(scope)) {
                        Some(Ok(Cel::Text(text))) if !text.trim().is_empty() => Some(text.to_string()),
                        _ => None,
                    };
                    let message = computed.unwrap_or_else(|| match check.message.as_str() {
                        "" => format!("failed expression: {text}"),
                        given => given.to_string(),
                    });
                    out.push((check.reason.clone(), message));
                }
            }
        }
        out
    }

    fn act(
        &self,
        review: &Review<'_>,
        binding: &Binding,
        reason: &str,
        why: String,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        let (policy, by) = (&self.name, &binding.name);
        let does = |action: &str| binding.actions.iter().any(|a| a == action);
        if does("Warn") {
            let text = format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{by}': {why}"
            );
            warnings.push(text);
        }
        if does("Deny") {
            let text =
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{by}' denied request: {why}");
            return Err(ApiError::by_policy(review.resource(), &review.name, reason, &text));
        }
        Ok(())
    }

    /// The parameter objects of a binding; one null without parameters.
    fn params(&self, review: &Review<'_>, binding: &Binding) -> Result<Vec<Value>, String> {
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
