//! The form that makes a job, and the editor for any job file.

use maud::{Markup, PreEscaped, html};

use super::parts::form_key;
use crate::{
    form::{CLASSES, Form, KINDS, ROLES, Trouble},
    shown::{Check, SubmitView, Visitor},
};

pub fn submit(view: &SubmitView, visitor: Option<&Visitor>) -> Markup {
    html! {
        h1 { "Submit a job" }
        @if !view.troubles.is_empty() {
            div.error role="alert" #troubles {
                h2 { "This cannot be submitted" }
                ul { @for trouble in &view.troubles { li { @match trouble.field.as_str() {
                    "" => (trouble.message),
                    field => { a href={ "#" (field) } { (trouble.message) } },
                } } } }
            }
        }
        @if let Some(check) = &view.check { (checked(check)) }
        @match &view.yaml {
            Some(text) => (editor(text, view, visitor)),
            None => (form(&view.form, view, visitor)),
        }
    }
}

fn checked(check: &Check) -> Markup {
    html! {
        section.checked #checked role="status" {
            h2 { "The hub would take it" }
            @for notice in &check.notices { p { (notice) } }
            @if !check.verdicts.is_empty() {
                p { "Where it could go now, by the clusters' last reports:" }
                ul { @for verdict in &check.verdicts { li { b { (verdict.cluster) } ": " (verdict.sentence) } } }
            }
        }
    }
}

fn editor(text: &str, view: &SubmitView, visitor: Option<&Visitor>) -> Markup {
    html! {
        form method="post" action="/submit" {
            (form_key(visitor))
            input type="hidden" name="mode" value="yaml";
            label for="yaml" { "A job as YAML: any kind of job that the hub serves, or an OpenPAI job file (protocolVersion: 2)" }
            // A line end after the tag is not part of the text; without one the first of the text's own would be lost.
            textarea #yaml name="yaml" rows="28" spellcheck="false" required aria-invalid=[view.has("yaml").then_some("true")]
                aria-describedby=[view.has("yaml").then_some("yaml-trouble")] { (PreEscaped("\n")) (text) }
            (trouble(&view.troubles, "yaml"))
            label for="namespace" { "Namespace, where the file names none" }
            input #namespace name="namespace" value=(view.form.namespace);
            div.actions {
                button.primary name="do" value="create" { "Submit" }
                button name="do" value="check" { "Check only" }
                button name="do" value="export" { "Export" }
                a.button href="/submit" { "Back to the form" }
            }
        }
    }
}

fn form(form: &Form, view: &SubmitView, visitor: Option<&Visitor>) -> Markup {
    let field = |name: &'static str, label: &str, value: &str, help: &str| {
        input(&view.troubles, name, name, label, value, help)
    };
    html! {
        p { a href="/submit?mode=yaml" { "Write YAML instead" } }
        form.submit method="post" action="/submit" {
            (form_key(visitor))
            fieldset { legend { "The job" }
                (field("name", "Name", &form.name, "lower-case letters, digits and -"))
                (field("namespace", "Namespace", &form.namespace, ""))
                div.field { label for="kind" { "Kind" }
                    select #kind name="kind" { @for (kind, means) in KINDS {
                        option value=(kind) title=(means) selected[form.kind == kind] { (kind) }
                    } } }
                div.field { label for="queue" { "Queue" }
                    input #queue name="queue" value=(form.queue) list="queues" aria-describedby="queue-help";
                    datalist #queues { @for queue in &view.queues { option value=(queue) {} } }
                    p.help #queue-help { "Empty: the queue of the namespace." }
                    (trouble(&view.troubles, "queue")) }
                @if !view.virtual_clusters.is_empty() || !form.virtual_cluster.is_empty() {
                    div.field { label for="virtual_cluster" { "Virtual cluster" }
                        input #virtual_cluster name="virtual_cluster" value=(form.virtual_cluster) list="virtual-clusters" aria-describedby="vc-help";
                        datalist #virtual-clusters { @for name in &view.virtual_clusters { option value=(name) {} } }
                        p.help #vc-help { "Empty: that of the queue, or none." }
                        (trouble(&view.troubles, "virtual_cluster")) }
                    div.field.wide { label for="class" { "Class" }
                        select #class name="class" aria-describedby="class-help" {
                            option value="" { "-" }
                            @for (class, _) in CLASSES { option value=(class) selected[form.class == class] { (class) } }
                        }
                        ul.help #class-help { @for (class, means) in CLASSES { li { b { (class) } ": " (means) } } }
                        (trouble(&view.troubles, "class")) }
                }
                div.field.wide { label for="priority" { "Priority class" }
                    input #priority name="priority" value=(form.priority) list="classes" aria-describedby="priority-help";
                    datalist #classes { @for class in &view.classes { option value=(class.name) label=(class.consequence) {} } }
                    div.help #priority-help {
                        "Empty: the hub's default."
                        @if !view.classes.is_empty() { ul { @for class in &view.classes { li { b { (class.name) } ": " (class.consequence) } } } }
                    }
                    (trouble(&view.troubles, "priority")) }
            }
            @for (index, role) in form.roles.iter().enumerate() {
                fieldset.role { legend { "Role " (index + 1) @if index > 0 { " (leave the name empty if there is none)" } }
                    @for (name, label, value) in role.fields() {
                        @let id = format!("role{index}-{name}");
                        (input(&view.troubles, &id, &id, label, value, ""))
                    }
                }
            }
            ul.help { @for ((kind, means), (_, roles)) in KINDS.iter().zip(ROLES) { li { b { (kind) } ": " (means) ". Roles: " (roles) "." } }
                li { "Amounts are of each replica." } }
            div.actions {
                button.primary name="do" value="create" { "Submit" }
                button name="do" value="check" { "Check only" }
                button name="do" value="yaml" { "Go on as YAML" }
                button name="do" value="export" { "Export" }
            }
        }
    }
}

fn input(troubles: &[Trouble], id: &str, name: &str, label: &str, value: &str, help: &str) -> Markup {
    let is_wrong = troubles.iter().any(|trouble| trouble.field == id);
    let trouble_id = format!("{id}-trouble");
    html! {
        div.field {
            label for=(id) { (label) }
            input id=(id) name=(name) value=(value) autocomplete="off" aria-invalid=[is_wrong.then_some("true")]
                aria-describedby=[is_wrong.then_some(&trouble_id)];
            @if !help.is_empty() { p.help { (help) } }
            (trouble(troubles, id))
        }
    }
}

fn trouble(troubles: &[Trouble], field: &str) -> Markup {
    html! {
        @for (index, trouble) in troubles.iter().filter(|trouble| trouble.field == field).enumerate() {
            p.trouble id=[(index == 0).then(|| format!("{field}-trouble"))] { (trouble.message) }
        }
    }
}
