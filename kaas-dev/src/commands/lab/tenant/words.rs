//! The messages about a tenant's workers.

use std::path::PathBuf;

use fleet::workers::{Action, Discards, Notice, RunOutcome, State, Wait, WorkerStatus, WorkersStatus};
use kaas::work::told;
use serde::Serialize;
use uuid::Uuid;

/// The result of a run, as JSON.
#[derive(Serialize)]
pub struct Outcome<'a> {
    pub arrived: &'static str,
    /// Why the run has not finished.
    pub reasons: &'a [Wait],
    #[serde(flatten)]
    pub status: &'a WorkersStatus,
}

impl<'a> Outcome<'a> {
    pub fn of(arrived: &'a RunOutcome, status: &'a WorkersStatus) -> Self {
        let reasons = match arrived {
            RunOutcome::Paused(why) | RunOutcome::Stopped(why) => why.as_slice(),
            RunOutcome::Done | RunOutcome::Cancelled => &[],
        };
        Self { arrived: name(arrived), reasons, status }
    }
}

/// The state of the workers, as JSON.
#[derive(Serialize)]
pub struct StatusReport<'a> {
    #[serde(flatten)]
    pub status: &'a WorkersStatus,
    /// Data disks of removed VMs.
    pub kept_disks: &'a [KeptDisk],
}

/// A data disk that no VM holds.
#[derive(Serialize)]
pub struct KeptDisk {
    pub disk: Uuid,
    /// The path of its file.
    pub path: PathBuf,
}

/// The result of a run, in one word.
fn name(arrived: &RunOutcome) -> &'static str {
    match arrived {
        RunOutcome::Done => "done",
        RunOutcome::Paused(_) => "paused",
        RunOutcome::Stopped(_) => "stopped",
        RunOutcome::Cancelled => "cancelled",
    }
}

/// The waits, and the reasons of a stop, one a line.
pub fn reasons(waits: &[Wait], stopped: &[Wait], tenant: &str) -> String {
    let line = |what: &'static str| move |wait: &Wait| format!("\n  {what}: {}", waiting(wait, tenant));
    waits.iter().map(line("waiting")).chain(stopped.iter().map(line("stopped"))).collect()
}

/// A command of a tenant, ready to copy: without the name it would change another tenant's workers.
fn command(words: &str, tenant: &str) -> String {
    format!("`kaas-dev lab tenant {words} --name {tenant}`")
}

fn goes_on(tenant: &str) -> String {
    format!("{} continues", command("resume", tenant))
}

/// A wait, with the command that resolves it if there is one.
fn waiting(wait: &Wait, tenant: &str) -> String {
    match &wait.worker {
        Some(worker) if wait.token => {
            format!("{wait}; {} issues one", command(&format!("rejoin-worker {worker}"), tenant))
        }
        _ => wait.to_string(),
    }
}

/// The message if there are no workers yet.
pub fn none_yet(tenant: &str) -> String {
    format!("there are no workers yet; {} makes them", command("up", tenant))
}

/// The message if the given number of workers differs from the stored one. `None` if both are the same.
pub fn other_number(status: &WorkersStatus, said: usize, tenant: &str) -> Option<String> {
    let changes = command(&format!("scale-workers {said}"), tenant);
    (status.wanted != said).then(|| format!("{} workers are wanted, as before; {changes} changes that", status.wanted))
}

/// The data disks that no VM holds, one a line.
pub fn kept(disks: &[KeptDisk]) -> String {
    let line = |kept: &KeptDisk| format!("\n  kept: the data disk {}, at {}", kept.disk, kept.path.display());
    disks.iter().map(line).collect()
}

/// The result of a run.
pub fn arrived(arrived: &RunOutcome, status: &WorkersStatus, tenant: &str) -> String {
    let waits = |waits: &[Wait]| waits.iter().map(|wait| format!("\n  {}", waiting(wait, tenant))).collect::<String>();
    let goes_on = goes_on(tenant);
    let head = match arrived {
        RunOutcome::Done => return self::status(status),
        RunOutcome::Paused(why) => format!("paused: {goes_on}{}", waits(why)),
        RunOutcome::Stopped(why) => format!("stopped: no further worker is made or replaced; {goes_on}{}", waits(why)),
        RunOutcome::Cancelled => format!("ended where it can be continued: {goes_on}"),
    };
    format!("{}\n{head}", self::status(status))
}

