//! `kaas control adopt`: shows the VMs of the hypervisor with the nodes that report to run there, and asks for a confirmation. Changes
//! nothing.

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fleet::nodes::clean;
use fleet::upgrade::{Adoption, Deployment};
use schemars::JsonSchema;
use serde::Serialize;

use crate::confirm::ask;
use crate::output::Output;

/// The output of the command.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedVms {
    /// Whether the command only shows what would be adopted.
    dry_run: bool,
    /// Empty if all control-plane nodes run in VMs of the deployment.
    adopted: Vec<AdoptedVm>,
}

/// A node, and the name of the VM that it runs in.
#[derive(Serialize, JsonSchema)]
struct AdoptedVm {
    node: String,
    vm: String,
}

impl AdoptedVms {
    pub fn of(adoptions: &[Adoption], dry_run: bool) -> Self {
        let adopted = |Adoption { node, vm, .. }: &Adoption| AdoptedVm { node: node.clone(), vm: vm.name.clone() };
        Self { dry_run, adopted: adoptions.iter().map(adopted).collect() }
    }

    pub fn report(&self, output: Output) -> anyhow::Result<ExitCode> {
        output.result(self, || self.text())
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.adopted.iter().map(|adopted| adopted.node.as_str()).collect();
        match names.as_slice() {
            [] => "all control-plane nodes run in VMs of this deployment".to_owned(),
            names if self.dry_run => format!("would adopt: {}", names.join(", ")),
            names => format!("adopted: {}", names.join(", ")),
        }
    }
}

/// The VMs that would be adopted, as text.
pub fn plan(adoptions: &[Adoption]) -> String {
    adoptions.iter().map(shown).collect::<String>() + &AdoptedVms::of(adoptions, true).text()
}

/// Shows the VMs to adopt, and asks for a confirmation. Returns the confirmed ones. Without VMs to adopt, it reports that and
/// returns `None`. The checks run with `yes` too. Fails if the operator does not confirm.
pub async fn confirm(deployment: &Deployment<'_>, yes: bool, output: Output) -> anyhow::Result<Option<Vec<Adoption>>> {
    let adoptions = deployment.adoptable().await?;
    if adoptions.is_empty() {
        return AdoptedVms::of(&adoptions, false).report(output).map(|_| None);
    }
    let shown = adoptions.clone();
    // On a separate thread, so that Ctrl-C works while the command waits for the answer.
    let asked = tokio::task::spawn_blocking(move || {
        let ask = |question: &str| ask(question, "give --yes");
        match output {
            Output::Table => confirmed(&shown, yes, &mut stdout().lock(), ask),
            Output::Json | Output::Yaml => confirmed(&shown, yes, &mut stderr().lock(), ask),
        }
    });
    asked.await.context("asking")??;
    Ok(Some(adoptions))
}

