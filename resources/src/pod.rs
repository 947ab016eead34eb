//! What a pod asks for in all, from what its containers ask for.
//!
//! Used for requests and for limits. Source: the pod resource helpers of Kubernetes 1.36 (`PodRequests`,
//! `PodLimits`). Deliberately absent: how a pod is written, and what its status says of a resize.

use crate::Resources;

/// The containers of one pod, added in the order of its spec.
#[derive(Clone, Debug, Default)]
pub struct PodSum {
    running: Resources,
    sidecars: Resources,
    starting: Resources,
}

/// True for the resources that a pod can ask for as a whole; its own amount replaces the sum of its containers.
pub fn is_of_whole_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

impl PodSum {
    /// Adds a container, which runs beside all others.
    pub fn container(&mut self, amounts: &Resources) {
        self.running.add(amounts);
    }

    /// Adds an init container that goes on (`restartPolicy: Always`): it runs beside the containers, and beside the
    /// init containers after it.
    pub fn sidecar(&mut self, amounts: &Resources) {
        self.sidecars.add(amounts);
        self.starting.raise_to(&self.sidecars);
    }

    /// Adds an init container that ends before the next begins.
    pub fn init(&mut self, amounts: &Resources) {
        self.starting.raise_to(&self.sidecars.plus(amounts));
    }

    /// The most that runs at a time.
    pub fn of_containers(&self) -> Resources {
        let mut sum = self.running.plus(&self.sidecars);
        sum.raise_to(&self.starting);
        sum
    }

    /// The same, but for what the pod asks for as a whole.
    pub fn without_overhead(&self, of_pod: &Resources) -> Resources {
        let mut sum = self.of_containers();
        for (name, amount) in of_pod.iter().filter(|(name, _)| is_of_whole_pod(name.as_str())) {
            sum.set(name.clone(), amount);
        }
        sum
    }

    /// What the pod requests: `of_pod` as a whole, and its runtime's overhead.
    pub fn requests(&self, of_pod: &Resources, overhead: &Resources) -> Resources {
        self.without_overhead(of_pod).plus(overhead)
    }

    /// What the pod may use; overhead does not limit what has no limit.
    pub fn limits(&self, of_pod: &Resources, overhead: &Resources) -> Resources {
        let mut sum = self.without_overhead(of_pod);
        for (name, amount) in overhead.iter() {
            let limit = sum.get(name.as_str());
            if limit != 0 {
                sum.set(name.clone(), limit.saturating_add(amount));
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(text: &str) -> Resources {
        let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        Resources::parse(pairs).unwrap()
    }

    /// A pod in one line: containers, init containers and sidecars in order, the whole pod, overhead.
    fn check(pod: &str, requests: &str, limits: &str) {
        let (mut sum, mut of_pod, mut overhead) = (PodSum::default(), Resources::new(), Resources::new());
        for part in pod.split(';') {
            let (kind, amounts) = part.trim().split_once(' ').unwrap_or((part.trim(), ""));
            match (kind, vector(amounts)) {
                ("container", amounts) => sum.container(&amounts),
                ("sidecar", amounts) => sum.sidecar(&amounts),
                ("init", amounts) => sum.init(&amounts),
                ("pod", amounts) => of_pod = amounts,
                ("overhead", amounts) => overhead = amounts,
                (kind, _) => panic!("{kind}"),
            }
        }
        assert_eq!(sum.requests(&of_pod, &overhead), vector(requests), "requests of {pod}");
        assert_eq!(sum.limits(&of_pod, &overhead), vector(limits), "limits of {pod}");
    }

    #[test]
    fn pods_are_counted_as_kubernetes_documents_it() {
        for (pod, sum) in [
            ("container cpu=1; container cpu=500m", "cpu=1500m"),
            // Of init containers the largest counts, by resource, where it is more than all that run later.
            ("container cpu=1 memory=4Gi; init cpu=3; init cpu=2 memory=1Gi", "cpu=3 memory=4Gi"),
            ("container cpu=3; container cpu=1; init cpu=3", "cpu=4"),
            // A sidecar runs beside the containers.
            ("container cpu=2; sidecar cpu=2", "cpu=4"),
            ("container cpu=1; sidecar cpu=1; sidecar nvidia.com/gpu=4", "cpu=2 nvidia.com/gpu=4"),
            // It runs beside those after it, and not beside those before it.
            ("container cpu=1; sidecar cpu=1; init cpu=3", "cpu=4"),
            ("container cpu=1; init cpu=3; sidecar cpu=1", "cpu=3"),
            ("container cpu=1; sidecar cpu=1; init cpu=3; sidecar cpu=4", "cpu=6"),
            // Cpu, memory and huge pages of the whole pod replace the sum, also the init containers'.
            ("container cpu=500m; pod cpu=50", "cpu=50"),
            ("container cpu=1 nvidia.com/gpu=2; init cpu=9; pod cpu=10", "cpu=10 nvidia.com/gpu=2"),
            ("container; pod memory=1Gi hugepages-2Mi=4Mi", "memory=1Gi hugepages-2Mi=4Mi"),
            ("container nvidia.com/gpu=2; pod nvidia.com/gpu=1", "nvidia.com/gpu=2"),
            ("container", ""),
        ] {
            check(pod, sum, sum);
        }
    }

    #[test]
    fn overhead_is_requested_in_any_case_and_limits_what_is_limited() {
        check("container cpu=1; overhead cpu=250m memory=1Gi", "cpu=1250m memory=1Gi", "cpu=1250m");
        check("container cpu=1; init cpu=2; overhead cpu=1", "cpu=3", "cpu=3");
        check("container cpu=1; pod cpu=2; overhead cpu=1", "cpu=3", "cpu=3");
    }
}
