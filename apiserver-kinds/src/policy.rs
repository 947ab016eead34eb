//! Disruption budgets, autoscalers, leases, runtime classes, roles and their bindings.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::placing;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::{Value, json};

/// Checks a PodDisruptionBudget.
pub fn budget(new: &At) {
    let spec = new.at("spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        spec.invalid("minAvailable and maxUnavailable cannot be both set");
    }
    for bound in [&least, &most] {
        if !bound.is_set() {
            continue;
        }
        bound.count_or_percent();
        if bound.text().strip_suffix('%').and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 100) {
            bound.invalid("must not be greater than 100%");
        }
    }
    spec.at("selector").label_selector();
    spec.at("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"]);
    let status = new.at("status");
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        status.at(field).non_negative();
    }
}

/// Most seconds of a window, and of a period, of an autoscaler.
const LONGEST_WINDOW_S: i64 = 3600;
const LONGEST_PERIOD_S: i64 = 1800;

/// Checks a HorizontalPodAutoscaler.
pub fn autoscaler(new: &At) {
    let spec = new.at("spec");
    let target = spec.at("scaleTargetRef");
    for field in ["kind", "name"] {
        target.at(field).need_name(NameRule::Path);
    }
    let version = target.at("apiVersion");
    // Only replication controllers belong to the group without a name.
    let core = target.at("kind").text() == "ReplicationController" && version.text() == "v1";
    if !version.text().contains('/') && !core {
        let why = "apiVersion must specify API group";
        version.note(Cause::invalid(version.path(), &json!(version.text()), why));
    }
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    if least.number().is_some_and(|n| n < 1) {
        least.invalid("must be greater than or equal to 1");
    }
    if most.number().unwrap_or(0) < 1 {
        most.invalid("must be greater than 0");
    }
    if least.number().is_some_and(|n| n > most.number().unwrap_or(0)) {
        most.invalid("must be greater than or equal to `minReplicas`");
    }
    for metric in spec.at("metrics").items() {
        metric_source(&metric);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior");
        let rules = rules.at(direction);
        if rules.is_set() {
            scaling_rules(&rules);
        }
    }
}

