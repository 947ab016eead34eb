//! Numatopologies: the cpus of nodes, for the scheduler's plugin numa-aware.

use fleet_agent_ground::{Event, Object};
use fleet_member_state::{MemberState, numa};

/// Applies an event to the scheduler.
pub(crate) fn take(told: Event<Object>, state: &mut MemberState) {
    match told {
        Event::Apply(object) => {
            let numa = numa::read(&object.spec).inspect_err(|problem| {
                tracing::warn!(node = object.name(), problem, "invalid Numatopology");
            });
            state.cluster.set_numa(object.name(), numa.ok());
        }
        Event::Gone((_, name)) => state.cluster.set_numa(&name, None),
        Event::Listed => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use fleet_agent_fixture::Fixture;

    /// Two cells of eight cpus, of which those of `free` are given to nobody.
    fn topology(node: &str, free: &str) -> Value {
        let detail: serde_json::Map<String, Value> =
            (0..16).map(|cpu| (cpu.to_string(), json!({"numa": cpu / 8, "core": cpu}))).collect();
        json!({"apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology", "metadata": {"name": node},
        "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
            "numares": {"cpu": {"allocatable": free, "capacity": 16}},
            "cpuDetail": detail,
        }})
    }

    #[tokio::test]
    async fn a_pod_goes_where_its_cpus_share_a_numa_node() {
        let fixture = Fixture::new(&[]).await;
        for (node, free) in [("n1", "4-11"), ("n2", "0-3,14-15")] {
            fixture.create_node(node).await;
            let topology = topology(node, free);
            fixture
                .create(&fixture.member, "nodeinfo.volcano.sh", "v1alpha1", "numatopologies", topology)
                .await;
        }
        crate::fixture::run(
            &fixture,
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: numa-aware\n",
        );
        let single = json!({"volcano.sh/numa-topology-policy": "single-numa-node"});
        fixture.create_pod("p", "6", single).await;
        let told = "0/2 nodes are unavailable: 2 node(s) had not enough free cpus close together.";
        fixture.wait_told("p", told).await;
        let topologies =
            fleet_agent_ground::resource("nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies");
        let topologies: kube::Api<kube::api::DynamicObject> =
            kube::Api::all_with(fixture.member.clone(), &topologies);
        let freed = json!({"spec": {"numares": {"cpu": {"allocatable": "0-3,8-15"}}}});
        let (params, patch) = (Default::default(), kube::api::Patch::Merge(freed));
        topologies.patch("n2", &params, &patch).await.unwrap();
        fixture.wait_bound("p", "n2").await;
    }
}
