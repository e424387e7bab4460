//! Protects kubeconfigs of the operator. A file may hold the contexts and keys of other clusters, so only a file that this program
//! wrote is replaced.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use fleet::nodes::Credentials;
use zeroize::Zeroizing;

/// More bytes than this program writes.
const LARGEST: u64 = 64 << 10;

/// The remedy of commands that have the option.
const BY_OPTION: &str = "name another file with --to-file";
/// The remedy of commands that have only the description of a cluster.
const BY_DESCRIPTION: &str = "name another file as `kubeconfig` in the description of the cluster";

/// The texts that a command writes for credentials: the current form, then those of earlier versions.
pub type Forms<'a> = &'a dyn Fn(&Credentials) -> Vec<Zeroizing<String>>;

/// Writes the file, readable by its owner alone. Replaces an existing one only if it has one of these forms, and is of the same
/// cluster or has expired. After an error, the file is unchanged.
///
/// # Errors
/// The file holds something else, is no regular file, or cannot be written.
pub fn place(path: &Path, cluster: &str, credentials: &Credentials, forms: Forms<'_>) -> anyhow::Result<()> {
    let content = forms(credentials).into_iter().next().context("a kubeconfig without a form")?;
    let Some(there) = earlier(path, BY_OPTION)? else { return fleet::files::write_new(path, content.as_bytes()) };
    ensure!(
        std::str::from_utf8(&there).is_ok_and(|there| is_replaceable(there, credentials, forms, SystemTime::now())),
        "{} exists, and is no kubeconfig of the cluster {cluster} that this command has written: move it away, or {BY_OPTION}",
        path.display()
    );
    fleet::files::write(path, &content)
}

/// Fails if a later write would replace a file that this program has not written.
///
/// # Errors
/// The file holds something else, is no regular file, or cannot be read.
pub fn require_own(path: &Path, forms: Forms<'_>) -> anyhow::Result<()> {
    let Some(there) = earlier(path, BY_DESCRIPTION)? else { return Ok(()) };
    ensure!(
        std::str::from_utf8(&there)
            .is_ok_and(|there| Credentials::parse(there).is_ok_and(|old| is_own(there, &old, forms))),
        "{} exists, and this program has not written it: move it away, or {BY_DESCRIPTION}",
        path.display()
    );
    Ok(())
}

fn is_own(there: &str, parsed: &Credentials, forms: Forms<'_>) -> bool {
    forms(parsed).iter().any(|written| written.as_str() == there)
}

/// The content of an existing file, or the beginning of a longer one. `None` if it is missing. A link may lead to another user's file,
/// and a pipe may never end: both are refused, with this remedy.
fn earlier(path: &Path, remedy: &str) -> anyhow::Result<Option<Zeroizing<Vec<u8>>>> {
    let attempt = || format!("reading the existing {}", path.display());
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        there => there.with_context(attempt)?,
    };
    ensure!(
        there.is_file(),
        "{} is no regular file but a link, a directory, a pipe or a device: {remedy}",
        path.display()
    );
    let mut content = Zeroizing::new(Vec::new());
    File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut content)).with_context(attempt)?;
    Ok(Some(content))
}

/// Whether a file can be replaced without a loss: it has exactly one of the forms, and is of the same cluster or has expired.
fn is_replaceable(there: &str, credentials: &Credentials, forms: Forms<'_>, now: SystemTime) -> bool {
    let Ok(old) = Credentials::parse(there) else { return false };
    let is_same = match (old.authorities(), credentials.authorities()) {
        (Ok(old), Ok(new)) => old == new,
        _ => false,
    };
    is_own(there, &old, forms) && (is_same || old.ends().is_some_and(|ends| ends <= now))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    use contract::kubeconfig::Kubeconfig;
    use contract::secret::Secret;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Credentials of a cluster with its own CA, valid until the end of 2029.
    fn content() -> Kubeconfig {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.not_after = date_time_ymd(2030, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap().pem();
        Kubeconfig {
            server: "https://192.168.10.10:6443".to_owned(),
            server_name: None,
            authority: certificate.clone(),
            certificate,
            key: Secret::new(key.serialize_pem()),
        }
    }

    fn forms(of: &Credentials) -> Vec<Zeroizing<String>> {
        vec![of.kubeconfig_named("shop"), of.kubeconfig("deployer")]
    }

    #[test]
    fn only_own_kubeconfigs_are_replaced() {
        let (own, other) = (content(), content());
        let new = Credentials::parse(&own.render("x")).unwrap();
        // date --date 2030-01-01Z +%s
        let ends = UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let (before, after) = (ends - Duration::from_secs(1), ends);
        let gives_way = |there: &str, now| is_replaceable(there, &new, &forms, now);
        assert!(gives_way(&own.render_named("shop"), before));
        assert!(gives_way(&own.render("deployer"), before), "an earlier form");
        assert!(!gives_way(&own.render("anna"), before), "another user's");
        assert!(!gives_way(&other.render_named("shop"), before), "another cluster's, and valid");
        assert!(gives_way(&other.render_named("shop"), after), "of a cluster that had the name before");
        let more = own.render_named("shop").replacen("\"name\": \"shop\"", "\"name\": \"shop\", \"mine\": {}", 1);
        assert_ne!(more, *own.render_named("shop"));
        for there in [more.as_str(), "", "notes", "{}"] {
            assert!(!gives_way(there, after), "{there}");
        }
    }

    #[test]
    fn contexts_of_other_clusters_stay() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (own, other) = (content(), content());
        let new = Credentials::parse(&own.render("x")).unwrap();
        let written = |path: &Path| place(path, "control", &new, &forms);
        // Twice: a new file, and a file that this program wrote.
        for _ in 0..2 {
            written(&at("new")).unwrap();
            assert_eq!(fs::read_to_string(at("new")).unwrap(), *own.render_named("shop"));
        }
        let several = format!("# all of my clusters\n{}", *other.render("anna"));
        fs::write(at("config"), &several).unwrap();
        std::os::unix::fs::symlink(at("new"), at("link")).unwrap();
        for name in ["config", "link"] {
            let refused = written(&at(name)).unwrap_err().to_string();
            assert!(refused.contains("--to-file"), "{refused}");
            // Issue 43, leftover 4: `control create` does not have that option.
            let refused = require_own(&at(name), &forms).unwrap_err().to_string();
            assert!(
                refused.contains("name another file as `kubeconfig`") && !refused.contains("--to-file"),
                "{refused}"
            );
        }
        assert_eq!(fs::read_to_string(at("config")).unwrap(), several);
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    }

    #[test]
    fn only_the_beginning_of_regular_files_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert!(earlier(&at("new"), BY_OPTION).unwrap().is_none());
        fs::write(at("large"), vec![b'x'; usize::try_from(LARGEST).unwrap() + 1]).unwrap();
        assert_eq!(earlier(&at("large"), BY_OPTION).unwrap().unwrap().len(), usize::try_from(LARGEST).unwrap());
        std::os::unix::fs::symlink(at("large"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("nothing"), at("loose")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        for other in [at("link"), at("loose"), at("directory"), PathBuf::from("/dev/null")] {
            let refused = earlier(&other, BY_OPTION).unwrap_err().to_string();
            assert!(refused.contains("is no regular file"), "{}: {refused}", other.display());
        }
    }
}
