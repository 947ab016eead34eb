use super::*;
use serde_json::json;

#[test]
fn causes_name_the_path() {
    let causes = Causes::default();
    let value = json!({"spec": {"ports": [{"port": 0}, {"port": 80, "name": "A"}], "map": {"k": -1}}});
    let root = At::root(&value, &causes);
    let ports = root.at("spec.ports");
    for port in ports.items() {
        port.at("port").port();
        port.at("name").port_name();
    }
    let map = root.at("spec.map");
    map.entries().for_each(|(_, v)| v.non_negative());
    root.at("spec.none").need();
    let found: Vec<String> = causes.into_inner().into_iter().map(|c| c.field).collect();
    let name = "spec.ports[1].name";
    assert_eq!(found, ["spec.ports[0].port", name, name, "spec.map[k]", "spec.none"]);
}

#[test]
fn causes_are_bounded_however_much_is_wrong() {
    let causes = Causes::default();
    let key = "ü".repeat(100_000);
    let value = json!({"map": {key: vec![-1; 100_000]}, "names": vec!["x".repeat(10_000); 3]});
    let root = At::root(&value, &causes);
    let names = root.at("names");
    names.items().for_each(|name| name.duplicate());
    let map = root.at("map");
    map.entries().for_each(|(_, list)| list.items().for_each(|item| item.non_negative()));
    root.at("map").required("it is full");
    let found = causes.into_inner();
    assert_eq!(found.len(), MOST_CAUSES);
    let longest = found.iter().map(|cause| cause.field.len() + cause.message.len()).max();
    assert!(longest < Some(MOST_SHOWN + 100), "{longest:?}");
    assert_eq!(found[3].field.chars().filter(|c| *c == 'ü').count(), MOST_SHOWN / 2, "whole letters");
}
