//! A plan as text: each step with its preconditions, its risks, the state after a failure, and its rollback.

use std::fmt::Write;

use fleet::upgrade::{Action, Mode, OnFailure, Plan, PlannedNode, Step};

/// The facts about a step that an operator needs before it runs.
struct Words {
    /// The action, as a sentence without a subject.
    title: String,
    /// The conditions of the step, and how they are checked.
    rests_on: String,
    at_risk: String,
    failure: String,
    way_back: String,
}

/// The action of a step, as one line.
pub fn title(plan: &Plan, step: Step) -> String {
    words(plan, step).title
}

pub fn text(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{line}");
    };
    let mut from: Vec<String> = plan.nodes.iter().map(|node| node.from.to_string()).collect();
    from.sort();
    from.dedup();
    line(format_args!("Upgrade of the cluster {} to {} {}", plan.cluster, plan.target.name, plan.target.image));
    line(format_args!(
        "from {}, {}",
        from.join(" and "),
        match plan.options.mode {
            Mode::Rolling => "one node after the other",
            Mode::AllAtOnce => "all nodes at once: the Kubernetes API is away meanwhile",
        }
    ));
    line(format_args!("\nIt rests on"));
    for ground in &plan.grounds {
        line(format_args!("  {}: {}", ground.subject, ground.evidence));
    }
    line(format_args!("\nThe nodes, in this order"));
    for node in &plan.nodes {
        line(format_args!(
            "  {}: {} ({}) gives the disk {} to {}{}",
            node.name,
            node.old_name,
            node.old,
            node.disk.uuid,
            node.new_name,
            role(node)
        ));
    }
    if !plan.options.placement.is_default() {
        line(format_args!("\nNew VMs are put {}.", plan.options.placement));
    }
    if plan.options.copy_disks {
        line(format_args!(
            "\nEach data disk is copied before a new VM gets it, with its node off. Until the commit, which removes them, the\n\
             copies are for you: no rollback uses them, and a node in a cluster with others refuses an old one."
        ));
    }
    line(format_args!("\nThe steps"));
    for (number, step) in plan.steps.iter().enumerate() {
        let words = words(plan, *step);
        line(format_args!("{:>3}. {}", number + 1, words.title));
        line(format_args!("     rests on: {}", words.rests_on));
        line(format_args!("     at risk:  {}", words.at_risk));
        line(format_args!("     failure:  {}", words.failure));
        line(format_args!("     rollback: {}", words.way_back));
    }
    let back = match plan.options.on_failure {
        OnFailure::Node => "is rolled back alone, and the upgrade waits for the operator",
        OnFailure::All => "causes a rollback of all nodes",
    };
    line(format_args!(
        "\nA node that is not healthy on the new image {back}. A step that\n\
         cannot be done now is tried again. A command that is killed is continued by `kaas control upgrade resume` or rolled\n\
         back by `kaas control upgrade rollback`. Until `kaas control upgrade commit`, which is not part of this plan, the old VMs stay,\n\
         off, and each can have its node's disk back."
    ));
    text
}

fn role(node: &PlannedNode) -> &'static str {
    match (node.leads, node.holds_address) {
        (true, true) => "; last, for it leads etcd and holds the virtual IP",
        (true, false) => "; it leads etcd",
        (false, true) => "; it holds the virtual IP",
        (false, false) => "",
    }
}

