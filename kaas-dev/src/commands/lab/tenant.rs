//! `kaas-dev lab tenant …`: tenant clusters in labs, and their workers.

mod arguments;
mod words;
mod worker_arguments;
mod worker_pool;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use fleet::upgrade::Target;
use fleet::workers::Goal;
use kaas::work::advised;
use lab::{
    BlankVm, EngineRecord, Lab as OpenLab, LabSpec, LeaseRequest, NodeSize, Source, Tools, UnpackedOva, Up,
    cache_directory,
};

pub use self::arguments::Tenant;
use self::arguments::{TENANT_OVA, TenantArgs, UpArguments, WorkerAddresses};
use self::worker_pool::{WorkerPool, ova_image};
use crate::labs::{Engine, open_port_forward, tools};

/// Runs one of the commands. Exit statuses: 0 if it is done, 3 if it waits for something or for the operator, 4 if workers did
/// not join.
pub fn run(state: &Path, command: Tenant) -> anyhow::Result<ExitCode> {
    let what = command.what();
    let open = |at: &TenantArgs| OpenLab::open_tenant(state, &at.name);
    match command {
        Tenant::Up(arguments) => up(state, &arguments),
        Tenant::AddWorker { count, worker_engine, at } => {
            let mut lab = open(&at)?;
            let Some(engine) = worker_engine else { return WorkerPool::of(lab, &at).go(what, &Goal::Add(count)) };
            lab.choose_worker_engine(
                engine.record(&lab.tools(), lab::Hardware::Quick, &|what| at.work.output.tell(what))?,
            );
            WorkerPool::of(lab, &at).go_with(what, &Goal::Add(count), &OpenLab::keep_worker_engine)
        }
        Tenant::RemoveWorker { worker, lost, at } => {
            WorkerPool::of(open(&at)?, &at).go(what, &Goal::Remove { worker, discards: lost.discards() })
        }
        Tenant::ScaleWorkers { count, at } => WorkerPool::of(open(&at)?, &at).go(what, &Goal::Scale(count)),
        Tenant::RejoinWorker { worker, at } => WorkerPool::of(open(&at)?, &at).go(what, &Goal::Rejoin { worker }),
        Tenant::ReplaceWorkers { ova, kubernetes, changed, lost, at } => {
            let lab = open(&at)?;
            let image = ova.map(|ova| anyhow::Ok(ova_image(Target::read(&lab.find_ova(&ova)?)?))).transpose()?;
            let crew = WorkerPool::of(lab, &at);
            let (cluster, changes, discards) = (crew.minor()?, Box::new(changed.changes()), lost.discards());
            crew.go(what, &Goal::Replace { image, cluster, kubernetes, changes, discards })
        }
        Tenant::Pause(at) => WorkerPool::of(open(&at)?, &at).go(what, &Goal::Pause),
        Tenant::Resume(at) => WorkerPool::of(open(&at)?, &at).go(what, &Goal::GoOn),
        Tenant::Status(at) => {
            let at = TenantArgs::from(at);
            WorkerPool::of(open(&at)?, &at).status()
        }
        Tenant::ReplaceControlPlane { node, ova, properties, data_disk, ready_timeout, at } => {
            let lab = open(&at)?;
            let say = |what: &str| at.work.output.tell(what);
            let source = ova.map(|ova| unpacked(&lab.find_ova(&ova)?, &lab.tools(), &say)).transpose()?;
            let by = BlankVm {
                source,
                properties: properties.into_iter().collect(),
                data_disk: data_disk.map(|size| size << 20),
            };
            let asking = LeaseRequest { what, over: at.work.over.take(), say: &say };
            let replaced = lab.replace_node(&node, &by, &asking).map_err(advised)?;
            for disk in &replaced.disks {
                at.work.output.tell(&format!("the disk {disk} of the lost node is kept; no VM holds it"));
            }
            at.work.output.tell(&format!("{node} is on; its console log is {}", lab.console(&node).display()));
            // The Kubernetes node of this name may still have the state of the lost one.
            let (limit, good) = (ready_timeout, ["test", "-e", "/run/kaas/good.json"]);
            lab::until(&format!("{node} to be healthy"), limit, || {
                lab.run_inside(&replaced.vm, &good, limit).map(|_| true)
            })?;
            lab.wait_until_ready(limit)?;
            let replacement = serde_json::json!({"node": node, "vm": replaced.vm, "disks": replaced.disks});
            at.work.output.result(&replacement, || format!("{node} is a control-plane node again"))
        }
    }
}

