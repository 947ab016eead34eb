//! Names derived from other names, and names that only Fleet sets.

/// Labels and annotations with this prefix are Fleet's own marks: members trust them.
const RESERVED_PREFIX: &str = "fleet.dev/";

/// Marks with the reserved prefix that users set on jobs and pod templates, and that members read.
const SET_BY_USERS: [&str; 8] = [
    "fleet.dev/after-end",
    "fleet.dev/class",
    "fleet.dev/component",
    "fleet.dev/gang",
    "fleet.dev/gang-size",
    "fleet.dev/last-checkpoint-time",
    "fleet.dev/start-timeout",
    "fleet.dev/virtual-cluster",
];

/// Annotations by which the scheduler of a member tells device plugins and kubelets which devices a pod has. They count as used
/// by a bound pod: Volcano's for parts of GPUs (as Fleet's agent writes them, too), HiveD's, and those of HAMi, of Koordinator and
/// of the GPU sharing of Alibaba Cloud.
const GIVEN_DEVICES: [&str; 24] = [
    "volcano.sh/bind-phase",
    "volcano.sh/bind-time",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/gpu-index",
    "volcano.sh/node-vgpu-register",
    "volcano.sh/predicate-time",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/vgpu-node",
    "volcano.sh/vgpu-time",
    "hivedscheduler.microsoft.com/pod-bind-info",
    "hivedscheduler.microsoft.com/pod-leaf-cell-isolation",
    "hami.io/bind-phase",
    "hami.io/bind-time",
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "hami.io/vgpu-node",
    "hami.io/vgpu-time",
    "scheduling.koordinator.sh/device-allocated",
    "scheduling.koordinator.sh/resource-status",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_POD",
];

/// Whether only Fleet or a member's scheduler sets this label or annotation on objects in members.
pub fn is_reserved(name: &str) -> bool {
    (name.starts_with(RESERVED_PREFIX) && !SET_BY_USERS.contains(&name)) || names_devices(name)
}

/// Whether an annotation says which devices a pod was given.
pub fn names_devices(name: &str) -> bool {
    GIVEN_DEVICES.contains(&name)
}

/// Whether a label says in which quota an object counts.
pub fn names_a_quota(name: &str) -> bool {
    name.starts_with("quota.scheduling.alibabacloud.com/")
        || name.starts_with("quota.scheduling.koordinator.sh/")
}

/// Whether a policy may name a label that the preserved state of a run is handed over in.
pub fn may_carry_state(name: &str) -> bool {
    !name.starts_with(RESERVED_PREFIX) && !names_a_quota(name)
}

/// Longest name of a ResourceBinding. QueueUnits, Works and Reservations add at most 31 characters to it, and 253
/// is the limit.
pub const BINDING_NAME_MAX: usize = 220;
/// Characters that a binding's name keeps of a name that is too long.
const KEPT: usize = 120;

/// Groups whose kinds have unique names: their bindings are named by the kind alone. Kinds of other groups carry a
/// mark of their group, so that two kinds with the same name (a Job of `batch` and one of `batch.volcano.sh`) do
/// not share a binding.
const NAMED_BY_KIND: [&str; 8] = [
    "",
    "apps",
    "autoscaling",
    "batch",
    "kubeflow.org",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
];

/// The name of an object's ResourceBinding: name and kind in lower case, with `:` replaced (it is legal in RBAC
/// names, not in binding names). Names of different objects of one namespace never clash: a kind outside the groups
/// of Kubernetes and Kubeflow adds a mark of its group (`vcjob` for Volcano's Job); a name that is too long, or
/// already ends like one with a hash, is cut and gets a hash of the whole.
pub fn binding_name(api_version: &str, kind: &str, name: &str) -> String {
    let suffix = kind_suffix(api_version, kind);
    let readable = name.replace(':', ".").to_lowercase();
    // A name that ends like one with a hash might be that of another object.
    if before_hash(name).is_none() && readable.len() + 1 + suffix.len() <= BINDING_NAME_MAX {
        return format!("{readable}-{suffix}");
    }
    let cut: String = readable.chars().take(KEPT).collect();
    format!("{}-x{:016x}-{suffix}", cut.trim_end_matches(['-', '.']), fnv(name))
}

