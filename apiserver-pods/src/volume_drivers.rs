//! Checks of volumes that only the drivers of a vendor or of a protocol read.
//!
//! Inputs: volumes of a pod or of a template, in the stored form. Source: the validation of Kubernetes 1.36.

use super::names::need;
use super::{names, paths};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;

/// Texts, or lists, that a source cannot be without, where nothing else is checked.
const NEEDED: [(&str, &[&str]); 9] = [
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["monitors", "image"]),
    ("cephfs", &["monitors"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("cinder", &["volumeID"]),
];

/// Checks the one source that a volume has.
pub(crate) fn check(volume: &At, source: &At, kind: &str) {
    if let Some((_, fields)) = NEEDED.iter().find(|(name, _)| *name == kind) {
        need(source, fields);
    }
    match kind {
        "gitRepo" => {
            need(source, &["repository"]);
            let directory = source.at("directory");
            paths::local(&directory, directory.text());
        }
        "gcePersistentDisk" => {
            // Told by an older name.
            let place = volume.beside("persistentDisk", Some(source.value()));
            need(&place, &["pdName"]);
            partition(&place.at("partition"));
        }
        "awsElasticBlockStore" => {
            need(source, &["volumeID"]);
            partition(&source.at("partition"));
        }
        "iscsi" => {
            iscsi(source);
            initiator(volume, source);
        }
        "flocker" => flocker(source),
        "cinder" => secret_name(source),
        "quobyte" => quobyte(source),
        "fc" => fibre_channel(source),
        "flexVolume" => flex(source),
        "azureDisk" => azure_disk(source),
        "storageos" => {
            let (name, namespace) = (source.at("volumeName"), source.at("volumeNamespace"));
            if name.text().is_empty() {
                name.required("");
            } else {
                names::must_be_label(&name);
            }
            if !namespace.text().is_empty() {
                names::must_be_label(&namespace);
            }
            secret_name(source);
        }
        "csi" => csi(source),
        _ => {}
    }
}

fn partition(at: &At) {
    if at.number().is_some_and(|n| !(0..=255).contains(&n)) {
        at.invalid("must be between 1 and 255, inclusive");
    }
}

fn secret_name(source: &At) {
    let secret = source.at("secretRef");
    if secret.is_set() {
        need(&secret, &["name"]);
    }
}

/// A name that iSCSI gives to a side of a connection.
fn iscsi_name(at: &At) {
    let text = at.text();
    let any_then = |rest: &str, count: usize| {
        let mut chars = rest.chars();
        let first = chars.next().is_some_and(|c| c != '\n');
        let rest = chars.as_str();
        first && rest.len() == count && rest.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let right = if text.starts_with("iqn") {
        text.match_indices("iqn.").any(|(start, found)| is_qualified_iscsi(&text[start + found.len()..]))
    } else if let Some(rest) = text.strip_prefix("eui") {
        any_then(rest, 16)
    } else if let Some(rest) = text.strip_prefix("naa") {
        any_then(rest, 32)
    } else {
        at.invalid("must be valid format starting with iqn, eui, or naa");
        return;
    };
    if !right {
        at.invalid("must be valid format");
    }
}

/// A month, a domain and, after a colon, any name.
fn is_qualified_iscsi(rest: &str) -> bool {
    let Some((domain, name)) = rest.split_once(':') else { return false };
    let b = domain.as_bytes();
    let digits =
        |range: std::ops::Range<usize>| b.get(range).is_some_and(|d| d.iter().all(u8::is_ascii_digit));
    let month = digits(0..4) && b.get(4) == Some(&b'-') && digits(5..7) && b.get(7) == Some(&b'.');
    let plain = |c: &u8| c.is_ascii_alphanumeric() || matches!(*c, b'-' | b'.');
    let bad = |c: char| matches!(c, ',' | ';' | '*' | '&' | '$' | '|') || c.is_ascii_whitespace();
    month && b.len() > 8 && b[8..].iter().all(plain) && !name.is_empty() && !name.contains(bad)
}

fn iscsi(source: &At) {
    need(source, &["targetPortal"]);
    let (name, lun) = (source.at("iqn"), source.at("lun"));
    if name.text().is_empty() {
        name.required("");
    } else {
        iscsi_name(&name);
    }
    names::within(&lun, 0, 255);
    let secured = source.at("chapAuthDiscovery").is_true() || source.at("chapAuthSession").is_true();
    if secured && !source.at("secretRef").is_set() {
        source.at("secretRef").required("");
    }
    let initiator = source.at("initiatorName");
    if initiator.is_set() {
        iscsi_name(&source.beside("initiatorname", Some(initiator.value())));
    }
}

/// The name of a volume and its portal together are limited where the other side is named.
pub(crate) fn initiator(volume: &At, source: &At) {
    let name = volume.at("name");
    let length = name.text().len() + 1 + source.at("targetPortal").text().len();
    if source.at("initiatorName").is_set() && length > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
            iscsi.initiatorName is specified.";
        names::tell_one(&name, name.text(), why);
    }
}

fn flocker(source: &At) {
    let (name, id) = (source.at("datasetName"), source.at("datasetUUID"));
    match (name.text().is_empty(), id.text().is_empty()) {
        (true, true) => source.required("one of datasetName and datasetUUID is required"),
        (false, false) => {
            let why = "datasetName and datasetUUID can not be specified simultaneously";
            names::tell_one(source, "resource", why);
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'");
    }
}

/// A host and its port, with a colon between; an address with colons stands in brackets.
fn has_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else { return false };
    let inside = match host.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(inside) => inside,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    ![inside, port].iter().any(|part| part.contains(['[', ']']))
}

fn quobyte(source: &At) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.at("registry"), source.at("tenant"));
    if registry.text().is_empty() {
        registry.required(PAIRS);
    } else if tenant.text().len() >= 65 {
        tenant.required("must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.text().split(',').filter(|pair| !has_port(pair)) {
            registry.invalid(PAIRS);
        }
    }
    need(source, &["volume"]);
}

