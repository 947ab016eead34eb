//! A release made from the programs of this build: unpacked, checked and run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository").to_path_buf()
}

/// What a program printed; it has to end well.
fn run(command: &mut Command) -> String {
    let what = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {out}{err}");
    out.into_owned()
}

/// The programs of this build without what a debugger needs: a tenth of the size.
fn stripped(folder: &Path) {
    let built = Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("a program is in a folder");
    for program in ["fleet", "fleet-controller", "member-agent", "watchdog"] {
        let file = built.join(program);
        assert!(file.exists(), "{}: build it first, with `cargo build --workspace --bins`", file.display());
        run(Command::new("strip").arg("-o").arg(folder.join(program)).arg(&file));
    }
}

fn dist(programs: &Path, out: &Path) -> String {
    run(Command::new(env!("CARGO_BIN_EXE_xtask"))
        .current_dir(repository())
        .args([
            "dist",
            "--target",
            "x86_64-unknown-linux-gnu",
            "--url",
            "https://releases.example.com/fleet",
            "--compression",
            "1",
            "--binaries",
        ])
        .arg(programs)
        .arg("--out")
        .arg(out))
}

fn unpack(archive: &Path, folder: &Path) {
    fs::create_dir_all(folder).expect("a folder to unpack to");
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder));
}

fn sha256(file: &Path) -> String {
    let line = run(Command::new("sha256sum").arg(file));
    line.split_whitespace().next().expect("a digest").to_string()
}

fn json(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The blob of a descriptor, whose digest and size are what it says.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest =
        descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("a digest");
    let file = layout.join("blobs/sha256").join(digest);
    assert_eq!(sha256(&file), digest);
    assert_eq!(Some(file.metadata().expect("a blob").len()), descriptor["size"].as_u64());
    file
}

#[test]
fn a_release_is_whole_and_runs() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (programs, release) = (scratch.path().join("programs"), scratch.path().join("release"));
    fs::create_dir(&programs).expect("a folder");
    stripped(&programs);
    dist(&programs, &release);
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&release));

    the_archive(&release, scratch.path());
    for (program, user) in [
        ("fleet", Some("65532:65532")),
        ("fleet-controller", Some("65532:65532")),
        ("member-agent", Some("65532:65532")),
        ("watchdog", None),
    ] {
        the_image(program, user, &release, scratch.path());
    }
    the_charts(&release, scratch.path());

    // A folder that is no release stays as it is.
    let refused = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .current_dir(repository())
        .args(["dist", "--binaries"])
        .arg(&programs)
        .arg("--out")
        .arg(&programs)
        .output()
        .expect("xtask starts");
    assert!(!refused.status.success() && programs.join("fleet").exists(), "{refused:?}");
}

fn the_archive(release: &Path, scratch: &Path) {
    let package = format!("fleet-{VERSION}-linux-amd64");
    let archive = release.join(format!("{package}.tar.gz"));
    unpack(&archive, scratch);
    let unpacked = scratch.join(&package);
    assert_eq!(run(Command::new(unpacked.join("bin/fleet")).arg("version")), format!("fleet {VERSION}\n"));
    let plugin = run(Command::new(unpacked.join("bin/kubectl-fleet")).arg("--help"));
    assert!(plugin.contains("kubectl fleet"), "{plugin}");
    for program in ["fleet-controller", "member-agent"] {
        let help = run(Command::new(unpacked.join("bin").join(program)).arg("--help"));
        assert!(help.contains(program), "{help}");
    }
    run(Command::new("bash").arg("-n").arg(unpacked.join("completions/fleet.bash")));
    for completion in ["completions/_fleet", "completions/fleet.fish"] {
        let script = fs::read_to_string(unpacked.join(completion)).expect("a completion");
        assert!(script.contains("explain"), "{completion}");
    }
    for (page, wanted) in
        [("fleet.1", "explain"), ("fleet-explain.1", ".SH SYNOPSIS"), ("fleet-vc-apply.1", "NAME")]
    {
        let text = fs::read_to_string(unpacked.join("man/man1").join(page)).expect(page);
        assert!(text.contains(".TH") && text.contains(wanted), "{page}: {text}");
    }
    assert!(unpacked.join("LICENSE").exists());

    let krew = fs::read_to_string(release.join("fleet.yaml")).expect("the manifest for krew");
    assert!(krew.contains(&format!("sha256: {}\n", sha256(&archive))), "{krew}");
    let uri = format!("uri: https://releases.example.com/fleet/v{VERSION}/{package}.tar.gz\n");
    assert!(krew.contains(&uri), "{krew}");
    let files: Vec<&str> = krew.lines().filter_map(|line| line.trim().strip_prefix("- from: ")).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        assert!(scratch.join(file).exists(), "{file} is not in the archive");
    }
}

fn the_image(program: &str, user: Option<&str>, release: &Path, scratch: &Path) {
    let layout = scratch.join(format!("image-{program}"));
    unpack(&release.join(format!("{program}-{VERSION}-amd64.oci.tar")), &layout);
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&layout.join("index.json"));
    let entry = &index["manifests"][0];
    assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], VERSION);
    let manifest = json(&blob(&layout, entry));
    let config = json(&blob(&layout, &manifest["config"]));
    assert_eq!((config["os"].as_str(), config["architecture"].as_str()), (Some("linux"), Some("amd64")));
    assert_eq!(config["config"]["User"].as_str(), user, "{config}");

    let layer = blob(&layout, &manifest["layers"][0]);
    let plain = scratch.join(format!("{program}.tar"));
    run(Command::new("sh").arg("-c").arg("gzip -dc \"$0\" > \"$1\"").arg(&layer).arg(&plain));
    assert_eq!(config["rootfs"]["diff_ids"][0].as_str(), Some(format!("sha256:{}", sha256(&plain)).as_str()));
    let root = scratch.join(format!("root-{program}"));
    unpack(&plain, &root);
    let entrypoint =
        config["config"]["Entrypoint"][0].as_str().expect("an entrypoint").trim_start_matches('/');
    // The watchdog knows no --help; a flag it does not know is told.
    let started = Command::new(root.join(entrypoint)).arg("--help").output().expect("the program starts");
    assert!(!started.stdout.is_empty() || !started.stderr.is_empty(), "{program}: {started:?}");
}

fn the_charts(release: &Path, scratch: &Path) {
    for chart in ["fleet", "member-agent"] {
        let package = release.join(format!("{chart}-{VERSION}.tgz"));
        let folder = scratch.join("charts");
        unpack(&package, &folder);
        let same = Command::new("diff")
            .arg("-r")
            .arg(folder.join(chart))
            .arg(repository().join("charts").join(chart))
            .output();
        let same = same.expect("diff starts");
        assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
        let helm = std::env::var("FLEET_HELM").unwrap_or_else(|_| "helm".to_string());
        if Command::new(&helm).arg("version").output().is_ok() {
            let values: &[&str] = if chart == "member-agent" { &["--set", "cluster=east"] } else { &[] };
            run(Command::new(&helm).args(["template", "release"]).arg(&package).args(values));
        }
    }
}
