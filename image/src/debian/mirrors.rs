//! Mirrors with the same files, in the order of their use: one address, or a list as in apt-transport-mirror(1).
//! Independent of where sources are configured.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The properties of a file that a mirror's limits refer to.
#[derive(Clone, Copy, Debug)]
pub struct FileQuery<'w> {
    /// `index` or `deb`.
    pub kind: &'static str,
    /// The name of the suite, such as `trixie-security`.
    pub suite: &'w str,
    /// `amd64` or `all`.
    pub architecture: &'static str,
}

/// Mirrors, in the order of their use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrors(Vec<Mirror>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mirror {
    address: String,
    /// Keys and values. A file must have one of the values of each key.
    limits: Vec<(String, String)>,
}

impl Mirrors {
    /// The mirrors of a source's address: the address itself, or those of the list that it names. `root` is the root
    /// directory of the host. Fails if the list has no mirror, or is not on this host.
    pub fn of(address: &str, root: &Path) -> Result<Self> {
        let (transport, rest) = address.split_once(':').unwrap_or_default();
        let mirrors = match transport {
            "mirror+file" | "mirror+copy" => {
                let path = Path::new("/").join(rest.trim_start_matches('/'));
                let place: PathBuf = root.join(path.strip_prefix("/")?);
                let reading = || format!("reading the list of mirrors {} of apt's source {address}", place.display());
                let text = fs::read_to_string(&place).with_context(reading)?;
                parse(&text).with_context(reading)?
            }
            "mirror" => bail!("apt's source {address} has its list of mirrors elsewhere, where it is not read from"),
            other if other.starts_with("mirror+") => {
                bail!("apt's source {address} has its list of mirrors elsewhere, where it is not read from")
            }
            _ => vec![Mirror { address: address.to_owned(), limits: Vec::new() }],
        };
        Ok(Self(mirrors))
    }

    /// The addresses of the mirrors with such a file, without a slash at the end.
    pub fn that_have(&self, wanted: FileQuery<'_>) -> Vec<&str> {
        let mirrors = self.0.iter().filter(|mirror| mirror.may_have(wanted));
        mirrors.map(|mirror| mirror.address.trim_end_matches('/')).collect()
    }
}

impl Mirror {
    fn may_have(&self, wanted: FileQuery<'_>) -> bool {
        let fits = |key: &str, value: &str| {
            let mut own = self.limits.iter().filter(|(limit, _)| limit == key).map(|(_, value)| value).peekable();
            own.peek().is_none() || own.any(|own| own == value)
        };
        let FileQuery { kind, suite, architecture } = wanted;
        let suites = [("suite", suite), ("codename", suite), ("component", "main")];
        fits("type", kind) && fits("arch", architecture) && suites.iter().all(|(key, value)| fits(key, value))
    }
}

/// Parses a list: each line has an address and metadata. apt uses mirrors with equal priority in any order. Here the
/// order is that of the list.
fn parse(text: &str) -> Result<Vec<Mirror>> {
    let mut mirrors = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(address) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let mut limits = Vec::new();
        let mut priority = u64::MAX;
        for word in words {
            match word.split_once(':') {
                Some(("priority", value)) => {
                    priority = value.parse().with_context(|| format!("line {}: `{word}` is no number", number + 1))?;
                }
                Some((key, value)) => limits.push((key.to_owned(), value.to_owned())),
                None => bail!("line {}: `{word}` is no metadata such as priority:1", number + 1),
            }
        }
        if !address.contains(':') || address.starts_with("mirror") {
            bail!("line {}: `{address}` is no address of a mirror", number + 1);
        }
        mirrors.push((priority, Mirror { address: address.to_owned(), limits }));
    }
    if mirrors.is_empty() {
        bail!("it names no mirror");
    }
    mirrors.sort_by_key(|(priority, _)| *priority);
    Ok(mirrors.into_iter().map(|(_, mirror)| mirror).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: FileQuery<'static> = FileQuery { kind: "index", suite: "trixie", architecture: "amd64" };
    const PACKAGE: FileQuery<'static> = FileQuery { kind: "deb", suite: "trixie", architecture: "amd64" };

    fn of(list: &str, wanted: FileQuery<'_>) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/apt")).unwrap();
        fs::write(root.path().join("etc/apt/mirrors.txt"), list).unwrap();
        let mirrors = Mirrors::of("mirror+file:/etc/apt/mirrors.txt", root.path()).unwrap();
        mirrors.that_have(wanted).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_list_has_priorities_and_limits() {
        let list = "# ours\n\nhttp://last.test/debian/\nfile:/srv/debian\tpriority:1 type:index\n\
                    http://part.test/debian\tpriority:2\tarch:amd64 arch:all type:deb\nhttp://old.test/d\tcodename:bookworm\n";
        assert_eq!(of(list, INDEX), ["file:/srv/debian", "http://last.test/debian"]);
        assert_eq!(of(list, PACKAGE), ["http://part.test/debian", "http://last.test/debian"]);
        assert_eq!(of(list, FileQuery { suite: "bookworm", ..INDEX }).last().unwrap(), "http://old.test/d");
        assert_eq!(of("http://a.test/\tarch:arm64\nhttp://b.test/\n", PACKAGE), ["http://b.test"]);
    }

    #[test]
    fn unusable_lists_are_named_in_errors() {
        let root = tempfile::tempdir().unwrap();
        let error = |address: &str| format!("{:#}", Mirrors::of(address, root.path()).unwrap_err());
        let said = error("mirror+file:///etc/mirrors.txt");
        assert!(
            said.contains("etc/mirrors.txt of apt's source mirror+file:///etc/mirrors.txt: No such file"),
            "{said}"
        );
        assert!(error("mirror+http://m.test/list").contains("not read from"));
        assert!(error("mirror://m.test/list").contains("not read from"));
        for (list, expected) in [
            ("# nothing\n", "it names no mirror"),
            ("http://a.test\tpriority:high\n", "line 1: `priority:high` is no number"),
            ("http://a.test\n\nhttp://b.test best\n", "line 3: `best` is no metadata such as priority:1"),
            ("a.test\n", "line 1: `a.test` is no address of a mirror"),
        ] {
            fs::write(root.path().join("list"), list).unwrap();
            let said = error("mirror+file:/list");
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn an_ordinary_address_stands_for_itself() {
        let mirrors = Mirrors::of("http://m.test/debian/", Path::new("/nonexistent")).unwrap();
        assert_eq!(mirrors.that_have(INDEX), ["http://m.test/debian"]);
    }
}