fn words(plan: &Plan, step: Step) -> Words {
    let node = step.node.and_then(|index| plan.nodes.get(index));
    let name = node.map_or("", |node| &*node.name);
    let old = node.map_or("", |node| &*node.old_name);
    let new = node.map_or("", |node| &*node.new_name);
    let disk = node.map(|node| node.disk.uuid).unwrap_or_default();
    let (image, gate) = (&plan.target.image, plan.options.gate_seconds);
    let one = plan.nodes.len() == 1;
    let service = match (plan.options.mode, one) {
        (Mode::AllAtOnce, _) | (Mode::Rolling, true) => "the Kubernetes API is away; pods on other nodes keep running",
        (Mode::Rolling, false) => "one member of etcd is away: the loss of another node would stop the cluster",
    };
    let back = format!("{old} gets the disk back as it is now, and is powered on");
    let words = |title: String, rests_on: &str, at_risk: &str, failure: &str, way_back: &str| Words {
        title,
        rests_on: rests_on.to_owned(),
        at_risk: at_risk.to_owned(),
        failure: failure.to_owned(),
        way_back: way_back.to_owned(),
    };
    match step.action {
        Action::Verify => words(
            format!("verify the OVA of {image} again, all of it, and import it to the hypervisor"),
            &match &plan.target.signer {
                Some(signer) => format!("its manifest, and the signature of {signer}"),
                None => "its manifest; it is not signed".to_owned(),
            },
            "nothing",
            "perhaps the image, or a part of it, is imported on the hypervisor; no VM was changed",
            "none is needed; an imported image does no harm",
        ),
        Action::Snapshot => words(
            "pull a snapshot of etcd and keep it next to the journal".to_owned(),
            "a member that answers; the SHA-256 that the node reports",
            "nothing",
            "nothing was changed",
            "none is needed; the snapshot itself is the last resort: restoring it takes the whole cluster back",
        ),
        Action::CloneVm => words(
            format!("{name}: import the new VM {new}, off, without a data disk"),
            "no VM of this name; networks, size and properties are those of the old VM",
            "nothing",
            &format!("perhaps a part of {new}, which holds nothing"),
            &format!("{new} is removed"),
        ),
        Action::Prepare => words(
            format!("{name}: prepare: hand over the virtual IP and etcd's lead, move pods away"),
            "the node checks that it is ready, all other members are healthy and no other swap is under way; otherwise it refuses",
            "pods that run once only; the node takes no new ones",
            "the node may be cordoned",
            "the node withdraws the swap: it takes pods and the virtual IP again",
        ),
        Action::ShutDown => words(
            format!("{name}: shut {old} down and check that it is off"),
            match plan.options.mode {
                Mode::Rolling => {
                    "the node is prepared, all others are healthy, checked right before; the hypervisor reports the VM of its BIOS UUID as off"
                }
                Mode::AllAtOnce => "all new VMs are imported; the hypervisor reports the VM of its BIOS UUID as off",
            },
            service,
            &format!(
                "{old} is on or off, with its disk; if it was asked and is still on after 4 minutes its power is cut; if \
                 its guest cannot be asked, the operator shuts it down"
            ),
            &format!("{old} is powered on"),
        ),
        Action::Fence => words(
            format!("{name}: disconnect the network adapters of {old}, at power-on too"),
            &format!("{old} is off"),
            service,
            &format!("{old} is off, with its disk"),
            "the network adapters are connected again",
        ),
        Action::Detach => words(
            format!("{name}: detach the disk {disk} from {old}"),
            &format!("{old} is off and fenced; the disk is named by its UUID"),
            service,
            &format!("{old} or no VM holds the disk; its content is not touched"),
            &back,
        ),
        Action::Copy => words(
            format!("{name}: copy it, as {old} has left it, to a disk next to it"),
            "no VM holds it; there is room for its provisioned size",
            &format!("{service}, for as long as its datastore takes to copy it"),
            "perhaps an incomplete copy, which is created again; the disk itself is only read",
            &format!("{back}; the copy stays"),
        ),
        Action::Attach => {
            words(format!("{name}: attach it to {new}"), "no VM holds it", service, "no VM holds the disk", &back)
        }
        Action::PowerOn => words(
            format!("{name}: power {new} on"),
            &format!("{new} alone holds the disk; {old} is off and disconnected"),
            service,
            &format!("{new} is off or on, with the disk"),
            &back,
        ),
        Action::Gate => words(
            format!("{name}: wait at most {gate} s until {new} is healthy"),
            &format!(
                "the node reports: {image}, the same disk, the same member of etcd, caught up and healthy, API and \
                      virtual IP answer, ready, for a while"
            ),
            service,
            &format!("{new} runs and is not healthy"),
            &format!("{new} is shut down, {back}"),
        ),
        Action::Cancel => back_words(format!("{name}: withdraw the swap")),
        Action::EvacuateNew => {
            back_words(format!("{name}: hand over the virtual IP and etcd's lead, move pods away, if {new} runs well"))
        }
        Action::Keep => back_words(format!("{name}: leave it as it is")),
        Action::StopOld => back_words(format!("{name}: make sure that {old} is off")),
        Action::StopNew => back_words(format!("{name}: shut {new} down and check that it is off")),
        Action::FenceNew => back_words(format!("{name}: disconnect the network adapters of {new}, at power-on too")),
        Action::DetachNew => back_words(format!("{name}: detach the disk {disk} from {new}")),
        Action::AttachOld => back_words(format!("{name}: attach it to {old}")),
        Action::ReconnectOld => back_words(format!("{name}: connect the network adapters of {old} again")),
        Action::PowerOnOld => back_words(format!("{name}: power {old} on")),
        Action::GateOld => back_words(format!("{name}: wait at most {gate} s until {old} is healthy")),
        Action::DestroyNew => back_words(format!("{name}: remove {new}")),
        Action::Check => back_words(format!("check whether all nodes are healthy on {image}")),
        Action::Commit => back_words(format!("{name}: make {image} final")),
        Action::DestroyOld => back_words(format!("{name}: remove {old}")),
        Action::DeleteCopy => back_words(format!("{name}: remove the copy of its data disk")),
    }
}

