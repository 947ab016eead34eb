//! Templates in commands and registry logins: `<% $parameters.x %>`, `<% $secrets.y %>`, `<% $script.name %>`,
//! `<% $data.uri[0] %>`, `<% $output.uri %>`.
//!
//! Inserted values are not rendered again. Upstream renders an unknown name as nothing; here it is refused.

use std::{borrow::Cow, cell::RefCell, collections::BTreeMap, ops::ControlFlow};

use crate::{
    Doc, Node, PrerequisiteKind, Problem, Protocol, Refusal, RegistryAuth, TaskRole,
    fields::Sink,
    problem::{TOLD, shortened},
};

const OPEN: &str = "<%";
const CLOSE: &str = "%>";
/// Most bytes of all scripts of a job together, of all its logins, and of whatever else is made of a file by repeating a part of
/// it. A Secret has no more, and hardly any object.
pub(crate) const MADE_MAX: usize = 1024 * 1024;
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
struct Names<'i, 'p> {
    /// `$parameters` and the like, with what they stand for; `None`: the role has no such thing.
    known: Vec<(&'static str, Option<&'p Doc>)>,
    index: &'i Index<'p>,
}

/// Entries of maps up to which a map is searched.
const SEARCHED: usize = 16;

/// Entries of larger maps by their names, gathered when a template first looks into the map. A file may have thousands of
/// parameters, and thousands of templates that name them.
#[derive(Default)]
struct Index<'p>(RefCell<BTreeMap<*const Doc, Entries<'p>>>);

type Entries<'p> = BTreeMap<&'p str, &'p Doc>;

impl<'p> Index<'p> {
    /// The entry of a map.
    fn get(&self, doc: &'p Doc, name: &str) -> Option<&'p Doc> {
        let Node::Map(entries) = &doc.node else { return None };
        if entries.len() <= SEARCHED {
            return doc.get(name);
        }
        let gather = || {
            let mut found = Entries::new();
            for (name, value) in entries {
                found.entry(name.as_str()).or_insert(value);
            }
            found
        };
        let mut known = self.0.borrow_mut();
        known.entry(std::ptr::from_ref(doc)).or_insert_with(gather).get(name).copied()
    }
}

/// A text in the making.
struct Out {
    text: String,
    has_secrets: bool,
    /// Bytes that this and all further texts may still get.
    left: usize,
}

impl Out {
    fn new(left: usize) -> Self {
        Self { text: String::new(), has_secrets: false, left }
    }

    /// `Break`: all texts together would be too large.
    fn push(&mut self, piece: &str) -> ControlFlow<()> {
        let Some(left) = self.left.checked_sub(piece.len()) else { return ControlFlow::Break(()) };
        self.left = left;
        self.text.push_str(piece);
        ControlFlow::Continue(())
    }
}

/// The script of each role, in the order of roles.
///
/// # Errors
/// Names in templates that lead nowhere, and scripts that are larger than [`MADE_MAX`] together: a value stands in
/// them as often as templates name it.
pub fn scripts(protocol: &Protocol) -> Result<Vec<Script>, Refusal> {
    let (mut sink, index) = (Sink::default(), Index::default());
    let mut scripts = Vec::new();
    let mut left = MADE_MAX;
    for role in &protocol.task_roles {
        let mut out = Out::new(left);
        if script(protocol, role, &index, &mut out, &mut sink).is_break() {
            break;
        }
        left = out.left;
        scripts.push(Script { role: role.name.clone(), text: out.text, has_secrets: out.has_secrets });
    }
    Refusal::unless_empty(sink)?;
    Ok(scripts)
}

/// The registry logins that the roles' images need, by image.
///
/// # Errors
/// As [`scripts`].
pub fn logins(protocol: &Protocol) -> Result<Vec<(String, RegistryAuth)>, Refusal> {
    let index = Index::default();
    let names = Names { known: vec![("$secrets", Some(&protocol.secrets))], index: &index };
    let (mut sink, mut found, mut left) = (Sink::default(), Vec::new(), MADE_MAX);
    for (i, one) in protocol.prerequisites.iter().enumerate() {
        let Some(auth) = &one.auth else { continue };
        let mut text = |field: &str, template: &str| {
            let path = format!("prerequisites[{i}].auth.{field}");
            let mut out = Out::new(left);
            let made = names.render(template, &path, one.doc.line, &mut out, &mut sink);
            left = out.left;
            made.is_continue().then(|| out.text.trim().to_owned())
        };
        let Some((username, password)) =
            text("username", &auth.username).zip(text("password", &auth.password))
        else {
            break;
        };
        let registry_uri = match &auth.registry_uri {
            Some(uri) => match text("registryuri", uri) {
                Some(uri) => Some(uri),
                None => break,
            },
            None => None,
        };
        found.push((one.name.clone(), RegistryAuth { username, password, registry_uri }));
    }
    Refusal::unless_empty(sink)?;
    Ok(found)
}

/// Commands of the deployment before, of the role, of the deployment after; the first that fails ends the script.
/// `Break`: a mistake behind which nothing more is made.
fn script<'p>(
    protocol: &'p Protocol,
    role: &TaskRole,
    index: &Index<'p>,
    out: &mut Out,
    sink: &mut Sink,
) -> ControlFlow<()> {
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
        index,
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
    out.text.push_str("set -e\n");
    for (path, commands) in parts {
        for (k, command) in commands.iter().enumerate() {
            names.render(command.trim(), &format!("{path}[{k}]"), role.line, out, sink)?;
            out.text.push('\n');
        }
    }
    ControlFlow::Continue(())
}

