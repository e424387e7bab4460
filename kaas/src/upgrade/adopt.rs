//! `kaas adopt`: shows, for each node, what it says beside what the hypervisor shows, and stamps what is confirmed.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use anyhow::bail;
use fleet::authority::TakeOver;
use fleet::upgrade::{Adoption, Deployment};

/// Shows what would be adopted, asks, and adopts.
///
/// # Errors
/// As [`Deployment::adoptable`] and [`Deployment::adopt`], or the operator does not confirm.
pub async fn run(deployment: &Deployment<'_>, yes: bool, over: TakeOver) -> anyhow::Result<ExitCode> {
    let adoptions = deployment.adoptable().await?;
    if adoptions.is_empty() {
        println!("all control nodes run in VMs of this deployment");
        return Ok(ExitCode::SUCCESS);
    }
    for adoption in &adoptions {
        print!("{}", shown(adoption));
    }
    if !yes {
        print!("Are these the VMs of these nodes? Type yes to stamp them: ");
        std::io::stdout().flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if answer.trim() != "yes" {
            bail!("not confirmed; nothing was changed");
        }
    }
    deployment.adopt(&adoptions, over).await?;
    Ok(ExitCode::SUCCESS)
}

fn shown(adoption: &Adoption) -> String {
    let Adoption { node, address, uuid, vm } = adoption;
    let mut text =
        format!("{node} at {address} says: BIOS UUID {uuid}\n  the hypervisor has: {}, {}\n", vm.name, vm.power);
    for adapter in &vm.adapters {
        text += &format!("  network adapter {} on {}, MAC {}\n", adapter.key, adapter.network, adapter.mac);
    }
    for disk in vm.data_disks() {
        text += &format!("  data disk {} at {}\n", disk.reference.uuid, disk.reference.path);
    }
    text
}
