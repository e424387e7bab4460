//! `kaas image …`: the images of tenant nodes.

use std::process::ExitCode;

use clap::Subcommand;

use super::push;

/// Commands on images of tenant nodes.
#[derive(Subcommand)]
pub enum Image {
    /// Verify an OVA of tenant nodes and import it to the vCenter of a Provider, as a NodeImage for clusters
    Push(push::Push),
}

pub fn run(command: &Image) -> anyhow::Result<ExitCode> {
    match command {
        Image::Push(arguments) => push::push(arguments),
    }
}
