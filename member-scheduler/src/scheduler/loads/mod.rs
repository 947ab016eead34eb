//! Loads of nodes for the plugin usage: read at intervals from the source in section `metrics` of
//! `volcano-scheduler.conf`.
//!
//! One or two requests for all nodes. The readings reach the core as one change. If a source does not answer,
//! that is logged, and its last readings count until they are stale. Deliberately absent: how loads are used
//! ([`fleet_scheduler::usage`]).

pub(crate) mod reading;
mod source;

use reading::{Reading, Use};
use std::{sync::Arc, time::Duration};

use fleet_scheduler::{
    Cluster, NodeId,
    amounts::{CPU, MEMORY},
    usage::{BUSY, Load},
};
use tokio::sync::{mpsc, watch};

use crate::changes::CoreChange;
use crate::context::Context;

pub(crate) use source::{Address, Elasticsearch, Kind, Source};

/// Reads from the configured source, if there is one, until the receiver is dropped.
pub(crate) async fn run(
    context: Arc<Context>,
    mut sources: watch::Receiver<Option<Source>>,
    changes: mpsc::Sender<CoreChange>,
) {
    loop {
        let source = sources.borrow_and_update().clone();
        let reading = async {
            match &source {
                Some(source) => read_on(&context, source, &changes).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = reading => return,
            changed = sources.changed() => if changed.is_err() { return },
        }
    }
}

/// Ends when the receiver is dropped.
async fn read_on(context: &Context, source: &Source, changes: &mpsc::Sender<CoreChange>) {
    let mut failing = false;
    loop {
        let readings = match source.read(context).await {
            Ok(readings) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(source = %source, "the source of node loads answers again");
                }
                readings
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(source = %source, error, "the source of node loads does not answer; its last readings count for five minutes");
                }
                Vec::new()
            }
        };
        // An empty reading also wakes the core, so that stale ones are dropped in its next cycle.
        if changes.send(CoreChange::Loads(readings)).await.is_err() {
            return;
        }
        tokio::time::sleep(source.interval.max(Duration::from_secs(1))).await;
    }
}

/// Applies the readings to the scheduler as of `now` (seconds since the epoch).
pub(crate) fn take(readings: &[Reading], cluster: &mut Cluster, now: i64) {
    for reading in readings {
        let Some(node) = cluster.nodes.find(&reading.node) else { continue };
        let share = |found: Use, place: usize| share(cluster, node, found, place);
        let load = Load { cpu: share(reading.cpu, CPU), memory: share(reading.memory, MEMORY), at: now };
        cluster.set_load(&reading.node, load);
    }
}

/// In parts of [`BUSY`].
fn share(cluster: &Cluster, node: NodeId, found: Use, place: usize) -> i64 {
    let share = match found {
        Use::Share(share) => share,
        Use::Amount(amount) => {
            let whole = cluster.nodes.cell(node, place).allocatable;
            if whole > 0 { amount as f64 / whole as f64 } else { 0.0 }
        }
    };
    (share.clamp(0.0, 1.0) * BUSY as f64).round() as i64
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Router, extract::Query, routing::get};
    use serde_json::{Value, json};

    use super::*;
    use fleet_agent_fixture::Fixture;

    /// A Prometheus that knows what two nodes are doing.
    #[derive(Default)]
    struct Prometheus {
        /// Share of cpu of n1 and n2.
        cpu: Mutex<[f64; 2]>,
        asked: AtomicUsize,
    }

    impl Prometheus {
        fn answer(&self, query: &str) -> Value {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let values = if query.contains("node_cpu") { *self.cpu.lock().unwrap() } else { [0.1; 2] };
            let sample = |(n, value): (usize, f64)| json!({"metric": {"instance": format!("n{}:9100", n + 1)}, "value": [0, value.to_string()]});
            let result: Vec<Value> = values.into_iter().enumerate().map(sample).collect();
            json!({"status": "success", "data": {"resultType": "vector", "result": result}})
        }

        async fn serve(self: Arc<Self>) -> String {
            let query = move |Query(asked): Query<Vec<(String, String)>>| {
                let answer = self.answer(&asked[0].1);
                std::future::ready(axum::Json(answer))
            };
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = Router::new().route("/api/v1/query", get(query));
            tokio::spawn(axum::serve(listener, router).into_future());
            format!("http://{address}")
        }
    }

    #[tokio::test]
    async fn a_pod_goes_where_there_is_little_going_on() {
        let fixture = Fixture::new(&[]).await;
        fixture.create_node("n1").await;
        fixture.create_node("n2").await;
        let prometheus = Arc::new(Prometheus::default());
        *prometheus.cpu.lock().unwrap() = [0.9, 0.95];
        let address = prometheus.clone().serve().await;
        crate::fixture::run(
            &fixture,
            &format!(
                "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: usage\n\
             metrics:\n  address: {address}\n  interval: 1s\n"
            ),
        );
        // Two queries a reading: with the third, the first reading is on its way to the core.
        while prometheus.asked.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fixture.create_pod("p", "1", json!({})).await;
        let busy = "0/2 nodes are unavailable: 2 node(s) were over the threshold of measured cpu load.";
        fixture.wait_told("p", busy).await;
        *prometheus.cpu.lock().unwrap() = [0.9, 0.5];
        fixture.wait_bound("p", "n2").await;
    }
}