/// The steps of rollback and commit are not part of a plan that is read beforehand.
fn back_words(title: String) -> Words {
    let none = String::new;
    Words { title, rests_on: none(), at_risk: none(), failure: none(), way_back: none() }
}

#[cfg(test)]
pub(super) mod tests {
    use fleet::upgrade::{Direction, Order, UpgradeStatus};
    use serde_json::json;

    use super::*;

    pub fn plan(mode: &str, on_failure: &str) -> Plan {
        let node = |name: &str, number: u8, last: bool| {
            json!({
                "name": name, "address": format!("10.0.0.{number}"), "old": uuid::Uuid::from_u128(number.into()),
                "old_name": name, "new_name": format!("{name}-bbbbbbb"),
                "disk": {"uuid": uuid::Uuid::from_u128(100), "path": "[ds] data.vmdk"}, "adapters": ["nic0"],
                "identity": uuid::Uuid::nil(), "member": "e0", "from": {"version": "0.1.0", "build": "aaaaaaa"},
                "swap": uuid::Uuid::nil(), "leads": last, "holds_address": last,
            })
        };
        let step = |action: &str, node: usize| json!({"action": action, "node": node});
        serde_json::from_value(json!({
            "id": uuid::Uuid::nil(), "deployment": uuid::Uuid::nil(), "cluster": uuid::Uuid::nil(),
            "members": [{"name": "cp1", "address": "10.0.0.11"}, {"name": "cp2", "address": "10.0.0.12"}],
            "target": {"ova": "/new.ova", "digest": "d", "name": "kaas-control-plane",
                "image": {"version": "0.2.0", "build": "bbbbbbb"}, "kubernetes": ["1.36"], "signer": null},
            "options": {"mode": mode, "gate_seconds": 900, "drain_seconds": 300, "on_failure": on_failure,
                "downgrade": false, "publisher": null},
            "grounds": [{"subject": "cp1", "evidence": "ready and found good"}],
            "nodes": [node("cp1", 11, false), node("cp2", 12, true)],
            "steps": [{"action": "verify"}, {"action": "snapshot"}, step("import", 0), step("prepare", 0),
                step("shut-down", 0), step("fence", 0), step("detach", 0), step("attach", 0), step("power-on", 0),
                step("gate", 0)],
        }))
        .unwrap()
    }

    /// An upgrade that has not ended and is not paused.
    pub fn status(plan: Plan) -> UpgradeStatus {
        UpgradeStatus {
            id: plan.id,
            direction: Direction::Forward,
            only: None,
            order: Order::LastFirst,
            left_out: Vec::new(),
            reason: None,
            outcome: None,
            waits_for_a_person: false,
            paused: None,
            done: 1,
            total: 2,
            next: None,
            held_by: None,
            copies: Vec::new(),
            plan,
            entries: Vec::new(),
        }
    }

    #[test]
    fn each_step_has_grounds_risks_failure_and_rollback() {
        let plan = plan("rolling", "node");
        let text = text(&plan);
        for part in ["rests on: ", "at risk:  ", "failure:  ", "rollback: "] {
            let lines = text.lines().filter(|line| line.trim_start().starts_with(part.trim_end()));
            assert_eq!(lines.count(), plan.steps.len(), "{part}: {text}");
        }
        assert!(!text.lines().any(|line| line.trim_end().ends_with(": ") || line.trim_end().ends_with("at risk:")));
        assert!(text.contains("cp1: ready and found good") && text.contains("is rolled back alone"), "{text}");
        assert!(text.contains("cp2-bbbbbbb; last, for it leads etcd and holds the virtual IP"), "{text}");
    }

    #[test]
    fn plan_names_the_placement_of_new_vms() {
        let mut plan = plan("rolling", "node");
        assert!(!text(&plan).contains("are put"));
        plan.options.placement.datastore = Some("fast".to_owned());
        plan.options.placement.resource_pool = Some("kaas".to_owned());
        assert!(text(&plan).contains("New VMs are put on the datastore fast, into the resource pool kaas."));
        let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(read, plan, "the journal has it");
    }

    #[test]
    fn plan_names_the_copies_of_data_disks() {
        let mut plan = plan("rolling", "node");
        assert!(!plan.options.copy_disks && !text(&plan).contains("is copied"));
        plan.options.copy_disks = true;
        plan.steps.push(Step::of(Action::Copy, 0));
        let text = text(&plan);
        assert!(
            text.contains("Each data disk is copied") && text.contains("cp1: copy it, as cp1 has left it"),
            "{text}"
        );
        let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(read, plan, "the journal has it");
    }

    #[test]
    fn plan_names_what_a_failure_rolls_back() {
        assert!(text(&plan("all-at-once", "all")).contains("causes a rollback of all nodes"));
        assert!(text(&plan("all-at-once", "all")).contains("all nodes at once: the Kubernetes API is away meanwhile"));
    }
}
