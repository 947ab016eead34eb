//! The reference of all commands, made from the arguments themselves; `docs/cli.md` is held to it by a test.

use clap::CommandFactory;

use crate::args;

/// Every command's help, as one Markdown page.
pub fn reference() -> String {
    let mut page = String::from(
        "# The command line\n\nMade from the program by its tests. `kubectl fleet` and `kubectl amc` are the same \
         program as `fleet`; under the name `vcctl` it has the commands of Volcano's own.\n",
    );
    // A fixed width, so that the page does not depend on a terminal.
    let mut command = args::command("fleet").term_width(100);
    command.build();
    add(&mut page, &mut command);
    let mut vcctl = crate::volcano::args::Vcctl::command().term_width(100);
    vcctl.build();
    add(&mut page, &mut vcctl);
    page
}

fn add(page: &mut String, command: &mut clap::Command) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_string();
    let help = command.clone().term_width(100).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        add(page, sub);
    }
}

#[cfg(test)]
mod tests {
    /// Set to write the page instead of checking it.
    const UPDATE: &str = "UPDATE_REFERENCE";

    #[test]
    fn the_page_says_what_the_program_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        let page = super::reference();
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(file, &page).expect("docs/cli.md is written");
        }
        let standing = std::fs::read_to_string(file).expect("docs/cli.md is there");
        assert!(
            standing == page,
            "docs/cli.md is out of date; write it anew with {UPDATE}=1 cargo test -p fleet reference"
        );
    }
}
