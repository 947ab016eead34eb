//! Kinds of jobs for which the agent has controllers.

/// Kinds of jobs for which the agent can run a controller, in members without an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobController {
    PyTorchJob,
    TFJob,
    MPIJob,
    VolcanoJob,
    BatchJob,
    Deployment,
}

impl JobController {
    pub const ALL: [JobController; 6] =
        [Self::PyTorchJob, Self::TFJob, Self::MPIJob, Self::VolcanoJob, Self::BatchJob, Self::Deployment];
}
