//! MPIJob v2beta1: a launcher, workers, the host file by which `mpirun` finds them.
//!
//! The launcher is a pod like the others, `<job>-launcher-0`, where the MPI operator creates a batch Job; so
//! gangs are counted by one rule. Deliberately absent: the operator's ssh key pair (no crate of this
//! workspace generates one); images with their own keys, or `OMPI_MCA_plm_rsh_agent` set to something else
//! than ssh, need none. `launcherCreationPolicy: WaitForWorkersReady` has no effect: a gang is bound whole or
//! not at all, so its launcher is created with its workers.

use kube::discovery::ApiResource;
use serde_json::{Value, json};

use super::{
    count,
    pod::{containers_mut, has_env, headless_service, list_mut, owner_reference, set_env, set_label},
    replicas::{Framework, JOB_NAME_LABEL, JOB_ROLE_LABEL, OPERATOR_LABEL, Progress, Role, View},
};

const CONFIG_MOUNT: &str = "/etc/mpi";
const CONFIG_VOLUME: &str = "mpi-job-config";
const EXECUTABLE: i64 = 0o555;
const READABLE: i64 = 0o444;

/// The launcher decides the end; the job runs when launcher and workers do.
pub(super) fn progress(view: &View<'_>) -> Progress {
    let Some((launcher, tally)) = view.role("Launcher") else { return Progress::Starting };
    if tally.succeeded >= launcher.replicas {
        return Progress::Succeeded;
    }
    let workers_run = view.role("Worker").is_none_or(|(worker, tally)| tally.active >= worker.replicas);
    if tally.active > 0 && workers_run { Progress::Running } else { Progress::Starting }
}

pub(super) fn furnish(pod: &mut Value, view: &View<'_>, role: &Role<'_>, index: i64) {
    let job = view.job;
    set_label(pod, JOB_ROLE_LABEL, &role.lower);
    pod["spec"]["hostname"] = role.pod_name(job, index).into();
    pod["spec"]["subdomain"] = job.name().into();
    if role.name != "Launcher" {
        for container in containers_mut(pod) {
            set_env(container, "K_MPI_JOB_ROLE", "worker");
        }
        return;
    }
    let slots = slots(view).to_string();
    let intel = matches!(job.spec["mpiImplementation"].as_str(), Some("Intel" | "MPICH"));
    for container in containers_mut(pod) {
        set_env(container, "K_MPI_JOB_ROLE", "launcher");
        let host_file = format!("{CONFIG_MOUNT}/hostfile");
        let settings: &[(&str, &str)] = if intel {
            &[
                ("I_MPI_HYDRA_HOST_FILE", &host_file),
                ("HYDRA_HOST_FILE", &host_file),
                ("I_MPI_PERHOST", &slots),
            ]
        } else {
            &[
                ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
                ("OMPI_MCA_orte_default_hostfile", &host_file),
                ("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
                ("OMPI_MCA_orte_set_default_slots", &slots),
            ]
        };
        for (name, value) in settings {
            if !has_env(container, name) {
                set_env(container, name, value);
            }
        }
        // The launcher uses no accelerator unless it is a worker, too.
        if job.spec["runLauncherAsWorker"] != true {
            set_env(container, "NVIDIA_VISIBLE_DEVICES", "");
            set_env(container, "NVIDIA_DRIVER_CAPABILITIES", "");
        }
        list_mut(container, "volumeMounts").push(json!({"name": CONFIG_VOLUME, "mountPath": CONFIG_MOUNT}));
    }
    list_mut(&mut pod["spec"], "volumes").push(json!({
        "name": CONFIG_VOLUME,
        "configMap": {"name": format!("{}-config", job.name()), "items": [
            {"key": "hostfile", "path": "hostfile", "mode": READABLE},
            {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": EXECUTABLE},
        ]},
    }));
}

/// The headless service of all pods and the host file.
pub(super) fn support(resource: &ApiResource, view: &View<'_>) -> Vec<Value> {
    let job = view.job;
    let Some(role) = view.roles.first() else { return Vec::new() };
    let all = role.labels(job, Framework::Mpi);
    let labels = json!({JOB_NAME_LABEL: all[JOB_NAME_LABEL], OPERATOR_LABEL: all[OPERATOR_LABEL]});
    let hosts = hosts(view);
    let slots = slots(view);
    let intel = matches!(job.spec["mpiImplementation"].as_str(), Some("Intel" | "MPICH"));
    let line =
        |host: &String| if intel { format!("{host}:{slots}\n") } else { format!("{host} slots={slots}\n") };
    let echo = |host: &String| format!("echo {host}\n");
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("{}-config", job.name()),
            "namespace": job.namespace(),
            "labels": labels,
            "ownerReferences": [owner_reference(job, resource)],
        },
        "data": {
            "hostfile": hosts.iter().map(line).collect::<String>(),
            "discover_hosts.sh": format!("#!/bin/sh\n{}", hosts.iter().map(echo).collect::<String>()),
        },
    });
    vec![headless_service(job, resource, job.name(), &labels, None), config]
}

fn hosts(view: &View<'_>) -> Vec<String> {
    let job = view.job;
    let launcher_too = job.spec["runLauncherAsWorker"] == true;
    let roles = view.roles.iter().filter(|role| role.name == "Worker" || launcher_too);
    roles
        .flat_map(|role| (0..role.replicas).map(|index| role.pod_name(job, index)))
        .map(|pod| format!("{pod}.{}.{}.svc", job.name(), job.namespace()))
        .collect()
}

fn slots(view: &View<'_>) -> i64 {
    count(&view.job.spec["slotsPerWorker"], 1)
}
