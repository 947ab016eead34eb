//! Random input through the in-process door: no panic, always an answer, and every refusal is a Status.

use axum::body::Body;
use fleet_apiserver::{Access, ApiServer, Config};
use http::Request;
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::OnceLock;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

struct Api {
    runtime: tokio::runtime::Runtime,
    server: ApiServer,
}

/// One server for all cases of a test.
fn api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let config = Config { access: Access::Rbac, ..Config::default() };
        let server = runtime.block_on(ApiServer::open(config)).expect("opens");
        let api = Api { runtime, server };
        let body = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}).to_string();
        assert_eq!(api.ask("POST", MAPS, &[], body.into_bytes()).0, 201);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            .to_string();
        assert_eq!(api.ask("POST", PODS, &[], pod.into_bytes()).0, 201);
        api
    })
}

impl Api {
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        // What HTTP itself refuses never reaches the server.
        let Ok(request) = request.body(Body::from(body)) else { return (400, json!({"kind": "Status"})) };
        self.runtime.block_on(async {
            let response = self.server.router().oneshot(request).await.expect("answers");
            let code = response.status().as_u16();
            if path.contains("watch") && code == 200 {
                return (code, Value::Null);
            }
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
        })
    }

    /// An answer below 500 (or the recorded 500 of bad applies), and a Status when it is a refusal.
    fn check(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<u16, TestCaseError> {
        let shown = String::from_utf8_lossy(&body).chars().take(200).collect::<String>();
        let (code, answer) = self.ask(method, path, headers, body);
        prop_assert!(code <= 504, "{} {}: {} {}", method, path, code, answer);
        if code >= 400 && answer != Value::Null {
            prop_assert_eq!(&answer["kind"], "Status", "{} {} {}: {}", method, path, shown, answer);
            let text = answer["message"].as_str().unwrap_or_default();
            prop_assert!(text.len() < 100_000, "a message of {} bytes", text.len());
        }
        Ok(code)
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z$./~-]{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("metadata".to_string()),
        Just("name".to_string()),
        Just("spec".to_string()),
        Just("containers".to_string()),
        Just("labels".to_string()),
        Just("finalizers".to_string()),
        Just("ownerReferences".to_string()),
        Just("managedFields".to_string()),
        Just("data".to_string()),
        Just("$patch".to_string()),
        Just("$retainKeys".to_string()),
        Just("$setElementOrder/containers".to_string()),
        Just("$deleteFromPrimitiveList/finalizers".to_string()),
        Just("kind".to_string()),
        Just("apiVersion".to_string()),
        Just("f:spec".to_string()),
        Just("fieldsV1".to_string()),
        "[a-z]{1,5}",
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let place = prop_oneof![
        Just("/metadata".to_string()),
        Just(String::new()),
        Just("/data/k".to_string()),
        Just("/spec/containers/0".to_string()),
        "(/[a-z0-9~-]{0,6}){0,4}"
    ];
    let op = prop_oneof![
        Just("add"),
        Just("remove"),
        Just("replace"),
        Just("move"),
        Just("copy"),
        Just("test"),
        Just("bogus")
    ];
    (op, place.clone(), place, any_json())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

/// Pieces of protobuf: fields with tags and lengths that mostly make sense.
fn protobuf() -> impl Strategy<Value = Vec<u8>> {
    let field =
        (1u8..30, 0u8..6, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(tag, wire, payload)| {
            let mut out = vec![(tag << 3) | wire];
            if wire == 2 {
                out.push(payload.len() as u8);
            }
            out.extend(payload);
            out
        });
    let kinds = prop_oneof![
        Just(("v1", "ConfigMap")),
        Just(("v1", "Pod")),
        Just(("apps/v1", "Deployment")),
        Just(("v1", "DeleteOptions")),
        Just(("x", "y"))
    ];
    (kinds, prop::collection::vec(field, 0..12)).prop_map(|((version, kind), fields)| {
        let raw: Vec<u8> = fields.concat();
        let mut meta = vec![0x0a, version.len() as u8];
        meta.extend(version.bytes());
        meta.extend([0x12, kind.len() as u8]);
        meta.extend(kind.bytes());
        let mut out = b"k8s\0\x0a".to_vec();
        out.push(meta.len() as u8);
        out.extend(meta);
        out.push(0x12);
        // Lengths above 127 take two bytes.
        let n = raw.len();
        if n < 128 {
            out.push(n as u8)
        } else {
            out.extend([(n & 0x7f) as u8 | 0x80, (n >> 7) as u8])
        }
        out.extend(raw);
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bodies(bytes in prop::collection::vec(any::<u8>(), 0..300), object in any_json()) {
        for media in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"] {
            api().check("POST", MAPS, &[("content-type", media)], bytes.clone())?;
        }
        let text = object.to_string().into_bytes();
        for path in [&format!("{PODS}?dryRun=All"), &format!("{MAPS}?dryRun=All&fieldValidation=Strict"),
            "/apis/apps/v1/namespaces/default/deployments?dryRun=All", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All", "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews", "/api/v1/namespaces/default/serviceaccounts/default/token",
            &format!("{PODS}/p/eviction?dryRun=All"), &format!("{PODS}/p/binding?dryRun=All")]
        {
            api().check("POST", path, &[("content-type", "application/json")], text.clone())?;
            api().check("POST", path, &[("content-type", "application/yaml")], text.clone())?;
        }
        api().check("PUT", &format!("{PODS}/p?dryRun=All"), &[], text.clone())?;
        api().check("DELETE", &format!("{PODS}/p?dryRun=All"), &[], text)?;
    }

    #[test]
    fn patches(patch in any_json(), operations in prop::collection::vec(operation(), 0..8)) {
        for (at, media) in [(MAPS, "merge"), (PODS, "strategic-merge"), (MAPS, "strategic-merge")] {
            let item = format!("{at}/{}?dryRun=All", if at == MAPS { "a" } else { "p" });
            api().check("PATCH", &item, &[("content-type", &format!("application/{media}-patch+json"))], patch.to_string().into_bytes())?;
        }
        let list = Value::Array(operations).to_string().into_bytes();
        for item in [format!("{MAPS}/a?dryRun=All"), format!("{PODS}/p/status?dryRun=All")] {
            api().check("PATCH", &item, &[("content-type", "application/json-patch+json")], list.clone())?;
        }
        let mut applied = patch;
        if let Value::Object(map) = &mut applied {
            map.insert("apiVersion".into(), "v1".into());
            map.insert("kind".into(), "Pod".into());
        }
        let item = format!("{PODS}/p?dryRun=All&fieldManager=f&force=true");
        api().check("PATCH", &item, &[("content-type", "application/apply-patch+yaml")], applied.to_string().into_bytes())?;
    }

    #[test]
    fn queries(selector in "[a-z=!,()<> %/.{}\"']{0,40}", key in "[a-zA-Z]{1,12}", value in "[ -~]{0,20}", rest in "[!-~]{0,40}") {
        let clean = |s: &str| percent_encoding::utf8_percent_encode(s, percent_encoding::NON_ALPHANUMERIC).to_string();
        let (selector, value) = (clean(&selector), clean(&value));
        for query in [
            format!("labelSelector={selector}"), format!("fieldSelector={selector}"), format!("{key}={value}"), format!("limit={value}&continue={value}"),
            format!("resourceVersion={value}&resourceVersionMatch={value}"), format!("labelSelector={selector}&watch=true&timeoutSeconds=1"),
            format!("timeout={value}"), rest.clone(),
        ] {
            api().check("GET", &format!("{PODS}?{query}"), &[], Vec::new())?;
        }
        api().check("GET", &format!("/{}", rest.trim_start_matches('/')), &[], Vec::new())?;
        api().check("GET", &format!("/apis/{rest}/v1/{value}"), &[("accept", &rest)], Vec::new())?;
    }

    #[test]
    fn messages(body in protobuf()) {
        for path in [MAPS, PODS, "/apis/apps/v1/namespaces/default/deployments"] {
            let at = format!("{path}?dryRun=All");
            api().check("POST", &at, &[("content-type", "application/vnd.kubernetes.protobuf")], body.clone())?;
        }
        api().check("DELETE", &format!("{MAPS}/none"), &[("content-type", "application/vnd.kubernetes.protobuf")], body)?;
    }

    #[test]
    fn tokens(token in "[ -~]{0,200}", parts in prop::collection::vec("[A-Za-z0-9_-]{0,40}", 0..5), user in "[ -~]{0,40}") {
        for text in [format!("Bearer {token}"), token.clone(), format!("Bearer {}", parts.join("."))] {
            let code = api().check("GET", PODS, &[("authorization", text.trim())], Vec::new())?;
            // A header without a token is nobody's, and nobody may see pods.
            prop_assert!(matches!(code, 400 | 401 | 403), "{} is let in: {}", text, code);
        }
        let code = api().check("GET", PODS, &[("impersonate-user", user.trim()), ("impersonate-group", "dev")], Vec::new())?;
        prop_assert!(matches!(code, 200 | 400 | 403 | 500), "{}: {}", user, code);
    }
}
