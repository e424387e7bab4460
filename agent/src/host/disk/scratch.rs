//! The scratch file system under `/var`. It is checked before it is mounted, and recreated if it cannot be repaired.
//! None of its content has to survive the VM, so damage must not stop the node. The content is written again from the
//! image.

use std::path::Path;

use anyhow::Context as _;

use crate::host::command::{Command, Error, LONG, Runner};

/// Exit status of e2fsck(8), as bits: something was repaired, …
const REPAIRED: i32 = 1 | 2;
/// … or errors remain for the operator, or the file system cannot be read.
const DAMAGED: i32 = 4 | 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scratch {
    Whole,
    /// It was repaired without loss.
    Repaired,
    /// It could not be repaired and was recreated.
    Recreated,
}

/// Checks the scratch file system on `device`, and repairs or recreates it. A mounted one does not change. After an
/// error nothing was changed, or the device cannot be written and may have no file system.
pub fn ensure(device: &Path, runner: &dyn Runner) -> anyhow::Result<Scratch> {
    let (code, said) = match runner.run(&Command::new("e2fsck").arg("-p").arg(device).within(LONG)) {
        Ok(_) => return Ok(Scratch::Whole),
        Err(Error::Failed { status, tail, .. }) => (status.code(), tail),
        Err(error) => return Err(error).context("checking the scratch file system"),
    };
    let name = device.display();
    match code {
        Some(code) if code & !REPAIRED == 0 => {
            log::warn!("the scratch file system on {name} was repaired: {said}");
            Ok(Scratch::Repaired)
        }
        Some(code) if code & !(REPAIRED | DAMAGED) == 0 => {
            log::error!("the scratch file system on {name} cannot be repaired and is recreated: {said}");
            // Without confirmation. It still refuses a mounted device.
            let make =
                Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-L", "kaas-var"]).arg(device).within(LONG);
            runner.run(&make).context("recreating the scratch file system")?;
            Ok(Scratch::Recreated)
        }
        _ => anyhow::bail!("checking the scratch file system on {name}: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::process::ExitStatus;
    use std::sync::Mutex;

    use super::*;
    use crate::host::command::Host;

    /// A scratch partition as after the first boot.
    fn partition() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("var");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        Host.run(&Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path)).unwrap();
        (directory, path)
    }

    /// The identifier of a file system (struct ext4_super_block).
    fn identifier(path: &Path) -> [u8; 16] {
        let mut bytes = [0; 16];
        File::open(path).unwrap().read_exact_at(&mut bytes, 1024 + 0x68).unwrap();
        bytes
    }

    fn overwrite(path: &Path, from: u64, length: usize) {
        let noise: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
        File::options().write(true).open(path).unwrap().write_all_at(&noise, from).unwrap();
    }

    #[test]
    fn valid_file_system_stays() {
        let (_directory, path) = partition();
        let before = identifier(&path);
        assert_eq!(ensure(&path, &Host).unwrap(), Scratch::Whole);
        assert_eq!(identifier(&path), before);
    }

    #[test]
    fn damaged_file_system_is_recreated() {
        // The first blocks; inode tables; the complete file system.
        for (from, length) in [(0, 64 << 10), (96 << 10, 4 << 20), (0, 64 << 20)] {
            let (_directory, path) = partition();
            let before = identifier(&path);
            overwrite(&path, from, length);
            assert_eq!(ensure(&path, &Host).unwrap(), Scratch::Recreated, "{length} bytes from {from}");
            assert_ne!(identifier(&path), before);
            assert_eq!(ensure(&path, &Host).unwrap(), Scratch::Whole, "{length} bytes from {from}");
        }
    }

    #[test]
    fn failed_check_changes_nothing() {
        struct Ends(i32, Mutex<Vec<String>>);
        impl Runner for Ends {
            fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
                self.1.lock().unwrap().push(command.to_string());
                let (command, tail) = (command.to_string(), "why".to_owned());
                Err(Error::Failed { command, status: ExitStatus::from_raw(self.0), tail })
            }
        }
        // Killed by a signal; cancelled; a missing library; wrong usage.
        for status in [15, 32 << 8, (32 | 4) << 8, 128 << 8, 16 << 8] {
            let runner = Ends(status, Mutex::default());
            assert!(ensure(Path::new("/dev/var"), &runner).is_err(), "{status:#x}");
            assert_eq!(*runner.1.lock().unwrap(), ["e2fsck -p /dev/var"]);
        }
        assert_eq!(ensure(Path::new("/dev/var"), &Ends(1 << 8, Mutex::default())).unwrap(), Scratch::Repaired);
    }
}
