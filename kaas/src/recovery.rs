//! `kaas recovery`: the operator's key pair, to whose public half clusters seal the keys of their Secrets, and what opens
//! them again from a snapshot.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use contract::properties::RECOVERY_PUBLIC_KEY;
use contract::recovery::{Error, Keys, PrivateKey, Sealed, find};
use fleet::files;
use zeroize::Zeroizing;

/// What can be done for the recovery of clusters.
#[derive(Subcommand)]
pub enum Recovery {
    /// Makes a key pair: keeps the private key in a file and prints the public one.
    New {
        /// Where to keep the private key. It is never written over.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Opens the encryption keys that a snapshot carries, for `kaas-agent restore --recovered-keys`.
    Open {
        /// The private key, in PEM.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Where to put the opened keys. Whoever has them reads the Secrets of the snapshot: delete them after the restore.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        /// The snapshot.
        snapshot: PathBuf,
    },
}

/// Does what the command line says.
///
/// # Errors
/// A file cannot be read or written, or the key opens nothing of the snapshot.
pub fn run(command: &Recovery) -> anyhow::Result<()> {
    match command {
        Recovery::New { output } => {
            let key = PrivateKey::draw()?;
            files::write_new(output, key.pem().expose().as_bytes())?;
            crate::output::result(&format!("{RECOVERY_PUBLIC_KEY}={}", key.public()?))
        }
        Recovery::Open { key, output, snapshot } => {
            let text = fs::read_to_string(key).map(Zeroizing::new);
            let text = text.with_context(|| format!("reading {}", key.display()))?;
            let key = PrivateKey::of_pem(&text).with_context(|| key.display().to_string())?;
            let keys = opened(&sealed_in(snapshot)?, &key)?;
            files::write_new(output, &Zeroizing::new(serde_json::to_vec_pretty(&keys)?))?;
            let ids: Vec<&str> = keys.ids().collect();
            crate::output::say(&format!("{}: the encryption keys {}", output.display(), ids.join(" and ")));
            Ok(())
        }
    }
}

/// What is sealed in a snapshot.
///
/// # Errors
/// It cannot be read.
pub fn sealed_in(snapshot: &Path) -> anyhow::Result<Vec<Sealed>> {
    let read = || find(File::open(snapshot)?);
    read().with_context(|| format!("reading {}", snapshot.display()))
}

/// All keys that this private key opens.
fn opened(sealed: &[Sealed], key: &PrivateKey) -> anyhow::Result<Keys> {
    if sealed.is_empty() {
        bail!(
            "nothing is sealed in this snapshot: the cluster had no {RECOVERY_PUBLIC_KEY}, or did not encrypt Secrets"
        );
    }
    let mut keys = Keys::default();
    for one in sealed {
        match one.open(key) {
            Ok(more) => keys.add(more),
            Err(Error::OtherKey) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if keys.keys.is_empty() {
        let mut others: Vec<&str> = sealed.iter().map(|sealed| sealed.to.as_str()).collect();
        others.dedup();
        bail!(
            "the snapshot's keys are sealed to {}, and this key is {}",
            others.join(" and "),
            key.public()?.fingerprint()
        );
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::recovery::Key;
    use contract::secret::Secret;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_pair_opens_what_a_snapshot_carries_and_no_other_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        run(&Recovery::New { output: path("own.pem") }).unwrap();
        run(&Recovery::New { output: path("other.pem") }).unwrap();
        assert_eq!(fs::metadata(path("own.pem")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(run(&Recovery::New { output: path("own.pem") }).is_err(), "a private key was written over");

        let public = PrivateKey::of_pem(&fs::read_to_string(path("own.pem")).unwrap()).unwrap().public().unwrap();
        let key = |id: &str| Key { id: id.to_owned(), secret: Secret::new(format!("secret of {id}")) };
        let line = |keys: Vec<Key>| Sealed::new(&public, &Keys { keys }).unwrap().line();
        // The nodes' copies, one of them from before a rotation.
        let (old, new) = (line(vec![key("a")]), line(vec![key("a"), key("b")]));
        fs::write(path("snapshot.db"), format!("pages\0{old}more pages{new}\0end")).unwrap();
        let open = |key: &str, snapshot: &str, output: &str| {
            run(&Recovery::Open { key: path(key), output: path(output), snapshot: path(snapshot) })
        };
        open("own.pem", "snapshot.db", "keys").unwrap();
        let keys: Keys = serde_json::from_str(&fs::read_to_string(path("keys")).unwrap()).unwrap();
        assert_eq!(keys, Keys { keys: vec![key("a"), key("b")] });
        let refused = open("other.pem", "snapshot.db", "none").unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("the snapshot's keys are sealed to {}, ", public.fingerprint())),
            "{refused}"
        );
        fs::write(path("empty.db"), "pages").unwrap();
        let refused = open("own.pem", "empty.db", "none").unwrap_err().to_string();
        assert!(refused.starts_with("nothing is sealed in this snapshot"), "{refused}");
        assert!(!path("none").exists());
    }
}
