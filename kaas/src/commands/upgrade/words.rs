//! The messages about an upgrade: its progress, its state, and the next commands.

use fleet::upgrade::{
    AbandonedUnread, Direction, DiskCopy, KubernetesPlan, Mode, NodeChange, Notice, Order, Outcome, Preview,
    PreviewedNode, UnreadPreview, UpgradeStatus,
};

use super::describe;
use crate::output::Output;
use crate::work::UpgradeCommands;

/// Writes one or two lines about a notice.
pub fn tell(output: Output, notice: &Notice<'_>) {
    let say = |line: String| output.tell(&line);
    match notice {
        Notice::Step { plan, step, index, total, again } => {
            let again = if *again { ", again" } else { "" };
            say(format!("{:>2}/{total} {}{again}", index + 1, describe::title(plan, *step)));
        }
        Notice::Done { note } => say(format!("      {note}")),
        Notice::Losses { node, words } => say(format!("      {node}: {words}")),
        Notice::Waiting { what, why } => say(format!("      waiting for {what}: {}", why.words)),
        Notice::Paused { reason } => say(format!("      paused: {reason}; the command retries")),
        Notice::DirectionChanged { plan, direction, only, order, reason } => {
            let name = |node: &usize| plan.nodes[*node].name.clone();
            let who = only.as_ref().map_or_else(|| all(order, name), name);
            match direction {
                Direction::Forward => say(format!("Continuing ({reason}):")),
                Direction::Back => say(format!("      {reason}\nRolling back: {who}:")),
                Direction::Commit => say(format!("Committing ({reason}):")),
                Direction::Abandon => say(format!("Abandoning ({reason}):")),
            }
        }
        Notice::TakingOver { words } => say((*words).to_owned()),
        Notice::Stamped { node, vm } => say(format!("{node}: the VM {vm} is stamped")),
        Notice::Snapshot { place, bytes } => say(format!("snapshot of etcd: {place} ({bytes} bytes)")),
        Notice::NoSnapshot { name } => {
            say(format!(
                "no snapshot of etcd is taken: a node has begun, and {name}, from before that, is not kept here"
            ));
        }
        Notice::Kubernetes { node, to, index, total } => {
            say(format!("[{}/{total}] {}: Kubernetes {} to {to}", index + 1, node.name, node.runs));
        }
        Notice::KubernetesRuns { version, seconds } => {
            say(format!("      runs {version} and is healthy, after {seconds} s"));
        }
    }
}

/// All nodes, with the order of their rollback.
fn all(order: &Order, name: impl Fn(&usize) -> String) -> String {
    match order {
        Order::LastFirst => "all nodes".to_owned(),
        Order::First(ill) => {
            let together = ill.together.iter().map(&name).collect::<Vec<_>>().join(" and ");
            let one_by_one = ill.one_by_one.iter().map(name);
            let first: Vec<String> = [together].into_iter().filter(|name| !name.is_empty()).chain(one_by_one).collect();
            let first = first.join(", then ");
            format!("all nodes, the unhealthy ones first ({first}): no other one may leave before they are repaired")
        }
        Order::AtOnce | Order::WithoutQuorum => "all nodes at once".to_owned(),
    }
}

