//! The archive's mirrors and keys: from the build host's apt configuration, or from settings. The code names no
//! mirror.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::lock::{Package, Pocket};
use super::mirrors::{FileQuery, Mirrors};

/// Settings that replace the host's configuration.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Mirror of the release and its updates.
    pub mirror: Option<String>,
    pub security_mirror: Option<String>,
    pub keyring: Option<PathBuf>,
}

impl Settings {
    /// The settings in the environment: `KAAS_DEBIAN_MIRROR`, `KAAS_DEBIAN_SECURITY_MIRROR` and
    /// `KAAS_DEBIAN_KEYRING`. Empty values are ignored.
    pub fn of_environment() -> Self {
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| of(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            mirror: text("KAAS_DEBIAN_MIRROR"),
            security_mirror: text("KAAS_DEBIAN_SECURITY_MIRROR"),
            keyring: of("KAAS_DEBIAN_KEYRING").map(PathBuf::from),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Mirrors of the release and its updates.
    pub main: Mirrors,
    pub security: Mirrors,
    pub keyring: PathBuf,
}

impl Sources {
    /// The settings, and for missing ones the sources that apt on this host uses for its own release. `root` is the
    /// host's root directory.
    ///
    /// # Errors
    /// When a mirror or the keyring is missing: the error names the setting. When apt's list of mirrors cannot be
    /// read.
    pub fn find(settings: &Settings, root: &Path) -> Result<Self> {
        let release = host_release(root);
        let entries = if release.is_some() { host_entries(root)? } else { Vec::new() };
        let of_suite = |suite: &str| entries.iter().find(|entry| entry.suites.iter().any(|own| own == suite));
        let (main, security) = match &release {
            Some(release) => (of_suite(release), of_suite(&Pocket::Security.suite(release))),
            None => (None, None),
        };
        let mirror = |setting: &Option<String>, entry: Option<&Entry>, what: &str, names: &str| {
            let found = setting.clone().or_else(|| entry.map(|entry| entry.uri.clone()));
            let found =
                found.with_context(|| format!("this host's apt configuration names no mirror of {what}: set {names}"));
            found.and_then(|address| {
                Mirrors::of(&address, root).with_context(|| format!("finding a mirror of {what} (or set {names})"))
            })
        };
        let keyring = settings.keyring.clone().or_else(|| main.and_then(|entry| entry.signed_by.clone()));
        let keyring = keyring.unwrap_or_else(|| root.join("usr/share/keyrings/debian-archive-keyring.gpg"));
        if !keyring.is_file() {
            bail!(
                "the archive's keyring {} is missing: install debian-archive-keyring, or set KAAS_DEBIAN_KEYRING",
                keyring.display()
            );
        }
        Ok(Self {
            main: mirror(&settings.mirror, main, "Debian", "KAAS_DEBIAN_MIRROR")?,
            security: mirror(
                &settings.security_mirror,
                security,
                "Debian's security updates",
                "KAAS_DEBIAN_SECURITY_MIRROR",
            )?,
            keyring,
        })
    }

    fn mirrors(&self, pocket: Pocket) -> &Mirrors {
        match pocket {
            Pocket::Release | Pocket::Updates => &self.main,
            Pocket::Security => &self.security,
        }
    }

    /// The addresses of a package of the release `suite`, in the order of their use.
    pub fn addresses(&self, package: &Package, suite: &str) -> Vec<String> {
        let architecture = if package.path.ends_with("_all.deb") { "all" } else { "amd64" };
        let wanted = FileQuery { kind: "deb", suite: &package.pocket.suite(suite), architecture };
        let mirrors = self.mirrors(package.pocket).that_have(wanted).into_iter();
        // For `file:`, apt's downloader would only create a link.
        let copied = |mirror: &str| mirror.strip_prefix("file:").map(|path| format!("copy:{path}"));
        mirrors.map(|mirror| format!("{}/{}", copied(mirror).unwrap_or(mirror.to_owned()), package.path)).collect()
    }

    /// Lines for a sources.list with pockets of `suite`, in the order of their use. Each has another mirror. Fails if
    /// none has the indexes.
    pub fn lists(&self, suite: &str, pockets: &[Pocket]) -> Result<Vec<String>> {
        let keyring = self.keyring.display();
        let mut of_pockets = Vec::new();
        for &pocket in pockets {
            let name = pocket.suite(suite);
            let wanted = FileQuery { kind: "index", suite: &name, architecture: "amd64" };
            let mirrors = self.mirrors(pocket).that_have(wanted);
            if mirrors.is_empty() {
                bail!(
                    "none of the mirrors in apt's list is for indexes of {name}: set KAAS_DEBIAN_MIRROR and KAAS_DEBIAN_SECURITY_MIRROR"
                );
            }
            of_pockets.push((name, mirrors));
        }
        let count = of_pockets.iter().map(|(_, mirrors)| mirrors.len()).max().unwrap_or(0);
        let line = |attempt: usize, (name, mirrors): &(String, Vec<&str>)| {
            format!("deb [signed-by={keyring}] {} {name} main\n", mirrors[attempt.min(mirrors.len() - 1)])
        };
        Ok((0..count).map(|attempt| of_pockets.iter().map(|pocket| line(attempt, pocket)).collect()).collect())
    }
}

/// One source of apt. Only its first mirror is used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    uri: String,
    suites: Vec<String>,
    signed_by: Option<PathBuf>,
}

/// The code name of the host's release, if the host is Debian.
fn host_release(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("etc/os-release")).ok()?;
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches(['"', '\'']).to_owned())
    };
    if value("ID")? == "debian" { value("VERSION_CODENAME") } else { None }
}

