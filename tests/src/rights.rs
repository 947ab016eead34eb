//! A hub that asks who may do what, callers with the roles of the charts, and what those roles allow, read from them.
//!
//! The judgement here is the test's own, some lines of RBAC over the manifests, so that it is the server that is tried.

use anyhow::Context;
use fleet_api::{access, crds::Side, names, yaml};
use fleet_kubesim::local_fleet::prepare_hub;
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, Client, api::PostParams, client::Body};
use serde_json::{Value, json};

use crate::{
    objects,
    servers::{ApiServers, Door, Plane, client_of},
};

/// Namespace and account of the controller, as the charts' README installs it.
pub const CONTROLLER: (&str, &str) = ("fleet-hub", "fleet-controller");

/// A hub with roles, and an administrator's client.
pub struct Hub {
    pub plane: Plane,
    pub client: Client,
}

impl Hub {
    /// The servers that the environment asks for, with the admission policies and tenants' roles of chart `fleet`.
    ///
    /// # Errors
    /// The server does not start, or refuses one of them.
    pub async fn start(door: Door) -> anyhow::Result<Self> {
        let plane = ApiServers::from_env()?.start_with_roles("hub", Side::Hub, door).await?;
        let client = plane.client.clone();
        prepare_hub(&client).await?;
        Ok(Self { plane, client })
    }

    /// A token of that service account.
    ///
    /// # Errors
    /// The hub gives none.
    pub async fn token(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let asked: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
        let granted = accounts.create_token_request(name, &PostParams::default(), &asked).await?;
        granted.status.and_then(|status| status.token).context("a token")
    }

    pub async fn stop(self) {
        self.plane.stop().await;
    }

    /// A client with a token of that service account, over the network where the hub has a socket.
    ///
    /// # Errors
    /// The hub gives no token.
    pub async fn account(&self, namespace: &str, name: &str) -> anyhow::Result<Client> {
        let token = self.token(namespace, name).await?;
        let Some(address) = &self.plane.address else { return Ok(with_token(self.client.clone(), &token)) };
        let mut kubeconfig: Value = yaml::read(&address.kubeconfig)?;
        // In the place of the administrator's credential, whatever it is.
        kubeconfig["users"][0]["user"] = json!({"token": token});
        client_of(&kubeconfig.to_string()).await
    }

    /// Applies manifests in their order.
    ///
    /// # Errors
    /// The hub refuses one.
    pub async fn apply(&self, manifests: &[Value]) -> anyhow::Result<()> {
        for manifest in manifests {
            objects::apply(&self.client, manifest).await?;
        }
        Ok(())
    }

    /// That member's agent, with the rights of `hub-access.yaml`.
    ///
    /// # Errors
    /// The hub refuses a manifest, or gives no token.
    pub async fn agent(&self, cluster: &str) -> anyhow::Result<(Client, Rights)> {
        let manifests = access::member_rights(cluster)?;
        self.apply(&manifests).await?;
        let namespace = names::cluster_namespace(cluster);
        let client = self.account(&namespace, "member-agent").await?;
        Ok((client, Rights::of(&manifests, &namespace, "member-agent")))
    }

