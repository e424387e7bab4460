//! The image's root as a tree: Debian's packages, the kernel's modules, upstream components, the payload, our own
//! files and the agent.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use contract::image::{self, Compilers, Description, ImageFacts, KubernetesRelease, PATH};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::component::build::Built;
use crate::component::minor;
use crate::debian::lock::Lock;
use crate::kernel::UnpackedKernel;
use crate::own_programs::{self, OwnPrograms};
use crate::spec::{Files, Spec};
use crate::tree::{Content, Kind, Node, Tree, matches};

/// Path of the agent in the image.
pub const AGENT: &str = "usr/bin/kaas-agent";

/// Subdirectories of `systemd/` whose path in the image is below /usr/lib. The others are below /usr/lib/systemd.
const BESIDE_SYSTEMD: [&str; 5] = ["modules-load.d", "repart.d", "sysctl.d", "sysusers.d", "tmpfiles.d"];

/// Files of a tree from packages that VMs must not share, or that an image does not need: dpkg's records, caches,
/// logs, host keys.
const STATE: [&str; 10] = [
    "/boot/**",
    "/dev/**",
    // It has the name of the directory that the packages came from.
    "/etc/apt",
    "/etc/apt/**",
    "/etc/fstab",
    "/etc/hostname",
    "/etc/machine-id",
    "/etc/ssh/ssh_host_*",
    "/run/**",
    "/var/**",
];

/// The root without our own files: packages, kernel modules and upstream components.
pub fn base(spec: &Spec, debian: &Path, kernel: &UnpackedKernel, components: &[Built]) -> Result<Tree> {
    let mut tree = Tree::from_tar(debian, |path| !STATE.iter().any(|pattern| matches(pattern, path)))?;
    for pattern in &spec.files.leave_out {
        leave_out(&mut tree, pattern);
    }
    // The path of modules is the same, because /lib is a link to /usr/lib.
    tree.host_directory(&kernel.modules, Path::new("usr/lib/modules"))?;
    let copyright = std::fs::read(&kernel.copyright).context("reading the kernel's licence")?;
    tree.text("usr/share/doc/linux/copyright", copyright);
    for name in &spec.components.kubernetes {
        let built = find(components, name)?;
        let minor = minor(&built.component.version).context("Kubernetes without a minor version")?;
        tree.host_directory(&built.directory, &Path::new("usr/lib/kubernetes").join(minor))?;
    }
    for (directory, names) in &spec.components.programs {
        for name in names {
            let built = find(components, name)?;
            tree.host_directory(&built.directory, directory)?;
        }
    }
    Ok(tree)
}

/// Adds our own files: units, settings, links, mount points.
pub fn add_own_files(tree: &mut Tree, spec: &Spec, lock: &Lock) -> Result<()> {
    for entry in std::fs::read_dir(&spec.files.systemd).context("reading the directory with the units")? {
        let entry = entry.context("reading the directory with the units")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let place = match BESIDE_SYSTEMD.contains(&name.as_str()) {
            true => Path::new("usr/lib").join(&name),
            false => Path::new("usr/lib/systemd").join(&name),
        };
        if entry.path().is_dir() {
            tree.host_directory(&entry.path(), &place)?;
        }
    }
    for root in &spec.files.roots {
        let mut own = Tree::default();
        own.host_directory(root, Path::new(""))?;
        restrict(&mut own);
        tree.lay_over(own);
    }
    trust(tree, &spec.files.authorities)?;
    for point in &spec.files.mount_points {
        tree.directory(point);
    }
    for (path, target) in &spec.files.links {
        tree.link(path, target);
    }
    // Empty: systemd reads the early agent's overlay, or generates a machine ID for this boot.
    tree.text("etc/machine-id", "");
    let packages = lock.packages.iter().chain(&lock.kernel);
    let packages: Vec<_> =
        packages.map(|package| json!({ "name": package.name, "version": package.version })).collect();
    tree.text("usr/lib/kaas/packages.json", pretty(&json!(packages))?);
    Ok(())
}

