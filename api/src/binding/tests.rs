use fleet_cells::GroupRequest;

use super::*;
use crate::cells::CellGroup;

#[test]
fn a_job_that_names_no_virtual_cluster_is_in_the_one_of_its_cells() {
    let mut spec = ResourceBindingSpec::default();
    assert_eq!(spec.virtual_cluster(), "");
    spec.virtual_cluster = Some("named".to_owned());
    assert_eq!(spec.virtual_cluster(), "named");
    let request = serde_json::to_value(GroupRequest::new("default/train", "vc", 10, 1, 1)).unwrap();
    let groups = vec![CellGroup { request, ..CellGroup::default() }];
    spec.cells = Some(CellBinding { groups });
    assert_eq!(spec.virtual_cluster(), "vc", "its cells are what it has");
    spec.virtual_cluster = None;
    assert_eq!(spec.virtual_cluster(), "vc");
}
