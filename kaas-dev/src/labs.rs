//! The parts of labs that commands and cluster files use: the engine of the VMs, the port forward and the tools tree.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use image::debian::sources::Settings;
use lab::{EngineRecord, Hardware, Kvm, Lab, Tools};

use crate::builder::tools_tree;

/// The engine that runs the VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The image's root tree in system containers, at native speed
    Container,
    /// Virtual machines, under KVM if it works, otherwise emulated
    Qemu,
}

impl Engine {
    /// The engine as a lab records it. Calls `say` if virtual machines are slow on this machine, with the reason.
    pub fn record(self, tools: &Tools, hardware: Hardware, say: &dyn Fn(&str)) -> anyhow::Result<EngineRecord> {
        Ok(match self {
            Self::Container => EngineRecord::Container,
            Self::Qemu => EngineRecord::Qemu { kvm: probe_kvm(tools, say)?, hardware },
        })
    }
}

/// Starts the port forward in a separate process. Returns the kubeconfig that uses it.
pub fn open_port_forward(lab: &Lab) -> anyhow::Result<PathBuf> {
    let mut command = std::process::Command::new(std::env::current_exe().context("looking for this program")?);
    lab.open_port_forward(command.args(["lab", "door", "--name", lab.name()]).arg(lab.door_argument()))
}

/// Whether VMs run under KVM. If not, calls `say` with the reason.
fn probe_kvm(tools: &Tools, say: &dyn Fn(&str)) -> anyhow::Result<bool> {
    let kvm = Kvm::probe(tools)?;
    match kvm {
        Kvm::Runs => {}
        Kvm::RunsNone => say("KVM exists but runs no guests: the VMs are emulated and slow"),
        Kvm::Absent => say("there is no KVM here: the VMs are emulated and slow"),
    }
    Ok(kvm.runs_guests())
}

/// The given tools tree, otherwise that of the image builder.
pub fn tools(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(given) => given.canonicalize().with_context(|| format!("looking for the tools tree {}", given.display())),
        // The settings come from the environment: only the builder's commands have the flags.
        None => Ok(tools_tree(&Settings::of_environment())?.root().to_owned()),
    }
}
