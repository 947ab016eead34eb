//! `flow.volcano.sh/v1alpha1`: JobFlows and the templates of their jobs.

use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Template of jobs that flows create: the spec of a job, validated when a job is created from it.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "flow.volcano.sh",
    version = "v1alpha1",
    kind = "JobTemplate",
    plural = "jobtemplates",
    shortname = "jt",
    namespaced,
    status = "JobTemplateStatus"
)]
#[kube(root = "VolcanoJobTemplate")]
#[serde(transparent)]
pub struct JobTemplateSpec(pub Map<String, Value>);

#[cfg(feature = "schemas")]
impl JsonSchema for JobTemplateSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JobTemplateSpec".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::schema::any_object(generator)
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_depends_on_list: Vec<String>,
}

/// Jobs that are created in the order of their dependencies.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "flow.volcano.sh",
    version = "v1alpha1",
    kind = "JobFlow",
    plural = "jobflows",
    shortname = "jf",
    namespaced,
    status = "JobFlowStatus",
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.state.phase"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct JobFlowSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
    /// retain or delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_retain_policy: Option<String>,
}

/// One job of a flow.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Name of a JobTemplate of the flow's namespace.
    #[cfg_attr(feature = "schemas", schemars(length(min = 1)))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<FlowDependsOn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<FlowPatch>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct FlowDependsOn {
    /// Names of flows that must have completed, or pass the probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub probe: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowPatch {
    /// Fields of the template's spec to change.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub job_spec: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobFlowStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminated_jobs: Vec<String>,
    #[serde(default, rename = "unKnowJobs", skip_serializing_if = "Vec::is_empty")]
    pub un_know_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub job_status_list: Vec<Value>,
    /// By name of the job.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub conditions: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<FlowState>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct FlowState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What is wrong with the flow, or which missing object it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
