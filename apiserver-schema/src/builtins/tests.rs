#[test]
fn every_kind_has_a_schema() {
    for r in super::all() {
        assert!(r.schema.field("metadata").is_some() || r.create_only, "{}", r.kind);
    }
    assert_eq!(super::find("", "pods").kind, "Pod");
    assert_eq!(super::all()[super::PODS].kind, "Pod");
}
