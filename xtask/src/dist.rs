//! `cargo xtask dist`: everything a release consists of, in one directory.
//!
//! Inputs: the checkout, or programs that are built already. The same inputs give the same bytes: files have no times and no owners.
//! Deliberately absent: uploading and signing. `SHA256SUMS` is what a release process signs.

mod archive;
mod charts;
mod images;
mod krew;
mod names;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::cargo;
use anyhow::{Context, bail};
use archive::ArchiveEntry;
use names::{Platform, VERSION, hex};

/// The programs of a release, by package; each has an image of its own.
const PROGRAMS: [(&str, &str); 4] = [
    ("fleet", "fleet"),
    ("fleet-controller", "fleet-controller"),
    ("member-agent", "member-agent"),
    ("fleet-watchdog", "watchdog"),
];
const SHELLS: [(&str, &str); 3] = [("bash", "fleet.bash"), ("zsh", "_fleet"), ("fish", "fleet.fish")];

#[derive(clap::Args)]
pub struct DistArgs {
    /// Directory of the release; an earlier release in it is deleted
    #[arg(long, default_value = "target/dist")]
    out: PathBuf,
    /// Platform to build for; the default links statically and needs musl-gcc
    #[arg(long, default_value = "x86_64-unknown-linux-musl")]
    target: String,
    /// Package the programs in this directory; nothing is built
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// Address of the release's files, for the krew manifest
    #[arg(long, default_value = "https://fleet.example.com/releases")]
    url: String,
    /// Certificates of public authorities, which go into the images
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    certificates: PathBuf,
    /// Compression of archives and images: 0 (none) to 9 (smallest)
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(0..=9))]
    compression: u32,
}

/// Makes the release and prints its files.
///
/// # Errors
/// Something does not build, or a file cannot be read or written.
pub fn run(args: &DistArgs) -> anyhow::Result<()> {
    let built;
    let programs = match &args.binaries {
        Some(directory) => directory,
        None => {
            built = build(&args.target)?;
            &built
        }
    };
    if args.out.exists() {
        if !args.out.join("SHA256SUMS").exists() {
            bail!("{}: found a directory that is no release; it is left alone", args.out.display());
        }
        fs::remove_dir_all(&args.out).with_context(|| format!("{}", args.out.display()))?;
    }
    fs::create_dir_all(&args.out).with_context(|| format!("{}", args.out.display()))?;

    let platform = Platform::of(&args.target)?;
    let package = format!("fleet-{VERSION}-{}-{}", platform.os, platform.arch);
    let archive = args.out.join(format!("{package}.tar.gz"));
    archive::write_gz(&contents(&package, programs)?, args.compression, &archive)?;
    for (_, program) in PROGRAMS {
        let image = images::Image {
            program,
            file: &programs.join(program),
            certificates: &args.certificates,
            platform: &platform,
            compression: args.compression,
        };
        images::write(&image, &args.out.join(format!("{program}-{VERSION}-{}.oci.tar", platform.arch)))?;
    }
    for chart in charts::ALL {
        charts::package(&Path::new("charts").join(chart), &args.out)?;
    }
    krew::write(&args.out.join("fleet.yaml"), &args.url, &package, &digest_of(&archive)?, &platform)?;
    sums(&args.out)
}

fn build(target: &str) -> anyhow::Result<PathBuf> {
    let mut arguments = vec!["build", "--release", "--locked", "--target", target];
    for (package, _) in PROGRAMS {
        arguments.extend(["-p", package]);
    }
    cargo::run(&arguments)?;
    let root = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(root.join(target).join("release"))
}

/// The archive for people: the programs, completions, man pages, the license.
fn contents(package: &str, programs: &Path) -> anyhow::Result<Vec<ArchiveEntry>> {
    let mut entries = Vec::new();
    for (_, program) in PROGRAMS {
        entries.push(ArchiveEntry::program(format!("{package}/bin/{program}"), &programs.join(program))?);
    }
    for link in ["kubectl-fleet", "kubectl-amc", "kubectl_complete-fleet", "kubectl_complete-amc", "vcctl"] {
        entries.push(ArchiveEntry::link(format!("{package}/bin/{link}"), "fleet"));
    }
    let fleet = programs.join("fleet");
    for (shell, file) in SHELLS {
        let script = output(Command::new(&fleet).args(["completion", shell]))?;
        entries.push(ArchiveEntry::text(format!("{package}/completions/{file}"), script));
    }
    let pages = tempfile::tempdir().context("a directory for man pages")?;
    output(Command::new(&fleet).arg("man").arg(pages.path()))?;
    entries.extend(archive::directory(pages.path(), &format!("{package}/man/man1"))?);
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        entries.push(ArchiveEntry::text(format!("{package}/{file}"), fs::read(file).context(file)?));
    }
    Ok(entries)
}

fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let what = format!("{command:?}");
    let output = command.output().with_context(|| format!("{what} could not be started"))?;
    if !output.status.success() {
        bail!("{what} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// SHA-256 of a file, in hexadecimal digits.
fn digest_of(file: &Path) -> anyhow::Result<String> {
    Ok(hex(&fs::read(file).with_context(|| format!("{}", file.display()))?))
}

/// `SHA256SUMS`, as `sha256sum --check` reads it, and a line for each file.
fn sums(release: &Path) -> anyhow::Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(release)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut text = String::new();
    for name in &names {
        let file = release.join(name);
        text.push_str(&format!("{}  {name}\n", digest_of(&file)?));
        println!("{:>8} KiB  {}", fs::metadata(&file)?.len().div_ceil(1024), file.display());
    }
    let file = release.join("SHA256SUMS");
    fs::write(&file, text).with_context(|| format!("{}", file.display()))
}
