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

/// Cells are texts of objects, which tenants and members write.
#[test]
fn no_cell_commands_the_terminal() {
    let mut table = Table::new(&["Name", "Message"]);
    table.row(["a", "\u{1b}[2J\u{1b}]52;c;eA==\u{7} \u{9b}1A\rb\u{202e}txt\u{7f}"]);
    let expected =
        "NAME   MESSAGE\na      \\u{1b}[2J\\u{1b}]52;c;eA==\\u{7} \\u{9b}1A b\\u{202e}txt\\u{7f}\n";
    assert_eq!(table.print(), expected);
    let row = expected.lines().nth(1).expect("a row");
    assert_eq!(table.rows_below(None), format!("{row}\n"));
    assert_eq!(table.rows_within(None).trim_end(), row.replace("a      ", "a   "));
}
