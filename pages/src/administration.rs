//! What the page of administration shows, as data.

use crate::form::Trouble;

/// Rows, or why there are none.
pub enum Part<T> {
    Shown(Vec<T>),
    Absent(String),
}

/// What the hub lets the user do; forms for anything else are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct May {
    pub grant: bool,
    pub accounts: bool,
    pub tokens: bool,
    pub queues: bool,
    pub virtual_clusters: bool,
    pub join: bool,
}

impl May {
    pub fn anything(self) -> bool {
        self != Self::default()
    }
}

/// Somebody who may write jobs in a namespace, or see more than his own.
pub struct Tenant {
    /// `user:alice`, `group:ml`, `serviceaccount:team-a/ci`.
    pub who: String,
    pub role: String,
    /// Empty: the whole hub.
    pub namespace: String,
    /// The RoleBinding or ClusterRoleBinding that says so.
    pub binding: String,
    /// Others whom the same binding names.
    pub others: usize,
}

/// A service account: a user that the hub itself knows, by tokens that it makes.
pub struct Account {
    pub namespace: String,
    pub name: String,
}

/// Who may use a queue, as its attributes say.
pub struct QueueAccess {
    pub tree: String,
    pub path: String,
    pub is_leaf: bool,
    /// Whose jobs go there unless they say otherwise.
    pub namespaces: String,
    pub submitter_namespaces: String,
    pub submitters: String,
}

/// Who may use a virtual cluster.
pub struct VcRow {
    pub configuration: String,
    pub name: String,
    pub submitters: String,
    pub submitter_namespaces: String,
    pub guaranteed_namespaces: String,
}

pub struct JoinRow {
    pub name: String,
    pub state: String,
    pub is_well: bool,
    /// What is to be done, and the command that does it.
    pub todo: Option<(String, String)>,
}

/// A token that was just made; it is kept nowhere.
pub struct NewToken {
    pub account: String,
    pub hours: i64,
    pub token: String,
}

pub struct AdminView {
    pub may: May,
    /// To choose from in forms.
    pub namespaces: Vec<String>,
    pub tenants: Part<Tenant>,
    pub accounts: Part<Account>,
    pub queues: Part<QueueAccess>,
    pub virtual_clusters: Part<VcRow>,
    pub clusters: Part<JoinRow>,
    pub token: Option<NewToken>,
    pub troubles: Vec<Trouble>,
    /// The cluster whose commands are shown.
    pub joining: Option<String>,
}
