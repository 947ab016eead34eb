//! Tokens of the hub: who gets one, for how long, and that a bootstrap token serves one agent.

use std::time::Duration;

use fleet_api::access::{self, AGENT_ACCOUNT, BOOTSTRAP, CLAIM, CLAIM_ANNOTATION};
use fleet_tests::{
    Polled,
    objects::{self, Kind, SECRET, SERVICE_ACCOUNT},
    rights::{Hub, account_manifest},
    servers::Door,
    wait_for,
};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";

fn body(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

/// By the admission policy of that name, as a missing right.
fn denied<T: std::fmt::Debug>(what: &str, policy: &str, answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains(policy) => {}
        other => panic!("{what}: found {other:?}; allowed: a refusal by {policy}"),
    }
}

/// Waits until the policy is in force. A real server knows it a second or two after it was created.
async fn in_force<T: std::fmt::Debug>(
    policy: &str,
    mut ask: impl AsyncFnMut() -> Result<T, kube::Error>,
) -> anyhow::Result<()> {
    wait_for(&format!("{policy} to be in force"), Duration::from_secs(10), async || {
        let answer = ask().await;
        let is_denied =
            matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains(policy));
        Ok(Polled::when(is_denied, || format!("{answer:?}")))
    })
    .await
}

