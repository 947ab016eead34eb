//! How a job's kind is addressed: `pytorchjobs.kubeflow.org` in pages, a path in the API.

use fleet_hub_core::kinds;
use fleet_pages::page::JobName;
use fleet_views::{Job, Known};

/// `jobs.batch.volcano.sh` of a kind.
pub fn resource(api_version: &str, kind: &str) -> String {
    let plural = plural(api_version, kind);
    match api_version.split_once('/') {
        Some((group, _)) => format!("{plural}.{group}"),
        None => plural,
    }
}

fn plural(api_version: &str, kind: &str) -> String {
    match kinds::known(api_version, kind) {
        Some(known) => known.plural.clone(),
        None => format!("{}s", kind.to_lowercase()),
    }
}

/// API version and kind of a resource that is known without asking the hub.
pub fn of_resource(wanted: &str) -> Option<(String, String)> {
    let others = [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet")];
    let others = others.into_iter().filter_map(|(version, kind)| kinds::known(version, kind));
    let mut all = kinds::jobs().into_iter().chain(others);
    all.find(|kind| resource(&kind.api_version, &kind.kind) == wanted)
        .map(|kind| (kind.api_version.clone(), kind.kind.clone()))
}

/// A job that is known, by the name that pages have for it. A binding is named after its job, so only those are looked at
/// whose names begin like it.
pub fn named<'k>(known: &'k Known, name: &JobName) -> Option<&'k Job> {
    let from = (name.namespace.clone(), name.name.clone());
    let near = known.jobs().range(from..).map(|(_, job)| job);
    let mut near = near.take_while(|job| job.id.0 == name.namespace && job.id.1.starts_with(&name.name));
    near.find(|job| job.name() == name.name && job.binding.resource == name.resource)
}

/// Where objects of the kind stand in a namespace.
pub fn path(api_version: &str, kind: &str, namespace: &str) -> String {
    let plural = plural(api_version, kind);
    let root = if api_version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{api_version}/namespaces/{namespace}/{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_and_its_resource_name_each_other() {
        let check = |api_version: &str, kind: &str, name: &str, at: &str| {
            assert_eq!(resource(api_version, kind), name);
            assert_eq!(path(api_version, kind, "team"), at);
            assert_eq!(of_resource(name), Some((api_version.to_owned(), kind.to_owned())));
        };
        check(
            "kubeflow.org/v1",
            "PyTorchJob",
            "pytorchjobs.kubeflow.org",
            "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs",
        );
        check(
            "batch.volcano.sh/v1alpha1",
            "Job",
            "jobs.batch.volcano.sh",
            "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs",
        );
        check("batch/v1", "Job", "jobs.batch", "/apis/batch/v1/namespaces/team/jobs");
        assert_eq!(of_resource("secrets"), None);
        assert_eq!(path("v1", "Pod", "a"), "/api/v1/namespaces/a/pods");
    }
}
