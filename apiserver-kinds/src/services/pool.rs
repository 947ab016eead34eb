//! Addresses and ports that services have, and those that are free.
//!
//! Inputs: the stored services, and what writes under way were given a moment ago. Absent on purpose: who gets one.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// First and last address of the range: 10.96.0.0/16.
const FIRST: u32 = 0x0a60_0000;
const LAST: u32 = FIRST + (1 << 16) - 1;
/// Addresses at the start that clusters give to services of their own (the API server, DNS).
const KEPT: u32 = 256;
/// Node ports.
const PORTS: std::ops::RangeInclusive<u32> = 30_000..=32_767;
/// How long a write under way keeps what it was given.
const HELD: Duration = Duration::from_secs(30);

/// What stored services have: addresses, and node ports as small numbers, which no address is.
pub(super) struct Taken(pub(super) BTreeSet<u32>);

impl Taken {
    /// What all services have but the one of this uid.
    pub(super) fn of(base: &Base, besides: &str) -> Taken {
        let mut taken = BTreeSet::new();
        for service in base.store.table("/services").objects() {
            if service.meta_text("uid") == besides {
                continue;
            }
            taken.extend(service.text(&["spec", "clusterIP"]).parse::<Ipv4Addr>().ok().map(u32::from));
            if matches!(service.text(&["spec", "type"]).as_str(), "NodePort" | "LoadBalancer") {
                let ports = service.list(&["spec", "ports"]);
                let numbers = ports.iter().map(|p| tree::number(p, &["nodePort"]));
                let numbers = numbers.chain([service.number(&["spec", "healthCheckNodePort"])]);
                taken.extend(numbers.filter_map(|n| u32::try_from(n).ok()));
            }
        }
        Taken(taken)
    }

    /// Allocates the first free number from `start` on, round the range.
    fn take(&mut self, base: &Base, range: std::ops::RangeInclusive<u32>, start: u32) -> Option<u32> {
        let mut held = base.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        held.retain(|_, since| now.duration_since(*since) < HELD);
        let (first, count) = (*range.start(), range.end() - range.start() + 1);
        let mut all = (0..count).map(|i| first + (start % count + i) % count);
        let free = all.find(|n| !self.0.contains(n) && !held.contains_key(n))?;
        held.insert(free, now);
        self.0.insert(free);
        Some(free)
    }

    /// Allocates a port of nodes.
    pub(super) fn port(&mut self, base: &Base, service: &str) -> ApiResult<u32> {
        let start = fleet_apiserver_ground::dict::hash(service.as_bytes()) as u32;
        let full = || ApiError::internal("InternalError", "failed to allocate a nodePort: range is full");
        self.take(base, PORTS, start).ok_or_else(full)
    }

    /// Why a client cannot have this port of nodes.
    pub(super) fn refuses(&self, port: i64) -> Option<&'static str> {
        match u32::try_from(port) {
            Ok(n) if PORTS.contains(&n) => {
                self.0.contains(&n).then_some("provided port is already allocated")
            }
            _ => Some("provided port is not in the valid range. The range of valid ports is 30000-32767"),
        }
    }

    /// Allocates the address of a service: the same name gets the same one, where it is free.
    pub(super) fn address(&mut self, base: &Base, key: &str) -> ApiResult<Ipv4Addr> {
        let start = fleet_apiserver_ground::dict::hash(key.as_bytes()) as u32;
        let range = FIRST + KEPT..=LAST - 1;
        let full = || ApiError::internal("InternalError", "failed to allocate a serviceIP: range is full");
        self.take(base, range, start).map(Ipv4Addr::from).ok_or_else(full)
    }

    /// Why a client cannot have this address.
    pub(super) fn refuses_address(&self, ip: Ipv4Addr) -> Option<String> {
        let number = u32::from(ip);
        if !(FIRST..=LAST).contains(&number) {
            Some("the provided network does not match the current range".into())
        } else if number == FIRST || number == LAST {
            let range = format!("{}/16", Ipv4Addr::from(FIRST));
            let why = format!(
                "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
            );
            Some(why)
        } else {
            self.0.contains(&number).then(|| "provided IP is already allocated".into())
        }
    }
}