/// The state of the workers, one a line.
pub fn status(status: &WorkersStatus) -> String {
    let made = format!("image {}, Kubernetes {}", status.image, status.kubernetes);
    let mut text = match status.looked {
        true => format!("{} of {} workers are Ready; {made}", status.available, status.wanted),
        false => format!(
            "{} workers are wanted; {made}; the present state cannot be read, so this is the last record",
            status.wanted
        ),
    };
    if status.paused {
        text += "; replacement is paused";
    }
    if let Some(holder) = &status.held_by {
        text += &format!("\n{holder} works on them");
    }
    for worker in &status.workers {
        let address = worker.address.map_or_else(|| "by DHCP".to_owned(), |address| address.to_string());
        let state = match worker.state {
            State::Provisioning => "new",
            State::Joining => "joining",
            State::Running if !status.looked => "has joined",
            State::Running if worker.available => "Ready",
            State::Running => "not Ready",
            State::Rejoining => "gets a new token",
            State::Failed => "failed",
            State::Deleting => "leaving",
        };
        let kubelet = worker.kubelet.as_ref().map_or_else(String::new, |version| format!(", Kubernetes {version}"));
        let old = if worker.up_to_date { String::new() } else { format!("  outdated: {}{kubelet}", worker.image) };
        let why = worker.reason.as_ref().map_or_else(String::new, |why| format!("  {why}"));
        text +=
            &format!("\n  {}\t{address}\t{state}{old}{why}{}{}", worker.name, lost(worker.drain), says(worker, status));
    }
    text
}

/// The message if an action was started and no command continues it: the command was ended or killed.
pub fn unattended(status: &WorkersStatus, tenant: &str) -> String {
    let moves = status.workers.iter().any(|worker| worker.state.moves());
    let is_left = moves && status.held_by.is_none();
    if is_left { format!("\nno command works on them: {}", goes_on(tenant)) } else { String::new() }
}

/// The finding that a worker reports, unless another message has it.
fn says(worker: &WorkerStatus, status: &WorkersStatus) -> String {
    let is_told = worker.reason.is_some() || status.waits.iter().any(|wait| wait.worker.as_ref() == Some(&worker.name));
    let code = worker.says.as_ref().filter(|_| !is_told).and_then(|says| Some((says, says.code.as_ref()?)));
    code.map_or_else(String::new, |(says, code)| format!("  it reports: {} [{code}]", says.words))
}

fn lost(discards: Discards) -> &'static str {
    match discards {
        Discards { delete_local_volumes: true, delete_unmanaged_pods: true } => {
            "  its local volumes and bare pods are lost with it"
        }
        Discards { delete_local_volumes: true, delete_unmanaged_pods: false } => "  its local volumes are lost with it",
        Discards { delete_local_volumes: false, delete_unmanaged_pods: true } => "  its bare pods are lost with it",
        Discards { delete_local_volumes: false, delete_unmanaged_pods: false } => "",
    }
}

pub fn notice(notice: &Notice<'_>, tenant: &str) -> String {
    match notice {
        Notice::Waits(wait) => format!("waiting: {}", waiting(wait, tenant)),
        other => told(other, begun),
    }
}

