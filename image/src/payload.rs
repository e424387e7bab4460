//! The container images of the payload, as an OCI image layout (image-spec 1.1). A layer with a program of the root
//! has a description instead of a copy: the agent assembles it.

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
use crate::linked::Selection;
use crate::tree::{Content, Kind, Piece, Tree};

/// Path of the layout in the image.
pub const PLACE: &str = "usr/lib/kaas/payload";
/// Registry in image names. No registry has this name, so no image is pulled.
const REGISTRY: &str = "kaas.local";
/// The parts of Kubernetes that run as static pods.
const STATIC_PODS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The container image of a program in the root, with its libraries.
pub struct RootProgram<'n> {
    pub name: &'n str,
    pub tag: String,
    pub program: PathBuf,
}

/// The payload as a tree. It has images of each Kubernetes, of components without a program in the root, and of our own
/// programs. The programs of Kubernetes and our own are in the root. Fails if the root lacks a library.
pub fn compose(
    kubernetes: &[&Built],
    images: &[&Built],
    (root, of_root): (&Tree, &[RootProgram<'_>]),
    epoch: u64,
) -> Result<Tree> {
    let mut layout = Layout { epoch, ..Layout::default() };
    for built in kubernetes {
        let version = &built.component.version;
        let programs = built.component.programs();
        let program = programs.first().context("Kubernetes without a program")?;
        let minor = minor(version).context("Kubernetes without a minor version")?;
        let root_path = PathBuf::from(format!("/usr/lib/kubernetes/{minor}/{}", program.output));
        let layer = one_program(built, &program.output, &program.names, "usr/local/bin");
        let layer = layout.layer(&layer, Some(&|_| root_path.clone()))?;
        for name in STATIC_PODS {
            layout.image(name, &format!("v{version}"), &layer, &[&format!("/usr/local/bin/{name}")], "")?;
        }
    }
    for built in images {
        let name = &built.component.name;
        let programs = built.component.programs();
        let program = programs.first().context("an image without a program")?;
        let layer = layout.layer(&one_program(built, &program.output, &program.names, ""), None)?;
        // The pause container does not need root.
        let user = if name == "pause" { "65535:65535" } else { "" };
        let tag = format!("v{}", built.component.version);
        layout.image(name, &tag, &layer, &[&format!("/{}", program.output)], user)?;
    }
    for RootProgram { name, tag, program } in of_root {
        let layer = with_libraries(root, program).with_context(|| format!("putting the image {name} together"))?;
        let layer = layout.layer(&layer, Some(&|path| Path::new("/").join(path)))?;
        // It does not need root.
        layout.image(name, tag, &layer, &[&program.display().to_string()], NOBODY)?;
    }
    layout.finish()
}

/// The user of programs without rights on their node: user `nobody`, group `nogroup` (Debian's base-passwd).
const NOBODY: &str = "65534:65534";

/// The files of a layer with one program and its further names in `directory`.
fn one_program(built: &Built, program: &str, names: &[String], directory: &str) -> Tree {
    let mut layer = Tree::default();
    let directory = Path::new(directory);
    layer.file(directory.join(program), Content::Host(built.directory.join(program)), 0o755);
    for name in names {
        layer.link(directory.join(name), program);
    }
    layer
}

/// A program of the root and its libraries, with their paths in the root.
fn with_libraries(root: &Tree, program: &Path) -> Result<Tree> {
    let mut selection = Selection::of(root);
    selection.add(program.strip_prefix("/").unwrap_or(program))?;
    let mut layer = selection.into_tree();
    // Programs have a path of the dynamic linker from before directories were merged.
    for directory in ["lib", "lib64"] {
        layer.link(directory, format!("usr/{directory}"));
    }
    Ok(layer)
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

    /// Writes a layer. With `in_root`, which returns a file's path in the root, the layer is a description without
    /// the files' contents.
    fn layer(&mut self, layer: &Tree, in_root: Option<&dyn Fn(&Path) -> PathBuf>) -> Result<Descriptor> {
        let mut files = layer.iter().filter(|(_, node)| matches!(node.kind, Kind::File(_))).map(|(path, _)| path);
        let mut digest = Sha256::new();
        let mut size = 0;
        let mut bytes = Vec::new();
        let mut segments = Vec::new();
        for piece in layer.archive(self.epoch, false)? {
            // The archive has the contents in the order of the files.
            let (content, stands) = match piece {
                Piece::Bytes(frame) => (frame, None),
                Piece::Content(content, size) => {
                    let path = files.next().context("a layer with more contents than files")?;
                    let bytes = content.read().with_context(|| format!("reading {}", path.display()))?;
                    (bytes, in_root.map(|in_root| Segment::File { file: in_root(path), size }))
                }
            };
            digest.update(&content);
            size += content.len() as u64;
            match in_root {
                Some(_) => {
                    segments.push(stands.unwrap_or_else(|| Segment::Inline { inline: STANDARD.encode(&content) }))
                }
                None => bytes.extend(content),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with a program and its libraries: this test's, with those of this machine.
    fn root() -> (Tree, u64) {
        let mut root = Tree::default();
        let own = std::env::current_exe().unwrap();
        root.file("usr/bin/kaas-controller", Content::Host(own.clone()), 0o755);
        let linker = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
        root.text(linker, "linker");
        root.link("usr/lib64/ld-linux-x86-64.so.2", "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
        for library in crate::elf::needed(&std::fs::read(&own).unwrap()).unwrap() {
            let path = format!("usr/lib/x86_64-linux-gnu/{library}");
            if root.get(&path).is_none() {
                root.text(&path, format!("library {library}"));
            }
        }
        root.text("usr/bin/other", "no part of it");
        (root, std::fs::metadata(own).unwrap().len())
    }

    #[test]
    fn a_program_of_the_root_is_stored_once() {
        let (root, length) = root();
        let program = PathBuf::from("/usr/bin/kaas-controller");
        let of_root = [RootProgram { name: "controller", tag: "v1.2.3".to_owned(), program: program.clone() }];
        let payload = compose(&[], &[], (&root, &of_root), 7).unwrap();
        let read = |path: &str| payload.read(format!("{PLACE}/{path}")).unwrap();
        let blob = |digest: &str| read(&format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap()));
        let index: Index = serde_json::from_slice(&read("index.json")).unwrap();
        let [image] = index.manifests.as_slice() else { panic!("{index:?}") };
        assert_eq!(image.annotations[IMAGE_NAME], "kaas.local/controller:v1.2.3");
        let manifest: Manifest = serde_json::from_slice(&blob(&image.digest)).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&blob(&manifest.config.digest)).unwrap();
        assert_eq!(config["config"]["User"], NOBODY);
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/kaas-controller"]));

        let [layer] = manifest.layers.as_slice() else { panic!("{manifest:?}") };
        let hex = layer.digest.strip_prefix("sha256:").unwrap();
        assert!(payload.get(format!("{PLACE}/blobs/sha256/{hex}")).is_none());
        let assembled: AssembledLayer = serde_json::from_slice(&read(&format!("layers/{hex}.json"))).unwrap();
        let mut whole = Vec::new();
        let mut inside = 0;
        for segment in &assembled.segments {
            match segment {
                Segment::Inline { inline } => {
                    let bytes = STANDARD.decode(inline).unwrap();
                    inside += bytes.len();
                    whole.extend(bytes);
                }
                Segment::File { file, size } => {
                    let bytes = root.read(file.strip_prefix("/").unwrap()).unwrap();
                    assert_eq!((bytes.len() as u64, *file == program), (*size, *size == length), "{file:?}");
                    whole.extend(bytes);
                }
            }
        }
        assert_eq!((whole.len() as u64, assembled.size), (layer.size, layer.size));
        assert_eq!(hex, super::hex(&Sha256::digest(&whole)));
        assert!(inside < 32 * 1024, "{inside} bytes are in the description");

        let mut archive = tar::Archive::new(whole.as_slice());
        let names: Vec<String> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        for expected in
            ["usr/bin/kaas-controller", "usr/lib/x86_64-linux-gnu/libc.so.6", "lib64", "usr/lib64/ld-linux-x86-64.so.2"]
        {
            assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("other")), "{names:?}");
    }

    #[test]
    fn a_program_without_its_libraries_is_no_image() {
        let (mut root, _) = root();
        root.remove(Path::new("usr/lib/x86_64-linux-gnu/libc.so.6"));
        let of_root =
            [RootProgram { name: "controller", tag: "v1".to_owned(), program: "/usr/bin/kaas-controller".into() }];
        let error = format!("{:#}", compose(&[], &[], (&root, &of_root), 7).unwrap_err());
        assert!(error.starts_with("putting the image controller together: ") && error.contains("libc.so.6"), "{error}");
    }
}
