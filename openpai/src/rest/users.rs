//! Users, as administrators keep them, and each user's own account.
//!
//! What an administrator writes goes to the hub with his own token; what a user may say of himself, the portal writes,
//! because accounts have no rights in their own namespace.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    caller::{Address, Caller},
    error::RestError,
    state::{Portal, Shared},
};
use crate::users::{Account, NewUser, UserChange, UserError, Users, accounts, grants::Granted};

type Answer = Result<Response, RestError>;

impl From<UserError> for RestError {
    fn from(error: UserError) -> Self {
        Self::new(error.status(), error.code(), error.to_string())
    }
}

/// The users that the portal keeps.
pub(super) fn kept(portal: &Portal) -> Result<&Users, RestError> {
    let none = || RestError::new(404, "NoApiError", "this portal keeps no users; allowed: tokens of the hub");
    portal.users.as_deref().ok_or_else(none)
}

/// A JSON body.
pub(super) fn body<T: DeserializeOwned>(text: &str) -> Result<T, RestError> {
    // The body is not repeated: passwords are in it.
    serde_json::from_str(text).map_err(|error| {
        RestError::new(400, "InvalidParametersError", format!("the body: {error}; allowed: a JSON object"))
    })
}

fn done(status: StatusCode, message: &str) -> Answer {
    Ok((status, Json(json!({"message": message}))).into_response())
}

fn shown(account: &Account, granted: &Granted<'_>) -> Value {
    json!({
        "username": account.name,
        "email": account.email,
        "admin": account.is_admin,
        "virtualCluster": granted.to(&account.name),
        "grouplist": [],
        "extension": {},
    })
}

#[derive(Deserialize)]
pub struct Made {
    username: String,
    password: String,
    #[serde(default)]
    email: String,
    #[serde(default)]
    admin: bool,
    #[serde(default, rename = "virtualCluster")]
    virtual_cluster: Vec<String>,
}

/// `POST /users`.
pub async fn create(State(portal): Shared, caller: Caller, text: String) -> Answer {
    let users = kept(&portal)?;
    let made: Made = body(&text)?;
    let new = NewUser {
        name: made.username,
        password: made.password,
        email: made.email,
        is_admin: made.admin,
        virtual_clusters: made.virtual_cluster,
    };
    users.create(&caller.server, &new).await?;
    done(StatusCode::CREATED, "User is created successfully")
}

/// `GET /users`.
pub async fn list(State(portal): Shared, caller: Caller) -> Result<Json<Value>, RestError> {
    let users = kept(&portal)?;
    let all = accounts::all(&caller.server).await?;
    let rules = users.rules().await?;
    let granted = Granted::of(&rules);
    Ok(Json(all.iter().map(|account| shown(account, &granted)).collect()))
}

