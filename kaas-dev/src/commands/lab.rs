//! `kaas-dev lab`: translates the command line into calls of the lab.

mod tenant;
mod vcenter;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use fleet::hypervisor::{PowerState, SHUTTING_DOWN};
use kaas::confirm::{ask_terminal, by_name};
use kaas::work::{TakeOverArgs, advised, duration};
use kaas::{output, say};
use lab::{
    Hardware, Lab as OpenLab, LabSpec, LeaseRequest, NewVm, NodeSize, Source, Tools, UnpackedOva, Up, cache_directory,
    state_directory,
};

use crate::labs::{Engine, open_port_forward, tools};

/// Commands on labs
#[derive(Subcommand)]
pub enum Lab {
    /// Start a control cluster and wait until its nodes are Ready
    #[command(after_help = "Example: `kaas-dev lab up --ova build --nodes 3 --name lab`")]
    Up(UpArguments),
    /// Show which VMs run and which nodes are Ready
    #[command(after_help = "Example: `kaas-dev lab status --name lab`")]
    Status(LabArgs),
    /// End a lab and remove all of it, disks included, after a confirmation
    #[command(after_help = "Example: `kaas-dev lab down --name lab --confirm lab`")]
    Down {
        /// Name of the lab, as the confirmation. Without it, the command asks for the name, and is refused without a terminal
        #[arg(long, value_name = "LAB")]
        confirm: Option<String>,
        #[command(flatten)]
        lab: LabArgs,
    },
    /// Run kubectl as the cluster's administrator, on the lab's network
    #[command(after_help = "Example: `kaas-dev lab kubectl --name lab -- get nodes`")]
    Kubectl(Inside),
    /// Run a program inside a VM as root
    #[command(after_help = "Example: `kaas-dev lab exec cp1 --name lab -- hostname`")]
    Exec {
        /// Name of the VM
        vm: String,
        #[command(flatten)]
        inside: Inside,
    },
    /// Print an example of a file that describes a control cluster in a lab, for `kaas-dev control create`
    #[command(after_help = "Example: `kaas-dev lab example three`")]
    Example {
        /// Control-plane nodes of the cluster
        #[arg(value_enum, default_value = "three")]
        nodes: ExampleNodes,
    },
    /// Power a VM on
    #[command(after_help = "Example: `kaas-dev lab on cp1 --name lab`")]
    On(OneVm),
    /// Shut a VM down
    #[command(after_help = "Example: `kaas-dev lab off cp1 --name lab`")]
    Off(OneVm),
    /// Cut a VM's power
    #[command(after_help = "Example: `kaas-dev lab cut cp1 --name lab`")]
    Cut(OneVm),
    /// Print a VM's console log
    #[command(after_help = "Example: `kaas-dev lab console cp1 --name lab`")]
    Console(OneVm),
    /// Create a VM from an OVA in a lab, powered off and without a data disk
    ///
    /// With `--like` it gets the properties of another VM's node, to replace that VM. Once that VM is off, `move-disk` moves
    /// its data disk to the new one.
    #[command(after_help = "Example: `kaas-dev lab import cp1-b --ova build --like cp1 --name lab`")]
    Import(ImportArguments),
    /// Move the data disks of a VM that is off to another VM that is off
    #[command(after_help = "Example: `kaas-dev lab move-disk cp1 cp1-b --name lab`")]
    MoveDisk {
        /// VM that has the disks
        from: String,
        /// VM that gets the disks
        to: String,
        #[command(flatten)]
        lab: LabArgs,
    },
    /// Remove a VM that is off and has no data disk
    #[command(after_help = "Example: `kaas-dev lab destroy cp1 --name lab`")]
    Destroy(OneVm),
    /// Run tenant clusters on the network of a lab's control cluster
    #[command(subcommand)]
    Tenant(tenant::Tenant),
    /// Run a vCenter for tests, whose machines are system containers
    #[command(subcommand, name = "vcenter")]
    VCenter(vcenter::VCenter),
    /// Forward connections from loopback to a lab's API. `up` starts it
    #[command(hide = true)]
    Door {
        #[command(flatten)]
        lab: LabArgs,
        /// Mark by which the process is found
        mark: PathBuf,
    },
}

/// The control-plane nodes of an example.
#[derive(Clone, Copy, ValueEnum)]
pub enum ExampleNodes {
    /// One, for tests
    #[value(alias = "1")]
    One,
    /// Three, for high availability
    #[value(alias = "3")]
    Three,
}

impl ExampleNodes {
    fn file(self) -> &'static str {
        match self {
            Self::One => include_str!("lab/examples/one.toml"),
            Self::Three => include_str!("lab/examples/three.toml"),
        }
    }
}

#[derive(Args)]
pub struct LabArgs {
    /// Name of the lab
    #[arg(long, default_value = "lab")]
    name: String,
}

#[derive(Args)]
pub struct OneVm {
    /// Name of the VM
    vm: String,
    #[command(flatten)]
    lab: LabArgs,
}