/// The state of an upgrade, and the next command.
pub fn status(status: &UpgradeStatus, commands: &UpgradeCommands) -> String {
    let id = status.id;
    let reason = status.reason.as_ref().map_or_else(|| "no reason was recorded".to_owned(), ToString::to_string);
    let mut text = match status.outcome {
        Some(Outcome::Upgraded) => format!(
            "upgrade {id}: all nodes run the new image; `{}` makes it final, `rollback` rolls it back",
            commands.with("commit")
        ),
        Some(Outcome::RolledBack) if status.left_out.is_empty() => {
            format!("upgrade {id}: all nodes run what they ran before ({reason})")
        }
        Some(Outcome::RolledBack) => format!(
            "upgrade {id}: all nodes but {} run what they ran before ({reason}). Replace what is lost before the next one",
            status.left_out.join(", "),
        ),
        Some(Outcome::Committed) => format!("upgrade {id}: the new image is final"),
        Some(Outcome::Abandoned) => format!("upgrade {id}: abandoned; its VMs stay as they are"),
        None if status.waits_for_a_person => format!(
            "upgrade {id}: {} was rolled back alone, because it was not healthy on the new image ({reason}); the other nodes \
             stay as they are. `{}` tries it again, `rollback` rolls all nodes back",
            status.only.as_deref().unwrap_or("a node"),
            commands.with("resume"),
        ),
        None => {
            let direction = match status.direction {
                Direction::Forward => "forward",
                Direction::Back => "back",
                Direction::Commit => "of the commit",
                Direction::Abandon => "of the end",
            };
            let next = status.next.map(|step| describe::title(&status.plan, step));
            format!(
                "upgrade {id}: {} of {} steps {direction}{} are done; next: {}; `{}` continues it{}",
                status.done,
                status.total,
                who_goes_back(status),
                next.as_deref().unwrap_or("record the end"),
                commands.with("resume"),
                match (status.direction, &status.only) {
                    (Direction::Forward, _) => ", `rollback` rolls it back",
                    (Direction::Back, Some(_)) => ", `rollback` rolls all nodes back",
                    (Direction::Back, None) if status.plan.options.mode == Mode::Rolling =>
                        ", `rollback` checks again which nodes are unhealthy and come first",
                    _ => "",
                },
            )
        }
    };
    if let (None, Some(paused)) = (status.outcome, &status.paused) {
        text += &format!("\npaused: {paused}");
        let needs_others = ["upgrade.member-unhealthy", "upgrade.unreachable"].contains(&&*paused.code);
        let one_by_one = status.plan.options.mode == Mode::Rolling && !is_at_once(&status.order);
        if status.direction == Direction::Back && one_by_one && status.plan.members.len() > 1 && needs_others {
            text += &format!(
                "\nIf this continues, `{}` rolls back all other nodes, all off and all on, whatever the others report; \
                 the API does not answer meanwhile",
                commands.with("rollback --all-at-once")
            );
        }
    }
    if let (None, Some(holder)) = (status.outcome, &status.held_by) {
        text += &format!("\n{holder} works on it");
    }
    text + &copies(&status.copies, status.outcome) + &earlier_copies(&status.plan.other_copies)
}

/// The copies of data disks, a line each, and when they are removed. Empty without copies.
fn copies(copies: &[DiskCopy], outcome: Option<Outcome>) -> String {
    if copies.is_empty() {
        return String::new();
    }
    let removed = match outcome {
        None | Some(Outcome::Upgraded) => "the commit removes them; after a rollback they stay",
        Some(Outcome::RolledBack | Outcome::Committed | Outcome::Abandoned) => {
            "they stay: remove them yourself once they are no longer needed"
        }
    };
    format!("\ncopies of data disks as the old image has left them; {removed}:{}", one_by_one(copies))
}

/// As [`copies`], for those of earlier upgrades.
fn earlier_copies(copies: &[DiskCopy]) -> String {
    if copies.is_empty() {
        return String::new();
    }
    let stay = "they stay: remove them yourself once they are no longer needed";
    format!("\ncopies of data disks that upgrades before this one have left; {stay}:{}", one_by_one(copies))
}

fn one_by_one(copies: &[DiskCopy]) -> String {
    copies.iter().map(|copy| format!("\n  {copy}")).collect()
}

/// Whether all nodes are rolled back at once, though they were swapped one by one.
fn is_at_once(order: &Order) -> bool {
    matches!(order, Order::AtOnce | Order::WithoutQuorum)
}

/// The nodes that are rolled back, and how, unless all are rolled back one by one.
fn who_goes_back(status: &UpgradeStatus) -> String {
    let at_once = status.plan.options.mode == Mode::AllAtOnce || is_at_once(&status.order);
    match (status.direction, &status.only) {
        (Direction::Back, Some(node)) => format!(", for {node} alone,"),
        (Direction::Back, None) if at_once => ", of all nodes at once, with the API away meanwhile,".to_owned(),
        _ => String::new(),
    }
}

