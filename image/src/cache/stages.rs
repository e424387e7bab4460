//! The one list of the build's stages. A stage that is not in it cannot be
//! used, and a key begins with the sources that the list names, so that none is
//! written by hand. Cleaning and pruning touch the folders of this list only.

/// A stage of the build, as the cache sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name, also that of its folder.
    pub(super) name: &'static str,
    /// How many results are kept; older ones go when a new one comes. Large results that every change makes anew are
    /// kept few.
    pub(super) keep: usize,
    /// The modules that shape its result: part of each of its keys.
    pub(super) sources: &'static [&'static str],
}

macro_rules! stages {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, keep $keep:literal, by [$($source:literal),+];)+) => {
        impl Stage {
            $(
                $(#[$doc])*
                pub const $constant: Self = Self { name: $name, keep: $keep, sources: &[$(include_str!($source)),+] };
            )+

            /// All stages.
            pub const ALL: &'static [Self] = &[$(Self::$constant),+];

            /// The names of the constants above, in the same order.
            #[cfg(test)]
            const CONSTANTS: &'static [&'static str] = &[$(stringify!($constant)),+];
        }
    };
}

stages! {
    /// The agent's program.
    AGENT = "agent", keep 3, by ["../agent_program/mod.rs", "../agent_program/sources.rs"];
    /// The programs of the upstream parts: two minors of Kubernetes and a few more, each in a few versions.
    COMPONENTS = "components", keep 24, by ["../component/build.rs", "../component/go.rs"];
    /// The Debian tree of an image.
    DEBIAN = "debian", keep 3, by ["../debian/bootstrap.rs"];
    /// The system disk.
    DISK = "disk", keep 2, by ["../disk.rs", "../tools/run.rs"];
    /// The Go that builds the upstream parts.
    GO = "go", keep 2, by ["../component/toolchain.rs"];
    /// The build identifier of an image.
    IDENTIFIER = "identifier", keep 4, by ["../identifier.rs", "../tree.rs", "../initial_root/cpio.rs"];
    /// The kernel with its modules.
    KERNEL = "kernel", keep 3, by ["../kernel.rs", "../tree.rs", "../tools/run.rs"];
    /// The unified kernel image.
    KERNEL_IMAGE = "kernel-image", keep 4, by [
        "../kernel_image.rs",
        "../initial_root/cpio.rs",
        "../tree.rs",
        "../tools/run.rs"
    ];
    /// The plain Debian that `make bench` measures against.
    PLAIN_DEBIAN = "plain-debian", keep 1, by ["../../../tests/src/bin/bench/plain.rs", "../debian/bootstrap.rs"];
    /// The root file system with its hash tree.
    ROOT = "root", keep 2, by ["../root_image.rs", "../tree.rs", "../tools/run.rs"];
    /// Users and enabled units of an image.
    SETTINGS = "settings", keep 4, by ["../settings.rs", "../tree.rs", "../tools/run.rs"];
    /// The tools tree.
    TOOLS = "tools", keep 2, by ["../tools/mod.rs", "../debian/bootstrap.rs"];
    /// The compressed disk. The lock file says which release of the compressing library makes it.
    VMDK = "vmdk", keep 2, by [
        "../appliance.rs",
        "../../../ova/src/vmdk/mod.rs",
        "../../../ova/src/vmdk/descriptor.rs",
        "../../../ova/src/vmdk/format.rs",
        "../../../ova/src/vmdk/input.rs",
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

    fn sources_below(folder: &Path) -> Vec<(PathBuf, String)> {
        let entries = walkdir::WalkDir::new(folder).into_iter().map(|entry| entry.unwrap().into_path());
        let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
    }

    #[test]
    fn each_stage_has_a_folder_of_its_own_beside_what_is_no_stage() {
        for (index, stage) in Stage::ALL.iter().enumerate() {
            assert!(!["cargo", "lab", "packages", "target", "work"].contains(&stage.name), "{}", stage.name);
            assert!(Stage::ALL[..index].iter().all(|earlier| earlier.name != stage.name), "{}", stage.name);
        }
    }

    /// A key of a stage that is begun in a module which is not among the stage's sources would outlive a change there.
    #[test]
    fn the_modules_that_begin_a_stages_key_are_among_its_sources() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut used = Vec::new();
        for (path, text) in ["image/src", "tests/src"].iter().flat_map(|folder| sources_below(&workspace.join(folder)))
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

    /// What reads a VMDK or says what is wrong with one does not shape those that are written.
    #[test]
    fn all_that_writes_a_vmdk_is_among_its_sources() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ova/src/vmdk");
        for (path, text) in sources_below(&folder) {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let reads = ["error", "independent", "read", "tests"].contains(&name);
            assert!(reads || Stage::VMDK.sources.contains(&text.as_str()), "{}", path.display());
        }
    }
}
