use clap::Parser;

use super::{Cli, volcano::Vcctl};

/// Options of every list.
const OF_LISTS: &[&str] =
    &["-w", "--no-headers", "--sort-by", ".metadata.name", "-o", "custom-columns=NAME:.metadata.name"];

#[test]
fn every_list_can_be_sorted_watched_and_printed_as_data() {
    for list in [
        "get pod -A",
        "queue",
        "queue list",
        "clusters",
        "status east",
        "vc get",
        "vc cells",
        "pai list -A",
        "pai events job",
        "job list -A",
        "podgroup list -A",
        "jobflow list -A",
        "jobtemplate list -A",
    ] {
        let words = ["fleet"].into_iter().chain(list.split(' ')).chain(OF_LISTS.iter().copied());
        assert!(Cli::try_parse_from(words).is_ok(), "fleet {list}");
    }
    let words = ["vcctl", "pod", "list", "-A"].into_iter().chain(OF_LISTS.iter().copied());
    assert!(Vcctl::try_parse_from(words).is_ok());
}

#[test]
fn every_answer_about_one_thing_can_be_data() {
    for one in ["explain job", "doctor", "audit", "vc explain job", "vc apply -f file", "pai get job"] {
        for format in ["json", "yaml", "jsonpath={.state}"] {
            let words = ["fleet"].into_iter().chain(one.split(' ')).chain(["-o", format]);
            assert!(Cli::try_parse_from(words).is_ok(), "fleet {one}");
        }
        let words = ["fleet"].into_iter().chain(one.split(' ')).chain(["-o", "xml"]);
        assert!(Cli::try_parse_from(words).is_err(), "fleet {one}");
    }
}
