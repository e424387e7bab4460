//! The sizes of the parts of an image, as a table next to the OVA: components, packages and our own files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use contract::payload::{IMAGE_NAME, Index, Manifest};

use crate::component::build::Built;
use crate::kernel::UnpackedKernel;
use crate::payload;
use crate::root_image::RootImage;
use crate::tree::{Content, Kind, Tree, matches};

/// The sources of the files in an image's root.
pub struct Sources<'s> {
    /// The packages as a tar archive, with dpkg's lists of files.
    pub debian: &'s Path,
    pub kernel: &'s UnpackedKernel,
    pub components: &'s [Built],
    /// The directory of our own programs.
    pub own: &'s Path,
}

/// Bytes of a part: its files, and what they take on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    files: u64,
    stored: u64,
}

/// Writes the table to a file: a line for each part, the largest first.
///
/// # Errors
/// When the log of mkfs.erofs has another format, or a file cannot be read or written.
pub fn write(place: &Path, tree: &Tree, image: &RootImage, kernel_image: &Path, sources: &Sources<'_>) -> Result<()> {
    let length = |file: &Path| {
        let found = fs::metadata(file).with_context(|| format!("reading {}", file.display()));
        found.map(|metadata| metadata.len())
    };
    let stored = fs::read_to_string(&image.log).with_context(|| format!("reading {}", image.log.display()))?;
    let mut parts = parts(tree, &stored_sizes(&stored), sources)?;
    check_sum(&parts, length(&image.erofs)?)?;
    for (name, file) in [("kernel and initial root", kernel_image), ("hash tree of the root", image.verity.as_path())] {
        let length = length(file)?;
        parts.insert(name.to_owned(), Sizes { files: length, stored: length });
    }
    fs::write(place, table(parts)).with_context(|| format!("writing {}", place.display()))
}

/// Fails if the parts take more than the root: files whose line is missing in the log count as uncompressed.
fn check_sum(parts: &BTreeMap<String, Sizes>, root: u64) -> Result<()> {
    let sum: u64 = parts.values().map(|sizes| sizes.stored).sum();
    ensure!(
        sum <= root,
        "the log of mkfs.erofs gives {sum} bytes for the files of a root of {root} bytes: its messages have another \
         format, so change `stored_sizes` in image/src/contents.rs"
    );
    Ok(())
}

/// The parts of a root by name. Files that `stored` does not have are not compressed.
fn parts(tree: &Tree, stored: &BTreeMap<&Path, u64>, sources: &Sources<'_>) -> Result<BTreeMap<String, Sizes>> {
    let packages = package_files(sources.debian)?;
    let images = image_layers(tree)?;
    let mut parts: BTreeMap<String, Sizes> = BTreeMap::new();
    for (path, node) in tree.iter() {
        let Kind::File(content) = &node.kind else { continue };
        let part = sources.part(content).or_else(|| images.get(path).cloned());
        let part = part.or_else(|| packages.get(path).map(|name| format!("package {name}")));
        let sizes = parts.entry(part.unwrap_or_else(|| "other files".to_owned())).or_default();
        let length = content.length().with_context(|| format!("reading {}", path.display()))?;
        sizes.files += length;
        sizes.stored += stored.get(path).copied().unwrap_or(length);
    }
    Ok(parts)
}

impl Sources<'_> {
    /// The part that a file of the build host belongs to.
    fn part(&self, content: &Content) -> Option<String> {
        let Content::Host(file) = content else { return None };
        if file.starts_with(&self.kernel.modules) {
            return Some("modules of the kernel".to_owned());
        }
        let built = self.components.iter().find(|built| file.starts_with(&built.directory));
        let own = || file.parent() == Some(self.own);
        let name = || file.file_name().map(|name| format!("program {}", name.to_string_lossy()));
        built.map(|built| format!("component {}", built.component.name)).or_else(|| own().then(name).flatten())
    }
}

/// The package of each file, from dpkg's lists.
fn package_files(debian: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let lists = Tree::from_tar(debian, |path| matches("/var/lib/dpkg/info/*.list", path))?;
    let mut files = BTreeMap::new();
    for (path, _) in lists.iter() {
        // `libc6:amd64.list`
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let package = name.split(':').next().unwrap_or_default();
        let text = lists.read(path)?;
        for file in String::from_utf8_lossy(&text).lines() {
            files.insert(PathBuf::from(file.trim_start_matches('/')), package.to_owned());
        }
    }
    Ok(files)
}

/// The container image of each layer that the payload has as a whole.
fn image_layers(tree: &Tree) -> Result<BTreeMap<PathBuf, String>> {
    let blob = |digest: &str| Path::new(payload::PLACE).join("blobs").join(digest.replace(':', "/"));
    let index: Index = serde_json::from_slice(&tree.read(Path::new(payload::PLACE).join("index.json"))?)?;
    let mut layers = BTreeMap::new();
    for image in index.manifests {
        let manifest: Manifest = serde_json::from_slice(&tree.read(blob(&image.digest))?)?;
        // `kaas.local/coredns:v1.15.0`
        let name = image.annotations.get(IMAGE_NAME).map(String::as_str).unwrap_or_default();
        let name = name.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or_default();
        for layer in manifest.layers {
            layers.insert(blob(&layer.digest), format!("container image {name}"));
        }
    }
    Ok(layers)
}