/// The name that earlier versions used: `lower(name-kind)`, whatever the group. An existing binding with that name
/// is kept.
pub fn earlier_binding_name(kind: &str, name: &str) -> String {
    format!("{}-{kind}", name.replace(':', ".")).to_lowercase()
}

/// What a binding's name says about the object's name: all of it, or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    Exactly(String),
    StartsWith(String),
}

/// The name of the object of this kind whose binding may have that name.
pub fn object_of_binding(api_version: &str, kind: &str, binding: &str) -> Option<Named> {
    let of_suffix = |suffix: &str| binding.strip_suffix(suffix)?.strip_suffix('-');
    let name = of_suffix(&kind_suffix(api_version, kind)).or_else(|| of_suffix(&kind.to_lowercase()))?;
    match before_hash(name) {
        Some(kept) => Some(Named::StartsWith(kept.to_owned())),
        None => Some(Named::Exactly(name.to_owned())),
    }
}

/// What stands before a hash, if the name ends like one with a hash.
fn before_hash(name: &str) -> Option<&str> {
    let at = name.len().checked_sub(18).filter(|at| name.is_char_boundary(*at))?;
    let hash = name[at..].strip_prefix("-x")?;
    hash.chars().all(|c| c.is_ascii_hexdigit()).then(|| &name[..at])
}

fn kind_suffix(api_version: &str, kind: &str) -> String {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = kind.to_lowercase();
    match (group, kind.as_str()) {
        ("batch.volcano.sh", "job") => "vcjob".to_owned(),
        _ if NAMED_BY_KIND.contains(&group) => kind,
        _ => format!("{kind}.{:06x}", fnv(group) & 0x00ff_ffff),
    }
}

/// FNV-1a, 64 bits: stable over versions, which names have to be. Not a secret.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_names() {
        let check =
            |api_version, kind, name, expected| assert_eq!(binding_name(api_version, kind, name), expected);
        check("rbac.authorization.k8s.io/v1", "Role", "system:controller:tom", "system.controller.tom-role");
        check("kubeflow.org/v1", "PyTorchJob", "pytorch-test", "pytorch-test-pytorchjob");
        check("batch/v1", "Job", "x", "x-job");
        check("batch.volcano.sh/v1alpha1", "Job", "x", "x-vcjob");
        assert_ne!(binding_name("one.example/v1", "Job", "x"), binding_name("two.example/v1", "Job", "x"));
    }

    #[test]
    fn any_legal_name_leaves_room_for_what_is_named_after_it() {
        let names: Vec<String> =
            [1, 119, 120, 121, 219, 220, 240, 253].iter().map(|n| "a".repeat(*n)).collect();
        let mut seen = std::collections::BTreeSet::new();
        for name in &names {
            let binding = binding_name("v1", "ConfigMap", name);
            assert!(binding.len() <= BINDING_NAME_MAX, "{binding}");
            match object_of_binding("v1", "ConfigMap", &binding) {
                Some(Named::Exactly(found)) => assert_eq!(&found, name),
                Some(Named::StartsWith(start)) => assert!(name.starts_with(&start) && name.len() > 200),
                None => panic!("{binding}"),
            }
            assert!(seen.insert(binding));
        }
        let long = |end: &str| binding_name("v1", "ConfigMap", &format!("{}{end}", "a".repeat(240)));
        assert_ne!(long("b"), long("c"));
        let cut = long("b").strip_suffix("-configmap").expect("the kind").to_owned();
        assert_ne!(binding_name("v1", "ConfigMap", &cut), long("b"), "a name that another's binding has");
    }
}
