//! Tokens of users: tokens of the hub for their accounts, each bound to a Secret, so that deleting the Secret ends it.
//!
//! The Secrets hold no token. The id of a token is the end of its Secret's name.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    error::UserError,
    keep::{Known, Users},
    names::{self, text},
};
use crate::server::{AskError, Selectors};

/// Label of the Secrets: `login` or `application`.
const KIND: &str = "pai.fleet.dev/token";
/// When a token ends, as the hub said.
const EXPIRES: &str = "pai.fleet.dev/expires";
const SECRET_TYPE: &str = "fleet.dev/pai-token";
/// Tokens of one user at once. Then the one that ends first makes place.
const MOST_OF_ONE: usize = 100;
/// Lives that can be asked for, in seconds: what the hub allows at least, and a week. The hub may shorten them.
const LIVES: std::ops::RangeInclusive<i64> = 600..=7 * 24 * 3600;
const DAY: i64 = 24 * 3600;

/// How long a token is wanted, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    seconds: i64,
    kind: &'static str,
}

impl Life {
    /// For a program that logs in, or a browser; a day unless it says otherwise.
    ///
    /// # Errors
    /// It may not be that long, or not that short.
    pub fn of_login(asked: Option<i64>) -> Result<Self, UserError> {
        let seconds = asked.unwrap_or(DAY);
        if LIVES.contains(&seconds) {
            return Ok(Self { seconds, kind: "login" });
        }
        let allowed = format!("{} to {} seconds", LIVES.start(), LIVES.end());
        Err(UserError::invalid("expiration", seconds.to_string(), allowed))
    }

    /// For a program that keeps it.
    pub fn of_application() -> Self {
        Self { seconds: *LIVES.end(), kind: "application" }
    }
}

/// A token that was given.
pub struct Token {
    pub token: String,
    /// In milliseconds since 1970.
    pub expires_ms: Option<i64>,
}

/// A token as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    pub is_application: bool,
    pub expires_ms: Option<i64>,
}

/// The end of the name of a token's Secret.
fn id_of(secret: &Value, user: &str) -> Option<String> {
    text(&secret["metadata"]["name"], "").strip_prefix(&prefix(user)).map(str::to_owned)
}

fn prefix(user: &str) -> String {
    format!("token.{user}.")
}

fn expires(secret: &Value) -> Option<i64> {
    let at = text(&secret["metadata"]["annotations"][EXPIRES], "");
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// What a token says of itself. Whoever has one can write another text: this proves nothing.
fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

/// The id of a user's token: from the token itself, or the id as it is.
fn id_in(given: &str, user: &str) -> Option<String> {
    let id = match claims(given) {
        Some(claims) => {
            let secret = text(&claims["kubernetes.io"]["secret"]["name"], "");
            secret.strip_prefix(&prefix(user))?.to_owned()
        }
        None => given.to_owned(),
    };
    let is_id = id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit());
    is_id.then(|| id.to_ascii_lowercase())
}

