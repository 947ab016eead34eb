use serde_json::{Value, json};

use super::*;

/// Seconds that the taints are borne for, which one is not, and whether it is tolerated at all.
fn found(tolerations: Value, taints: Value) -> Option<(i64, String, bool)> {
    let placement = serde_json::from_value(json!({"clusterTolerations": tolerations})).expect("a placement");
    let spec = serde_json::from_value(json!({"taints": taints})).expect("a spec");
    let limit = limit(&Cluster::new("east", spec), &placement)?;
    let start: Timestamp = START.parse().expect("a time");
    Some((limit.until.duration_since(start).as_secs(), limit.taint, limit.is_tolerated))
}

const START: &str = "2026-01-01T00:00:00Z";

#[test]
fn the_shortest_toleration_of_the_taint_that_is_borne_the_shortest_counts() {
    let taint = |key: &str| json!({"key": key, "effect": "NoExecute", "timeAdded": START});
    let bears =
        |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
    let power = || json!([taint("power")]);
    assert_eq!(found(json!([]), power()), Some((0, "power".to_string(), false)));
    assert_eq!(found(json!([bears("power", Value::Null)]), power()), None);
    assert_eq!(
        found(
            json!([bears("power", json!(60)), bears("power", json!(20)), bears("power", Value::Null)]),
            power()
        ),
        Some((20, "power".to_string(), true))
    );
    assert_eq!(
        found(
            json!([bears("power", json!(60)), bears("net", json!(30))]),
            json!([taint("power"), taint("net")])
        ),
        Some((30, "net".to_string(), true))
    );
    assert_eq!(found(json!([bears("power", json!(-5))]), power()), Some((0, "power".to_string(), true)));
}

#[test]
fn a_taint_without_a_date_or_of_another_effect_or_with_a_meaning_of_its_own_is_not_asked() {
    let of =
        |key: &str, effect: &str, added: Value| json!([{"key": key, "effect": effect, "timeAdded": added}]);
    assert_eq!(found(json!([]), of("power", "NoExecute", Value::Null)), None);
    assert_eq!(found(json!([]), of("power", "NoSchedule", json!(START))), None);
    assert_eq!(found(json!([]), of(DRAIN_TAINT, "NoExecute", json!(START))), None);
    assert_eq!(found(json!([]), of(GONE_TAINT, "NoExecute", json!(START))), None);
}
