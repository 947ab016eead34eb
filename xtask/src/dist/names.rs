//! How a release's files, platforms and contents are named.

use anyhow::bail;
use sha2::{Digest, Sha256};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A platform in the words of OCI and krew.
pub struct Platform {
    pub os: &'static str,
    pub arch: &'static str,
}

impl Platform {
    /// The platform of a target of rustc.
    ///
    /// # Errors
    /// There is no release for it.
    pub fn of(target: &str) -> anyhow::Result<Self> {
        let arch = match target.split('-').next() {
            Some("x86_64") => "amd64",
            Some("aarch64") => "arm64",
            _ => bail!("--target: found {target:?}; allowed: targets of x86_64 and aarch64"),
        };
        if !target.contains("-linux-") {
            bail!("--target: found {target:?}; allowed: targets of linux");
        }
        Ok(Self { os: "linux", arch })
    }
}

/// SHA-256, in hexadecimal digits.
pub fn hex(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}
