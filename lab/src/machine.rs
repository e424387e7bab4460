//! What all labs of this machine share, whoever's they are: a lock, and their names. Network namespaces and cgroups are
//! named by labs, and labs are kept in the folders of users: without this, two users' labs of one name would end each other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Held while something that labs share is made or removed.
const LOCK: &str = "/run/kaas-lab.lock";

/// A file for each lab, with its directory in it; gone after a reboot, like all that it stands for.
const CLAIMS: &str = "/run/kaas-lab";

/// Keeps other labs from making or removing what all labs of this machine share, while the returned file is open.
///
/// # Errors
/// When the file cannot be made.
pub fn lock() -> anyhow::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(LOCK);
    let file = file.with_context(|| format!("opening {LOCK}"))?;
    file.lock().with_context(|| format!("locking {LOCK}"))?;
    Ok(file)
}

/// A lab's name on this machine.
pub struct Claim {
    name: String,
    file: PathBuf,
    folder: PathBuf,
}

impl Claim {
    /// The claim of the lab `name` that is kept in `folder`; makes nothing.
    pub fn of(name: &str, folder: &Path) -> Self {
        Self::below(Path::new(CLAIMS), name, folder)
    }

    fn below(claims: &Path, name: &str, folder: &Path) -> Self {
        Self { name: name.to_owned(), file: claims.join(name), folder: folder.to_owned() }
    }

    /// Takes the name, if no other lab has it. The caller holds the machine's lock.
    ///
    /// # Errors
    /// When another user's lab has it, or the file cannot be written.
    pub fn take(&self) -> anyhow::Result<()> {
        if let Ok(holder) = fs::read_to_string(&self.file)
            && Path::new(&holder) != self.folder
            && Path::new(&holder).join("lab.json").exists()
        {
            bail!(
                "this machine has a lab {} already, in {holder}: whose it is ends it with `kaas lab down --name {0}`, or \
                 choose another name",
                self.name
            );
        }
        let taking = || format!("writing {}", self.file.display());
        fs::create_dir_all(self.file.parent().unwrap_or(Path::new("/"))).with_context(taking)?;
        fs::write(&self.file, self.folder.to_string_lossy().as_bytes()).with_context(taking)
    }

    /// Gives the name back, if it is this lab's.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn give_back(&self) -> anyhow::Result<()> {
        if self.is_held() {
            fs::remove_file(&self.file).with_context(|| format!("removing {}", self.file.display()))?;
        }
        Ok(())
    }

    fn is_held(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|holder| Path::new(&holder) == self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_labs_until_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let lab = |user: &str| folder.path().join(user).join("lab1");
        let claim = |user: &str| Claim::below(&folder.path().join("run"), "lab1", &lab(user));
        claim("anna").take().unwrap();
        // Without a lab behind it the claim is what a crash left.
        claim("bert").take().unwrap();
        fs::create_dir_all(lab("bert")).unwrap();
        fs::write(lab("bert").join("lab.json"), "{}").unwrap();
        let refused = claim("anna").take().unwrap_err().to_string();
        assert!(refused.contains("has a lab lab1 already") && refused.contains("bert"), "{refused}");
        claim("bert").take().unwrap();
        claim("anna").give_back().unwrap();
        assert!(claim("bert").is_held(), "another lab's is left alone");
        claim("bert").give_back().unwrap();
        assert!(!claim("bert").is_held());
        claim("bert").give_back().unwrap();
        claim("anna").take().unwrap();
    }
}
