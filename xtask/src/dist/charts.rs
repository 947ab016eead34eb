//! Charts as `helm package` makes them: one folder, whose name is the chart's, in a `.tgz`.

use std::{fs, path::Path};

use anyhow::Context;

use super::archive::{self, ArchiveEntry};

pub const ALL: [&str; 2] = ["fleet", "member-agent"];

/// Writes `NAME-VERSION.tgz` of the chart in `folder`.
pub fn package(folder: &Path, release: &Path) -> anyhow::Result<()> {
    let definition = folder.join("Chart.yaml");
    let text = fs::read_to_string(&definition).with_context(|| format!("{}", definition.display()))?;
    let field = |name: &str| {
        let prefix = format!("{name}:");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .map(|value| value.trim().trim_matches('"'));
        value.with_context(|| format!("{}: no field {name}", definition.display()))
    };
    let (name, version) = (field("name")?, field("version")?);
    let entries: Vec<ArchiveEntry> = archive::directory(folder, name)?;
    archive::write_gz(&entries, 9, &release.join(format!("{name}-{version}.tgz")))
}