fn begun(action: &Action) -> String {
    match action {
        Action::Add { address } => {
            format!("a further worker{}", address.map_or_else(String::new, |address| format!(" at {address}")))
        }
        Action::CloneVm(name) => format!("{name}: its token and its VM are made"),
        Action::Invite(name) => format!("{name}: it gets a new token to join again with"),
        Action::PowerOn(name) => format!("{name}: its VM is powered on"),
        Action::Hear(name, _) => format!("{name}: asks to join"),
        Action::Suspect(name, _) => format!("{name}: another machine has joined in its place"),
        Action::Joined(name) => format!("{name} has joined"),
        Action::Fail(name, why) => format!("{name} has failed: {why}"),
        Action::Leave(name, why) => format!("{name} leaves: {why}"),
        Action::RemoveToken(name) => format!("{name}: its token is removed"),
        Action::Cordon(name) => format!("{name}: takes no new pods"),
        Action::HandOver(name) => format!("{name}: other nodes answer for addresses of services in its place"),
        Action::Drain(name) => format!("{name}: its pods move away"),
        Action::PowerOff(name) => format!("{name}: its VM is shut down"),
        Action::DeleteNode(name) => format!("{name}: its node is removed"),
        Action::Detach(name, disk) => format!("{name}: its data disk {} is kept, at {}", disk.uuid, disk.path),
        Action::Destroy(name) => format!("{name}: its VM is removed"),
        Action::Disconnect(name, adapter) => format!("{name}: its network adapter {adapter} is disconnected"),
        Action::Release(name, as_what) => format!("{name}: its VM is kept as {as_what}"),
        Action::Forget(name, left) if left.is_empty() => format!("{name} is gone"),
        Action::Forget(name, left) => {
            format!(
                "{name} is gone; what has the BIOS UUID of its VM elsewhere, and is off, stays: {}",
                left.join(", ")
            )
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeSet;

    use contract::statement::Phase;
    use fleet::upgrade::Reason;
    use fleet::workers::Says;
    use serde_json::{Value, json};

    use super::*;

    /// A worker in a state.
    pub fn worker(name: &str, state: State) -> WorkerStatus {
        WorkerStatus {
            name: name.to_owned(),
            address: None,
            state,
            image: "kaas-tenant 0.1.0".to_owned(),
            kubelet: None,
            up_to_date: true,
            available: false,
            ready: false,
            unhealthy: false,
            vm: None,
            power: None,
            joined_seconds: None,
            reason: None,
            says: None,
            drain: Discards::default(),
            kept: None,
            left: Vec::new(),
        }
    }

    /// The status of these workers, after a look.
    pub fn status(workers: &[WorkerStatus]) -> WorkersStatus {
        WorkersStatus {
            pool: "workers".to_owned(),
            wanted: 1,
            looked: true,
            available: 0,
            image: "kaas-tenant 0.1.0".to_owned(),
            kubernetes: "1.36".to_owned(),
            paused: false,
            workers: workers.to_vec(),
            waits: Vec::new(),
            stopped: Vec::new(),
            done: false,
            held_by: None,
            newer: Vec::new(),
        }
    }

    #[test]
    fn remaining_replicas_are_listed_with_the_removed_worker() {
        let gone =
            |left: &[&str]| begun(&Action::Forget("t-w1".to_owned(), left.iter().map(|&vm| vm.to_owned()).collect()));
        assert_eq!(gone(&[]), "t-w1 is gone");
        assert!(gone(&["a", "b"]).ends_with("and is off, stays: a, b"), "{}", gone(&["a", "b"]));
    }

    #[test]
    fn unreadable_status_shows_the_stored_state() {
        let reason = Reason::new("workers.api-silent", "it does not answer");
        let waits = vec![Wait { worker: None, reason, lasting: false, token: false }];
        let worker =
            WorkerStatus { reason: Some(Reason::new("workers.asked", "it goes")), ..worker("t-w1", State::Deleting) };
        let status = WorkersStatus { looked: false, paused: true, waits, ..status(&[worker]) };
        let told = super::status(&status) + &reasons(&status.waits, &status.stopped, "t");
        for part in ["cannot be read", "is paused", "t-w1\tby DHCP\tleaving  it goes", "waiting: it does not answer"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn status_names_the_lease_holder_and_worker_findings() {
        let why = Reason::new("join.certificate-expired", "a new token fixes it");
        let waits = vec![Wait { worker: Some("t-w1".to_owned()), reason: why, lasting: true, token: true }];
        let holder = Some("lab tenant add-worker (process 7)".to_owned());
        let status = WorkersStatus { held_by: holder, waits, ..status(&[worker("t-w1", State::Running)]) };
        let told = super::status(&status) + &reasons(&status.waits, &status.stopped, "t");
        assert!(told.contains("\nlab tenant add-worker (process 7) works on them\n"), "{told}");
        assert!(
            told.ends_with(
                "waiting: t-w1: a new token fixes it [join.certificate-expired]; `kaas-dev lab tenant rejoin-worker t-w1 --name t` \
                 issues one"
            ),
            "{told}"
        );
        let says = Says {
            phase: Phase::Refused,
            code: Some("join.wrong-ca".to_owned()),
            words: "it is another one".to_owned(),
            at: 7,
        };
        let joining = WorkerStatus { says: Some(says), ..worker("t-w2", State::Joining) };
        let left = super::tests::status(&[joining]);
        let told = super::status(&left);
        assert!(told.ends_with("joining  it reports: it is another one [join.wrong-ca]"), "{told}");
        assert!(unattended(&left, "t").contains("no command works on them") && unattended(&status, "t").is_empty());
        let json = serde_json::to_value(Outcome::of(&RunOutcome::Paused(status.waits.clone()), &status)).unwrap();
        assert_eq!(json["reasons"][0]["code"], "join.certificate-expired");
    }

    #[test]
    fn each_shown_command_has_the_tenants_name() {
        let why = Reason::new("join.certificate-expired", "a new token fixes it");
        let wait = Wait { worker: Some("blue-w1".to_owned()), reason: why, lasting: true, token: true };
        let status = status(&[worker("blue-w1", State::Deleting)]);
        let waits = || vec![wait.clone()];
        let told = [
            arrived(&RunOutcome::Paused(waits()), &status, "blue"),
            arrived(&RunOutcome::Stopped(waits()), &status, "blue"),
            arrived(&RunOutcome::Cancelled, &status, "blue"),
            unattended(&status, "blue"),
            reasons(&waits(), &[], "blue"),
            notice(&Notice::Waits(&wait), "blue"),
            none_yet("blue"),
            other_number(&status, 5, "blue").unwrap(),
        ];
        for told in &told {
            let commands: Vec<&str> = told.split('`').filter(|part| part.starts_with("kaas-dev ")).collect();
            assert!(!commands.is_empty() && commands.iter().all(|one| one.ends_with(" --name blue")), "{told}");
        }
    }

    #[test]
    fn kept_disks_are_listed_without_an_unchanged_number() {
        let status = status(&[]);
        assert_eq!(other_number(&status, 1, "blue"), None);
        let kept = [KeptDisk { disk: Uuid::from_u128(7), path: "/labs/blue/disks/7.raw".into() }];
        assert_eq!(super::kept(&kept), format!("\n  kept: the data disk {}, at /labs/blue/disks/7.raw", kept[0].disk));
        let told = serde_json::to_value(StatusReport { status: &status, kept_disks: &kept }).unwrap();
        assert_eq!((&told["wanted"], &told["kept_disks"][0]["path"]), (&json!(1), &json!("/labs/blue/disks/7.raw")));
    }

    #[test]
    fn outdated_worker_shows_its_image_and_kubelet() {
        let kubelet = Some("v1.35.4".to_owned());
        let old = WorkerStatus { up_to_date: false, kubelet, ..worker("t-w1", State::Running) };
        let told = super::status(&status(&[old]));
        assert!(told.ends_with("t-w1\tby DHCP\tnot Ready  outdated: kaas-tenant 0.1.0, Kubernetes v1.35.4"), "{told}");
    }

    #[test]
    fn each_run_outcome_has_a_distinct_word() {
        let all =
            [RunOutcome::Done, RunOutcome::Paused(Vec::new()), RunOutcome::Stopped(Vec::new()), RunOutcome::Cancelled];
        assert_eq!(all.iter().map(name).collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn json_has_the_outcome_and_the_workers() {
        let status = status(&[]);
        assert_eq!(super::status(&status), "0 of 1 workers are Ready; image kaas-tenant 0.1.0, Kubernetes 1.36");
        let told = serde_json::to_value(Outcome::of(&RunOutcome::Done, &status)).unwrap();
        let part = |key: &str| told[key].clone();
        assert_eq!(
            (part("arrived"), part("wanted"), part("workers")),
            (json!("done"), json!(1), Value::Array(Vec::new()))
        );
    }
}
