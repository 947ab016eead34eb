//! Administration: users, who may use what, and clusters to join.

use maud::{Markup, html};

use super::parts::form_key;
use crate::{
    administration::{Account, AdminView, JoinRow, NewToken, Part, QueueAccess, Tenant, VcRow},
    pairs::link,
    shown::Visitor,
};

const PATH: &str = "/administration";

pub fn admin(view: &AdminView, visitor: &Visitor) -> Markup {
    let form = Forms { visitor };
    html! {
        h1 { "Administration" }
        @if !view.troubles.is_empty() {
            div.error role="alert" #troubles {
                h2 { "This was not done" }
                ul { @for trouble in &view.troubles { li { @match trouble.field.as_str() {
                    "" => (trouble.message),
                    field => { a href={ "#" (field) } { (trouble.message) } },
                } } } }
            }
        }
        @if let Some(token) = &view.token { (new_token(token)) }
        @if !view.may.anything() {
            p.quiet { "The hub lets you look here, and change nothing: you may neither give rights nor make accounts, change queues or join clusters." }
        }
        datalist #namespaces { @for namespace in &view.namespaces { option value=(namespace) {} } }
        (tenants(view, form))
        (accounts(view, form))
        (queues(view, form))
        (virtual_clusters(view, form))
        (clusters(view))
    }
}

#[derive(Clone, Copy)]
struct Forms<'s> {
    visitor: &'s Visitor,
}

impl Forms<'_> {
    /// A form of this page that does `deed` with hidden values.
    fn form(self, deed: &str, hidden: &[(&str, &str)], inner: Markup) -> Markup {
        html! {
            form.inline method="post" action=(PATH) {
                (form_key(Some(self.visitor)))
                @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
                (inner)
                input type="hidden" name="do" value=(deed);
            }
        }
    }
}

fn new_token(token: &NewToken) -> Markup {
    html! {
        section.checked #token role="status" {
            h2 { "A token of " (token.account) }
            p { "It is valid for " (token.hours) " hours, and shown this once: it stands nowhere. Who has it may do what the account may." }
            pre tabindex="0" { (token.token) }
        }
    }
}

/// Rows, or why there are none.
fn part<T>(part: &Part<T>, empty: &str, rows: impl Fn(&[T]) -> Markup) -> Markup {
    match part {
        Part::Absent(why) => html! { p.quiet { "Not shown: " (why) } },
        Part::Shown(found) if found.is_empty() => html! { p.quiet { (empty) } },
        Part::Shown(found) => rows(found),
    }
}

fn field(id: &str, name: &str, label: &str, help: &str, list: Option<&str>) -> Markup {
    let described = (!help.is_empty()).then(|| format!("{id}-help"));
    html! {
        div.field {
            label for=(id) { (label) }
            input id=(id) name=(name) list=[list] aria-describedby=[described.as_deref()];
            @if let Some(described) = &described { p.help id=(described) { (help) } }
        }
    }
}

fn check(id: &str, name: &str, label: &str) -> Markup {
    html! { div.check { input type="checkbox" id=(id) name=(name) value="yes"; label for=(id) { (label) } } }
}

fn tenants(view: &AdminView, form: Forms<'_>) -> Markup {
    html! {
        section #tenants {
            h2 { "Who may submit jobs" }
            p.quiet { "A tenant writes jobs in a namespace (role " code { "fleet-tenant" } "), whose queue is the one that lists the namespace. He sees that queue and his own jobs; other roles let him see more." }
            (part(&view.tenants, "Nobody has been given a namespace.", |rows| html! {
                div.scroll { table { thead { tr { th scope="col" { "Who" } th scope="col" { "Role" } th scope="col" { "Namespace" } th scope="col" { "By binding" } th scope="col" { span.hidden { "Take away" } } } }
                    tbody { @for row in rows { (tenant(row, view.may.grant, form)) } } } }
            }))
            @if view.may.grant {
                h3 { "Give somebody a namespace" }
                (form.form("grant", &[], html! {
                    (field("grant-who", "who", "Who", "user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME", None))
                    (field("grant-namespace", "namespace", "Namespace", "", Some("namespaces")))
                    fieldset.more { legend { "And let him see" }
                        (check("grant-quota", "quota", "all queues, with their limits and use (fleet-quota-reader)"))
                        (check("grant-clusters", "clusters", "all clusters, with their nodes and use (fleet-cluster-reader)"))
                        (check("grant-virtual-clusters", "virtual-clusters", "all virtual clusters (fleet-virtual-cluster-reader)"))
                    }
                    button.primary { "Give" }
                }))
            }
        }
    }
}

