//! Warnings about volumes in which one file would lie over another.
//!
//! Inputs: the volumes of a pod. Absent on purpose: volumes whose files only the kubelet knows.

use fleet_apiserver_ground::tree;
use serde_json::Value;

/// Most files of one volume that are compared, each with all before it.
const MOST_FILES: usize = 1_000;

/// A path in a volume, and what lies there, where a volume has several sources.
#[derive(Clone, PartialEq, Eq)]
struct File<'a> {
    path: &'a str,
    source: String,
}

impl File<'_> {
    fn shown(&self) -> String {
        if self.source.is_empty() {
            format!("{:?}", self.path)
        } else {
            format!("{:?} ({})", self.path, self.source)
        }
    }

    /// True if one is the other, or lies in it.
    fn covers(&self, other: &File<'_>) -> bool {
        let lies_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.path.is_empty()
            && !other.path.is_empty()
            && (lies_in(self.path, other.path) || lies_in(other.path, self.path))
    }
}

/// What is to be said of the volumes.
pub(crate) fn of(volumes: &[Value]) -> Vec<String> {
    let mut out = Vec::new();
    for volume in volumes {
        let name = tree::text(volume, &["name"]);
        for (kind, shown, named) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let Some(source) = volume.get(kind).filter(|source| source.is_object()) else { continue };
            let about = described(shown, source, named);
            let files = items(source).map(|path| File { path, source: String::new() }).collect();
            say(name, &about, files, &mut out);
        }
        if volume.get("projected").is_some_and(Value::is_object) {
            projected(name, tree::list(volume, &["projected", "sources"]), &mut out);
        }
    }
    out
}

fn described(shown: &str, source: &Value, named: &str) -> String {
    if named.is_empty() { shown.to_string() } else { format!("{shown} {:?}", tree::text(source, &[named])) }
}

/// Paths of the items of a source.
fn items(source: &Value) -> impl Iterator<Item = &str> {
    tree::list(source, &["items"]).iter().map(|item| tree::text(item, &["path"]))
}

fn say(volume: &str, about: &str, files: Vec<File<'_>>, out: &mut Vec<String>) {
    let mut known: Vec<File<'_>> = Vec::new();
    for mut file in files.into_iter().take(MOST_FILES) {
        file.path = file.path.trim_end_matches('/');
        for other in known.iter().filter(|other| file.covers(other)) {
            let both = format!("{} with {}", file.shown(), other.shown());
            out.push(format!("volume {volume:?} ({about}): overlapping paths: {both}"));
        }
        known.push(file);
    }
}

fn projected(volume: &str, sources: &[Value], out: &mut Vec<String>) {
    let mut files = Vec::new();
    for source in sources {
        if source.as_object().is_none_or(|map| map.values().all(Value::is_null)) {
            out.push(format!("volume {volume:?} (Projected) has no sources provided"));
            continue;
        }
        files.extend(files_of(source));
    }
    say(volume, "Projected", files, out);
}

fn files_of(source: &Value) -> Vec<File<'_>> {
    let of = |kind: &str| source.get(kind).filter(|found| found.is_object());
    let file = |path, source: &str| File { path, source: source.to_string() };
    for (kind, shown, named) in
        [("configMap", "ConfigMap", "name"), ("secret", "Secret", "name"), ("downwardAPI", "DownwardAPI", "")]
    {
        if let Some(found) = of(kind).filter(|found| !tree::list(found, &["items"]).is_empty()) {
            let about = described(shown, found, named);
            return items(found).map(|path| file(path, &about)).collect();
        }
    }
    if let Some(token) = of("serviceAccountToken") {
        return vec![file(tree::text(token, &["path"]), "ServiceAccountToken")];
    }
    if let Some(bundle) = of("clusterTrustBundle") {
        let name = tree::at(bundle, &["name"]).or_else(|| tree::at(bundle, &["signerName"]));
        let about = format!("ClusterTrustBundle {:?}", name.and_then(Value::as_str).unwrap_or_default());
        return vec![file(tree::text(bundle, &["path"]), &about)];
    }
    let Some(certificate) = of("podCertificate") else { return Vec::new() };
    [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ]
    .into_iter()
    .map(|(key, about)| file(tree::text(certificate, &[key]), about))
    .filter(|file| !file.path.is_empty())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_that_lie_over_each_other_are_named() {
        let volumes = json!([
            {"name": "a", "configMap": {"name": "m", "items": [{"key": "x", "path": "d/f"}, {"key": "y", "path": "d"}]}},
            {"name": "b", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "x", "path": "t"}]}},
                {"serviceAccountToken": {"path": "t"}}, {}]}},
            {"name": "c", "secret": {"secretName": "s", "items": [{"key": "x", "path": "one"}, {"key": "y", "path": "other"}]}}
        ]);
        assert_eq!(
            of(volumes.as_array().unwrap()),
            [
                "volume \"a\" (ConfigMap \"m\"): overlapping paths: \"d\" with \"d/f\"",
                "volume \"b\" (Projected) has no sources provided",
                "volume \"b\" (Projected): overlapping paths: \"t\" (ServiceAccountToken) with \"t\" (Secret \"s\")",
            ]
        );
    }
}
