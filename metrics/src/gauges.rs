//! Gauges that are known all at once, such as the use of every queue: a scrape sees the old values or the new, never a
//! part of them, and what has gone is gone.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use fleet_resources::{ResourceName, quantity};
use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType, registry::Registry,
};

/// Names and values, in the order in which they are written.
pub type Labels = Vec<(&'static str, String)>;

type Values = BTreeMap<Labels, f64>;

/// One metric with its values by labels; clones share them.
#[derive(Clone, Debug)]
pub struct Gauges {
    name: &'static str,
    help: &'static str,
    values: Arc<RwLock<Values>>,
}

impl Gauges {
    pub fn register(registry: &mut Registry, name: &'static str, help: &'static str) -> Self {
        let gauges = Self { name, help, values: Arc::default() };
        registry.register_collector(Box::new(gauges.clone()));
        gauges
    }

    /// These are all.
    pub fn replace(&self, values: impl IntoIterator<Item = (Labels, f64)>) {
        *self.values.write().unwrap_or_else(PoisonError::into_inner) = values.into_iter().collect();
    }

    /// These are all that begin with `label`; others stay.
    pub fn replace_of(
        &self,
        label: &(&'static str, String),
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let mut all = self.values.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|labels, _| labels.first() != Some(label));
        all.extend(values);
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for (labels, value) in values.iter() {
            metric.encode_family(labels)?.encode_gauge(value)?;
        }
        Ok(())
    }
}

/// Quantities as values of `labels` with `resource` and `unit`, in Prometheus' base units: cores, bytes, pieces.
pub fn amounts<'a>(
    labels: &[(&'static str, String)],
    quantities: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Vec<(Labels, f64)> {
    let one = |(resource, text): (&String, &String)| {
        let amount = quantity::parse(resource, text).ok()?;
        // A float is exact up to 9 PB; beyond that the last bytes do not matter.
        #[allow(clippy::cast_precision_loss)]
        let amount = amount as f64;
        let (unit, value) = match resource.as_str() {
            ResourceName::CPU => ("core", amount / 1000.0),
            name if quantity::is_bytes(name) => ("byte", amount),
            _ => ("integer", amount),
        };
        let own = [("resource", resource.clone()), ("unit", unit.to_owned())];
        Some((labels.iter().cloned().chain(own).collect(), value))
    };
    quantities.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exposed, Exposition};
    use std::sync::Mutex;

    #[test]
    fn values_are_replaced_all_at_once() {
        let mut registry = Registry::default();
        let used = Gauges::register(&mut registry, "fleet_queue_used", "What jobs hold");
        let queue = |name: &str| vec![("queue", name.to_owned())];
        let of = |name: &str, resource: &str, text: &str| {
            amounts(&queue(name), [(&resource.to_owned(), &text.to_owned())])
        };
        used.replace([of("root/a", "cpu", "1500m"), of("root/b", "memory", "1Ki")].concat());
        used.replace_of(&("queue", "root/a".to_owned()), of("root/a", "nvidia.com/gpu", "8"));
        used.replace_of(&("queue", "root/c".to_owned()), of("root/c", "cpu", "nonsense"));
        let part: Arc<dyn Exposed> = Arc::new(Mutex::new(registry));
        assert_eq!(
            Exposition::new([part]).text(),
            "# HELP fleet_queue_used What jobs hold\n# TYPE fleet_queue_used gauge\n\
             fleet_queue_used{queue=\"root/a\",resource=\"nvidia.com/gpu\",unit=\"integer\"} 8.0\n\
             fleet_queue_used{queue=\"root/b\",resource=\"memory\",unit=\"byte\"} 1024.0\n# EOF\n"
        );
    }
}
