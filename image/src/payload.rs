//! The container images of the payload, as an OCI image layout (image-spec
//! 1.1). A layer that would repeat a program of the root is described instead of
//! stored; the agent puts it together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::payload::{AssembledLayer, Descriptor, IMAGE_NAME, Index, Manifest, REFERENCE_NAME, Segment};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cache::hex;
use crate::component::build::Built;
use crate::component::minor;
use crate::tree::{Content, Piece, Tree};

/// Where the layout is in the image.
pub const PLACE: &str = "usr/lib/kaas/payload";
/// What image names begin with. No registry has this name: nothing is pulled.
const REGISTRY: &str = "kaas.local";
/// The parts of Kubernetes that run as static pods.
const STATIC_PODS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The payload as a tree: the images of each Kubernetes, whose program stands in the root, and of the parts that
/// are there as an image only.
///
/// # Errors
/// When a program cannot be read.
pub fn compose(kubernetes: &[&Built], images: &[&Built], epoch: u64) -> Result<Tree> {
    let mut layout = Layout { epoch, ..Layout::default() };
    for built in kubernetes {
        let version = &built.component.version;
        let programs = built.component.programs();
        let program = programs.first().context("Kubernetes without a program")?;
        let minor = minor(version).context("Kubernetes without a minor")?;
        let root_path = PathBuf::from(format!("/usr/lib/kubernetes/{minor}/{}", program.output));
        let layer = layout.layer(built, &program.output, &program.names, "usr/local/bin", Some(root_path))?;
        for name in STATIC_PODS {
            layout.image(name, &format!("v{version}"), &layer, &[&format!("/usr/local/bin/{name}")], "")?;
        }
    }
    for built in images {
        let name = &built.component.name;
        let programs = built.component.programs();
        let program = programs.first().context("an image without a program")?;
        let layer = layout.layer(built, &program.output, &program.names, "", None)?;
        // The pause container has no business as root.
        let user = if name == "pause" { "65535:65535" } else { "" };
        let tag = format!("v{}", built.component.version);
        layout.image(name, &tag, &layer, &[&format!("/{}", program.output)], user)?;
    }
    layout.finish()
}

#[derive(Default)]
struct Layout {
    tree: Tree,
    manifests: Vec<Descriptor>,
    epoch: u64,
}

impl Layout {
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let digest = hex(&Sha256::digest(&bytes));
        let size = bytes.len() as u64;
        self.tree.text(&format!("{PLACE}/blobs/sha256/{digest}"), bytes);
        descriptor(media_type, &digest, size)
    }

    /// A layer with one program and its further names in `directory`. `in_root` is where the same program stands in
    /// the image's root, if it does.
    fn layer(
        &mut self,
        built: &Built,
        program: &str,
        names: &[String],
        directory: &str,
        in_root: Option<PathBuf>,
    ) -> Result<Descriptor> {
        let mut layer = Tree::default();
        let directory = Path::new(directory);
        layer.file(directory.join(program), Content::Host(built.directory.join(program)), 0o755);
        for name in names {
            layer.link(directory.join(name), program);
        }
        let mut digest = Sha256::new();
        let mut size = 0;
        let mut bytes = Vec::new();
        let mut segments = Vec::new();
        for piece in layer.archive(self.epoch, false)? {
            let content = match &piece {
                Piece::Bytes(frame) => frame.clone(),
                Piece::Content(content, _) => content.read().with_context(|| format!("reading {program}"))?,
            };
            digest.update(&content);
            size += content.len() as u64;
            segments.push(match (&in_root, piece) {
                (Some(file), Piece::Content(_, size)) => Segment::File { file: file.clone(), size },
                (_, _) => {
                    Segment::Inline { inline: STANDARD.encode(if in_root.is_some() { &content[..] } else { &[] }) }
                }
            });
            if in_root.is_none() {
                bytes.extend(content);
            }
        }
        let digest = hex(&digest.finalize());
        if in_root.is_some() {
            let assembled = serde_json::to_vec(&AssembledLayer { size, segments })?;
            self.tree.text(&format!("{PLACE}/layers/{digest}.json"), assembled);
            return Ok(descriptor(LAYER, &digest, size));
        }
        Ok(self.blob(LAYER, bytes))
    }

    fn image(&mut self, name: &str, tag: &str, layer: &Descriptor, entry: &[&str], user: &str) -> Result<()> {
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": user,
                "Env": ["PATH=/usr/local/bin:/"],
                "Entrypoint": entry,
                "WorkingDir": "/",
            },
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        });
        let config = self.blob(CONFIG, serde_json::to_vec(&config)?);
        let manifest =
            Manifest { schema_version: 2, media_type: Some(MANIFEST.to_owned()), config, layers: vec![layer.clone()] };
        let mut manifest = self.blob(MANIFEST, serde_json::to_vec(&manifest)?);
        manifest.platform = Some(json!({ "architecture": "amd64", "os": "linux" }));
        manifest.annotations = BTreeMap::from([
            (IMAGE_NAME.to_owned(), format!("{REGISTRY}/{name}:{tag}")),
            (REFERENCE_NAME.to_owned(), tag.to_owned()),
        ]);
        self.manifests.push(manifest);
        Ok(())
    }

    fn finish(mut self) -> Result<Tree> {
        let index = Index { schema_version: 2, media_type: Some(INDEX.to_owned()), manifests: self.manifests };
        self.tree.text(&format!("{PLACE}/index.json"), serde_json::to_vec(&index)?);
        self.tree.text(&format!("{PLACE}/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#);
        Ok(self.tree)
    }
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: format!("sha256:{digest}"),
        size,
        platform: None,
        annotations: BTreeMap::new(),
    }
}
