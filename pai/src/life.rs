//! The life of a job: from its rules and the events of its pods follow the next actions and its state.
//!
//! Events come in through `did`, `stop` and `delay_over`. `todo` returns the next actions, and the same ones until
//! an event comes in. There are no clusters or clocks here; the caller creates and deletes pods, and waits.

use crate::{
    completion::{self, Completed, Ended, Rules},
    exit,
    retry::{self, Decision, Retried},
    state::{ExecutionType, State, SubState, shown},
};

/// A task of a job: its role, by position in the rules, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId {
    pub role: usize,
    pub index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Created,
    Running,
    Ended {
        code: i64,
    },
    /// Its pod is gone.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Todo {
    CreatePod(TaskId),
    DeletePod(TaskId),
    /// Call `delay_over` afterwards.
    Wait {
        delay_s: i64,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pod {
    /// It does not exist, or is not known yet.
    #[default]
    None,
    Waiting,
    Running,
    /// It has ended and still exists.
    Ended,
}

#[derive(Clone, Debug, Default)]
struct Task {
    pod: Pod,
    retried: Retried,
    /// Its exit code in this attempt.
    over: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Goes,
    /// The attempt is over; its pods are terminating.
    Ends(Completed),
    Delayed {
        delay_s: i64,
        /// The retry that follows counts against the limit.
        counts: bool,
        last: Completed,
    },
    Over(Completed),
}

#[derive(Clone, Debug)]
pub struct Life {
    rules: Rules,
    execution: ExecutionType,
    phase: Phase,
    /// 0 for the first.
    attempt: i64,
    retried: Retried,
    tasks: Vec<Vec<Task>>,
    /// In the order of their ends, by role.
    ended: Vec<Vec<Ended>>,
    /// Some task of the attempt has run.
    has_run: bool,
}

impl Life {
    pub fn new(rules: Rules) -> Self {
        let mut life = Self {
            rules,
            execution: ExecutionType::Start,
            phase: Phase::Goes,
            attempt: 0,
            retried: Retried::default(),
            tasks: Vec::new(),
            ended: Vec::new(),
            has_run: false,
        };
        life.begin();
        life
    }

    fn begin(&mut self) {
        let tasks =
            |rule: &completion::RoleRule| vec![Task::default(); usize::try_from(rule.instances).unwrap_or(0)];
        self.tasks = self.rules.roles.iter().map(tasks).collect();
        self.ended = vec![Vec::new(); self.rules.roles.len()];
        self.has_run = false;
        self.phase = Phase::Goes;
    }

    /// An event of a task's pod. Events of unknown tasks, and after the end of the job, are ignored.
    pub fn did(&mut self, id: TaskId, did: Did) {
        let ending = match &self.phase {
            Phase::Goes => None,
            Phase::Ends(completed) => Some(stopped_code(completed)),
            Phase::Delayed { .. } | Phase::Over(_) => return,
        };
        let Some(task) = self.tasks.get_mut(id.role).and_then(|tasks| tasks.get_mut(id.index)) else {
            return;
        };
        let code = match did {
            Did::Created if task.pod == Pod::None && task.over.is_none() => {
                task.pod = Pod::Waiting;
                return;
            }
            Did::Running if task.pod == Pod::Waiting => {
                task.pod = Pod::Running;
                self.has_run = true;
                return;
            }
            Did::Ended { code } if matches!(task.pod, Pod::Waiting | Pod::Running) => {
                task.pod = Pod::Ended;
                self.has_run = true;
                ending.unwrap_or(code)
            }
            Did::Gone if matches!(task.pod, Pod::Waiting | Pod::Running) => {
                task.pod = Pod::None;
                ending.unwrap_or(exit::POD_DELETED)
            }
            Did::Gone => {
                task.pod = Pod::None;
                return;
            }
            _ => return,
        };
        self.task_ended(id, code);
        self.settle();
    }

    /// The owner stops the job.
    pub fn stop(&mut self) {
        self.execution = ExecutionType::Stop;
        let stop = Completed {
            code: exit::STOP_REQUESTED,
            trigger: None,
            message: "its owner stopped it".to_owned(),
        };
        match self.phase {
            Phase::Goes | Phase::Ends(_) => self.phase = Phase::Ends(stop),
            Phase::Delayed { .. } => self.phase = Phase::Over(stop),
            Phase::Over(_) => {}
        }
        self.settle();
    }

    pub fn delay_over(&mut self) {
        if let Phase::Delayed { counts, last, .. } = &self.phase {
            self.retried = self.retried.after(last.code, *counts);
            self.attempt += 1;
            self.begin();
        }
    }

    fn task_ended(&mut self, id: TaskId, code: i64) {
        let goes = self.phase == Phase::Goes;
        let (Some(rule), Some(task)) = (self.rules.roles.get(id.role), self.tasks[id.role].get_mut(id.index))
        else {
            return;
        };
        // A task that waits for its next try has no pod; only the job level has a wait.
        if goes && let Decision::Retry { counts, .. } = retry::decide(rule.task_retry, &task.retried, code) {
            task.retried = task.retried.after(code, counts);
            return;
        }
        task.over = Some(code);
        self.ended[id.role].push(Ended { index: id.index as i64, code });
    }

    /// Goes on until an event is needed.
    fn settle(&mut self) {
        if self.phase == Phase::Goes
            && let Some(completed) = completion::judge(&self.rules.roles, &self.ended)
        {
            self.phase = Phase::Ends(completed);
        }
        let Phase::Ends(completed) = &self.phase else { return };
        let lives = |task: &Task| matches!(task.pod, Pod::Waiting | Pod::Running);
        if self.tasks.iter().flatten().any(lives) {
            return;
        }
        let completed = completed.clone();
        let stops = completed.code;
        match retry::decide(self.rules.job_retry, &self.retried, stops) {
            Decision::Retry { counts, delay_s } => {
                self.phase = Phase::Delayed { delay_s, counts, last: completed };
                if delay_s == 0 {
                    self.delay_over();
                }
            }
            Decision::End => {
                // Tasks that never had a pod end with their attempt.
                let code = stopped_code(&completed);
                self.tasks.iter_mut().flatten().for_each(|task| {
                    task.over.get_or_insert(code);
                });
                self.phase = Phase::Over(completed);
            }
        }
    }

    /// The next actions.
    pub fn todo(&self) -> Vec<Todo> {
        let ids = self.tasks.iter().enumerate().flat_map(|(role, tasks)| {
            tasks.iter().enumerate().map(move |(index, task)| (TaskId { role, index }, task))
        });
        match &self.phase {
            Phase::Delayed { delay_s, .. } => vec![Todo::Wait { delay_s: *delay_s }],
            Phase::Over(_) => Vec::new(),
            Phase::Ends(_) => ids
                .filter(|(_, task)| matches!(task.pod, Pod::Waiting | Pod::Running))
                .map(|(id, _)| Todo::DeletePod(id))
                .collect(),
            Phase::Goes => ids
                .filter(|(_, task)| task.over.is_none())
                .filter_map(|(id, task)| match task.pod {
                    Pod::None => Some(Todo::CreatePod(id)),
                    // Its last try blocks the next.
                    Pod::Ended => Some(Todo::DeletePod(id)),
                    Pod::Waiting | Pod::Running => None,
                })
                .collect(),
        }
    }

    pub fn sub_state(&self) -> SubState {
        match &self.phase {
            Phase::Over(_) => SubState::Completed,
            Phase::Delayed { .. } => SubState::AttemptCompleted,
            Phase::Ends(_) => SubState::AttemptDeleting,
            Phase::Goes if self.has_run => SubState::AttemptRunning,
            Phase::Goes if self.tasks.iter().flatten().any(|task| task.pod != Pod::None) => {
                SubState::AttemptPreparing
            }
            Phase::Goes => SubState::AttemptCreationPending,
        }
    }

    pub fn state(&self) -> State {
        let delayed = matches!(&self.phase, Phase::Delayed { delay_s, .. } if *delay_s > 0);
        shown(self.sub_state(), self.completed().map(|completed| completed.code), delayed)
    }

    /// The state of a task, with its exit code.
    pub fn task(&self, id: TaskId) -> Option<(State, Option<i64>)> {
        let task = self.tasks.get(id.role)?.get(id.index)?;
        let ending = match &self.phase {
            Phase::Ends(completed) => Some(stopped_code(completed)),
            _ => None,
        };
        let (state, code) = match (task.over, task.pod) {
            (Some(code), _) => (SubState::Completed, Some(code)),
            (None, Pod::Waiting | Pod::Running) if ending.is_some() => (SubState::AttemptDeleting, ending),
            (None, Pod::Running) => (SubState::AttemptRunning, None),
            (None, Pod::Ended) => (SubState::AttemptCompleted, None),
            (None, Pod::Waiting) => (SubState::AttemptPreparing, None),
            (None, Pod::None) => (SubState::AttemptCreationPending, None),
        };
        Some((shown(state, code, false), code.filter(|_| task.over.is_some())))
    }

    /// How the present attempt ended, or the last one of a finished job.
    pub fn completed(&self) -> Option<&Completed> {
        match &self.phase {
            Phase::Goes => None,
            Phase::Ends(completed) | Phase::Over(completed) | Phase::Delayed { last: completed, .. } => {
                Some(completed)
            }
        }
    }

    pub fn execution(&self) -> ExecutionType {
        self.execution
    }

    /// 0 for the first.
    pub fn attempt(&self) -> i64 {
        self.attempt
    }

    pub fn retried(&self) -> Retried {
        self.retried
    }

    pub fn task_retried(&self, id: TaskId) -> Option<Retried> {
        Some(self.tasks.get(id.role)?.get(id.index)?.retried)
    }
}

/// The exit code of tasks that are stopped at the end of an attempt.
fn stopped_code(completed: &Completed) -> i64 {
    match completed.code {
        exit::STOP_REQUESTED => exit::STOP_REQUESTED,
        _ => exit::ATTEMPT_COMPLETION,
    }
}
