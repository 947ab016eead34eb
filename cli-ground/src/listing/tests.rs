use serde_json::json;

use super::*;
use crate::output::Headers;

fn list(items: &[(&str, i64, &str)]) -> List {
    let mut list = List { aging: &["AGE"], ..List::of_objects(&["NAME", "JOBS", "AGE"], "queue/") };
    list.nothing = "No queues.".to_string();
    for (name, jobs, age) in items {
        let item = json!({"metadata": {"name": name, "managedFields": []}, "jobs": jobs});
        list.row(&item, vec![(*name).to_string(), jobs.to_string(), (*age).to_string()]).expect("an item");
    }
    list
}

fn how(output: Option<&str>, sort_by: Option<&str>) -> Listing {
    let output = output.map(|output| output.parse().expect("a format"));
    Listing { output, sort_by: sort_by.map(str::to_string), ..Listing::default() }
}

/// What is printed of two items.
fn shown(output: Option<&str>, sort_by: Option<&str>) -> String {
    let answer = list(&[("b", 10, "1s"), ("a", 9, "2s")]).answer(&how(output, sort_by), Headers::Printed);
    answer.expect("an answer").text
}

#[test]
fn every_format_has_the_same_items() {
    insta::assert_snapshot!(shown(None, None), @r"
    NAME   JOBS   AGE
    b      10     1s
    a      9      2s
    ");
    assert_eq!(shown(None, Some(".jobs")), "NAME   JOBS   AGE\na      9      2s\nb      10     1s\n");
    assert_eq!(shown(Some("name"), Some("{.metadata.name}")), "queue/a\nqueue/b\n");
    assert_eq!(shown(Some("jsonpath={.items[*].jobs}"), None), "10 9");
    assert_eq!(shown(Some("custom-columns=N:.jobs"), None), "N\n10\n9\n");
    insta::assert_snapshot!(shown(Some("yaml"), Some(".jobs")), @r#"
    apiVersion: v1
    items:
    - jobs: 9
      metadata:
        name: a
    - jobs: 10
      metadata:
        name: b
    kind: List
    metadata:
      resourceVersion: ""
    "#);
    let mut items = List::of_items(&["NAME"], ("", ".name"));
    items.row(&json!({"name": "a"}), vec!["a".to_string()]).expect("an item");
    let data = items.answer(&how(Some("jsonpath={.items[0]}"), None), Headers::Printed).expect("an answer");
    assert_eq!(data.text, r#"{"name":"a"}"#, "only what the item has");
    assert!(shown(Some("json"), None).contains("\"kind\": \"List\""));
    assert!(list(&[("a", 1, "1s")]).answer(&how(None, Some(".jobs[")), Headers::Printed).is_err());
}

#[test]
fn an_empty_list_has_a_note_for_people_and_items_for_programs() {
    let people = list(&[]).answer(&how(None, None), Headers::Printed).expect("an answer");
    assert_eq!((people.text.as_str(), people.notes.as_slice()), ("", &["No queues.".to_string()][..]));
    let data = list(&[]).answer(&how(Some("jsonpath={.items}"), None), Headers::Printed).expect("an answer");
    assert_eq!((data.text.as_str(), data.notes.len()), ("[]", 0));
}

#[test]
fn headers_are_left_out_on_request() {
    let bare = |output: Option<&str>| {
        let how = Listing { no_headers: true, ..how(output, None) };
        list(&[("b", 10, "1s")]).answer(&how, Headers::of(&how)).expect("an answer").text
    };
    assert_eq!(bare(None), "b      10     1s\n");
    assert_eq!(bare(Some("custom-columns=N:.jobs")), "10\n");
}

#[test]
fn a_watch_prints_what_has_changed() {
    let mut seen = BTreeSet::new();
    let mut look = |items: &[(&str, i64, &str)]| {
        let mut list = list(items);
        list.keep_changed(&mut seen);
        list.answer(&how(None, None), Headers::Left).expect("an answer").text
    };
    assert_eq!(look(&[("a", 1, "1s"), ("b", 1, "1s")]), "a      1      1s\nb      1      1s\n");
    assert_eq!(look(&[("a", 1, "2s"), ("b", 1, "2s")]), "", "only their age changed");
    assert_eq!(
        look(&[("a", 2, "3s"), ("b", 1, "3s"), ("c", 1, "0s")]),
        "a      2      3s\nc      1      0s\n"
    );
    assert_eq!(look(&[("a", 1, "4s")]), "a      1      4s\n");
    assert_eq!(look(&[("a", 1, "5s"), ("b", 1, "5s")]), "b      1      5s\n");
}

#[test]
fn volcanos_columns_give_way_to_a_table_that_fits() {
    let mut list = list(&[("a", 1, "1s")]);
    list.layout = Layout::Volcano(vec![("Name", 20), ("Jobs", 20), ("Age", 0)]);
    let within = |width: usize, headers: Headers| list.print_within(Some(width), headers);
    assert_eq!(
        within(80, Headers::Printed),
        "Name                Jobs                Age\na                   1                   1s\n"
    );
    assert_eq!(within(80, Headers::Left), "a                   1                   1s\n");
    assert_eq!(within(30, Headers::Printed), "NAME   JOBS   AGE\na      1      1s\n");
}

#[test]
fn blocks_have_a_line_for_each_cell() {
    let mut list = List { layout: Layout::Blocks, ..List::of_items(&["name", "ready", "->"], ("", ".name")) };
    for (name, todo) in [("east", "do this\ndo that"), ("west", "")] {
        let cells = [name, "True", todo].map(str::to_string);
        list.row(&json!({"name": name}), cells.to_vec()).expect("an item");
    }
    insta::assert_snapshot!(list.print_within(Some(80), Headers::Printed), @r"
    east
      ready       True
      ->          do this
      ->          do that

    west
      ready       True
    ");
}
