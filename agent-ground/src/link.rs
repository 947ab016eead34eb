//! One of the agent's two API servers: its client and its feeds.

use std::sync::Arc;

use fleet_informer::{Feed, Selection, Source};
use kube::{Api, Client};

#[derive(Clone)]
pub struct Link {
    pub client: Client,
    pub source: Source,
    cluster: Arc<str>,
}

impl Link {
    /// `cluster` is the member's name, the prefix of feed names.
    pub fn new(client: Client, source: Source, cluster: &str) -> Self {
        Self { client, source, cluster: cluster.into() }
    }

    /// Name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// A feed from this server; `name` describes its objects.
    pub fn feed<K>(&self, api: Api<K>, selection: Selection, name: &str) -> Feed<K> {
        Feed { source: self.source.clone(), api, selection, name: format!("{}/{name}", self.cluster) }
    }
}
