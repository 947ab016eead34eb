//! Images as OCI layouts in one tar file, made without a container engine. `skopeo`, `podman load`, `ctr images import` and
//! `docker load` read them. They hold what `charts/images/Dockerfile` puts into its images.

use std::{fs, path::Path};

use anyhow::Context;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, DescriptorBuilder, Digest, ImageConfigurationBuilder, ImageIndexBuilder,
    ImageManifestBuilder, MediaType, Os, PlatformBuilder, RootFsBuilder,
};

use super::{
    archive::{self, ArchiveEntry},
    names::{Platform, VERSION, hex},
};

/// Fits the charts' runAsUser; there is no /etc/passwd.
const USER: &str = "65532:65532";
/// The processes end on the signal of Ctrl-C.
const STOP_SIGNAL: &str = "SIGINT";
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

pub struct Image<'a> {
    pub program: &'a str,
    pub file: &'a Path,
    pub certificates: &'a Path,
    pub platform: &'a Platform,
    pub compression: u32,
}

/// Where the program is in its image. The watchdog signals processes of any user of its pod, so it runs as root; its startup
/// probe names it at the root.
fn place(program: &str) -> (String, Option<&'static str>) {
    match program {
        "watchdog" => ("watchdog".to_string(), None),
        other => (format!("usr/local/bin/{other}"), Some(USER)),
    }
}

/// Writes the layout of one image.
pub fn write(image: &Image<'_>, file: &Path) -> anyhow::Result<()> {
    let (path, user) = place(image.program);
    let mut entries = vec![ArchiveEntry::program(path.clone(), image.file)?];
    if user.is_some() {
        let roots = fs::read(image.certificates)
            .with_context(|| format!("--certificates {}", image.certificates.display()))?;
        entries.push(ArchiveEntry::text(CERTIFICATES.to_string(), roots));
    }
    let mut layout = Layout::default();
    let tar = archive::tar(&entries)?;
    let layer = layout.add(archive::gz(&tar, image.compression)?, MediaType::ImageLayerGzip)?;

    let (os, arch) = (Os::from(image.platform.os), Arch::from(image.platform.arch));
    let mut config = ConfigBuilder::default()
        .entrypoint(vec![format!("/{path}")])
        .env(vec!["PATH=/usr/local/bin".to_string()])
        .stop_signal(STOP_SIGNAL);
    if let Some(user) = user {
        config = config.user(user);
    }
    let root =
        RootFsBuilder::default().typ("layers").diff_ids(vec![format!("sha256:{}", hex(&tar))]).build()?;
    let configuration = ImageConfigurationBuilder::default()
        .os(os.clone())
        .architecture(arch.clone())
        .config(config.build()?)
        .rootfs(root)
        .build()?;
    let configuration = layout.add(serde_json::to_vec(&configuration)?, MediaType::ImageConfig)?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(2u32)
        .media_type(MediaType::ImageManifest)
        .config(configuration)
        .layers(vec![layer])
        .build()?;
    let mut manifest = layout.add(serde_json::to_vec(&manifest)?, MediaType::ImageManifest)?;
    manifest.set_platform(Some(PlatformBuilder::default().os(os).architecture(arch).build()?));
    let name = format!("fleet/{}:{VERSION}", image.program);
    let names =
        [("org.opencontainers.image.ref.name", VERSION.to_string()), ("io.containerd.image.name", name)];
    manifest.set_annotations(Some(names.map(|(key, value)| (key.to_string(), value)).into()));
    layout.write(manifest, file)
}

#[derive(Default)]
struct Layout {
    blobs: Vec<ArchiveEntry>,
}

impl Layout {
    fn add(&mut self, data: Vec<u8>, kind: MediaType) -> anyhow::Result<Descriptor> {
        let digest = hex(&data);
        let name: Digest = format!("sha256:{digest}").parse()?;
        let descriptor =
            DescriptorBuilder::default().media_type(kind).digest(name).size(data.len() as u64).build()?;
        self.blobs.push(ArchiveEntry::text(format!("blobs/sha256/{digest}"), data));
        Ok(descriptor)
    }

    fn write(mut self, manifest: Descriptor, file: &Path) -> anyhow::Result<()> {
        let index = ImageIndexBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageIndex)
            .manifests(vec![manifest])
            .build()?;
        self.blobs.push(ArchiveEntry::text("index.json".to_string(), canonical(&index)?));
        self.blobs.push(ArchiveEntry::text(
            "oci-layout".to_string(),
            br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
        ));
        fs::write(file, archive::tar(&self.blobs)?).with_context(|| format!("{}", file.display()))
    }
}

/// Annotations are a hash map in the library's type; through a `Value` they come in order.
fn canonical(index: &oci_spec::image::ImageIndex) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&serde_json::to_value(index)?)?)
}
