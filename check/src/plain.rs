//! An object as the JSON that the server sent: a checker reads what is there, and needs no types of it.

use std::borrow::Cow;

use kube::{
    Resource,
    api::ApiResource,
    core::{DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of any kind, for listings and watches.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Only its name, namespace and resourceVersion, by which listings and watches know an object.
    metadata: ObjectMeta,
    /// All of it, as it was sent.
    pub value: Value,
}

impl Plain {
    /// The object with its kind, which items of a list come without.
    pub fn of_kind(self, api_version: &str, kind: &str) -> Value {
        let mut value = self.value;
        if value.is_object() {
            value["apiVersion"] = api_version.into();
            value["kind"] = kind.into();
        }
        value
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = |field: &str| value["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

impl Resource for Plain {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
