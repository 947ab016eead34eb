//! From a parsed document to the configuration's types. Unknown fields, wrong types and negative numbers are found
//! here, each with its path. Reading goes on after an error, so all errors are reported at once.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    CellType, ClusterConfig, ConfigError, ConfigErrors, PhysicalCell, PhysicalCluster, PinnedCell, SkuType,
    VirtualCell, VirtualCluster,
};

/// How deep `cellChildren` may be nested; no cluster has as many levels.
pub(crate) const MAX_DEPTH: usize = 32;

/// A document: the configuration, or text that must be parsed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Config(Box<ClusterConfig>),
    /// The text under `hivedscheduler.config`, as in OpenPAI's services configuration.
    Wrapped(String),
}

/// Reads a document that is a configuration, or OpenPAI's wrapper of one.
///
/// # Errors
/// Everything of the wrong type, each with its path.
pub fn read_document(document: &Value) -> Result<Document, ConfigErrors> {
    let Some(wrapper) = document.get("hivedscheduler") else {
        return config(document).map(|config| Document::Config(Box::new(config)));
    };
    match wrapper.get("config") {
        Some(Value::String(text)) => Ok(Document::Wrapped(text.clone())),
        Some(inner) => config(inner).map(|config| Document::Config(Box::new(config))),
        None => Err(ConfigErrors(vec![ConfigError {
            path: "hivedscheduler.config".into(),
            found: "nothing".into(),
            allowed: "the configuration, as text or as an object".into(),
        }])),
    }
}

pub(super) fn config(document: &Value) -> Result<ClusterConfig, ConfigErrors> {
    let mut reader = Reader::default();
    let config = reader.config(document);
    if reader.errors.is_empty() { Ok(config) } else { Err(ConfigErrors(reader.errors)) }
}

#[derive(Default)]
struct Reader {
    errors: Vec<ConfigError>,
}

/// Fields of HiveD's file about its own process; ignored here.
const PROCESS_FIELDS: &[&str] = &[
    "kubeApiServerAddress",
    "kubeConfigFilePath",
    "webServerAddress",
    "forcePodBindThreshold",
    "waitingPodSchedulingBlockMilliSec",
];

impl Reader {
    fn config(&mut self, value: &Value) -> ClusterConfig {
        let Some(map) = self.object(value, "", &["physicalCluster", "virtualClusters"], PROCESS_FIELDS)
        else {
            return ClusterConfig::default();
        };
        let physical_cluster = map
            .get("physicalCluster")
            .map(|value| self.physical_cluster(value, "physicalCluster"))
            .unwrap_or_default();
        let virtual_clusters = self.named(map, "virtualClusters", "", Self::virtual_cluster);
        ClusterConfig { physical_cluster, virtual_clusters }
    }

    fn physical_cluster(&mut self, value: &Value, path: &str) -> PhysicalCluster {
        let fields = ["skuTypes", "cellTypes", "physicalCells"];
        let Some(map) = self.object(value, path, &fields, &[]) else { return PhysicalCluster::default() };
        PhysicalCluster {
            sku_types: self.named(map, "skuTypes", path, Self::sku_type),
            cell_types: self.named(map, "cellTypes", path, Self::cell_type),
            physical_cells: self
                .list(map, "physicalCells", path, |reader, value, path| reader.physical_cell(value, path, 1)),
        }
    }

    fn sku_type(&mut self, value: &Value, path: &str) -> SkuType {
        let Some(map) = self.object(value, path, &["gpu", "cpu", "memory"], &[]) else {
            return SkuType::default();
        };
        let memory = self.scalar(map, "memory", path);
        if let Some(text) = &memory
            && fleet_resources::quantity::parse("memory", text).is_err()
        {
            self.wrong(
                &join(path, "memory"),
                quote(text),
                "a quantity of bytes that is not negative, e.g. 4096Mi",
            );
        }
        SkuType { gpu: self.count(map, "gpu", path, 0), cpu: self.count(map, "cpu", path, 0), memory }
    }

    fn cell_type(&mut self, value: &Value, path: &str) -> CellType {
        let fields = ["childCellType", "childCellNumber", "isNodeLevel"];
        let Some(map) = self.object(value, path, &fields, &[]) else { return CellType::default() };
        CellType {
            child_cell_type: self.required(map, "childCellType", path, "the name of a cell type"),
            child_cell_number: self.required_count(map, "childCellNumber", path, 1),
            is_node_level: self.boolean(map, "isNodeLevel", path),
        }
    }

    fn physical_cell(&mut self, value: &Value, path: &str, depth: usize) -> PhysicalCell {
        let fields = ["cellType", "cellAddress", "pinnedCellId", "cluster", "cellChildren"];
        let Some(map) = self.object(value, path, &fields, &[]) else { return PhysicalCell::default() };
        if depth > MAX_DEPTH {
            self.wrong(path, format!("more than {MAX_DEPTH} levels"), "fewer levels");
            return PhysicalCell::default();
        }
        let cluster = self.scalar(map, "cluster", path).unwrap_or_default();
        if depth > 1 && map.contains_key("cluster") {
            self.wrong(
                &join(path, "cluster"),
                quote(&cluster),
                "nothing here; the top cell names the cluster",
            );
        }
        PhysicalCell {
            cell_type: self.scalar(map, "cellType", path).unwrap_or_default(),
            cell_address: self.scalar(map, "cellAddress", path).unwrap_or_default(),
            pinned_cell_id: self.scalar(map, "pinnedCellId", path).unwrap_or_default(),
            cluster,
            cell_children: self.list(map, "cellChildren", path, |reader, value, path| {
                reader.physical_cell(value, path, depth + 1)
            }),
        }
    }