/// The message after an upgrade was abandoned whose journal could not be read.
pub fn abandoned_unread(end: &AbandonedUnread) -> String {
    format!(
        "the upgrade of lease {} is abandoned; its VMs stay as they are. Which of them it made is not known: compare them \
         with the nodes before you remove one",
        end.unread
    )
}

/// The changes that a request to an upgrade would make: node by node, then step by step.
pub fn preview(preview: &Preview) -> String {
    let id = preview.id;
    let over =
        preview.takes_over_from.as_ref().map(|holder| format!("takes over from {holder}, which starts nothing more"));
    if let Some(outcome) = preview.outcome {
        let reached = match outcome {
            Outcome::Upgraded => "all nodes run the new image",
            Outcome::RolledBack => "it was rolled back",
            Outcome::Committed => "it was committed",
            Outcome::Abandoned => "it was abandoned",
        };
        let over = over.map(|over| format!("\n{over}")).unwrap_or_default();
        return format!("upgrade {id}: nothing would change, because {reached}{over}");
    }
    let mut lines = vec![match preview.direction {
        Direction::Forward => format!("Continuation of the upgrade {id}"),
        Direction::Back => format!("Rollback of the upgrade {id}: {}", who_would_go_back(preview)),
        Direction::Commit => format!("Commit of the upgrade {id}: after it, no rollback is possible"),
        Direction::Abandon => {
            format!("End of the upgrade {id} where it is: after it, no rollback and no commit is possible")
        }
    }];
    lines.extend(over);
    lines.extend(preview.nodes.iter().map(|node| format!("  {}", would_become(node))));
    if !preview.left_out.is_empty() {
        lines.push(format!("  left out, because the old VM is gone: {}", preview.left_out.join(", ")));
    }
    if !preview.copies.is_empty() {
        let removed = if preview.direction == Direction::Commit { "are removed" } else { "stay" };
        lines.push(format!("Copies of data disks, which {removed}:{}", one_by_one(&preview.copies)));
    }
    if let Some(place) = &preview.snapshot {
        lines.push(format!("The snapshot of etcd from before the upgrade stays: {place}"));
    }
    lines.push("The steps".to_owned());
    if preview.steps.is_empty() {
        lines.push("  only the end is recorded".to_owned());
    }
    let steps = preview.steps.iter().zip(1..);
    lines.extend(steps.map(|(step, number)| format!("{number:>3}. {}", describe::title(&preview.plan, step.step))));
    lines.push("nothing was changed".to_owned());
    lines.join("\n")
}

/// The nodes that a dry run names for a rollback, with their order.
fn who_would_go_back(preview: &Preview) -> String {
    let plan = &preview.plan;
    match &preview.only {
        Some(node) => node.clone(),
        None if plan.options.mode == Mode::AllAtOnce => "all nodes at once".to_owned(),
        None => all(&preview.order, |node| plan.nodes[*node].name.clone()),
    }
}

fn would_become(PreviewedNode { name, old_vm, new_vm, change, note }: &PreviewedNode) -> String {
    match change {
        NodeChange::MoveToNew => format!("{name}: the VM {new_vm} replaces {old_vm}, and gets the data disk"),
        NodeChange::ReturnToOld => format!(
            "{name}: the VM {old_vm} replaces {new_vm}, and gets the data disk as it is now; {new_vm} is removed"
        ),
        NodeChange::WithdrawSwap => {
            format!("{name}: it stays in the VM {old_vm}; its swap is withdrawn, and {new_vm} is removed")
        }
        NodeChange::RemoveNew => format!("{name}: it stays in the VM {old_vm}; {new_vm} is removed"),
        NodeChange::Commit => format!("{name}: it stays in the VM {new_vm} for good; {old_vm} is removed"),
        NodeChange::Replaced => format!(
            "{name}: it was replaced by hand, and stays in its present VM; only {old_vm} and {new_vm} may be removed"
        ),
        NodeChange::Keep => format!("{name}: {}", note.as_deref().unwrap_or("it stays as it is")),
    }
}

