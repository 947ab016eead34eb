//! Logging in with a password, and out.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    caller::{Address, Caller},
    error::RestError,
    state::Shared,
    users::{body, kept},
};
use crate::users::{Life, UserError};

/// `GET /authn/info`: how one logs in.
pub async fn info(State(portal): Shared) -> Result<Json<Value>, RestError> {
    kept(&portal)?;
    Ok(Json(json!({
        "authn_type": "basic",
        "loginURI": "/api/v2/authn/basic/login",
        "loginURIMethod": "post",
    })))
}

#[derive(Deserialize)]
pub struct Login {
    username: String,
    password: String,
    /// In seconds.
    expiration: Option<Seconds>,
}

/// Forms have texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(i64),
    Text(String),
}

impl Login {
    /// The body, as JSON or as a form: clients of OpenPAI send both.
    fn read(headers: &HeaderMap, text: &str) -> Result<Self, RestError> {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/x-www-form-urlencoded") {
            return body(text);
        }
        let of = |name: &str| {
            let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(found, _)| *found == name)?;
            let plain = value.replace('+', " ");
            percent_decode_str(&plain).decode_utf8().ok().map(|value| value.into_owned())
        };
        let need = |name: &str| of(name).ok_or_else(|| RestError::parameter(name, "", "a value in the form"));
        Ok(Self {
            username: need("username")?,
            password: need("password")?,
            expiration: of("expiration").map(Seconds::Text),
        })
    }

    fn life(&self) -> Result<Life, UserError> {
        let seconds = match &self.expiration {
            None => None,
            Some(Seconds::Number(seconds)) => Some(*seconds),
            // Not a number: as little as a number that is not allowed.
            Some(Seconds::Text(text)) => Some(text.parse().unwrap_or(-1)),
        };
        Life::of_login(seconds)
    }
}

/// `POST /authn/basic/login`.
pub async fn login(
    State(portal): Shared,
    address: Address,
    headers: HeaderMap,
    text: String,
) -> Result<Response, RestError> {
    let users = kept(&portal)?;
    let login = Login::read(&headers, &text)?;
    let life = login.life()?;
    let attempt = users.attempts.begin(&login.username, address.of(users))?;
    let known = users.known(&login.username, &login.password).await?;
    users.attempts.succeeded(attempt);
    let given = users.give(&known, life).await?;
    let account = users.account(&known.name).await?;
    let answer = json!({
        "user": known.name,
        "token": given.token,
        "admin": account.is_admin,
        "hasGitHubPAT": false,
        "expires": given.expires_ms,
    });
    Ok((StatusCode::OK, [(header::CACHE_CONTROL, "no-store")], Json(answer)).into_response())
}

/// `DELETE /authn/basic/logout`: the token that the request carries ends.
pub async fn logout(State(portal): Shared, caller: Caller) -> Result<Json<Value>, RestError> {
    let users = kept(&portal)?;
    let user = caller.need_pai_user().await?;
    users.revoke(&user, caller.token()).await?;
    Ok(Json(json!({"message": "Logout successfully"})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_json_or_a_form() {
        let mut headers = HeaderMap::new();
        let json = r#"{"username": "a", "password": "p w&", "expiration": 4000}"#;
        let read = |headers: &HeaderMap, text: &str| Login::read(headers, text);
        let login = read(&headers, json).expect("JSON");
        assert!((login.username.as_str(), login.password.as_str()) == ("a", "p w&") && login.life().is_ok());
        headers.insert(
            header::CONTENT_TYPE,
            "application/x-www-form-urlencoded; charset=utf-8".parse().expect("one"),
        );
        let form = "username=a&password=p+w%26&expiration=4000";
        let login = read(&headers, form).expect("a form");
        assert!((login.username.as_str(), login.password.as_str()) == ("a", "p w&") && login.life().is_ok());
        let login = read(&headers, "username=a&password=b&expiration=x").expect("a form");
        assert!(login.life().is_err());
        let told = read(&headers, "username=a").err().expect("no password");
        assert_eq!((told.status, told.code), (400, "InvalidParametersError"));
        let told = read(&HeaderMap::new(), r#"{"username": "a", "password": 7}"#).err().expect("no text");
        assert_eq!(told.status, 400);
    }
}