    fn virtual_cluster(&mut self, value: &Value, path: &str) -> VirtualCluster {
        let Some(map) = self.object(value, path, &["virtualCells", "pinnedCells"], &[]) else {
            return VirtualCluster::default();
        };
        VirtualCluster {
            virtual_cells: self.list(map, "virtualCells", path, Self::virtual_cell),
            pinned_cells: self.list(map, "pinnedCells", path, Self::pinned_cell),
        }
    }

    fn virtual_cell(&mut self, value: &Value, path: &str) -> VirtualCell {
        let Some(map) = self.object(value, path, &["cellType", "cellNumber"], &[]) else {
            return VirtualCell::default();
        };
        VirtualCell {
            cell_type: self.required(map, "cellType", path, "a path of cell types, e.g. POOL.NODE"),
            cell_number: self.required_count(map, "cellNumber", path, 0),
        }
    }

    fn pinned_cell(&mut self, value: &Value, path: &str) -> PinnedCell {
        let Some(map) = self.object(value, path, &["pinnedCellId"], &[]) else {
            return PinnedCell::default();
        };
        PinnedCell { pinned_cell_id: self.required(map, "pinnedCellId", path, "the id of a pinned cell") }
    }

    fn wrong(&mut self, path: &str, found: impl Into<String>, allowed: impl Into<String>) {
        let path = if path.is_empty() { "the document".to_string() } else { path.to_string() };
        self.errors.push(ConfigError { path, found: found.into(), allowed: allowed.into() });
    }

    /// The object at a path; an absent one is empty. Unknown fields are refused, so that a typing error is not a
    /// silent zero.
    fn object<'v>(
        &mut self,
        value: &'v Value,
        path: &str,
        fields: &[&str],
        passed_over: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let map = match value {
            Value::Object(map) => map,
            Value::Null => return None,
            other => {
                self.wrong(path, kind(other), "an object");
                return None;
            }
        };
        for key in map.keys().filter(|key| !fields.contains(&key.as_str())) {
            if !passed_over.contains(&key.as_str()) {
                self.wrong(&join(path, key), "an unknown field", fields.join(", "));
            }
        }
        Some(map)
    }

    fn named<T>(
        &mut self,
        map: &Map<String, Value>,
        field: &str,
        path: &str,
        read: impl Fn(&mut Self, &Value, &str) -> T,
    ) -> BTreeMap<String, T> {
        let path = join(path, field);
        match map.get(field) {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(entries)) => entries
                .iter()
                .map(|(name, value)| (name.clone(), read(self, value, &join(&path, name))))
                .collect(),
            Some(other) => {
                self.wrong(&path, kind(other), "an object of names");
                BTreeMap::new()
            }
        }
    }

    fn list<T>(
        &mut self,
        map: &Map<String, Value>,
        field: &str,
        path: &str,
        read: impl Fn(&mut Self, &Value, &str) -> T,
    ) -> Vec<T> {
        let path = join(path, field);
        match map.get(field) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, value)| read(self, value, &format!("{path}[{index}]")))
                .collect(),
            Some(other) => {
                self.wrong(&path, kind(other), "a list");
                Vec::new()
            }
        }
    }

    /// Text; an integer is read as text, because addresses such as `8` are numbers in YAML. Another number is
    /// refused: its digits may have changed, as in `1.10`.
    fn scalar(&mut self, map: &Map<String, Value>, field: &str, path: &str) -> Option<String> {
        match map.get(field) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            Some(Value::Number(number)) => {
                self.wrong(
                    &join(path, field),
                    format!("the number {number}"),
                    "text, in quotes if it looks like a number",
                );
                None
            }
            Some(other) => {
                self.wrong(&join(path, field), kind(other), "text");
                None
            }
        }
    }

    fn required(&mut self, map: &Map<String, Value>, field: &str, path: &str, allowed: &str) -> String {
        let before = self.errors.len();
        let text = self.scalar(map, field, path).unwrap_or_default();
        if text.is_empty() && self.errors.len() == before {
            self.wrong(&join(path, field), "nothing", allowed);
        }
        text
    }

    fn count(&mut self, map: &Map<String, Value>, field: &str, path: &str, least: i64) -> Option<i64> {
        let value = match map.get(field) {
            None | Some(Value::Null) => return None,
            Some(value) => value,
        };
        match value.as_i64() {
            Some(number) if (least..=i64::from(i32::MAX)).contains(&number) => Some(number),
            _ => {
                let found = if value.is_number() { value.to_string() } else { kind(value) };
                self.wrong(&join(path, field), found, format!("an integer of {least} to {}", i32::MAX));
                None
            }
        }
    }

    fn required_count(&mut self, map: &Map<String, Value>, field: &str, path: &str, least: i64) -> i64 {
        let before = self.errors.len();
        let number = self.count(map, field, path, least);
        if number.is_none() && self.errors.len() == before {
            let allowed = format!("an integer of {least} to {}", i32::MAX);
            self.wrong(&join(path, field), "nothing", allowed);
        }
        number.unwrap_or_default()
    }

    fn boolean(&mut self, map: &Map<String, Value>, field: &str, path: &str) -> bool {
        match map.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(value)) => *value,
            Some(other) => {
                self.wrong(&join(path, field), kind(other), "true or false");
                false
            }
        }
    }
}

pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_string() } else { format!("{path}.{field}") }
}

pub(crate) fn quote(text: &str) -> String {
    format!("`{text}`")
}

/// The names that are allowed; `none` if there are none.
pub(crate) fn any<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names = names.collect::<Vec<_>>().join(", ");
    if names.is_empty() { "none".to_string() } else { names }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}