/// Copies the tree's files outside the cache, such as our own and a site's, into the directory `work`. It stays until
/// the tree is packed: identifier, root and disk are made one after the other, and the files may be edited meanwhile.
pub fn take_in(tree: &mut Tree, cache: &Cache, work: &Path) -> Result<()> {
    let outside = |(path, node): (&Path, &Node)| match &node.kind {
        Kind::File(Content::Host(file)) if !file.starts_with(cache.root()) => {
            Some((path.to_owned(), node.clone(), file.clone()))
        }
        _ => None,
    };
    let outside: Vec<_> = tree.iter().filter_map(outside).collect();
    for (number, (path, node, file)) in outside.into_iter().enumerate() {
        let copy = work.join(number.to_string());
        std::fs::copy(&file, &copy).with_context(|| format!("copying {}", file.display()))?;
        tree.insert(&path, Node { kind: Kind::File(Content::Host(copy)), ..node });
    }
    Ok(())
}

/// Adds the description of the image with the build identifier, as the last file.
pub fn add_description(tree: &mut Tree, description: &Description) -> Result<()> {
    // A `Value` sorts the names.
    tree.text(PATH.trim_start_matches('/'), pretty(&serde_json::to_value(description)?)?);
    Ok(())
}

/// The file with the CAs that the image's programs trust.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// The list of files below [`KNOWN`] that `update-ca-certificates` adds to it when the agent adds the properties' CAs.
const TRUSTED: &str = "etc/ca-certificates.conf";
const KNOWN: &str = "usr/share/ca-certificates";

/// Adds CAs that the image trusts, as Debian's ca-certificates does.
fn trust(tree: &mut Tree, authorities: &[PathBuf]) -> Result<()> {
    if authorities.is_empty() {
        return Ok(());
    }
    let text = |tree: &Tree, path: &str| {
        let bytes = tree.read(path).context("the packages brought no CAs: ca-certificates is missing")?;
        String::from_utf8(bytes).with_context(|| format!("reading {path} of the image"))
    };
    let (mut all, mut trusted) = (text(tree, AUTHORITIES)?, text(tree, TRUSTED)?);
    for (number, file) in authorities.iter().enumerate() {
        let pem = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let name = format!("kaas/{number}.crt");
        for (list, line) in [(&mut all, pem.trim_end()), (&mut trusted, name.as_str())] {
            if !list.is_empty() && !list.ends_with('\n') {
                list.push('\n');
            }
            list.push_str(line);
            list.push('\n');
        }
        tree.text(&format!("{KNOWN}/{name}"), pem);
    }
    tree.text(AUTHORITIES, all);
    tree.text(TRUSTED, trusted);
    Ok(())
}

/// The description of the image in its [`PATH`]. The build identifier is still empty. Fails if a named component was
/// not built.
pub fn description(
    spec: &Spec,
    components: &[Built],
    publisher: Option<&str>,
    compilers: Compilers,
) -> Result<Description> {
    let version = |name: &str| find(components, name).map(|built| built.component.version.clone());
    let mut kubernetes = Vec::new();
    for name in &spec.components.kubernetes {
        let version = version(name)?;
        kubernetes
            .push(KubernetesRelease { minor: minor(&version).context("Kubernetes without a minor version")?, version });
    }
    let facts = ImageFacts {
        name: spec.identity.name.clone(),
        version: spec.identity.version.clone(),
        build: String::new(),
        roles: spec.identity.roles.clone(),
        publisher: publisher.map(str::to_owned),
        upgrades_from: spec.identity.upgrades_from.clone(),
        kubernetes,
        etcd: version("etcd")?,
        coredns: version("coredns")?,
        pause: version("pause")?,
        programs: spec.files.programs.clone(),
    };
    let unchecked = components.iter().filter(|built| !built.component.version_is_checked());
    let others = components.iter().map(|built| &built.component).filter(|component| {
        !spec.components.kubernetes.contains(&component.name)
            && !["etcd", "coredns", "pause"].contains(&component.name.as_str())
    });
    Ok(Description {
        facts,
        compilers,
        unchecked_versions: unchecked.map(|built| built.component.name.clone()).collect(),
        parts: others.map(|component| (component.name.clone(), component.version.clone())).collect(),
    })
}

