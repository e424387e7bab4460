//! `kaas-dev lab vcenter …`: a vCenter for tests, whose machines are system containers.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kaas::confirm::{ask_terminal, by_name};
use kaas::{output, say};
use lab::{RunningVCenter, VCENTER_USER, VCenter as OpenVCenter};

use super::become_program;
use crate::labs::tools;

/// The file name of the vCenter's program, in the directory of this command.
const PROGRAM: &str = "vcenter";

/// Commands on vCenters for tests
#[derive(Subcommand)]
pub enum VCenter {
    /// Start a vCenter whose machines are system containers, and print its address
    ///
    /// It is govmomi's simulator with the strict checks of vCenter. Its inventory is empty except for one cluster, and is lost
    /// when it ends.
    #[command(after_help = "Example: `kaas-dev lab vcenter up --name vcenter`")]
    Up(UpArguments),
    /// Print the address, and which machines run
    #[command(after_help = "Example: `kaas-dev lab vcenter status --name vcenter`")]
    Status(VcenterArgs),
    /// End a vCenter and remove all of it, machines and disks included
    #[command(after_help = "Example: `kaas-dev lab vcenter down --name vcenter --confirm vcenter`")]
    Down {
        /// Name of the vCenter, as the confirmation. Without it, the command asks for the name, and is refused without a terminal
        #[arg(long, value_name = "VCENTER")]
        confirm: Option<String>,
        #[command(flatten)]
        vcenter: VcenterArgs,
    },
    /// Print the console log of a machine, by its name in the inventory
    #[command(after_help = "Example: `kaas-dev lab vcenter console cp1 --name vcenter`")]
    Console {
        /// Name of the machine
        machine: String,
        #[command(flatten)]
        vcenter: VcenterArgs,
    },
    /// Run a program inside a machine as root
    #[command(after_help = "Example: `kaas-dev lab vcenter exec cp1 --name vcenter -- hostname`")]
    Exec {
        /// Name of the machine
        machine: String,
        #[command(flatten)]
        vcenter: VcenterArgs,
        /// Program and its arguments, after `--`
        #[arg(last = true, required = true)]
        arguments: Vec<String>,
    },
    /// Run a program on the machines' network, where the vCenter has the same address
    #[command(after_help = "Example: `kaas-dev lab vcenter run --name vcenter -- govc about`")]
    Run {
        #[command(flatten)]
        vcenter: VcenterArgs,
        /// Program and its arguments, after `--`
        #[arg(last = true, required = true)]
        arguments: Vec<String>,
    },
    /// Keep a vCenter running. `up` starts it
    #[command(hide = true)]
    Keep(ProcessArgs),
    /// Run a vCenter's machines, as it requests on standard input. The vCenter starts it
    #[command(hide = true)]
    Carry(ProcessArgs),
}

#[derive(Args)]
pub struct VcenterArgs {
    /// Name of the vCenter. No lab may have the same name
    #[arg(long, default_value = "vcenter")]
    name: String,
}

/// A process of a vCenter.
#[derive(Args)]
pub struct ProcessArgs {
    #[command(flatten)]
    vcenter: VcenterArgs,
    /// Mark by which the process is found
    mark: String,
}

#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    vcenter: VcenterArgs,
    /// Program of the vCenter. Default: `vcenter` in the directory of this command, where `make vcenter-program` puts it
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Tools tree to use in place of the image builder's one
    #[arg(long, value_name = "DIRECTORY")]
    tools: Option<PathBuf>,
    /// Options of the vCenter's program, after `--`. Its `-help` lists them
    #[arg(last = true)]
    options: Vec<String>,
}

