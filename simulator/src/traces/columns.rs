//! The columns of a trace: their names, their defaults, and one parsed row.

use csv::StringRecord;

use crate::scenario::{ClusterSpec, ScenarioError};

/// Name, other name, and the default if the column is missing.
const COLUMNS: [(&str, &str, &str); 11] = [
    ("job_id", "", "the number of the row"),
    ("submit_s", "", "0"),
    ("duration_s", "", "60"),
    ("gpus", "", "0"),
    ("cpu", "", "nothing asked for"),
    ("mem_gb", "", "nothing asked for"),
    ("instances", "workers", "as few pods as one node's GPUs allow"),
    ("user", "", "none"),
    ("vc", "", "default"),
    ("priority", "", "0"),
    ("cluster", "", "any"),
];
const DEFAULT_DURATION_MS: i64 = 60_000;
/// The longest time and the largest amount that a row may name.
const LARGEST: f64 = 1e9;

/// One job of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub name: String,
    pub submit_ms: i64,
    pub duration_ms: i64,
    pub gpus: i64,
    /// Of the whole job.
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// Pods; `None`: as few as nodes allow.
    pub instances: Option<i64>,
    pub user: String,
    pub vc: String,
    pub priority: i64,
    /// Where it is pinned to.
    pub cluster: Option<String>,
}

pub(crate) struct Columns {
    file: String,
    at: [Option<usize>; COLUMNS.len()],
}

impl Columns {
    /// # Errors
    /// A table without anything that a job could be told by.
    pub fn new(file: &str, headers: &StringRecord) -> Result<Self, ScenarioError> {
        let place = |name: &str| headers.iter().position(|header| header.trim() == name && !name.is_empty());
        let at = COLUMNS.map(|(name, other, _)| place(name).or_else(|| place(other)));
        let names: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
        if !names
            .iter()
            .zip(&at)
            .any(|(name, at)| at.is_some() && matches!(*name, "submit_s" | "duration_s" | "gpus"))
        {
            return Err(ScenarioError {
                file: file.to_string(),
                line: 1,
                field: "the header".to_string(),
                found: headers.iter().collect::<Vec<_>>().join(","),
                allowed: format!("one of submit_s, duration_s, gpus at least, of {}", names.join(",")),
            });
        }
        Ok(Self { file: file.to_string(), at })
    }

    fn index(&self, name: &str) -> Option<usize> {
        let column = COLUMNS.iter().position(|(known, ..)| *known == name)?;
        self.at[column]
    }

    pub fn has(&self, name: &str) -> bool {
        self.index(name).is_some()
    }

    /// Default of each missing column.
    pub fn notices(&self) -> Vec<String> {
        let missing = COLUMNS.iter().zip(&self.at).filter(|(_, at)| at.is_none());
        missing
            .filter(|((name, ..), _)| !matches!(*name, "priority" | "cluster" | "user"))
            .map(|((name, _, default), _)| format!("no column {name}: {default}"))
            .collect()
    }

    fn text<'r>(&self, record: &'r StringRecord, name: &str) -> Option<&'r str> {
        record.get(self.index(name)?).map(str::trim).filter(|text| !text.is_empty())
    }

    /// A number of 0 or more, times `scale`, as a whole number.
    fn amount(&self, record: &StringRecord, name: &str, scale: f64) -> Result<Option<i64>, ScenarioError> {
        let Some(text) = self.text(record, name) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| (0.0..=LARGEST).contains(number));
        match number {
            // Below 2^63: LARGEST times the largest scale.
            Some(number) => Ok(Some((number * scale).round() as i64)),
            None => Err(self.wrong(record, name, text, "a number of 0 or more".to_string())),
        }
    }

    fn wrong(&self, record: &StringRecord, name: &str, found: &str, allowed: String) -> ScenarioError {
        ScenarioError {
            file: self.file.clone(),
            line: record.position().map_or(1, csv::Position::line),
            field: name.to_string(),
            found: format!("{found:?}"),
            allowed,
        }
    }

    /// # Errors
    /// A value that is no number, a cluster that the fleet does not have.
    pub fn row(
        &self,
        number: usize,
        record: &StringRecord,
        clusters: &[ClusterSpec],
        pin: bool,
    ) -> Result<Row, ScenarioError> {
        let gpus = self.amount(record, "gpus", 1.0)?.unwrap_or(0);
        let instances = self.amount(record, "instances", 1.0)?.filter(|pods| *pods > 0);
        if let Some(pods) = instances.filter(|pods| *pods > crate::scenario::MAX_REPLICAS) {
            let allowed = format!("at most {}", crate::scenario::MAX_REPLICAS);
            return Err(self.wrong(record, "instances", &pods.to_string(), allowed));
        }
        let cluster = match self.text(record, "cluster").filter(|_| pin) {
            Some(name) if clusters.iter().any(|cluster| cluster.name == name) => Some(name.to_string()),
            Some(name) => {
                let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
                return Err(self.wrong(record, "cluster", name, names.join(", ")));
            }
            None => None,
        };
        let priority = match self.text(record, "priority") {
            None => 0,
            Some(text) => match text.parse::<i32>() {
                Ok(priority) => i64::from(priority),
                Err(_) => return Err(self.wrong(record, "priority", text, "a whole number".to_string())),
            },
        };
        let text = |name: &str| self.text(record, name).unwrap_or_default().to_string();
        let name = text("job_id");
        Ok(Row {
            name: if name.is_empty() { (number + 1).to_string() } else { name },
            submit_ms: self.amount(record, "submit_s", 1000.0)?.unwrap_or(0),
            duration_ms: self.amount(record, "duration_s", 1000.0)?.unwrap_or(DEFAULT_DURATION_MS),
            gpus,
            cpu_milli: self.amount(record, "cpu", 1000.0)?.unwrap_or(0),
            memory_bytes: self.amount(record, "mem_gb", 1024.0 * 1024.0 * 1024.0)?.unwrap_or(0),
            instances,
            user: text("user"),
            vc: text("vc"),
            priority,
            cluster,
        })
    }
}
