//! Another configuration of the cells, and what it would change.

use fleet_api::cells::VcAccess;
use fleet_openpai::cells::plan::{ConfigurationPlan, JobChange};
use maud::{Markup, PreEscaped, html};

use super::parts::form_key;
use crate::shown::{ConfigurationView, Visitor};

pub fn configuration(view: &ConfigurationView, visitor: &Visitor) -> Markup {
    let is_wrong = !view.troubles.is_empty();
    html! {
        nav.crumbs aria-label="Above" { a href="/virtual-clusters" { "Virtual clusters" } }
        h1 { "Configuration of cells" }
        @if !view.absent.is_empty() { p.banner { (view.absent) } }
        @else {
            @if is_wrong {
                div.error role="alert" #troubles {
                    h2 { "This was not applied" }
                    ul { @for trouble in &view.troubles { li { a href="#yaml" { (trouble) } } } }
                }
            }
            @if let Some(plan) = &view.plan { (difference(plan)) }
            form method="post" action="/virtual-clusters/configuration" {
                (form_key(Some(visitor)))
                input type="hidden" name="seen" value=(view.seen);
                label for="yaml" { "A CellConfiguration, HiveD's configuration, or OpenPAI's with one in it" }
                textarea #yaml name="yaml" rows=(rows(&view.text)) spellcheck="false" required aria-invalid=[is_wrong.then_some("true")]
                    aria-describedby=[is_wrong.then_some("troubles")] { (PreEscaped("\n")) (view.text) }
                div.actions {
                    button.primary name="do" value="preview" { "Show what it would change" }
                    @if view.may_apply { button.danger name="do" value="apply" { "Apply this difference" } }
                }
                @if view.plan.as_ref().is_some_and(|plan| plan.is_change) && !view.may_apply {
                    p.quiet { "The hub does not let you change it." }
                }
            }
        }
    }
}

/// Lines of the editor: all of a short text, so that it does not end within a line.
fn rows(text: &str) -> usize {
    (text.lines().count() + 1).clamp(16, 48)
}

fn difference(plan: &ConfigurationPlan) -> Markup {
    let named = [
        ("Virtual clusters that come", &plan.virtual_clusters_added),
        ("Virtual clusters that go", &plan.virtual_clusters_removed),
        ("Nodes that come", &plan.nodes_added),
        ("Nodes that go", &plan.nodes_removed),
        ("Bad until a member has their nodes", &plan.unnamed),
        ("Bad, because their member has no such node", &plan.absent),
    ];
    html! {
        section.checked #difference role="status" {
            h2 { "What it would change" }
            @if !plan.is_change { p { "Nothing: this is the configuration in force." } }
            @for (what, names) in named.into_iter().filter(|(_, names)| !names.is_empty()) {
                p { b { (what) } ": " (names.join(", ")) }
            }
            @if !plan.promises.is_empty() {
                div.scroll { table {
                    thead { tr { th scope="col" { "Virtual cluster" } th scope="col" { "Chain" } th scope="col" { "Cells of type" }
                        th scope="col" { "Promised now" } th scope="col" { "Then" } } }
                    tbody { @for change in &plan.promises { tr {
                        th scope="row" { (change.vc) } td { (change.chain) } td {
                            (change.cell_type)
                            @if !change.pinned_cell_id.is_empty() { " (pinned " (change.pinned_cell_id) ")" }
                        }
                        td.number { (change.before) } td.number { (change.after) }
                    } } }
                } }
            }
            @if !plan.jobs.is_empty() { (jobs(&plan.jobs)) }
            @else if plan.is_change { p { "No job that runs loses its promise." } }
            @for change in &plan.access {
                p { b { "Who may use " (change.vc) } ": " (who_may(change.before.as_ref())) " now, then " (who_may(change.after.as_ref())) }
            }
        }
    }
}

fn jobs(changes: &[JobChange]) -> Markup {
    html! {
        p { "These jobs run on, and others may take their cells:" }
        div.scroll { table {
            thead { tr { th scope="col" { "Job" } th scope="col" { "Virtual cluster" } th scope="col" { "Class" }
                th scope="col" { "Becomes" } th scope="col" { "Why" } } }
            tbody { @for change in changes { tr {
                th scope="row" { (change.job) } td { (change.virtual_cluster) } td { (change.class) }
                td { (change.becomes) } td { (change.why) }
            } } }
        } }
    }
}

fn who_may(access: Option<&VcAccess>) -> String {
    let Some(access) = access.filter(|access| **access != VcAccess::default()) else {
        return "everybody".to_owned();
    };
    let lists = [
        ("namespaces", &access.submitter_namespaces),
        ("submitters", &access.submitters),
        ("above oppo only namespaces", &access.guaranteed_namespaces),
    ];
    let said = lists.into_iter().filter_map(|(what, list)| {
        let list = list.as_ref()?;
        Some(if list.is_empty() { format!("{what}: nobody") } else { format!("{what}: {}", list.join(", ")) })
    });
    said.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use fleet_openpai::cells::plan::PromiseChange;

    use super::*;

    #[test]
    fn a_difference_names_pinned_cells_and_nodes_that_are_not_there() {
        let pinned = PromiseChange {
            vc: "vc1".into(),
            chain: "POOL".into(),
            cell_type: "NODE".into(),
            pinned_cell_id: "pin".into(),
            before: 0,
            after: 1,
        };
        let plan = ConfigurationPlan {
            promises: vec![pinned],
            absent: vec!["found east/n9; allowed: nodes of east".into()],
            is_change: true,
            ..ConfigurationPlan::default()
        };
        let page = difference(&plan).into_string();
        assert!(page.contains("NODE (pinned pin)"), "{page}");
        assert!(page.contains("Bad, because their member has no such node</b>: found east/n9"), "{page}");
    }
}
