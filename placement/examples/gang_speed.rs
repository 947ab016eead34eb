//! Prints how long one gang of 1,024 pods takes on 10,000 nodes, placed and
//! refused. Fixed inputs; run with `--release`.

use std::collections::BTreeMap;
use std::time::Instant;

use fleet_placement::{Gang, GangComponent, Node, NodeIndex, PodShape, place_gang};
use fleet_resources::Resources;

fn amounts(cpu: i64, gpu: i64) -> Resources {
    Resources::from_pairs([("cpu", cpu * 1000), ("memory", cpu << 32), ("nvidia.com/gpu", gpu)])
}

fn main() {
    let nodes = NodeIndex::new((0..10_000_i64).map(|i| {
        let name = format!("n{i:05}");
        Node {
            labels: BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.clone())]),
            name,
            ready: true,
            allocatable: amounts(64, 8),
            used: amounts(i % 40, i % 9),
            max_pods: 110,
            pods: i % 50,
            ..Node::default()
        }
    }));
    for (what, workers, gpus) in
        [("placed", 1024, 4), ("tight", 1111, 8), ("refused", 1200, 8), ("small", 2, 1)]
    {
        let component = |name: &str, replicas, requests| {
            GangComponent::whole(name, replicas, PodShape { requests, ..PodShape::default() })
        };
        let gang = Gang {
            components: vec![
                component("master", 1, amounts(4, 0)),
                component("worker", workers, amounts(6, gpus)),
            ],
        };
        let start = Instant::now();
        let found = place_gang(&nodes, &gang);
        let answer = found.map_or_else(|refusal| refusal.sentence(), |_| "fits".to_owned());
        println!("{what}: {:.1} ms ({answer})", start.elapsed().as_secs_f64() * 1000.0);
    }
}
