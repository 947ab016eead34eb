//! Every route: how it is called, what it takes and answers, and who answers it. Router and document are made from it.

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post};
use fleet_views::{ClusterRow, Home, JobPage, QueuePage, Queues, VirtualClusterRow};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    given::Parameter,
    openapi,
    reads::{self, Clusters, Me},
    writes::{self, Stop, Stopped, Submitted},
};
use crate::web::state::Web;
use fleet_pages::shown::{Check, JobView, VirtualClustersView};

pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub struct Route {
    /// In lower case, as documents have it.
    pub method: &'static str,
    /// Below the prefix, as documents have it.
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Parameter],
    pub body: Body,
    pub answers: &'static [(u16, &'static str, SchemaOf)],
    /// Errors that its caller can cause, besides 400, 401 and 503.
    pub errors: &'static [u16],
    pub handler: fn() -> MethodRouter<Arc<Web>>,
}

#[derive(Clone, Copy)]
pub enum Body {
    None,
    Json(SchemaOf),
    /// A job as YAML or JSON.
    Job,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn read(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answers: &'static [(u16, &'static str, SchemaOf)],
    handler: fn() -> MethodRouter<Arc<Web>>,
) -> Route {
    let errors = &[403];
    Route { method: "get", path, id, summary, parameters: &[], body: Body::None, answers, errors, handler }
}

pub const ROUTES: [Route; 14] = [
    read(
        "",
        "getMe",
        "Who calls, what the hub lets him see, and whether the hub answers",
        &[(200, "the caller", of::<Me>)],
        || get(reads::me),
    ),
    read(
        "/home",
        "getHome",
        "Jobs by state, queues, clusters, nodes by free GPUs, newest jobs, and jobs that look wrong",
        &[(200, "the fleet at a glance", of::<Home>)],
        || get(reads::home),
    ),
    Route {
        parameters: &reads::OF_JOBS,
        ..read(
            "/jobs",
            "listJobs",
            "Jobs that the caller may list, filtered and ordered, page by page",
            &[(200, "a page of jobs", of::<JobPage>)],
            || get(reads::jobs),
        )
    },
    Route {
        method: "post",
        parameters: &writes::OF_SUBMIT,
        body: Body::Job,
        errors: &[403, 404, 409, 413, 422],
        ..read(
            "/jobs",
            "submitJob",
            "Submits a job of any kind, or a job file of OpenPAI; or only checks it",
            &[(200, "what a dry run says", of::<Check>), (201, "the job is there", of::<Submitted>)],
            || post(writes::submit),
        )
    },
    Route {
        method: "post",
        body: Body::Json(of::<Stop>),
        errors: &[413],
        ..read(
            "/jobs/stop",
            "stopJobs",
            "Stops several jobs; every one is tried",
            &[(200, "all are being stopped", of::<Stopped>), (409, "some are not stopped", of::<Stopped>)],
            || post(writes::stop),
        )
    },
    Route {
        errors: &[403, 404],
        ..read(
            "/jobs/{namespace}/{resource}/{name}",
            "getJob",
            "A job: where it is and why, its runs, its pods, events and YAML, and what each cluster says",
            &[(200, "the job", of::<JobView>)],
            || get(reads::job),
        )
    },
    Route {
        method: "post",
        errors: &[403, 404],
        ..read(
            "/jobs/{namespace}/{resource}/{name}/stop",
            "stopJob",
            "Stops a job",
            &[(200, "it is being stopped", of::<Stopped>)],
            || post(writes::stop_job),
        )
    },
    read(
        "/queues",
        "listQueues",
        "The quota tree in force, parents first: what each queue is guaranteed, uses, lends and borrows",
        &[(200, "the tree", of::<Queues>)],
        || get(reads::queues),
    ),
    Route {
        parameters: &reads::OF_QUEUE,
        errors: &[403, 404],
        ..read(
            "/queues/{path}",
            "getQueue",
            "A queue, and who waits in it in which order, page by page",
            &[(200, "the queue", of::<QueuePage>)],
            || get(reads::queue),
        )
    },
    read(
        "/clusters",
        "listClusters",
        "The member clusters: state, use, nodes, and jobs that run there",
        &[(200, "the clusters", of::<Clusters>)],
        || get(reads::clusters),
    ),
    Route {
        errors: &[403, 404],
        ..read(
            "/clusters/{name}",
            "getCluster",
            "A member cluster",
            &[(200, "the cluster", of::<ClusterRow>)],
            || get(reads::cluster),
        )
    },
    read(
        "/virtual-clusters",
        "listVirtualClusters",
        "Virtual clusters: what each is promised, uses, lends and borrows, and who is on which cell",
        &[(200, "the virtual clusters and the cells", of::<VirtualClustersView>)],
        || get(reads::virtual_clusters),
    ),
    Route {
        errors: &[403, 404],
        ..read(
            "/virtual-clusters/{name}",
            "getVirtualCluster",
            "A virtual cluster",
            &[(200, "the virtual cluster", of::<VirtualClusterRow>)],
            || get(reads::virtual_cluster),
        )
    },
    read(
        "/openapi.json",
        "getOpenapi",
        "This document; it needs no credential",
        &[(200, "an OpenAPI document", of::<serde_json::Map<String, serde_json::Value>>)],
        || get(openapi::served),
    ),
];
