//! ValidatingAdmissionPolicies with their bindings.
//!
//! Inputs: compiled policies and writes under review. Absent on purpose: audit annotations, and type checking of
//! expressions against schemas.

use super::frame::{Binding, Frame};
use super::hook::{Condition, variables};
use super::review::Review;
use fleet_apiserver_cel::Value as Cel;
use fleet_apiserver_cel::expression::{Expression, Variables};
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use serde_json::Value;
use std::sync::Arc;

struct Check {
    expression: Result<Expression, String>,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// One policy with its bindings.
pub struct Policy {
    frame: Frame,
    checks: Vec<Check>,
}

impl Policy {
    /// All policies that are bound.
    pub fn compile_all(policies: &[Arc<Obj>], bindings: &[Arc<Obj>]) -> Vec<Policy> {
        let compiled = policies.iter().map(|p| Policy::compile(&p.value(), bindings));
        compiled.filter(|p| !p.frame.bindings.is_empty()).collect()
    }

    fn compile(policy: &Value, bindings: &[Arc<Obj>]) -> Policy {
        let check = |v: &Value| Check {
            expression: Expression::compile(tree::text(v, &["expression"])),
            message: tree::text(v, &["message"]).to_string(),
            message_expression: Expression::compile(tree::text(v, &["messageExpression"])).ok(),
            reason: tree::text(v, &["reason"]).to_string(),
        };
        let checks = tree::list(policy, &["spec", "validations"]).iter().map(check).collect();
        Policy { frame: Frame::compile(policy, bindings), checks }
    }

    /// Refuses a write, or adds a warning, as the bindings say.
    pub fn judge(&self, review: &Review<'_>, warnings: &mut Vec<String>) -> ApiResult<()> {
        let Some(seen) = self.frame.sees(review) else { return Ok(()) };
        let request = review.request(&seen);
        for binding in self.frame.bindings.iter().filter(|b| self.frame.binds(b, review)) {
            let params = match self.frame.params(review, binding) {
                Ok(params) => params,
                Err(_) if !self.frame.fails => continue,
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    self.act(review, binding, "", why, warnings)?;
                    continue;
                }
            };
            for param in params {
                let mut scope = variables(review, &request);
                scope.put("params", &param);
                match self.frame.conditions(&scope) {
                    Condition::NotMet => continue,
                    Condition::Broken(_) if !self.frame.fails => continue,
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
        self.frame.declare(scope);
        let mut out = Vec::new();
        for check in &self.checks {
            let (text, verdict) = match &check.expression {
                Ok(e) => (e.text.clone(), e.holds(scope)),
                Err(why) => (String::new(), Err(why.clone())),
            };
            match verdict {
                Ok(true) => {}
                Err(_) if !self.frame.fails => {}
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
        let (policy, by) = (&self.frame.name, &binding.name);
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
}
