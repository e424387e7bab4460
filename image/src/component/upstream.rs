//! Checks what the description of a component claims against its module file: an image must not claim a version that
//! it does not have.

use std::path::Path;

use super::module_file::{ModuleFile, ResolvedModule};
use crate::document::{Located, Table};

/// Kubernetes releases its libraries at the same time, with another major version.
const KUBERNETES: &str = "k8s.io/kubernetes";
/// Related modules with independent versions.
const OTHER_NUMBERS: [&str; 5] =
    ["k8s.io/gengo", "k8s.io/klog", "k8s.io/kube-openapi", "k8s.io/system-validators", "k8s.io/utils"];

/// Claims about a component that is built from a Go module.
pub(super) struct Claims<'c> {
    /// Its version, without a leading v.
    pub(super) version: &'c str,
    /// The version that its programs report. It differs from `version` if the description stamps them.
    pub(super) stamp: &'c str,
    /// The modules that it is made from.
    pub(super) upstream: &'c [Located<String>],
    /// Linker flags, with the version inserted.
    pub(super) ldflags: &'c [Located<String>],
}

/// Adds mistakes to `table` for claims that the module file at `path` contradicts. `at` is the key of the path.
pub(super) fn check(table: &Table<'_, '_>, claims: &Claims<'_>, at: &str, path: &Path) {
    let name = path.display();
    let file = match std::fs::read_to_string(path).map(|text| ModuleFile::parse(&text)) {
        Ok(Ok(file)) => file,
        Ok(Err(line)) => return table.mistake_at(at, format!("{name}:{line} is not understood")),
        Err(error) => return table.mistake_at(at, format!("{name} cannot be read: {error}")),
    };
    let version = claims.version;
    for module in claims.upstream {
        let wrong = |what: String| table.mistake(module, format!("the version is {version}, but {name} {what}"));
        match file.taken(&module.value) {
            // The sources are here, so only the description has the version.
            ResolvedModule::Nothing if module.value == file.module => {}
            ResolvedModule::Nothing => wrong(format!("does not require {}", module.value)),
            ResolvedModule::Instead(by) => wrong(format!("replaces {} by {by}", module.value)),
            ResolvedModule::Version(taken) if taken.trim_end_matches("+incompatible") == format!("v{version}") => {}
            ResolvedModule::Version(taken) => wrong(format!("takes {} {taken}", module.value)),
        }
        if module.value == KUBERNETES {
            let is_library = |path: &str| path.starts_with("k8s.io/") && path != KUBERNETES;
            let library = version.split_once('.').map(|(_, rest)| format!("v0.{rest}"));
            let other = |path: &str| {
                let mut names = OTHER_NUMBERS.iter();
                names.any(|name| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
            };
            let replaced = |path: &str| file.replaces.iter().any(|replace| replace.path == path);
            for (path, taken) in &file.requires {
                if is_library(path) && !other(path) && !replaced(path) && Some(taken) != library.as_ref() {
                    wrong(format!("takes {path} {taken}"));
                }
            }
            for replace in file.replaces.iter().filter(|replace| is_library(&replace.path)) {
                if replace.by != replace.path || replace.by_version != library {
                    let by_version = replace.by_version.as_deref().unwrap_or_default();
                    wrong(format!("replaces {} by {} {by_version}", replace.path, replace.by));
                }
            }
        }
    }
    for flag in claims.ldflags {
        if let Some((variable, expected)) = wrong_version(&flag.value, claims.stamp) {
            table.mistake(
                flag,
                format!(
                    "sets {variable}, but by the version it is {expected}: write {{version}}, {{major}} or {{minor}}"
                ),
            );
        }
    }
}

/// Checks an argument of `go build`: it must be a package of this directory or of a module in `upstream`.
pub(super) fn package(name: &str, upstream: &[Located<String>]) -> Result<String, String> {
    let within = |module: &Located<String>| {
        name.strip_prefix(&module.value).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if name != "." && !name.starts_with("./") && !upstream.iter().any(within) {
        return Err(format!("`{name}` is of none of the modules in upstream"));
    }
    Ok(name.to_owned())
}

/// The variable that a linker flag such as `-X path.gitMinor=36` sets, and the value that fits `version`. `None` if
/// the flag fits or sets another variable.
fn wrong_version(flag: &str, version: &str) -> Option<(String, String)> {
    let (path, value) = flag.strip_prefix("-X")?.trim_start_matches([' ', '=']).split_once('=')?;
    let variable = path.rsplit('.').next()?.to_lowercase();
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let expected = match variable.as_str() {
        name if name.ends_with("major") => major,
        name if name.ends_with("minor") => minor,
        name if name.ends_with("version") => version,
        _ => return None,
    };
    let value = value.trim_matches(['\'', '"']);
    let fits = value == expected || variable.ends_with("version") && value.strip_prefix('v') == Some(expected);
    (!fits).then(|| (format!("{path} to {value}"), expected.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::component::read;

    const GO_MOD: &str = "module kube\n\nrequire k8s.io/kubernetes v1.36.3 // indirect\n\
        require k8s.io/client-go v0.36.3\nreplace k8s.io/api => k8s.io/api v0.36.3\n";
    const COMPONENTS: &str = r#"[go]
version = "1.26.8"
sum = "h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM="
[components.kube]
version = "1.36.3"
licence = "Apache-2.0"
[components.kube.source]
kind = "go-module"
module = "kube"
modfile = "1.36.mod"
upstream = ["k8s.io/kubernetes"]
ldflags = ["-X k8s.io/base/version.gitVersion=v{version}", "-X k8s.io/base/version.gitMinor={minor}"]
packages = [{ package = "k8s.io/kubernetes/cmd/kubectl", output = "kubectl" }, { package = "./own", output = "own" }]
"#;

    /// The mistakes of a valid description with `from` replaced by `to` in it or in its module file.
    fn with(from: &str, to: &str) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("kube")).unwrap();
        // The ordinary module file is not the one that is built.
        fs::write(directory.path().join("kube/go.mod"), "module kube\n\nrequire k8s.io/kubernetes v1.35.9\n").unwrap();
        let replaced = |text: &str| if from.is_empty() { text.to_owned() } else { text.replace(from, to) };
        assert!(from.is_empty() || COMPONENTS.contains(from) || GO_MOD.contains(from), "nothing has {from}");
        fs::write(directory.path().join("kube/1.36.mod"), replaced(GO_MOD)).unwrap();
        let path = directory.path().join("components.toml");
        fs::write(&path, replaced(COMPONENTS)).unwrap();
        let place = format!("{}/", directory.path().display());
        let mistakes = read(&path).err().map(|mistakes| mistakes.0).unwrap_or_default();
        mistakes.iter().map(|mistake| mistake.to_string().replace(&place, "")).collect()
    }

    #[test]
    fn versions_must_match_the_module_file() {
        assert_eq!(with("", ""), Vec::<String>::new());
        let but = |what: &str| {
            format!(
                "components.toml:11: components.kube.source.upstream[0]: the version is 1.36.3, but kube/1.36.mod {what}"
            )
        };
        for (from, to, what) in [
            ("kubernetes v1.36.3", "kubernetes v1.36.2", "takes k8s.io/kubernetes v1.36.2"),
            ("require k8s.io/kubernetes", "require k8s.io/other", "does not require k8s.io/kubernetes"),
            (
                "replace ",
                "replace k8s.io/kubernetes => k8s.io/kubernetes v1.36.1\nreplace ",
                "takes k8s.io/kubernetes v1.36.1",
            ),
            ("client-go v0.36.3", "client-go v0.36.2", "takes k8s.io/client-go v0.36.2"),
            ("client-go v0.36.3", "client-go v0.0.0-20260101000000-000000000000", "takes k8s.io/client-go v0.0.0-2026"),
            ("k8s.io/api v0.36.3", "k8s.io/api v0.36.2", "replaces k8s.io/api by k8s.io/api v0.36.2"),
        ] {
            let found = with(from, to);
            assert!(found.iter().any(|mistake| mistake.starts_with(&but(what))), "{to}: {found:#?}");
        }
        assert_eq!(
            with("require k8s.io/client-go", "require k8s.io/klog/v2 v2.140.0\nrequire k8s.io/client-go"),
            [""; 0]
        );
        let found = with("replace ", "replace k8s.io/kubernetes => ../fork\nreplace ");
        assert!(found.contains(&but("replaces k8s.io/kubernetes by ../fork")), "{found:#?}");
        // A replacement of a version that is not required changes nothing.
        assert_eq!(with("replace ", "replace k8s.io/kubernetes v1.36.2 => ../fork\nreplace "), Vec::<String>::new());
    }

    #[test]
    fn other_claims_of_a_version_are_checked() {
        let at = |line: usize, rest: &str| format!("components.toml:{line}: components.kube.source.{rest}");
        let advice = "write {version}, {major} or {minor}";
        for (from, to, expected) in [
            (
                "gitMinor={minor}",
                "gitMinor=35",
                at(
                    12,
                    &format!(
                        "ldflags[1]: sets k8s.io/base/version.gitMinor to 35, but by the version it is 36: {advice}"
                    ),
                ),
            ),
            (
                "gitVersion=v{version}",
                "gitVersion=v1.36.2",
                at(
                    12,
                    &format!(
                        "ldflags[0]: sets k8s.io/base/version.gitVersion to v1.36.2, but by the version it is 1.36.3: {advice}"
                    ),
                ),
            ),
            (
                "\"k8s.io/kubernetes/cmd",
                "\"k8s.io/kubernetes-fork/cmd",
                at(
                    13,
                    "packages[0].package: `k8s.io/kubernetes-fork/cmd/kubectl` is of none of the modules in upstream",
                ),
            ),
            (
                "upstream = [\"k8s.io/kubernetes\"]\n",
                "",
                at(7, "upstream: is missing: give the Go modules that the part is made from, its own name for one"),
            ),
            ("module kube", "modules kube", at(10, "modfile: kube/1.36.mod:5 is not understood")),
        ] {
            let found = with(from, to);
            assert!(found.contains(&expected), "{to}: {found:#?}");
        }
    }

    #[test]
    fn a_local_component_has_its_version_here_only() {
        let own = "upstream = [\"kube\"]";
        assert_eq!(
            with("upstream = [\"k8s.io/kubernetes\"]", own),
            [
                "components.toml:13: components.kube.source.packages[0].package: `k8s.io/kubernetes/cmd/kubectl` is of none of the modules in upstream"
            ]
        );
    }

    #[test]
    fn go_is_pinned_by_version_and_sum() {
        for (from, to, expected) in [
            (
                "\"1.26.8\"",
                "\"1.26\"",
                "components.toml:2: go.version: `1.26` is no version of Go: give one such as 1.26.8",
            ),
            (
                "ZOmGe1",
                "ZOmGe",
                "components.toml:3: go.sum: is no sum of a Go module: give h1: and 44 characters of base64",
            ),
            ("sum =", "sun =", "components.toml:1: go.sum: is missing: give the sum of Go's toolchain module, h1:…"),
            (
                "[go]",
                "[gone]",
                "components.toml:7: components.kube.source: is built with Go: give a table [go] with its version and sum",
            ),
        ] {
            let found = with(from, to);
            assert!(found.contains(&expected.to_owned()), "{to}: {found:#?}");
        }
    }
}