/// The dry run of the end of an upgrade whose journal cannot be read.
pub fn unread(preview: &UnreadPreview) -> String {
    let lease = preview.unread;
    let mut text = match preview.abandoned {
        true => format!("the upgrade of lease {lease} is abandoned already: nothing would change"),
        false => format!("would abandon the upgrade of lease {lease}; its VMs stay as they are:"),
    };
    text.extend(preview.notes.iter().map(|note| format!("\n  {note}")));
    text
}

/// The plan of an upgrade of Kubernetes.
pub fn kubernetes(plan: &KubernetesPlan) -> String {
    let mut text = format!("Upgrade of Kubernetes to {}\n\nIt rests on\n", plan.to);
    for ground in &plan.grounds {
        text += &format!("  {}: {}\n", ground.subject, ground.evidence);
    }
    text += "\nA snapshot of etcd is taken. Then, one node after the other,\n";
    for node in &plan.nodes {
        let begun = if node.begun { ", begun before" } else { "" };
        text += &format!("  {} ({}): from {}{begun}\n", node.name, node.address, node.runs);
    }
    text += "\nyields the virtual IP, moves its pods away, renews its certificates, starts its control plane and\n\
             kubelet in the new version and takes pods again. A node whose pods do not move away stays as it is.\n";
    text
}

#[cfg(test)]
mod tests {
    use fleet::upgrade::{Action, Damaged, IllNodes, KeptCopy, PreviewedStep, Reason, Step};

    use super::*;
    use crate::work::{advised, advised_with};

    fn commands() -> UpgradeCommands {
        UpgradeCommands::new("kaas", [("file", "my cluster.toml".to_owned())])
    }

    #[test]
    fn suggested_commands_name_the_cluster() {
        let plan = || describe::tests::plan("rolling", "node");
        let of = |outcome, waits_for_a_person| {
            status(&UpgradeStatus { outcome, waits_for_a_person, ..describe::tests::status(plan()) }, &commands())
        };
        for (told, verb) in
            [(of(Some(Outcome::Upgraded), false), "commit"), (of(None, true), "resume"), (of(None, false), "resume")]
        {
            assert!(told.contains(&format!("`kaas control upgrade {verb} --file 'my cluster.toml'`")), "{told}");
        }
        let damaged = || Damaged { words: "lease 7 is damaged".to_owned(), hold: 7, plan: None };
        for (error, options) in [
            (advised(damaged().into()), "--file FILE"),
            (advised_with(damaged().into(), &commands()), "--file 'my cluster.toml'"),
        ] {
            let error = error.to_string();
            assert!(error.contains(&format!("`kaas control upgrade abandon --confirm 7 {options}`")), "{error}");
        }
    }

    #[test]
    fn damaged_journal_names_the_abandon_command() {
        let plan = Box::new(describe::tests::plan("rolling", "node"));
        for (plan, confirm) in [(Some(plan.clone()), plan.id.to_string()), (None, "7".to_owned())] {
            let damaged = Damaged { words: "lease 7 is damaged".to_owned(), hold: 7, plan };
            let error = advised(damaged.into()).to_string();
            assert!(error.contains(&format!("`kaas control upgrade abandon --confirm {confirm} --file")), "{error}");
        }
    }

    fn paused(mode: &str, direction: Direction, code: &str) -> String {
        paused_on(mode, direction, code, (None, Order::LastFirst))
    }

    fn paused_on(mode: &str, direction: Direction, code: &str, (only, order): (Option<&str>, Order)) -> String {
        let plan = describe::tests::plan(mode, "node");
        let paused = UpgradeStatus {
            direction,
            only: only.map(str::to_owned),
            order,
            paused: Some(Reason::new(code, "a reason")),
            ..describe::tests::status(plan)
        };
        status(&paused, &commands())
    }

