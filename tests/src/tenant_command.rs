//! `kaas-dev lab tenant`, given as a program gives it.

use std::process::{Child, Command, Output, Stdio};

use lab::{Lab, state_directory};
use serde_json::Value;

use crate::places::{kaas_dev, named_ova};

/// `kaas-dev lab tenant up` on a scenario's lab. Returns the tenant's lab, and the output.
pub fn up(host: &Lab, name: &str, arguments: &[&str]) -> anyhow::Result<(Lab, Value)> {
    let ova = named_ova().display().to_string();
    let all = [&["up", "--beside", host.name(), "--ova", &ova], arguments].concat();
    let output = command(&all, name);
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok((Lab::open(&state_directory()?, name)?, serde_json::from_slice(&output.stdout)?))
}

/// `kaas-dev lab tenant VERB` on the tenant of this name.
pub fn command(arguments: &[&str], name: &str) -> Output {
    given(arguments, name).output().unwrap_or_else(|error| panic!("starting kaas: {error}"))
}

/// The same, which goes on while something else is done.
pub fn begin(arguments: &[&str], name: &str) -> Child {
    let mut command = given(arguments, name);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("starting kaas: {error}"))
}

fn given(arguments: &[&str], name: &str) -> Command {
    let mut command = Command::new(kaas_dev());
    command.args(["lab", "tenant"]).args(arguments).args(["--name", name, "--output", "json"]);
    command
}
