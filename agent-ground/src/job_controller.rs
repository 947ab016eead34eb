//! Kinds of jobs whose controllers the agent brings.

/// Job kinds the agent can bring a controller for, to members without an operator of their own.
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