/// `GET /users/{user}`: any user for an administrator, himself for everybody.
pub async fn detail(
    State(portal): Shared,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Value>, RestError> {
    let users = kept(&portal)?;
    let account = match caller.pai_user().await? {
        Some(own) if own == name => users.account(&name).await?,
        _ => accounts::account(&caller.server, &name).await?,
    };
    Ok(Json(shown(&account, &Granted::of(&users.rules().await?))))
}

/// `DELETE /users/{user}`.
pub async fn delete(State(portal): Shared, caller: Caller, Path(name): Path<String>) -> Answer {
    kept(&portal)?.delete(&caller.server, &name).await?;
    done(StatusCode::OK, "User is removed successfully")
}

/// What a request may say of a user.
#[derive(Default, Deserialize)]
struct Wanted {
    username: Option<String>,
    email: Option<String>,
    admin: Option<bool>,
    #[serde(rename = "virtualCluster")]
    virtual_cluster: Option<Vec<String>>,
    /// The new one, as an administrator sets it.
    password: Option<String>,
    #[serde(rename = "oldPassword")]
    old: Option<String>,
    #[serde(rename = "newPassword")]
    new: Option<String>,
}

#[derive(Deserialize)]
struct Update {
    data: Wanted,
    patch: Option<bool>,
}

impl Update {
    fn read(text: &str) -> Result<Wanted, RestError> {
        let update: Self = body(text)?;
        match update.patch {
            Some(false) => Err(RestError::parameter("patch", "false", "true: what is absent stays")),
            _ => Ok(update.data),
        }
    }
}

/// `PUT /users`: an administrator changes a user.
pub async fn update(State(portal): Shared, caller: Caller, text: String) -> Answer {
    let wanted = Update::read(&text)?;
    let name = wanted.username.clone().unwrap_or_default();
    change(kept(&portal)?, &caller, &name, wanted).await?;
    done(StatusCode::CREATED, &format!("Update user {name} successfully"))
}

async fn change(users: &Users, caller: &Caller, name: &str, wanted: Wanted) -> Result<(), RestError> {
    let change = UserChange {
        password: wanted.password.or(wanted.new),
        email: wanted.email,
        is_admin: wanted.admin,
        virtual_clusters: wanted.virtual_cluster,
    };
    Ok(users.change(&caller.server, name, &change).await?)
}

/// `PUT /users/me`: a user changes his email address, or his password with the old one.
pub async fn update_own(State(portal): Shared, caller: Caller, address: Address, text: String) -> Answer {
    let users = kept(&portal)?;
    let wanted = Update::read(&text)?;
    let name = caller.need_pai_user().await?;
    if wanted.username.as_ref().is_some_and(|other| *other != name) {
        let found = wanted.username.unwrap_or_default();
        return Err(RestError::new(
            403,
            "ForbiddenUserError",
            format!("username: found {found:?}; allowed: {name}"),
        ));
    }
    change_own(users, &name, address, wanted).await?;
    done(StatusCode::CREATED, &format!("Update user {name} successfully"))
}

async fn change_own(users: &Users, name: &str, address: Address, wanted: Wanted) -> Result<(), RestError> {
    if wanted.admin.is_some() || wanted.virtual_cluster.is_some() {
        let told = "admin, virtualCluster: allowed for an administrator, by PUT /users";
        return Err(RestError::new(403, "ForbiddenUserError", told));
    }
    let new = wanted.new.or(wanted.password);
    if let Some(new) = new {
        let attempt = users.attempts.begin(name, address.of(users))?;
        let known = users.known(name, &wanted.old.unwrap_or_default()).await?;
        users.attempts.succeeded(attempt);
        users.change_password(&known, &new).await?;
    }
    if let Some(email) = wanted.email {
        users.set_own_email(name, &email).await?;
    }
    Ok(())
}

/// `PUT /users/{user}/password`, `/email`, `/admin` and `/virtualcluster`, of OpenPAI's older clients. A user writes of
/// himself as with `/users/me`.
pub async fn update_field(
    State(portal): Shared,
    caller: Caller,
    address: Address,
    Path((name, field)): Path<(String, String)>,
    text: String,
) -> Answer {
    let users = kept(&portal)?;
    let wanted: Wanted = body(&text)?;
    let of_field = match field.as_str() {
        "password" => Wanted { old: wanted.old, new: wanted.new, ..Wanted::default() },
        "email" => Wanted { email: wanted.email, ..Wanted::default() },
        "admin" => Wanted { admin: wanted.admin, ..Wanted::default() },
        "virtualcluster" => Wanted { virtual_cluster: wanted.virtual_cluster, ..Wanted::default() },
        _ => {
            let allowed = "password, email, admin or virtualcluster";
            return Err(RestError::new(
                404,
                "NoApiError",
                format!("found /{field} of a user; allowed: {allowed}"),
            ));
        }
    };
    let is_own = caller.pai_user().await?.as_ref() == Some(&name);
    if is_own && matches!(field.as_str(), "password" | "email") {
        change_own(users, &name, address, of_field).await?;
    } else {
        change(users, &caller, &name, of_field).await?;
    }
    done(StatusCode::CREATED, &format!("Update user {field} data successfully."))
}
