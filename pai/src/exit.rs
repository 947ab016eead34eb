//! The meaning of exit codes of tasks and jobs, as OpenPAI shows them.

use serde::Serialize;

/// Who ended a task or a job, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExitType {
    UserSuccess,
    UserStop,
    UserFailure,
    PlatformFailure,
    ResourceAllocationTimeout,
    UnknownFailure,
}

/// Whether the same would happen again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Behavior {
    Transient,
    /// Transient, by contention with others: retried after a while.
    TransientConflict,
    Permanent,
    Unknown,
}

/// How it is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reaction {
    AlwaysRetry,
    AlwaysBackoffRetry,
    RetryToMax,
    NeverRetry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExitSpec {
    pub code: i64,
    pub phrase: &'static str,
    pub issuer: &'static str,
    pub causer: &'static str,
    #[serde(rename = "type")]
    pub kind: ExitType,
    pub stage: &'static str,
    pub behavior: Behavior,
    pub reaction: Reaction,
    pub reason: &'static str,
    pub solution: &'static [&'static str],
}

pub const SUCCEEDED: i64 = 0;
pub const POD_DELETED: i64 = -101;
pub const POD_SPEC_INVALID: i64 = -200;
pub const STOP_REQUESTED: i64 = -210;
pub const ATTEMPT_COMPLETION: i64 = -220;
pub const NO_FAILED_CONTAINER: i64 = -300;
pub const EVICTED: i64 = -1000;
pub const NODE_LOST: i64 = -1001;
pub const OUT_OF_RESOURCE: i64 = -1002;
pub const PREEMPTED_FOR_CRITICAL: i64 = -1003;
pub const DEADLINE_EXCEEDED: i64 = -1004;
pub const ADMISSION_FORBIDDEN: i64 = -1005;
pub const ADMISSION_ERROR: i64 = -1006;
pub const OOM_KILLED: i64 = -1200;
pub const IMAGE_MISSING: i64 = 254;
pub const COMMAND_FAILED: i64 = 255;
const UNKNOWN_NEGATIVE: i64 = -8000;
const UNKNOWN_POSITIVE: i64 = 256;

const WAIT: &[&str] = &["Wait for the next try", "Ask the administrator when it goes on"];
const LOOK: &[&str] = &["Look into the task's log and mend the program"];
const SEEK: &[&str] = &["Look into the task's log for the cause", "Wait for the next try"];
const NONE: &[&str] = &[];

/// The meaning of an exit code. A code without an entry is shown as it is, with what its sign says.
pub fn spec(code: i64) -> ExitSpec {
    let found = |code| SPECS.iter().find(|spec| spec.code == code);
    if let Some(spec) = found(code) {
        return *spec;
    }
    let fallback = found(if code < 0 { UNKNOWN_NEGATIVE } else { UNKNOWN_POSITIVE });
    // Both fallbacks are in the table; a test checks that.
    ExitSpec { code, ..fallback.copied().unwrap_or(SPECS[0]) }
}

/// The code of a pod that ended.
///
/// `reason` is the pod's own (`Evicted`, `NodeLost`, `OutOfcpu`), `container` the reason of the first container that
/// failed with its exit code.
pub fn of_pod(reason: &str, container: Option<(&str, i64)>) -> i64 {
    match (reason, container) {
        (_, Some(("OOMKilled", _))) => OOM_KILLED,
        ("Evicted", _) => EVICTED,
        ("NodeLost" | "Terminated" | "Shutdown" | "NodeShutdown", _) => NODE_LOST,
        ("Preempting" | "Preempted", _) => PREEMPTED_FOR_CRITICAL,
        ("DeadlineExceeded", _) => DEADLINE_EXCEEDED,
        ("Forbidden", _) => ADMISSION_FORBIDDEN,
        ("UnexpectedAdmissionError", _) => ADMISSION_ERROR,
        (reason, _) if reason.starts_with("OutOf") => OUT_OF_RESOURCE,
        (_, Some(("ContainerCannotRun" | "StartError", code))) => match code {
            125 => -1201,
            126 => -1202,
            127 => -1203,
            _ => -1204,
        },
        (_, Some((_, 0)) | None) => NO_FAILED_CONTAINER,
        (_, Some((_, code))) if SPECS.iter().any(|spec| spec.code == code && code < UNKNOWN_POSITIVE) => code,
        // As OpenPAI's runtime reports a command that failed with an exit code of its own.
        (_, Some(_)) => COMMAND_FAILED,
    }
}