/// The sizes of compressed files, from lines of mkfs.erofs such as `<I> erofs: compressed etc/services (12813 bytes)
/// into 8192 bytes`.
fn stored_sizes(log: &str) -> BTreeMap<&Path, u64> {
    let sizes = log.lines().filter_map(|line| {
        let (path, sizes) = line.strip_prefix("<I> erofs: compressed ")?.rsplit_once(" (")?;
        let stored = sizes.split_once(" into ")?.1.strip_suffix(" bytes")?;
        Some((Path::new(path), stored.parse().ok()?))
    });
    sizes.collect()
}

/// The parts in Markdown, with their sum.
fn table(parts: BTreeMap<String, Sizes>) -> String {
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by_key(|(_, sizes)| std::cmp::Reverse(sizes.stored));
    let sum = |size: fn(&Sizes) -> u64| parts.iter().map(|(_, sizes)| size(sizes)).sum();
    parts.push(("sum".to_owned(), Sizes { files: sum(|sizes| sizes.files), stored: sum(|sizes| sizes.stored) }));
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let line = |(name, Sizes { files, stored }): &(String, Sizes)| {
        format!("| {name} | {:.2} | {:.2} |\n", megabytes(*files), megabytes(*stored))
    };
    let lines: String = parts.iter().map(line).collect();
    format!("| Part | MB of files | MB on the disk |\n|---|---|---|\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Key, Stage};

    #[test]
    fn compressed_files_have_their_stored_size() {
        let log = "mkfs.erofs 1.8.6\n<I> erofs: compressed etc/a (1) (12813 bytes) into 8192 bytes\n\
                   <I> erofs: file etc dumped (mode 40755)\n";
        assert_eq!(stored_sizes(log), BTreeMap::from([(Path::new("etc/a (1)"), 8192)]));
    }

    #[test]
    fn each_file_belongs_to_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut lists = Tree::default();
        lists.text("var/lib/dpkg/info/libc6:amd64.list", "/.\n/usr/lib/libc.so.6\n");
        lists.write_tar(fs::File::create(at("root.tar")).unwrap(), 0).unwrap();

        let mut tree = Tree::default();
        tree.text("usr/lib/libc.so.6", vec![0_u8; 100]);
        for (path, file) in [
            ("usr/lib/modules/erofs.ko", "modules/erofs.ko"),
            ("usr/bin/etcd", "etcd/etcd"),
            ("usr/bin/kaas-agent", "own/kaas-agent"),
        ] {
            fs::create_dir(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), [0_u8; 20]).unwrap();
            tree.file(path, Content::Host(at(file)), 0o755);
        }
        let descriptor = |digest: &str| format!(r#""mediaType":"m","digest":"sha256:{digest}","size":1"#);
        let image = format!(
            r#"{{"schemaVersion":2,"manifests":[{{{},"annotations":{{"{IMAGE_NAME}":"kaas.local/pause:v1"}}}}]}}"#,
            descriptor("aa")
        );
        let manifest =
            format!(r#"{{"schemaVersion":2,"config":{{{}}},"layers":[{{{}}}]}}"#, descriptor("bb"), descriptor("cc"));
        tree.text(&format!("{}/index.json", payload::PLACE), image);
        tree.text(&format!("{}/blobs/sha256/aa", payload::PLACE), manifest);
        tree.text(&format!("{}/blobs/sha256/cc", payload::PLACE), vec![0_u8; 1000]);

        let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (_, components) = crate::spec::read(&spec).unwrap();
        let component = components.into_iter().find(|component| component.name == "etcd").unwrap();
        let built = Built { component, directory: at("etcd"), key: Key::of(Stage::COMPONENTS).finish() };
        let kernel = UnpackedKernel {
            vmlinuz: PathBuf::new(),
            release: String::new(),
            modules: at("modules"),
            copyright: PathBuf::new(),
            initial_modules: PathBuf::new(),
        };
        let (debian, own) = (at("root.tar"), at("own"));
        let sources = Sources { debian: &debian, kernel: &kernel, components: &[built], own: &own };
        let stored = BTreeMap::from([(Path::new("usr/lib/libc.so.6"), 40)]);
        let mut parts = parts(&tree, &stored, &sources).unwrap();
        for (part, files, stored) in [
            ("package libc6", 100, 40),
            ("modules of the kernel", 20, 20),
            ("component etcd", 20, 20),
            ("program kaas-agent", 20, 20),
            ("container image pause", 1000, 1000),
        ] {
            assert_eq!(parts.remove(part), Some(Sizes { files, stored }), "{part}");
        }
        assert_eq!(parts.into_keys().collect::<Vec<_>>(), ["other files"]);
    }

    #[test]
    fn an_unknown_log_is_an_error() {
        let parts = BTreeMap::from([("a".to_owned(), Sizes { files: 9000, stored: 9000 })]);
        check_sum(&parts, 9000).unwrap();
        let error = check_sum(&parts, 8192).unwrap_err().to_string();
        assert!(error.contains("9000 bytes") && error.contains("its messages have another format"), "{error}");
    }

    #[test]
    fn the_largest_part_is_first() {
        let sizes = |files: u64, stored: u64| Sizes { files, stored };
        let parts = BTreeMap::from([
            ("a".to_owned(), sizes(9_000_000, 1_000_000)),
            ("b".to_owned(), sizes(8_000_000, 2_000_000)),
        ]);
        let lines = "| b | 8.00 | 2.00 |\n| a | 9.00 | 1.00 |\n| sum | 17.00 | 3.00 |\n";
        assert!(table(parts).ends_with(lines));
    }
}
