use super::Table;

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let mut table = Table::new(&["Name", "Cluster", "State", "Age", "Adoption"]);
    table.row(["pytorch-test", "east", "Running", "6m23s", "Y"]);
    table.row(["b", "member-4", "", "1s", "N"]);
    insta::assert_snapshot!(table.print(), @r"
    NAME           CLUSTER    STATE     AGE     ADOPTION
    pytorch-test   east       Running   6m23s   Y
    b              member-4             1s      N
    ");
}

#[test]
fn a_table_fits_its_terminal() {
    let mut table = Table::new(&["Cluster", "Fits", "Why"]);
    table.row(["east", "no", "0 of 2 worker fit: 3 of 4 nodes lack 2 nvidia.com/gpu"]);
    insta::assert_snapshot!(table.print_within(Some(40)), @r"
    CLUSTER   FITS   WHY
    east      no     0 of 2 worker fit: 3 of
                     4 nodes lack 2
                     nvidia.com/gpu
    ");
    let mut wide = Table::new(&["Name", "State", "Endpoint", "Provider"]);
    wide.row(["pytorch-test", "Running", "https://10.0.0.1:6443", "somewhere"]);
    insta::assert_snapshot!(wide.print_within(Some(30)), @r"
    NAME           STATE
    pytorch-test   Running
    ");
    assert_eq!(wide.rows_within(Some(30)), "pytorch-test   Running\n");
    let headers = ["Run", "Cluster", "Reason", "Message"];
    let mut runs = Table { spare: &["Reason", "Cluster"], ..Table::new(&headers) };
    runs.row(["1", "east", "Preempted", "by team/a in east"]);
    insta::assert_snapshot!(runs.print_within(Some(24)), @r"
    RUN   CLUSTER   MESSAGE
    1     east      by
                    team/a
                    in east
    ");
    assert_eq!(wide.print_within(None).lines().map(|line| line.len()).max(), Some(58));
}
