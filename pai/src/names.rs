//! Names of a job's objects, and the marks by which they are found.

/// Label of every object of a job: the name of its first object.
pub const JOB_LABEL: &str = "pai.fleet.dev/job";
/// Label: its owner.
pub const USER_LABEL: &str = "pai.fleet.dev/user";
/// Label: the number of the run; 1 is the first.
pub const RUN_LABEL: &str = "pai.fleet.dev/run";
/// Label on pods: the task role they belong to.
pub const ROLE_LABEL: &str = "pai.fleet.dev/task-role";
/// Label: the virtual cluster whose cells it uses.
pub const VIRTUAL_CLUSTER_LABEL: &str = "fleet.dev/virtual-cluster";
/// Label: its class, by name or number.
pub const CLASS_LABEL: &str = "fleet.dev/class";
/// Annotation: `user~job`.
pub const ID_ANNOTATION: &str = "pai.fleet.dev/id";
/// Annotation: the configuration it was submitted with, secrets masked.
pub const CONFIG_ANNOTATION: &str = "pai.fleet.dev/config";
/// Annotation: when it was submitted, in milliseconds since 1970.
pub const SUBMITTED_ANNOTATION: &str = "pai.fleet.dev/submitted-ms";
/// Annotation: GPUs of all its tasks.
pub const GPUS_ANNOTATION: &str = "pai.fleet.dev/gpus";
/// Annotation: tags, as a JSON list of texts.
pub const TAGS_ANNOTATION: &str = "pai.fleet.dev/tags";
/// Annotation: when it ends and is retried, as [`crate::completion::Rules`] in JSON.
pub const RULES_ANNOTATION: &str = "pai.fleet.dev/completion";
/// Annotation of pod templates: HiveD's scheduling spec.
pub const HIVED_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-scheduling-spec";

/// Separator of user and job.
const BETWEEN: char = '~';
/// Longest name of an object made from a job: pods are named after it and after role and index, within 63.
const OBJECT_MAX: usize = 36;
/// Longest name of a task made from a role.
const TASK_MAX: usize = 20;
/// Longest value of a label.
const LABEL_MAX: usize = 63;
const HASH: usize = 8;

/// `user~job`.
pub fn id(user: &str, job: &str) -> String {
    format!("{user}{BETWEEN}{job}")
}

/// User and job of an id.
pub fn of_id(id: &str) -> Option<(&str, &str)> {
    id.split_once(BETWEEN).filter(|(user, job)| !user.is_empty() && !job.is_empty())
}

/// The name of a job's object. Different ids have different names: if an id is not a valid name, a hash is added.
pub fn object(user: &str, job: &str) -> String {
    let plain = format!("{user}-{job}");
    // The user ends at the first dash, so a plain name determines user and job.
    let is_plain = !user.contains('-') && plain == label(&plain) && plain.len() <= OBJECT_MAX;
    let starts = plain.starts_with(|c: char| c.is_ascii_lowercase());
    if is_plain && starts && !ends_in_hash(&plain) {
        plain
    } else {
        hashed(&plain, &id(user, job), OBJECT_MAX)
    }
}

/// The object of a later run.
pub fn object_of_run(first: &str, run: i64) -> String {
    if run <= 1 { first.to_owned() } else { format!("{first}-r{run}") }
}

/// The name of a role's task.
pub fn task(role: &str) -> String {
    let plain = label(role);
    if plain == role && plain.len() <= TASK_MAX && !ends_in_hash(role) {
        plain
    } else {
        hashed(role, role, TASK_MAX)
    }
}

/// Whether a text can be the name of a role's task: a part of the names of its pods.
pub fn is_task(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len()) && label(text) == text
}

/// The owner of jobs for a user of the hub: the part of a service account's or certificate's name that a label can
/// hold.
pub fn user(hub_user: &str) -> String {
    let last = hub_user.rsplit(':').next().unwrap_or_default();
    let kept: String =
        last.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
    let kept: String = kept.trim_matches(['.', '_', '-']).chars().take(LABEL_MAX).collect();
    let kept = kept.trim_end_matches(['.', '_', '-']);
    if kept.is_empty() { "unknown".to_owned() } else { kept.to_owned() }
}

/// Whether a text is a valid owner.
pub fn is_user(text: &str) -> bool {
    user(text) == text
}

/// Small letters, digits and inner dashes.
fn label(text: &str) -> String {
    let small = text.chars().map(|c| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    });
    small.collect::<String>().trim_matches('-').to_owned()
}

/// The beginning of a text and a hash of the whole.
fn hashed(text: &str, whole: &str, most: usize) -> String {
    let kept: String = label(text).chars().take(most - HASH - 1).collect();
    let kept = kept.trim_end_matches('-');
    let first = kept.starts_with(|c: char| c.is_ascii_lowercase());
    let kept =
        if first { kept.to_owned() } else { format!("x{kept}").chars().take(most - HASH - 1).collect() };
    format!("{}-{:08x}", kept.trim_end_matches('-'), fnv(whole) & 0xffff_ffff)
}

/// Whether a plain name looks like a hashed one.
fn ends_in_hash(text: &str) -> bool {
    let end = text.rsplit('-').next().unwrap_or_default();
    text.contains('-') && end.len() == HASH && end.chars().all(|c| c.is_ascii_hexdigit())
}

/// FNV-1a, 64 bits, folded: stable over versions, which names have to be. Not a secret.
fn fnv(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_carry_a_hash() {
        assert_eq!(object("alice", "job-config-0"), "alice-job-config-0");
        assert_eq!(object_of_run("alice-a", 1), "alice-a");
        assert_eq!(object_of_run("alice-a", 2), "alice-a-r2");
        assert_ne!(object("alice", "a-b"), object("alice-a", "b"));
        assert_ne!(object("alice", "Job"), object("alice", "job"));
        assert_ne!(object("alice", "a_b"), object("alice", "a-b"));
        assert!(object("9", "x").starts_with('x'));
        let long = object("alice", &"x".repeat(255));
        assert!(long.len() <= OBJECT_MAX && long.starts_with("alice-xxx"), "{long}");
        // Nobody can choose a job's name so that it clashes with a hashed one.
        assert_ne!(object("alice", "b-0123abcd"), "alice-b-0123abcd");
        assert_eq!((task("train"), task("worker1")), ("train".to_owned(), "worker1".to_owned()));
        assert_ne!(task("ps_server"), task("ps-server"));
        assert_ne!(task("Worker"), task("worker"));
        assert_eq!(task("_"), "x-".to_owned() + &format!("{:08x}", fnv("_") & 0xffff_ffff));
    }

    #[test]
    fn users_of_the_hub_own_jobs() {
        for (hub, owner) in [
            ("alice", "alice"),
            ("system:serviceaccount:team-a:trainer", "trainer"),
            ("bob@example.com", "bob-example.com"),
            ("-", "unknown"),
        ] {
            assert_eq!(user(hub), owner);
            assert!(is_user(&user(hub)));
        }
        assert!(!is_user("a b") && !is_user("a~b") && !is_user(""));
        assert_eq!(of_id("alice~a~b"), Some(("alice", "a~b")));
        assert_eq!(of_id("alice"), None);
    }
}
