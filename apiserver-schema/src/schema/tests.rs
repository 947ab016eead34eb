use super::*;

#[test]
fn artefact_knows_pods() {
    let pod = Schema::builtin("api.core.v1.Pod");
    let containers = pod.field("spec").and_then(|s| s.field("containers")).map(|s| s.get()).unwrap();
    assert_eq!(containers.merge_key.as_deref(), Some("name"));
    assert_eq!(containers.list, ListKind::Map(Box::new(["name".into()])));
    let cpu = containers.items.as_ref().unwrap().field("resources").unwrap().field("limits").unwrap();
    assert_eq!(cpu.get().additional.as_ref().unwrap().get().ty, Type::Quantity);
}
