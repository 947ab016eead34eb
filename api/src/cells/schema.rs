//! The schema of HiveD's configuration, a tree of any depth, which derived schemas cannot express.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Levels of `cellChildren` that the schema checks; structural schemas cannot recurse. Deeper levels are kept
/// unchecked, and the controller validates them.
const CHECKED_DEPTH: usize = 6;
/// Entries of a list of cells.
const CELLS: u64 = 10_000;
/// Cell types, and SKU types.
const TYPES: u64 = 512;
const VCS: u64 = 1_000;
/// Promises of one virtual cluster.
const PROMISES: u64 = 1_024;
const NAME: u64 = 253;
/// A path of cell types.
const PATH: u64 = 1_024;

/// Where the tree of cells repeats itself; the field reference stops there.
pub(crate) const NESTED: &str = "cellChildren[].cellChildren";

fn made(value: Value) -> Schema {
    value.try_into().unwrap_or_else(|_| json_schema!({"type": "object"}))
}

/// A name that YAML may read as a number: addresses are often 0, 1, 2.
fn word(text: &str) -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^[^\s/]{0,253}$",
        "x-kubernetes-int-or-string": true,
        "description": text,
    })
}

fn count(least: u64, text: &str) -> Value {
    json!({"type": "integer", "format": "int32", "minimum": least, "description": text})
}

fn map(of: Value, most: u64, text: &str) -> Value {
    json!({"type": "object", "additionalProperties": of, "maxProperties": most, "description": text})
}

fn list(of: Value, most: u64, text: &str) -> Value {
    json!({"type": "array", "items": of, "maxItems": most, "description": text})
}

/// `physicalCluster`.
pub(super) fn physical_cluster(_: &mut SchemaGenerator) -> Schema {
    let mut memory = crate::schema::quantity_value();
    memory["description"] = json!("Bytes of memory, such as 4096Mi.");
    let sku = json!({
        "type": "object",
        "properties": {
            "gpu": count(0, "GPUs; absent or 0: a SKU without GPUs."),
            "cpu": count(0, "CPUs."),
            "memory": memory,
        },
    });
    let cell_type = json!({
        "type": "object",
        "required": ["childCellType", "childCellNumber"],
        "properties": {
            "childCellType": {"type": "string", "minLength": 1, "maxLength": NAME, "description":
                "Type of the cells that make up one of this type. A type without an entry here is a leaf cell: a device."},
            "childCellNumber": count(1, "How many of them."),
            "isNodeLevel": {"type": "boolean", "description": "A cell of this type is a node of a member cluster."},
        },
    });
    made(json!({
        "type": "object",
        "properties": {
            "skuTypes": map(sku, TYPES, "Resources of one leaf cell, by its type; they convert requests of jobs \
                that name resources into leaf cells."),
            "cellTypes": map(cell_type, TYPES, "Types of cells by name, each made of cells of one other type."),
            "physicalCells": list(physical_cell(CHECKED_DEPTH, true), CELLS, "Trees of cells; the type of the top cell \
                is the chain."),
        },
    }))
}

fn physical_cell(depth: usize, top: bool) -> Value {
    if depth == 0 {
        return json!({
            "type": "object",
            "description": "Only the controller validates cells at this depth.",
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
    let mut cell = json!({
        "type": "object",
        "properties": {
            "cellType": {"type": "string", "maxLength": NAME, "description":
                "Its type; below the top it is derived from the parent."},
            "cellAddress": word("Its name among its siblings: of a node the name of the node, of a leaf the number of \
                the device. Absent: its place in the list, counted on through the parents' siblings."),
            "pinnedCellId": word("A name under which this cell can be promised to a virtual cluster."),
            "cellChildren": list(physical_cell(depth - 1, false), CELLS, "Its parts; absent: as many as its type says, \
                numbered."),
        },
    });
    if top {
        cell["required"] = json!(["cellType"]);
        cell["properties"]["cluster"] = json!({"type": "string", "maxLength": 63, "description":
            "The member cluster that has the nodes of this tree. Optional if there is one member, or if \
             the names of its nodes identify it."});
    }
    cell
}

/// `virtualClusters`.
pub(super) fn virtual_clusters(_: &mut SchemaGenerator) -> Schema {
    let cell = json!({
        "type": "object",
        "required": ["cellType", "cellNumber"],
        "properties": {
            "cellType": {"type": "string", "minLength": 1, "maxLength": PATH, "description":
                "Path of cell types, joined by dots: the chain first, the promised type last."},
            "cellNumber": count(0, "How many of them."),
        },
    });
    let pin = json!({
        "type": "object",
        "required": ["pinnedCellId"],
        "properties": {"pinnedCellId": word("The pinnedCellId of a physical cell.")},
    });
    let vc = json!({
        "type": "object",
        "properties": {
            "virtualCells": list(cell, PROMISES, "Cells that are promised, by type: any of them, of the allocator's \
                choice."),
            "pinnedCells": list(pin, PROMISES, "Physical cells that are promised by name."),
        },
    });
    made(map(vc, VCS, "Virtual clusters by name: the cells that each is promised, as in HiveD's file."))
}