fn fibre_channel(source: &At) {
    let (targets, ids, lun) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    if targets.is_empty() && ids.is_empty() {
        targets.required("must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        targets.invalid("targetWWNs and wwids can not be specified simultaneously");
    }
    if lun.is_set() {
        names::within(&lun, 0, 255);
    } else {
        lun.required("lun is required if targetWWNs is specified");
    }
}

fn flex(source: &At) {
    need(source, &["driver"]);
    let options = source.at("options");
    for (key, option) in options.entries() {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            names::tell_one(&option, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk(source: &At) {
    need(source, &["diskName", "diskURI"]);
    let (kind, uri) = (source.at("kind"), source.at("diskURI"));
    names::if_set_one_of(&source.at("cachingMode"), &["None", "ReadOnly", "ReadWrite"]);
    names::if_set_one_of(&kind, &["Dedicated", "Managed", "Shared"]);
    if !kind.is_set() {
        return;
    }
    let (start, form) = match kind.text() {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    if !uri.text().starts_with(start) {
        uri.unsupported(&[form]);
    }
}

fn csi(source: &At) {
    source.at("driver").driver_name();
    let secret = source.at("nodePublishSecretRef");
    if !secret.is_set() {
        return;
    }
    let name = secret.at("name");
    if name.text().is_empty() {
        name.required("");
        return;
    }
    for why in names::subdomain(name.text()) {
        // Told as if it were the name of the source.
        let path = format!("{}.name", source.path());
        source.note(Cause::invalid(path, &Value::from(name.text()), &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::json;

    #[test]
    fn names_of_iscsi_and_pairs_of_hosts_and_ports() {
        let told = |name: &str| {
            let causes = Causes::default();
            let value = json!({"iqn": name});
            iscsi_name(&At::root(&value, &causes).at("iqn"));
            causes.into_inner().len()
        };
        for good in
            ["iqn.2015-02.example.com:test", "eui.0123456789abcdef", "naa.0123456789abcdef0123456789abcdef"]
        {
            assert_eq!(told(good), 0, "{good}");
        }
        for bad in ["iqn.2015-02.example.com", "iqn.15-02.a:b", "iqn.2015-02.a:b;c", "eui.1", "naa", "x"] {
            assert_eq!(told(bad), 1, "{bad}");
        }
        assert!(has_port("a:1") && has_port("[::1]:1") && has_port(":"));
        assert!(!has_port("a") && !has_port("::1:1") && !has_port("[::1]"));
    }
}
