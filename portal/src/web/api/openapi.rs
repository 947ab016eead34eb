//! The API's document, in OpenAPI 3.1, made from the table of its routes.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    caller::KEY_HEADER,
    error::ApiError,
    paths::PREFIX,
    table::{Body, ROUTES, Route},
};
use crate::web::session::COOKIE;

/// Parts of a path, and what they are.
const PARTS: [(&str, &str); 4] = [
    ("namespace", "namespace of the job"),
    ("resource", "plural name and group of its kind, such as `pytorchjobs.kubeflow.org`"),
    ("name", "its name"),
    ("path", "full path of the queue, such as `root/research`; its slashes may stand as they are or as %2F"),
];

/// The document, to a caller.
pub async fn served() -> axum::Json<Value> {
    axum::Json(document())
}

/// The whole document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ApiError>();
    let mut paths = Map::new();
    for route in &ROUTES {
        let mut answers = Map::new();
        for (status, about, schema) in route.answers {
            let schema = schema(&mut generator);
            answers.insert(status.to_string(), answer(about, json!(schema)));
        }
        for status in [400, 401, 503].iter().chain(route.errors) {
            answers.entry(status.to_string()).or_insert_with(|| answer("refused", json!(error)));
        }
        let mut operation = json!({"operationId": route.id, "summary": route.summary,
            "parameters": parameters(route), "responses": answers});
        match route.body {
            Body::None => {}
            Body::Json(schema) => {
                operation["requestBody"] = body("application/json", json!(schema(&mut generator)))
            }
            Body::Job => operation["requestBody"] = job_body(),
        }
        if route.path == "/openapi.json" {
            operation["security"] = json!([]);
        }
        let path = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fleet",
            "version": "1",
            "description": "The views of the portal's pages as JSON, and what its forms do. Each caller sees and does what the hub lets him. \
                            Times ending in `S` are seconds since 1970. Fields may be added within a version.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "the portal"}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "a token of the hub, of a user or of a service account"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description":
                    format!("a session of the portal; its writes have header {KEY_HEADER} with the formKey of GET {PREFIX}")},
            },
        },
    })
}

fn answer(about: &str, schema: Value) -> Value {
    json!({"description": about, "content": {"application/json": {"schema": schema}}})
}

fn body(kind: &str, schema: Value) -> Value {
    json!({"required": true, "content": {kind: {"schema": schema}}})
}

/// One object of the hub, or a job file; the hub says what is wrong with it.
fn job_body() -> Value {
    let about = "a PyTorchJob, TFJob, MPIJob, Volcano Job, batch Job, Deployment or StatefulSet, or a job file of OpenPAI";
    json!({"required": true, "content": {
        "application/yaml": {"schema": {"type": "string", "description": about}},
        "application/json": {"schema": {"type": "object", "description": about}},
    }})
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let about = PARTS.iter().find(|(part, _)| *part == name).map_or("", |(_, about)| about);
        json!({"name": name, "in": "path", "required": true, "description": about, "schema": {"type": "string"}})
    });
    let in_query = route.parameters.iter().map(|parameter| {
        json!({"name": parameter.name, "in": "query", "required": false, "description": parameter.about,
            "schema": parameter.takes.schema()})
    });
    in_path.chain(in_query).collect()
}
