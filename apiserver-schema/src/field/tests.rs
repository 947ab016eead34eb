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