impl Users {
    /// Gives a token to a user who has shown his password.
    ///
    /// # Errors
    /// The account is no longer the one of the password, or the hub refuses.
    pub async fn give(&self, known: &Known, life: Life) -> Result<Token, UserError> {
        let now = Timestamp::now();
        self.make_place(&known.name, now).await?;
        // In whole seconds, as the hub answers.
        let until = Timestamp::from_second(now.as_second().saturating_add(life.seconds)).unwrap_or(now);
        let name = format!("{}{}", prefix(&known.name), Uuid::new_v4().simple());
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
            "metadata": names::metadata(&name, &known.name, &known.uid),
        });
        secret["metadata"]["labels"][KIND] = life.kind.into();
        secret["metadata"]["annotations"] = json!({EXPIRES: until.to_string()});
        let made = self.own.create(&names::secrets(), &secret).await?;
        let path = format!("{}/{name}", names::secrets());
        match self.request(known, life.seconds, &name, &made["metadata"]["uid"]).await {
            Ok((token, ends)) => {
                if ends != until.to_string() {
                    let patch = json!({"metadata": {"annotations": {EXPIRES: ends}}});
                    self.own.merge(&path, &patch).await?;
                }
                let expires_ms = ends.parse::<Timestamp>().ok().map(Timestamp::as_millisecond);
                Ok(Token { token, expires_ms })
            }
            Err(error) => {
                // Without a token it is of no use, and goes with the account at the latest.
                let _ = self.own.delete(&path).await;
                Err(error)
            }
        }
    }

    /// A token of the account with that uid, bound to the Secret; and when it ends.
    async fn request(
        &self,
        known: &Known,
        seconds: i64,
        secret: &str,
        uid: &Value,
    ) -> Result<(String, String), UserError> {
        let path = format!("{}/{}/token", names::accounts(), known.name);
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": secret, "uid": uid}},
        });
        let answer = match self.own.create(&path, &request).await {
            Err(error) if error.is_not_found() => return Err(UserError::WrongPassword),
            answer => answer?,
        };
        let token = text(&answer["status"]["token"], "").to_owned();
        let of = claims(&token).map(|claims| claims["kubernetes.io"]["serviceaccount"]["uid"].clone());
        // An account that was deleted and made again meanwhile has another password.
        if of.as_ref().and_then(Value::as_str) != Some(known.uid.as_str()) {
            return Err(UserError::WrongPassword);
        }
        Ok((token, text(&answer["status"]["expirationTimestamp"], "").to_owned()))
    }

    async fn secrets_of(&self, user: &str) -> Result<Vec<Value>, UserError> {
        let labels = Some(format!("{}={user},{KIND}", names::USER));
        let selectors = Selectors { labels, ..Selectors::default() };
        let mut listed = self.own.list(&names::secrets(), &selectors, "application/json").await?;
        let items = listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(items.into_iter().filter(|secret| secret["type"] == SECRET_TYPE).collect())
    }

    /// Deletes what tokens have left that ran out, and the ones that end first if there are many.
    async fn make_place(&self, user: &str, now: Timestamp) -> Result<(), UserError> {
        let mut live = Vec::new();
        for secret in self.secrets_of(user).await? {
            let Some(id) = id_of(&secret, user) else { continue };
            match expires(&secret) {
                Some(at) if at > now.as_millisecond() => live.push((at, id)),
                _ => self.end(user, &id).await?,
            }
        }
        live.sort();
        let over = (live.len() + 1).saturating_sub(MOST_OF_ONE);
        for (_, id) in live.iter().take(over) {
            self.end(user, id).await?;
        }
        Ok(())
    }

    /// Ends a token at once. One that has ended is no error.
    async fn end(&self, user: &str, id: &str) -> Result<(), UserError> {
        match self.own.delete(&format!("{}/{}{id}", names::secrets(), prefix(user))).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Ends all tokens of a user.
    ///
    /// # Errors
    /// The hub refuses.
    pub async fn end_all_tokens(&self, user: &str) -> Result<(), UserError> {
        for secret in self.secrets_of(user).await? {
            if let Some(id) = id_of(&secret, user) {
                self.end(user, &id).await?;
            }
        }
        Ok(())
    }

    /// Ends one of a user's own tokens, given as it is or by its id.
    ///
    /// # Errors
    /// The user has none like it, or the hub refuses.
    pub async fn revoke(&self, user: &str, given: &str) -> Result<(), UserError> {
        let id = id_in(given, user).ok_or(UserError::NoToken)?;
        match self.own.delete(&format!("{}/{}{id}", names::secrets(), prefix(user))).await {
            Err(AskError::Refused { code: 404, .. }) => Err(UserError::NoToken),
            done => Ok(done.map(drop)?),
        }
    }

    /// The tokens of a user that have not ended.
    ///
    /// # Errors
    /// The hub does not answer.
    pub async fn tokens(&self, user: &str) -> Result<Vec<Listed>, UserError> {
        let now = Timestamp::now().as_millisecond();
        let found = self.secrets_of(user).await?;
        let listed = found.iter().filter_map(|secret| {
            let is_application = secret["metadata"]["labels"][KIND] == "application";
            Some(Listed { id: id_of(secret, user)?, is_application, expires_ms: expires(secret) })
        });
        Ok(listed.filter(|token| token.expires_ms.is_some_and(|at| at > now)).collect())
    }

    /// The account that a token of the hub is of, if a user's.
    ///
    /// # Errors
    /// The account is gone, or the hub does not answer.
    pub async fn bearer(&self, name: &str) -> Result<Known, UserError> {
        let account = self.account(name).await?;
        Ok(Known { name: account.name, uid: account.uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(secret: &str) -> String {
        let claims = json!({"kubernetes.io": {"secret": {"name": secret}}}).to_string();
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_user_names_tokens_of_his_own_only() {
        let id = "0123456789abcdef0123456789abcdef";
        let check =
            |given: &str, expected: Option<&str>| assert_eq!(id_in(given, "bob").as_deref(), expected);
        check(id, Some(id));
        check(&token(&format!("token.bob.{id}")), Some(id));
        for other in [format!("token.alice.{id}"), "password.bob".into(), "token.bob.x".into(), String::new()]
        {
            check(&token(&other), None);
        }
        for other in ["", "../password.bob", "x", "a.b.c", &id[1..]] {
            check(other, None);
        }
    }

    #[test]
    fn lives_are_bounded() {
        assert_eq!(Life::of_login(None).unwrap().seconds, DAY);
        assert!([599, 0, -1, i64::MAX, 604_801].iter().all(|s| Life::of_login(Some(*s)).is_err()));
        assert!(Life::of_login(Some(604_800)).is_ok());
    }
}
