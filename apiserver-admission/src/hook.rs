//! One webhook: when it is called, and what its answer means.
//!
//! Inputs: a webhook of a configuration, and writes under review. Absent on purpose: how it is called (`remote`).

use super::remote::Remote;
use super::review::{Operation, Review};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_cel::AuthorizationAttributes;
use fleet_apiserver_cel::expression::{Expression, Variables};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::registry::ServedResource;
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::selectors::Labels;
use serde_json::{Value, json};
use std::time::Duration;

/// Which writes are meant: `rules` of webhooks, `resourceRules` of policies.
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

impl Rule {
    /// Reads one rule.
    pub fn compile(rule: &Value) -> Rule {
        let strings = |key: &str| -> Vec<String> {
            tree::list(rule, &[key]).iter().filter_map(|v| v.as_str().map(str::to_string)).collect()
        };
        Rule {
            operations: strings("operations"),
            groups: strings("apiGroups"),
            versions: strings("apiVersions"),
            resources: strings("resources"),
            names: strings("resourceNames"),
            scope: tree::text(rule, &["scope"]).to_string(),
        }
    }

    /// True for a write to this resource, in this version of it.
    pub fn matches(&self, r: &Resource, subresource: &str, operation: Operation, name: &str) -> bool {
        let any = |list: &[String], want: &str| list.iter().any(|x| x == want || x == "*");
        let scope = match self.scope.as_str() {
            "Namespaced" => r.namespaced,
            "Cluster" => !r.namespaced,
            _ => true,
        };
        let resource = self.resources.iter().any(|pattern| {
            let (plural, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
            (plural == "*" || plural == r.plural) && (sub == subresource || sub == "*")
        });
        scope
            && resource
            && any(&self.operations, operation.name())
            && any(&self.groups, &r.group)
            && any(&self.versions, &r.version)
            && (self.names.is_empty() || self.names.iter().any(|n| n == name))
    }
}

/// Which objects and namespaces are meant.
pub struct Selectors {
    namespaces: Labels,
    objects: Labels,
}

impl Selectors {
    /// Reads `namespaceSelector` and `objectSelector`.
    pub fn compile(spec: &Value) -> Selectors {
        let labels = |key: &str| Labels::from_object(spec.get(key).unwrap_or(&Value::Null));
        Selectors { namespaces: labels("namespaceSelector"), objects: labels("objectSelector") }
    }

    /// True when the write is selected.
    pub fn select(&self, review: &Review<'_>) -> bool {
        let object = self.objects.is_empty()
            || review.new.is_some_and(|v| self.objects.matches(v))
            || review.old.is_some_and(|v| self.objects.matches(v));
        if !object || self.namespaces.is_empty() {
            return object;
        }
        if review.resource().is("", "namespaces") {
            let own = review.new.or(review.old);
            return own.is_none_or(|ns| self.namespaces.matches(ns));
        }
        if !review.resource().namespaced {
            return true;
        }
        review.namespace_object().is_some_and(|ns| self.namespaces.matches(&ns))
    }
}

/// The version in which a rule set sees a write: the one asked for, or an equivalent one.
pub fn seen_as(review: &Review<'_>, rules: &[Rule], equivalent: bool) -> Option<ServedResource> {
    let hit = |r: &Resource| {
        rules.iter().any(|rule| rule.matches(r, review.subresource, review.operation, &review.name))
    };
    if hit(review.resource()) {
        return Some(review.entry.clone());
    }
    if !equivalent || !review.resource().custom {
        return None;
    }
    let registry = review.base.registry.load();
    let r = review.resource();
    let mut same =
        registry.all().iter().filter(|e| e.resource.group == r.group && e.resource.plural == r.plural);
    same.find(|e| hit(&e.resource)).cloned()
}

/// Variables of match conditions and policies.
pub fn variables(review: &Review<'_>, request: &Value) -> Variables {
    let mut variables = Variables::default();
    variables.put("object", request.get("object").unwrap_or(&Value::Null));
    variables.put("oldObject", request.get("oldObject").unwrap_or(&Value::Null));
    let mut slim = request.clone();
    let map = tree::object(&mut slim);
    map.remove("object");
    map.remove("oldObject");
    variables.put("request", &slim);
    variables.authorize(review.ask.clone(), asked(review));
    variables.put("namespaceObject", &review.namespace_object().unwrap_or(Value::Null));
    variables
}

/// The question that `authorizer.requestResource` starts with.
fn asked(review: &Review<'_>) -> AuthorizationAttributes {
    let resource = review.resource();
    let fields = [
        ("group", resource.group.as_str()),
        ("resource", resource.plural.as_str()),
        ("subresource", review.subresource),
        ("namespace", review.namespace),
        ("name", review.name.as_str()),
    ];
    let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
    given.map(|(field, value)| (field.to_string(), value.to_string())).collect()
}

/// What match conditions say.
pub enum Condition {
    /// All hold.
    Met,
    /// One does not hold.
    NotMet,
    /// One cannot be judged; says why.
    Broken(String),
}

/// Judges match conditions: one that does not hold counts before one that cannot be judged.
pub fn conditions(list: &[Result<(String, Expression), String>], variables: &Variables) -> Condition {
    let mut broken = None;
    for condition in list {
        match condition {
            Err(why) => broken = Some(why.clone()),
            Ok((name, expression)) => match expression.holds(variables) {
                Ok(true) => {}
                Ok(false) => return Condition::NotMet,
                Err(why) => broken = Some(format!("match condition {name:?}: {why}")),
            },
        }
    }
    broken.map_or(Condition::Met, Condition::Broken)
}

/// Parses `matchConditions`.
pub fn compile_conditions(spec: &Value) -> Vec<Result<(String, Expression), String>> {
    let compile = |c: &Value| {
        let name = tree::text(c, &["name"]);
        let parsed = Expression::compile(tree::text(c, &["expression"]));
        parsed.map(|e| (name.to_string(), e)).map_err(|why| format!("match condition {name:?}: {why}"))
    };
    tree::list(spec, &["matchConditions"]).iter().map(compile).collect()
}

/// One webhook.
pub struct Hook {
    name: String,
    rules: Vec<Rule>,
    equivalent: bool,
    selectors: Selectors,
    conditions: Vec<Result<(String, Expression), String>>,
    /// A call that fails refuses the write.
    fails: bool,
    /// May be called for a dry run.
    dry_run: bool,
    /// Wants to see what later webhooks changed.
    pub reinvoke: bool,
    remote: Remote,
}

/// What a webhook answered to a write it let pass.
pub struct Passed {
    /// JSON patch operations.
    pub patch: Option<Value>,
    /// Texts for the client.
    pub warnings: Vec<String>,
    /// The version the webhook saw.
    pub seen: ServedResource,
}

impl Hook {
    /// The webhooks of a configuration, in order.
    pub fn compile_all(configuration: &Value) -> Vec<Hook> {
        tree::list(configuration, &["webhooks"]).iter().map(Hook::compile).collect()
    }

