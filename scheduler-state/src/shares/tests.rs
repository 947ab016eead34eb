use super::*;

fn queue(weight: i64, request: &[i64], capability: Option<i64>, guarantee: i64) -> ProportionQueue {
    let n = request.len();
    ProportionQueue {
        weight,
        capability: vec![capability; n],
        guarantee: vec![guarantee; n],
        request: request.to_vec(),
    }
}

#[test]
fn proportion_fills_by_weight_up_to_what_is_asked_for() {
    let check = |total: &[i64], queues: &[ProportionQueue], wanted: &[&[i64]]| {
        assert_eq!(proportion(total, queues), wanted, "total {total:?}");
    };
    let q = |weight, request: i64| queue(weight, &[request], None, 0);
    check(&[10_000], &[q(1, 2_000), q(9, 3_000)], &[&[2_000], &[3_000]]);
    check(&[4_000], &[q(1, 2_000), q(1, 2_000), q(1, 1_000)], &[&[1_500], &[1_500], &[1_000]]);
    check(&[3_000], &[q(1, 3_000), q(1, 1_000)], &[&[2_000], &[1_000]]);
    check(&[12], &[q(1, 100), q(2, 100), q(3, 100)], &[&[2], &[4], &[6]]);
    let capped = queue(2, &[100_000], Some(2_000), 0);
    check(&[12_000], &[q(1, 100_000), capped, q(3, 100_000)], &[&[2_500], &[2_000], &[7_500]]);
    check(&[12], &[queue(1, &[100], None, 6), q(1, 100)], &[&[6], &[6]]);
    check(&[12], &[queue(1, &[0], None, 6), q(1, 100)], &[&[6], &[6]]);
    check(&[9], &[q(1, 1), q(1, 3), q(1, 20)], &[&[1], &[3], &[5]]);
    let two = [queue(1, &[8, 2], None, 0), queue(1, &[2, 18], None, 0)];
    check(&[10, 20], &two, &[&[8, 2], &[2, 18]]);
}

#[test]
fn capacity_passes_limits_down_and_keeps_guarantees() {
    let queue = |parent, capability: Option<i64>, deserved: Option<i64>, guarantee: i64| CapacityQueue {
        parent,
        capability: vec![capability],
        deserved: vec![deserved],
        guarantee: vec![guarantee],
    };
    // a(cap 10) > b(guarantee 3), c; d beside a.
    let queues = [
        queue(None, Some(10), Some(20), 0),
        queue(Some(0), None, Some(1), 3),
        queue(Some(0), None, Some(9), 0),
        queue(None, None, None, 0),
    ];
    let shares = capacity_shares(&[16], &queues).expect("a tree");
    let found: Vec<(i64, Option<i64>)> =
        shares.iter().map(|share| (share.real_capability[0], share.deserved[0])).collect();
    assert_eq!(found, [(10, Some(10)), (10, Some(3)), (7, Some(7)), (16, None)]);
    let cycle = [queue(Some(1), None, None, 0), queue(Some(0), None, None, 0)];
    assert_eq!(capacity_shares(&[16], &cycle), Err(TreeProblem::Cycle(vec![0, 1])));
}

#[test]
fn shares() {
    let share = |held: &[i64], deserved: &[Option<i64>]| deserved_share(held, deserved);
    assert_eq!(share(&[5, 5], &[None, None]), WHOLE);
    assert_eq!(share(&[0, 0], &[Some(2), Some(2)]), 0);
    assert_eq!(share(&[1, 1], &[Some(2), Some(2)]), WHOLE / 2);
    assert_eq!(share(&[3, 2], &[Some(2), Some(2)]), WHOLE * 3 / 2);
    assert_eq!(share(&[1, 3], &[Some(2), Some(4)]), WHOLE * 3 / 4);
    assert_eq!(share(&[1, 0], &[Some(0), Some(0)]), WHOLE);
    assert_eq!(dominant_share(&[3, 1], &[10, 10]), WHOLE * 3 / 10);
    assert_eq!(dominant_share(&[0, 0], &[10, 10]), 0);
}
