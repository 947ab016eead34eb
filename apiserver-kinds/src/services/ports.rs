//! Ports of nodes: those that a client asks for, those of before, and new ones for the rest.
//!
//! Inputs: the spec before, if there is one, and the new one. Absent on purpose: the port for checks of health.

use super::needs::{of_type, open};
use super::pool::Taken;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiResult, Cause};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn node_port(port: &Value) -> i64 {
    tree::number(port, &["nodePort"])
}

/// Each port of the service gets one of the nodes.
fn gives(spec: &Value) -> bool {
    let refused = spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    of_type(spec, &["NodePort"]) || (of_type(spec, &["LoadBalancer"]) && !refused)
}

/// Gives out ports of nodes where the type of a service has them, up to one that cannot be had.
pub(super) fn settle(
    base: &Base,
    before: Option<&Value>,
    new: &mut Value,
    taken: &mut Taken,
) -> ApiResult<Option<Cause>> {
    let Some(spec) = new.get("spec").filter(|spec| open(spec)) else { return Ok(None) };
    let gives_now = gives(spec);
    let mut list = tree::list(spec, &["ports"]).to_vec();
    if list.is_empty() {
        return Ok(None);
    }
    let name = tree::meta_text(new, "name").to_string();
    if let Some(before) = before.filter(|before| gives_now && gives(before)) {
        recall(tree::list(before, &["ports"]), &mut list);
    }
    let mut giving = Giving { base, service: &name, gives: gives_now, taken };
    let wrong = match before {
        None => giving.first_ports(&mut list)?,
        Some(before) => giving.more_ports(tree::list(before, &["ports"]), &mut list)?,
    };
    tree::child(new, "spec").insert("ports".into(), list.into());
    Ok(wrong)
}

fn numbers(ports: &[Value]) -> BTreeSet<i64> {
    ports.iter().map(node_port).filter(|n| *n != 0).collect()
}

/// A port that does not say which of the nodes it has keeps what one of its name had, unless another took it over.
fn recall(old: &[Value], list: &mut [Value]) {
    let used: BTreeSet<i64> = numbers(old).intersection(&numbers(list)).copied().collect();
    for port in list.iter_mut() {
        let name = tree::text(port, &["name"]);
        let was = old.iter().rfind(|p| tree::text(p, &["name"]) == name).map_or(0, node_port);
        if node_port(port) == 0 && was != 0 && !used.contains(&was) {
            tree::object(port).insert("nodePort".into(), was.into());
        }
    }
}

struct Giving<'a> {
    base: &'a Base,
    service: &'a str,
    gives: bool,
    taken: &'a mut Taken,
}

impl Giving<'_> {
    /// Takes a port that is asked for, or says why it cannot be had.
    fn take(&mut self, i: usize, port: i64) -> Option<Cause> {
        if let Some(why) = self.taken.refuses(port) {
            return Some(Cause::invalid(format!("spec.ports[{i}].nodePort"), &json!(port), why));
        }
        self.taken.0.extend(u32::try_from(port).ok());
        None
    }

    /// Ports of a new service: the same number gets the same one for each protocol.
    fn first_ports(&mut self, list: &mut [Value]) -> ApiResult<Option<Cause>> {
        let asked: Vec<(i64, i64)> =
            list.iter().map(|port| (tree::number(port, &["port"]), node_port(port))).collect();
        let mut given: BTreeMap<i64, i64> = BTreeMap::new();
        for (i, (port, &(number, own))) in list.iter_mut().zip(&asked).enumerate() {
            if own == 0 && !self.gives {
                continue;
            }
            let node = match given.get(&number) {
                Some(known) if own == 0 || own == *known => *known,
                known => {
                    // Another protocol of this number may ask for one further down.
                    let later = || asked.iter().find(|(n, node)| *n == number && *node != 0);
                    let wanted = if known.is_some() { own } else { later().map_or(0, |(_, node)| *node) };
                    match wanted {
                        0 => i64::from(self.taken.port(self.base, self.service)?),
                        wanted => {
                            if let Some(cause) = self.take(i, wanted) {
                                return Ok(Some(cause));
                            }
                            wanted
                        }
                    }
                }
            };
            given.entry(number).or_insert(node);
            tree::object(port).insert("nodePort".into(), node.into());
        }
        Ok(None)
    }

    /// Ports of a service that changes: those it had are its own.
    fn more_ports(&mut self, old: &[Value], list: &mut [Value]) -> ApiResult<Option<Cause>> {
        let mut own = numbers(old);
        self.taken.0.extend(own.iter().filter_map(|n| u32::try_from(*n).ok()));
        for (i, port) in list.iter_mut().enumerate() {
            let asked = node_port(port);
            if asked == 0 {
                if self.gives {
                    let node = self.taken.port(self.base, self.service)?;
                    tree::object(port).insert("nodePort".into(), node.into());
                }
            } else if own.insert(asked)
                && let Some(cause) = self.take(i, asked)
            {
                return Ok(Some(cause));
            }
        }
        Ok(None)
    }
}
