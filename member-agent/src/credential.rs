//! The agent's credential on the hub: obtained once with a bootstrap token, stored in the member, renewed
//! long before it expires.
//!
//! A bootstrap token lives an hour and serves one agent. Its first user leaves a word of its own in a Secret of
//! the hub that nobody with such a token can read or change again, and the hub gives tokens of the agent's
//! account only to whoever says that word. Then the user deletes the Secret to which the bootstrap token is
//! bound. A restart loses nothing: word and credential are in Secret `fleet-agent-hub` of the member's
//! `fleet-system`, the word before it is used.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use fleet_api::{
    access::{AGENT_ACCOUNT, BOOTSTRAP, CLAIM, CLAIM_ANNOTATION},
    names,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use fleet_agent_ground::{Backoff, CallError, call};

/// Secret of the member with the credential.
pub const CREDENTIAL_SECRET: &str = "fleet-agent-hub";
/// Its entry with the word of the claim.
const WORD: &str = "claim";
/// Lifetime of the agent's token. It is renewed after two thirds.
const LIFE_S: i64 = 24 * 3600;
/// A stored token with less time left is not used at the start.
const LEAST_LEFT_S: i64 = 60;
/// Attempts to get a token after a claim: an API server's policies may see the claim a little later.
const CLAIM_TRIES: usize = 10;
const CLAIM_STEP: Duration = Duration::from_millis(500);

/// Why a bootstrap token is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(
        "cluster {cluster:?}: the hub refuses the bootstrap token ({why}): its hour is over, or it was used already. `fleet join \
         {cluster}` gives a new one; if no agent of this cluster has used it, somebody else has: `fleet status {cluster}` says who \
         speaks for it, `fleet unjoin {cluster}` ends what they got"
    )]
    Bootstrap { cluster: String, why: String },
    #[error(
        "cluster {cluster:?}: this member keeps no credential of the hub and no bootstrap token was given; `fleet join {cluster}` \
         gives one"
    )]
    Nothing { cluster: String },
}

/// Where the agent's credential comes from, and where it is stored.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cluster: String,
    /// Kubeconfig of the hub with a bootstrap token.
    pub bootstrap: Option<PathBuf>,
    /// Folder for the token's file; clients read it again from there.
    pub folder: PathBuf,
}

/// A token, with the data needed to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub server: String,
    /// PEM in base64; empty: the system's trusted roots.
    pub ca: String,
    pub token: String,
    pub expires: Timestamp,
}

/// The agent's client configuration for the hub: from the credential stored in the member, or from a new one.
///
/// # Errors
/// [`Refused`], a file that cannot be read or written, or no answer from the member.
pub async fn open(member: &Client, settings: &Settings) -> anyhow::Result<(Config, Credential)> {
    let bootstrap = settings.bootstrap.as_deref().map(read).transpose()?;
    if let Some(kept) = kept(member).await? {
        let left = kept.expires.as_second() - Timestamp::now().as_second();
        // A cluster that joined again has another hub, or another account.
        if left > LEAST_LEFT_S && is_accepted(&kept, settings).await? {
            let config = config(&kept, settings).await?;
            return Ok((config, kept));
        }
    }
    let Some(bootstrap) = bootstrap else {
        return Err(Refused::Nothing { cluster: settings.cluster.clone() }.into());
    };
    let word = word(member).await.context("cannot store the word of the claim in the member")?;
    let credential = exchange(bootstrap, &settings.cluster, &word).await?;
    keep(member, &credential).await.context("cannot store the credential in the member")?;
    let config = config(&credential, settings).await?;
    tracing::info!(cluster = %settings.cluster, expires = %credential.expires, "has a credential of the hub");
    Ok((config, credential))
}

