//! `extras`: free, except for the fields that the scheduler reads.

use std::collections::BTreeMap;

use super::types::{Class, Extras, HivedExtras, HivedRole, RoleGroup};
use crate::{
    Doc, Node,
    fields::{Field, Sink},
};

const CLASSES: &str = "\"oppo\" (-1), \"test\" (10), \"prod\" (100), or a whole number from -1 to 1000";
const SKUS_MAX: i64 = 1_000_000;
/// Extras for OpenPAI's own runtime.
const RUNTIME: [(&str, &str); 3] = [
    ("com.microsoft.pai.runtimeplugin", "plugins of OpenPAI's runtime are not started"),
    ("storages", "no storage is mounted; commands see what the image holds"),
    ("jobStatusChangeNotification", "no notification is sent"),
];

pub fn read(field: Option<&Field<'_>>, sink: &mut Sink, notices: &mut Vec<String>) -> Extras {
    let doc = field.map_or(Doc { line: 0, node: Node::Map(Vec::new()) }, |field| field.doc.clone());
    let mut read = Extras { gang_allocation: true, hived: HivedExtras::default(), doc };
    let Some(field) = field else { return read };
    for (name, value) in field.entries(sink, "a map") {
        match name {
            "gangAllocation" if value.doc.node != Node::Null => {
                read.gang_allocation = value.truth(sink).unwrap_or(true);
            }
            "hivedScheduler" if value.doc.node != Node::Null => {
                if let Some(hived) = hived(&value, sink) {
                    read.hived = hived;
                }
            }
            _ => {
                if let Some((_, what)) = RUNTIME.iter().find(|(known, _)| *known == name) {
                    notices.push(format!("{}: {what}", value.path));
                }
            }
        }
    }
    read
}

impl Default for HivedExtras {
    fn default() -> Self {
        Self {
            class: Class::Test,
            roles: BTreeMap::new(),
            groups: Vec::new(),
            is_v2: false,
            gang_release: None,
            lazy_preemption: None,
            ignore_suggested_nodes: None,
        }
    }
}

fn hived(field: &Field<'_>, sink: &mut Sink) -> Option<HivedExtras> {
    let mut fields = field.fields(sink, "a map with jobPriorityClass and taskRoles")?;
    let class = fields.take("jobPriorityClass").and_then(|field| class(&field, sink));
    let mut truth = |name| fields.take(name).and_then(|field| field.truth(sink));
    let mut read = HivedExtras {
        class: class.unwrap_or(Class::Test),
        gang_release: truth("gangReleaseEnable"),
        lazy_preemption: truth("lazyPreemptionEnable"),
        ignore_suggested_nodes: truth("ignoreK8sSuggestedNodes"),
        ..HivedExtras::default()
    };
    if let Some(roles) = fields.take("taskRoles") {
        const ALLOWED: &str = "a map of one task role or more";
        if matches!(&roles.doc.node, Node::Map(entries) if entries.is_empty()) {
            roles.refuse(sink, ALLOWED);
        }
        for (name, field) in roles.entries(sink, ALLOWED) {
            if let Some((role, is_v2)) = role(&field, sink) {
                read.is_v2 |= is_v2;
                read.roles.insert(name.to_owned(), role);
            }
        }
    }
    if let Some(groups) = fields.take("taskRoleGroups") {
        read.is_v2 = true;
        let items = groups.some_items(sink, "a list of one group of task roles or more");
        read.groups = items.iter().filter_map(|item| group(item, sink)).collect();
    }
    fields.end(sink);
    Some(read)
}

fn class(field: &Field<'_>, sink: &mut Sink) -> Option<Class> {
    let (from, to) = Class::RANGE;
    let class = match &field.doc.node {
        Node::Text(text) => match text.as_str() {
            "oppo" => Some(Class::Opportunistic),
            "test" => Some(Class::Test),
            "prod" => Some(Class::Production),
            _ => None,
        },
        Node::Number(number) => number.as_i64().filter(|n| (from..=to).contains(n)).map(Class::of_priority),
        _ => None,
    };
    if class.is_none() {
        field.refuse(sink, CLASSES);
    }
    class
}

/// A role, and whether it uses a field of the second version.
fn role(field: &Field<'_>, sink: &mut Sink) -> Option<(HivedRole, bool)> {
    let mut fields = field.fields(sink, "a map with skuType, skuNum, pinnedCellId, affinityGroupName")?;
    let mut text = |name| {
        let field = fields.take(name)?;
        match &field.doc.node {
            Node::Text(text) if !text.is_empty() => Some(text.clone()),
            _ => {
                field.refuse(sink, "a name, or nothing");
                None
            }
        }
    };
    let mut role = HivedRole {
        sku_type: text("skuType"),
        pinned_cell_id: text("pinnedCellId"),
        affinity_group: text("affinityGroupName"),
        within_one: text("withinOne"),
        line: field.doc.line,
        ..HivedRole::default()
    };
    role.sku_num = fields.take("skuNum").and_then(|field| field.whole(sink, 1, SKUS_MAX));
    let mut truth = |name| fields.take(name).and_then(|field| field.truth(sink));
    role.gang_release = truth("gangReleaseEnable");
    role.lazy_preemption = truth("lazyPreemptionEnable");
    role.ignore_suggested_nodes = truth("ignoreK8sSuggestedNodes");
    let mut is_v2 = role.within_one.is_some();
    if let Some(field) = fields.take("resourcePerInstance") {
        is_v2 = true;
        if let Some(mut fields) = field.fields(sink, "a map with skuType and skuNum") {
            if let Some(number) = fields.take("skuNum").and_then(|field| field.whole(sink, 1, SKUS_MAX)) {
                role.sku_num = Some(number);
            }
            if let Some(kind) = fields.take("skuType").and_then(|field| field.text(sink, "a name")) {
                role.sku_type = Some(kind);
            }
            fields.end(sink);
        }
    }
    fields.end(sink);
    Some((role, is_v2))
}

fn group(item: &Field<'_>, sink: &mut Sink) -> Option<RoleGroup> {
    let mut fields = item.fields(sink, "a map with taskRoles and withinOne")?;
    let roles = fields
        .need(sink, "taskRoles", "a list of two task roles or more")
        .map(|field| field.texts(sink, "a list of two task roles or more"));
    let within_one = fields.take("withinOne").and_then(|field| field.text(sink, "the type of a cell"));
    fields.end(sink);
    Some(RoleGroup { roles: roles?, within_one })
}
