//! Parses a job file.

use fleet_api::yaml::{self, Located};
use fleet_pai::{Doc, Node, Protocol, render};

use super::JobError;

/// A parsed job file, and its text as it may be shown.
#[derive(Clone, Debug)]
pub struct Read {
    pub protocol: Protocol,
    /// YAML without secrets.
    pub config: String,
}

/// Reads a job file.
///
/// # Errors
/// Every error in it.
pub fn read(text: &str) -> Result<Read, JobError> {
    let located = yaml::read_located(text).map_err(|(line, message)| JobError::NoYaml { line, message })?;
    let doc = doc(&located);
    let protocol = Protocol::read(&doc)?;
    let config = yaml::write(&render::masked(&doc))
        .map_err(|error| JobError::NoYaml { line: 1, message: error.message })?;
    Ok(Read { protocol, config })
}

fn doc(located: &Located) -> Doc {
    let node = match &located.node {
        yaml::Node::Null => Node::Null,
        yaml::Node::Bool(value) => Node::Bool(*value),
        yaml::Node::Number(number) => Node::Number(number.clone()),
        yaml::Node::Text(text) => Node::Text(text.clone()),
        yaml::Node::List(items) => Node::List(items.iter().map(doc).collect()),
        yaml::Node::Map(entries) => {
            Node::Map(entries.iter().map(|(name, value)| (name.clone(), doc(value))).collect())
        }
    };
    Doc { line: located.line, node }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_its_line_and_secrets_are_not_shown() {
        let text = "protocolVersion: 2\nname: a\ntype: job\nsecrets: {token: s3cret}\nprerequisites:\n\
                    - {name: i, type: dockerimage, uri: u}\ntaskRoles:\n  w:\n    instances: 0\n    dockerImage: i\n    \
                    resourcePerInstance: {cpu: 1, memoryMB: 1, gpu: 0}\n    commands: [x]\n";
        let said = read(text).expect_err("no instances").to_string();
        assert_eq!(said, "line 9: taskRoles.w.instances: found 0; allowed: a whole number from 1 to 100000");
        let fine = read(&text.replace("instances: 0", "instances: 1")).expect("a job");
        assert!(!fine.config.contains("s3cret"), "{}", fine.config);
        let again = read(&fine.config).expect("a job again").protocol;
        assert_eq!(again.task_roles[0].resources, fine.protocol.task_roles[0].resources);
        assert!(fine.config.find("name:") < fine.config.find("taskRoles:"), "{}", fine.config);
        let said = read("a: [").expect_err("no YAML");
        assert_eq!((said.code(), said.status()), ("InvalidProtocolError", 400));
    }
}