    /// A tenant of that namespace, as the head of `tenant.yaml` says.
    ///
    /// # Errors
    /// As there.
    pub async fn tenant(&self, namespace: &str) -> anyhow::Result<(Client, Rights)> {
        let mut manifests = vec![namespace_manifest(namespace), account_manifest(namespace, "tenant")];
        manifests.push(namespace_manifest(names::QUEUE_NAMESPACE));
        for (within, role) in [(namespace, "fleet-tenant"), (names::QUEUE_NAMESPACE, "fleet-queue-reader")] {
            manifests.push(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": format!("tenant-{namespace}"), "namespace": within},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}]}));
        }
        self.apply(&manifests).await?;
        let client = self.account(namespace, "tenant").await?;
        manifests.extend(access::tenant_roles()?);
        Ok((client, Rights::of(&manifests, namespace, "tenant")))
    }

    /// Another account with the rights of a tenant in its namespace.
    ///
    /// # Errors
    /// As there.
    pub async fn colleague(&self, namespace: &str) -> anyhow::Result<Client> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "colleague", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleet-tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "colleague", "namespace": namespace}]});
        self.apply(&[account_manifest(namespace, "colleague"), binding]).await?;
        self.account(namespace, "colleague").await
    }

    /// A portal that keeps users with passwords, with what chart `fleet` gives it for that.
    ///
    /// # Errors
    /// As there.
    pub async fn keeper_of_users(&self) -> anyhow::Result<(Client, Rights)> {
        let (namespace, name) = ("fleet-hub", "fleet-portal");
        let mut manifests = access::pai_users("default")?;
        manifests.extend([
            namespace_manifest(namespace),
            account_manifest(namespace, name),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": access::PAI_USERS},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": access::PAI_PORTAL_ROLE},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
        ]);
        self.apply(&manifests).await?;
        Ok((self.account(namespace, name).await?, Rights::of(&manifests, namespace, name)))
    }

    /// The controller, with the rules of chart `fleet`.
    ///
    /// # Errors
    /// As there.
    pub async fn controller(&self) -> anyhow::Result<Client> {
        let (namespace, name) = CONTROLLER;
        self.apply(&[
            namespace_manifest(namespace),
            account_manifest(namespace, name),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name}, "rules": access::controller_rules()?}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
        ])
        .await?;
        self.account(namespace, name).await
    }
}

/// The same server, asked with a token.
fn with_token(behind: Client, token: &str) -> Client {
    let value = format!("Bearer {token}");
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let (behind, value) = (behind.clone(), value.clone());
        async move {
            request.headers_mut().insert(http::header::AUTHORIZATION, value.parse()?);
            Ok::<_, tower::BoxError>(behind.send(request).await?)
        }
    });
    Client::new(service, "default")
}

pub fn namespace_manifest(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn account_manifest(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
}

/// One thing somebody may want to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    /// `works`, or `works/status`.
    pub resource: String,
    /// Empty for cluster scope, and for all namespaces.
    pub namespace: String,
    /// Empty where the verb names nothing.
    pub name: String,
}

/// What an account may do, by the roles that are bound to it.
#[derive(Clone, Debug, Default)]
pub struct Rights(Vec<Right>);

#[derive(Clone, Debug)]
struct Right {
    /// The one namespace in which it counts; `None` for all, and for cluster scope.
    namespace: Option<String>,
    rule: Value,
}

impl Rights {
    fn of(manifests: &[Value], namespace: &str, account: &str) -> Self {
        let mut rights = Vec::new();
        let bindings =
            manifests.iter().filter(|m| m["kind"].as_str().is_some_and(|k| k.ends_with("RoleBinding")));
        for binding in bindings {
            let subjects = binding["subjects"].as_array();
            let is_bound = subjects.into_iter().flatten().any(|subject| {
                subject["kind"] == "ServiceAccount"
                    && subject["name"] == account
                    && subject["namespace"] == namespace
            });
            if !is_bound {
                continue;
            }
            let within = binding["metadata"]["namespace"].as_str().map(str::to_owned);
            let role = manifests.iter().find(|m| {
                m["kind"] == binding["roleRef"]["kind"] && m["metadata"]["name"] == binding["roleRef"]["name"]
            });
            for rule in role.into_iter().flat_map(|role| rules(role, manifests)) {
                rights.push(Right { namespace: within.clone(), rule });
            }
        }
        Self(rights)
    }

    pub fn allow(&self, question: &Question) -> bool {
        let has = |list: &Value, wanted: &str| {
            list.as_array().into_iter().flatten().any(|entry| entry == wanted || entry == "*")
        };
        self.0.iter().any(|right| {
            let names = &right.rule["resourceNames"];
            right.namespace.as_ref().is_none_or(|namespace| *namespace == question.namespace)
                && has(&right.rule["apiGroups"], &question.group)
                && has(&right.rule["resources"], &question.resource)
                && has(&right.rule["verbs"], question.verb)
                && (names.is_null() || has(names, &question.name))
        })
    }

    /// Every resource and verb that is named anywhere, with its namespace and names: the list itself.
    pub fn list(&self) -> Vec<String> {
        let words = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let mut lines = Vec::new();
        for Right { namespace, rule } in &self.0 {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    let place = namespace.as_deref().unwrap_or("-");
                    let names = words(&rule["resourceNames"]);
                    let names =
                        if names.is_empty() { String::new() } else { format!(" [{}]", names.join(" ")) };
                    let of = if group.is_empty() { "core" } else { &group };
                    lines
                        .push(format!("{place} {of} {resource}{names}: {}", words(&rule["verbs"]).join(" ")));
                }
            }
        }
        lines.sort();
        lines
    }
}

