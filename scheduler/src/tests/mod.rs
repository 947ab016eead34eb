//! Examples and laws over a small text form.

mod allocate;
mod asked;
mod bed;
mod better;
mod config;
mod devices;
mod enqueue;
mod extender;
mod fair;
mod laws;
mod leave;
mod node_groups;
mod numa;
mod preempt;
mod queues;
mod reclaim;
mod resource_quotas;
mod sub_groups;
mod task_topology;
mod usage;