/// The inputs of the build identifier in a description: all other fields.
pub fn without_build(description: &Description) -> Result<Value> {
    let mut value = serde_json::to_value(description)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("build");
    }
    Ok(value)
}

/// The path in the image of the program of one of our packages.
pub fn program(package: &str) -> PathBuf {
    Path::new("/usr/bin").join(own_programs::name(package))
}

/// Adds our programs with the objects that they bring into a cluster. They are last, because they change most often.
/// Fails if a program's list of objects is invalid.
pub fn add_programs(tree: &mut Tree, files: &Files, own: &OwnPrograms) -> Result<()> {
    tree.file(AGENT, Content::Host(own.agent()), 0o755);
    for package in &files.programs {
        tree.file(program(package), Content::Host(own.program(package)), 0o755);
        let definitions = own.definitions(package);
        let brings = || format!("reading what {package} brings into a cluster: {}", definitions.display());
        let text = std::fs::read(&definitions).with_context(brings)?;
        let (kinds, objects) = split(&text).with_context(brings)?;
        for (file, items) in [(image::kinds_of(package), kinds), (image::objects_of(package), objects)] {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
            tree.text(file.trim_start_matches('/'), list.to_string() + "\n");
        }
    }
    Ok(())
}

/// Splits a list into the kinds of objects, which an API server needs first, and the other objects.
fn split(list: &[u8]) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut list: Value = serde_json::from_slice(list)?;
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else { bail!("it is no list") };
    let (kinds, objects): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| item["kind"] == "CustomResourceDefinition");
    // kubectl waits for missing objects until a timeout, and treats an empty list as an error.
    if kinds.is_empty() || objects.is_empty() || objects.iter().any(|object| !object["kind"].is_string()) {
        bail!("it has {} kinds of objects and {} others", kinds.len(), objects.len());
    }
    Ok((kinds, objects))
}

pub fn find<'b>(components: &'b [Built], name: &str) -> Result<&'b Built> {
    let found = components.iter().find(|built| built.component.name == name);
    found.with_context(|| format!("component {name} was not built"))
}

/// Removes matching paths, and directories with their content. A pattern whose last part is `*` removes no directory.
fn leave_out(tree: &mut Tree, pattern: &str) {
    let files = pattern.ends_with("/*");
    let gone = tree.iter().filter(|(path, node)| matches(pattern, path) && !(files && node.kind == Kind::Directory));
    let gone: Vec<PathBuf> = gone.map(|(path, _)| path.to_owned()).collect();
    for path in gone {
        tree.remove(&path);
    }
}

/// sudo and sshd refuse files that others can write. Other users must not read their settings.
fn restrict(own: &mut Tree) {
    let paths: Vec<_> =
        own.iter().filter(|(path, _)| path.starts_with("etc/sudoers.d")).map(|(path, _)| path.to_owned()).collect();
    for path in paths {
        if let Some(node) = own.get(&path).cloned().filter(|node| node.kind != Kind::Directory) {
            own.insert(&path, Node { mode: 0o440, ..node });
        }
    }
}

