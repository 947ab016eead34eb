//! Filter, order and page of a list of jobs.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use fleet_pai::state::State;

use super::error::RestError;
use crate::jobs::Item;

const LIMIT: usize = 5_000;
const LIMIT_MAX: usize = 50_000;

/// The parameters of `GET /jobs`. An empty list matches everything.
#[derive(Debug, Default)]
pub struct Query {
    users: BTreeSet<String>,
    clusters: BTreeSet<String>,
    states: Vec<State>,
    classes: BTreeSet<String>,
    keyword: Option<String>,
    tags: BTreeSet<String>,
    no_tags: BTreeSet<String>,
    pub with_total_count: bool,
    offset: usize,
    limit: usize,
    order: Order,
}

#[derive(Clone, Copy, Debug)]
struct Order {
    field: Field,
    descending: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self { field: Field::SubmissionTime, descending: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    JobName,
    SubmissionTime,
    Username,
    Vc,
    Retries,
    TotalTaskNumber,
    TotalGpuNumber,
    State,
    CompletionTime,
    JobPriority,
}

const FIELDS: [(Field, &str); 10] = [
    (Field::JobName, "jobName"),
    (Field::SubmissionTime, "submissionTime"),
    (Field::Username, "username"),
    (Field::Vc, "vc"),
    (Field::Retries, "retries"),
    (Field::TotalTaskNumber, "totalTaskNumber"),
    (Field::TotalGpuNumber, "totalGpuNumber"),
    (Field::State, "state"),
    (Field::CompletionTime, "completionTime"),
    (Field::JobPriority, "jobPriority"),
];

impl Query {
    /// Reads the parameters; unknown ones are ignored, as OpenPAI does.
    pub fn read(given: &BTreeMap<String, String>) -> Result<Self, RestError> {
        let list = |name: &str| -> BTreeSet<String> {
            let words = given.get(name).map(String::as_str).unwrap_or_default().split(',');
            words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let number = |name: &str, absent: usize| match given.get(name) {
            Some(text) => text
                .parse::<usize>()
                .map_err(|_| RestError::parameter(name, text, "a whole number of 0 or more")),
            None => Ok(absent),
        };
        let limit = number("limit", LIMIT)?;
        if limit > LIMIT_MAX {
            return Err(RestError::parameter("limit", &limit.to_string(), &format!("at most {LIMIT_MAX}")));
        }
        let states = list("state").into_iter().map(|word| {
            let known = State::ALL.iter().find(|state| state.as_str() == word);
            let all: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
            known.copied().ok_or_else(|| RestError::parameter("state", &word, &all.join(", ")))
        });
        Ok(Self {
            users: list("username"),
            clusters: list("vc"),
            states: states.collect::<Result<_, _>>()?,
            classes: list("jobPriority"),
            keyword: given.get("keyword").filter(|word| !word.is_empty()).cloned(),
            tags: list("tagsContain"),
            no_tags: list("tagsNotContain"),
            with_total_count: given.get("withTotalCount").is_some_and(|word| word == "true"),
            offset: number("offset", 0)?,
            limit,
            order: given.get("order").map(|text| order(text)).transpose()?.unwrap_or_default(),
        })
    }

    /// The jobs of the page, and the number of jobs before paging.
    pub fn apply(&self, mut items: Vec<Item>) -> (usize, Vec<Item>) {
        items.retain(|item| self.wants(item));
        items.sort_by(|a, b| self.compare(a, b));
        let total = items.len();
        (total, items.into_iter().skip(self.offset).take(self.limit).collect())
    }

    fn wants(&self, item: &Item) -> bool {
        let any = |list: &BTreeSet<String>, text: &str| list.is_empty() || list.contains(text);
        let has_one = |list: &BTreeSet<String>| item.tags.iter().any(|tag| list.contains(tag));
        let said = [&item.username, &item.name, &item.virtual_cluster];
        any(&self.users, &item.username)
            && any(&self.clusters, &item.virtual_cluster)
            && self.has_class(item)
            && (self.states.is_empty() || self.states.contains(&item.state))
            && self.keyword.as_ref().is_none_or(|word| said.iter().any(|text| text.contains(word.as_str())))
            && (self.tags.is_empty() || has_one(&self.tags))
            && !has_one(&self.no_tags)
    }

    /// `default` are the jobs whose files name no class, whatever class they have by that.
    fn has_class(&self, item: &Item) -> bool {
        self.classes.is_empty()
            || match item.job_priority.as_str() {
                _ if item.is_of_default_class => self.classes.contains("default"),
                class => class != "default" && self.classes.contains(class),
            }
    }

    fn compare(&self, a: &Item, b: &Item) -> Ordering {
        let by = match self.order.field {
            Field::JobName => a.name.cmp(&b.name),
            Field::SubmissionTime => a.submission_time.cmp(&b.submission_time),
            Field::Username => a.username.cmp(&b.username),
            Field::Vc => a.virtual_cluster.cmp(&b.virtual_cluster),
            Field::Retries => a.retries.cmp(&b.retries),
            Field::TotalTaskNumber => a.total_task_number.cmp(&b.total_task_number),
            Field::TotalGpuNumber => a.total_gpu_number.cmp(&b.total_gpu_number),
            Field::State => a.state.as_str().cmp(b.state.as_str()),
            // Jobs that have not ended come after those that have.
            Field::CompletionTime => {
                a.completed_time.unwrap_or(i64::MAX).cmp(&b.completed_time.unwrap_or(i64::MAX))
            }
            Field::JobPriority => priority(a).cmp(&priority(b)),
        };
        let by = if self.order.descending { by.reverse() } else { by };
        // Pages are consistent only if equal jobs keep their order.
        by.then_with(|| (&a.username, &a.name, &a.namespace).cmp(&(&b.username, &b.name, &b.namespace)))
    }
}

fn priority(item: &Item) -> i64 {
    match item.job_priority.as_str() {
        "oppo" => -1,
        "test" => 10,
        "prod" => 100,
        number => number.parse().unwrap_or(0),
    }
}

fn order(text: &str) -> Result<Order, RestError> {
    let (name, direction) = text.split_once(',').unwrap_or((text, "DESC"));
    let field = FIELDS.iter().find(|(_, known)| *known == name).map(|(field, _)| *field);
    let descending = match direction {
        "DESC" => Some(true),
        "ASC" => Some(false),
        _ => None,
    };
    match (field, descending) {
        (Some(field), Some(descending)) => Ok(Order { field, descending }),
        _ => {
            let names: Vec<&str> = FIELDS.iter().map(|(_, name)| *name).collect();
            let allowed = format!("FIELD,ASC or FIELD,DESC with a field of {}", names.join(", "));
            Err(RestError::parameter("order", text, &allowed))
        }
    }
}