/// Renews the credential after two thirds of its lifetime, until `shutdown`.
pub async fn renew(
    hub: Client,
    member: Client,
    settings: Settings,
    mut credential: Credential,
    shutdown: CancellationToken,
) {
    let mut backoff = Backoff::new(&format!("{}/credential", settings.cluster));
    loop {
        let left = (credential.expires.as_second() - Timestamp::now().as_second()).max(0) as u64;
        let wait = Duration::from_secs(left.saturating_sub(LIFE_S as u64 / 3));
        if shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
        let renewed = async {
            let (token, expires) = request(&hub, &settings.cluster, None).await?;
            let renewed = Credential { token, expires, ..credential.clone() };
            keep(&member, &renewed).await?;
            write(&renewed, &settings)?;
            anyhow::Ok(renewed)
        };
        match renewed.await {
            Ok(renewed) => {
                backoff.reset();
                credential = renewed;
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(cluster = %settings.cluster, expires = %credential.expires, %error, "cannot renew the credential of the hub; retrying");
                if shutdown.run_until_cancelled(backoff.wait()).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Exchanges a bootstrap token for a token of the agent's account; the bootstrap token is invalid afterwards. `word`, of 32
/// characters or more, is this user's own: with the same one an exchange that was interrupted is repeated.
///
/// # Errors
/// [`Refused`], or the hub's error.
pub async fn exchange(bootstrap: Kubeconfig, cluster: &str, word: &str) -> anyhow::Result<Credential> {
    let of_cluster = bootstrap.clusters.first().and_then(|named| named.cluster.clone()).unwrap_or_default();
    let config = Config::from_custom_kubeconfig(bootstrap, &KubeConfigOptions::default())
        .await
        .context("the bootstrap kubeconfig names no usable cluster")?;
    let hub = Client::try_from(config)?;
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), &names::cluster_namespace(cluster));
    let claim = json!({"metadata": {"annotations": {CLAIM_ANNOTATION: word}}});
    let claimed = call(secrets.patch(CLAIM, &PatchParams::default(), &Patch::Merge(&claim))).await;
    // Refused: somebody has claimed, perhaps this agent before a restart. The word tells.
    let mut tries = if claimed.is_ok() { CLAIM_TRIES } else { 1 };
    if let Err(error) = claimed
        && error.code().is_none_or(|code| code >= 500)
    {
        return Err(error).context("cannot claim the agent's account with the bootstrap token");
    }
    let (token, expires) = loop {
        tries -= 1;
        match request(&hub, cluster, Some(word)).await {
            Ok(found) => break found,
            Err(error) if tries == 0 || error.code() != Some(403) => return Err(refused(error, cluster)),
            Err(_) => tokio::time::sleep(CLAIM_STEP).await,
        }
    };
    match call(secrets.delete(BOOTSTRAP, &DeleteParams::default())).await {
        Ok(_) => {}
        // It is gone already.
        Err(error) if matches!(error.code(), Some(401 | 404)) => {}
        Err(error) => return Err(error).context("cannot invalidate the bootstrap token"),
    }
    Ok(Credential {
        server: of_cluster.server.unwrap_or_default(),
        ca: of_cluster.certificate_authority_data.unwrap_or_default(),
        token,
        expires,
    })
}

fn refused(error: CallError, cluster: &str) -> anyhow::Error {
    match error.code() {
        Some(401 | 403 | 404) => {
            Refused::Bootstrap { cluster: cluster.to_owned(), why: error.to_string() }.into()
        }
        _ => anyhow::Error::new(error).context("the hub gives no token for the bootstrap token"),
    }
}

/// A token of the agent's account; `word`: of the claim, with a bootstrap token.
async fn request(hub: &Client, cluster: &str, word: Option<&str>) -> Result<(String, Timestamp), CallError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(hub.clone(), &names::cluster_namespace(cluster));
    let mut asked = json!({"spec": {"audiences": [], "expirationSeconds": LIFE_S}});
    if let Some(word) = word {
        asked["metadata"] = json!({"annotations": {CLAIM_ANNOTATION: word}});
    }
    let asked: TokenRequest = serde_json::from_value(asked).map_err(kube::Error::SerdeError)?;
    let granted = call(accounts.create_token_request(AGENT_ACCOUNT, &PostParams::default(), &asked)).await?;
    // A hub may grant a shorter lifetime than requested.
    let found = granted.status.and_then(|status| Some((status.token?, status.expiration_timestamp?.0)));
    found.ok_or_else(|| CallError::Local("the hub's answer has no token".to_owned()))
}

/// The word with which this member claims its account; it is stored before it is used.
async fn word(member: &Client) -> Result<String, CallError> {
    let secrets: Api<Secret> = Api::namespaced(member.clone(), names::MEMBER_NAMESPACE);
    let known = call(secrets.get_opt(CREDENTIAL_SECRET)).await?.and_then(|secret| secret.data);
    let known = known.and_then(|data| String::from_utf8(data.get(WORD)?.0.clone()).ok());
    if let Some(word) = known.filter(|word| !word.is_empty()) {
        return Ok(word);
    }
    let word = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    store(member, json!({WORD: word})).await?;
    Ok(word)
}

async fn kept(member: &Client) -> Result<Option<Credential>, CallError> {
    let secrets: Api<Secret> = Api::namespaced(member.clone(), names::MEMBER_NAMESPACE);
    let Some(data) = call(secrets.get_opt(CREDENTIAL_SECRET)).await?.and_then(|secret| secret.data) else {
        return Ok(None);
    };
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let read = || {
        Some(Credential {
            server: text("server")?,
            ca: text("ca")?,
            token: text("token")?,
            expires: text("expires")?.parse().ok()?,
        })
    };
    Ok(read())
}

async fn keep(member: &Client, credential: &Credential) -> Result<(), CallError> {
    let data = json!({"server": credential.server, "ca": credential.ca, "token": credential.token,
        "expires": credential.expires.to_string()});
    store(member, data).await
}

/// Puts texts into the member's Secret; others stay.
async fn store(member: &Client, texts: Value) -> Result<(), CallError> {
    let secrets: Api<Secret> = Api::namespaced(member.clone(), names::MEMBER_NAMESPACE);
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": CREDENTIAL_SECRET, "namespace": names::MEMBER_NAMESPACE},
        "stringData": texts,
    });
    let patch = Patch::Merge(&body);
    match call(secrets.patch(CREDENTIAL_SECRET, &PatchParams::default(), &patch)).await {
        Err(error) if error.is_not_found() => {
            let secret = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            call(secrets.create(&PostParams::default(), &secret)).await.map(drop)
        }
        done => done.map(drop),
    }
}

