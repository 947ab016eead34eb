//! Fragments by hand, and what a placement by them never does.

use proptest::prelude::*;

use super::*;

fn node(devices: &[i64]) -> DeviceNode {
    DeviceNode { cpu: 10_000, memory: 100, devices: devices.to_vec(), model: "m".into() }
}

fn task(count: usize, share: i64) -> DeviceTask {
    DeviceTask { cpu: 1000, memory: 1, count, share, models: Vec::new() }
}

#[test]
fn fragments_are_what_the_usual_tasks_cannot_use() {
    let whole = Demand::of(Measure::Next, [&task(1, 1000)]);
    assert_eq!(whole.fragments(&node(&[1000, 1000])), 0);
    assert_eq!(whole.fragments(&node(&[1000, 400])), 400);
    assert_eq!(whole.fragments(&node(&[600, 400])), 1000, "it cannot start here at all");
    let half = Demand::of(Measure::Next, [&task(1, 500)]);
    assert_eq!(half.fragments(&node(&[600, 400])), 400);
    let none = Demand::of(Measure::Next, [&task(0, 0)]);
    assert_eq!(none.fragments(&node(&[600, 400])), 1000, "a task without devices uses none");
    let mut tight = node(&[1000]);
    tight.cpu = 500;
    assert_eq!(whole.fragments(&tight), 1000, "no processor is left to use it with");
    let both = Demand::of(Measure::Next, [&task(1, 1000), &task(1, 1000), &task(1, 500)]);
    assert_eq!((both.fragments(&node(&[600])), both.weight()), (2 * 600, 3));
}

#[test]
fn a_filled_node_shows_which_resource_ends_first() {
    // Room for ten tasks by devices, for four by processors.
    let mut short = node(&[1000, 1000, 1000, 1000, 1000]);
    short.cpu = 4000;
    let demand = Demand::of(Measure::Filled, [&task(1, 500)]);
    assert_eq!(demand.fragments(&short), 3000);
    assert_eq!(Demand::of(Measure::Next, [&task(1, 500)]).fragments(&short), 0);
}

#[test]
fn a_part_goes_where_parts_are() {
    let demand = Demand::of(Measure::Next, [&task(1, 1000), &task(1, 500)]);
    let nodes = [node(&[1000, 1000]), node(&[1000, 500])];
    let mut growth = |node: &DeviceNode, task: &DeviceTask| demand.growth(node, task);
    assert_eq!(least_fragments(&nodes, &task(1, 500), &mut growth), Some((1, vec![1])));
    assert_eq!(least_fragments(&nodes, &task(2, 1000), &mut growth), Some((0, vec![0, 1])));
    assert_eq!(least_fragments(&nodes, &task(3, 1000), &mut growth), None);
}

/// FGD: points of a hundred, and the first node of those with the most.
#[test]
fn points_decide_and_then_the_order() {
    let whole_first = Demand::of(Measure::Next, [&task(1, 1000), &task(1, 500)]);
    let nodes = [node(&[1000, 1000]), node(&[1000, 500])];
    let mut growth = |node: &DeviceNode, task: &DeviceTask| whole_first.growth(node, task);
    assert_eq!(first_by_fragments(&nodes, &task(1, 500), 2, &mut growth), Some((1, vec![1])));
    assert_eq!(first_by_fragments(&nodes, &task(3, 1000), 2, &mut growth), None);
    // By hand: 100 / (1 + e^g) points for a growth of g devices for each usual task.
    let given = |grown: [i64; 3]| {
        let mut left = grown.into_iter();
        let mut growth = |_: &DeviceNode, _: &DeviceTask| Some((left.next()?, vec![0]));
        let three = [node(&[1000]), node(&[1000]), node(&[1000])];
        first_by_fragments(&three, &task(1, 1000), 10, &mut growth).map(|(position, _)| position)
    };
    // 50.0, 49.9 and 50.2 points: of whole ones 50, 49 and 50, so that the first stands before the least.
    assert_eq!(given([0, 40, -80]), Some(0));
    assert_eq!(given([0, 40, -800]), Some(2), "51 points");
    assert_eq!(given([10_000, 9_990, 9_000]), Some(2), "26, 26 and 28 points");
    // The same shrinking is worth less among more usual tasks.
    let mut growth = {
        let mut left = [0, -800].into_iter();
        move |_: &DeviceNode, _: &DeviceTask| Some((left.next()?, vec![0]))
    };
    let two = [node(&[1000]), node(&[1000])];
    assert_eq!(first_by_fragments(&two, &task(1, 1000), 100, &mut growth).map(|(at, _)| at), Some(0));
}

#[test]
fn models_and_processors_decide_too() {
    let mut picky = task(1, 1000);
    picky.models = vec!["other".into()];
    assert!(!node(&[1000]).fits(&picky));
    picky.models.push("m".into());
    assert!(node(&[1000]).fits(&picky));
    picky.cpu = 10_001;
    assert!(!node(&[1000]).fits(&picky));
}

proptest! {
    #[test]
    fn what_is_chosen_has_room_and_is_the_least(
        free in prop::collection::vec(prop::collection::vec(0i64..=10, 1..4), 1..5),
        measure in prop::sample::select(vec![Measure::Next, Measure::Filled]),
        wants in prop::collection::vec((1usize..3, 1i64..=10), 1..4),
    ) {
        let nodes: Vec<DeviceNode> =
            free.iter().map(|one| node(&one.iter().map(|tenth| tenth * 100).collect::<Vec<_>>())).collect();
        let tasks: Vec<DeviceTask> =
            wants.iter().map(|(count, tenth)| task(*count, if *count > 1 { 1000 } else { tenth * 100 })).collect();
        let demand = Demand::of(measure, &tasks);
        let wanted = &tasks[0];
        let chosen = least_fragments(&nodes, wanted, &mut |node, task| demand.growth(node, task));
        prop_assert_eq!(chosen.is_some(), nodes.iter().any(|node| node.fits(wanted)));
        if let Some((at, devices)) = chosen {
            let grown = |at: usize, devices: &[usize]| {
                let mut after = nodes[at].clone();
                after.take(wanted, devices);
                prop_assert!(after.cpu >= 0 && after.devices.iter().all(|free| *free >= 0));
                Ok(demand.fragments(&after) - demand.fragments(&nodes[at]))
            };
            let least = grown(at, &devices)?;
            for (other, node) in nodes.iter().enumerate().filter(|(_, node)| node.fits(wanted)) {
                if wanted.count == 1 {
                    for device in (0..node.devices.len()).filter(|d| node.devices[*d] >= wanted.share) {
                        prop_assert!(least <= grown(other, &[device])?);
                    }
                }
            }
        }
    }
}