pub fn run(state: &Path, command: VCenter) -> anyhow::Result<()> {
    let open = |vcenter: &VcenterArgs| OpenVCenter::open(state, &vcenter.name);
    match command {
        VCenter::Up(arguments) => up(state, arguments),
        VCenter::Status(vcenter) => status(&open(&vcenter)?),
        VCenter::Down { confirm, vcenter } => down(open(&vcenter)?, confirm.as_deref()),
        VCenter::Console { machine, vcenter } => console(&open(&vcenter)?, &machine),
        VCenter::Exec { machine, vcenter, arguments } => {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            become_program(open(&vcenter)?.command_inside(&machine, &arguments)?.stdin(Stdio::null()))
        }
        VCenter::Run { vcenter, arguments } => {
            let (program, arguments) = arguments.split_first().context("give a program")?;
            become_program(&mut open(&vcenter)?.outside(program, arguments))
        }
        VCenter::Keep(kept) => {
            let vcenter = open(&kept.vcenter)?;
            let [_, carries] = vcenter.marks();
            let own = own_program()?;
            let own = own.to_str().with_context(|| format!("{} is no text", own.display()))?;
            let carrier = [own, "lab", "vcenter", "carry", "--name", vcenter.name(), &carries].map(str::to_owned);
            vcenter.keep(&carrier)
        }
        VCenter::Carry(carried) => open(&carried.vcenter)?.carry(),
    }
}

fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("looking for this program")
}

fn up(state: &Path, arguments: UpArguments) -> anyhow::Result<()> {
    let program = match arguments.program {
        Some(program) => program,
        None => own_program()?.with_file_name(PROGRAM),
    };
    if !program.is_file() {
        bail!(
            "there is no {}; `make vcenter-program` builds it: give it with --program build/vcenter",
            program.display()
        );
    }
    let program = program.canonicalize().with_context(|| format!("looking for {}", program.display()))?;
    let (name, options) = (&arguments.vcenter.name, &arguments.options);
    let vcenter = OpenVCenter::create(state, name, &program, options, &tools(arguments.tools.as_deref())?)?;
    let mut keeper = std::process::Command::new(own_program()?);
    let [keeps, _] = vcenter.marks();
    keeper.args(["lab", "vcenter", "keep", "--name", vcenter.name(), &keeps]);
    match vcenter.start(&mut keeper) {
        Ok(running) => {
            show(&vcenter, &running);
            Ok(())
        }
        Err(error) => match vcenter.remove() {
            Ok(()) => Err(error),
            Err(cleanup) => bail!("{error:#}; and cleaning up after it: {cleanup:#}"),
        },
    }
}

fn down(vcenter: OpenVCenter, confirm: Option<&str>) -> anyhow::Result<()> {
    let name = vcenter.name();
    let question = format!(
        "The vCenter {name} is removed with its machines and all their disks. This cannot be undone.\n\
         Type its name to confirm"
    );
    by_name("vCenter", name, confirm, || ask_terminal(&question, "give the vCenter's name with --confirm"))?;
    vcenter.remove()
}

fn show(vcenter: &OpenVCenter, running: &RunningVCenter) {
    say!("address: {}", running.url);
    say!("user: {VCENTER_USER}");
    say!("password: in {}", vcenter.password_file().display());
    say!("certificate: {}", vcenter.certificate_file().display());
    say!("thumbprint: {} (SHA-1: {})", running.thumbprint, running.thumbprint_sha1);
    say!("control: {}", running.control);
    say!("log: {}", vcenter.log().display());
    let name = vcenter.name();
    say!("from the machines: {}, by the thumbprint", running.url_for_machines());
    say!("from the machines' network, with the same address: `kaas-dev lab vcenter run --name {name} -- COMMAND`");
}

fn status(vcenter: &OpenVCenter) -> anyhow::Result<()> {
    let running = vcenter.running()?;
    if let Some(running) = &running {
        show(vcenter, running);
    }
    for machine in vcenter.machines()? {
        let state = if machine.is_on { "on" } else { "off" };
        say!("{}\t{state}\t{}", machine.name, machine.console.display());
    }
    match running {
        Some(_) => Ok(()),
        None => bail!(
            "it no longer runs, and its inventory is gone; see {}, and end it with `kaas-dev lab vcenter down --name {}`",
            vcenter.log().display(),
            vcenter.name()
        ),
    }
}

fn console(vcenter: &OpenVCenter, machine: &str) -> anyhow::Result<()> {
    let mut found = vcenter.machines()?;
    found.retain(|carried| carried.name == machine);
    let [found] = found.as_slice() else { bail!("{} machines are called {machine}", found.len()) };
    let text = std::fs::read(&found.console).with_context(|| format!("reading {}", found.console.display()))?;
    output::raw(&String::from_utf8_lossy(&text))
}
