//! `kaas-dev lab` as an operator runs it: in a separate process, on this machine's own network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::{Lab, state_directory};

use crate::places::{kaas_dev, named_ova};

pub struct LabCommand {
    lab: String,
}

impl LabCommand {
    /// Creates a lab with one control-plane node and waits for it. Returns the path of the kubeconfig that the command
    /// names.
    pub fn up(lab: &str) -> anyhow::Result<(Self, PathBuf)> {
        let own = Self { lab: lab.to_owned() };
        let tree = std::env::var("KAAS_ROOT_TREE").ok();
        let ova = named_ova().display().to_string();
        let from = tree.as_deref().map_or(["--ova", &ova], |tree| ["--root-tree", tree]);
        let said = own.try_run("up", &[&["--nodes", "1"], &from[..]].concat())?;
        let path = said.lines().find_map(|line| line.strip_prefix("kubeconfig: ")).map(PathBuf::from);
        Ok((own, path.ok_or_else(|| anyhow::anyhow!("`kaas-dev lab up` names no kubeconfig: {said}"))?))
    }

    pub fn run(&self, verb: &str, arguments: &[&str]) -> String {
        self.try_run(verb, arguments).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn try_run(&self, verb: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(kaas_dev());
        let output = command.args(["lab", verb, "--name", &self.lab]).args(arguments).output()?;
        let [said, why] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        anyhow::ensure!(output.status.success(), "{command:?}: {}: {why}", output.status);
        Ok(said)
    }

    /// Ends the lab, and checks that nothing of it is left.
    pub fn down(self, lab: Lab) {
        let (network, door) = (lab.network_namespace(), lab.door_argument());
        assert!(network.exists() && is_argument(&door), "what is looked for below is not there before");
        drop(lab);
        self.run("down", &["--confirm", &self.lab]);
        let state = state_directory().expect("a home directory");
        assert!(!state.join(&self.lab).exists(), "the lab's directory is left");
        assert!(!network.exists(), "the lab's network is left");
        assert!(!is_argument(&door), "the door to the lab's API is left");
    }
}

/// Whether a process of this machine was given this argument.
pub(crate) fn is_argument(argument: &str) -> bool {
    let has_it = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|one| one == argument.as_bytes())
    };
    fs::read_dir("/proc").expect("a list of processes").flatten().any(|process| has_it(&process.path()))
}