/// The rules of a role, aggregated ones included.
fn rules(role: &Value, manifests: &[Value]) -> Vec<Value> {
    let mut found: Vec<Value> = role["rules"].as_array().cloned().unwrap_or_default();
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    for selector in selectors.into_iter().flatten() {
        let wanted = selector["matchLabels"].as_object();
        let others = manifests.iter().filter(|m| {
            m["kind"] == "ClusterRole"
                && wanted.is_some_and(|wanted| wanted.iter().all(|(k, v)| m["metadata"]["labels"][k] == *v))
        });
        found.extend(others.flat_map(|other| other["rules"].as_array().cloned().unwrap_or_default()));
    }
    found
}

/// Every resource the hub serves with the verbs it takes, asked about in each of the places.
///
/// # Errors
/// The hub does not say what it serves.
pub async fn questions(hub: &Client, places: &[(&str, &[&str])]) -> anyhow::Result<Vec<Question>> {
    let mut lists = vec![(String::new(), "v1".to_owned(), hub.list_core_api_resources("v1").await?)];
    for group in hub.list_api_groups().await?.groups {
        for version in &group.versions {
            let list = hub.list_api_group_resources(&version.group_version).await?;
            lists.push((group.name.clone(), version.version.clone(), list));
        }
    }
    let mut found = Vec::new();
    for (group, version, list) in lists {
        // Whoever is known may ask what he may do.
        let own = list.resources.iter().filter(|resource| !resource.name.starts_with("selfsubject"));
        for resource in own {
            for verb in VERBS.into_iter().filter(|verb| resource.verbs.iter().any(|known| known == verb)) {
                let question = |namespace: &str, name: &str| Question {
                    verb,
                    group: group.clone(),
                    version: version.clone(),
                    resource: resource.name.clone(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                };
                let is_named = matches!(verb, "get" | "update" | "patch" | "delete")
                    || (verb == "create" && resource.name.contains('/'));
                if resource.namespaced && !is_named && verb != "create" && verb != "deletecollection" {
                    found.push(question("", ""));
                }
                for (namespace, names) in places {
                    let namespace = if resource.namespaced { namespace } else { "" };
                    match is_named {
                        true => found.extend(names.iter().map(|name| question(namespace, name))),
                        false => found.push(question(namespace, "")),
                    }
                }
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Asks the hub for it as a request, and returns the status code of the answer.
///
/// # Errors
/// No answer.
pub async fn ask(client: &Client, question: &Question) -> anyhow::Result<u16> {
    let root = match question.group.as_str() {
        "" => format!("/api/{}", question.version),
        group => format!("/apis/{group}/{}", question.version),
    };
    let (plural, sub) = question.resource.split_once('/').unwrap_or((&question.resource, ""));
    let mut path = root;
    if !question.namespace.is_empty() && plural != "namespaces" {
        path.push_str(&format!("/namespaces/{}", question.namespace));
    }
    path.push_str(&format!("/{plural}"));
    if !question.name.is_empty() {
        path.push_str(&format!("/{}", question.name));
    }
    if !sub.is_empty() {
        path.push_str(&format!("/{sub}"));
    }
    match question.verb {
        "get" | "list" => {}
        "watch" => path.push_str("?watch=true&timeoutSeconds=1"),
        // What is allowed must not end the one who asks.
        _ => path.push_str("?dryRun=All"),
    }
    let (method, body) = match question.verb {
        "get" | "list" | "watch" => ("GET", ""),
        "create" => ("POST", "{}"),
        "update" => ("PUT", "{}"),
        "patch" => ("PATCH", "{}"),
        _ => ("DELETE", ""),
    };
    let kind = if question.verb == "patch" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder()
        .method(method)
        .uri(&path)
        .header("content-type", kind)
        .body(Body::from(body.as_bytes().to_vec()))?;
    // The body of a watch is dropped with the answer.
    let answer = client.send(request).await.with_context(|| format!("{method} {path}"))?;
    Ok(answer.status().as_u16())
}