    #[test]
    fn disk_copies_are_listed_with_their_removal() {
        let copy = |uuid| DiskCopy {
            node: "cp1".to_owned(),
            copy: KeptCopy { path: "[ds] cp1/data-before-1a2b3c4d.vmdk".to_owned(), uuid },
        };
        let all = [copy(None), copy(Some(uuid::Uuid::from_u128(7)))];
        for open in [None, Some(Outcome::Upgraded)] {
            let told = copies(&all[1..], open);
            assert!(told.contains("of cp1: [ds] cp1/data-before-1a2b3c4d.vmdk"), "{told}");
            assert!(told.contains("commit removes") && !told.contains("half"), "{told}");
        }
        for ended in [Outcome::RolledBack, Outcome::Committed, Outcome::Abandoned] {
            let told = copies(&all, Some(ended));
            assert!(told.contains("perhaps incomplete") && told.contains("remove them yourself"), "{told}");
        }
        assert_eq!(copies(&[], None), "");
    }

    #[test]
    fn status_lists_the_copies() {
        let mut plan = describe::tests::plan("rolling", "node");
        let path = "[ds] cp1/data-before-1a2b3c4d.vmdk".to_owned();
        let copy = KeptCopy { path, uuid: Some(uuid::Uuid::from_u128(7)) };
        let earlier = KeptCopy { path: "[ds] cp1/data-before-2b3c4d5e.vmdk".to_owned(), ..copy.clone() };
        plan.other_copies = vec![DiskCopy { node: "cp1".to_owned(), copy: earlier }];
        let rolled_back = UpgradeStatus {
            direction: Direction::Back,
            outcome: Some(Outcome::RolledBack),
            copies: vec![DiskCopy { node: "cp1".to_owned(), copy }],
            ..describe::tests::status(plan)
        };
        let told = status(&rolled_back, &commands());
        assert!(told.contains("data-before-1a2b3c4d") && told.contains("they stay"), "{told}");
        let (_, earlier) = told.split_once("upgrades before this one have left").expect("those of before");
        assert!(earlier.contains("of cp1: [ds] cp1/data-before-2b3c4d5e.vmdk"), "{told}");
    }

    #[test]
    fn paused_rollback_names_the_all_at_once_option() {
        let way_out = "`kaas control upgrade rollback --all-at-once --file";
        for code in ["upgrade.member-unhealthy", "upgrade.unreachable"] {
            assert!(paused("rolling", Direction::Back, code).contains(way_out));
            assert!(!paused("rolling", Direction::Forward, code).contains(way_out));
            assert!(!paused("all-at-once", Direction::Back, code).contains(way_out), "they are already");
        }
        assert!(!paused("rolling", Direction::Back, "hypervisor.denied").contains(way_out));
    }

    #[test]
    fn status_names_the_nodes_of_a_rollback() {
        let code = "upgrade.member-unhealthy";
        let alone = paused_on("rolling", Direction::Back, code, (Some("cp3"), Order::LastFirst));
        assert!(alone.contains("for cp3 alone") && alone.contains("`rollback` rolls all nodes back"), "{alone}");
        for order in [Order::AtOnce, Order::WithoutQuorum] {
            let all = paused_on("rolling", Direction::Back, code, (None, order));
            assert!(all.contains("of all nodes at once, with the API away"), "{all}");
            assert!(!all.contains("--all-at-once"), "they are already: {all}");
        }
    }

    fn previewed(direction: Direction, change: NodeChange, action: Action) -> Preview {
        let (plan, step) = (describe::tests::plan("rolling", "node"), Step::of(action, 0));
        let name = || "cp1".to_owned();
        let note = (change == NodeChange::Keep).then(|| "it runs 0.2.0; its swap would be made final".to_owned());
        Preview {
            dry_run: true,
            id: plan.id,
            takes_over_from: None,
            direction,
            only: None,
            order: Order::LastFirst,
            left_out: Vec::new(),
            outcome: None,
            nodes: vec![PreviewedNode { name: name(), old_vm: name(), new_vm: "cp1-bbbbbbb".to_owned(), change, note }],
            copies: Vec::new(),
            snapshot: None,
            steps: vec![PreviewedStep { action, node: Some(name()), step }],
            plan,
        }
    }