impl Names<'_, '_> {
    /// `Break`: the text is too large, or there are as many mistakes as are told.
    fn render(
        &self,
        template: &str,
        path: &str,
        line: u64,
        out: &mut Out,
        sink: &mut Sink,
    ) -> ControlFlow<()> {
        let made = self.render_pieces(template, path, line, out, sink);
        if made.is_break() {
            let found = format!("more than {} KiB in all, with the values of templates", MADE_MAX / 1024);
            let allowed = format!(
                "at most {} KiB; larger things belong into the image or a ConfigMap",
                MADE_MAX / 1024
            );
            sink.push(Problem::new(path, found, allowed).at(line));
            return made;
        }
        // Each mistake names what there is to choose from.
        if sink.len() < TOLD { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// `Break`: the text is too large.
    fn render_pieces(
        &self,
        template: &str,
        path: &str,
        line: u64,
        out: &mut Out,
        sink: &mut Sink,
    ) -> ControlFlow<()> {
        let mut rest = template;
        while let Some(at) = rest.find(OPEN).filter(|_| sink.len() < TOLD) {
            out.push(&rest[..at])?;
            let inner = &rest[at + OPEN.len()..];
            let Some(end) = inner.find(CLOSE) else {
                let found = format!("{:?} without {CLOSE:?}", &rest[at..]);
                sink.push(Problem::new(path, found, "templates such as <% $parameters.name %>").at(line));
                return ControlFlow::Continue(());
            };
            let name = inner[..end].trim();
            match self.value(name) {
                Ok(text) => {
                    out.has_secrets |= name.starts_with("$secrets");
                    out.push(&text)?;
                }
                Err((found, allowed)) => sink.push(Problem::new(path, found, allowed).at(line)),
            }
            rest = &inner[end + CLOSE.len()..];
        }
        out.push(rest)
    }

    /// The value of a name, or what was found and what is allowed.
    fn value(&self, name: &str) -> Result<Cow<'_, str>, (String, String)> {
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
                _ => self.index.get(at, &step),
            };
            let Some(next) = next else { return Err((found(", which leads nowhere"), inside(&walked, at))) };
            walked = format!("{walked}.{step}");
            at = next;
        }
        match &at.node {
            Node::Text(text) => Ok(Cow::Borrowed(text)),
            Node::Number(number) => Ok(Cow::Owned(number.to_string())),
            Node::Bool(value) => Ok(Cow::Owned(value.to_string())),
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

/// What there is to choose from, or the first of it: a choice begins with all names before it.
fn inside(walked: &str, doc: &Doc) -> String {
    let walked = shortened(walked.to_owned());
    let choices: Vec<String> = match &doc.node {
        Node::Map(entries) => entries.iter().take(TOLD).map(|(name, _)| format!("{walked}.{name}")).collect(),
        Node::List(items) => (0..items.len().min(TOLD)).map(|i| format!("{walked}[{i}]")).collect(),
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
