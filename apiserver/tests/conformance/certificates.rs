//! Requests for certificates: what may be asked for, what is decided, and what is issued.

use crate::api::{Api, random, signing_request};
use crate::table::{LABEL, SUBDOMAIN, kept, merged, refused};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(spec: Value) -> Value {
    let base = json!({"metadata": {"name": random("csr-")}, "spec": {"request": signing_request("dave"),
        "usages": ["client auth"], "signerName": "example.com/signer"}});
    merged(&base, &json!({"spec": spec}))
}

/// A block of PEM in base64, as objects carry it; with a header, or without.
fn block(label: &str, header: &str, contents: &[u8]) -> String {
    let body = STANDARD.encode(contents);
    STANDARD.encode(format!("-----BEGIN {label}-----\n{header}{body}\n-----END {label}-----\n"))
}

/// A certificate that signs itself.
fn certificate() -> rcgen::Certificate {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["dave".to_string()]).expect("a name");
    params.self_signed(&key).expect("a certificate")
}

#[tokio::test]
async fn requests_for_certificates_are_told_what_is_wrong() {
    let api = Api::new().await;
    let text = String::from_utf8(STANDARD.decode(signing_request("dave")).unwrap()).unwrap();
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(body).unwrap();
    // The name is another one than that which was signed.
    let mut forged = der.clone();
    let place = forged.windows(4).position(|word| word == b"dave").unwrap();
    forged[place] = b'e';
    let forged = block("CERTIFICATE REQUEST", "", &forged);
    let shown: String = forged.chars().take(150).collect();
    let unknown = |i: usize| {
        format!(
            "spec.usages[{i}]: Unsupported value: \"x\": supported values: \"any\", \"cert sign\", \"client auth\", \"code signing\", \"content commitment\", \"crl sign\",…"
        )
    };
    let signer = |name: &str| request(json!({"signerName": name}));
    let form = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    let said = |found: &str, why: &str| format!("spec.signerName: Invalid value: {found:?}: {why}");
    let long = format!("{}.b", "a".repeat(254));
    refused(
        &api,
        REQUESTS,
        &[
            (request(json!({"request": forged})), &[&format!("spec.request: Invalid value: \"{shown}…")]),
            (
                request(json!({"request": ""})),
                &["spec.request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST"],
            ),
            (
                request(json!({"usages": ["x", "client auth", "client auth", "x"]})),
                &[
                    &unknown(0),
                    &unknown(3),
                    "spec.usages[2]: Duplicate value: \"client auth\"",
                    "spec.usages[3]: Duplicate value: \"x\"",
                ],
            ),
            (request(json!({"usages": []})), &["spec.usages: Required value"]),
            (
                request(json!({"expirationSeconds": 599})),
                &["spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"],
            ),
            (signer(""), &["spec.signerName: Required value"]),
            (signer("a/b/c"), &[&said("a/b/c", form)]),
            (signer("A.b/c"), &[&said("A.b", &format!("validating label \"A\": {LABEL}"))]),
            (signer("ab/c"), &[&said("ab", "should be a domain with at least two segments separated by dots")]),
            (signer("a.b/C"), &[&said("C", &format!("validating label \"C\": {SUBDOMAIN}"))]),
            (
                signer("kubernetes.io/legacy-unknown"),
                &[&said("kubernetes.io/legacy-unknown", "the legacy signerName is not allowed via this API version")],
            ),
            (
                signer(&format!("{long}/c")),
                &["spec.signerName: Too long: may not be more than 253 bytes", "spec.signerName: Invalid value: \"aaaa…"],
            ),
        ],
    )
    .await;
    let answer = api.post(&format!("{REQUESTS}?dryRun=All"), request(json!({"request": forged}))).await;
    assert!(answer.message().ends_with("x509: ECDSA verification failure"), "{}", answer.text);
    // Neither what stands in a header nor what follows the block matters, and any name of a path will do.
    let with_header = block("CERTIFICATE REQUEST", "A: b\n\n", &der);
    let followed = STANDARD.encode(format!("{text}x"));
    for fine in [with_header, followed] {
        api.post(&format!("{REQUESTS}?dryRun=All"), request(json!({"request": fine}))).await.expect(201);
    }
    let named = merged(&request(json!({})), &json!({"metadata": {"name": "A_b:c"}}));
    api.post(&format!("{REQUESTS}?dryRun=All"), named).await.expect(201);
    api.done().await;
}