/// A VM to create in a lab.
#[derive(Args)]
pub struct ImportArguments {
    /// Name of the new VM, at most 24 characters
    vm: String,
    /// OVA, or a directory with one
    #[arg(long, value_name = "FILE")]
    ova: PathBuf,
    /// Control-plane node whose properties the VM gets. Without it, the properties have the defaults of the OVA
    #[arg(long, value_name = "NODE")]
    like: Option<String>,
    #[command(flatten)]
    lab: LabArgs,
}

/// A command line for a lab.
#[derive(Args)]
pub struct Inside {
    #[command(flatten)]
    lab: LabArgs,
    /// Arguments of the program, after `--`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The options of `lab up`.
#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    over: TakeOverArgs,
    /// OVA, or a directory with one
    #[arg(long, value_name = "FILE", required_unless_present = "root_tree")]
    ova: Option<PathBuf>,
    /// Root tree to run in containers, in place of an OVA's: for work on the agent
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "ova")]
    root_tree: Option<PathBuf>,
    /// Tools tree to use in place of the image builder's one
    #[arg(long, value_name = "DIRECTORY")]
    tools: Option<PathBuf>,
    /// Give virtual machines vSphere's devices: pvscsi disks and a vmxnet3 network interface
    #[arg(long)]
    vsphere_hardware: bool,
    /// Number of control-plane nodes: 1 or 3
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Engine that runs the VMs
    #[arg(long, value_enum, default_value = "container")]
    engine: Engine,
    /// Property of all nodes. Give the option several times for several properties
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    properties: Vec<(String, String)>,
    /// File with properties of all nodes, in the format of import tools
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// Memory of each VM in MiB
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// Size of each data disk in MiB
    #[arg(long, default_value_t = 8192)]
    data_disk: u64,
    /// How long to wait for the nodes
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
    timeout: Duration,
    /// Only create and power on the VMs
    #[arg(long)]
    no_wait: bool,
}