    #[test]
    fn dry_run_names_vms_and_steps() {
        for (direction, change, action, expected) in [
            (Direction::Forward, NodeChange::MoveToNew, Action::PowerOn, "the VM cp1-bbbbbbb replaces cp1, and"),
            (Direction::Back, NodeChange::ReturnToOld, Action::PowerOnOld, "the VM cp1 replaces cp1-bbbbbbb, and"),
            (Direction::Back, NodeChange::WithdrawSwap, Action::Cancel, "its swap is withdrawn, and cp1-bbbbbbb is"),
            (Direction::Back, NodeChange::RemoveNew, Action::DestroyNew, "cp1; cp1-bbbbbbb is removed"),
            (Direction::Commit, NodeChange::Commit, Action::DestroyOld, "for good; cp1 is removed"),
            (Direction::Commit, NodeChange::Replaced, Action::DestroyOld, "only cp1 and cp1-bbbbbbb may be removed"),
            (Direction::Abandon, NodeChange::Keep, Action::Keep, "its swap would be made final"),
        ] {
            let looked = previewed(direction, change, action);
            let text = preview(&looked);
            assert!(text.contains("\n  cp1: ") && text.contains(expected), "{text}");
            let step = format!("\nThe steps\n  1. {}\n", describe::title(&looked.plan, looked.steps[0].step));
            assert!(text.contains(&step) && text.ends_with("\nnothing was changed"), "{text}");
        }
    }

    #[test]
    fn dry_run_names_order_copies_and_snapshot() {
        let path = "[ds] cp1/data-before-1a2b3c4d.vmdk".to_owned();
        let copy = DiskCopy { node: "cp1".to_owned(), copy: KeptCopy { path, uuid: Some(uuid::Uuid::from_u128(7)) } };
        let commit = Preview {
            copies: vec![copy.clone()],
            snapshot: Some("[ds] kaas/before.db".to_owned()),
            ..previewed(Direction::Commit, NodeChange::Commit, Action::DestroyOld)
        };
        let text = preview(&commit);
        assert!(text.contains("which are removed:\n  of cp1: [ds] cp1/data-before-1a2b3c4d.vmdk"), "{text}");
        assert!(text.contains("from before the upgrade stays: [ds] kaas/before.db"), "{text}");
        let rollback = Preview {
            copies: vec![copy],
            order: Order::AtOnce,
            left_out: vec!["cp2".to_owned()],
            ..previewed(Direction::Back, NodeChange::ReturnToOld, Action::PowerOnOld)
        };
        let text = preview(&rollback);
        assert!(text.contains(": all nodes at once\n") && text.contains("which stay:"), "{text}");
        assert!(text.contains("left out, because the old VM is gone: cp2"), "{text}");
        let taken = Preview { takes_over_from: Some("kaas (process 7)".to_owned()), ..rollback.clone() };
        let expected = ": all nodes at once\ntakes over from kaas (process 7), which starts nothing more\n";
        assert!(preview(&taken).contains(expected), "{}", preview(&taken));
        assert!(preview(&Preview { only: Some("cp2".to_owned()), ..rollback }).contains(": cp2\n"));
        let ended = previewed(Direction::Commit, NodeChange::Commit, Action::DestroyOld);
        let text = preview(&Preview { outcome: Some(Outcome::Committed), ..ended });
        assert!(text.ends_with("nothing would change, because it was committed"), "{text}");
    }

    #[test]
    fn dry_run_of_unread_upgrade_lists_notes() {
        let looked =
            UnreadPreview { dry_run: true, unread: 7, abandoned: false, notes: vec!["cp1: silent".to_owned()] };
        let expected = "would abandon the upgrade of lease 7; its VMs stay as they are:\n  cp1: silent";
        assert_eq!(unread(&looked), expected);
        assert!(unread(&UnreadPreview { abandoned: true, ..looked }).contains("nothing would change\n  cp1"));
    }

    #[test]
    fn unhealthy_nodes_are_listed_in_order() {
        let order = |together: &[usize], one_by_one: &[usize]| {
            let ill = IllNodes { together: together.to_vec(), one_by_one: one_by_one.to_vec() };
            all(&Order::First(ill), |node| format!("cp{node}"))
        };
        assert!(order(&[2, 1], &[3]).contains("(cp2 and cp1, then cp3)"));
        assert!(order(&[], &[3, 1]).contains("(cp3, then cp1)"));
    }
}
