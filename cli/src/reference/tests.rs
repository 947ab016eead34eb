use super::*;

/// Set to write the page instead of checking it.
const UPDATE: &str = "UPDATE_DOCS";

#[test]
fn the_page_says_what_the_program_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
    let page = reference();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(file, &page).expect("docs/cli.md is written");
    }
    let standing = std::fs::read_to_string(file).expect("docs/cli.md is there");
    assert!(
        standing == page,
        "docs/cli.md is out of date; write it anew with {UPDATE}=1 cargo test -p fleet reference"
    );
}

#[test]
fn options_of_all_commands_stand_once() {
    let page = reference();
    // Once each for fleet and vcctl.
    assert_eq!(page.matches("Global options:").count(), 2);
    assert_eq!(page.matches("-h, --help").count(), 2, "fleet and vcctl");
    for kept in ["--member-kubeconfig <FILE>", "--data-dir <DIR>", "Possible values:", "## fleet version"] {
        assert!(page.contains(kept), "{kept}");
    }
}

#[test]
fn what_stands_after_the_help_entry_is_kept() {
    let help = [
        "Do it",
        "",
        "Usage: x",
        "",
        "Options:",
        "      --a",
        "          One",
        "",
        "  -h, --help",
        "          Print help",
        "",
        "      --b",
        "          Two",
        "",
        "Global options:",
        "      --c",
    ];
    assert_eq!(
        without_repeated(&help),
        "Do it\n\nUsage: x\n\nOptions:\n      --a\n          One\n\n      --b\n          Two"
    );
}
