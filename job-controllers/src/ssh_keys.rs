//! Key pairs for jobs whose pods log in to each other.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rsa::{RsaPrivateKey, pkcs1::EncodeRsaPrivateKey, traits::PublicKeyParts};
use serde_json::Value;

const BITS: usize = 2048;

/// Fills a Secret's `stringData` with a fresh RSA pair: `id_rsa` (PKCS#1), `id_rsa.pub`, `authorized_keys`.
///
/// # Errors
/// The system's source of random numbers failed.
pub(crate) fn fill(secret: &mut Value) -> anyhow::Result<()> {
    let private = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, BITS)?;
    let pem = private.to_pkcs1_pem(rsa::pkcs1::LineEnding::LF)?;
    let public = public_line(&private.e().to_bytes_be(), &private.n().to_bytes_be());
    let data = &mut secret["stringData"];
    data["id_rsa"] = pem.as_str().into();
    data["id_rsa.pub"] = public.as_str().into();
    data["authorized_keys"] = public.into();
    Ok(())
}

/// `ssh-rsa <base64>` as RFC 4253, section 6.6 has it.
fn public_line(exponent: &[u8], modulus: &[u8]) -> String {
    let mut blob = Vec::new();
    for field in [b"ssh-rsa".to_vec(), mpint(exponent), mpint(modulus)] {
        // Fields are some hundred bytes long.
        blob.extend(u32::try_from(field.len()).unwrap_or(0).to_be_bytes());
        blob.extend(field);
    }
    format!("ssh-rsa {}\n", STANDARD.encode(blob))
}

/// A positive number: a leading zero where the first bit is set.
fn mpint(number: &[u8]) -> Vec<u8> {
    let zero = number.first().is_some_and(|first| first & 0x80 != 0);
    zero.then_some(0).into_iter().chain(number.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_of_the_kinds_ssh_reads() {
        let mut secret = serde_json::json!({"stringData": {"config": ""}});
        fill(&mut secret).unwrap();
        let data = &secret["stringData"];
        assert!(data["id_rsa"].as_str().unwrap().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        assert_eq!(data["id_rsa.pub"], data["authorized_keys"]);
        let line = data["id_rsa.pub"].as_str().unwrap();
        let blob = STANDARD.decode(line.trim_start_matches("ssh-rsa ").trim_end()).unwrap();
        // Name, exponent 65537 and a modulus of 2048 bits behind a zero byte.
        assert_eq!(&blob[..11], b"\0\0\0\x07ssh-rsa");
        assert_eq!(&blob[11..18], &[0, 0, 0, 3, 1, 0, 1]);
        assert_eq!(&blob[18..23], &[0, 0, 1, 1, 0]);
        assert_eq!(blob.len(), 22 + 257);
    }
}
