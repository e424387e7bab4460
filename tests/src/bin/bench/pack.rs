//! Speed and memory of packing and unpacking the built OVA's disk, against `qemu-img`. The programs take turns, so
//! that a change of the machine's pace meets both.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use lab::Tools;
use serde_json::Value;

use super::median;

/// Turns that each program takes.
const TURNS: usize = 3;

/// Measures and prints.
pub fn bench(ova: &Path, tools: &Tools) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in(ova.parent().context("an OVA without a directory")?)?;
    let at = |name: &str| directory.path().join(name);
    let kaas = env::current_exe()?.with_file_name("kaas");
    let own = |arguments: [&Path; 3]| {
        let mut command = Command::new(&kaas);
        command.arg("ova").args(arguments);
        command
    };
    let other = |arguments: &[&str], files: [&Path; 2]| {
        let mut command = tools.command("qemu-img", &[directory.path()]);
        command.arg("convert").args(arguments).args(files);
        command
    };

    extract_disk(ova, &at("disk.vmdk"))?;
    run(own(["unpack".as_ref(), &at("disk.vmdk"), &at("disk.raw")]))?;

    let (raw, packed, again) = (at("disk.raw"), at("packed.vmdk"), at("again.raw"));
    compare(
        "packing",
        || own(["pack".as_ref(), &raw, &packed]),
        || other(&["-f", "raw", "-O", "vmdk", "-o", "subformat=streamOptimized"], [&raw, &at("other.vmdk")]),
        &[packed.clone(), at("other.vmdk")],
    )?;
    run(own(["pack".as_ref(), &raw, &packed]))?;
    compare(
        "unpacking",
        || own(["unpack".as_ref(), &packed, &again]),
        || other(&["-f", "vmdk", "-O", "raw"], [&packed, &at("other.raw")]),
        &[again.clone(), at("other.raw")],
    )
}

fn extract_disk(ova: &Path, vmdk: &Path) -> anyhow::Result<()> {
    let archive = ova::archive::Archive::open(ova)?;
    let disk =
        archive.members().iter().find(|member| member.name.ends_with(".vmdk")).context("an OVA without a disk")?;
    let (_, mut reader) = archive.member(&disk.name)?;
    std::io::copy(&mut reader, &mut std::fs::File::create(vmdk)?)?;
    Ok(())
}

/// Lets the two take turns; prints the median cost of ours and its ratio to the other's.
fn compare(
    what: &str,
    ours: impl Fn() -> Command,
    other: impl Fn() -> Command,
    outputs: &[PathBuf],
) -> anyhow::Result<()> {
    let (mut of_ours, mut of_other) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        for (command, costs) in [(ours(), &mut of_ours), (other(), &mut of_other)] {
            for output in outputs.iter().filter(|output| output.exists()) {
                std::fs::remove_file(output)?;
            }
            costs.push(cost(&command)?);
        }
    }
    for (key, unit) in [("wall", "s elapsed"), ("processors", "s of processors"), ("memory", "KiB of memory")] {
        let figures = |costs: &[Value]| costs.iter().filter_map(|cost| cost[key].as_f64()).collect();
        let (ours, other) = (median(figures(&of_ours)), median(figures(&of_other)));
        println!("{what}: {ours:.1} {unit}, {:.2} of qemu-img's {other:.1}", ours / other);
    }
    Ok(())
}

/// Time and memory of a command. For memory, the largest of its processes counts.
fn cost(command: &Command) -> anyhow::Result<Value> {
    let output = Command::new(env::current_exe()?)
        .args(["measure", "--"])
        .arg(command.get_program())
        .args(command.get_args())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("measuring {}: {}", command.get_program().to_string_lossy(), output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    if !status.success() {
        bail!("{}: {status}", command.get_program().to_string_lossy());
    }
    Ok(())
}
