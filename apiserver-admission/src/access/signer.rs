//! Signatures of service account tokens, and the public key by which others can check them.
//!
//! Inputs: a data directory. Tokens are signed with ES256 (ECDSA on P-256). Those of older versions of this program
//! were signed with a secret (HS256) and stay valid: tokens of Secrets have no end. Absent on purpose: what a token says
//! (see `accounts`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use dashmap::DashMap;
use fleet_apiserver_ground::disk::SECRETS;
use fleet_apiserver_ground::{digest, private};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// File of the key, as base64 of PKCS #8.
const FILE: &str = "sa-signer.key";
/// What stands before the point of a P-256 key in its public form (RFC 5480).
const PUBLIC_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Tokens whose signature has been checked and is not checked again.
const REMEMBERED: usize = 10_000;

/// Signs tokens, and checks them.
pub struct Signer {
    pair: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
    /// Key of older tokens.
    former: [u8; 32],
    /// Digests of tokens that were signed here.
    known: DashMap<[u8; 32], ()>,
}

impl Signer {
    /// Reads the key of a directory, or makes one. `anew`: whatever key there is belongs to a secret that is gone.
    ///
    /// # Errors
    /// The file, and why it cannot be read, written or used.
    pub fn open(dir: Option<&Path>, former: [u8; 32], anew: Anew) -> Result<Signer, (PathBuf, String)> {
        let Some(dir) = dir.map(|d| d.join(SECRETS)) else {
            let made = generate().map_err(|e| (PathBuf::new(), e))?;
            return Signer::of(&made, former).map_err(|e| (PathBuf::new(), e));
        };
        let file = dir.join(FILE);
        let at = |e: std::io::Error| (file.clone(), e.to_string());
        let key = match std::fs::read_to_string(&file) {
            Ok(text) if anew == Anew::No => {
                BASE64.decode(text.trim()).map_err(|e| (file.clone(), e.to_string()))?
            }
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(at(e)),
            _ => {
                let made = generate().map_err(|e| (file.clone(), e))?;
                private::directory(&dir).map_err(at)?;
                private::write(&file, &format!("{}\n", BASE64.encode(&made))).map_err(at)?;
                made
            }
        };
        Signer::of(&key, former).map_err(|why| (file, format!("{why}; remove it to make a new one")))
    }

    fn of(key: &[u8], former: [u8; 32]) -> Result<Signer, String> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random)
            .map_err(|e| format!("holds no key of P-256: {e}"))?;
        let public = [&PUBLIC_PREFIX[..], pair.public_key().as_ref()].concat();
        let id = BASE64.encode(digest::sha256(&public));
        Ok(Signer { pair, id, random, former, known: DashMap::new() })
    }

    /// A token of these claims; None if the system has no random numbers.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let head = BASE64.encode(json!({"alg": "ES256", "kid": self.id}).to_string());
        let signed = format!("{head}.{}", BASE64.encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", BASE64.encode(signature)))
    }

    /// The claims of a token this server signed, whatever its age.
    pub fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, body) = signed.split_once('.')?;
        let read = |part: &str| serde_json::from_slice::<Value>(&BASE64.decode(part).ok()?).ok();
        let signature = BASE64.decode(signature).ok()?;
        let good = match read(head)?.get("alg").and_then(Value::as_str)? {
            "ES256" => self.is_ours(token, signed, &signature),
            "HS256" => digest::same(&signature, &digest::hmac(&self.former, signed.as_bytes())),
            _ => false,
        };
        if good { read(body) } else { None }
    }

    fn is_ours(&self, token: &str, signed: &str, signature: &[u8]) -> bool {
        let digest = digest::sha256(token.as_bytes());
        if self.known.contains_key(&digest) {
            return true;
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        let good = key.verify(signed.as_bytes(), signature).is_ok();
        if good {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            self.known.insert(digest, ());
        }
        good
    }

    /// The public key as a set of JSON web keys (RFC 7517).
    pub fn public(&self) -> Value {
        // The point is one byte that says it is whole, and two coordinates.
        let point = self.pair.public_key().as_ref();
        let part = |from: usize| BASE64.encode(point.get(from..from + 32).unwrap_or_default());
        json!({"keys": [{"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": part(1), "y": part(33)}]})
    }
}

/// Whether a key that is there may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anew {
    /// It may.
    No,
    /// It is replaced.
    Yes,
}

fn generate() -> Result<Vec<u8>, String> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    made.map(|document| document.as_ref().to_vec()).map_err(|e| format!("no key could be made: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_signed_and_checked() {
        let signer = Signer::open(None, [7; 32], Anew::No).unwrap();
        let claims = json!({"sub": "x"});
        let token = signer.sign(&claims).unwrap();
        assert_eq!(signer.claims(&token), Some(claims.clone()));
        assert_eq!(signer.claims(&token), Some(claims.clone()), "remembered");
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (head, _) = signed.split_once('.').unwrap();
        let other = BASE64.encode(json!({"sub": "y"}).to_string());
        assert_eq!(signer.claims(&format!("{head}.{other}.{signature}")), None);
        assert_eq!(Signer::open(None, [7; 32], Anew::No).unwrap().claims(&token), None, "another key");
        let point = |key: &Value| {
            let part = |name: &str| BASE64.decode(key[name].as_str().unwrap()).unwrap();
            [vec![4], part("x"), part("y")].concat()
        };
        let key = &signer.public()["keys"][0];
        let checked = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point(key));
        checked.verify(signed.as_bytes(), &BASE64.decode(signature).unwrap()).unwrap();
        let head: Value = serde_json::from_slice(&BASE64.decode(head).unwrap()).unwrap();
        assert_eq!(head, json!({"alg": "ES256", "kid": key["kid"]}));
    }

    #[test]
    fn tokens_of_older_versions_stay_valid() {
        let signer = Signer::open(None, [7; 32], Anew::No).unwrap();
        let signed = format!(
            "{}.{}",
            BASE64.encode(r#"{"alg":"HS256","typ":"JWT"}"#),
            BASE64.encode(r#"{"sub":"x"}"#)
        );
        let with =
            |key: [u8; 32]| format!("{signed}.{}", BASE64.encode(digest::hmac(&key, signed.as_bytes())));
        assert_eq!(signer.claims(&with([7; 32])), Some(json!({"sub": "x"})));
        assert_eq!(signer.claims(&with([8; 32])), None);
        // Who knows the public key cannot sign with it.
        let none = format!("{}.{}.", BASE64.encode(r#"{"alg":"none"}"#), BASE64.encode(r#"{"sub":"x"}"#));
        assert_eq!(signer.claims(&none), None);
    }
}