fn token_secret(name: &str, account: &str) -> DynamicObject {
    body(json!({"apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {"name": name, "annotations": {NAME: account}}}))
}

async fn request(
    of: &Client,
    (namespace, account): (&str, &str),
    metadata: Value,
    seconds: i64,
) -> Result<TokenRequest, kube::Error> {
    let asked = json!({"metadata": metadata, "spec": {"audiences": [], "expirationSeconds": seconds}});
    let asked: TokenRequest = serde_json::from_value(asked).expect("a request");
    let accounts: Api<ServiceAccount> = Api::namespaced(of.clone(), namespace);
    accounts.create_token_request(account, &PostParams::default(), &asked).await
}

/// `fleet.dev/submitters` and the roles of accounts rely on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_gets_no_token_of_another_account_by_a_secret() -> anyhow::Result<()> {
    const POLICY: &str = "fleet-account-tokens";
    let hub = Hub::start(Door::InProcess).await?;
    let (tenant, _) = hub.tenant("team-a").await?;
    hub.apply(&[account_manifest("team-a", "ci"), account_manifest("team-a", "mine")]).await?;
    let (post, params) = (PostParams::default(), PatchParams::default());
    let secrets = |of: &Client| Kind::api(SECRET, of, "team-a");
    let (own, admin) = (secrets(&tenant), secrets(&hub.client));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    in_force(POLICY, async || own.create(&dry_run, &token_secret("tok0", "ci")).await).await?;
    denied("a Secret for ci", POLICY, own.create(&post, &token_secret("tok1", "ci")).await);
    let apply = json!({"apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {"name": "tok1", "annotations": {NAME: "ci"}}});
    let applied = own.patch("tok1", &PatchParams::apply("mine"), &Patch::Apply(&apply)).await;
    denied("an apply of one", POLICY, applied);
    own.create(&post, &body(json!({"metadata": {"name": "plain", "annotations": {NAME: "ci"}}}))).await?;

    // One that an administrator made is not turned into another's.
    admin.create(&post, &token_secret("given", "mine")).await?;
    wait_for("the Secret to have its token", Duration::from_secs(10), async || {
        let given = admin.get("given").await?;
        Ok(Polled::when(given.data["data"]["token"].is_string(), || given.data.to_string()))
    })
    .await?;
    for change in [
        json!({"metadata": {"annotations": {NAME: "ci"}}}),
        json!({"data": {"token": null}}),
        json!({"data": null, "metadata": {"annotations": {NAME: "ci", "kubernetes.io/service-account.uid": null}}}),
    ] {
        denied(&change.to_string(), POLICY, own.patch("given", &params, &Patch::Merge(&change)).await);
    }
    let nameless = json!({"metadata": {"annotations": null}});
    assert!(own.patch("given", &params, &Patch::Merge(&nameless)).await.is_err());
    let label = json!({"metadata": {"labels": {"of": "tenant"}}});
    own.patch("given", &params, &Patch::Merge(&label)).await?;

    // Who may request tokens of one account may have its Secret, and no other's.
    let rbac = "rbac.authorization.k8s.io/v1";
    hub.apply(&[
        json!({"apiVersion": rbac, "kind": "Role", "metadata": {"name": "tokens", "namespace": "team-a"}, "rules": [
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["mine"], "verbs": ["create"]}]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "tokens", "namespace": "team-a"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tokens"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "team-a"}]}),
    ])
    .await?;
    own.create(&post, &token_secret("tok2", "mine")).await?;
    denied("a Secret for ci, still", POLICY, own.create(&post, &token_secret("tok3", "ci")).await);
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_token_lives_a_day_at_most() -> anyhow::Result<()> {
    const POLICY: &str = "fleet-agent-tokens";
    let hub = Hub::start(Door::InProcess).await?;
    let (east, _) = hub.agent("east").await?;
    let own = ("fleet-east", AGENT_ACCOUNT);
    in_force(POLICY, async || request(&east, own, json!({}), 1 << 32).await).await?;
    for seconds in [86_401, 365 * 86_400, 1 << 32] {
        denied("a long life", POLICY, request(&east, own, json!({}), seconds).await);
    }
    for seconds in [600, 86_400] {
        request(&east, own, json!({}), seconds).await?;
    }
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_token_serves_one_agent() -> anyhow::Result<()> {
    let hub = Hub::start(Door::InProcess).await?;
    hub.agent("east").await?;
    hub.apply(&access::bootstrap_rights("east")).await?;
    // Whoever has the token is the same to the hub.
    let holder = hub.account("fleet-east", BOOTSTRAP).await?;
    let own = ("fleet-east", AGENT_ACCOUNT);
    let says = |word: &str| json!({"annotations": {CLAIM_ANNOTATION: word}});
    let (first, second) = ("a".repeat(32), "b".repeat(32));
    const TOKENS: &str = "fleet-bootstrap-tokens";
    in_force(TOKENS, async || request(&holder, own, says(""), 3600).await).await?;
    for word in ["", &first] {
        denied("before a claim", TOKENS, request(&holder, own, says(word), 3600).await);
    }
    // Two policies refuse it, and servers differ in which they name.
    denied("a long life", "fleet-", request(&holder, own, says(&first), 1 << 32).await);

    const POLICY: &str = "fleet-bootstrap-claim";
    let secrets = Kind::api(SECRET, &holder, "fleet-east");
    let params = PatchParams::default();
    let claim = async |metadata: Value| {
        secrets.patch(CLAIM, &params, &Patch::Merge(&json!({"metadata": metadata}))).await
    };
    denied("a short word", POLICY, claim(says("short")).await);
    denied("none", POLICY, claim(json!({"labels": {"a": "b"}})).await);
    // Nor does it hold up the removal of the namespace.
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "y"});
    for (field, value) in [("finalizers", json!(["example.com/mine"])), ("ownerReferences", json!([owner]))] {
        let mut metadata = says(&first);
        metadata[field] = value;
        denied(field, POLICY, claim(metadata).await);
    }
    // Of those who try at once one is first.
    let words: Vec<String> = ('a'..='h').map(|letter| letter.to_string().repeat(32)).collect();
    let answers = futures::future::join_all(words.iter().map(|word| claim(says(word)))).await;
    let winners: Vec<&String> =
        words.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(word, _)| word).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let winner = winners[0];
    // The others neither learn its word nor change it, also by a change of nothing.
    let loser = if *winner == first { &second } else { &first };
    for metadata in
        [json!({}), json!({"annotations": {}}), says(loser), says(winner), json!({"annotations": null})]
    {
        denied(&metadata.to_string(), POLICY, claim(metadata).await);
    }
    assert!(secrets.get(CLAIM).await.is_err() && secrets.list(&Default::default()).await.is_err());
    let answers = futures::future::join_all((0..8).map(|_| request(&holder, own, says(loser), 3600))).await;
    for answer in answers {
        denied("another word", TOKENS, answer);
    }
    denied("no word", TOKENS, request(&holder, own, json!({}), 3600).await);
    // An exchange that was interrupted is repeated.
    for _ in 0..2 {
        request(&holder, own, says(winner), 86_400).await?;
    }
    let post = PostParams::default();
    assert!(secrets.create(&post, &token_secret("x", AGENT_ACCOUNT)).await.is_err());
    objects::get(&hub.client, SERVICE_ACCOUNT, "fleet-east", AGENT_ACCOUNT).await?;
    hub.stop().await;
    Ok(())
}
