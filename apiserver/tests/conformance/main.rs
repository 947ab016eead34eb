//! What clients rely on, checked over HTTPS from outside. See `api` for how to point it at another server.

// Some literals are deep.
#![recursion_limit = "256"]

mod access;
mod admission;
mod api;
mod bad_input;
mod certificates;
mod cluster;
mod conversions;
mod definition_details;
mod definitions;
mod device_slices;
mod devices;
mod edges;
mod expressions;
mod hooks;
mod kept_parts;
mod kind_causes;
mod kind_details;
mod kinds;
mod lists;
mod misc_rules;
mod more_rules;
mod mutations;
mod objects;
mod plugins;
mod pods;
mod policy_details;
mod ratcheting;
mod registrations;
mod roles;
mod served;
mod single_rules;
mod table;
mod table_details;
mod types;
mod verb_details;
mod workloads;
mod writes;