fn tenant(row: &Tenant, may: bool, form: Forms<'_>) -> Markup {
    html! { tr {
        th scope="row" { (row.who) }
        td { (row.role) }
        td { @if row.namespace.is_empty() { "all" } @else { (row.namespace) } }
        td { (row.binding) @if row.others > 0 { span.quiet { ", and " (row.others) " more in it" } } }
        td { @if may {
            (form.form("revoke", &[("namespace", &row.namespace), ("binding", &row.binding)], html! {
                button.danger aria-label={ "Take away " (row.role) " from " (row.who) @if !row.namespace.is_empty() { " in " (row.namespace) } } { "Take away" }
            }))
        } }
    } }
}

fn accounts(view: &AdminView, form: Forms<'_>) -> Markup {
    html! {
        section #accounts {
            h2 { "Accounts and tokens" }
            p.quiet { "A service account is a user that the hub knows by itself, for people without another way to sign in and for programs. Give it a namespace as "
                code { "serviceaccount:NAMESPACE/NAME" } ". Its tokens end when it is deleted." }
            (part(&view.accounts, "There are no accounts.", |rows| html! {
                div.scroll { table { thead { tr { th scope="col" { "Account" } th scope="col" { "Token" } th scope="col" { span.hidden { "Delete" } } } }
                    tbody { @for row in rows { (account(row, view, form)) } } } }
            }))
            @if view.may.accounts {
                h3 { "Make an account" }
                (form.form("account", &[], html! {
                    (field("account-namespace", "namespace", "Namespace", "", Some("namespaces")))
                    (field("account-name", "name", "Name", "lower-case letters, digits, - and .", None))
                    button.primary { "Make" }
                }))
            }
        }
    }
}

fn account(row: &Account, view: &AdminView, form: Forms<'_>) -> Markup {
    let name = format!("{}/{}", row.namespace, row.name);
    let hidden = [("namespace", row.namespace.as_str()), ("name", row.name.as_str())];
    html! { tr {
        th scope="row" { (name) }
        td { @if view.may.tokens {
            (form.form("token", &hidden, html! {
                input.short name="hours" type="number" min="1" max="8784" value="24" aria-label={ "Hours that the token of " (name) " is valid" };
                " hours "
                button aria-label={ "Make a token of " (name) } { "Make a token" }
            }))
        } }
        td { @if view.may.accounts {
            (form.form("dismiss", &hidden, html! { button.danger aria-label={ "Delete " (name) } { "Delete" } }))
        } }
    } }
}

/// Fields stand in cells; their form is named by its id.
fn cell(form: &str, name: &str, label: &str, value: &str, may: bool) -> Markup {
    html! { td { @if may { input form=(form) name=(name) value=(value) aria-label=(label); } @else { (value) } } }
}

/// The form to which the cells of a row belong.
fn save(id: &str, form: Forms<'_>, what: &str, hidden: [(&str, &str); 3]) -> Markup {
    html! {
        form id=(id) method="post" action=(PATH) {
            (form_key(Some(form.visitor)))
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            button aria-label={ "Save " (what) } { "Save" }
        }
    }
}

fn queues(view: &AdminView, form: Forms<'_>) -> Markup {
    html! {
        section #queues {
            h2 { "Who may use which queue" }
            p.quiet { "Jobs of a namespace go to the leaf that lists it. Admitted are jobs of the namespaces, and of the people, in the lists of the leaf and of every node above it: "
                code { "*" } " admits all, an empty list nobody." }
            (part(&view.queues, "There is no quota tree.", |rows| html! {
                div.scroll { table.access { thead { tr { th scope="col" { "Queue" } th scope="col" { "Namespaces that go there" } th scope="col" { "Namespaces admitted" }
                    th scope="col" { "People admitted" } th scope="col" { span.hidden { "Save" } } } }
                    tbody { @for (index, row) in rows.iter().enumerate() { (queue(row, index, view.may.queues, form)) } } } }
            }))
        }
    }
}

