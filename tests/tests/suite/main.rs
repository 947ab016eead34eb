//! Every suite of the fleet in one program: linking them one by one would take longer than most of them run.

mod bad_input;
mod cluster_failover;
mod crashes;
mod deletion;
mod deployments;
mod docs;
mod ends;
mod failover;
mod gangs;
mod jobs;
mod kill_nine;
mod pai;
mod placement;
mod portal;
mod process_chaos;
mod processes;
mod quota;
mod rights;
mod shared;
mod tenants;
mod virtual_clusters;
mod volcano;
mod volcano_hub;
mod volcano_webhook;
mod walkthrough_kubectl;
mod watchdog;
