//! A second opinion on a VMDK, from QEMU's own reader.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why the second opinion is missing or bad.
#[derive(Debug, thiserror::Error)]
pub enum IndependentCheckError {
    /// The program did not start.
    #[error("starting {}: {source}; install QEMU's tools", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It found a fault or a difference.
    #[error("{command}: {output}")]
    Failed {
        /// What was run.
        command: String,
        /// What it printed.
        output: String,
    },
}

/// Lets `qemu_img` check the structure of `vmdk` and compare its content with the image `raw`.
///
/// # Errors
/// When the program cannot be run, finds a fault, or finds a difference.
pub fn check_with_qemu_img(qemu_img: &Path, vmdk: &Path, raw: &Path) -> Result<(), IndependentCheckError> {
    run(Command::new(qemu_img).args(["check", "-q", "-f", "vmdk"]).arg(vmdk))?;
    run(Command::new(qemu_img).args(["compare", "-f", "vmdk", "-F", "raw"]).arg(vmdk).arg(raw))
}

fn run(command: &mut Command) -> Result<(), IndependentCheckError> {
    let output = command
        .output()
        .map_err(|source| IndependentCheckError::Start { program: command.get_program().into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(IndependentCheckError::Failed {
        command: format!("{command:?}"),
        output: String::from_utf8_lossy(&printed).trim().into(),
    })
}
