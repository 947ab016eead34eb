//! The manifest by which krew installs `kubectl fleet`.

use std::{fs, path::Path};

use anyhow::Context;

use super::names::{Platform, VERSION};

pub fn write(file: &Path, url: &str, package: &str, digest: &str, platform: &Platform) -> anyhow::Result<()> {
    let Platform { os, arch } = platform;
    let url = url.trim_end_matches('/');
    let text = format!(
        "\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: fleet
spec:
  version: v{VERSION}
  homepage: {url}
  shortDescription: Queue and run training jobs on many clusters
  description: |
    Looks at and manages a fleet: which jobs wait and why, where they run, queues,
    quotas, clusters, virtual clusters. KUBECONFIG names the hub.
  platforms:
  - selector:
      matchLabels:
        os: {os}
        arch: {arch}
    uri: {url}/v{VERSION}/{package}.tar.gz
    sha256: {digest}
    files:
    - from: {package}/bin/fleet
      to: .
    - from: {package}/LICENSE
      to: .
    bin: fleet
"
    );
    fs::write(file, text).with_context(|| format!("{}", file.display()))
}