fn queue(row: &QueueAccess, index: usize, may: bool, form: Forms<'_>) -> Markup {
    let id = format!("queue-{index}");
    let label = |what: &str| format!("{what} of {}", row.path);
    html! { tr {
        th scope="row" { (row.path) }
        @if row.is_leaf { (cell(&id, "namespaces", &label("Namespaces that go to"), &row.namespaces, may)) } @else { td {} }
        (cell(&id, "submitter-namespaces", &label("Namespaces admitted"), &row.submitter_namespaces, may))
        (cell(&id, "submitters", &label("People admitted"), &row.submitters, may))
        td { @if may { (save(&id, form, &row.path, [("do", "queue"), ("tree", &row.tree), ("path", &row.path)])) } }
    } }
}

fn virtual_clusters(view: &AdminView, form: Forms<'_>) -> Markup {
    html! {
        section #virtual-clusters {
            h2 { "Who may use which virtual cluster" }
            p.quiet { "Guaranteed: jobs of other namespaces may only be opportunistic. " code { "*" } " admits all, an empty list nobody." }
            (part(&view.virtual_clusters, "There are no virtual clusters.", |rows| html! {
                div.scroll { table.access { thead { tr { th scope="col" { "Virtual cluster" } th scope="col" { "Namespaces admitted" } th scope="col" { "Namespaces guaranteed" }
                    th scope="col" { "People admitted" } th scope="col" { span.hidden { "Save" } } } }
                    tbody { @for (index, row) in rows.iter().enumerate() { (virtual_cluster(row, index, view.may.virtual_clusters, form)) } } } }
            }))
        }
    }
}

fn virtual_cluster(row: &VcRow, index: usize, may: bool, form: Forms<'_>) -> Markup {
    let id = format!("vc-{index}");
    let label = |what: &str| format!("{what} of {}", row.name);
    html! { tr {
        th scope="row" { (row.name) }
        (cell(&id, "submitter-namespaces", &label("Namespaces admitted"), &row.submitter_namespaces, may))
        (cell(&id, "guaranteed-namespaces", &label("Namespaces guaranteed"), &row.guaranteed_namespaces, may))
        (cell(&id, "submitters", &label("People admitted"), &row.submitters, may))
        td { @if may {
            (save(&id, form, &row.name, [("do", "virtual-cluster"), ("configuration", &row.configuration), ("name", &row.name)]))
        } }
    } }
}

fn clusters(view: &AdminView) -> Markup {
    html! {
        section #join-clusters {
            h2 { "Clusters" }
            (part(&view.clusters, "No cluster has joined.", |rows| html! {
                div.scroll { table { thead { tr { th scope="col" { "Cluster" } th scope="col" { "State" } th scope="col" { "To do" } } }
                    tbody { @for row in rows { (cluster(row)) } } } }
            }))
            @if view.may.join {
                h3 { "Join a cluster" }
                @if let Some(name) = &view.joining { (commands(name)) }
                form.inline method="get" action=(PATH) {
                    (field("join", "join", "Name of the cluster in the fleet", "", None))
                    button.primary { "Show the command" }
                }
            }
        }
    }
}

fn cluster(row: &JoinRow) -> Markup {
    html! { tr {
        th scope="row" { a href=(link(&format!("/clusters#{}", row.name), &[])) { (row.name) } }
        td { span class=(if row.is_well { "badge succeeded" } else { "badge failed" }) { (row.state) } }
        td { @if let Some((why, command)) = &row.todo { (why) " " code { (command) } } }
    } }
}

fn commands(name: &str) -> Markup {
    html! {
        div #commands role="status" {
            p { "Where your kubeconfig reaches the hub and has a context " code { (name) } " of an administrator of the cluster:" }
            pre tabindex="0" { "fleet join " (name) }
            p { "For a cluster that cannot be reached from here: this makes the hub's part and prints what to apply in the cluster. The token in it lives an hour." }
            pre tabindex="0" { "fleet join " (name) " --print > " (name) ".yaml\nkubectl --context " (name) " apply -f " (name) ".yaml" }
            p { "Then, to see what its agent says:" }
            pre tabindex="0" { "fleet status " (name) }
        }
    }
}
