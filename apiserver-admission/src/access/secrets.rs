//! Stored credentials: one key in a file of its own, and digests of tokens in the store.
//!
//! Inputs: a data directory and the store's notes. Signatures of service account tokens and the administrator's
//! token are derived from the key; neither is stored. So a store, or a copy of one, contains no administrator's
//! token, and none can be made from it. Absent on purpose: Secrets with service account tokens, which are API
//! content.

use crate::access::auth::{Auth, token_digest};
use crate::access::signer::{Anew, Signer};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet_apiserver_ground::digest;
use fleet_apiserver_ground::{private, tree};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Directory of keys and certificates in a data directory.
pub use fleet_apiserver_ground::disk::SECRETS as DIRECTORY;
/// File of the key.
const KEY_FILE: &str = "sa.key";
/// Note of static tokens.
pub const TOKENS: &str = "tokens";
/// Notes of older programs, in which secrets stood as they are.
pub const CLEAR: [&str; 3] = ["admin-token", "account-key", TOKENS];

/// The key of a server.
pub struct Secrets {
    key: String,
    anew: Anew,
}

impl Secrets {
    /// Reads the key of a directory, or makes one; `known` is the key that an older version had in its store.
    ///
    /// # Errors
    /// The file, and why it cannot be read or written.
    pub fn open(dir: Option<&Path>, known: Option<&str>) -> Result<Secrets, (PathBuf, String)> {
        let Some(dir) = dir.map(|d| d.join(DIRECTORY)) else {
            return Ok(Secrets { key: digest::random_token(), anew: Anew::Yes });
        };
        let file = dir.join(KEY_FILE);
        let at = |e: std::io::Error| (file.clone(), e.to_string());
        match std::fs::read_to_string(&file) {
            Ok(key) if key.trim().len() >= 32 => {
                return Ok(Secrets { key: key.trim().to_string(), anew: Anew::No });
            }
            Ok(_) => return Err((file, "holds no key; remove it to make a new one".into())),
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(at(e)),
            Err(_) => {}
        }
        let key = known.map_or_else(digest::random_token, str::to_string);
        private::directory(&dir).map_err(at)?;
        private::write(&file, &format!("{key}\n")).map_err(at)?;
        // What an older secret signed is not to be trusted any more.
        Ok(Secrets { key, anew: if known.is_some() { Anew::No } else { Anew::Yes } })
    }

    fn account_key(&self) -> [u8; 32] {
        digest::sha256(self.key.as_bytes())
    }

    /// What signs service account tokens.
    ///
    /// # Errors
    /// The file, and why it cannot be read or written.
    pub fn signer(&self, dir: Option<&Path>) -> Result<Signer, (PathBuf, String)> {
        Signer::open(dir, self.account_key(), self.anew)
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest::hmac(&self.account_key(), b"bearer token of system:admin"))
    }
}

/// Static bearer tokens, by their digests.
pub struct StaticTokens {
    salt: String,
    entries: Vec<Value>,
}

impl StaticTokens {
    /// Reads the note of a store.
    pub fn read(note: Option<&str>) -> StaticTokens {
        let value: Value = note.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default();
        let salt = match tree::text(&value, &["salt"]) {
            "" => digest::random_token(),
            salt => salt.to_string(),
        };
        StaticTokens { salt, entries: tree::list(&value, &["entries"]).to_vec() }
    }

    /// What their digests are salted with.
    pub fn salt(&self) -> &str {
        &self.salt
    }

    /// Makes them known.
    pub fn register(&self, auth: &Auth) {
        for entry in &self.entries {
            if let Some(digest) = digest::unhex(tree::text(entry, &["digest"])) {
                auth.add_token(digest, tree::text(entry, &["user"]), &groups(entry));
            }
        }
    }

    /// Adds or replaces one.
    pub fn put(&mut self, digest: [u8; 32], user: &str, groups: &[String]) {
        let digest = digest::hex(&digest);
        self.entries.retain(|e| tree::text(e, &["digest"]) != digest);
        self.entries.push(json!({"digest": digest, "user": user, "groups": groups}));
    }

    /// As it is noted in the store.
    pub fn note(&self) -> String {
        json!({"salt": self.salt, "entries": self.entries}).to_string()
    }
}

fn groups(entry: &Value) -> Vec<String> {
    tree::list(entry, &["groups"]).iter().filter_map(|g| g.as_str().map(str::to_string)).collect()
}

/// True when the notes of a store hold secrets as they are.
pub fn in_clear(notes: &[(String, String)]) -> bool {
    notes.iter().any(|(key, value)| CLEAR[..2].contains(&key.as_str()) || legacy_tokens(key, value).is_some())
}

/// Replaces notes that have secrets in plain text: tokens become digests. The former administrator's token is
/// invalid, because others may have read it; service account tokens stay valid.
///
/// # Errors
/// The key's file, and why it cannot be written.
pub fn seal(dir: &Path, notes: &[(String, String)]) -> Result<String, (PathBuf, String)> {
    let known = notes.iter().find(|(key, _)| key == "account-key").map(|(_, v)| v.as_str());
    Secrets::open(Some(dir), known)?;
    let mut tokens = StaticTokens::read(None);
    let salt = digest::sha256(tokens.salt().as_bytes());
    for entry in notes.iter().filter_map(|(key, value)| legacy_tokens(key, value)).flatten() {
        tokens.put(
            token_digest(&salt, tree::text(&entry, &["token"])),
            tree::text(&entry, &["user"]),
            &groups(&entry),
        );
    }
    Ok(tokens.note())
}

fn legacy_tokens(key: &str, value: &str) -> Option<Vec<Value>> {
    if key != TOKENS {
        return None;
    }
    serde_json::from_str::<Vec<Value>>(value).ok()
}
