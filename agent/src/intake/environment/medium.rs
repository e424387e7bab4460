//! Ejects the CD-ROM with the OVF environment, because it contains secrets and cannot be scrubbed. Other media are not
//! ejected.
//!
//! A unit does it with udev's own helper, which unlocks the drive that udev has locked, and sends START STOP UNIT. The
//! image contains that program. A direct request to the kernel would need unsafe code and more rights here.

use std::path::Path;

use contract::codes;
use contract::finding::Findings;

use super::source::FILE_NAME;
use super::{document, drive, iso};
use crate::host::command::{Command, Runner};
use crate::host::platform::Platform;

/// Ejects each medium with an OVF environment. True if there was one. The findings report media that are still in a
/// drive.
pub fn eject(platform: &Platform, runner: &dyn Runner) -> (bool, Findings) {
    let mut findings = Findings::default();
    let mut ejected = false;
    for drive in platform.ejectable_media().unwrap_or_default() {
        if !holds_environment(&drive) {
            continue;
        }
        let name = drive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The command returns when the unit has ended.
        let outcome = runner.run(&Command::new("systemctl").args(["start", &format!("kaas-eject@{name}.service")]));
        let seen = match outcome {
            Ok(_) if !holds_environment(&drive) => {
                log::info!("the medium in {} is ejected: it holds secrets", drive.display());
                ejected = true;
                continue;
            }
            Ok(_) => "ejecting it had no effect".to_owned(),
            Err(error) => format!("ejecting it failed: {error}"),
        };
        findings.push(codes::MEDIUM_NOT_EJECTED.finding(
            drive.display().to_string(),
            format!("the medium with the OVF environment is still in the drive, and it holds secrets: {seen}"),
            "Disconnect the CD-ROM in the VM's settings; it is no longer needed",
        ));
    }
    (ejected, findings)
}

/// Whether the medium in a drive, if any, has the file of the OVF environment. An open tray stays open, and the page
/// cache is not used.
fn holds_environment(path: &Path) -> bool {
    let look = || -> Result<bool, iso::Error> {
        Ok(iso::read_file(&mut drive::open(path)?, FILE_NAME, document::LARGEST)?.is_some())
    };
    look().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Read};
    use std::path::PathBuf;

    use flate2::read::GzDecoder;
    use tempfile::TempDir;

    use super::*;
    use crate::host::command::Error;

    /// A VM with a drive that has this content.
    fn vm(content: &[u8]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for directory in ["sys/class/block/sr0", "dev"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("dev/sr0"), content).unwrap();
        root
    }

    fn iso() -> Vec<u8> {
        let mut image = Vec::new();
        let packed: &[u8] = include_bytes!("fixtures/iso/plain.iso.gz");
        GzDecoder::new(packed).read_to_end(&mut image).unwrap();
        image
    }

    enum Drive {
        Opens(PathBuf),
        Stays,
        Refuses,
        IsNotAsked,
    }

    impl Runner for Drive {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            assert_eq!(line, "systemctl start kaas-eject@sr0.service");
            match self {
                Self::Opens(root) => fs::write(root.join("dev/sr0"), "").unwrap(),
                Self::Stays => {}
                Self::Refuses => return Err(Error::Start { command: line, source: io::Error::other("locked") }),
                Self::IsNotAsked => panic!("{line}"),
            }
            Ok(Vec::new())
        }
    }

    fn eject_from(root: &TempDir, drive: &Drive) -> (bool, String) {
        let (ejected, findings) = eject(&Platform::detect(root.path()).unwrap(), drive);
        assert!(!findings.has_errors());
        (ejected, findings.to_string())
    }

    #[test]
    fn environments_medium_is_ejected_once() {
        let root = vm(&iso());
        assert_eq!(eject_from(&root, &Drive::Opens(root.path().to_owned())), (true, String::new()));
        assert_eq!(eject_from(&root, &Drive::IsNotAsked), (false, String::new()));
    }

    #[test]
    fn other_media_are_not_ejected() {
        for content in
            [Vec::new(), vec![0; 1 << 20], String::from_utf8_lossy(&iso()).replace("OVF", "XYZ").into_bytes()]
        {
            assert!(!eject_from(&vm(&content), &Drive::IsNotAsked).0);
        }
    }

    #[test]
    fn medium_that_stays_is_reported() {
        for drive in [Drive::Stays, Drive::Refuses] {
            let (ejected, findings) = eject_from(&vm(&iso()), &drive);
            assert!(!ejected && findings.contains("environment.medium-not-ejected"), "{findings}");
        }
    }
}
