//! A user's own tokens. They are listed by their ids: the portal keeps no token.

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Value, json};

use super::{caller::Caller, error::RestError, state::Shared, users::kept};
use crate::users::Life;

type Answer = Result<Json<Value>, RestError>;

/// `GET /tokens`.
pub async fn list(State(portal): Shared, caller: Caller) -> Answer {
    let users = kept(&portal)?;
    let found = users.tokens(&caller.need_pai_user().await?).await?;
    let ids = |of_applications: bool| -> Vec<&str> {
        let of = found.iter().filter(|token| token.is_application == of_applications);
        of.map(|token| token.id.as_str()).collect()
    };
    let expires: serde_json::Map<String, Value> =
        found.iter().map(|token| (token.id.clone(), json!(token.expires_ms))).collect();
    Ok(Json(json!({"tokens": ids(false), "applications": ids(true), "expires": expires})))
}

/// `POST /tokens/application`: a token for a program, as long as the hub gives them.
pub async fn create(State(portal): Shared, caller: Caller) -> Answer {
    let users = kept(&portal)?;
    let known = users.bearer(&caller.need_pai_user().await?).await?;
    let given = users.give(&known, Life::of_application()).await?;
    Ok(Json(json!({"token": given.token, "application": true, "expires": given.expires_ms})))
}

/// `DELETE /tokens/{token}`: by its id, or the token itself.
pub async fn revoke(State(portal): Shared, caller: Caller, Path(token): Path<String>) -> Answer {
    let users = kept(&portal)?;
    users.revoke(&caller.need_pai_user().await?, &token).await?;
    Ok(Json(json!({"message": "revoke successfully"})))
}