fn unpacked(ova: &Path, tools: &Tools, say: &dyn Fn(&str)) -> anyhow::Result<Source> {
    Ok(Source::Ova { unpacked: UnpackedOva::ensure(ova, &cache_directory()?, tools, say)? })
}

/// Creates the missing parts: a run that was killed is continued.
fn up(state: &Path, arguments: &UpArguments) -> anyhow::Result<ExitCode> {
    let (at, say) = (&arguments.at, |what: &str| arguments.at.work.output.tell(what));
    let ova = fleet::find_ova_of(&arguments.ova, TENANT_OVA)?;
    let target = Target::read(&ova)?;
    let size = NodeSize { memory: arguments.memory, processors: 2, data_disk: arguments.data_disk << 20 };
    let asking = LeaseRequest { what: "lab tenant up", over: at.work.over.take(), say: &say };
    let there = || -> anyhow::Result<Option<OpenLab>> {
        let there = OpenLab::exists(state, &at.name)?.then(|| OpenLab::open_tenant(state, &at.name)).transpose()?;
        Ok(there.map(|lab| lab.complete(size, &asking).map_err(advised)).transpose()?.flatten())
    };
    let lab = if let Some(lab) = there()? {
        lab
    } else {
        let tools = tools(arguments.tools.as_deref())?;
        let runs = |engine: Engine| engine.record(&Tools::at(&tools), lab::Hardware::Quick, &say);
        let engine = runs(arguments.engine)?;
        let workers = match arguments.worker_engine {
            None => engine,
            Some(workers) => runs(workers)?,
        };
        let source = unpacked(&ova, &Tools::at(&tools), &say)?;
        // The unpacking takes minutes. Another command may have created the lab meanwhile.
        match there()? {
            Some(lab) => lab,
            None => import(state, arguments, size, source, (engine, workers), tools, &asking)?,
        }
    };
    lab.power_on_nodes(&asking).map_err(advised)?;
    if let Some(lost) = lab.lost_node()? {
        let name = &at.name;
        bail!(
            "{lost}, once the other control-plane nodes, which are on, are Ready: `kaas-dev lab status --name {name}` shows when"
        );
    }
    if let Err(error) = lab.wait_until_ready(arguments.ready_timeout) {
        let kept: Vec<String> = lab.keep_evidence().iter().map(|path| path.display().to_string()).collect();
        return Err(error.context(format!("the tenant keeps running; see {}", kept.join(", "))));
    }
    say(&format!("kubeconfig: {}", open_port_forward(&lab)?.display()));
    let crew = WorkerPool::of(lab, at);
    let wish = match crew.looked()? {
        // A pause by another operator is kept.
        Some(status) => {
            if let Some(words) = arguments.workers.and_then(|said| words::other_number(&status, said, &at.name)) {
                say(&words);
            }
            Goal::Continue
        }
        None => Goal::Create(Box::new(crew.first(target, arguments)?)),
    };
    crew.go("lab tenant up", &wish)
}

fn import(
    state: &Path,
    arguments: &UpArguments,
    size: NodeSize,
    source: Source,
    (engine, workers): (EngineRecord, EngineRecord),
    tools: std::path::PathBuf,
    asking: &LeaseRequest<'_>,
) -> anyhow::Result<OpenLab> {
    if arguments.worker_addresses == WorkerAddresses::Dhcp {
        lab::check_dhcp()?;
    }
    OpenLab::import_cluster(
        state,
        Up {
            spec: LabSpec {
                name: arguments.at.name.clone(),
                nodes: arguments.control_planes,
                properties: arguments.properties.iter().cloned().collect(),
                timeout_factor: engine.timeout_factor(),
                workers_by_dhcp: arguments.worker_addresses == WorkerAddresses::Dhcp,
                ..LabSpec::default()
            },
            engine,
            replacements: engine,
            workers,
            source,
            tools,
            size,
            beside: Some(arguments.beside.clone()),
        },
        asking,
    )
    .map_err(advised)
}