fn decided(conditions: Value) -> Value {
    json!({"status": {"conditions": conditions}})
}

#[tokio::test]
async fn requests_are_approved_or_denied_once() {
    let api = Api::new().await;
    let made = api.post(REQUESTS, request(json!({}))).await.expect(201).body;
    let at = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap());
    let (approval, status) = (format!("{at}/approval"), format!("{at}/status"));
    let of = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R"});
    let odd = json!([
        of("", ""),
        of("Approved", "False"),
        of("Denied", "True"),
        of("X", "Maybe"),
        of("X", "True"),
        of("Denied", "Unknown")
    ]);
    let both =
        "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
    let only = "Unsupported value: \"False\": supported values: \"True\"";
    let list = "status.conditions";
    kept(
        &api,
        &approval,
        &[(
            decided(odd),
            &[
                &format!("{list}[0].type: Required value"),
                &format!("{list}[0].status: Required value"),
                &format!("{list}[1].status: {only}"),
                both,
                &format!("{list}[3].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\""),
                &format!("{list}[4].type: Duplicate value: \"X\""),
                &format!("{list}[5].status: Unsupported value: \"Unknown\": supported values: \"True\""),
                both,
                &format!("{list}[5].type: Duplicate value: \"Denied\""),
            ],
        )],
    )
    .await;
    let (yes, no) = (of("Approved", "True"), of("Denied", "True"));
    api.patch(&approval, "merge", decided(json!([yes]))).await.expect(200);
    let may_not = |verb: &str, kind: &str| {
        format!("{list}: Forbidden: updates may not {verb} a condition of type {kind:?}")
    };
    kept(
        &api,
        &approval,
        &[(decided(json!([])), &[&may_not("remove", "Approved")]), (decided(json!([yes, no])), &[both])],
    )
    .await;
    kept(
        &api,
        &status,
        &[
            (decided(json!([])), &[&may_not("remove", "Approved")]),
            (decided(json!([yes, no])), &[both, &may_not("add", "Denied")]),
        ],
    )
    .await;
    // A decision is not the signer's: what is sent of it is left out.
    let other = api.patch(&status, "merge", decided(json!([of("Approved", "False")]))).await.expect(200).body;
    assert_eq!(other["status"]["conditions"][0]["status"], "True");
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn certificates_are_issued_once() {
    let api = Api::new().await;
    let made = api.post(REQUESTS, request(json!({}))).await.expect(201).body;
    let at = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap());
    let status = format!("{at}/status");
    let issued = |certificate: &str| json!({"status": {"certificate": certificate}});
    let wrong = |why: &str| format!("status.certificate: Invalid value: \"<certificate data>\": {why}");
    let certificate = certificate();
    let (short, _) = certificate.der().split_at(certificate.der().len() - 5);
    kept(
        &api,
        &status,
        &[
            (issued("eA=="), &[&wrong("must contain at least one CERTIFICATE PEM block")]),
            (
                issued(&signing_request("dave")),
                &[&wrong("only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"")],
            ),
            (issued(&block("CERTIFICATE", "", b"hello")), &[&wrong("x509: malformed certificate")]),
            (issued(&block("CERTIFICATE", "", short)), &[&wrong("x509: malformed certificate")]),
            (
                issued(&block("CERTIFICATE", "A: b\n\n", certificate.der())),
                &[&wrong("no PEM block headers are permitted")],
            ),
            (
                issued(&block("CERTIFICATE", "", b"")),
                &[&wrong("found CERTIFICATE PEM block containing 0 certificates")],
            ),
        ],
    )
    .await;
    api.patch(&status, "merge", issued(&STANDARD.encode(certificate.pem()))).await.expect(200);
    let stays = "status.certificate: Forbidden: updates may not modify existing certificate content";
    let again = STANDARD.encode(format!("{}\n", certificate.pem()));
    kept(
        &api,
        &status,
        &[
            (issued(&again), &[stays]),
            (issued("eA=="), &[&wrong("must contain at least one CERTIFICATE PEM block"), stays]),
        ],
    )
    .await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}