fn host_entries(root: &Path) -> Result<Vec<Entry>> {
    let apt = root.join("etc/apt");
    let mut files = vec![apt.join("sources.list")];
    if let Ok(directory) = fs::read_dir(apt.join("sources.list.d")) {
        let mut parts: Vec<_> = directory.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        parts.sort();
        files.extend(parts);
    }
    let mut entries = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => entries.extend(text.lines().filter_map(one_line)),
            Some("sources") => entries.extend(deb822(&text)),
            _ => {}
        }
    }
    Ok(entries)
}

/// `deb [options] uri suite component…` (sources.list(5)).
fn one_line(line: &str) -> Option<Entry> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    Some(Entry { uri: uri.to_owned(), suites: vec![suite.to_owned()], signed_by: keyring(signed_by) })
}

/// Stanzas of fields (sources.list(5), DEB822-STYLE FORMAT).
fn deb822(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.trim().is_empty()) {
        let field = |name: &str| {
            stanza.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let wanted = field("Types").is_some_and(|types| types.split_whitespace().any(|kind| kind == "deb"));
        let enabled = field("Enabled").is_none_or(|value| !["no", "false", "0"].contains(&value));
        let uri = field("URIs").and_then(|uris| uris.split_whitespace().next());
        if let (true, true, Some(uri)) = (wanted, enabled, uri) {
            let suites = field("Suites").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
            entries.push(Entry { uri: uri.to_owned(), suites, signed_by: keyring(field("Signed-By")) });
        }
    }
    entries
}

