//! When an attempt of a job is over: which roles end it, and with which exit code.

use serde::{Deserialize, Serialize};

use crate::{
    Protocol, exit,
    fields::is_name,
    names,
    protocol::{NAME_MAX, ROLES_MAX, TASKS_MAX, in_label},
    retry,
};

/// The rules by which a job ends and is retried, as its member gets them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rules {
    /// In the order of roles.
    pub roles: Vec<RoleRule>,
    pub job_retry: retry::Policy,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRule {
    pub role: String,
    /// Name of the role's task in the native job.
    pub task: String,
    pub instances: i64,
    /// -1: never.
    pub min_failed: i64,
    pub min_succeeded: i64,
    pub task_retry: retry::Policy,
}

impl Rules {
    /// The rules in the annotation of a job's object. `None` without rules, and of such as no job file makes: whoever
    /// may write the object writes them, and their numbers become sizes, their names parts of paths.
    pub fn read(text: &str) -> Option<Self> {
        let rules: Self = serde_json::from_str(text).ok()?;
        let fits = |rule: &RoleRule| {
            is_name(&rule.role, NAME_MAX, in_label)
                && names::is_task(&rule.task)
                && (0..=TASKS_MAX).contains(&rule.instances)
        };
        if rules.roles.len() > ROLES_MAX || !rules.roles.iter().all(fits) {
            return None;
        }
        (rules.tasks() <= TASKS_MAX).then_some(rules)
    }

    /// All tasks of all roles.
    pub fn tasks(&self) -> i64 {
        self.roles.iter().map(|role| role.instances).fold(0, i64::saturating_add)
    }

    /// The rules of a job file.
    pub fn of(protocol: &Protocol) -> Self {
        let gang = protocol.extras.gang_allocation;
        let roles = protocol.task_roles.iter().map(|role| RoleRule {
            role: role.name.clone(),
            task: names::task(&role.name),
            instances: role.instances,
            min_failed: role.completion.min_failed,
            min_succeeded: role.completion.min_succeeded,
            // One lost task fails the attempt of a gang, and the whole job is retried.
            task_retry: if gang {
                retry::Policy { fancy: false, max: 0 }
            } else {
                retry::Policy { fancy: true, max: role.task_retry_count }
            },
        });
        Self {
            roles: roles.collect(),
            job_retry: retry::Policy { fancy: true, max: protocol.job_retry_count },
        }
    }
}

/// A task that has ended for good in its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub index: i64,
    pub code: i64,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completed {
    pub code: i64,
    /// Role and index of the task that ended it; `None` when all tasks were over.
    pub trigger: Option<(String, i64)>,
    pub message: String,
}

/// Whether an attempt is over. `ended` has the ended tasks of each role, in the order of their ends.
///
/// Roles are judged in their order, and of each, failures first.
pub fn judge(rules: &[RoleRule], ended: &[Vec<Ended>]) -> Option<Completed> {
    for (rule, ended) in rules.iter().zip(ended) {
        let (good, bad): (Vec<&Ended>, Vec<&Ended>) = ended.iter().partition(|e| e.code == exit::SUCCEEDED);
        if let Some(last) = reached(rule.min_failed, &bad) {
            return Some(Completed {
                code: last.code,
                trigger: Some((rule.role.clone(), last.index)),
                message: format!(
                    "{} of {} tasks of {} failed, and minFailedInstances is {}",
                    bad.len(),
                    rule.instances,
                    rule.role,
                    rule.min_failed
                ),
            });
        }
        if let Some(last) = reached(rule.min_succeeded, &good) {
            return Some(Completed {
                code: exit::SUCCEEDED,
                trigger: Some((rule.role.clone(), last.index)),
                message: format!(
                    "{} of {} tasks of {} succeeded, and minSucceededInstances is {}",
                    good.len(),
                    rule.instances,
                    rule.role,
                    rule.min_succeeded
                ),
            });
        }
    }
    let over = |(rule, ended): (&RoleRule, &Vec<Ended>)| ended.len() as i64 >= rule.instances;
    let all = !rules.is_empty() && rules.iter().zip(ended).all(over);
    all.then(|| Completed {
        code: exit::SUCCEEDED,
        trigger: None,
        message: "all tasks are over, and no role's completion says otherwise".to_owned(),
    })
}

/// The task that reached the number.
fn reached<'e>(number: i64, ended: &[&'e Ended]) -> Option<&'e Ended> {
    let place = usize::try_from(number).ok().filter(|number| *number > 0)?;
    ended.get(place - 1).copied()
}