fn pretty(value: &serde_json::Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Key, Stage};
    use crate::component::Source;

    #[test]
    fn cas_of_the_spec_are_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("site.pem");
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nsite").unwrap();
        let mut tree = Tree::default();
        assert!(trust(&mut tree, std::slice::from_ref(&file)).is_err());
        tree.text(AUTHORITIES, "debian");
        tree.text(TRUSTED, "mozilla/a.crt\n");
        trust(&mut tree, &[]).unwrap();
        trust(&mut tree, &[file.clone(), file]).unwrap();
        let read = |path: &str| String::from_utf8(tree.read(path).unwrap()).unwrap();
        let pem = "-----BEGIN CERTIFICATE-----\nsite\n";
        assert_eq!(read(AUTHORITIES), format!("debian\n{pem}{pem}"));
        assert_eq!(read(TRUSTED), "mozilla/a.crt\nkaas/0.crt\nkaas/1.crt\n");
        assert_eq!(read(&format!("{KNOWN}/kaas/1.crt")), pem.trim_end());
    }

    #[test]
    fn a_single_star_keeps_directories() {
        let left = |pattern: &str| {
            let mut tree = Tree::default();
            tree.text("etc/apparmor.d/tunables/global", "");
            tree.text("etc/apparmor.d/firefox", "");
            leave_out(&mut tree, pattern);
            ["etc/apparmor.d/tunables/global", "etc/apparmor.d/firefox"].map(|path| tree.get(path).is_some())
        };
        assert_eq!(left("/etc/apparmor.d/*"), [true, false]);
        assert_eq!(left("/etc/apparmor.d/t*"), [false, true]);
        assert_eq!(left("/etc/apparmor.d"), [false, false]);
    }

    #[test]
    fn files_edited_during_packing_keep_their_content() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        let (own, made) = (directory.path().join("own"), cache.root().join("made"));
        std::fs::write(&own, "as it was").unwrap();
        std::fs::write(&made, "made").unwrap();
        let mut tree = Tree::default();
        tree.file("usr/bin/own", Content::Host(own.clone()), 0o755);
        tree.file("usr/bin/made", Content::Host(made.clone()), 0o755);
        let work = cache.work().unwrap();
        take_in(&mut tree, &cache, work.path()).unwrap();
        std::fs::write(&own, "edited").unwrap();
        assert_eq!(tree.read("usr/bin/own").unwrap(), b"as it was");
        assert_eq!(tree.get("usr/bin/own").unwrap().mode, 0o755);
        assert_eq!(tree.get("usr/bin/made").unwrap().kind, Kind::File(Content::Host(made)));
    }

    #[test]
    fn kinds_are_split_from_other_objects() {
        let list = |kinds: &[&str]| {
            let items: Vec<Value> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
            json!({ "items": items }).to_string().into_bytes()
        };
        let (kinds, objects) = split(&list(&["Namespace", "CustomResourceDefinition", "Role"])).unwrap();
        assert_eq!((kinds.len(), objects.len()), (1, 2));
        for wrong in [&list(&["Role"])[..], &list(&["CustomResourceDefinition"]), b"[]", b"{}", b""] {
            assert!(split(wrong).is_err());
        }
    }

    #[test]
    fn the_description_has_compilers_and_unchecked_versions() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (spec, described) = crate::spec::read(&path).unwrap();
        let key = Key::of(Stage::COMPONENTS).finish();
        let names = spec.components.names();
        let used = described.into_iter().filter(|component| names.contains(&component.name.as_str()));
        let mut built: Vec<_> =
            used.map(|component| Built { component, directory: "/".into(), key: key.clone() }).collect();
        let compilers = Compilers { go: Some("1.26.8".into()), rust: "rustc 1.95.0".into(), cc: "cc 14.2.0".into() };
        let described = |built: &[Built]| {
            let mut description = description(&spec, built, None, compilers.clone()).unwrap();
            assert_eq!(without_build(&description).unwrap().get("build"), None);
            description.facts.build = "0123456789abcdef0123456789abcdef".into();
            let mut tree = Tree::default();
            add_description(&mut tree, &description).unwrap();
            let text = tree.read("usr/lib/kaas/image.json").unwrap();
            let read: ImageFacts = serde_json::from_slice(&text).unwrap();
            assert_eq!(read, description.facts);
            serde_json::from_slice::<Value>(&text).unwrap()
        };
        let all_checked = described(&built);
        assert_eq!(all_checked["compilers"], json!({ "go": "1.26.8", "rust": "rustc 1.95.0", "cc": "cc 14.2.0" }));
        assert_eq!(all_checked.get("unchecked_versions"), None);

        let etcd = built.iter_mut().find(|built| built.component.name == "etcd").unwrap();
        etcd.component.source = Source::File(Vec::new());
        let facts = described(&built);
        assert_eq!(facts["unchecked_versions"], json!(["etcd"]));
        let names: Vec<&str> = facts.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "build cni-plugins compilers containerd coredns crictl etcd kubernetes name pause programs \
                        publisher role roles runc unchecked_versions upgrades_from version";
        assert_eq!(names.join(" "), expected);
    }
}