/// Whether the hub still accepts the token; no answer is not a refusal.
async fn is_accepted(credential: &Credential, settings: &Settings) -> anyhow::Result<bool> {
    let hub = Client::try_from(config(credential, settings).await?)?;
    let path = format!("/api/v1/namespaces/{}", names::cluster_namespace(&settings.cluster));
    let asked = http::Request::get(path).body(Vec::new())?;
    let answer = call(hub.request::<Value>(asked)).await;
    Ok(!answer.is_err_and(|error| error.code() == Some(401)))
}

fn token_file(settings: &Settings) -> PathBuf {
    settings.folder.join("token")
}

/// Writes the token's file atomically; the hub's client reads it.
fn write(credential: &Credential, settings: &Settings) -> anyhow::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let (file, next) = (token_file(settings), settings.folder.join("token.next"));
    let shown = || format!("credential of the hub: {} cannot be written", file.display());
    std::fs::create_dir_all(&settings.folder).with_context(shown)?;
    let options = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&next);
    options.with_context(shown)?.write_all(credential.token.as_bytes()).with_context(shown)?;
    std::fs::rename(&next, &file).with_context(shown)
}

async fn config(credential: &Credential, settings: &Settings) -> anyhow::Result<Config> {
    write(credential, settings)?;
    let mut cluster = json!({"server": credential.server});
    if !credential.ca.is_empty() {
        cluster["certificate-authority-data"] = credential.ca.as_str().into();
    }
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": AGENT_ACCOUNT, "user": {"tokenFile": token_file(settings)}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": AGENT_ACCOUNT}}],
    }))?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn read(file: &Path) -> anyhow::Result<Kubeconfig> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| {
        format!("--hub-bootstrap: cannot read {shown}; allowed: a readable kubeconfig file")
    })?;
    Kubeconfig::from_yaml(&text).map_err(|error| {
        let cause = error.to_string();
        let cause = cause.lines().next().unwrap_or_default();
        anyhow::anyhow!("--hub-bootstrap: {shown} is not a kubeconfig; allowed: YAML of kind Config: {cause}")
    })
}
