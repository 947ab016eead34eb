//! Templates in commands and registry logins: `<% $parameters.x %>`, `<% $secrets.y %>`, `<% $script.name %>`,
//! `<% $data.uri[0] %>`, `<% $output.uri %>`.
//!
//! Inserted values are not rendered again. Upstream renders an unknown name as nothing; here it is refused.

use crate::{Doc, Node, PrerequisiteKind, Problem, Protocol, Refusal, RegistryAuth, TaskRole, fields::Sink};

const OPEN: &str = "<%";
const CLOSE: &str = "%>";
/// What stands in a stored configuration in the place of a secret.
pub const MASK: &str = "******";

/// The commands of one role as a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub role: String,
    pub text: String,
    /// It holds a secret and must not be written where everybody may read it.
    pub has_secrets: bool,
}

/// What names in a template lead to.
struct Names<'p> {
    /// `$parameters` and the like, with what they stand for; `None`: the role has no such thing.
    known: Vec<(&'static str, Option<&'p Doc>)>,
}

#[derive(Default)]
struct Out {
    text: String,
    has_secrets: bool,
}

/// The script of each role, in the order of roles.
///
/// # Errors
/// Each name in a template that leads nowhere.
pub fn scripts(protocol: &Protocol) -> Result<Vec<Script>, Refusal> {
    let mut sink = Vec::new();
    let scripts = protocol.task_roles.iter().map(|role| script(protocol, role, &mut sink)).collect();
    Refusal::unless_empty(sink)?;
    Ok(scripts)
}

/// The registry logins that the roles' images need, by image.
///
/// # Errors
/// As [`scripts`].
pub fn logins(protocol: &Protocol) -> Result<Vec<(String, RegistryAuth)>, Refusal> {
    let names = Names { known: vec![("$secrets", Some(&protocol.secrets))] };
    let (mut sink, mut found) = (Vec::new(), Vec::new());
    for (i, one) in protocol.prerequisites.iter().enumerate() {
        let Some(auth) = &one.auth else { continue };
        let mut text = |field: &str, template: &str| {
            let path = format!("prerequisites[{i}].auth.{field}");
            let mut out = Out::default();
            names.render(template, &path, one.doc.line, &mut out, &mut sink);
            out.text.trim().to_owned()
        };
        let login = RegistryAuth {
            username: text("username", &auth.username),
            password: text("password", &auth.password),
            registry_uri: auth.registry_uri.as_ref().map(|uri| text("registryuri", uri)),
        };
        found.push((one.name.clone(), login));
    }
    Refusal::unless_empty(sink)?;
    Ok(found)
}

/// Commands of the deployment before, of the role, of the deployment after; the first that fails ends the script.
fn script(protocol: &Protocol, role: &TaskRole, sink: &mut Sink) -> Script {
    let prerequisite = |kind, name: &Option<String>| {
        name.as_ref().and_then(|name| protocol.prerequisite(kind, name)).map(|one| &one.doc)
    };
    let names = Names {
        known: vec![
            ("$parameters", Some(&protocol.parameters)),
            ("$secrets", Some(&protocol.secrets)),
            ("$script", prerequisite(PrerequisiteKind::Script, &role.script)),
            ("$output", prerequisite(PrerequisiteKind::Output, &role.output)),
            ("$data", prerequisite(PrerequisiteKind::Data, &role.data)),
        ],
    };
    let deployment = protocol
        .deployments
        .iter()
        .enumerate()
        .find(|(_, one)| Some(&one.name) == protocol.deployment.as_ref());
    let around = deployment.and_then(|(i, one)| Some((i, one.task_roles.get(&role.name)?)));
    let path = |i: usize, field: &str| format!("deployments[{i}].taskRoles.{}.{field}", role.name);
    let mut parts: Vec<(String, &[String])> = Vec::new();
    if let Some((i, commands)) = around {
        parts.push((path(i, "preCommands"), &commands.before));
    }
    parts.push((format!("taskRoles.{}.commands", role.name), &role.commands));
    if let Some((i, commands)) = around {
        parts.push((path(i, "postCommands"), &commands.after));
    }
    let mut out = Out { text: "set -e\n".to_owned(), has_secrets: false };
    for (path, commands) in parts {
        for (k, command) in commands.iter().enumerate() {
            names.render(command.trim(), &format!("{path}[{k}]"), role.line, &mut out, sink);
            out.text.push('\n');
        }
    }
    Script { role: role.name.clone(), text: out.text, has_secrets: out.has_secrets }
}

