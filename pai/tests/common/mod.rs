#![allow(dead_code, reason = "each test file uses a part")]

use fleet_pai::{Doc, Protocol, Refusal, native::Submission};
use serde_json::Value;

/// A document of YAML.
pub fn doc(text: &str) -> Doc {
    let value: Value = serde_saphyr::from_str(text).expect("YAML");
    Doc::from_json(&value)
}

pub fn read(text: &str) -> Result<Protocol, Refusal> {
    Protocol::read(&doc(text))
}

/// A job of one role, with `change` made to it.
pub fn job(change: impl Fn(&mut Value)) -> Doc {
    let mut value: Value = serde_saphyr::from_str(JOB).expect("YAML");
    change(&mut value);
    Doc::from_json(&value)
}

pub fn protocol(change: impl Fn(&mut Value)) -> Protocol {
    Protocol::read(&job(change)).expect("a job")
}

/// The first run of a job.
pub fn submission(protocol: &Protocol) -> Submission<'_> {
    Submission {
        protocol,
        user: "alice",
        namespace: "team-a",
        run: 1,
        config: "name: x\n",
        submitted_ms: 1_700_000_000_000,
    }
}

pub const JOB: &str = "
protocolVersion: 2
name: mnist
type: job
prerequisites:
  - {protocolVersion: 2, name: image, type: dockerimage, uri: registry.example.com/mnist:v1}
taskRoles:
  train:
    instances: 2
    dockerImage: image
    resourcePerInstance: {cpu: 2, memoryMB: 4096, gpu: 1}
    commands: ['python main.py']
";

/// A lab file, as it is.
pub fn lab(number: usize) -> String {
    let file = format!("{}/../examples/hived/jobs/job-config-{number}.yaml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(file).expect("a lab file")
}