/// Shows the VMs to adopt, and asks unless `yes` is set. Fails if the operator does not confirm.
fn confirmed(
    adoptions: &[Adoption],
    yes: bool,
    to: &mut impl Write,
    ask: impl FnOnce(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let shown: String = adoptions.iter().map(shown).collect();
    // An operator who cannot see the VMs has not confirmed them.
    write!(to, "{shown}").context("showing what would be adopted")?;
    if yes {
        return Ok(());
    }
    to.flush().context("showing what would be adopted")?;
    let question = match adoptions.len() {
        1 => "Does this VM run the node that it is listed with? Type yes to stamp it".to_owned(),
        count => format!("Do these {count} VMs run the nodes that they are listed with? Type yes to stamp them"),
    };
    if ask(&question)? != "yes" {
        bail!("not confirmed; nothing was changed");
    }
    Ok(())
}

/// The hypervisor's facts come first: an administrator of the cluster can forge those of the node.
fn shown(Adoption { node, address, uuid, vm }: &Adoption) -> String {
    let mut text =
        format!("VM {}, as the hypervisor shows it\n  {}, BIOS UUID {}\n", clean(&vm.name), vm.power, vm.uuid());
    for adapter in &vm.adapters {
        let (key, network, mac) = (clean(&adapter.key), clean(&adapter.network), clean(&adapter.mac));
        let connected = if adapter.connected { "" } else { ", disconnected" };
        text += &format!("  network adapter {key} on {network}, MAC {mac}{connected}\n");
    }
    for disk in vm.data_disks() {
        text += &format!("  data disk {} at {}\n", disk.reference.uuid, clean(&disk.reference.path));
    }
    text += &format!(
        "  reported by the node, not verified by the hypervisor: {}, at {address}, BIOS UUID {uuid}\n",
        clean(node)
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::schemas::tests::fits;

    fn adoption(node: &str, name: &str) -> Adoption {
        let uuid = uuid::Uuid::from_u128(0xa0);
        let vm = serde_json::from_value(json!({
            "uuid": uuid, "id": "vm-1", "name": name, "power": "on",
            "disks": [{"uuid": uuid, "path": "[ds] data.vmdk", "kind": "data", "controller": "1"}],
            "adapters": [{"key": "4000", "network": "Management", "mac": "00:50:56:00:00:01", "connected": true}],
            "snapshots": [], "tasks": [], "version": "1",
        }))
        .unwrap();
        Adoption { node: node.to_owned(), address: "10.0.0.11".parse().unwrap(), uuid, vm }
    }

    fn asked(adoptions: &[Adoption], yes: bool, answer: &str) -> (anyhow::Result<()>, String) {
        let (mut shown, mut questions) = (Vec::new(), String::new());
        let confirmed = confirmed(adoptions, yes, &mut shown, |question| {
            questions += question;
            Ok(answer.trim().to_owned())
        });
        (confirmed, String::from_utf8(shown).unwrap() + &questions)
    }

    #[test]
    fn hypervisor_facts_come_before_those_of_the_node() {
        let (_, text) = asked(&[adoption("cp1", "kaas-cp1")], true, "");
        let lines: Vec<&str> = text.lines().collect();
        let uuid = uuid::Uuid::from_u128(0xa0);
        assert_eq!(
            lines,
            [
                "VM kaas-cp1, as the hypervisor shows it".to_owned(),
                format!("  on, BIOS UUID {uuid}"),
                "  network adapter 4000 on Management, MAC 00:50:56:00:00:01".to_owned(),
                format!("  data disk {uuid} at [ds] data.vmdk"),
                format!("  reported by the node, not verified by the hypervisor: cp1, at 10.0.0.11, BIOS UUID {uuid}"),
            ]
        );
    }

    #[test]
    fn names_cannot_forge_or_hide_lines() {
        let forged = "cp1\nVM web, as the hypervisor shows it\nDoes this VM run\u{1b}[2J\u{1b}[8m\r\u{202e}";
        let plain = asked(&[adoption("cp1", "kaas-cp1")], false, "yes\n").1;
        for (node, name) in [(forged, "kaas-cp1"), ("cp1", forged)] {
            let (confirmed, text) = asked(&[adoption(node, name)], false, "yes\n");
            confirmed.unwrap();
            assert_eq!(text.lines().count(), plain.lines().count(), "{text}");
            assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
            assert!(text.lines().last().unwrap().starts_with("Does this VM run the node that it is listed with?"));
        }
    }

    #[test]
    fn only_yes_confirms() {
        for answer in ["", "\n", "y\n", "no\n", "YES\n", "yes, but\n"] {
            let error = asked(&[adoption("cp1", "a")], false, answer).0.unwrap_err();
            assert_eq!(error.to_string(), "not confirmed; nothing was changed", "{answer:?}");
        }
        asked(&[adoption("cp1", "a")], false, "yes\n").0.unwrap();
        asked(&[adoption("cp1", "a")], true, "").0.unwrap();
    }

    #[test]
    fn result_names_the_adopted_nodes() {
        let both = [adoption("cp1", "kaas-cp1"), adoption("cp2", "kaas-cp2")];
        let adopted = AdoptedVms::of(&both, false);
        assert_eq!(adopted.text(), "adopted: cp1, cp2");
        fits("control-adopt", &adopted);
        assert_eq!(serde_json::to_value(&adopted).unwrap()["adopted"][1], json!({"node": "cp2", "vm": "kaas-cp2"}));
        assert!(plan(&both).starts_with("VM kaas-cp1, ") && plan(&both).ends_with("\nwould adopt: cp1, cp2"));
        assert_eq!(AdoptedVms::of(&[], true).text(), "all control-plane nodes run in VMs of this deployment");
    }
}
