//! `kaas version`: the versions of this program and of the objects that it writes.

use std::process::ExitCode;

use clap::Args;
use controller::objects::{GROUP, VERSION};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::Output;

#[derive(Args)]
pub struct Version {
    #[command(flatten)]
    output: Output,
}

/// The output of the command.
#[derive(Serialize, JsonSchema)]
pub struct Versions {
    /// Version of this program.
    version: &'static str,
    /// API group and version of the objects that this program writes.
    objects: String,
}

pub fn run(arguments: &Version) -> anyhow::Result<ExitCode> {
    let versions = Versions::current();
    arguments.output.result(&versions, || versions.text())
}

impl Versions {
    fn current() -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), objects: format!("{GROUP}/{VERSION}") }
    }

    fn text(&self) -> String {
        format!("kaas {}\nobjects {}", self.version, self.objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_program_and_objects() {
        let expected = format!("kaas {}\nobjects kaas.local/v1alpha1", env!("CARGO_PKG_VERSION"));
        assert_eq!(Versions::current().text(), expected);
    }
}