fn keyring(value: Option<&str>) -> Option<PathBuf> {
    value.filter(|value| value.starts_with('/')).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(release: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/os-release", release);
        write("usr/share/keyrings/debian-archive-keyring.gpg", "");
        for (path, text) in files {
            write(path, text);
        }
        root
    }

    const BOOKWORM: &str = "ID=debian\nVERSION_CODENAME=bookworm\n";

    #[test]
    fn the_hosts_deb822_sources_are_used() {
        let text = "# ours\nTypes: deb\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main\n\nTypes: deb\nURIs: http://mirror.test/sec\nSuites: bookworm-security\n\n\
                    Types: deb\nURIs: http://other.test/\nSuites: nodistro\n";
        let root = host(BOOKWORM, &[("etc/apt/sources.list.d/debian.sources", text)]);
        let sources = Sources::find(&Settings::default(), root.path()).unwrap();
        let lists = sources.lists("trixie", &Pocket::ALL).unwrap();
        let [lines] = &lists[..] else { panic!("{lists:?}") };
        assert!(lines.contains("http://mirror.test/debian trixie-updates main\n"), "{lines}");
        assert!(lines.contains("http://mirror.test/sec trixie-security main\n"), "{lines}");
        assert_eq!(lines.lines().count(), 3);
    }

    #[test]
    fn one_line_sources_with_options_are_understood() {
        let text = "deb-src http://m.test/src bookworm main\n\
                    deb [arch=amd64 signed-by=/k/ring.gpg] http://m.test/d bookworm main # c\n\
                    deb http://m.test/s bookworm-security main\n";
        let entries: Vec<_> = text.lines().filter_map(one_line).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].signed_by.as_deref(), Some(Path::new("/k/ring.gpg")));
        let root = host(BOOKWORM, &[("etc/apt/sources.list", &text.replace(" signed-by=/k/ring.gpg", ""))]);
        let sources = Sources::find(&Settings::default(), root.path()).unwrap();
        assert!(sources.lists("trixie", &Pocket::ALL).unwrap()[0].contains(" http://m.test/d trixie main\n"));
    }

    #[test]
    fn settings_have_priority_over_the_hosts_sources() {
        let root = host("ID=fedora\n", &[]);
        let error = Sources::find(&Settings::default(), root.path()).unwrap_err();
        assert!(error.to_string().contains("set KAAS_DEBIAN_MIRROR"), "{error}");
        let settings = Settings {
            mirror: Some("http://a.test/d".to_owned()),
            security_mirror: Some("http://a.test/s".to_owned()),
            keyring: None,
        };
        let lists = Sources::find(&settings, root.path()).unwrap().lists("trixie", &Pocket::ALL).unwrap();
        assert!(lists[0].contains(" http://a.test/s trixie-security main\n"), "{lists:?}");
    }

    #[test]
    fn lists_of_mirrors_are_read_in_both_forms() {
        let list =
            "http://two.test/debian\nhttp://one.test/debian\tpriority:1 type:index\nfile:/srv/debian\ttype:deb\n";
        let one_line = "deb mirror+file:/etc/apt/mirrors/debian.list bookworm main\n\
                        deb http://sec.test/s bookworm-security main\n";
        let stanzas = "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\n\n\
                       Types: deb\nURIs: http://sec.test/s\nSuites: bookworm-security\n";
        for (file, text) in [("etc/apt/sources.list", one_line), ("etc/apt/sources.list.d/debian.sources", stanzas)] {
            let root = host(BOOKWORM, &[(file, text), ("etc/apt/mirrors/debian.list", list)]);
            let sources = Sources::find(&Settings::default(), root.path()).unwrap();
            let lists = sources.lists("trixie", &Pocket::ALL).unwrap();
            assert_eq!(lists.len(), 2, "{lists:?}");
            assert!(lists[0].contains(" http://one.test/debian trixie main\n"), "{lists:?}");
            assert!(lists[1].contains(" http://two.test/debian trixie-updates main\n"), "{lists:?}");
            assert!(lists.iter().all(|list| list.contains(" http://sec.test/s trixie-security main\n")), "{lists:?}");
            let package = |pocket, path: &str| Package {
                name: "a".to_owned(),
                version: "1".to_owned(),
                pocket,
                path: path.to_owned(),
                size: 1,
                sha256: String::new(),
            };
            let addresses = sources.addresses(&package(Pocket::Updates, "pool/a_1_all.deb"), "trixie");
            assert_eq!(addresses, ["http://two.test/debian/pool/a_1_all.deb", "copy:/srv/debian/pool/a_1_all.deb"]);
            let addresses = sources.addresses(&package(Pocket::Security, "pool/a_2_amd64.deb"), "trixie");
            assert_eq!(addresses, ["http://sec.test/s/pool/a_2_amd64.deb"]);

            fs::remove_file(root.path().join("etc/apt/mirrors/debian.list")).unwrap();
            let error = format!("{:#}", Sources::find(&Settings::default(), root.path()).unwrap_err());
            let expected = "finding a mirror of Debian (or set KAAS_DEBIAN_MIRROR): reading the list of mirrors ";
            assert!(error.starts_with(expected) && error.contains("mirrors/debian.list"), "{error}");
        }
    }

    #[test]
    fn a_disabled_stanza_does_not_count() {
        assert_eq!(deb822("Types: deb\nEnabled: no\nURIs: http://x.test/\nSuites: bookworm\n"), []);
    }
}
