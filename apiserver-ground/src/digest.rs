//! Digests, and what is told apart by them.
//!
//! Inputs: bytes. Absent on purpose: keys, which others keep.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// True for equal secrets; takes the same time wherever they differ.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// SHA-256.
pub fn sha256(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// Lower-case hexadecimal.
pub fn hex(data: &[u8]) -> String {
    data.iter().map(|b| format!("{b:02x}")).collect()
}

/// Reads what [`hex`] wrote of 32 bytes.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

/// HMAC-SHA-256 (RFC 2104).
pub fn hmac(key: &[u8; 32], data: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    let mut out = [0; 32];
    out.copy_from_slice(tag.as_ref());
    out
}

/// A random token.
pub fn random_token() -> String {
    let a = uuid::Uuid::new_v4();
    let b = uuid::Uuid::new_v4();
    URL_SAFE_NO_PAD.encode([a.as_bytes().as_slice(), b.as_bytes().as_slice()].concat())
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests_are_written_and_read() {
        let digest = super::sha256(b"x");
        assert_eq!(super::unhex(&super::hex(&digest)), Some(digest));
        assert_eq!(super::unhex("zz"), None);
        assert!(super::same(&digest, &digest) && !super::same(&digest, &[0; 32]));
        assert!(!super::same(&digest, &digest[1..]) && super::same(&[], &[]));
    }

    #[test]
    fn hmac_of_rfc_4231() {
        let mut key = [0u8; 32];
        key[..4].copy_from_slice(b"Jefe");
        let got = super::hex(&super::hmac(&key, b"what do ya want for nothing?"));
        assert_eq!(got, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