pub fn run(command: Lab) -> anyhow::Result<ExitCode> {
    let state = state_directory()?;
    let open = |lab: &LabArgs| OpenLab::open(&state, &lab.name);
    let done: anyhow::Result<()> = match command {
        Lab::Up(arguments) => up(&state, arguments),
        Lab::Status(lab) => status(&open(&lab)?),
        Lab::Down { confirm, lab } => down(open(&lab)?, confirm.as_deref()),
        Lab::Kubectl(inside) => become_program(open(&inside.lab)?.kubectl_command()?.args(&inside.arguments)),
        Lab::Exec { vm, inside } => {
            let arguments: Vec<&str> = inside.arguments.iter().map(String::as_str).collect();
            // Output, errors and exit status are those of the program.
            become_program(open(&inside.lab)?.command_inside(&vm, &arguments)?.stdin(Stdio::null()))
        }
        Lab::Example { nodes } => output::result(nodes.file()),
        Lab::On(one) => open(&one.lab)?.power_on(&one.vm),
        Lab::Off(one) => open(&one.lab)?.shut_down(&one.vm, SHUTTING_DOWN),
        Lab::Cut(one) => open(&one.lab)?.cut_power(&one.vm),
        Lab::Import(arguments) => import(&open(&arguments.lab)?, &arguments),
        Lab::MoveDisk { from, to, lab } => move_disks(&open(&lab)?, &from, &to),
        Lab::Destroy(one) => open(&one.lab)?.destroy(&one.vm),
        Lab::Door { lab, .. } => open(&lab)?.serve_port_forward(),
        // Only these commands may end with work left to do.
        Lab::Tenant(command) => return tenant::run(&state, command),
        Lab::VCenter(command) => vcenter::run(&state, command),
        Lab::Console(one) => {
            let path = open(&one.lab)?.console(&one.vm);
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            output::raw(&String::from_utf8_lossy(&text))
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn up(state: &Path, arguments: UpArguments) -> anyhow::Result<()> {
    let mut properties = arguments.options.as_deref().map(read_options).transpose()?.unwrap_or_default();
    properties.extend(arguments.properties);
    let started = Instant::now();
    let tools = tools(arguments.tools.as_deref())?;
    let source = match (&arguments.ova, &arguments.root_tree) {
        (_, Some(tree)) => Source::Tree { tree: tree.canonicalize().context("looking for the root tree")? },
        (Some(ova), None) => {
            let ova = fleet::find_ova(ova)?;
            let say = |what: &str| say!("{what}");
            Source::Ova { unpacked: UnpackedOva::ensure(&ova, &cache_directory()?, &Tools::at(&tools), &say)? }
        }
        (None, None) => bail!("give an OVA with --ova"),
    };
    let hardware = if arguments.vsphere_hardware { Hardware::Vsphere } else { Hardware::Quick };
    let engine = arguments.engine.record(&Tools::at(&tools), hardware, &|what| say!("{what}"))?;
    let size = NodeSize { memory: arguments.memory, processors: 2, data_disk: arguments.data_disk << 20 };
    let asking = LeaseRequest { what: "lab up", over: arguments.over.take(), say: &|what: &str| say!("{what}") };
    let up = Up {
        spec: LabSpec {
            name: arguments.lab.name,
            nodes: arguments.nodes,
            properties,
            timeout_factor: engine.timeout_factor(),
            ..LabSpec::default()
        },
        engine,
        replacements: engine,
        workers: engine,
        source,
        tools,
        size,
        beside: None,
    };
    // A run that was killed is continued.
    let begun = OpenLab::open_incomplete(state, &up.spec.name)?.map(|lab| lab.resume(&up, &asking)).transpose();
    let lab = match begun.map_err(advised)?.flatten() {
        Some(lab) => lab,
        None => OpenLab::import_cluster(state, up, &asking).map_err(advised)?,
    };
    for vm in lab.vms()? {
        lab.power_on(&vm)?;
        say!("{vm} is on; its console log is {}", lab.console(&vm).display());
    }
    if arguments.no_wait {
        return Ok(());
    }
    if let Err(error) = lab.wait_until_ready(arguments.timeout) {
        let kept: Vec<String> = lab.keep_evidence().iter().map(|path| path.display().to_string()).collect();
        return Err(error.context(format!("the lab keeps running; see {}", kept.join(", "))));
    }
    say!("{} Ready after {} s", lab.ready_nodes()?.join(", "), started.elapsed().as_secs());
    say!("kubeconfig: {}", open_port_forward(&lab)?.display());
    say!("without a kubectl of your own: `kaas-dev lab kubectl --name {} -- get nodes`", lab.name());
    Ok(())
}

fn down(lab: OpenLab, confirm: Option<&str>) -> anyhow::Result<()> {
    let name = lab.name();
    let question = format!(
        "The lab {name} is removed with its VMs, all their disks and its tenants. This cannot be undone.\n\
         Type its name to confirm"
    );
    by_name("lab", name, confirm, || ask_terminal(&question, "give the lab's name with --confirm"))?;
    lab.remove()
}

fn import(lab: &OpenLab, arguments: &ImportArguments) -> anyhow::Result<()> {
    let properties = arguments.like.as_deref().map(|like| properties_of(lab, like)).transpose()?;
    let ova = lab.find_ova(&arguments.ova)?;
    let unpacked = UnpackedOva::ensure(&ova, &cache_directory()?, &lab.tools(), &|what| say!("{what}"))?;
    lab.import(&NewVm {
        name: arguments.vm.clone(),
        memory: 2048,
        processors: 2,
        data_disk: None,
        network_interface: true,
        properties: properties.unwrap_or_default(),
        stamp: None,
        source: Some(Source::Ova { unpacked }),
        engine: lab.replacements(),
        in_order_uuid: false,
    })
}

/// The properties that the lab sets for a control-plane node.
fn properties_of(lab: &OpenLab, node: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let nodes = &lab.plan().nodes;
    if let Some(planned) = nodes.iter().find(|planned| planned.name == node) {
        return Ok(planned.properties.clone());
    }
    let nodes: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    bail!("the lab {} has no node {node}; it has {}", lab.name(), nodes.join(", "))
}

fn move_disks(lab: &OpenLab, from: &str, to: &str) -> anyhow::Result<()> {
    for vm in [from, to] {
        if lab.power_state(vm)? == PowerState::On {
            bail!("{vm} is on; shut it down first: `kaas-dev lab off {vm} --name {}`", lab.name());
        }
    }
    for disk in lab.disks(from)? {
        lab.detach_disk(from, disk)?;
        lab.attach_disk(to, disk)?;
        say!("{to} has the disk {disk}");
    }
    Ok(())
}

fn status(lab: &OpenLab) -> anyhow::Result<()> {
    for vm in lab.vms()? {
        let state = lab.power_state(&vm)?;
        say!("{vm}\t{state}\t{}", lab.console(&vm).display());
    }
    match lab.ready_nodes() {
        Ok(ready) => say!("Ready: {}", ready.join(", ")),
        Err(error) => say!("The Kubernetes API does not answer: {error:#}"),
    }
    Ok(())
}

/// Replaces this process by a program.
fn become_program(command: &mut std::process::Command) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec()).with_context(|| format!("running {}", command.get_program().to_string_lossy()))
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("use KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads the `PropertyMapping` of an options file, as `govc import.spec` writes it.
fn read_options(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let options: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))?;
    let Some(mapping) = options["PropertyMapping"].as_array() else {
        bail!("{} has no list PropertyMapping; `govc import.spec` writes one", path.display());
    };
    let mut properties = BTreeMap::new();
    for entry in mapping {
        let (Some(key), Some(value)) = (entry["Key"].as_str(), entry["Value"].as_str()) else {
            bail!("{}: each entry of PropertyMapping needs the texts Key and Value, not {entry}", path.display());
        };
        // An empty field of the form means "not set", as in vCenter.
        if !value.is_empty() {
            properties.insert(key.to_owned(), value.to_owned());
        }
    }
    Ok(properties)
}
