//! A file of an administrator: HiveD's configuration, OpenPAI's wrapper of one, or a CellConfiguration.

use fleet_api::{
    cells::{AccessRules, access, read::check_names},
    yaml,
};
use fleet_cells::{
    Cells, Unreported,
    config::{ClusterConfig, ConfigError, ConfigErrors, Document, read_document},
};
use serde_json::{Value, json};

const KIND: &str = "CellConfiguration";
const API_VERSION: &str = "fleet.dev/v1alpha1";
/// Where OpenPAI's services configuration holds HiveD's.
const WRAPPER: &str = "hivedscheduler.config";

/// What a file asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub config: ClusterConfig,
    /// Who may use which virtual cluster. HiveD's files do not have this: then the access rules on the hub
    /// are kept.
    pub access: Option<AccessRules>,
    /// The object's own name, where the file is one.
    pub name: Option<String>,
}

/// Why a file is invalid: every error, each with its path in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct FileErrors(pub Vec<String>);

/// Reads a file and checks it as a whole.
///
/// # Errors
/// Every error, with its path in the file, what was found and what is allowed.
pub fn read(text: &str) -> Result<Wanted, FileErrors> {
    let mut documents: Vec<Value> =
        yaml::read_all(text).map_err(|error| FileErrors(vec![error.to_string()]))?;
    let Some(document) = documents.pop().filter(|_| documents.is_empty()) else {
        let found = documents.len() + 1;
        let found = if found == 1 { "nothing".to_string() } else { format!("{found} documents") };
        return Err(FileErrors(vec![format!(
            "the file: found {found}; allowed: one configuration of cells"
        )]));
    };
    if document.get("kind").is_some() || document.get("apiVersion").is_some() {
        return object(&document);
    }
    let file_errors = |prefix: &str, errors: ConfigErrors| file_errors(prefix, &errors);
    let (config, prefix) = match read_document(&document).map_err(|errors| file_errors("", errors))? {
        Document::Config(config) => {
            let prefix = if document.get("hivedscheduler").is_some() { WRAPPER } else { "" };
            (*config, prefix)
        }
        Document::Wrapped(text) => {
            let inner: Value = yaml::read(&text).map_err(|error| {
                FileErrors(vec![format!("{WRAPPER}: found invalid YAML ({error}); allowed: a configuration")])
            })?;
            (ClusterConfig::read(&inner).map_err(|errors| file_errors(WRAPPER, errors))?, WRAPPER)
        }
    };
    let config = checked(config).map_err(|errors| file_errors(prefix, errors))?;
    Ok(Wanted { config, access: None, name: None })
}

/// Accepts a configuration that is valid and not empty.
fn checked(config: ClusterConfig) -> Result<ClusterConfig, ConfigErrors> {
    let empty = |path: &str, allowed: &str| {
        Err(ConfigErrors(vec![ConfigError {
            path: path.into(),
            found: "nothing".into(),
            allowed: allowed.into(),
        }]))
    };
    if config.physical_cluster.physical_cells.is_empty() {
        return empty("physicalCluster.physicalCells", "at least one tree of cells");
    }
    if config.virtual_clusters.is_empty() {
        return empty("virtualClusters", "at least one virtual cluster");
    }
    check_names(&config)?;
    Cells::new(config.clone(), Unreported::Good)?;
    Ok(config)
}

fn object(document: &Value) -> Result<Wanted, FileErrors> {
    let mut wrong = Vec::new();
    for (field, allowed) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        if document[field] != allowed {
            wrong.push(format!("{field}: found {}; allowed: {allowed}", document[field]));
        }
    }
    if !wrong.is_empty() {
        return Err(FileErrors(wrong));
    }
    let file_errors = |errors: ConfigErrors| file_errors("spec", &errors);
    let mut spec = document["spec"].clone();
    let access = spec.as_object_mut().and_then(|spec| spec.remove("access"));
    let access = rules(access.unwrap_or_else(|| json!({})))?;
    let config = ClusterConfig::read(&spec).and_then(checked).map_err(file_errors)?;
    access::check(&access, &config).map_err(file_errors)?;
    let name = document["metadata"]["name"].as_str().map(str::to_string);
    Ok(Wanted { config, access: Some(access), name })
}

/// Who may use which virtual cluster. A misspelt field is an error: ignoring it would give access to
/// everybody.
fn rules(access: Value) -> Result<AccessRules, FileErrors> {
    const FIELDS: [&str; 3] = ["submitterNamespaces", "submitters", "guaranteedNamespaces"];
    let mut wrong = Vec::new();
    for (vc, rules) in access.as_object().into_iter().flatten() {
        for field in rules.as_object().into_iter().flat_map(|rules| rules.keys()) {
            if !FIELDS.contains(&field.as_str()) {
                let allowed = FIELDS.join(", ");
                wrong.push(format!("spec.access.{vc}.{field}: found an unknown field; allowed: {allowed}"));
            }
        }
    }
    if !wrong.is_empty() {
        return Err(FileErrors(wrong));
    }
    serde_json::from_value(access).map_err(|error| {
        FileErrors(vec![format!("spec.access: {error}; allowed: lists of names by virtual cluster")])
    })
}

fn file_errors(prefix: &str, errors: &ConfigErrors) -> FileErrors {
    let one = |error: &ConfigError| match prefix {
        "" => error.to_string(),
        prefix => format!("{prefix}.{error}"),
    };
    FileErrors(errors.0.iter().map(one).collect())
}
