//! Reading objects one by one: an object that cannot be read spoils neither its list nor its watch.
//!
//! JSON readers stop at 128 levels of nesting, and an object may have a field of an unexpected type. Anyone who may
//! write such an object would otherwise hide all others of the kind. An object that is nested too deeply is read
//! without what is deeper than [`LEVELS`]; one that still cannot be read is skipped, and said in the log. Deliberately
//! absent: requests (`feed`).

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Api, Client, Resource,
    api::{ListParams, WatchParams},
    core::{Request, WatchEvent},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// Levels that are read of an object that has more than a reader accepts. More than a member may get or report
/// (`fleet_policies::nesting`), so what was cut is refused there and not used by accident.
const LEVELS: usize = 100;

/// An object as text: its extent is found without recursion, and requests are compiled once for all kinds.
pub(crate) type Text = Box<RawValue>;

/// Why an object cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    /// Namespace and name, as far as they can be read.
    pub name: String,
    pub version: String,
    pub why: String,
}

pub(crate) fn read<K: DeserializeOwned>(text: &str) -> Result<K, Unreadable> {
    let why = match serde_json::from_str(text) {
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    let Named { metadata } = serde_json::from_str(text).unwrap_or_default();
    let name = format!("{}/{}", metadata.namespace, metadata.name);
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut was_cut = false;
    let shallow = Shallow { left: LEVELS, was_cut: &mut was_cut }.deserialize(&mut reader);
    // Read from text once more: a reader of trees would be compiled for each kind besides that of text.
    if let Ok(shallow) = shallow
        && was_cut
        && let Ok(shallow) = serde_json::from_str(&shallow.to_string())
    {
        tracing::warn!(
            object = name,
            "found more than {LEVELS} levels of nested objects and lists; what is deeper is ignored"
        );
        return Ok(shallow);
    }
    Err(Unreadable { name, version: metadata.resource_version, why: why.to_string() })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: NamedMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NamedMeta {
    namespace: String,
    name: String,
    resource_version: String,
}

#[derive(Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    pub metadata: ListMeta,
    pub items: Option<Vec<Text>>,
}

/// A page of a list, without the objects that cannot be read; these are named in the log.
///
/// # Errors
/// The request failed, or the answer is not a list.
pub async fn list_page<K>(api: &Api<K>, params: &ListParams) -> kube::Result<(Vec<K>, ListMeta)>
where
    K: Resource + Clone + DeserializeOwned,
{
    let page = page(&api.clone().into_client(), api.resource_url(), params).await?;
    let items = page.items.unwrap_or_default();
    let read = items.iter().filter_map(|text| match read(text.get()) {
        Ok(object) => Some(object),
        Err(unreadable) => {
            skipped(api.resource_url(), &unreadable);
            None
        }
    });
    Ok((read.collect(), page.metadata))
}

/// A page of the list at `url`.
pub(crate) async fn page(client: &Client, url: &str, params: &ListParams) -> kube::Result<Page> {
    let mut request = Request::new(url).list(params).map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert("list");
    client.request(request).await
}

pub(crate) fn skipped(kind: &str, unreadable: &Unreadable) {
    let Unreadable { name, why, .. } = unreadable;
    tracing::warn!(kind, object = name, why, "an object cannot be read and is skipped");
}

/// Events of the objects at `url`, from a version on.
pub(crate) async fn watch(
    client: &Client,
    url: &str,
    params: &WatchParams,
    from: &str,
) -> kube::Result<impl futures::Stream<Item = kube::Result<WatchEvent<Text>>> + use<>> {
    let mut request = Request::new(url).watch(params, from).map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert("watch");
    client.request_events::<Text>(request).await
}

/// Reads a tree without what is deeper than some levels: that is passed without recursion, and null.
struct Shallow<'c> {
    left: usize,
    was_cut: &'c mut bool,
}

impl<'de> DeserializeSeed<'de> for Shallow<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shallow<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.left == 0 {
            *self.was_cut = true;
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut read = Vec::new();
        let left = self.left - 1;
        while let Some(item) = items.next_element_seed(Shallow { left, was_cut: self.was_cut })? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        if self.left == 0 {
            *self.was_cut = true;
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut read = Map::new();
        let left = self.left - 1;
        while let Some(name) = fields.next_key::<String>()? {
            read.insert(name, fields.next_value_seed(Shallow { left, was_cut: self.was_cut })?);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn what_is_too_deep_is_left_out_and_the_rest_is_read() {
        let text = |levels| {
            let spec = nested(levels);
            format!(
                r#"{{"apiVersion":"v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{spec},"n":[1,-1,1.5,true,null]}}"#
            )
        };
        for levels in [1, 120, 126, 127, 500, 100_000] {
            let object: DynamicObject = read(&text(levels)).expect("read");
            assert_eq!(object.metadata.name.as_deref(), Some("a"), "{levels}");
            assert_eq!(object.data["n"], serde_json::json!([1, -1, 1.5, true, null]), "{levels}");
            assert!(object.data["spec"]["a"].is_object() || levels == 1, "{levels}");
        }
    }

    #[test]
    fn an_object_of_another_shape_is_named() {
        let text = r#"{"metadata":{"namespace":"n","name":"a","resourceVersion":"7"},"data":5}"#;
        let found = read::<k8s_openapi::api::core::v1::ConfigMap>(text).unwrap_err();
        assert_eq!((found.name.as_str(), found.version.as_str()), ("n/a", "7"));
        let found = read::<DynamicObject>("[]").unwrap_err();
        assert_eq!(found.name, "/");
    }
}
