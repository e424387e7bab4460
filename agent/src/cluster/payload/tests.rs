use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::payload::{AssembledLayer, Descriptor, IMAGE_NAME, Index, Manifest, REFERENCE_NAME, Segment};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;
use crate::host::command::{Command, Runner};
use crate::host::hex;

const ONE: &str = "kaas.local/one:v1";
const TWO: &str = "kaas.local/two:v1";
const CARRIED: &str = "kaas.local/one:carried";

fn sum(bytes: &[u8]) -> String {
    hex::lower(&Sha256::digest(bytes))
}

/// A root with a payload of two images that share one layer. The layer's big file is in the root.
struct Root {
    directory: tempfile::TempDir,
    layer: String,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        fs::create_dir_all(directory.path().join("usr/lib")).unwrap();
        fs::write(directory.path().join("usr/lib/program"), &program).unwrap();

        // The layer as tar would make it, cut where the file's content begins and ends.
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(program.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, "usr/local/bin/program", &program[..]).unwrap();
        let layer = tar.into_inner().unwrap();
        let (before, after) = (&layer[..512], &layer[512 + program.len()..]);

        let payload = directory.path().join(DIRECTORY);
        fs::create_dir_all(payload.join("blobs/sha256")).unwrap();
        fs::create_dir_all(payload.join("layers")).unwrap();
        let digest = sum(&layer);
        let assembled = AssembledLayer {
            size: layer.len() as u64,
            segments: vec![
                Segment::Inline { inline: STANDARD.encode(before) },
                Segment::File { file: "/usr/lib/program".into(), size: program.len() as u64 },
                Segment::Inline { inline: STANDARD.encode(after) },
            ],
        };
        let path = payload.join("layers").join(format!("{digest}.json"));
        fs::write(path, serde_json::to_vec(&assembled).unwrap()).unwrap();