macro_rules! specs {
    ($($code:literal $phrase:ident $issuer:ident $causer:ident $kind:ident $stage:ident $behavior:ident
        $reason:literal $solution:ident;)*) => {
        &[$(ExitSpec {
            code: $code,
            phrase: stringify!($phrase),
            issuer: stringify!($issuer),
            causer: stringify!($causer),
            kind: ExitType::$kind,
            stage: stringify!($stage),
            behavior: Behavior::$behavior,
            reaction: reaction($code, Behavior::$behavior),
            reason: $reason,
            solution: $solution,
        }),*]
    };
}

const fn reaction(code: i64, behavior: Behavior) -> Reaction {
    match behavior {
        _ if code == 0 => Reaction::NeverRetry,
        Behavior::Transient => Reaction::AlwaysRetry,
        Behavior::TransientConflict => Reaction::AlwaysBackoffRetry,
        Behavior::Permanent => Reaction::NeverRetry,
        Behavior::Unknown => Reaction::RetryToMax,
    }
}

/// Codes, phrases and classes are OpenPAI's, so that tools know them; the sentences are Fleet's.
pub const SPECS: &[ExitSpec] = specs! {
    0 Succeeded USER_CONTAINER USER_CONTAINER UserSuccess COMPLETING Unknown "It ended with exit code 0" NONE;
    -100 ConfigMapExternalDeleted PAI_FC PAI_UNKNOWN PlatformFailure UNKNOWN Transient "An object of the attempt was deleted by others" WAIT;
    -101 PodExternalDeleted PAI_FC PAI_UNKNOWN PlatformFailure UNKNOWN Transient "The pod was deleted by others: it was preempted, its node was drained, or a person deleted it" WAIT;
    -110 ConfigMapCreationTimeout PAI_FC PAI_UNKNOWN PlatformFailure LAUNCHING Transient "An object of the attempt could not be made in time" WAIT;
    -111 PodCreationTimeout PAI_FC PAI_UNKNOWN PlatformFailure LAUNCHING Transient "The pod could not be made in time" WAIT;
    -120 FrameworkCreationTimeout PAI_FC PAI_UNKNOWN PlatformFailure LAUNCHING Transient "The job could not be made in time" WAIT;
    -200 PodSpecPermanentError PAI_FC USER_SUBMISSION UserFailure SUBMITTING Permanent "The API server does not take the pod as the job describes it" LOOK;
    -210 StopFrameworkRequested PAI_FC USER_STOP UserStop UNKNOWN Permanent "Its owner stopped it" NONE;
    -220 FrameworkAttemptCompletion PAI_FC USER_STOP UserStop UNKNOWN Permanent "It was stopped because its attempt is complete" NONE;
    -300 PodFailedWithoutFailedContainer PAI_FC UNKNOWN UnknownFailure LAUNCHING Unknown "The pod failed, and no container of it did" SEEK;
    -1000 PodEvicted PAI_K8S PAI_K8S PlatformFailure RUNNING Transient "The pod was evicted; its node may be short of something" WAIT;
    -1001 PodNodeLost PAI_K8S PAI_K8S PlatformFailure RUNNING Transient "The pod's node was lost" WAIT;
    -1002 PodScheduledToInsufficientResourceNode PAI_K8S PAI_K8S PlatformFailure LAUNCHING Transient "The node had no room for the pod when it came" WAIT;
    -1003 PodPreemptedForCriticalPod PAI_K8S PAI_K8S PlatformFailure RUNNING Transient "The node took the pod's room for a critical pod" WAIT;
    -1004 PodDeadlineExceeded PAI_K8S USER_STOP UserStop RUNNING Permanent "The pod ran for as long as it may" NONE;
    -1005 PodNodeAdmissionForbidden PAI_K8S USER_SUBMISSION UserFailure LAUNCHING Permanent "The node does not admit such a pod" LOOK;
    -1006 PodNodeAdmissionUnexpectedError PAI_K8S PAI_K8S PlatformFailure LAUNCHING Transient "The node failed to admit the pod" WAIT;
    -1200 UserContainerDockerOOMKilled PAI_DOCKER USER_CONTAINER UserFailure RUNNING Permanent "The container used more memory than it asked for" LOOK;
    -1201 ContainerDockerCreationError PAI_DOCKER UNKNOWN UnknownFailure LAUNCHING Unknown "The container could not be made" SEEK;
    -1202 ContainerDockerStartCmdPermissionDenied PAI_DOCKER PAI_RUNTIME PlatformFailure LAUNCHING Permanent "The container's command may not be run" LOOK;
    -1203 ContainerDockerStartCmdNotFound PAI_DOCKER PAI_RUNTIME PlatformFailure LAUNCHING Permanent "The container's command is not there" LOOK;
    -1204 ContainerDockerStartUnknownError PAI_DOCKER UNKNOWN UnknownFailure LAUNCHING Unknown "The container could not be started" SEEK;
    -1300 InitContainerDockerOOMKilled PAI_DOCKER PAI_RUNTIME PlatformFailure LAUNCHING Transient "An init container used more memory than it asked for" WAIT;
    128 ContainerGpuEccError PAI_RUNTIME PAI_HW PlatformFailure RUNNING Transient "A GPU reported an ECC error" WAIT;
    130 ContainerSigIntReceived PAI_OS PAI_OS PlatformFailure RUNNING Transient "Killed by SIGINT" WAIT;
    131 ContainerSigQuitReceived PAI_OS PAI_OS PlatformFailure RUNNING Transient "Killed by SIGQUIT" WAIT;
    132 ContainerSigIllReceived USER_CONTAINER USER_CONTAINER UserFailure RUNNING Permanent "Killed by SIGILL" LOOK;
    134 ContainerSigAbrtReceived USER_CONTAINER UNKNOWN UnknownFailure RUNNING Unknown "Killed by SIGABRT" SEEK;
    135 ContainerSigBusReceived USER_CONTAINER USER_CONTAINER UserFailure RUNNING Permanent "Killed by SIGBUS" LOOK;
    136 ContainerSigFpeReceived USER_CONTAINER USER_CONTAINER UserFailure RUNNING Permanent "Killed by SIGFPE" LOOK;
    137 ContainerSigKillReceived PAI_OS PAI_OS PlatformFailure RUNNING Transient "Killed by SIGKILL" WAIT;
    139 ContainerSigSegvReceived USER_CONTAINER USER_CONTAINER UserFailure RUNNING Permanent "Killed by SIGSEGV" LOOK;
    141 ContainerSigPipeReceived USER_CONTAINER USER_CONTAINER UserFailure RUNNING Permanent "Killed by SIGPIPE" LOOK;
    143 ContainerSigTermReceived PAI_OS PAI_OS PlatformFailure RUNNING Transient "Killed by SIGTERM" WAIT;
    220 UserCommandExitWithError USER_CONTAINER USER_CONTAINER UserFailure RUNNING Permanent "The command is invalid" LOOK;
    221 ContainerTensorflowOOMKilled PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "TensorFlow ran out of memory" LOOK;
    222 ContainerMPISegvFault PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "MPI touched memory that is not its own" LOOK;
    223 ContainerCudaUncorrectableECCError PAI_RUNTIME PAI_HW PlatformFailure RUNNING Transient "A GPU reported an ECC error that cannot be corrected" WAIT;
    224 ContainerCudaVersionMismatch PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "The driver is older than the image's CUDA" LOOK;
    225 ContainerCudaDnnVersionMismatch PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "The image's cuDNN does not fit" LOOK;
    226 ContainerCudaOOMKilled PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "Out of GPU memory" LOOK;
    227 ContainerEngineCoreDump PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "The program dumped its core" LOOK;
    228 ContainerIncorrectParameterError PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "A parameter is wrong" LOOK;
    229 ContainerIncorrectDataModelError PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "Data or model cannot be read" LOOK;
    230 ContainerInvalidSavePath PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "The model cannot be saved there" LOOK;
    231 ContainerSyntaxError PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "The program has an error in its syntax" LOOK;
    232 ContainerImportError PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "A module is not there" LOOK;
    233 ContainerIndexOutOfRange PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "An index is out of range" LOOK;
    234 ContainerSigvFault PAI_RUNTIME USER_CONTAINER UserFailure RUNNING Permanent "Segmentation fault" LOOK;
    249 PAIRuntimeSSHBarrierTimeout PAI_RUNTIME PAI_RUNTIME PlatformFailure RUNNING Permanent "Tasks did not reach each other by ssh in time" LOOK;
    250 FrameworkBarrierTransientFailed PAI_RUNTIME PAI_RUNTIME PlatformFailure LAUNCHING Transient "Tasks could not wait for each other" WAIT;
    251 JobGangAllocationTimeout PAI_RUNTIME RESOURCE_ALLOCATION_TIMEOUT ResourceAllocationTimeout ALLOCATING TransientConflict "Not all tasks found room in time" WAIT;
    252 FrameworkBarrierPermanentFailed PAI_RUNTIME PAI_RUNTIME PlatformFailure LAUNCHING Permanent "Tasks can never wait for each other" LOOK;
    253 ContainerPortConflict PAI_RUNTIME PAI_RUNTIME PlatformFailure LAUNCHING Transient "A port is taken" WAIT;
    254 ContainerImageNotExists PAI_RUNTIME PAI_RUNTIME UserFailure LAUNCHING Permanent "The image is not there, or may not be pulled" LOOK;
    255 PAIRuntimeUnknownFailed PAI_RUNTIME UNKNOWN UnknownFailure UNKNOWN Unknown "The command failed for a reason that is not known" SEEK;
    -8000 ContainerUndefinedNegativeExitCode UNKNOWN UNKNOWN UnknownFailure UNKNOWN Unknown "It ended with a code that has no meaning" SEEK;
    256 PAIRuntimeExitAbnormally PAI_RUNTIME PAI_RUNTIME PlatformFailure UNKNOWN Unknown "It ended with a code that has no meaning" SEEK;
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_and_phrases_stand_once_and_the_fallbacks_are_there() {
        let codes: BTreeSet<i64> = SPECS.iter().map(|spec| spec.code).collect();
        let phrases: BTreeSet<&str> = SPECS.iter().map(|spec| spec.phrase).collect();
        assert_eq!((codes.len(), phrases.len()), (SPECS.len(), SPECS.len()));
        for code in [0, -8000, 256] {
            assert!(codes.contains(&code));
        }
        assert_eq!(spec(1), ExitSpec { code: 1, ..spec(256) });
        assert_eq!(spec(-7), ExitSpec { code: -7, ..spec(-8000) });
    }

    #[test]
    fn codes_worth_knowing() {
        use Behavior::{Permanent, Transient, TransientConflict, Unknown};
        use ExitType::{
            PlatformFailure, ResourceAllocationTimeout, UnknownFailure, UserFailure, UserStop, UserSuccess,
        };
        for (code, kind, behavior) in [
            (0, UserSuccess, Unknown),
            (-100, PlatformFailure, Transient),
            (-101, PlatformFailure, Transient),
            (-110, PlatformFailure, Transient),
            (-111, PlatformFailure, Transient),
            (-120, PlatformFailure, Transient),
            (-200, UserFailure, Permanent),
            (-210, UserStop, Permanent),
            (-220, UserStop, Permanent),
            (-1000, PlatformFailure, Transient),
            (-1001, PlatformFailure, Transient),
            (-1002, PlatformFailure, Transient),
            (-1200, UserFailure, Permanent),
            (137, PlatformFailure, Transient),
            (143, PlatformFailure, Transient),
            (128, PlatformFailure, Transient),
            (223, PlatformFailure, Transient),
            (226, UserFailure, Permanent),
            (251, ResourceAllocationTimeout, TransientConflict),
            (253, PlatformFailure, Transient),
            (254, UserFailure, Permanent),
            (255, UnknownFailure, Unknown),
            (1, PlatformFailure, Unknown),
            (-9999, UnknownFailure, Unknown),
        ] {
            assert_eq!((spec(code).kind, spec(code).behavior), (kind, behavior), "{code}");
        }
        assert_eq!(spec(-101).phrase, "PodExternalDeleted");
    }

    #[test]
    fn ends_of_pods() {
        for (reason, container, code) in [
            ("", Some(("Error", 1)), 255),
            ("", Some(("Error", 226)), 226),
            ("", Some(("OOMKilled", 137)), -1200),
            ("Evicted", Some(("Error", 137)), -1000),
            ("NodeLost", None, -1001),
            ("OutOfcpu", None, -1002),
            ("OutOfnvidia.com/gpu", None, -1002),
            ("Preempting", None, -1003),
            ("DeadlineExceeded", None, -1004),
            ("UnexpectedAdmissionError", None, -1006),
            ("", Some(("ContainerCannotRun", 127)), -1203),
            ("", Some(("StartError", 128)), -1204),
            ("", None, -300),
            ("", Some(("Completed", 0)), -300),
        ] {
            assert_eq!(of_pod(reason, container), code, "{reason} {container:?}");
        }
    }
}