    fn compile(webhook: &Value) -> Hook {
        let text = |key: &str| tree::text(webhook, &[key]);
        let seconds = match tree::number(webhook, &["timeoutSeconds"]) {
            s @ 1..=30 => s.unsigned_abs(),
            _ => 10,
        };
        Hook {
            name: text("name").to_string(),
            rules: tree::list(webhook, &["rules"]).iter().map(Rule::compile).collect(),
            equivalent: text("matchPolicy") != "Exact",
            selectors: Selectors::compile(webhook),
            conditions: compile_conditions(webhook),
            fails: text("failurePolicy") != "Ignore",
            dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            reinvoke: text("reinvocationPolicy") == "IfNeeded",
            remote: Remote::new(
                webhook.get("clientConfig").unwrap_or(&Value::Null),
                Duration::from_secs(seconds),
            ),
        }
    }

    /// 500: the webhook could not be asked, or its answer made no sense.
    pub fn broken(&self, why: &str) -> ApiError {
        let message = format!("Internal error occurred: failed calling webhook {:?}: {why}", self.name);
        ApiError::internal("InternalError", message)
    }

    /// Asks the webhook, when it is meant. None: it is not, or its failure is to be ignored.
    pub async fn ask(&self, review: &Review<'_>) -> ApiResult<Option<Passed>> {
        let Some(seen) = seen_as(review, &self.rules, self.equivalent) else { return Ok(None) };
        if !self.selectors.select(review) {
            return Ok(None);
        }
        let request = review.request(&seen);
        if !self.conditions.is_empty() {
            match conditions(&self.conditions, &variables(review, &request)) {
                Condition::Met => {}
                Condition::NotMet => return Ok(None),
                Condition::Broken(_) if !self.fails => return Ok(None),
                Condition::Broken(why) => {
                    return Err(ApiError::forbidden(review.resource(), &review.name, &why));
                }
            }
        }
        if review.dry_run && !self.dry_run {
            let message = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(ApiError::bad_request(message));
        }
        let uid = tree::text(&request, &["uid"]).to_string();
        let body =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
        let answer = match self.remote.post(review.base, &body).await {
            Ok(answer) => answer,
            Err(why) => return self.failed(&why),
        };
        let response = answer.get("response").cloned().unwrap_or_default();
        if tree::text(&answer, &["kind"]) != "AdmissionReview"
            || tree::text(&answer, &["apiVersion"]) != "admission.k8s.io/v1"
        {
            return self.failed("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview");
        }
        if tree::text(&response, &["uid"]) != uid {
            let found = tree::text(&response, &["uid"]);
            return self.failed(&format!("expected response.uid={uid:?}, got {found:?}"));
        }
        if response.get("allowed") != Some(&Value::Bool(true)) {
            return Err(self.denied(response.get("status").unwrap_or(&Value::Null)));
        }
        let patch = match response.get("patch").and_then(Value::as_str) {
            None | Some("") => None,
            Some(_) if tree::text(&response, &["patchType"]) != "JSONPatch" => {
                return self.failed("response.patch needs response.patchType JSONPatch");
            }
            Some(text) => match STANDARD.decode(text).ok().and_then(|b| serde_json::from_slice(&b).ok()) {
                Some(document) => Some(document),
                None => return self.failed("response.patch is not base64 of a JSON patch"),
            },
        };
        let warnings = tree::list(&response, &["warnings"]);
        let warnings = warnings.iter().filter_map(|w| w.as_str().map(str::to_string)).collect();
        Ok(Some(Passed { patch, warnings, seen }))
    }

    fn failed(&self, why: &str) -> ApiResult<Option<Passed>> {
        if self.fails {
            return Err(self.broken(why));
        }
        tracing::warn!(webhook = self.name, why, "a webhook that may be ignored failed");
        Ok(None)
    }

    fn denied(&self, status: &Value) -> ApiError {
        let by = format!("admission webhook {:?} denied the request", self.name);
        let message = match (tree::text(status, &["message"]), tree::text(status, &["reason"])) {
            ("", "") => format!("{by} without explanation"),
            ("", reason) => format!("{by}: {reason}"),
            (message, _) => format!("{by}: {message}"),
        };
        let code = u16::try_from(tree::number(status, &["code"])).unwrap_or(0);
        // A refusal is never a success.
        let code = if (400..600).contains(&code) { code } else { 400 };
        ApiError::by_webhook(code, tree::text(status, &["reason"]), message, status.get("details").cloned())
    }
}