fn scaling_rules(rules: &At) {
    let window = rules.at("stabilizationWindowSeconds");
    window.non_negative();
    if window.number().is_some_and(|n| n > LONGEST_WINDOW_S) {
        window.invalid(&format!("must be less than or equal to {LONGEST_WINDOW_S}"));
    }
    rules.at("selectPolicy").one_of(&["Disabled", "Max", "Min"]);
    let policies = rules.at("policies");
    if policies.is_empty() {
        policies.required("must specify at least one Policy");
    }
    for policy in policies.items() {
        policy.at("type").need_one_of(&["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let field = policy.at(field);
            if field.number().unwrap_or(0) <= 0 {
                field.invalid("must be greater than zero");
            }
        }
        let period = policy.at("periodSeconds");
        if period.number().is_some_and(|n| n > LONGEST_PERIOD_S) {
            period.invalid(&format!("must be less than or equal to {LONGEST_PERIOD_S}"));
        }
    }
}

fn metric_source(metric: &At) {
    let kinds = [
        ("ContainerResource", "containerResource"),
        ("External", "external"),
        ("Object", "object"),
        ("Pods", "pods"),
        ("Resource", "resource"),
    ];
    let kind = metric.at("type");
    kind.need_one_of(&kinds.map(|(name, _)| name));
    for (name, field) in kinds {
        let source = metric.at(field);
        if kind.text() == name {
            if source.is_set() {
                metric_target(&source, field);
            } else {
                source.required("must populate information for the given metric source");
            }
        } else if source.is_set() {
            source.forbidden("must populate the given metric source only");
        }
    }
}

fn metric_target(source: &At, field: &str) {
    if matches!(field, "resource" | "containerResource") {
        let name = source.at("name");
        if name.text().is_empty() {
            name.required("must specify a resource name");
        }
    } else {
        source.at("metric.name").need();
    }
    if field == "containerResource" {
        source.at("container").need();
    }
    let target = source.at("target");
    target.at("type").need_one_of(&["AverageValue", "Utilization", "Value"]);
    let (share, value) = (target.at("averageUtilization"), target.at("averageValue"));
    if share.number().is_some_and(|n| n < 1) {
        share.invalid("must be greater than 0");
    }
    if field != "resource" && field != "containerResource" {
        return;
    }
    match (share.is_set(), value.is_set()) {
        (true, true) => share.forbidden("may not set both a target raw value and a target utilization"),
        (false, false) => {
            share.required("must set either a target raw value or a target utilization");
        }
        _ => {}
    }
}

/// Checks a Lease.
pub fn lease(new: &At) {
    let spec = new.at("spec");
    spec.at("leaseDurationSeconds").positive();
    spec.at("leaseTransitions").non_negative();
}

/// Checks a RuntimeClass.
pub fn runtime_class(new: &At, old: Option<&At>) {
    let handler = new.at("handler");
    handler.need_name(NameRule::Label);
    let overhead = new.at("overhead.podFixed");
    overhead.entries().for_each(|(_, amount)| amount.quantity());
    new.at("scheduling.nodeSelector").labels();
    placing::tolerations(&new.at("scheduling.tolerations"));
    if let Some(old) = old {
        handler.same_as(&old.at("handler"));
    }
}

/// Checks a Role or a ClusterRole.
pub fn role(new: &At, namespaced: bool) {
    for rule in new.at("rules").items() {
        let (verbs, urls) = (rule.at("verbs"), rule.at("nonResourceURLs"));
        let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
        if verbs.is_empty() {
            verbs.required("verbs must contain at least one value");
        }
        if !urls.is_empty() {
            if namespaced {
                urls.invalid("namespaced rules cannot apply to non-resource URLs");
            }
            if !(groups.is_empty() && resources.is_empty() && rule.at("resourceNames").is_empty()) {
                urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if groups.is_empty() {
            groups.required("resource rules must supply at least one api group");
        }
        if resources.is_empty() {
            resources.required("resource rules must supply at least one resource");
        }
    }
    let aggregation = new.at("aggregationRule");
    if aggregation.is_set() {
        let selectors = aggregation.at("clusterRoleSelectors");
        if selectors.is_empty() {
            selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        selectors.items().for_each(|s| s.label_selector());
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Checks a RoleBinding or a ClusterRoleBinding.
pub fn binding(new: &At, old: Option<&At>, namespaced: bool) {
    let role = new.at("roleRef");
    let (group, kind, name) = (role.at("apiGroup"), role.at("kind"), role.at("name"));
    if group.text() != RBAC {
        group.unsupported(&[RBAC]);
    }
    let kinds: &[&str] = if namespaced { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
    if !kinds.contains(&kind.text()) {
        kind.unsupported(kinds);
    }
    name.need_name(NameRule::Path);
    for subject in new.at("subjects").items() {
        let (kind, group) = (subject.at("kind"), subject.at("apiGroup"));
        let (name, namespace) = (subject.at("name"), subject.at("namespace"));
        name.need();
        match kind.text() {
            "ServiceAccount" => {
                name.name(NameRule::Subdomain);
                if !group.text().is_empty() {
                    group.unsupported(&[""]);
                }
                if !namespaced && namespace.text().is_empty() {
                    namespace.required("");
                }
            }
            "User" | "Group" => {
                if group.text() != RBAC {
                    group.unsupported(&[RBAC]);
                }
            }
            _ => kind.unsupported(&["Group", "ServiceAccount", "User"]),
        }
    }
    if let Some(old) = old
        && old.at("roleRef").value() != role.value()
    {
        role.invalid("cannot change roleRef");
    }
}

/// Checks a CertificateSigningRequest.
pub fn signing_request(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    let (usages, signer) = (spec.at("usages"), spec.at("signerName"));
    if old.is_none() {
        request(&spec.at("request"));
        if usages.is_empty() {
            usages.required("");
        }
        usages_known(&usages);
        signer_name(&signer);
        let seconds = spec.at("expirationSeconds");
        if seconds.number().is_some_and(|n| n < 600) {
            seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
        }
    }
    conditions(new, old, subresource);
    let (certificate, before) =
        (new.at("status.certificate"), old.map(|o| o.at("status.certificate").text()));
    let before = before.unwrap_or_default();
    if !before.is_empty() && certificate.text() != before {
        certificate.forbidden("updates may not change certificate content once it is set");
    } else if before.is_empty() && !certificate.text().is_empty() {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(certificate.text()).unwrap_or_default();
        if !is_pem(&bytes, "CERTIFICATE") {
            certificate.note(Cause::invalid(
                certificate.path(),
                &json!("<certificate data>"),
                "must contain at least one PEM block with type CERTIFICATE",
            ));
        }
    }
}

fn is_pem(bytes: &[u8], label: &str) -> bool {
    let mut blocks = x509_parser::pem::Pem::iter_from_buffer(bytes);
    blocks.next().is_some_and(|block| block.is_ok_and(|b| b.label == label))
}

fn request(at: &At) {
    use base64::Engine;
    use x509_parser::prelude::FromDer;
    let bytes = base64::engine::general_purpose::STANDARD.decode(at.text()).unwrap_or_default();
    let why = match x509_parser::pem::Pem::iter_from_buffer(&bytes).next() {
        Some(Ok(block)) if block.label == "CERTIFICATE REQUEST" => {
            match x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents) {
                Ok(_) => return,
                Err(e) => e.to_string(),
            }
        }
        _ => "PEM block type must be CERTIFICATE REQUEST".to_string(),
    };
    at.note(Cause::invalid(at.path(), &json!("<certificate request>"), &why));
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn usages_known(usages: &At) {
    let mut seen = std::collections::BTreeSet::new();
    for usage in usages.items() {
        if !USAGES.contains(&usage.text()) {
            usage.unsupported(&USAGES);
        } else if !seen.insert(usage.text()) {
            usage.duplicate();
        }
    }
}

fn signer_name(signer: &At) {
    if signer.text().is_empty() {
        signer.required("");
        return;
    }
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version");
        return;
    }
    let fine = signer.text().split_once('/').is_some_and(|(domain, path)| {
        domain.contains('.')
            && fleet_apiserver_schema::validate::name(NameRule::Subdomain, domain).is_none()
            && !path.is_empty()
            && fleet_apiserver_schema::validate::name(NameRule::Subdomain, path).is_none()
    });
    if !fine {
        signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'");
    }
}

fn conditions(new: &At, old: Option<&At>, subresource: &str) {
    let list = new.at("status.conditions");
    let of =
        |at: &At, kind: &str| at.items().find(|c| c.at("type").text() == kind).map(|c| c.value().clone());
    let (approved, denied) = (of(&list, "Approved"), of(&list, "Denied"));
    if approved.is_some() && denied.is_some() {
        list.invalid("Approved and Denied conditions are mutually exclusive");
    }
    list.unique("type");
    for condition in list.items() {
        condition.at("type").need();
        let status = condition.at("status");
        match condition.at("type").text() {
            "Approved" | "Denied" | "Failed" if !matches!(status.text(), "True" | "") => {
                status.unsupported(&["True"]);
            }
            _ => status.need_one_of(&["False", "True", "Unknown"]),
        }
    }
    let Some(old) = old else { return };
    let before = old.at("status.conditions");
    let plain = |c: Option<Value>| {
        c.map(|mut c| {
            for time in ["lastUpdateTime", "lastTransitionTime"] {
                fleet_apiserver_ground::tree::object(&mut c).remove(time);
            }
            c
        })
    };
    for kind in ["Approved", "Denied"] {
        let (now, was) = (of(&list, kind), of(&before, kind));
        if was.is_some() && now.is_none() {
            list.forbidden(&format!("updates may not remove a condition of type {kind:?}"));
        } else if subresource == "status" && plain(now) != plain(was) {
            list.forbidden(&format!("updates may not add or change a condition of type {kind:?}"));
        }
    }
}