        let blob = |content: Vec<u8>, media_type: &str| {
            let hex = sum(&content);
            fs::write(payload.join("blobs/sha256").join(&hex), &content).unwrap();
            Descriptor {
                media_type: media_type.to_owned(),
                digest: format!("sha256:{hex}"),
                size: content.len() as u64,
                platform: None,
                annotations: Default::default(),
            }
        };
        let image = |name: &str| {
            let config = json!({
                "architecture": "amd64", "os": "linux",
                "config": {"Entrypoint": ["/usr/local/bin/program", name]},
                "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
            });
            let manifest = Manifest {
                schema_version: 2,
                media_type: Some("application/vnd.oci.image.manifest.v1+json".to_owned()),
                config: blob(serde_json::to_vec(&config).unwrap(), "application/vnd.oci.image.config.v1+json"),
                layers: vec![Descriptor {
                    media_type: "application/vnd.oci.image.layer.v1.tar".to_owned(),
                    digest: format!("sha256:{digest}"),
                    size: layer.len() as u64,
                    platform: None,
                    annotations: Default::default(),
                }],
            };
            let mut descriptor =
                blob(serde_json::to_vec(&manifest).unwrap(), "application/vnd.oci.image.manifest.v1+json");
            descriptor.annotations =
                [(IMAGE_NAME.to_owned(), name.to_owned()), (REFERENCE_NAME.to_owned(), "v1".to_owned())].into();
            descriptor
        };
        let index = Index {
            schema_version: 2,
            media_type: Some("application/vnd.oci.image.index.v1+json".to_owned()),
            manifests: vec![image(ONE), image(TWO)],
        };
        fs::write(payload.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
        Self { directory, layer: digest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(DIRECTORY).join(name)
    }

    fn payload(&self) -> Payload {
        Payload::open(self.directory.path()).unwrap()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn archive_holds_the_wanted_images_without_duplicate_blobs() {
    let root = Root::new();
    let payload = root.payload();
    assert_eq!(payload.names().collect::<Vec<_>>(), [ONE, TWO]);
    let mut bytes = Vec::new();
    archive::write(&payload, &payload.select(&names(&[TWO, ONE, TWO])).unwrap(), &mut bytes).unwrap();

    let mut entries = Vec::new();
    for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        std::io::copy(&mut entry, &mut content).unwrap();
        if let Some(digest) = path.strip_prefix("blobs/sha256/") {
            assert_eq!(sum(&content), digest, "content of {path}");
        }
        entries.push(path);
    }
    assert_eq!(entries[..2], ["oci-layout", "index.json"]);
    assert_eq!(entries.len(), 2 + 2 * 2 + 1, "two manifests, two configurations, one layer");
    assert!(entries.contains(&format!("blobs/sha256/{}", root.layer)));

    let mut payload = payload;
    for _ in 0..2 {
        assert_eq!(payload.carry("one").unwrap(), [ONE, CARRIED]);
    }
    let refused = payload.carry("three").unwrap_err().to_string();
    assert!(refused.contains("holds no kaas.local/three:carried"), "{refused}");
    let mut both = Vec::new();
    archive::write(&payload, &payload.select(&names(&[ONE, CARRIED])).unwrap(), &mut both).unwrap();
    assert_eq!(tar::Archive::new(&both[..]).entries().unwrap().count(), 2 + 2 + 1, "one image by two names");

    let mut one = Vec::new();
    archive::write(&payload, &payload.select(&names(&[ONE])).unwrap(), &mut one).unwrap();
    assert_eq!(tar::Archive::new(&one[..]).entries().unwrap().count(), 2 + 2 + 1);
}

#[test]
fn damaged_payload_is_reported() {
    let damage = |change: &dyn Fn(&Root)| {
        let root = Root::new();
        change(&root);
        let made = Payload::open(root.directory.path()).and_then(|payload| {
            let image = payload.select(&names(&[ONE]))?;
            let manifest = payload.manifest(image[0])?;
            payload.pieces(&manifest.layers[0]).map(drop)
        });
        made.unwrap_err().to_string()
    };
    let layers = |root: &Root| root.path(&format!("layers/{}.json", root.layer));
    let edit = |path: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    let program = |root: &Root| root.directory.path().join("usr/lib/program");
    for (error, expected) in [
        (damage(&|root| fs::write(program(root), "short").unwrap()), "usr/lib/program: it has 5 bytes, not 1200000"),
        (damage(&|root| fs::remove_file(program(root)).unwrap()), "usr/lib/program: No such file"),
        (damage(&|root| edit(&layers(root), "1200000", "1200001")), "its pieces make"),
        (damage(&|root| edit(&layers(root), "\"size\":", "\"size\":9")), "bytes, not"),
        (damage(&|root| edit(&layers(root), "/usr/lib", "usr/lib")), "is not an absolute path"),
        (damage(&|root| edit(&layers(root), "\"inline\":\"", "\"inline\":\"*")), "Invalid symbol"),
        (damage(&|root| fs::remove_file(layers(root)).unwrap()), "layers/"),
        (damage(&|root| fs::remove_file(root.path("index.json")).unwrap()), "index.json: No such file"),
        (damage(&|root| edit(&root.path("index.json"), "sha256:", "sha256:../")), "is no SHA-256 digest"),
        (damage(&|root| edit(&root.path("index.json"), IMAGE_NAME, "other")), "has no io.containerd.image.name"),
        (damage(&|root| edit(&root.path("index.json"), "one:v1", "three:v1")), "it holds kaas.local/three:v1, kaas"),
    ] {
        assert!(error.contains(expected), "{error} does not say {expected}");
    }
}

#[test]
fn file_that_shrinks_during_the_import_ends_it() {
    let root = Root::new();
    let payload = root.payload();
    struct Shrinks<'a>(&'a Path);
    impl Runner for Shrinks<'_> {
        fn run(&self, _: &Command) -> Result<Vec<u8>, command::Error> {
            Ok(Vec::new())
        }
        fn run_fed(&self, _: &Command, feed: command::Feed<'_>) -> Result<Vec<u8>, command::Error> {
            struct Sink<'a>(&'a Path);
            impl std::io::Write for Sink<'_> {
                fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                    fs::write(self.0, "short")?;
                    Ok(bytes.len())
                }
                fn flush(&mut self) -> std::io::Result<()> {
                    Ok(())
                }
            }
            feed(&mut Sink(self.0)).map_err(|source| command::Error::Feed { command: "ctr".to_owned(), source })?;
            Ok(Vec::new())
        }
    }
    let program = root.directory.path().join("usr/lib/program");
    let result = ensure(&payload, &Containerd::default(), &Shrinks(&program), &names(&[ONE]));
    let error = result.unwrap_err().to_string();
    assert!(error.contains("usr/lib/program"), "{error}");
}

/// Answers like `ctr`, from a table.
struct FakeCtr {
    table: Mutex<Vec<String>>,
    imported: Mutex<usize>,
}

impl Runner for FakeCtr {
    fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
        if command.to_string().ends_with("images check") {
            return Ok(self.table.lock().unwrap().join("\n").into_bytes());
        }
        *self.imported.lock().unwrap() += 1;
        Ok(Vec::new())
    }
}

#[test]
fn only_complete_images_of_the_digest_are_present() {
    let root = Root::new();
    let payload = root.payload();
    let digest = payload.select(&names(&[ONE])).unwrap()[0].digest().to_owned();
    let check = |line: &str| {
        let line = line.replace("DIGEST", &digest);
        let runner = FakeCtr { table: Mutex::new(vec!["REF TYPE".to_owned(), line]), imported: Mutex::new(0) };
        let result = ensure(&payload, &Containerd::default(), &runner, &names(&[ONE]));
        (runner.imported.into_inner().unwrap(), result)
    };
    let (imported, result) = check(&format!("{ONE} type DIGEST complete (3/3) 1 MiB/1 MiB true"));
    assert_eq!((imported, result.unwrap().len()), (0, 0));
    for line in [
        "",
        &format!("{ONE} type DIGEST incomplete (2/3) 1 MiB/2 MiB true"),
        &format!("{ONE} type DIGEST complete (3/3) 1 MiB/1 MiB false"),
        &format!("{ONE} type sha256:00 complete (3/3) 1 MiB/1 MiB true"),
        &format!("{TWO} type DIGEST complete (3/3) 1 MiB/1 MiB true"),
    ] {
        let (imported, result) = check(line);
        assert_eq!(imported, 1, "{line}");
        assert!(matches!(result, Err(Error::NotThere(_))), "{line}");
    }
}
