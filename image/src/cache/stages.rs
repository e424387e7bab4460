//! The list of the build's stages. The type [`Stage`] has no others. A key begins with the listed sources, so that no
//! source is forgotten. Cleaning and pruning touch the directories of this list only.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Name of the stage and of its directory.
    pub(super) name: &'static str,
    /// Number of results that are kept. A new result replaces the oldest. Stages with large results that change often
    /// keep few.
    pub(super) keep: usize,
    /// Source texts of the modules that define its result. They are part of each of its keys.
    pub(super) sources: &'static [&'static str],
}

macro_rules! stages {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, keep $keep:literal, by [$($source:literal),+];)+) => {
        impl Stage {
            $(
                $(#[$doc])*
                pub const $constant: Self = Self { name: $name, keep: $keep, sources: &[$(include_str!($source)),+] };
            )+

            pub const ALL: &'static [Self] = &[$(Self::$constant),+];

            /// The names of the constants above, in the same order.
            #[cfg(test)]
            const CONSTANTS: &'static [&'static str] = &[$(stringify!($constant)),+];
        }
    };
}

stages! {
    /// The programs of upstream components: two minor versions of Kubernetes and others, each in a few versions.
    COMPONENTS = "components", keep 24, by [
        "../component/build.rs",
        "../component/go.rs",
        "../component/toolchain.rs",
        "../tools/run.rs"
    ];
    /// The Debian tree of an image.
    DEBIAN = "debian", keep 4, by ["../debian/bootstrap.rs"];
    /// The system disk: of the control plane's image, of the tenants' image, and of the image that upgrades start
    /// from.
    DISK = "disk", keep 3, by ["../disk.rs", "../tools/run.rs"];
    /// The Go that builds upstream components.
    GO = "go", keep 2, by ["../component/toolchain.rs"];
    /// The build identifier of an image.
    IDENTIFIER = "identifier", keep 6, by ["../identifier.rs", "../tree.rs", "../initial_root/cpio.rs"];
    /// The kernel with its modules.
    KERNEL = "kernel", keep 3, by ["../kernel.rs", "../tree.rs", "../tools/run.rs"];
    /// The unified kernel image.
    KERNEL_IMAGE = "kernel-image", keep 6, by [
        "../kernel_image.rs",
        "../initial_root/cpio.rs",
        "../tree.rs",
        "../tools/run.rs"
    ];
    /// The licence texts of Go modules that are linked into upstream components.
    LICENCES = "licences", keep 48, by ["../component/licences.rs", "../component/go_program.rs", "../licences.rs"];
    /// Our own programs: those of the clone, and those of the commit that upgrades start from. The directory keeps
    /// the name of the first program, so that older caches leave no second directory.
    OWN_PROGRAMS = "agent", keep 5, by [
        "../own_programs/mod.rs",
        "../own_programs/settings.rs",
        "../own_programs/sources.rs"
    ];
    /// The plain Debian that `make bench` measures against.
    PLAIN_DEBIAN = "plain-debian", keep 1, by ["../../../tests/src/bin/bench/plain.rs", "../debian/bootstrap.rs"];
    /// The root file system with its hash tree.
    ROOT = "root", keep 3, by ["../root_image.rs", "../tree.rs", "../tools/run.rs"];
    /// Users and enabled units of an image.
    SETTINGS = "settings", keep 6, by ["../settings.rs", "../tree.rs", "../tools/run.rs"];
    /// The tools tree.
    TOOLS = "tools", keep 2, by ["../tools/mod.rs", "../debian/bootstrap.rs"];
    /// The compressed disk. Cargo.lock has the version of the compression library.
    VMDK = "vmdk", keep 3, by [
        "../appliance.rs",
        "../../../ova/src/digest.rs",
        "../../../ova/src/vmdk/mod.rs",
        "../../../ova/src/vmdk/descriptor.rs",
        "../../../ova/src/vmdk/format.rs",
        "../../../ova/src/vmdk/source.rs",
        "../../../ova/src/vmdk/tables.rs",
        "../../../ova/src/vmdk/write.rs",
        "../../../Cargo.lock"
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources_below(directory: &Path) -> Vec<(PathBuf, String)> {
        let entries = walkdir::WalkDir::new(directory).into_iter().map(|entry| entry.unwrap().into_path());
        let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
    }

    #[test]
    fn each_stage_has_its_own_directory() {
        for (index, stage) in Stage::ALL.iter().enumerate() {
            assert!(
                !["cargo", "cargo-deny", "earlier", "go-build", "lab", "packages", "sources", "target", "work"]
                    .contains(&stage.name),
                "{}",
                stage.name
            );
            assert!(Stage::ALL[..index].iter().all(|earlier| earlier.name != stage.name), "{}", stage.name);
        }
    }

    /// A stage's key that begins in another module would not change with that module.
    #[test]
    fn modules_that_begin_keys_are_listed_sources() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut used = Vec::new();
        for (path, text) in
            ["image/src", "tests/src"].iter().flat_map(|directory| sources_below(&workspace.join(directory)))
        {
            if path.starts_with(workspace.join("image/src/cache")) {
                continue;
            }
            let code = text.split("#[cfg(test)]").next().unwrap();
            for begun in code.split("Key::of(Stage::").skip(1) {
                let constant = begun.split(')').next().unwrap();
                let index = Stage::CONSTANTS.iter().position(|name| *name == constant).unwrap();
                used.push(constant.to_owned());
                let own = Stage::ALL[index].sources.contains(&text.as_str());
                assert!(own, "{} begins a key of {constant}", path.display());
            }
        }
        for constant in Stage::CONSTANTS {
            assert!(used.iter().any(|name| name == constant), "no module begins a key of {constant}");
        }
    }

    /// Modules in the directories of the stages that are not sources, each with the reason.
    const NO_SOURCES: &[(&str, &str)] = &[
        ("audit/crates.rs", "compares crates with advisories"),
        ("audit/debian.rs", "compares packages with the archive"),
        ("audit/go.rs", "compares modules with advisories"),
        ("audit/judged.rs", "reads judgements"),
        ("audit/mod.rs", "compares advisories with judgements"),
        ("audit/tests.rs", "tests"),
        ("component/mod.rs", "reads the description; what it says of a part is in the part's key"),
        ("component/module_file.rs", "reads module files to check them"),
        ("component/upstream.rs", "checks the description"),
        ("debian/changes.rs", "says what changed between two locks"),
        ("debian/fetch.rs", "fetches packages, which their digests fix"),
        ("debian/layers.rs", "joins locks; the digests of the packages are in the keys"),
        ("debian/lock.rs", "the digests of the packages are in the keys"),
        ("debian/mirrors.rs", "says where packages come from, which their digests fix"),
        ("debian/mod.rs", "reads a list of packages; those that it comes to are in the keys"),
        ("debian/resolve.rs", "makes locks"),
        ("debian/sources.rs", "says where packages come from, which their digests fix"),
        ("initial_root/contents.rs", "chooses files, which are in the keys with their content"),
    ];

    /// A new module of a stage that is not a source would change results under their old keys.
    #[test]
    fn each_module_of_a_stage_is_listed() {
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut reasons = NO_SOURCES.to_vec();
        for directory in fs::read_dir(&image).unwrap().map(|entry| entry.unwrap().path()) {
            // `cache` stores results of others, and a spec's content is in the keys.
            if !directory.is_dir() || ["cache", "spec"].iter().any(|none| directory.ends_with(none)) {
                continue;
            }
            for (path, text) in sources_below(&directory) {
                let name = path.strip_prefix(&image).unwrap().to_str().unwrap();
                let is_source = Stage::ALL.iter().any(|stage| stage.sources.contains(&text.as_str()));
                let excused = reasons.iter().position(|(module, _)| *module == name);
                assert!(is_source != excused.is_some(), "{name}: name the stage that it belongs to, or why to none");
                if let Some(index) = excused {
                    reasons.remove(index);
                }
            }
        }
        assert!(reasons.is_empty(), "there is no {reasons:?}");
    }

    /// The Go toolchain and the download of Go define a component as much as its build.
    #[test]
    fn all_builders_of_components_are_sources() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/component");
        for name in ["build.rs", "go.rs", "toolchain.rs"] {
            let text = fs::read_to_string(directory.join(name)).unwrap();
            assert!(Stage::COMPONENTS.sources.contains(&text.as_str()), "{name}");
        }
    }

    /// Modules that read VMDKs, report errors or are used for other reasons do not define written VMDKs.
    #[test]
    fn all_writers_of_vmdks_are_sources() {
        let ova = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ova/src");
        let is_source = |text: &String| Stage::VMDK.sources.contains(&text.as_str());
        for (path, text) in sources_below(&ova.join("vmdk")) {
            let name = path.strip_prefix(ova.join("vmdk")).unwrap().to_str().unwrap();
            let reads = ["error.rs", "read/", "tests.rs", "tests/"].iter().any(|other| name.starts_with(other));
            assert!(reads || is_source(&text), "{name}");
        }
        let passing = ["name", "new_file", "progress"];
        let root = fs::read_to_string(ova.join("lib.rs")).unwrap();
        let mut seen = 0;
        for (path, text) in sources_below(&ova).into_iter().filter(|(_, text)| is_source(text)) {
            for name in named_of_crate(&text) {
                // A name that the crate re-exports is in the module that it comes from.
                let module = root.lines().find_map(|line| {
                    let (module, names) = line.strip_prefix("pub use ")?.strip_suffix(';')?.split_once("::")?;
                    names.split(|c: char| !c.is_alphanumeric()).any(|own| own == name).then_some(module)
                });
                let module = module.unwrap_or(&name);
                let file = ova.join(format!("{module}.rs"));
                let used = fs::read_to_string(&file).unwrap_or_else(|_| panic!("{}: crate::{name}", path.display()));
                assert!(passing.contains(&module) || is_source(&used), "{} uses {}", path.display(), file.display());
                seen += 1;
            }
        }
        assert!(seen > 3, "{seen}");
    }

    /// The first names after each `crate::` of a module.
    fn named_of_crate(text: &str) -> Vec<String> {
        let code = text.split("#[cfg(test)]").next().unwrap();
        let first =
            |path: &str| path.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
        code.split("crate::")
            .skip(1)
            .flat_map(|path| match path.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap().split(',').map(first).collect(),
                None => vec![first(path)],
            })
            .filter(|name| !name.is_empty())
            .collect()
    }
}
