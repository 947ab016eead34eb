//! Where others learn how service account tokens are checked: the issuer's configuration and its keys.
//!
//! Source: OpenID Connect Discovery 1.0, as far as Kubernetes has it.

use axum::body::Body;
use fleet_apiserver_admission::access::accounts;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::http_io;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

/// Path of the configuration.
pub const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// Path of the keys.
pub const KEYS: &str = "/openid/v1/jwks";

/// The answer at one of the paths.
pub fn answer(core: &Core, path: &str) -> Option<Response<Body>> {
    let (value, media) = match path {
        CONFIGURATION => (
            json!({
                "issuer": accounts::AUDIENCE, "jwks_uri": format!("{}{KEYS}", address(core)),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }),
            "application/json",
        ),
        KEYS => (core.auth.signer.public(), "application/jwk-set+json"),
        _ => return None,
    };
    let mut response = http_io::value_response(StatusCode::OK, &value);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Some(response)
}

/// Where the server listens, as it has announced itself; the issuer's name if it has not.
fn address(core: &Core) -> String {
    let slice = core.store.table("discovery.k8s.io/endpointslices").get("default/kubernetes");
    let found = slice.and_then(|slice| {
        let (endpoints, ports) = (slice.list(&["endpoints"]), slice.list(&["ports"]));
        let host = tree::list(endpoints.first()?, &["addresses"]).first()?.as_str()?.to_string();
        Some((host, tree::number(ports.first()?, &["port"])))
    });
    match found {
        Some((host, port)) if host.contains(':') => format!("https://[{host}]:{port}"),
        Some((host, port)) => format!("https://{host}:{port}"),
        None => accounts::AUDIENCE.to_string(),
    }
}