impl Names<'_> {
    fn render(&self, template: &str, path: &str, line: u64, out: &mut Out, sink: &mut Sink) {
        let mut rest = template;
        while let Some(at) = rest.find(OPEN) {
            out.text.push_str(&rest[..at]);
            let inner = &rest[at + OPEN.len()..];
            let Some(end) = inner.find(CLOSE) else {
                let found = format!("{:?} without {CLOSE:?}", &rest[at..]);
                sink.push(Problem::new(path, found, "templates such as <% $parameters.name %>").at(line));
                return;
            };
            let name = inner[..end].trim();
            match self.value(name) {
                Ok(text) => {
                    out.has_secrets |= name.starts_with("$secrets");
                    out.text.push_str(&text);
                }
                Err((found, allowed)) => sink.push(Problem::new(path, found, allowed).at(line)),
            }
            rest = &inner[end + CLOSE.len()..];
        }
        out.text.push_str(rest);
    }

    /// The value of a name, or what was found and what is allowed.
    fn value(&self, name: &str) -> Result<String, (String, String)> {
        let found = |what: &str| format!("<% {name} %>{what}");
        let (top, steps) = split(name);
        let Some((_, doc)) = self.known.iter().find(|(known, _)| *known == top) else {
            let known: Vec<&str> = self.known.iter().map(|(known, _)| *known).collect();
            return Err((found(""), format!("names that begin with {}", known.join(", "))));
        };
        let Some(mut at) = *doc else {
            let field = top.trim_start_matches('$');
            return Err((found(" in a task role without it"), format!("a task role with the field {field}")));
        };
        let mut walked = top.to_owned();
        for step in steps {
            let next = match &at.node {
                Node::List(_) => step.parse().ok().and_then(|index| at.at(index)),
                _ => at.get(&step),
            };
            let Some(next) = next else { return Err((found(", which leads nowhere"), inside(&walked, at))) };
            walked = format!("{walked}.{step}");
            at = next;
        }
        match &at.node {
            Node::Text(text) => Ok(text.clone()),
            Node::Number(number) => Ok(number.to_string()),
            Node::Bool(value) => Ok(value.to_string()),
            _ => Err((found(", which is no single value"), inside(&walked, at))),
        }
    }
}

/// `$data.uri[0]` as `$data` and its steps `uri`, `0`.
fn split(name: &str) -> (&str, Vec<String>) {
    let (top, rest) = name.split_once('.').unwrap_or((name, ""));
    let rest = rest.replace('[', ".").replace(']', "");
    (top, rest.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect())
}

/// What there is to choose from.
fn inside(walked: &str, doc: &Doc) -> String {
    let choices: Vec<String> = match &doc.node {
        Node::Map(entries) => entries.iter().map(|(name, _)| format!("{walked}.{name}")).collect(),
        Node::List(items) => (0..items.len()).map(|i| format!("{walked}[{i}]")).collect(),
        _ => return format!("{walked} alone"),
    };
    if choices.is_empty() { format!("nothing: {walked} is empty") } else { choices.join(", ") }
}

/// The document as it may be stored and shown: without its secrets and without passwords.
pub fn masked(doc: &Doc) -> Doc {
    let mut shown = doc.clone();
    if let Node::Map(entries) = &mut shown.node {
        for (name, value) in entries {
            match name.as_str() {
                "secrets" => mask(value),
                "prerequisites" => passwords(value),
                _ => {}
            }
        }
    }
    shown
}

fn passwords(prerequisites: &mut Doc) {
    let Node::List(items) = &mut prerequisites.node else { return };
    for item in items {
        let Node::Map(entries) = &mut item.node else { continue };
        for (_, auth) in entries.iter_mut().filter(|(name, _)| name == "auth") {
            let Node::Map(entries) = &mut auth.node else { continue };
            for (_, password) in entries.iter_mut().filter(|(name, _)| name == "password") {
                let is_template = matches!(&password.node, Node::Text(text) if is_only_a_template(text));
                if !is_template {
                    mask(password);
                }
            }
        }
    }
}

fn is_only_a_template(text: &str) -> bool {
    let inner = text.trim().strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE));
    inner.is_some_and(|inner| !inner.contains(OPEN) && !inner.contains(CLOSE))
}

fn mask(doc: &mut Doc) {
    match &mut doc.node {
        Node::Map(entries) => entries.iter_mut().for_each(|(_, value)| mask(value)),
        Node::List(items) => items.iter_mut().for_each(mask),
        Node::Null => {}
        node => *node = Node::Text(MASK.to_owned()),
    }
}
